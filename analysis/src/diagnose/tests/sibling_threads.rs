//! Sibling threads: uneven workers of a pool outside of OpenMP.

use plimsoll_collector::profile::{NodeId, SiblingThreads, ThreadProfile};

use super::*;
use crate::synthetic_run::Contexts;

/// Activities of one thread by call path, in milliseconds.
type Activities = &'static [(&'static str, u64)];
/// The pools of a rank: their start routines and threads, the slowest thread of each first.
type Pools = &'static [(&'static str, &'static [Activities])];

const ROUTINE: &str = "main/Pool::Pool/Pool::loop";
const PART: &str = "main/Pool::Pool/Pool::loop/loop/part";
const IDLE: &str = "main/Pool::Pool/Pool::loop/loop/pthread_cond_wait";
const WAIT: &str = "main/Pool::run/pthread_cond_wait";
const KERNEL: &str = "main/Pool::Pool/Pool::loop/loop/part/kernel/nanosleep";

const SLOW: Activities = &[(KERNEL, 1000), (PART, 10)];
const OTHER: Activities = &[(KERNEL, 400), (PART, 10), (IDLE, 600)];
const EVEN: Activities = &[(KERNEL, 500), (IDLE, 510)];
/// Works by 0.45 s longer than the mean of its siblings.
const UNEVEN_POOL: Pools = &[(ROUTINE, &[SLOW, OTHER, OTHER, OTHER])];
const EVEN_POOL: Pools = &[(ROUTINE, &[EVEN, EVEN, EVEN, EVEN])];

fn siblings(pools: Pools, contexts: &mut Contexts) -> Vec<SiblingThreads> {
    let mut times = |threads: &[Activities]| {
        let mut times: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (path, ms) in threads.iter().copied().flatten() {
            *times.entry(contexts.node(path)).or_default() += ms * MS;
        }
        times.into_iter().collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (routine, threads) in pools {
        let (slowest, sum) = (times(&threads[..1]), times(threads));
        found.push((routine, threads.len() as u64, slowest, sum));
    }
    let mut siblings = Vec::new();
    for (routine, threads, slowest, sum) in found {
        siblings.push(SiblingThreads { routine: contexts.node(routine), threads, slowest, sum });
    }
    siblings
}

/// A run of `ranks` ranks with these pools, in which the communicating thread has these activities.
fn run(
    ranks: u32,
    pools: fn(u32) -> Pools,
    locations: fn(u32, &mut Contexts) -> ThreadProfile,
    main: impl Fn(u32) -> Vec<crate::synthetic_run::Doing>,
) -> Summary {
    let mut subject = Subject::new(ranks);
    (subject.threads, subject.concurrent_threads) = (5, Some(4));
    // The contexts of all other threads; their times play no part here.
    let threads = (0..ranks).flat_map(|rank| pools(rank).iter().flat_map(|(_, threads)| *threads));
    let paths: BTreeSet<&'static str> = threads.copied().flatten().map(|(path, _)| *path).collect();
    subject.others = paths.into_iter().map(|path| doing(path, MS)).collect();
    subject.thread_locations = locations;
    subject.step(BARRIER, main);
    verdict(&subject)
}

macro_rules! run {
    ($ranks:expr, $pools:expr, $main:expr) => {{
        fn pools(rank: u32) -> Pools {
            let pools: fn(u32) -> Pools = $pools;
            pools(rank)
        }
        let locations = |rank: u32, contexts: &mut Contexts| ThreadProfile {
            siblings: siblings(pools(rank), contexts),
            ..ThreadProfile::default()
        };
        run($ranks, pools, locations, $main)
    }};
}

fn losses(summary: &Summary) -> Vec<(LossKind, f64)> {
    summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect()
}

#[test]
fn the_slowest_of_sibling_threads_is_a_loss_with_its_cause() {
    let summary = run!(1, |_| UNEVEN_POOL, |_| vec![doing(WAIT, 1010 * MS)]);
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.45)]);
    let loss = &summary.losses[0];
    let kernel = KERNEL.trim_end_matches("/nanosleep");
    assert_eq!(causes(loss), [(kernel.to_owned(), 0.45)]);
    assert_eq!(path(&loss.symptom.path), WAIT);
    assert_eq!((rounded(loss.symptom.mean_s), loss.waiting_ranks.as_str()), (1.01, "0"));
    assert_eq!(rounded(summary.projection.elapsed_s), 0.56);
    for words in ["In Pool::loop", "4 threads works 1.01 s", "0.56 s on average", "rank 0"] {
        assert!(loss.advice.contains(words), "{words}: {}", loss.advice);
    }
    // A loss is a verdict.
    assert!(!summary.work_is_elsewhere());
    let text = plimsoll_report::text(&summary);
    assert!(text.contains("One loss found: thread imbalance"), "{text}");
    for wrong in ["No verdict", "There may be more", "not found"] {
        assert!(!text.contains(wrong), "{text}");
    }
}

#[test]
fn the_loss_is_the_mean_over_ranks_and_names_those_that_lose() {
    let summary = run!(2, |rank| if rank == 1 { UNEVEN_POOL } else { EVEN_POOL }, |_| vec![doing(
        WAIT,
        1010 * MS
    )]);
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.225)]);
    assert_eq!(summary.losses[0].waiting_ranks, "1");
}

