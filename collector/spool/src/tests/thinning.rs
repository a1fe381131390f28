//! Thinned streams compared with whole ones: at each kept record, stack and time are those of the
//! whole stream, and a frame is the same call if it is present.

use std::collections::HashMap;

use plimsoll_wire::record::{Delta, OffCpu, Record, Stamp, tick_stamp};
use plimsoll_wire::sync_id::SyncId;
use proptest::prelude::*;

use super::{Owned, any_record};
use crate::thinning::Thinning;

const PERIOD: u64 = 100_000;

/// Content of a record with all relative values made absolute.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    stamp: u64,
    /// The stack (or the slot's path): ids, with the number of the call that each is.
    stack: Vec<(u32, u64)>,
    /// Slot, call and the like, as they stand in the record.
    rest: Option<Owned>,
}

/// Replays a stream in which calls get numbers by `number`: a frame that is new at a record.
fn replay(records: &[Owned], mut number: impl FnMut(u64, usize) -> u64) -> Vec<Said> {
    let (mut stamp, mut stack) = (0, Vec::new());
    let mut slots: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
    let mut all = Vec::new();
    for record in records {
        let record = record.get();
        let mut moved = |stack: &[(u32, u64)], delta: Delta<'_>, at: u64| {
            let mut path = stack[..stack.len() - delta.dropped as usize].to_vec();
            for id in delta.added {
                path.push((*id, number(at, path.len())));
            }
            path
        };
        let mut rest = None;
        match record {
            Record::Tick { delay, stack: delta } => {
                stamp = tick_stamp(stamp, PERIOD, delay).unwrap();
                stack = moved(&stack, delta, stamp);
            }
            Record::Sample {
                stamp: Stamp::Delta(step),
                stack: delta,
                entered,
                off_cpu,
                truncated,
            } => {
                stamp += step;
                stack = moved(&stack, delta, stamp);
                if entered.is_some() || off_cpu.is_some() || truncated {
                    let stack = Delta { dropped: 0, added: &[] };
                    let stamp = Stamp::Delta(0);
                    let plain = Record::Sample { stamp, stack, entered, off_cpu, truncated };
                    rest = Some(Owned::new(&plain));
                }
            }
            Record::Sample { stamp: Stamp::Resync(at), stack: delta, .. } => {
                stamp = at;
                stack = moved(&[], delta, stamp);
            }
            Record::Slot { slot, stack: delta } => {
                let path = moved(&stack, delta, stamp + u64::from(slot) + 1);
                slots.insert(slot, path.clone());
                all.push(Said { stamp: 0, stack: path, rest: None });
                continue;
            }
            Record::Exit {
                stamp: Stamp::Delta(step),
                slot,
                common: kept,
                duration,
                bytes,
                sync,
                off_cpu,
            } => {
                stamp += step;
                let path = &slots[&slot];
                stack.truncate(kept as usize);
                for (id, _) in &path[stack.len()..] {
                    stack.push((*id, number(stamp, stack.len())));
                }
                let (stamp, kept) = (Stamp::Delta(0), 0);
                let plain =
                    Record::Exit { stamp, slot, common: kept, duration, bytes, sync, off_cpu };
                rest = Some(Owned::new(&plain));
            }
            Record::Pause { stamp: Stamp::Delta(step) } => stamp += step,
            Record::Lost { .. } => {
                stack.clear();
                slots.clear();
                rest = Some(Owned::new(&record));
            }
            _ => rest = Some(Owned::new(&record)),
        }
        all.push(Said { stamp, stack: stack.clone(), rest });
    }
    all
}

/// A step of a thread that tells the truth about its stack.
#[derive(Clone, Debug)]
enum Act {
    Tick(i8, u32, Vec<u32>),
    Sample(u64, u32, Vec<u32>, Option<u64>, bool, bool),
    Announce(u32, u32, Vec<u32>),
    Exit(u64, u32, u32),
    Tally(u32),
    Pause(u64),
    Lose,
    Halve,
}

fn act() -> impl Strategy<Value = Act> {
    let ids = || prop::collection::vec(1u32..9, 0..4);
    // Steps are longer than what keeps announcements apart from each other.
    let step = 1000u64..200_000;
    prop_oneof![
        8 => (any::<i8>(), 0u32..5, ids())
            .prop_map(|(delay, dropped, added)| Act::Tick(delay, dropped, added)),
        3 => (
            step.clone(),
            0u32..5,
            ids(),
            prop::option::of(0u64..9000),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(step, dropped, added, entered, off, cut)| {
                Act::Sample(step, dropped, added, entered, off, cut)
            }),
        2 => (0u32..3, 0u32..5, ids())
            .prop_map(|(slot, dropped, added)| Act::Announce(slot, dropped, added)),
        3 => (step.clone(), 0u32..3, 0u32..9)
            .prop_map(|(step, slot, kept)| Act::Exit(step, slot, kept)),
        1 => (0u32..3).prop_map(Act::Tally),
        1 => step.prop_map(Act::Pause),
        1 => Just(Act::Lose),
        1 => Just(Act::Halve),
    ]
}

