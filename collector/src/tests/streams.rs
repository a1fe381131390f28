//! Rings that wrap, overflow, end, are reused, or hold garbage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_wire::record::{Record, Stamp};
use plimsoll_wire::segment::{ADDRESS_IS_DECLARED, ADDRESS_IS_LEAF, ThreadState};
use plimsoll_wire::sync_id::{Subgroup, SyncId};
use plimsoll_wire::teams::TaskTotals;
use proptest::prelude::*;

use super::subject::{BEGIN, PERIOD, STAMP_NS, Subject};
use super::{assert_partition, collect, pairs, path, times, value};
use crate::collected_process::Scratch;
use crate::poll::RingOccupancy;
use crate::profile::LONG_CALL_NS;
use crate::{Collector, Options};

#[test]
fn a_ring_wraps_many_times() {
    let mut subject = Subject::new(1 << 12);
    let (main, one, other) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    let mut w = subject.writer(0);
    let mut fullest = 0;
    for i in 1..=5000u64 {
        w.sample(BEGIN + 100 * i, &[main, if i % 2 == 0 { one } else { other }]);
        if i % 300 == 0 {
            fullest = fullest.max(collector.round());
        }
    }
    subject.end_at(BEGIN + 500_000);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert!(fullest > 25, "the ring was {fullest} % full");
    assert!(profile.collection.record_bytes > 4 * 4096);
    assert_eq!(profile.collection.lost, 0);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>app+0x2000", 249_950), ("app+0x1000>app+0x3000", 250_050)]),
        "all alike but the first interval, which has one neighbour only"
    );
    assert_eq!(profile.effective_period_ns, 100 * STAMP_NS);
}

#[test]
fn rings_are_read_when_they_fill_or_threads_come_and_go() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    let now = Instant::now();
    let pending = || collector.poll(key).pending;
    let mut w = subject.writer(0);
    assert!(collector.poll(key).has_changed, "a thread has begun");
    collector.poll_once(now);
    assert_eq!(collector.poll(key), RingOccupancy::default());
    // A little can wait.
    w.sample(BEGIN + 100, &[main, work]);
    let few = pending();
    assert!(few > 0);
    collector.poll_once(now);
    assert_eq!(pending(), few);
    // A ring that fills cannot.
    for i in 2..400 {
        w.sample(BEGIN + 100 * i, &[main, if i % 2 == 0 { work } else { main }]);
    }
    assert!(collector.poll(key).fullest > 25, "{:?}", collector.poll(key));
    collector.poll_once(now);
    assert_eq!(pending(), 0);
    // Nor can a thread that begins or ends.
    w.sample(BEGIN + 50_000, &[main]);
    subject.begin_thread(1, 0);
    collector.poll_once(now);
    assert_eq!(pending(), 0);
    w.sample(BEGIN + 50_100, &[main]);
    subject.end_thread(1);
    collector.poll_once(now);
    assert_eq!(pending(), 0);
}

#[test]
fn ticks_come_a_period_and_their_delay_after_the_record_before() {
    // Ticks count from the requested period, also where the timers sustain only a longer one.
    for kept_period in [PERIOD, 4 * PERIOD] {
        let mut subject = Subject::new(1 << 12);
        subject.header().kept_period_stamps.store(kept_period, Ordering::Relaxed);
        let (main, work, deep) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
        let mut w = subject.writer(0);
        w.sample(BEGIN + 100, &[main, work]);
        w.tick(0, &[main, work, deep]); // at 200
        w.tick(120, &[main]); // at 200 + 100 + 120
        w.tick(-60, &[main, work]); // at 420 + 100 - 60
        w.tick(-128, &[main, work]); // before the one before: refused, like all that follows
        w.tick(0, &[main, work]);
        subject.end_at(BEGIN + 460);
        let profile = collect(&subject);
        assert!(profile.collection.lost > 0);
        assert_eq!(
            times(&profile, &profile.phases[0]),
            pairs(&[
                ("app+0x1000", 110 + 20),
                ("app+0x1000>app+0x2000", 100 + 50 + 20),
                ("app+0x1000>app+0x2000>app+0x3000", 50 + 110),
            ])
        );
    }
}

