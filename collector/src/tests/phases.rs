//! Exact profiles of short runs: who gets which stamp.

use std::sync::atomic::Ordering;

use plimsoll_wire::record::{OffCpu, STAMP_SHIFT};
use plimsoll_wire::segment::{ADDRESS_IS_DECLARED, ADDRESS_IS_LEAF};

use super::subject::{BEGIN, PERIOD, STAMP_NS, Subject};
use super::{assert_partition, collect, pairs, short, times, value};
use crate::profile::SyncReturns;

/// A declared function ends phases like a wrapped call: work before and after it belongs to its
/// caller, and its own calls keep their contexts.
#[test]
fn the_return_of_a_declared_function_ends_an_instance() {
    let mut subject = Subject::new(1 << 14);
    let (main, work, inside) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let function = subject.address(0x3000, 1, ADDRESS_IS_LEAF | ADDRESS_IS_DECLARED);
    let receive = subject.call("MPI_Recv");
    let mut w = subject.writer(0);
    for i in 0..3 {
        let t = BEGIN + i * 1000;
        w.sample(t + 100, &[main, work]);
        if i == 0 {
            w.slot(1, &[main, inside, receive]);
            w.slot(2, &[main, function]);
        }
        w.exit(t + 700, 1, 500, None); // 200 of work, 500 in the call
        w.exit(t + 900, 2, 0, Some(i)); // 200 between the call and the return
    }
    subject.end_at(BEGIN + 3000);
    let profile = collect(&subject);
    let phases = &profile.phases;
    let found: Vec<_> = phases.iter().map(|it| (it.instances, it.duration_ns / STAMP_NS)).collect();
    assert_eq!(found, [(1, 900), (2, 2000), (1, 100)]);
    let ends = phases[1].ends_in.expect("the function ends it");
    assert_eq!(short(&profile, ends), "app+0x1000>app+0x3000");
    let receives = "app+0x1000>app+0x3000>MPI_Recv";
    assert_eq!(value(&profile, &phases[1], receives).exclusive_ns, 1000 * STAMP_NS);
    assert_eq!(value(&profile, &phases[1], receives).calls, 2);
    // The stretch from one return to the next sample is the caller's or the sampled function's.
    let own = value(&profile, &phases[1], "app+0x1000>app+0x3000");
    assert_eq!((own.exclusive_ns, own.calls), (0, 0), "{:?}", times(&profile, &phases[1]));
}

/// A process starts for 300 stamps before the period that its first sample ends.
#[test]
fn time_without_a_stack_lies_outside_of_main() {
    let mut subject = Subject::new(1 << 14);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let mut w = subject.writer(0);
    w.sample(BEGIN + 300 + PERIOD, &[main, work]);
    w.sample(BEGIN + 300 + 2 * PERIOD, &[main, work]);
    subject.end_at(BEGIN + 300 + 2 * PERIOD);
    let outside = collect(&subject).outside_main.unwrap();
    assert_eq!((outside.with_stack_ns, outside.without_stack_ns), (0, 300 * STAMP_NS));
}

/// A subject with some functions and two call sites of MPI_Barrier in main.
struct Stacks {
    work: Vec<u32>,
    more: Vec<u32>,
    first_barrier: Vec<u32>,
    second_barrier: Vec<u32>,
    send: Vec<u32>,
}

fn stacks(subject: &mut Subject) -> Stacks {
    let [main, again] = [0x1000, 0x1000].map(|offset| subject.code(offset));
    assert_eq!(main, again);
    let (work, more) = (subject.code(0x2000), subject.code(0x3000));
    let (barrier, send) = (subject.call("MPI_Barrier"), subject.call("MPI_Send"));
    let elsewhere = subject.code(0x1100);
    Stacks {
        work: vec![main, work],
        more: vec![main, more],
        first_barrier: vec![main, barrier],
        second_barrier: vec![elsewhere, barrier],
        send: vec![main, more, send],
    }
}

