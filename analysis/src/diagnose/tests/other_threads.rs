//! Threads that do not communicate.

use super::*;
use crate::synthetic_run::calling;

/// Two threads of each rank solve and one writes; the solving threads of rank 2 take three times as
/// long.
#[test]
fn threads_that_did_alike_are_one_kind_over_all_ranks() {
    let mut subject = Subject::new(4);
    subject.threads = 4;
    subject.workers = |rank| {
        let slow = if rank == 2 { 3 } else { 1 };
        let solve = vec![
            doing("work/solve", slow * 100 * MS),
            calling("work/wait/pthread_cond_wait", (400 - slow * 100) * MS, 1, 0),
        ];
        let write = vec![calling("log/write", 300 * MS, 10, 1000), doing("log/format", 100 * MS)];
        vec![solve.clone(), solve, write]
    };
    subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", 400 * MS)]);
    let summary = verdict(&subject);
    let found = summary.thread_clusters.iter().map(|it| {
        let routine = it.routine.as_deref().unwrap_or_default();
        (&*it.ranks, it.size, routine, (it.mean_s * 1e3).round(), (it.work_s * 1e3).round())
    });
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [
            ("0-1,3", 6, "work", 400.0, 100.0),
            ("0-3", 4, "log", 400.0, 100.0),
            ("2", 2, "work", 400.0, 300.0),
        ]
    );
    assert!(summary.thread_clusters.iter().all(|it| it.distance.is_some_and(|far| far > 0.2)));
    let text = plimsoll_report::text(&summary);
    let words: Vec<&str> = text.split_whitespace().collect();
    let found =
        "6 threads in work (ranks 0-1, 3), computing 0.10 s of 0.40 s each; 4 threads in log";
    assert!(words.join(" ").contains(found), "{text}");
}

/// A thread's many short calls lie in their callers in its tree, but are no computation.
#[test]
fn short_calls_of_threads_are_no_work() {
    let mut subject = Subject::new(2);
    subject.threads = 2;
    subject.workers = |_| {
        vec![vec![
            doing("fill/parse", 90 * MS),
            calling("fill/parse/read", 150 * MS, 30_000, 0),
            calling("fill/parse/write", 60 * MS, 3, 0),
        ]]
    };
    subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", 300 * MS)]);
    let summary = verdict(&subject);
    let found = summary
        .thread_clusters
        .iter()
        .map(|it| (&*it.ranks, it.size, (it.mean_s * 1e3).round(), (it.work_s * 1e3).round()));
    assert_eq!(found.collect::<Vec<_>>(), [("0-1", 2, 300.0, 90.0)]);
}

/// ICS18, Table 1, compares threads: the sum of four threads' waiting is not the time that the run
/// would be shorter.
#[test]
fn threads_that_wait_together_wait_no_longer_than_the_run() {
    assert_wait_of_four_threads(5, None, 400);
}

/// Waits of pools of four threads do not depend on how often they are created anew, nor on
/// the part of the run in which there are any.
#[test]
fn threads_of_short_lived_pools_wait_like_those_of_one() {
    assert_wait_of_four_threads(41, Some(4), 1000);
}

/// Asserts waits of ranks with four threads at one time; `threads` of a rank and `concurrent` ones,
/// in a run of `elapsed_ms`.
fn assert_wait_of_four_threads(threads: u32, concurrent: Option<u32>, elapsed_ms: u64) {
    let mut subject = Subject::new(2);
    (subject.threads, subject.concurrent_threads) = (threads, concurrent);
    // Four threads per rank, each for a quarter of its time in the barrier.
    subject.others = vec![
        doing("work/solve", 4 * 300 * MS),
        doing("work/solve/pthread_barrier_wait", 4 * 100 * MS),
    ];
    subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", elapsed_ms * MS)]);
    let summary = verdict(&subject);
    let value_of = |name: &str, value: fn(&crate::summary::TreeNode) -> Option<f64>| {
        let of = |node: &&crate::summary::TreeNode| {
            summary.tree.frames[node.frame as usize].function == name
        };
        rounded(value(summary.tree.nodes.iter().find(of).unwrap()).unwrap())
    };
    assert_eq!(value_of("pthread_barrier_wait", |it| it.wait_s), 0.1);
    assert_eq!(value_of("pthread_barrier_wait", |it| it.imb_s), 0.0);
    assert_eq!(value_of("work", |it| it.sum_wait_s), 0.1);
    assert_eq!(value_of("pthread_barrier_wait", |it| Some(it.inclusive.sum_s)), 0.8);
}

