use plimsoll_collector::profile::ThreadProfile;

use super::*;
use crate::diagnose::diagnose_alone;
use crate::summary::{Summary, ThreadRole};
use crate::synthetic_run::{Contexts, MS, Subject, doing, job, location};

const BARRIER: &str = "main/MPI_Barrier";

fn subject(ranks: u32, locations: fn(u32, &mut Contexts) -> ThreadProfile) -> Subject {
    let mut subject = Subject::new(ranks);
    subject.threads = 5;
    subject.others = vec![doing("worker/solve/kernel", MS), doing("worker/pthread_cond_wait", MS)];
    subject.thread_locations = locations;
    subject.step(BARRIER, |rank| vec![doing("main/relax", (500 + u64::from(rank) * 100) * MS)]);
    subject
}

fn verdict(subject: &Subject) -> Summary {
    diagnose_alone(subject.inputs(), &job()).unwrap()
}

/// Rank 1's slowest thread computes for 900 ms in the kernel, rank 0's for 600 ms.
fn by_key(rank: u32, contexts: &mut Contexts) -> ThreadProfile {
    const WAIT: &str = "worker/pthread_cond_wait";
    let kernel = "worker/solve/kernel";
    let slowest = 600 + 300 * u64::from(rank);
    let at = &mut *contexts;
    let locations = vec![
        location(LocationKind::Slowest, Some(2), 1, &[(kernel, slowest), (WAIT, 100)], at),
        location(LocationKind::Fastest, Some(1), 1, &[(kernel, 150), (WAIT, 850)], at),
        location(LocationKind::Rest, None, 2, &[(kernel, 800), ("worker/solve", 200)], at),
    ];
    ThreadProfile { locations, ..ThreadProfile::default() }
}

#[test]
fn key_threads_are_added_up_over_ranks_and_listed_by_process() {
    let summary = verdict(&subject(2, by_key));
    let threads = &summary.threads;
    let shown = |it: &ThreadRole| {
        let ms = |s: f64| (s * 1e3).round() as u64;
        let times = [it.work_s, it.min_work_s, it.max_work_s, it.time_s].map(ms);
        (it.role.clone(), it.ranks.clone(), it.threads, times)
    };
    let roles: Vec<_> = threads.roles.iter().map(shown).collect();
    let truth = [
        ("initial", 2, [550, 500, 600, 600]),
        ("slowest", 2, [750, 600, 900, 850]),
        ("fastest", 2, [150, 150, 150, 1000]),
        ("rest", 4, [500, 500, 500, 500]),
    ];
    let truth = truth.map(|(role, n, times)| (role.to_owned(), "0-1".to_owned(), n, times));
    assert_eq!(roles, truth);
    let [first, second] = &threads.processes[..] else { panic!("{:?}", threads.processes) };
    assert_eq!((first.rank, second.rank, first.threads), (0, 1, 5));
    let key = second.key.unwrap();
    assert_eq!((key.slowest.number, key.slowest.work_s), (Some(2), 0.9));
    assert_eq!((key.fastest.unwrap().number, key.fastest.unwrap().time_s), (Some(1), 1.0));
    assert_eq!((key.rest.unwrap().threads, key.rest.unwrap().work_s), (2, 0.5));
    assert_eq!((key.initial.work_s, &second.classes), (0.6, &None));
    let distinction = threads.distinction.as_ref().unwrap();
    assert_eq!(distinction.path.last().unwrap().function, "kernel");
    assert_eq!((distinction.slowest_s, distinction.fastest_s), (0.75, 0.15));
    let node = &summary.tree.nodes[distinction.node as usize];
    let times: Vec<(&str, f64)> =
        node.thread_times.iter().map(|(role, s)| (role.as_str(), *s)).collect();
    assert_eq!(times, [("fastest", 0.15), ("rest", 0.4), ("slowest", 0.75)]);
}