#[test]
fn each_stamp_goes_to_one_context_of_one_phase() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    for i in 0..3 {
        let t = BEGIN + i * 1000;
        w.sample(t + 100, &s.work); // 100 of work
        w.sample(t + 250, &s.more); // 75 of work, 75 of more
        if i == 0 {
            w.slot(1, &s.first_barrier);
        }
        // 150 after the last sample are its context's; then 600 in the barrier.
        w.exit(t + 1000, 1, 600, Some(i));
    }
    w.sample(BEGIN + 3100, &s.work);
    subject.end_at(BEGIN + 3150);
    let profile = collect(&subject);
    assert_eq!(profile.elapsed_ns, 3150 * STAMP_NS);
    assert_eq!((profile.syncs, profile.threads), (3, 1));
    let phases = &profile.phases;
    assert_eq!(phases.len(), 3);
    let instance = pairs(&[
        ("app+0x1000>MPI_Barrier", 600),
        ("app+0x1000>app+0x2000", 175),
        ("app+0x1000>app+0x3000", 225),
    ]);
    assert_eq!(times(&profile, &phases[0]), instance);
    let twice: Vec<_> = instance.iter().map(|(path, time)| (path.clone(), time * 2)).collect();
    assert_eq!(times(&profile, &phases[1]), twice);
    assert_eq!(times(&profile, &phases[2]), pairs(&[("app+0x1000>app+0x2000", 150)]));

    assert_eq!(phases[0].begins_after, None);
    assert_eq!(phases[0].ends_in, phases[1].begins_after);
    assert_eq!(phases[1].begins_after, phases[1].ends_in);
    assert_eq!((phases[1].first_index, phases[1].instances), (1, 2));
    assert_eq!(phases[1].first_begin_ns, 1000 * STAMP_NS);
    assert_eq!((phases[2].ends_in, phases[2].first_index), (None, 3));

    let barrier = value(&profile, &phases[1], "app+0x1000>MPI_Barrier");
    assert_eq!((barrier.calls, barrier.bytes, barrier.samples), (2, 16, 0));
    let work = value(&profile, &phases[1], "app+0x1000>app+0x2000");
    assert_eq!((work.samples, work.calls), (2, 0), "work may be the call that was seen before");
    assert_eq!(profile.rows.rows.len(), 4);
    let row = &profile.rows.rows[2];
    assert_eq!((row.index, row.phase, row.duration_ns), (2, 1, 1000 * STAMP_NS));
    assert_eq!(row.values.iter().map(|(_, time)| time).sum::<u64>(), 1000 * STAMP_NS);
}

#[test]
fn samples_inside_a_call_refine_it_and_its_exit_closes_it() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let inner = subject.code(0x9000);
    let inside: Vec<u32> = s.send.iter().copied().chain([inner]).collect();
    let mut w = subject.writer(0);
    w.sample(BEGIN + 50, &s.more);
    w.sample_as(BEGIN + 150, &inside, Some(80), None); // 20 of more, then 80 below the call
    w.slot(7, &s.send);
    w.exit(BEGIN + 300, 7, 230, None); // 150 in the call itself
    subject.end_at(BEGIN + 300);
    let profile = collect(&subject);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[
            ("app+0x1000>app+0x3000", 70),
            ("app+0x1000>app+0x3000>MPI_Send", 150),
            ("app+0x1000>app+0x3000>MPI_Send>app+0x9000", 80),
        ])
    );
    let send = value(&profile, &profile.phases[0], "app+0x1000>app+0x3000>MPI_Send");
    assert_eq!((send.calls, send.bytes), (1, 8));
    assert_eq!((profile.phases.len(), profile.phases[0].first_index), (1, 0));
}

#[test]
fn tallied_calls_are_counted_and_scaled_to_what_they_lie_in() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    w.slot(3, &s.send);
    w.tally(3, 10, 40, 80);
    w.sample(BEGIN + 100, &s.work);
    // More than there is time for: the run began between them.
    w.slot(4, &s.first_barrier);
    w.tally(3, 5, 300, 0);
    w.tally(4, 1, 100, 0);
    w.sample(BEGIN + 200, &s.work);
    subject.end_at(BEGIN + 200);
    let profile = collect(&subject);
    let phase = &profile.phases[0];
    assert_eq!(
        times(&profile, phase),
        pairs(&[
            ("app+0x1000>MPI_Barrier", 25),
            ("app+0x1000>app+0x2000", 60),
            ("app+0x1000>app+0x3000>MPI_Send", 40 + 75),
        ])
    );
    let send = value(&profile, phase, "app+0x1000>app+0x3000>MPI_Send");
    assert_eq!((send.calls, send.bytes), (15, 80));
}

