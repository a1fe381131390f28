//! Threads that did what is known, aggregated in each of the ways of ESPT15.

use super::*;
use crate::profile::{
    Aggregation, ContextTree, Frame, FrameKind, LocationKind, Node, NodeId, ThreadLocation,
    ThreadProfile,
};
use plimsoll_wire::sync_id::{MAX_TEMPORAL_TREES, unfollowed};
use subject::BEGIN;

/// Activity of a thread: stamps in `work`, in `more` and in a wrapped call.
#[derive(Clone, Copy)]
struct Doing {
    work: u64,
    more: u64,
    wait: u64,
}

const fn doing(work: u64, more: u64, wait: u64) -> Doing {
    Doing { work, more, wait }
}

/// Two neighbouring samples share the time between them: half of the first of 20 intervals
/// in 200 stamps of `more` belongs to `work`.
const SHARED: u64 = 5;

/// Threads beside the communicating one; the first is number 1.
const THREADS: [Doing; 5] = [
    doing(300, 0, 100),
    doing(900, 0, 100),
    // Waits for longest, but works least.
    doing(200, 0, 5000),
    doing(400, 200, 100),
    doing(500, 0, 100),
];

/// Collects threads with these activities; a digest of the spool says the same.
fn collect(aggregation: Aggregation, threads: &[Doing]) -> ProcessProfile {
    collect_with(aggregation, threads, "pthread_cond_wait")
}

fn collect_with(aggregation: Aggregation, threads: &[Doing], call: &str) -> ProcessProfile {
    let mut subject = Subject::new(1 << 12);
    let (main, routine) = (subject.code(0x1000), subject.code(0x2000));
    let (work, more) = (subject.code(0x3000), subject.code(0x4000));
    let wait = subject.call(call);
    let collector = Collector::new(Options { aggregation, ..Options::default() });
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    subject.writer(0).sample(BEGIN + 1000, &[main, work]);
    for (index, doing) in (1..).zip(threads) {
        subject.begin_thread(index, routine);
        let mut w = subject.writer(index);
        let mut now = BEGIN;
        w.sample(now, &[routine, work]);
        w.slot(0, &[routine, wait]);
        // Enough samples for each function to be missed where it is missing.
        for (function, time) in [(work, doing.work), (more, doing.more)] {
            for _ in 0..if time > 0 { 20 } else { 0 } {
                now += time / 20;
                w.sample(now, &[routine, function]);
            }
        }
        now += doing.wait;
        w.exit(now, 0, doing.wait, None);
        w.end(now);
    }
    subject.end_at(BEGIN + 10_000);
    let profile = collector.finish(key).unwrap();
    assert_eq!(spool.digest(&collector), profile);
    if aggregation == Aggregation::Key || aggregation == Aggregation::All {
        assert_partition_of_threads(&profile);
    }
    profile
}

fn time(profile: &ProcessProfile, location: &ThreadLocation, function: &str) -> u64 {
    let values = location.values.iter();
    let here = values.filter(|(node, _)| path(profile, *node).last().unwrap() == function);
    here.map(|(_, value)| value.exclusive_ns / STAMP_NS).sum()
}

/// Kind, number, threads, stamps of work, stamps of waiting.
fn shown(profile: &ProcessProfile) -> Vec<(LocationKind, Option<u32>, u64, u64, u64)> {
    let ThreadProfile { locations, .. } = &profile.thread_locations;
    let wait = |location| time(profile, location, "pthread_cond_wait");
    locations
        .iter()
        .map(|it| (it.kind, it.number, it.threads, it.work_ns / STAMP_NS, wait(it)))
        .collect()
}

fn sum_of_locations(profile: &ProcessProfile) -> u64 {
    let values = profile.thread_locations.locations.iter().flat_map(|it| &it.values);
    values.map(|(_, value)| value.exclusive_ns / STAMP_NS).sum()
}

/// Stamps of all threads together.
const WHOLE: u64 = 300 + 900 + 200 + 600 + 500 + 5000 + 4 * 100;

