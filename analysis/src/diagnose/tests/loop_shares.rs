//! Shares of loops in the run, and the number of proven iterations.

use plimsoll_collector::profile::LoopProfile;

use super::*;
use crate::summary::Loop;
use crate::synthetic_run::Contexts;

/// 200 steps of 10 ms in a loop after 60 ms of setup, on four ranks. Only on rank 0 do samples
/// distinguish iterations: `accepted` of them.
fn the_loop(accepted: u64, rejected: u64) -> Loop {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![doing("main/setup", 60 * MS)]);
    for _ in 0..200 {
        subject.step("main/loop/MPI_Allreduce", |_| vec![doing("main/loop/solve", 10 * MS)]);
    }
    let mut inputs = subject.inputs();
    let mut contexts = Contexts { tree: inputs[0].profile.tree.clone() };
    inputs[0].profile.loops = vec![LoopProfile {
        node: contexts.node("main/loop"),
        executions: 1,
        duration_ns: 2000 * MS,
        accepted,
        rejected,
        stride: 1,
        durations: Vec::new(),
        clusters: Vec::new(),
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
fn calls_prove_iterations_that_samples_nearly_tell_apart() {
    for (accepted, rejected, is_exact) in
        [(200, 0, true), (198, 1, true), (190, 10, true), (150, 0, false), (190, 15, false)]
    {
        let iterations = the_loop(accepted, rejected).iterations;
        assert_eq!(iterations.calls_seen, Some(200));
        assert_eq!(iterations.exact, is_exact, "{accepted} and {rejected}");
    }
}