#[test]
fn a_stream_is_read_on_after_a_loss() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let send = subject.call("MPI_Send");
    let mut w = subject.writer(0);
    w.slot(0, &[main, send]);
    w.sample(BEGIN + 100, &[main, work]);
    w.mark_gap(5);
    // The producer announces slots again, relative to the empty stack.
    w.slot(0, &[main, work, send]);
    w.exit(BEGIN + 500, 0, 100, None); // 300 in which nobody knows what happened
    w.sample(BEGIN + 600, &[main, work]);
    subject.area(0).thread.lost.store(5, Ordering::Relaxed);
    subject.end_at(BEGIN + 600);
    let profile = collect(&subject);
    assert_eq!(profile.collection.lost, 5);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>app+0x2000", 500), ("app+0x1000>app+0x2000>MPI_Send", 100)])
    );
}

#[test]
fn calls_that_each_take_long_are_told_from_many_short_ones() {
    let mut subject = Subject::new(1 << 12);
    let main = subject.code(0x1000);
    let send = subject.call("MPI_Send");
    let long = LONG_CALL_NS / STAMP_NS;
    let mut w = subject.writer(0);
    w.sample(BEGIN, &[main]);
    w.slot(0, &[main, send]);
    w.exit(BEGIN + 2 * long, 0, long, None);
    // The same time in short calls.
    w.tally(0, 4, long, 0);
    w.exit(BEGIN + 5 * long, 0, long - 1, None);
    subject.end_at(BEGIN + 5 * long);
    let profile = collect(&subject);
    let send = value(&profile, &profile.phases[0], "app+0x1000>MPI_Send");
    assert_eq!((send.long_ns, send.calls), (LONG_CALL_NS, 6));
    assert_eq!(send.exclusive_ns, (3 * long - 1) * STAMP_NS);
}

#[test]
fn addresses_that_were_never_announced_cut_the_stack() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let unknown_call = subject.address(4000, 0, 0);
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[main, 77_777, work]);
    w.sample(BEGIN + 200, &[main, 0, work, work]);
    w.sample(BEGIN + 300, &[main, u32::MAX]);
    w.sample(BEGIN + 400, &[main, work, unknown_call]);
    w.sample(BEGIN + 500, &[main]);
    subject.end_at(BEGIN + 500);
    let profile = collect(&subject);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000", 400), ("app+0x1000>app+0x2000", 100)])
    );
    assert_eq!((profile.collection.pruned, profile.collection.lost), (4, 0));
}

#[test]
fn threads_come_and_go_in_one_area() {
    let mut subject = Subject::new(1 << 12);
    let (main, routine, work) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    for life in 0..3 {
        subject.begin_thread(1, routine);
        let mut w = subject.writer(1);
        let begin = BEGIN + 1000 * life;
        w.sample(begin, &[routine]);
        w.sample(begin + 100, &[routine, work]);
        w.end(begin + 150);
        subject.area(1).thread.samples.store(2, Ordering::Relaxed);
        subject.end_thread(1);
        collector.round();
        let thread = &subject.area(1).thread;
        assert_eq!(thread.state.load(Ordering::Acquire), ThreadState::Free as u32);
        assert_eq!(thread.samples.load(Ordering::Relaxed), 0);
    }
    subject.begin_thread(1, routine);
    let mut w = subject.writer(1);
    w.sample(BEGIN + 5000, &[routine, work]);
    let mut w = subject.writer(0);
    w.sample(BEGIN + 1, &[main]);
    subject.end_at(BEGIN + 5030);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_eq!((profile.threads, profile.collection.samples), (5, 6));
    let [(outer, begun), (node, value)] = profile.other_threads[..] else {
        panic!("{:?}", profile.other_threads)
    };
    assert_eq!(path(&profile, outer), ["app+0x2000"]);
    assert_eq!((begun.calls, begun.samples, begun.exclusive_ns), (4, 3, 3 * 50 * STAMP_NS));
    assert_eq!(path(&profile, node), ["app+0x2000", "app+0x3000"]);
    assert_eq!(value.exclusive_ns, (3 * 100 + 30) * STAMP_NS);
    assert_eq!((value.samples, value.calls), (4, 4));
}