#[test]
fn the_slowest_and_the_fastest_thread_are_kept_and_the_rest_is_a_sum() {
    let profile = collect(Aggregation::Key, &THREADS);
    let truth = [
        (LocationKind::Slowest, Some(2), 1, 900, 100),
        (LocationKind::Fastest, Some(3), 1, 200, 5000),
        (LocationKind::Rest, None, 3, 300 + 600 + 500, 300),
    ];
    assert_eq!(shown(&profile), truth);
    assert_eq!(sum_of_locations(&profile), WHOLE);
    assert_eq!(time(&profile, &profile.thread_locations.locations[2], "app+0x4000"), 200 - SHARED);
    let alone = collect(Aggregation::Key, &THREADS[..1]);
    assert_eq!(shown(&alone), [(LocationKind::Slowest, Some(1), 1, 300, 100)]);
    assert!(collect(Aggregation::Key, &[]).thread_locations.locations.is_empty());
}

#[test]
fn the_life_of_a_thread_counts_from_its_birth() {
    let mut subject = Subject::new(1 << 12);
    let (routine, wait) = (subject.code(0x2000), subject.call("pthread_cond_wait"));
    subject.writer(0).sample(BEGIN + 1000, &[routine]);
    // The only records of the thread are those of one long call.
    subject.area(1).thread.born.store(BEGIN + 200, std::sync::atomic::Ordering::Relaxed);
    subject.begin_thread(1, routine);
    let mut w = subject.writer(1);
    w.slot(0, &[routine, wait]);
    w.exit(BEGIN + 900, 0, 600, None);
    w.end(BEGIN + 900);
    subject.end_at(BEGIN + 1000);
    let profile = super::collect(&subject);
    let [location] = &profile.thread_locations.locations[..] else { panic!("{profile:?}") };
    assert_eq!(time(&profile, location, "pthread_cond_wait"), 600);
    assert_eq!(location.work_ns / STAMP_NS, 100);
}

#[test]
fn a_single_thread_has_its_time_by_bins_of_the_run() {
    let mut subject = Subject::new(1 << 12);
    let (routine, work) = (subject.code(0x2000), subject.code(0x3000));
    let wait = subject.call("pthread_cond_wait");
    // One bin is a millisecond; 10 ms of work from the third one on, then 5 ms of waiting.
    let bin = 1_000_000 / STAMP_NS;
    subject.writer(0).sample(BEGIN + 100, &[routine]);
    let born = BEGIN + 3 * bin;
    subject.area(1).thread.born.store(born, std::sync::atomic::Ordering::Relaxed);
    subject.begin_thread(1, routine);
    let mut w = subject.writer(1);
    w.slot(0, &[routine, wait]);
    w.sample(born + 10 * bin, &[routine, work]);
    w.exit(born + 15 * bin, 0, 5 * bin, None);
    w.end(born + 15 * bin);
    subject.end_at(BEGIN + 100 * bin);
    let profile = super::collect(&subject);
    let [location] = &profile.thread_locations.locations[..] else { panic!("{profile:?}") };
    assert_partition_of_threads(&profile);
    assert_eq!(profile.times.bins.len(), 100);
    let of_bin = |bin: &TimeBin| {
        let names = bin.values.iter().map(|(node, _)| short(&profile, *node));
        names.collect::<Vec<_>>().join(", ")
    };
    let shown: Vec<String> = location.times.bins.iter().map(of_bin).collect();
    let of = |name: &str, bins: usize| vec![name.to_owned(); bins];
    let truth = [of("", 3), of("app+0x2000>app+0x3000", 10), of("app+0x2000>pthread_cond_wait", 5)];
    assert_eq!(shown, truth.concat());
}

#[test]
fn a_digest_follows_the_threads_that_were_followed() {
    let mut subject = Subject::new(1 << 12);
    let routine = subject.code(0x2000);
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    subject.writer(0).sample(BEGIN + 100, &[routine]);
    let threads = 1..MAX_TEMPORAL_TREES + 4;
    for index in threads.clone() {
        subject.begin_thread(index, routine);
        let mut w = subject.writer(index);
        w.sample(BEGIN, &[routine]);
        w.end(BEGIN + 100);
    }
    collector.round();
    threads.for_each(|index| subject.end_thread(index));
    subject.end_at(BEGIN + 200);
    let profile = collector.finish(key).unwrap();
    assert_eq!(profile.collection.unfollowed, unfollowed::TEMPORAL_TREES);
    assert_eq!(spool.digest(&collector), profile);
}