/// The records of a thread that does this, and before which the stream is halved.
fn records(acts: &[Act]) -> (Vec<Owned>, Vec<usize>) {
    let (mut records, mut halved) = (Vec::new(), Vec::new());
    let mut slots: HashMap<u32, Vec<u32>> = HashMap::new();
    let resync = |stamp, records: &mut Vec<Owned>| {
        let (stamp, stack) = (Stamp::Resync(stamp), Delta { dropped: 0, added: &[3, 3, 3] });
        let (entered, off_cpu, truncated) = (None, None, false);
        records.push(Owned::new(&Record::Sample { stamp, stack, entered, off_cpu, truncated }));
        stack.added.to_vec()
    };
    let mut stamp = 1u64 << 40;
    let mut stack = resync(stamp, &mut records);
    for act in acts {
        let moved = |dropped: u32, added: &[u32]| {
            let dropped = dropped.min(stack.len() as u32);
            (dropped, [&stack[..stack.len() - dropped as usize], added].concat())
        };
        let record = match act {
            Act::Tick(delay, dropped, added) => {
                stamp = tick_stamp(stamp, PERIOD, *delay).unwrap();
                let (dropped, path) = moved(*dropped, added);
                stack = path;
                Owned::new(&Record::Tick { delay: *delay, stack: Delta { dropped, added } })
            }
            Act::Sample(step, dropped, added, entered, off, truncated) => {
                stamp += step;
                let (dropped, path) = moved(*dropped, added);
                stack = path;
                let off_cpu = off.then_some(OffCpu { cpu_ns: 64, run_delay_ns: 128 });
                let (entered, truncated) = (*entered, *truncated);
                let (stamp, stack) = (Stamp::Delta(*step), Delta { dropped, added });
                Owned::new(&Record::Sample { stamp, stack, entered, off_cpu, truncated })
            }
            Act::Announce(slot, dropped, added) => {
                let (dropped, path) = moved(*dropped, added);
                slots.insert(*slot, path);
                Owned::new(&Record::Slot { slot: *slot, stack: Delta { dropped, added } })
            }
            Act::Exit(step, slot, kept) => {
                let Some(path) = slots.get(slot) else { continue };
                stamp += step;
                let same = path.iter().zip(&stack).take_while(|(one, other)| one == other).count();
                let (slot, kept) = (*slot, (*kept).min(same as u32));
                stack.clone_from(path);
                let (stamp, duration, bytes) = (Stamp::Delta(*step), step / 2, 7);
                let (sync, off_cpu) = (Some(SyncId { subgroup: None, index: 1 }), None);
                Owned::new(&Record::Exit {
                    stamp,
                    slot,
                    common: kept,
                    duration,
                    bytes,
                    sync,
                    off_cpu,
                })
            }
            Act::Tally(slot) => {
                let (slot, count) = (*slot, 1);
                Owned::new(&Record::Tally { slot, count, sum: 5, bytes: 0 })
            }
            Act::Pause(step) => {
                stamp += step;
                Owned::new(&Record::Pause { stamp: Stamp::Delta(*step) })
            }
            Act::Lose => {
                records.push(Owned::new(&Record::Lost { records: 2 }));
                stamp += 1_000_000;
                slots.clear();
                stack = resync(stamp, &mut records);
                continue;
            }
            Act::Halve => {
                halved.push(records.len());
                continue;
            }
        };
        records.push(record);
    }
    (records, halved)
}

/// Thins a stream; returns it and how many samples were merged.
fn thin(records: &[Owned], halved: &[usize]) -> (Vec<Owned>, u64) {
    let mut thinning = Thinning::new(Some(PERIOD));
    let (mut kept, mut samples) = (Vec::new(), 0);
    let mut keep = |record: &Record<'_>, merged: u64| {
        kept.push(Owned::new(record));
        samples += merged;
    };
    for (place, record) in records.iter().enumerate() {
        let level = halved.iter().filter(|at| **at <= place).count() as u32;
        thinning.pass(&record.get(), level, &mut keep);
    }
    thinning.release(&mut keep);
    (kept, samples)
}

fn is_sample(record: &Owned) -> bool {
    matches!(record.get(), Record::Sample { .. } | Record::Tick { .. })
}