/// Ranks work in threads that they create in each step; rank 3 has more work than the others.
fn in_created_threads(workers: &'static str) -> Summary {
    let mut subject = ten_steps(4, |rank| {
        let ms = if rank == 3 { 90 } else { 50 };
        vec![doing("main/sweep/loop/pthread_join", ms * MS), doing("main/rest", 10 * MS)]
    });
    subject.threads = 31;
    subject.concurrent_threads = Some(3);
    subject.others = vec![doing(workers, 3 * 600 * MS), doing("main/sweep/other", 9 * MS)];
    verdict(&subject)
}

#[test]
fn a_future_waits_for_the_function_of_its_thread() {
    let get = "main/(std::future::get)/libstdc++.so.6!_M_complete_async/(std::call_once)/\
               (__gthread_once)/libc.so.6!__pthread_once_slow/libstdc++.so.6!join/pthread_join";
    let mut subject = ten_steps(4, |rank| {
        let ms = if rank == 3 { 90 } else { 50 };
        vec![doing(get, ms * MS), doing("main/rest", 10 * MS)]
    });
    subject.threads = 11;
    subject.concurrent_threads = Some(1);
    let start = "main/(std::async)/libstdc++.so.6!_M_start_thread/Region::flux";
    subject.others = vec![doing(start, 600 * MS)];
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!(loss.causes[0].path.last().unwrap().function, "Region::flux", "{loss:#?}");
    let words = "pthread_join (which waits for threads in Region::flux) takes 0.900 s";
    assert!(loss.advice.contains(words), "{}", loss.advice);
}

#[test]
fn threads_that_a_slow_rank_waits_for_are_told() {
    let summary = in_created_threads("main/sweep/start/sweep_block/loop");
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LoadImbalance);
    let words = "(which waits for threads in sweep_block) takes 0.900 s on the slowest rank";
    assert!(loss.advice.contains(words), "{}", loss.advice);
    let note = "The communicating threads wait 60 % of the time for other threads of their ranks.";
    assert!(summary.notes.iter().any(|it| it.starts_with(note)), "{:?}", summary.notes);
    // Most of the work is in threads that efficiencies do not count.
    assert_eq!(summary.efficiency.parallel, None);
    // Threads of another function are none that the slow one waits for.
    let summary = in_created_threads("main/set_up/sweep_block");
    let advice = &only_loss(&summary).advice;
    assert!(advice.contains("(mostly in pthread_join)"), "{advice}");
}

/// Ranks work in two threads of a pool, which lives as long as they do. The threads of rank 3 work
/// for 1800 ms, those of other ranks for `others_ms`.
fn in_pool(others_ms: u64) -> Summary {
    let mut subject = ten_steps(4, |rank| {
        let ms = if rank == 3 { 90 } else { 50 };
        vec![doing("main/step/wait_all/pthread_cond_wait", ms * MS)]
    });
    (subject.threads, subject.concurrent_threads) = (3, Some(2));
    subject.others = vec![
        doing("main/create/worker/assemble", 1800 * MS),
        doing("main/create/worker/pthread_cond_wait", 100 * MS),
    ];
    let mut inputs = subject.inputs();
    for input in &mut inputs[..3] {
        input.profile.other_threads[0].1.exclusive_ns = others_ms * MS;
    }
    diagnose_alone(inputs, &job()).unwrap()
}