#[test]
fn a_later_begin_throws_away_what_came_before() {
    let mut subject = Subject::new(1 << 12);
    let (main, early, late) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let barrier = subject.call("MPI_Barrier");
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    let mut w = subject.writer(0);
    w.slot(0, &[main, barrier]);
    w.sample(BEGIN + 100, &[main, early]);
    w.exit(BEGIN + 200, 0, 50, Some(0));
    collector.round();
    subject.header().begin_stamp.store(BEGIN + 300, Ordering::Release);
    w.sample(BEGIN + 400, &[main, late]);
    w.exit(BEGIN + 500, 0, 50, Some(1));
    subject.end_at(BEGIN + 500);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_eq!(profile.elapsed_ns, 200 * STAMP_NS);
    assert_eq!((profile.phases.len(), profile.syncs, profile.threads), (1, 1, 1));
    assert_eq!((profile.phases[0].first_index, profile.rows.rows.len()), (1, 1));
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>MPI_Barrier", 50), ("app+0x1000>app+0x3000", 150)])
    );
}

/// Another thread takes the run over: what the former one did since then is not lost.
#[test]
fn a_run_that_another_thread_begins_keeps_what_the_others_do() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let barrier = subject.call("MPI_Barrier");
    subject.begin_thread(1, work);
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    let (mut w, mut other) = (subject.writer(0), subject.writer(1));
    w.sample(BEGIN + 100, &[main]);
    other.sample(BEGIN + 100, &[work]);
    collector.round();
    subject.header().main_thread.store(1, Ordering::Release);
    subject.header().begin_stamp.store(BEGIN + 200, Ordering::Release);
    w.sample(BEGIN + 300, &[main]);
    w.sample(BEGIN + 500, &[main]);
    other.slot(0, &[work, barrier]);
    other.exit(BEGIN + 400, 0, 50, Some(0));
    collector.round();
    subject.end_at(BEGIN + 600);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_eq!((profile.elapsed_ns, profile.syncs), (400 * STAMP_NS, 1));
    let [(node, value)] = profile.other_threads[..] else { panic!("{:?}", profile.other_threads) };
    assert_eq!(path(&profile, node), ["app+0x1000"]);
    assert_eq!(value.exclusive_ns, 400 * STAMP_NS);
}

#[test]
fn the_collecting_thread_reads_until_it_is_stopped() {
    let mut subject = Subject::new(1 << 12);
    let main = subject.code(0x1000);
    let collector = Arc::new(Collector::new(Options::default()));
    let key = subject.attach(&collector).unwrap();
    let thread = std::thread::spawn({
        let collector = Arc::clone(&collector);
        move || collector.run(|_| {})
    });
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[main]);
    collector.flush();
    let area = subject.area(0);
    let patience = Instant::now() + Duration::from_secs(20);
    while area.thread.tail.load(Ordering::Acquire) != area.thread.head.load(Ordering::Acquire) {
        assert!(Instant::now() < patience, "nobody reads the ring");
        std::thread::sleep(Duration::from_millis(1));
    }
    subject.end_at(BEGIN + 200);
    let before = collector.memory_bytes();
    assert!(before > 0);
    let profile = collector.finish(key).unwrap();
    // What the profile was made from is not needed until the report is written.
    assert!(collector.memory_bytes() < before, "{} of {before}", collector.memory_bytes());
    assert!(collector.segment_bytes() > 0, "the memory in the report includes the segment");
    collector.stop();
    thread.join().unwrap();
    assert_partition(&profile);
    assert_eq!(times(&profile, &profile.phases[0]), pairs(&[("app+0x1000", 200)]));
    assert!(collector.cpu_ns() > 0);
}

