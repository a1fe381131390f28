//! Tests of the thresholds of losses and their causes (PPoPP20, 5.1 and 5.3) from both sides: a
//! change of one by a tenth changes a verdict here.

use super::calls::kinds;
use super::*;
use crate::synthetic_run::{Doing, calling};

/// A microsecond, in nanoseconds.
const US: u64 = 1_000;

/// Returns the call paths of the causes of a run's only loss.
fn cause_paths(subject: &Subject) -> Vec<String> {
    causes(only_loss(&verdict(subject))).into_iter().map(|(path, _)| path).collect()
}

/// Returns the kinds of loss of `steps` steps; all four ranks do the same.
fn kinds_of(steps: u32, part: impl Fn() -> Vec<Doing>) -> Vec<LossKind> {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..steps {
        subject.step(BARRIER, |_| part());
    }
    kinds(&verdict(&subject)).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn a_cause_is_a_tenth_of_the_symptom() {
    let subject = |small_us: u64| {
        ten_steps(8, |rank| {
            let more_us = if rank == 7 { [100_000 - small_us, small_us] } else { [0; 2] };
            let [large, small] = more_us.map(|us| 40 * MS + us * US);
            vec![doing("main/assemble", large), doing("main/relax", small)]
        })
    };
    assert_eq!(cause_paths(&subject(10_500)), ["main/assemble", "main/relax"]);
    assert_eq!(cause_paths(&subject(9_500)), ["main/assemble"]);
}

#[test]
fn callees_with_seven_tenths_of_the_imbalance_are_named_in_their_caller_s_place() {
    let subject = |inner_us: u64| {
        ten_steps(8, |rank| {
            let more_us = if rank == 7 { [inner_us, 100_000 - inner_us] } else { [0; 2] };
            let [inner, own] = more_us.map(|us| 40 * MS + us * US);
            vec![doing("main/step/relax", inner), doing("main/step", own)]
        })
    };
    assert_eq!(cause_paths(&subject(73_000)), ["main/step/relax", "main/step"]);
    assert_eq!(cause_paths(&subject(67_000)), ["main/step"]);
}

#[test]
fn causes_even_each_other_out_where_they_exceed_the_symptom_by_a_tenth() {
    // Rank 0 takes 80 ms longer in assemble and 10 ms in relax, rank 1 takes `longer` in relax.
    let subject = |longer_ms: u64| {
        ten_steps(8, |rank| {
            let more_ms = [(80, 10), (0, longer_ms)].get(rank as usize).copied().unwrap_or((0, 0));
            vec![
                doing("main/assemble", (40 + more_ms.0) * MS),
                doing("main/relax", (40 + more_ms.1) * MS),
            ]
        })
    };
    // Causes of 70 and 18 ms, a symptom of 76: 1.16 times that. Causes of 70 and 12 ms, a symptom
    // of 77: 1.07 times that.
    for (longer_ms, truth) in [(22, true), (15, false)] {
        let summary = verdict(&subject(longer_ms));
        let loss = only_loss(&summary);
        assert_eq!((loss.causes.len(), loss.evened_out), (2, truth), "{loss:#?}");
    }
}

#[test]
fn serialization_leaves_a_tenth_to_the_other_ranks() {
    let kind = |others_us: u64| {
        let subject = ten_steps(8, |rank| {
            let written = match rank {
                0 => vec![doing("main/write_out", 100 * MS)],
                // Three of the seven other ranks.
                1..4 => vec![doing("main/write_out", others_us * US * 7 / 3)],
                _ => vec![],
            };
            [doing("main/solve", 40 * MS)].into_iter().chain(written).collect()
        });
        only_loss(&verdict(&subject)).kind
    };
    assert_eq!(kind(9_500), LossKind::Serialization);
    assert_eq!(kind(10_500), LossKind::LoadImbalance);
}

#[test]
fn frequent_calls_take_less_than_twenty_milliseconds() {
    let of_call_us = |us: u64| {
        kinds_of(10, || {
            vec![doing("main/solve", MS), calling("main/take/MPI_Recv", 20 * us * US, 20, 0)]
        })
    };
    assert_eq!(of_call_us(19_200), [LossKind::FrequentCommunication]);
    assert_eq!(of_call_us(20_800), [LossKind::WaitForPartner]);
}

#[test]
fn frequent_calls_are_at_least_ten() {
    let part = || vec![doing("main/solve", 4 * MS), calling("main/take/MPI_Recv", 12 * MS, 1, 0)];
    assert_eq!(kinds_of(10, part), [LossKind::FrequentCommunication]);
    assert_eq!(kinds_of(9, part), [LossKind::WaitForPartner]);
}

#[test]
fn calls_are_long_if_half_of_their_time_is_in_long_ones() {
    let beside_long = |short_us: u64| {
        kinds_of(10, || {
            vec![
                doing("main/solve", MS),
                calling("main/take/MPI_Recv", 20 * MS, 1, 0),
                calling("main/take/MPI_Recv", short_us * US, 100, 0),
            ]
        })
    };
    // 48 and 52 % of the time are in calls of 20 ms.
    assert_eq!(beside_long(21_700), [LossKind::FrequentCommunication]);
    assert_eq!(beside_long(18_500), [LossKind::WaitForPartner]);
}

#[test]
fn a_message_is_large_if_half_of_the_call_moves_it() {
    let moving = |moved_us: u64| {
        kinds_of(10, || {
            vec![
                doing("main/solve", 100 * MS),
                calling("main/take/MPI_Recv", 80 * MS - moved_us * US, 1, 0),
                doing("main/take/MPI_Recv/opal_memcpy", moved_us * US),
            ]
        })
    };
    assert_eq!(moving(42_000), [LossKind::LargeMessage]);
    assert_eq!(moving(38_000), [LossKind::WaitForPartner]);
}

#[test]
fn large_input_and_output_has_64_kibibytes_in_each_call() {
    let writing = |call: &'static str, bytes: u64| {
        kinds_of(10, || {
            vec![doing("main/solve", 100 * MS), calling(call, 50 * MS, 1000, 1000 * bytes)]
        })
    };
    for call in ["main/store/write", "main/store/MPI_File_write_at"] {
        assert_eq!(writing(call, 68 << 10), [LossKind::LargeIo], "{call}");
        assert_eq!(writing(call, 60 << 10), [LossKind::FrequentCommunication], "{call}");
    }
}