#[test]
fn work_of_a_pool_is_the_cause_where_it_is_uneven() {
    for (others_ms, cause) in [(1000, "assemble"), (1700, "wait_all")] {
        let summary = in_pool(others_ms);
        let loss = only_loss(&summary);
        assert_eq!(loss.kind, LossKind::LoadImbalance);
        assert_eq!(loss.causes[0].path.last().unwrap().function, cause, "{loss:#?}");
        let words = "wait_all (which waits for threads in assemble) takes 0.900 s";
        assert_eq!(loss.advice.contains(words), cause == "assemble", "{}", loss.advice);
    }
}

#[test]
fn there_are_no_efficiencies_if_other_threads_do_the_work_of_the_ranks() {
    for (awaited_ms, parallel) in [(600, None), (400, Some(0.6))] {
        let mut subject = Subject::new(2);
        (subject.threads, subject.concurrent_threads) = (3, Some(2));
        subject.others =
            vec![doing("work/solve", 1000 * MS), doing("work/exchange/MPI_Sendrecv", 1000 * MS)];
        subject.step("main/MPI_Barrier", |_| {
            let own = doing("main/solve", (1000 - awaited_ms) * MS);
            vec![own, doing("main/pthread_join", awaited_ms * MS)]
        });
        let summary = verdict(&subject);
        assert_eq!(summary.efficiency.parallel.map(rounded), parallel);
        let note = format!(
            "The communicating threads wait {} % of the time for other threads of their ranks, \
             which are in MPI for 50 % of theirs.",
            awaited_ms / 10
        );
        assert!(summary.notes.iter().any(|it| it.starts_with(&note)), "{:?}", summary.notes);
    }
}

#[test]
fn threads_of_the_language_are_named_by_the_function_of_the_program() {
    let routine = |workers| {
        let mut subject = Subject::new(1);
        (subject.threads, subject.workers) = (2, workers);
        subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", 400 * MS)]);
        verdict(&subject).thread_clusters[0].routine.clone().unwrap()
    };
    let one = routine(|_| {
        vec![vec![
            doing("libstdc++.so.6!start/std::thread::run/Pool::loop/part", 300 * MS),
            calling("libstdc++.so.6!start/Pool::loop/pthread_cond_wait", 90 * MS, 1, 0),
            calling("libstdc++.so.6!start/pthread_cond_wait", 10 * MS, 1, 0),
        ]]
    });
    assert_eq!(one, "Pool::loop");
    let several = routine(|_| {
        vec![vec![
            doing("libstdc++.so.6!start/prepare", 100 * MS),
            doing("libstdc++.so.6!start/solve", 300 * MS),
        ]]
    });
    assert_eq!(several, "start");
    let unnamed = routine(|_| {
        vec![vec![
            doing("libstdc++.so.6!libstdc++.so.6+0xd4490/prepare", 100 * MS),
            doing("libstdc++.so.6!libstdc++.so.6+0xd4490/solve", 300 * MS),
        ]]
    });
    assert_eq!(unnamed, "prepare and solve");
    const ONCE: &str = "libstdc++.so.6!libstdc++.so.6+0xd4490/libc.so.6!__pthread_once_slow/flux";
    assert_eq!(routine(|_| vec![vec![doing(ONCE, 300 * MS)]]), "flux");
}

#[test]
fn start_routines_of_openmp_runtimes_without_symbols_have_a_name() {
    let routine = |workers| {
        let mut subject = Subject::new(1);
        (subject.threads, subject.workers) = (2, workers);
        subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", 400 * MS)]);
        verdict(&subject).thread_clusters[0].routine.clone().unwrap()
    };
    let of_gomp = routine(|_| vec![vec![doing("libgomp.so.1+0x1cc40/solve", 400 * MS)]]);
    assert_eq!(of_gomp, "OpenMP worker");
    let of_other = routine(|_| vec![vec![doing("libpool.so+0x1cc40/solve", 400 * MS)]]);
    assert_eq!(of_other, "libpool.so+0x1cc40");
}