#[test]
fn time_between_polls_is_that_of_the_samples_around_it() {
    let mut subject = Subject::new(1 << 14);
    let main = subject.code(0x1000);
    let (waits, works) = ([main, subject.code(0x2000)], [main, subject.code(0x3000)]);
    let poll = [waits[0], waits[1], subject.call("MPI_Iprobe")];
    let mut w = subject.writer(0);
    w.slot(0, &poll);
    w.sample(BEGIN + 100, &works);
    // The first half of the interval is work.
    w.tally(0, 10, 20, 30 << STAMP_SHIFT);
    w.sample(BEGIN + 200, &waits);
    w.tally(0, 20, 40, 60 << STAMP_SHIFT);
    w.sample(BEGIN + 300, &waits);
    // A sample in a poll: no sample says where the time before it was spent.
    w.tally(0, 20, 40, 58 << STAMP_SHIFT);
    w.sample_as(BEGIN + 400, &poll, Some(1), None);
    w.tally(0, 20, 40, 60 << STAMP_SHIFT);
    w.sample_as(BEGIN + 500, &poll, Some(1), None);
    // More than there is time for.
    w.tally(0, 1, 40, 99 << STAMP_SHIFT);
    w.sample(BEGIN + 600, &waits);
    subject.end_at(BEGIN + 600);
    let profile = collect(&subject);
    let phase = &profile.phases[0];
    let found = |path: &str| {
        let value = value(&profile, phase, path);
        [value.exclusive_ns / STAMP_NS, value.poll_gap_ns / STAMP_NS]
    };
    assert_eq!(found("app+0x1000>app+0x3000"), [140, 15]);
    // Of 219 sampled stamps, 193 lie between polls. The same part of the 59 stamps between two
    // samples in polls is added.
    assert_eq!(found("app+0x1000>app+0x2000"), [278, 244]);
    let poll = value(&profile, phase, "app+0x1000>app+0x2000>MPI_Iprobe");
    assert_eq!((poll.calls, poll.bytes, poll.poll_gap_ns), (71, 0, 0));
}

#[test]
fn work_that_no_sample_vouches_for_is_shared_out_by_what_was_sampled() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    w.slot(1, &s.first_barrier);
    w.exit(BEGIN + 10, 1, 10, Some(0));
    w.slot(2, &s.second_barrier);
    // First instance: 300 sampled in work, 100 in more.
    w.sample(BEGIN + 210, &s.work);
    w.sample(BEGIN + 410, &s.more);
    w.exit(BEGIN + 420, 2, 10, Some(1));
    w.exit(BEGIN + 430, 1, 10, Some(2));
    // Second instance: 80 of work that was not sampled.
    w.exit(BEGIN + 520, 2, 10, Some(3));
    subject.end_at(BEGIN + 520);
    let profile = collect(&subject);
    let phase = &profile.phases[1];
    assert_eq!(phase.instances, 2);
    let expected = pairs(&[
        ("app+0x1000>app+0x2000", 300 + 60),
        ("app+0x1000>app+0x3000", 100 + 20),
        ("app+0x1100>MPI_Barrier", 20),
    ]);
    assert_eq!(times(&profile, phase), expected);
    let row = profile.rows.rows.iter().find(|row| row.index == 3).unwrap();
    let mut of_row: Vec<(String, u64)> =
        row.values.iter().map(|(node, time)| (short(&profile, *node), time / STAMP_NS)).collect();
    of_row.sort();
    assert_eq!(
        of_row,
        pairs(&[
            ("app+0x1000>app+0x2000", 60),
            ("app+0x1000>app+0x3000", 20),
            ("app+0x1100>MPI_Barrier", 10),
        ])
    );
}