#[test]
fn a_group_has_a_tenth_more_work_than_the_mean() {
    // Two groups of four ranks: their mean work is 100 ms.
    let kind = |more_us: u64| {
        let subject = ten_steps(8, |rank| match rank {
            0..4 => vec![doing("main/fluid", 100 * MS + more_us * US)],
            _ => vec![doing("main/solid", 100 * MS - more_us * US)],
        });
        only_loss(&verdict(&subject)).kind
    };
    assert_eq!(kind(10_500), LossKind::GroupImbalance);
    assert_ne!(kind(9_500), LossKind::GroupImbalance);
}

#[test]
fn a_group_with_more_work_loses_a_hundredth_of_the_run() {
    // A group has 20 ms more work than the mean of 100 ms; even work takes the rest of the run.
    let found = |rest_ms: u64| {
        let mut subject = Subject::new(8);
        subject.step(BARRIER, |_| vec![]);
        for _ in 0..10 {
            subject.step("main/MPI_Allreduce", |_| vec![doing("main/prepare", rest_ms * MS)]);
            subject.step(BARRIER, |rank| match rank {
                0..4 => vec![doing("main/fluid", 120 * MS)],
                _ => vec![doing("main/solid", 80 * MS)],
            });
        }
        kinds(&verdict(&subject))
    };
    assert_eq!(found(1_785), [(LossKind::GroupImbalance, 0.2)]);
    assert_eq!(found(1_985), []);
}