#[test]
fn sleeping_is_work_and_waiting_is_not() {
    for (call, work) in [("nanosleep", 400), ("pthread_cond_wait", 300)] {
        let profile = collect_with(Aggregation::Key, &THREADS[..1], call);
        assert_eq!(profile.thread_locations.locations[0].work_ns / STAMP_NS, work, "{call}");
    }
}

#[test]
fn the_size_of_key_does_not_depend_on_the_number_of_threads() {
    let many: Vec<Doing> = (0..40).map(|at| doing(200 + 20 * at, 0, 100)).collect();
    let profile = collect(Aggregation::Key, &many);
    let kinds = shown(&profile).iter().map(|it| (it.0, it.1, it.2)).collect::<Vec<_>>();
    let truth = [
        (LocationKind::Slowest, Some(40), 1),
        (LocationKind::Fastest, Some(1), 1),
        (LocationKind::Rest, None, 38),
    ];
    assert_eq!(kinds, truth);
}

#[test]
fn siblings_are_kept_by_every_aggregation_that_keeps_threads_apart() {
    let stamps = |times: &[(NodeId, u64)]| times.iter().map(|(_, ns)| ns).sum::<u64>() / STAMP_NS;
    for aggregation in [Aggregation::Set, Aggregation::Key, Aggregation::Calltree, Aggregation::All]
    {
        let profile = collect(aggregation, &THREADS);
        let [siblings] = &profile.thread_locations.siblings[..] else { panic!("{profile:?}") };
        assert_eq!(short(&profile, siblings.routine), "app+0x2000");
        let times = (siblings.threads, stamps(&siblings.slowest), stamps(&siblings.sum));
        assert_eq!(times, (5, 1000, WHOLE), "{aggregation:?}");
    }
    assert!(collect(Aggregation::Sum, &THREADS).thread_locations.siblings.is_empty());
    // Of too many threads, some are merged: the mean of the others is no mean of all.
    let mut many = vec![doing(5000, 0, 100), doing(20, 0, 100)];
    many.extend((0..66).map(|at| doing(200 + 20 * at, 0, 100)));
    assert!(collect(Aggregation::Key, &many).thread_locations.siblings.is_empty());
}

#[test]
fn threads_with_the_same_call_paths_are_one_class() {
    let profile = collect(Aggregation::Calltree, &THREADS);
    let truth = [
        (LocationKind::Class, Some(1), 4, 300 + 900 + 200 + 500, 5300),
        (LocationKind::Class, Some(4), 1, 600, 100),
    ];
    assert_eq!(shown(&profile), truth);
    assert_eq!(sum_of_locations(&profile), WHOLE);
}

#[test]
fn every_thread_can_be_kept() {
    let profile = collect(Aggregation::All, &THREADS);
    let numbers: Vec<_> = shown(&profile).iter().map(|it| (it.1, it.3)).collect();
    let truth = [(1, 300), (2, 900), (3, 200), (4, 600), (5, 500)];
    assert_eq!(numbers, truth.map(|(number, work)| (Some(number), work)));
    assert_eq!(sum_of_locations(&profile), WHOLE);
}

#[test]
fn the_sum_has_no_locations_and_is_that_of_every_aggregation() {
    let sum = collect(Aggregation::Sum, &THREADS);
    assert!(sum.thread_locations.locations.is_empty());
    for aggregation in [Aggregation::Set, Aggregation::Key, Aggregation::Calltree, Aggregation::All]
    {
        let mut other = collect(aggregation, &THREADS);
        assert_eq!(other.thread_locations.aggregation, aggregation);
        other.thread_locations = sum.thread_locations.clone();
        assert_eq!(other, sum, "{aggregation:?}");
    }
}