proptest! {
    #[test]
    fn what_is_kept_says_the_same(acts in prop::collection::vec(act(), 0..80)) {
        let (whole, halved) = records(&acts);
        let (thinned, merged) = thin(&whole, &halved);
        prop_assert_eq!(whole.len() as u64, thinned.len() as u64 + merged);
        let others = |records: &[Owned]| records.iter().filter(|record| !is_sample(record)).count();
        prop_assert_eq!(others(&whole), others(&thinned));

        // In the whole stream each new frame is a call of its own; in the thinned one, a new frame
        // gets the number that the whole stream has for it at that time.
        let mut calls = 0;
        let said = replay(&whole, |_, _| { calls += 1; calls });
        let timed = |pair: &(&Owned, &Said)| pair.0.get().is_timed();
        let then: HashMap<u64, &Said> =
            whole.iter().zip(&said).filter(timed).map(|(_, said)| (said.stamp, said)).collect();
        let number = |at: u64, place: usize| {
            then.get(&at).and_then(|said| said.stack.get(place)).map_or(0, |frame| frame.1)
        };
        let resaid = replay(&thinned, number);
        let mut before: &[(u32, u64)] = &[];
        for (record, said) in thinned.iter().zip(&resaid).filter(timed) {
            prop_assert_eq!(said, then[&said.stamp], "{:?}", record);
            let both = before.iter().zip(&said.stack);
            let same = both.take_while(|(one, other)| one == other).count();
            match record.get() {
                Record::Tick { stack, .. }
                | Record::Sample { stamp: Stamp::Delta(_), stack, .. } => {
                    prop_assert_eq!(stack.dropped as usize, before.len() - same);
                }
                Record::Exit { common: kept, .. } => prop_assert_eq!(kept as usize, same),
                _ => {}
            }
            before = &said.stack;
        }
        let end = |said: &[Said]| said.iter().map(|said| said.stamp).max();
        prop_assert_eq!(end(&resaid), end(&said));

        let untimed = |records: &[Owned], said: &[Said]| {
            let ids = |said: &Said| said.stack.iter().map(|frame| frame.0).collect::<Vec<_>>();
            let pairs = records.iter().zip(said).filter(|pair| !timed(pair));
            pairs.map(|(record, said)| match record.get() {
                Record::Slot { slot, .. } => (Some(slot), ids(said), None),
                _ => (None, Vec::new(), said.rest.clone()),
            }).collect::<Vec<_>>()
        };
        prop_assert_eq!(untimed(&thinned, &resaid), untimed(&whole, &said));
    }

    #[test]
    fn a_stream_that_contradicts_itself_is_passed_on(
        whole in prop::collection::vec(any_record(), 0..60),
        level in 0u32..40,
    ) {
        let (thinned, merged) = thin(&whole, &vec![0; level as usize]);
        prop_assert_eq!(whole.len() as u64, thinned.len() as u64 + merged);
        if level == 0 {
            prop_assert_eq!(thinned, whole);
        }
    }
}

/// Ticks that each replace the innermost frame.
fn ticks(count: usize) -> Vec<Owned> {
    let (mut all, _) = records(&[]);
    for id in 0..count as u32 {
        let stack = Delta { dropped: 1, added: &[id] };
        all.push(Owned::new(&Record::Tick { delay: 2, stack }));
    }
    all
}

#[test]
fn one_in_two_to_the_level_is_kept() {
    for (level, kept) in [(0, 64), (1, 32), (2, 16), (3, 8), (6, 1)] {
        let (thinned, merged) = thin(&ticks(64), &vec![0; level]);
        assert_eq!((thinned.len() - 1, merged), (kept, 64 - kept as u64));
    }
}

#[test]
fn two_ticks_become_a_sample() {
    let (thinned, _) = thin(&ticks(2), &[0]);
    let stack = Delta { dropped: 1, added: &[1] };
    let stamp = Stamp::Delta(2 * tick_stamp(0, PERIOD, 2).unwrap());
    let (entered, off_cpu) = (None, None);
    let merged = Record::Sample { stamp, stack, entered, off_cpu, truncated: false };
    assert_eq!(thinned[1].get(), merged);
}

#[test]
fn without_a_period_ticks_stay() {
    let whole = ticks(9);
    let mut thinning = Thinning::new(None);
    let mut kept = Vec::new();
    for record in &whole {
        thinning.pass(&record.get(), 1, |record, _| kept.push(Owned::new(record)));
    }
    assert_eq!(kept, whole);
}

#[test]
fn an_exit_keeps_only_frames_that_were_there_before_the_sample_that_is_left_out() {
    let (mut whole, _) = records(&[]);
    let path = Delta { dropped: 2, added: &[7, 8] };
    whole.push(Owned::new(&Record::Slot { slot: 0, stack: path }));
    let stack = Delta { dropped: 2, added: &[5, 6] };
    whole.push(Owned::new(&Record::Tick { delay: 0, stack }));
    let exit = |stamp, kept| Record::Exit {
        stamp: Stamp::Delta(stamp),
        slot: 0,
        common: kept,
        duration: 10,
        bytes: 0,
        sync: None,
        off_cpu: None,
    };
    whole.push(Owned::new(&exit(1000, 3)));
    let (thinned, merged) = thin(&whole, &[0]);
    assert_eq!(merged, 1);
    assert_eq!(thinned.last().unwrap().get(), exit(PERIOD + 1000, 1));
}
