//! Tests of Plimsoll's own thresholds, which no paper gives, from both sides: a change of one by a
//! tenth changes a verdict here.

use super::places::{KERNELS, two_nodes};
use super::*;
use crate::synthetic_run::Doing;

/// Sampling period of synthetic runs, in nanoseconds.
const PERIOD_NS: u64 = 4 * MS;

/// Returns whether a slow node is a loss of a run. Uneven work may be another one.
fn is_slow_node(subject: &Subject) -> bool {
    verdict(subject).losses.iter().any(|loss| loss.kind == LossKind::SlowNode)
}

/// Eight ranks on two nodes do ten steps with the same parts, which take half longer on the second.
fn half_slower(parts: &[(&'static str, u64)]) -> Subject {
    let mut subject = ten_steps(8, |rank| {
        let part = |(path, ns): &(&'static str, u64)| match rank {
            0..4 => doing(path, *ns),
            _ => doing(path, ns * 3 / 2),
        };
        parts.iter().map(part).collect()
    });
    subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
    subject
}

#[test]
fn a_slow_node_takes_a_tenth_longer() {
    let factor = |slow: f64| two_nodes(move |rank, _| if rank < 4 { 1.0 } else { slow });
    assert!(is_slow_node(&factor(1.15)));
    assert!(!is_slow_node(&factor(1.05)));
}

#[test]
fn contexts_of_a_slow_node_differ_from_its_factor_by_a_fifth_of_what_exceeds_one() {
    // The third kernel has a fifth of the work. The factor of all work is 1.5.
    let solve = |more: f64| {
        two_nodes(move |rank, kernel| match (rank, kernel) {
            (0..4, _) => 1.0,
            (_, 2) => 1.5 + more,
            _ => 1.5 - more / 4.0,
        })
    };
    for sign in [1.0, -1.0] {
        assert!(is_slow_node(&solve(sign * 0.095)));
        assert!(!is_slow_node(&solve(sign * 0.105)));
    }
    // So do the ranks of the node in all of their work.
    let apart = |more: f64| {
        two_nodes(move |rank, _| match rank {
            0..4 => 1.0,
            4 => 1.5 + more,
            _ => 1.5 - more / 3.0,
        })
    };
    assert!(is_slow_node(&apart(0.095)));
    assert!(!is_slow_node(&apart(0.105)));
    // And the standard deviation of the other ranks in a context.
    let others = |more: f64| {
        two_nodes(move |rank, kernel| match (rank, kernel) {
            (0..4, 2) => 1.0 + if rank % 2 == 0 { more } else { -more },
            (0..4, _) => 1.0,
            _ => 1.5,
        })
    };
    assert!(is_slow_node(&others(0.095)));
    assert!(!is_slow_node(&others(0.105)));
}

#[test]
fn three_contexts_with_a_fiftieth_of_the_work_show_a_slow_node() {
    // Contexts of 2.1 and 1.9 % of the work; of 10 s in a step.
    let third = |ms: u64| {
        half_slower(&[
            ("main/push", 6_000 * MS),
            ("main/deposit", (4_000 - ms) * MS),
            ("main/solve", ms * MS),
        ])
    };
    assert!(is_slow_node(&third(210)));
    assert!(!is_slow_node(&third(190)));
}

#[test]
fn contexts_of_a_slow_node_have_fifty_samples() {
    // Mean times of 52 and 48 periods in ten steps: the slow node takes half longer.
    let third = |periods: u64| {
        half_slower(&[
            ("main/push", 100 * PERIOD_NS / 10),
            ("main/deposit", 100 * PERIOD_NS / 10),
            ("main/solve", periods * PERIOD_NS / 10 * 4 / 5),
        ])
    };
    assert!(is_slow_node(&third(52)));
    assert!(!is_slow_node(&third(48)));
}

#[test]
fn compared_contexts_have_four_fifths_of_the_work() {
    const REST: [&str; 12] = [
        "main/a", "main/b", "main/c", "main/d", "main/e", "main/f", "main/g", "main/h", "main/i",
        "main/j", "main/k", "main/l",
    ];
    // Besides three kernels, twelve contexts with less than a fiftieth each.
    let held = |held_ms: u64| {
        let rest = REST.map(|path| (path, (10_000 - held_ms) * MS / 12));
        let kernels = [("main/push", 2), ("main/deposit", 1), ("main/solve", 1)];
        let kernels = kernels.map(|(path, quarters)| (path, quarters * held_ms * MS / 4));
        half_slower(&[&kernels[..], &rest[..]].concat())
    };
    assert!(is_slow_node(&held(8_200)));
    assert!(!is_slow_node(&held(7_800)));
}

#[test]
fn a_slow_core_is_waited_for_in_seven_tenths_of_its_delay() {
    let kind = |percent: u64| {
        let subject = ten_steps(8, |rank| {
            let kernel = |(path, ms): &(&'static str, u64)| match rank {
                3 => Doing { run_delay_ns: ms * MS * percent / 100, ..doing(path, 2 * ms * MS) },
                _ => doing(path, ms * MS),
            };
            KERNELS.iter().map(kernel).collect()
        });
        verdict(&subject).losses[0].kind
    };
    assert_eq!(kind(72), LossKind::SlowCore);
    assert_ne!(kind(68), LossKind::SlowCore);
}

#[test]
fn ranks_are_slow_in_turn_if_half_of_the_imbalance_vanishes_in_their_totals() {
    // In 100 steps one of eight ranks takes longer: rank 0 in `often` of them. Of the imbalance of
    // the steps, (8 often - 100) / 700 is left in the totals: 52 and 47 %.
    let by_turns = |often: u32| {
        let mut subject = Subject::new(8);
        subject.step(BARRIER, |_| vec![]);
        for step in 0..100 {
            let slow = if step < often { 0 } else { 1 + step % 7 };
            subject.step(BARRIER, |rank| {
                let ms = if rank == slow { 60 } else { 20 };
                vec![doing("main/assemble", ms * MS), doing("main/relax", 20 * MS)]
            });
        }
        only_loss(&verdict(&subject)).by_turns
    };
    assert!(!by_turns(58));
    assert!(by_turns(54));
}