#[test]
fn a_set_has_minimum_maximum_and_spread_over_threads() {
    let profile = collect(Aggregation::Set, &THREADS);
    let statistics = &profile.thread_locations.statistics;
    let of = |wanted: &str| {
        let found = statistics.iter().find(|(node, _)| short(&profile, *node) == wanted);
        let it = &found.unwrap().1;
        let ns = [it.minimum, it.maximum, it.sum].map(|value| value.exclusive_ns / STAMP_NS);
        (it.threads, ns, it.squares_ns2 / u128::from(STAMP_NS * STAMP_NS))
    };
    let squares = |times: &[u128]| times.iter().map(|time| time * time).sum::<u128>();
    let work = squares(&[300, 900, 200, 405, 500]);
    assert_eq!(of("app+0x2000>app+0x3000"), (5, [200, 900, 2300 + SHARED], work));
    assert_eq!(of("app+0x2000>app+0x4000"), (1, [200 - SHARED; 3], 195 * 195));
    let waits = squares(&[100, 100, 5000, 100, 100]);
    assert_eq!(of("app+0x2000>pthread_cond_wait"), (5, [100, 5000, 5400], waits));
    assert_eq!(of("app+0x1000>app+0x3000"), (1, [10_000; 3], 10_000 * 10_000), "communicating");
}

/// Size of the threads of a process, as it crosses the job's MPI: 100 call paths, 90 of them
/// parallel (ESPT15, 5).
fn bytes(aggregation: Aggregation, threads: u32) -> usize {
    let frame = |id: u32| Frame::new(FrameKind::Function, format!("function{id}"), "app");
    let tree = ContextTree {
        frames: (0..100).map(frame).collect(),
        nodes: (0..100)
            .map(|id: u32| Node { parent: id.checked_sub(1), frame: id, site: 0 })
            .collect(),
    };
    let values = |number: u32| {
        let value = |node: u32| NodeValue {
            exclusive_ns: 1_000_000 + u64::from(number * 7919 + node * 104_729) % 1_000_000,
            calls: 1000,
            samples: 1000,
            ..NodeValue::default()
        };
        (number, (10..100).map(|node| (node, value(node))).collect())
    };
    let threads = (1..=threads).map(values).collect();
    let profile = crate::aggregate_threads(aggregation, &tree, &[], threads);
    postcard::to_stdvec(&profile).unwrap().len()
}

#[test]
fn only_unaggregated_threads_make_a_profile_larger() {
    for aggregation in [Aggregation::Sum, Aggregation::Set, Aggregation::Key, Aggregation::Calltree]
    {
        let (few, many) = (bytes(aggregation, 8), bytes(aggregation, 1024));
        // Larger sums have a few more digits.
        assert!(many as f64 <= 1.25 * few as f64, "{aggregation:?}: {few} {many}");
    }
    let (few, many) = (bytes(Aggregation::All, 8), bytes(Aggregation::All, 1024));
    assert!(many >= 127 * few, "{few} {many}");
    assert!(bytes(Aggregation::Key, 1024) * 200 < many);
}

#[test]
fn short_calls_of_threads_are_kept_beside_their_trees() {
    let mut subject = Subject::new(1 << 12);
    let (main, routine, work) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let read = subject.call("read");
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    subject.writer(0).sample(BEGIN + 1000, &[main, work]);
    for index in [1, 2] {
        subject.begin_thread(index, routine);
        let mut w = subject.writer(index);
        w.sample(BEGIN, &[routine, work]);
        w.slot(0, &[routine, work, read]);
        w.tally(0, 30, 60, 0);
        w.sample(BEGIN + 100, &[routine, work]);
        w.sample(BEGIN + 200, &[routine, work, read]);
        // The tree has these calls in the call of the sample.
        w.tally(0, 10, 40, 0);
        w.sample(BEGIN + 300, &[routine, work]);
        w.end(BEGIN + 300);
    }
    subject.end_at(BEGIN + 1000);
    let profile = collector.finish(key).unwrap();
    assert_eq!(spool.digest(&collector), profile);
    let clusters: Vec<_> = profile.workers.clusters.iter().map(|it| &it.members).collect();
    let [threads] = clusters[..] else { panic!("{clusters:?}") };
    let calls = threads.short_calls.iter();
    let calls: Vec<_> =
        calls.map(|(node, ns)| (path(&profile, *node).join(">"), ns / STAMP_NS)).collect();
    assert_eq!(calls, [("app+0x2000>app+0x3000>read".to_owned(), 2 * 60)]);
}