#[test]
fn unsampled_work_between_two_places_of_a_function_stays_in_it() {
    let mut subject = Subject::new(1 << 14);
    let main = subject.code(0x1000);
    let barrier = subject.call("MPI_Barrier");
    // Two places in one function: without symbols they are called by their own offset, so a real
    // function has to lend its name.
    let (here, there) = super::paths::two_places(&mut subject);
    let (other, send) = (subject.code(0x5000), subject.call("MPI_Send"));
    let mut w = subject.writer(0);
    w.slot(1, &[main, here, barrier]);
    w.slot(2, &[main, there, barrier]);
    w.slot(3, &[main, other, send]);
    w.sample(BEGIN + 100, &[main, other]);
    w.exit(BEGIN + 110, 1, 10, Some(0));
    w.exit(BEGIN + 200, 2, 10, Some(1)); // 80 between: in that function, though main was sampled
    subject.end_at(BEGIN + 200);
    let profile = collect(&subject);
    let times = times(&profile, &profile.phases[1]);
    assert_eq!(times.iter().map(|(_, time)| *time).sum::<u64>(), 90);
    assert!(times.iter().any(|(path, time)| path.ends_with("tests::paths::lender") && *time == 80));
}

#[test]
fn what_is_open_at_the_end_counts() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    w.slot(5, &s.send);
    w.sample(BEGIN + 100, &s.work);
    let area = subject.area(0);
    // Two short calls that were not tallied yet, and one that still runs.
    let counters = &area.slots[5];
    counters.count.store(2, Ordering::Relaxed);
    counters.sum.store(30 << STAMP_SHIFT, Ordering::Relaxed);
    counters.bytes.store(99, Ordering::Relaxed);
    area.thread.open_slot.store(6, Ordering::Relaxed);
    area.thread.open_stamp.store(BEGIN + 200, Ordering::Relaxed);
    subject.end_at(BEGIN + 500);
    let profile = collect(&subject);
    let phase = &profile.phases[0];
    assert_eq!(
        times(&profile, phase),
        pairs(&[("app+0x1000>app+0x2000", 170), ("app+0x1000>app+0x3000>MPI_Send", 330)])
    );
    let send = value(&profile, phase, "app+0x1000>app+0x3000>MPI_Send");
    assert_eq!((send.calls, send.bytes), (2, 99));
}

#[test]
fn a_pause_and_what_lies_outside_the_run_are_not_counted() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    w.slot(1, &s.first_barrier);
    w.exit(BEGIN - 500, 1, 100, Some(0)); // before the run
    w.sample(BEGIN - 100, &s.work);
    w.sample(BEGIN + 100, &s.work);
    w.pause(BEGIN + 150);
    w.resume(BEGIN + 450);
    w.sample(BEGIN + 500, &s.more);
    w.sample(BEGIN + 700, &s.work); // 100 of it after the end
    w.exit(BEGIN + 900, 1, 100, Some(1));
    subject.end_at(BEGIN + 600);
    let profile = collect(&subject);
    assert_eq!(profile.elapsed_ns, 300 * STAMP_NS);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>app+0x2000", 200), ("app+0x1000>app+0x3000", 100)])
    );
    assert_eq!((profile.phases.len(), profile.syncs), (1, 0));
    let work = value(&profile, &profile.phases[0], "app+0x1000>app+0x2000");
    assert_eq!(work.samples, 1, "samples outside the run are not counted");
}

#[test]
fn a_pause_after_the_last_phase_is_not_counted() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let mut w = subject.writer(0);
    w.slot(1, &s.first_barrier);
    w.sample(BEGIN + 100, &s.work);
    w.exit(BEGIN + 200, 1, 50, Some(0));
    w.pause(BEGIN + 200);
    w.resume(BEGIN + 300);
    subject.end_at(BEGIN + 300);
    let profile = collect(&subject);
    assert_eq!((profile.phases.len(), profile.elapsed_ns), (1, 200 * STAMP_NS));
}

#[test]
fn the_thread_that_becomes_the_communicating_one_makes_the_run() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let collector = crate::Collector::new(crate::Options::default());
    let key = subject.attach(&collector).unwrap();
    subject.writer(0).sample(BEGIN + 100, &s.more);
    collector.round();
    subject.begin_thread(1, 0);
    subject.writer(1).sample(BEGIN + 300, &s.work);
    subject.header().main_thread.store(1, Ordering::Release);
    // The thread before it is read first, and has not heard of that.
    subject.end_at(BEGIN + 400);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    let only: Vec<String> =
        times(&profile, &profile.phases[0]).into_iter().map(|(path, _)| path).collect();
    assert_eq!(only, ["app+0x1000>app+0x2000"]);
}