#[test]
fn threads_that_differ_by_little_are_not_told_apart() {
    let differs = |locations: fn(u32, &mut Contexts) -> ThreadProfile| {
        verdict(&subject(1, locations)).threads.distinction.is_some()
    };
    assert!(differs(|_, contexts| slowest_and_fastest([1000, 890], contexts)));
    assert!(!differs(|_, contexts| slowest_and_fastest([1000, 910], contexts)));
}

/// The slowest and the fastest thread compute for these times, in milliseconds.
fn slowest_and_fastest(ms: [u64; 2], contexts: &mut Contexts) -> ThreadProfile {
    let kernel = "worker/solve/kernel";
    let locations = vec![
        location(LocationKind::Slowest, Some(2), 1, &[(kernel, ms[0])], contexts),
        location(LocationKind::Fastest, Some(1), 1, &[(kernel, ms[1])], contexts),
    ];
    ThreadProfile { locations, ..ThreadProfile::default() }
}

/// A vector creates its last thread from another place of its own code than the ones before.
#[test]
fn threads_on_different_paths_of_the_language_are_compared_in_one_place() {
    let mut subject = subject(1, |_, contexts| {
        let slowest = "main/std::vector::emplace_back/std::thread/worker/kernel";
        let fastest = "main/std::vector::grow/std::thread/worker/kernel";
        let locations = vec![
            location(LocationKind::Slowest, Some(4), 1, &[(slowest, 900)], contexts),
            location(LocationKind::Fastest, Some(1), 1, &[(fastest, 300)], contexts),
        ];
        ThreadProfile { locations, ..ThreadProfile::default() }
    });
    subject.others = vec![
        doing("main/std::vector::emplace_back/std::thread/worker/kernel", 900 * MS),
        doing("main/std::vector::grow/std::thread/worker/kernel", 300 * MS),
    ];
    let summary = verdict(&subject);
    let distinction = summary.threads.distinction.unwrap();
    let path: Vec<&str> = distinction.path.iter().map(|it| it.function.as_str()).collect();
    assert_eq!(path, ["main", "std::vector::emplace_back", "std::thread", "worker", "kernel"]);
    assert_eq!((distinction.slowest_s, distinction.fastest_s), (0.9, 0.3));
}

#[test]
fn classes_are_numbered_by_their_size() {
    let summary = verdict(&subject(1, |_, contexts| ThreadProfile {
        aggregation: Aggregation::Calltree,
        locations: vec![
            location(LocationKind::Class, Some(1), 1, &[("worker/solve", 100)], contexts),
            location(LocationKind::Class, Some(2), 3, &[("worker/solve/kernel", 900)], contexts),
        ],
        ..ThreadProfile::default()
    }));
    let roles: Vec<_> = summary.threads.roles.iter().map(|it| it.role.as_str()).collect();
    assert_eq!(roles, ["initial", "class 1", "class 2"]);
    let classes = summary.threads.processes[0].classes.as_ref().unwrap();
    let shown: Vec<_> = classes.iter().map(|it| (it.number, it.threads, it.work_s)).collect();
    assert_eq!(shown, [(Some(2), 3, 0.3), (Some(1), 1, 0.1)]);
    assert!(summary.threads.processes[0].key.is_none() && summary.threads.distinction.is_none());
}

#[test]
fn statistics_run_over_the_threads_of_all_ranks() {
    let summary = verdict(&subject(2, |rank, contexts| {
        let mut statistics = ThreadStatistics::default();
        for ms in [100, 300 + 200 * u64::from(rank)] {
            statistics.add(&NodeValue { exclusive_ns: ms * MS, ..Default::default() });
        }
        ThreadProfile {
            aggregation: Aggregation::Set,
            statistics: vec![(contexts.node("worker/solve/kernel"), statistics)],
            ..ThreadProfile::default()
        }
    }));
    let node = summary.tree.nodes.iter().find(|node| !node.thread_times.is_empty()).unwrap();
    let time = |name: &str| node.thread_times[name];
    assert_eq!(["threads", "minimum", "maximum", "mean"].map(time), [4.0, 0.1, 0.5, 0.25]);
    let truth: f64 = (0.01 + 0.09 + 0.01 + 0.25) / 4.0 - 0.25 * 0.25;
    assert!((time("deviation") - truth.sqrt()).abs() < 1e-6, "{}", time("deviation"));
}