/// Rank 0 waits half a second in MPI for the slow thread of rank 1. With even threads and no wait
/// in MPI the run takes 0.56 s, the time of both ranks.
#[test]
fn no_second_is_both_between_threads_and_between_ranks() {
    let summary =
        run!(2, |rank| if rank == 1 { UNEVEN_POOL } else { EVEN_POOL }, |rank| vec![doing(
            WAIT,
            if rank == 1 { 1010 } else { 560 } * MS
        )]);
    let kinds = [(LossKind::LoadImbalance, 0.225), (LossKind::ThreadImbalance, 0.225)];
    let mut found = losses(&summary);
    found.sort_by_key(|(kind, _)| *kind != LossKind::LoadImbalance);
    assert_eq!(found, kinds);
    assert_eq!(rounded(summary.projection.elapsed_s), 0.56);
}

#[test]
fn a_rank_gains_no_more_than_its_communicating_thread_waits() {
    let summary =
        run!(1, |_| UNEVEN_POOL, |_| vec![doing("main/work", 810 * MS), doing(WAIT, 200 * MS)]);
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.2)]);
}

/// Two pools that work at the same time gain no more than one of them; after each other, both.
#[test]
fn pools_that_work_side_by_side_gain_once() {
    const BOTH: Pools = &[
        (ROUTINE, &[SLOW, OTHER, OTHER, OTHER]),
        ("main/start/filter", &[&[("main/start/filter", 900)], &[("main/start/filter", 300)]]),
    ];
    let beside = run!(1, |_| BOTH, |_| vec![doing(WAIT, 1010 * MS)]);
    assert_eq!(losses(&beside), [(LossKind::ThreadImbalance, 0.45)]);
    let after = run!(1, |_| BOTH, |_| vec![doing(WAIT, 1910 * MS)]);
    assert_eq!(
        losses(&after),
        [(LossKind::ThreadImbalance, 0.45), (LossKind::ThreadImbalance, 0.3)]
    );
    assert_eq!(causes(&after.losses[1])[0].0, "main/start/filter");
}

/// The language creates the last thread of a vector from another place of its code, which may be
/// inlined.
#[test]
fn siblings_on_different_paths_of_the_language_have_one_cause() {
    const POOL: Pools = &[(
        "main/loop/(insert)/std::vector::grow/worker",
        &[
            &[("main/(construct)/std::vector::emplace_back/worker/part", 900)],
            &[("main/loop/(insert)/std::vector::grow/worker/part", 300)],
            &[("main/loop/(insert)/std::vector::grow/worker/part", 300)],
        ],
    )];
    let summary = run!(1, |_| POOL, |_| vec![doing("main/pthread_join", 900 * MS)]);
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.4)]);
    let cause = &causes(&summary.losses[0])[0].0;
    assert_eq!(cause, "main/construct/std::vector::emplace_back/worker/part");
    assert!(summary.losses[0].advice.contains("In worker"), "{}", summary.losses[0].advice);
}

#[test]
fn threads_that_are_even_or_alone_or_not_awaited_lose_nothing() {
    const LOGGERS: Pools = &[("main/log", &[&[("main/log", 100)], &[("main/log", 10)]])];
    // The communicating thread waits for the pool, which is even.
    const EVEN_AND_LOGGERS: Pools = &[
        (ROUTINE, &[EVEN, EVEN, EVEN]),
        ("main/log", &[&[("main/log", 300)], &[("main/log", 9)]]),
    ];
    const ALONE: Pools = &[
        (ROUTINE, &[SLOW]),
        ("main/help", &[&[("main/help/pthread_cond_wait", 1000), ("main/help", 1)]]),
    ];
    // Another thread is in MPI meanwhile, or waits for the lock that the slow one holds.
    const IN_MPI: Pools = &[(
        "main/exchange",
        &[&[("main/exchange/pack", 600)], &[("main/exchange/MPI_Sendrecv", 1000)]],
    )];
    const LOCKED: Pools = &[(
        "main/update",
        &[&[("main/update/sum", 1000)], &[("main/update/pthread_mutex_lock", 1000)]],
    )];
    let waits = |ms: u64| move |_| vec![doing(WAIT, ms * MS), doing("main/work", (1100 - ms) * MS)];
    let none: [fn(u32) -> Vec<crate::synthetic_run::Doing>; 1] =
        [|_| vec![doing("main/work", 1100 * MS)]];
    for (case, summary) in [
        ("even", run!(1, |_| EVEN_POOL, waits(1010))),
        ("not awaited", run!(1, |_| UNEVEN_POOL, none[0])),
        ("alone", run!(1, |_| ALONE, waits(1010))),
        ("another is awaited", run!(1, |_| EVEN_AND_LOGGERS, waits(500))),
        ("something else is awaited", run!(1, |_| LOGGERS, waits(1000))),
        ("in MPI", run!(1, |_| IN_MPI, waits(1000))),
        ("locked", run!(1, |_| LOCKED, waits(1000))),
    ] {
        let found = losses(&summary);
        assert!(
            !found.iter().any(|(kind, _)| *kind == LossKind::ThreadImbalance),
            "{case}: {found:?}"
        );
    }
    let summary = run!(1, |_| EVEN_POOL, waits(1010));
    let text = plimsoll_report::text(&summary);
    assert!(text.contains("No verdict: the ranks work in threads, and only threads"), "{text}");
}