#[test]
fn run_delay_belongs_to_work_only_and_never_exceeds_it() {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let delay = |stamps: u64| Some(OffCpu { cpu_ns: 0, run_delay_ns: stamps * STAMP_NS });
    let mut w = subject.writer(0);
    w.sample_as(BEGIN + 100, &s.work, None, delay(30));
    w.sample_as(BEGIN + 200, &s.more, None, delay(900));
    w.sample_as(BEGIN + 300, &s.send, Some(100), delay(50));
    subject.end_at(BEGIN + 300);
    let profile = collect(&subject);
    let phase = &profile.phases[0];
    let delay_of = |path| value(&profile, phase, path).run_delay_ns / STAMP_NS;
    assert_eq!(delay_of("app+0x1000>app+0x2000"), 30 + 50);
    assert_eq!(delay_of("app+0x1000>app+0x3000"), 50);
    assert_eq!(delay_of("app+0x1000>app+0x3000>MPI_Send"), 0);
    let kept: u64 = profile.rows.rows[0].values.iter().map(|(_, time)| time / STAMP_NS).sum();
    assert_eq!(kept, 300 - 130, "rows are less run delay");
}

#[test]
fn a_run_that_left_no_record_is_whole_all_the_same() {
    let subject = Subject::new(1 << 14);
    subject.end_at(BEGIN + 77);
    let profile = collect(&subject);
    assert_eq!(profile.elapsed_ns, 77 * STAMP_NS);
    assert_eq!(times(&profile, &profile.phases[0]), pairs(&[("[unknown]", 77)]));
    assert_eq!(profile.effective_period_ns, 0);
}

/// Returns index and stamp of the returns of three synchronisations, on the clock of a process with
/// this anchor and rate.
fn sync_returns(anchor: (u64, u64), ns_per_ticks_q32: u64) -> SyncReturns {
    let mut subject = Subject::new(1 << 14);
    let s = stacks(&mut subject);
    let header = subject.header();
    header.anchor_ticks.store(anchor.0, Ordering::Relaxed);
    header.anchor_ns.store(anchor.1, Ordering::Relaxed);
    header.ns_per_ticks_q32.store(ns_per_ticks_q32, Ordering::Relaxed);
    let mut w = subject.writer(0);
    w.slot(1, &s.first_barrier);
    for index in 0..3 {
        let at = BEGIN + (index + 1) * 1_000_000;
        w.sample(at - 100, &s.work);
        w.exit(at, 1, 50, Some(index));
    }
    subject.end_at(BEGIN + 3_500_000);
    // A digest of the spool says the same.
    collect(&subject).sync_returns.unwrap()
}

#[test]
fn synchronisations_end_at_moments_of_the_process_s_own_clock() {
    // Anchors in the future are not believed to tell the rate.
    let (ticks, ns) = (BEGIN << STAMP_SHIFT, u64::MAX / 2);
    let plain = sync_returns((ticks, ns), 1 << 32);
    assert_eq!(plain.begin_ns, ns);
    let ends = (0..3).map(|index| (index, ns + (index + 1) * 1_000_000 * STAMP_NS));
    assert_eq!(plain.ends, ends.collect::<Vec<_>>());
    // A clock that is 3.7 s ahead, anchored in the midst of the run.
    let ahead_ns = 3_700_000_000;
    let later = 2_000_000 * STAMP_NS;
    let shifted = sync_returns((ticks + later, ns + later + ahead_ns), 1 << 32);
    assert_eq!(shifted.begin_ns, plain.begin_ns + ahead_ns);
    let ends = plain.ends.iter().map(|(index, end)| (*index, end + ahead_ns));
    assert_eq!(shifted.ends, ends.collect::<Vec<_>>());
    // One that runs 50 ppm faster.
    let fast = sync_returns((ticks, ns), (1 << 32) + (1 << 32) / 20_000);
    for ((_, end), (_, other)) in plain.ends.iter().zip(&fast.ends) {
        let drifted_ns = (end - ns) / 20_000;
        assert!((other - end).abs_diff(drifted_ns) <= 1 + drifted_ns / 10_000, "{end} {other}");
    }
}