#[test]
fn counters_that_a_live_thread_writes_to_its_ring_after_the_last_drain_count_once() {
    let mut subject = Subject::new(1 << 12);
    let (main, task) = (subject.code(0x1000), subject.code(0x2000));
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[main]);
    subject.end_at(BEGIN + 200);
    let (mut process, mut scratch) = (subject.process(), Scratch::default());
    process.drain(&mut scratch);
    let totals = TaskTotals { function: task, count: 7, work: 21, longest: 5 };
    w.put(&Record::Task { totals });
    w.sample(BEGIN + 250, &[main]);
    process.conclude_drained(&mut scratch);
    let (profile, _) = process.finish(&mut scratch);
    assert_partition(&profile);
    assert_eq!(profile.elapsed_ns, 200 * STAMP_NS);
    let [task] = &profile.openmp.tasks[..] else { panic!("{:#?}", profile.openmp) };
    assert_eq!(task.count, 7);
}

/// Nothing is charged between the last two synchronisations: the measurement is paused, or the last
/// one is the return of a declared function at the same stamp.
#[test]
fn an_empty_subgroup_interval_at_the_end_is_survived() {
    for is_paused in [true, false] {
        let mut subject = Subject::new(1 << 12);
        let (main, barrier) = (subject.code(0x1000), subject.call("MPI_Barrier"));
        let declared = subject.address(0x3000, 1, ADDRESS_IS_LEAF | ADDRESS_IS_DECLARED);
        let mut w = subject.writer(0);
        w.slot(0, &[main, barrier]);
        w.slot(1, &[main, declared]);
        w.exit(BEGIN + 100, 0, 50, Some(0));
        if is_paused {
            w.pause(BEGIN + 100);
        }
        let subgroup = Some(Subgroup { name: 1, ranks: 2 });
        w.put(&Record::Exit {
            stamp: Stamp::Delta(0),
            slot: if is_paused { 0 } else { 1 },
            common: 1,
            duration: 0,
            bytes: 0,
            sync: Some(SyncId { subgroup, index: 0 }),
            off_cpu: None,
        });
        w.end(BEGIN + 100);
        subject.end_at(BEGIN + 100);
        assert_partition(&collect(&subject));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Garbage ends in counted losses; what the run's length says stays true.
    #[test]
    fn garbage_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 1..2000),
        cut in 0usize..2000,
        open_slot in any::<u32>(), open_stamp in any::<u64>(),
        count in any::<u64>(), sum in any::<u64>(),
        head in prop::option::of(any::<u64>()),
        routine in any::<u32>(),
    ) {
        let mut subject = Subject::new(1 << 12);
        let (main, work) = (subject.code(0x1000), subject.code(0x2000));
        let collector = Collector::new(Options::default());
        let key = subject.attach(&collector).unwrap();
        let mut w = subject.writer(0);
        w.slot(0, &[main, work]);
        w.sample(BEGIN + 100, &[main, work]);
        subject.write(0, &bytes[..cut.min(bytes.len())]);
        collector.round();
        subject.begin_thread(1, routine);
        subject.write(1, &bytes);
        for area in [subject.area(0), subject.area(1)] {
            area.thread.open_slot.store(open_slot, Ordering::Relaxed);
            area.thread.open_stamp.store(open_stamp, Ordering::Relaxed);
            area.slots[0].count.store(count, Ordering::Relaxed);
            area.slots[0].sum.store(sum, Ordering::Relaxed);
        }
        if let Some(head) = head {
            subject.area(1).thread.head.store(head, Ordering::Release);
        }
        subject.end_at(BEGIN + 5000);
        let profile = collector.finish(key).unwrap();
        assert_partition(&profile);
        prop_assert_eq!(profile.elapsed_ns % STAMP_NS, 0);
    }
}