#[test]
fn the_aggregation_is_that_of_any_rank() {
    let summary = verdict(&subject(2, |_, _| ThreadProfile {
        aggregation: Aggregation::Sum,
        ..ThreadProfile::default()
    }));
    assert_eq!(summary.threads.aggregation, crate::summary::ThreadAggregation::Sum);
    let mut empty = ThreadTotals::default();
    let ours = ThreadTotals { aggregation: Some(Aggregation::All), ..ThreadTotals::default() };
    for (one, other) in [(empty.clone(), ours.clone()), (ours, empty.clone())] {
        empty = one;
        empty.combine(other, &[]);
        assert_eq!(empty.aggregation, Some(Aggregation::All));
    }
}

/// Processes with known differences; each lists `threads` threads.
fn listed(ranks: std::ops::Range<u32>, threads: usize) -> ThreadTotals {
    let mut totals = ThreadTotals::default();
    for rank in ranks {
        let times =
            LocationTimes { role: Role::Rest, number: None, threads: 1, work_ns: 1, time_ns: 1 };
        totals.processes.push(ListedProcess {
            rank,
            threads: 2,
            spread_ns: u64::from(rank * 7919 % 1009),
            locations: vec![times; threads],
        });
        totals.shorten();
    }
    totals
}

#[test]
fn listed_processes_do_not_depend_on_the_order_of_the_reduction() {
    for (threads, kept) in [(2, MAX_LISTED_PROCESSES), (512, MAX_LISTED_THREADS / 512)] {
        let all = listed(0..1000, threads);
        assert_eq!((all.processes.len(), all.unlisted), (kept, 1000 - kept as u32));
        let parts = [listed(0..10, threads), listed(10..600, threads), listed(600..1000, threads)];
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut other = ThreadTotals::default();
            order.iter().for_each(|part| other.combine(parts[*part].clone(), &[]));
            assert_eq!(other, all);
        }
        let least = all.processes.iter().map(|it| it.spread_ns).min().unwrap();
        let ranks: Vec<u32> = all.processes.iter().map(|it| it.rank).collect();
        let larger = (0..1000).filter(|rank| u64::from(rank * 7919 % 1009) > least);
        assert!(larger.into_iter().all(|rank| ranks.contains(&rank)));
    }
}

/// The communicating threads wait for others, which no comparison of ranks shows: the report must
/// not say that there is no loss, and says how uneven these threads are.
#[test]
fn uneven_threads_that_are_not_compared_are_no_all_clear() {
    let mut subject = Subject::new(2);
    (subject.threads, subject.concurrent_threads) = (5, Some(5));
    subject.others = vec![doing("worker/solve/kernel", MS), doing("worker/pthread_cond_wait", MS)];
    subject.thread_locations = by_key;
    subject.step(BARRIER, |_| vec![doing("main/pthread_join", 1000 * MS)]);
    let summary = verdict(&subject);
    assert!(summary.losses.is_empty() && summary.work_is_elsewhere(), "{:?}", summary.losses);
    let note = "On rank 1 the slowest of these computes 0.90 s, the others 0.38 s on average.";
    assert!(summary.notes.iter().any(|it| it.ends_with(note)), "{:?}", summary.notes);
    let text = plimsoll_report::text(&summary);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("No verdict: the ranks work in threads, and only threads that were created"),
        "{text}"
    );
    for wrong in ["No scalability loss", "speed up the work itself"] {
        assert!(!words.contains(wrong), "{text}");
    }
    // Beside a loss between ranks, there may be others.
    subject.step(BARRIER, |rank| vec![doing("main/relax", (100 + 300 * u64::from(rank)) * MS)]);
    let summary = verdict(&subject);
    assert_eq!(summary.losses.len(), 1);
    let text = plimsoll_report::text(&summary);
    assert!(text.contains("There may be more: the ranks work in threads"), "{text}");
}
