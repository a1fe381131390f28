//! Law of the collector: for any records, every stamp of the run is attributed once.

use proptest::prelude::*;

use super::assert_partition;
use super::subject::{BEGIN, STAMP_NS, Subject};
use crate::{Collector, Options};

#[derive(Clone, Debug)]
enum Step {
    Sample { after: u64, stack: Vec<u8>, run_delay: Option<u64> },
    Tick { delay: i8, stack: Vec<u8> },
    Inside { after: u64, slot: u8, entered: u64 },
    Exit { after: u64, slot: u8, duration: u64, sync: bool },
    Tally { slot: u8, count: u64, sum: u64 },
    Announce { slot: u8, stack: Vec<u8> },
    Pause { after: u64, length: u64 },
    Lose { after: u64 },
    Round,
}

fn step() -> impl Strategy<Value = Step> {
    let stack = || prop::collection::vec(0u8..6, 0..5);
    let (after, slot) = (0u64..400, 0u8..3);
    prop_oneof![
        4 => (after.clone(), stack(), prop::option::of(0u64..600))
            .prop_map(|(after, stack, run_delay)| Step::Sample { after, stack, run_delay }),
        2 => (-1i8..5, stack()).prop_map(|(delay, stack)| Step::Tick { delay, stack }),
        2 => (after.clone(), slot.clone(), 0u64..500)
            .prop_map(|(after, slot, entered)| Step::Inside { after, slot, entered }),
        4 => (after.clone(), slot.clone(), 0u64..500, any::<bool>())
            .prop_map(|(after, slot, duration, sync)| Step::Exit { after, slot, duration, sync }),
        2 => (slot.clone(), 0u64..50, 0u64..500)
            .prop_map(|(slot, count, sum)| Step::Tally { slot, count, sum }),
        1 => (slot, stack()).prop_map(|(slot, stack)| Step::Announce { slot, stack }),
        1 => (after.clone(), 0u64..300).prop_map(|(after, length)| Step::Pause { after, length }),
        1 => after.prop_map(|after| Step::Lose { after }),
        1 => Just(Step::Round),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_stamp_is_booked_once(
        steps in prop::collection::vec(step(), 0..80),
        first in 0u64..2 * BEGIN,
        later_begin in prop::option::of((0usize..80, 1u64..2000)),
        end in prop::option::of(0u64..20_000),
    ) {
        let mut subject = Subject::new(1 << 16);
        let codes: Vec<u32> = (1..=6).map(|i| subject.code(i << 12)).collect();
        let calls = ["MPI_Barrier", "MPI_Send", "read"].map(|name| subject.call(name));
        let collector = Collector::new(Options::default());
        let key = subject.attach(&collector).unwrap();
        let code = |stack: &[u8]| stack.iter().map(|i| codes[usize::from(*i)]).collect::<Vec<_>>();
        let path = |slot: u8, stack: &[u8]| {
            let mut path = code(stack);
            path.push(calls[usize::from(slot)]);
            path
        };
        let mut w = subject.writer(0);
        let mut slots: Vec<Vec<u8>> = vec![vec![0], vec![0, 1], vec![2]];
        for (slot, stack) in slots.iter().enumerate() {
            w.slot(slot as u32, &path(slot as u8, stack));
        }
        let (mut now, mut paused, mut begin, mut syncs) = (first, Vec::new(), BEGIN, 0);
        let mut read = 0;
        w.sample(now, &[]);
        for (number, step) in steps.iter().enumerate() {
            if let Some((when, stamp)) = later_begin && when == number {
                // The process says it as it happens: no record of a later time is written yet.
                begin = BEGIN.max(now) + stamp;
                now = begin;
                subject.header().begin_stamp.store(begin, std::sync::atomic::Ordering::Release);
            }
            match step {
                Step::Sample { after, stack, run_delay } => {
                    now += after;
                    let off_cpu = run_delay.map(|stamps| plimsoll_wire::record::OffCpu {
                        cpu_ns: 0,
                        run_delay_ns: stamps * STAMP_NS,
                    });
                    w.sample_as(now, &code(stack), None, off_cpu);
                }
                // A tick counts from the last record: nothing may have happened since.
                Step::Tick { delay, stack } if w.last() == Some(now) => {
                    w.tick(*delay, &code(stack));
                    now = w.last().unwrap();
                }
                Step::Tick { .. } => {}
                Step::Inside { after, slot, entered } => {
                    now += after;
                    let inside = path(*slot, &slots[usize::from(*slot)]);
                    w.sample_as(now, &inside, Some(*entered), None);
                }
                Step::Exit { after, slot, duration, sync } => {
                    now += after;
                    let sync = sync.then(|| { syncs += 1; syncs - 1 });
                    w.exit(now, u32::from(*slot), *duration, sync);
                }
                Step::Tally { slot, count, sum } => w.tally(u32::from(*slot), *count, *sum, 1),
                Step::Announce { slot, stack } => {
                    slots[usize::from(*slot)] = stack.clone();
                    w.slot(u32::from(*slot), &path(*slot, stack));
                }
                Step::Pause { after, length } => {
                    w.pause(now + after);
                    paused.push((now + after, now + after + length));
                    now += after + length;
                    w.resume(now);
                }
                Step::Lose { after } => {
                    w.mark_gap(3);
                    now += after;
                    for (slot, stack) in slots.iter().enumerate() {
                        w.slot(slot as u32, &path(slot as u8, stack));
                    }
                    w.sample(now, &code(&[0]));
                }
                Step::Round => {
                    collector.round();
                    read = now;
                }
            }
        }
        // A run does not end before what has been read of it.
        let end = begin.max(read).max(end.unwrap_or(now));
        subject.end_at(end);
        let profile = collector.finish(key).unwrap();
        assert_partition(&profile);
        let clip = |stamp: u64| stamp.clamp(begin, end);
        let excluded: u64 = paused.iter().map(|(from, to)| clip(*to) - clip(*from)).sum();
        prop_assert_eq!(profile.elapsed_ns, (end - begin - excluded) * STAMP_NS);
        prop_assert_eq!(profile.collection.lost, 0);

        // When the rings were read decides nothing: a successor that reads all at once agrees.
        let successor = Collector::new(Options::default());
        let key = subject.attach(&successor).unwrap();
        prop_assert_eq!(successor.finish(key).unwrap(), profile);
    }
}
