//! Shares of loops in the run, and the number of proven iterations.

use plimsoll_collector::profile::LoopProfile;

use super::*;
use crate::summary::Loop;
use crate::synthetic_run::{Contexts, calling};

/// 200 steps of 10 ms in a loop after 60 ms of setup, on four ranks. Only on rank 0 do samples
/// distinguish iterations: `accepted` of them.
fn the_loop(accepted: u64, rejected: u64) -> Loop {
    the_loop_with(LoopProfile { accepted, rejected, ..LoopProfile::default() })
}

fn the_loop_with(profile: LoopProfile) -> Loop {
    the_loop_around("main/loop/MPI_Allreduce", profile)
}

fn the_loop_around(call: &'static str, profile: LoopProfile) -> Loop {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![doing("main/setup", 60 * MS)]);
    for _ in 0..200 {
        subject.step(call, |_| vec![doing("main/loop/solve", 10 * MS)]);
    }
    let mut inputs = subject.inputs();
    let mut contexts = Contexts { tree: inputs[0].profile.tree.clone() };
    inputs[0].profile.loops = vec![LoopProfile {
        node: contexts.node("main/loop"),
        executions: 1,
        duration_ns: 2000 * MS,
        stride: 1,
        ..profile
    }];
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let [it] = &summary.loops[..] else { panic!("{:#?}", summary.loops) };
    it.clone()
}

#[test]
fn a_loop_takes_the_time_of_all_ranks() {
    assert_eq!(rounded(the_loop(200, 0).fraction), rounded(2000.0 / 2060.0));
}

#[test]
fn loops_of_the_runtimes_are_not_listed() {
    const LOOPS: [&str; 3] =
        ["main/loop", "main/loop/libgomp.so.1!loop2", "main/loop/MPI_Waitall/libmpi.so.40!loop3"];
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| LOOPS.map(|path| doing(path, 60 * MS)).into());
    let mut inputs = subject.inputs();
    for profile in inputs.iter_mut().map(|input| &mut input.profile) {
        let mut contexts = Contexts { tree: profile.tree.clone() };
        let of = |path: &&str| LoopProfile {
            node: contexts.node(path),
            executions: 1,
            duration_ns: 60 * MS,
            stride: 1,
            ..LoopProfile::default()
        };
        profile.loops = LOOPS.iter().map(of).collect();
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let modules: Vec<&str> =
        summary.loops.iter().map(|it| &*it.path.last().unwrap().module).collect();
    assert_eq!(modules, ["app"]);
}

#[test]
fn calls_prove_iterations_that_samples_nearly_tell_apart() {
    for (accepted, rejected, is_exact) in
        [(200, 0, true), (198, 1, true), (190, 10, true), (150, 0, false), (190, 15, false)]
    {
        let iterations = the_loop(accepted, rejected).iterations;
        assert_eq!(iterations.calls_seen, Some(200));
        assert_eq!(iterations.exact, is_exact, "{accepted} and {rejected}");
    }
}

#[test]
fn calls_in_functions_of_the_loop_prove_iterations() {
    let of = |call, accepted| {
        let profile = LoopProfile { accepted, rejected: 10, ..LoopProfile::default() };
        let iterations = the_loop_around(call, profile).iterations;
        (iterations.calls_seen, iterations.exact)
    };
    for call in ["main/loop/(add_up)/MPI_Allreduce", "main/loop/(norm)/(dot)/MPI_Allreduce"] {
        assert_eq!([of(call, 190), of(call, 185)], [(Some(200), true); 2], "{call}");
    }
    // The function may be called several times in some iterations.
    let called = "main/loop/norm/MPI_Allreduce";
    assert_eq!([of(called, 190), of(called, 185)], [(Some(200), true), (None, false)]);
    assert_eq!(of("main/loop/loop_inside/MPI_Allreduce", 190), (None, false));
}

/// Samples do not tell executions apart between which the outer loop does little.
#[test]
fn iterations_of_an_inner_loop_are_exact_if_its_executions_are() {
    const INNER: &str = "main/loop/loop_inside/MPI_Allreduce";
    let of = |inner_executions: u64, outer_iterations: &[u64]| {
        let mut subject = Subject::new(4);
        for step in 0..200 {
            let outer = (step % 10 == 0).then(|| calling("main/loop/MPI_Bcast", MS, 1, 0));
            let work = doing("main/loop/loop_inside/solve", 10 * MS);
            subject.step(INNER, |_| outer.into_iter().chain([work]).collect());
        }
        let mut inputs = subject.inputs();
        let mut contexts = Contexts { tree: inputs[0].profile.tree.clone() };
        let whole = LoopProfile { duration_ns: 2000 * MS, stride: 1, ..<_>::default() };
        let inner = LoopProfile {
            node: contexts.node("main/loop/loop_inside"),
            executions: inner_executions,
            accepted: 200,
            ..whole.clone()
        };
        let outer_node = contexts.node("main/loop");
        let outer = outer_iterations.iter().map(|accepted| LoopProfile {
            node: outer_node,
            executions: 1,
            accepted: *accepted,
            ..whole.clone()
        });
        inputs[0].profile.loops = outer.chain([inner]).collect();
        let summary = diagnose_alone(inputs, &job()).unwrap();
        let inner = summary.loops.iter().find(|it| path(&it.path) == "main/loop/loop_inside");
        let iterations = inner.unwrap().iterations;
        (iterations.calls_seen, iterations.exact)
    };
    assert_eq!(of(20, &[20]), (Some(10), true));
    assert_eq!(of(1, &[20]), (Some(200), false));
    assert_eq!(of(1, &[]), (Some(200), false));
    // Calls do not prove the iterations of the outer loop.
    assert_eq!(of(10, &[10]), (Some(20), false));
}

/// Iteration 1 of each five is not distinguished.
#[test]
fn durations_say_which_iterations_they_are_about_and_when_these_began() {
    let of = |number: u64| match number % 5 {
        1 => ((0, 0), None),
        _ => ((10 * MS, 1), Some((60 + 10 * number) * MS)),
    };
    let (durations, begins) = (0..200).map(of).unzip();
    let found = the_loop_with(LoopProfile { accepted: 160, durations, begins, ..<_>::default() });
    assert!(found.first_iterations.starts_with("0,2-5,7-10,"), "{}", found.first_iterations);
    assert_eq!((found.durations_s.len(), found.stride), (160, Some(1)));
    let begins_s: Vec<f64> = found.begins_s.iter().map(|it| rounded(it.unwrap())).collect();
    assert_eq!(&begins_s[..3], &[0.06, 0.08, 0.09]);

    // 400 iterations are 200 entries of two each.
    let (durations, begins) = (0..400).map(of).unzip();
    let found = the_loop_with(LoopProfile { accepted: 320, durations, begins, ..<_>::default() });
    assert_eq!((found.first_iterations.as_str(), found.stride), ("0-398:2", Some(2)));
    assert_eq!(rounded(found.begins_s[5].unwrap()), 0.16);
    // The first one of iterations 6 and 7 that is known.
    assert_eq!(rounded(found.begins_s[3].unwrap()), 0.13);
}
