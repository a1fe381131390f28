//! Process groups with tasks of their own, each analysed separately (PPoPP20, 5.4).

use super::calls::kinds;
use super::*;
use crate::phrase::TIED;
use crate::synthetic_run::{Doing, calling};

fn causes_of_groups(loss: &Loss) -> Vec<(String, Option<u32>, f64)> {
    let cause = |it: &Cause| (path(&it.path), it.group, rounded(it.seconds));
    loss.causes.iter().map(cause).collect()
}

#[test]
fn what_calls_cost_a_tenth_of_the_ranks_is_a_loss_of_these() {
    let summary = verdict(&ten_steps(20, |rank| match rank {
        18.. => vec![
            doing("main/ocean", 20 * MS),
            calling("main/ocean/loop/MPI_Iprobe", 130 * MS, 13_000, 0),
        ],
        _ => vec![doing("main/atmosphere", 100 * MS)],
    }));
    let loss = &summary.losses[0];
    assert_eq!(kinds(&summary)[0], (LossKind::FrequentCommunication, 0.5));
    assert_eq!((loss.group, &*loss.waiting_ranks), (Some(1), "18-19"));
    // Mean and minimum over the group's ranks, not over all ranks.
    assert_eq!((rounded(loss.symptom.mean_s), rounded(loss.symptom.min_s)), (1.3, 1.3));
    assert_eq!(causes(loss), [("main/ocean/loop".to_owned(), 0.5)]);
}

#[test]
fn the_time_in_a_cause_of_calls_is_the_mean_over_all_ranks_that_it_comes_from() {
    let summary = verdict(&ten_steps(20, |rank| match rank {
        18.. => vec![
            doing("main/ocean", 20 * MS),
            calling("main/halo/loop/MPI_Iprobe", 130 * MS, 13_000, 0),
        ],
        _ => vec![
            doing("main/atmosphere", 100 * MS),
            calling("main/halo/loop/MPI_Recv", 30 * MS, 1, 0),
        ],
    }));
    let of_calls = |loss: &&Loss| loss.kind == LossKind::FrequentCommunication;
    let loss = summary.losses.iter().find(of_calls).unwrap();
    assert_eq!(loss.group, Some(1));
    let cause = &loss.causes[0];
    let truth = (f64::from(2 * 130 + 18 * 30) / 20.0 * 10.0 / 1e3, 1.3);
    assert_eq!((rounded(cause.mean_s), cause.max_s), truth);
}

#[test]
fn the_same_calls_in_all_groups_are_one_loss() {
    let summary = verdict(&ten_steps(4, |rank| {
        let task = if rank == 3 { "main/ocean" } else { "main/atmosphere" };
        vec![doing(task, 100 * MS), calling("main/halo/loop/MPI_Iprobe", 40 * MS, 4000, 0)]
    }));
    let loss = only_loss(&summary);
    assert_eq!(kinds(&summary), [(LossKind::FrequentCommunication, 0.4)]);
    assert_eq!((loss.group, &*loss.waiting_ranks), (None, "0-3"));
}

#[test]
fn waiting_for_partners_in_one_call_of_all_groups_is_one_loss() {
    let summary = verdict(&ten_steps(4, |rank| {
        let task = if rank == 3 { "main/ocean" } else { "main/atmosphere" };
        vec![doing(task, 100 * MS), calling("main/halo/MPI_Recv", 40 * MS, 1, 0)]
    }));
    assert_eq!(kinds(&summary), [(LossKind::WaitForPartner, 0.4)]);
    assert_eq!(only_loss(&summary).group, None);
}

#[test]
fn calls_of_groups_together_lose_no_more_than_the_phase() {
    let summary = verdict(&ten_steps(4, |rank| match rank {
        3 => vec![doing("main/ocean", 100 * MS), calling("main/ocean/MPI_Recv", 40 * MS, 1, 0)],
        _ => vec![
            doing("main/atmosphere", 100 * MS),
            calling("main/atmosphere/loop/MPI_Iprobe", 40 * MS, 4000, 0),
        ],
    }));
    let truth = [(LossKind::FrequentCommunication, 0.2), (LossKind::WaitForPartner, 0.2)];
    let mut found = kinds(&summary);
    found.sort_by_key(|(kind, _)| *kind != LossKind::FrequentCommunication);
    assert_eq!(found, truth);
    assert_eq!(rounded(summary.projection.elapsed_s), 1.0);
}

#[test]
fn what_is_uneven_in_each_group_is_one_loss_with_a_cause_from_each() {
    let summary = verdict(&ten_steps(8, |rank| {
        let task = if rank >= 6 { "main/ocean" } else { "main/atmosphere" };
        vec![doing(task, if rank == 5 || rank == 7 { 90 * MS } else { 60 * MS })]
    }));
    let loss = only_loss(&summary);
    // The slowest rank takes 90 ms, the mean over all ranks is 67.5 ms.
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 0.225));
    assert_eq!((loss.group, &*loss.slow_ranks), (None, "5,7"));
    // The ocean's mean is 75 ms: the duration that would remain if each group were even.
    let truth = [("main/atmosphere", Some(0), 0.15), ("main/ocean", Some(1), 0.15)];
    assert_eq!(causes_of_groups(loss), truth.map(|(path, group, s)| (path.to_owned(), group, s)));
    // The mean over the ocean's ranks is 75 ms, not 18.75 ms as over all ranks.
    let ocean = loss.causes.iter().find(|cause| cause.group == Some(1)).unwrap();
    assert_eq!((rounded(ocean.mean_s), ocean.max_s), (0.75, 0.9));
}

#[test]
fn what_groups_have_in_common_is_a_cause_of_none() {
    let summary = verdict(&ten_steps(8, |rank| {
        let task = if rank >= 6 { "main/ocean" } else { "main/atmosphere" };
        let slow = rank == 5 || rank == 7;
        vec![doing(task, 40 * MS), doing("main/assemble", if slow { 90 * MS } else { 30 * MS })]
    }));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 0.45));
    assert_eq!(loss.group, None);
    assert_eq!(causes_of_groups(loss), [("main/assemble".to_owned(), None, 0.45)]);
    assert_eq!(loss.slow_ranks, "5,7");
}

#[test]
fn a_group_that_waits_for_another_has_no_loss_of_its_own() {
    // Uneven work in the atmosphere costs nothing, because the ocean takes longer.
    let summary = verdict(&ten_steps(8, |rank| match rank {
        6.. => vec![doing("main/ocean", 200 * MS)],
        5 => vec![doing("main/atmosphere", 100 * MS)],
        _ => vec![doing("main/atmosphere", 60 * MS)],
    }));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::GroupImbalance, 1.0));
    assert_eq!((loss.group, &*loss.slow_ranks), (Some(1), "6-7"));
    let advice = loss.advice.replace(TIED, " ");
    assert!(advice.contains("ocean, which takes 2.00 s on the slowest rank, and"), "{advice}");
    assert!(advice.contains("more ranks and the others fewer, or move work"), "{advice}");
}

#[test]
fn a_task_of_one_rank_cannot_give_ranks_away() {
    let summary = verdict(&ten_steps(2, |rank| match rank {
        0 => vec![doing("main/ocean", 200 * MS)],
        _ => vec![doing("main/atmosphere", 60 * MS)],
    }));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::GroupImbalance);
    assert!(loss.advice.contains("more ranks, or move work"), "{}", loss.advice);
}

#[test]
fn a_task_of_another_rank_is_not_the_task_of_a_group_of_one_rank() {
    let summary = verdict(&ten_steps(4, |rank| match rank {
        0 => vec![doing("main/solve", MS), doing("main/prepare_a", 100 * MS)],
        3 => vec![doing("main/solve", MS), doing("main/prepare_b", 110 * MS)],
        _ => vec![doing("main/solve", MS)],
    }));
    let loss = &summary.losses[0];
    assert_eq!((loss.kind, &*loss.slow_ranks), (LossKind::GroupImbalance, "0"));
    assert_eq!(causes(loss)[0].0, "main/prepare_a");
}

/// Ranks 0, 2 and 4 have more work than the others, which wait for them in the barrier. Among the
/// others, rank 1 has more work than ranks 3 and 5, which costs nothing.
#[test]
fn a_group_makes_others_wait_where_they_meet_it() {
    let steps = |part: fn(u32) -> u32| {
        let mut subject = Subject::new(6);
        subject.step(BARRIER, |_| vec![]);
        for _ in 0..10 {
            subject.step_of_parts(part, "main/loop/MPI_Allreduce", |rank| match rank {
                0 | 2 | 4 => vec![doing("main/loop/even", 340 * MS)],
                1 => vec![doing("main/loop/odd", 200 * MS)],
                _ => vec![doing("main/loop/odd", 50 * MS)],
            });
            subject.step(BARRIER, |_| vec![]);
        }
        let summary = verdict(&subject);
        let found = |loss: &Loss| {
            let task = path(&loss.causes[0].path);
            (loss.kind, rounded(loss.seconds), path(&loss.symptom.path), task)
        };
        summary.losses.iter().map(found).collect::<Vec<_>>()
    };
    let imbalance = |seconds: f64, symptom: &str| {
        let even = "main/loop/even".to_owned();
        (LossKind::GroupImbalance, seconds, symptom.to_owned(), even)
    };
    // The allreduce of each group meets no other group.
    assert_eq!(steps(|rank| rank % 2), [imbalance(1.2, "main/MPI_Barrier")]);
    let pairs = steps(|rank| rank / 2);
    assert_eq!(pairs, [imbalance(1.2, "main/loop/MPI_Allreduce")]);
}

#[test]
fn groups_are_unequal_also_where_waiting_hides_their_work() {
    let summary = verdict(&ten_steps(8, |rank| {
        let (task, ms) = if rank >= 6 { ("main/ocean", 90) } else { ("main/atmosphere", 60) };
        vec![doing(task, ms * MS), calling("main/wait/MPI_Recv", (1000 - ms) * MS, 1, 0)]
    }));
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::GroupImbalance).unwrap();
    assert_eq!((loss.group, &*loss.slow_ranks, rounded(loss.seconds)), (Some(1), "6-7", 0.225));
    assert_eq!(causes_of_groups(loss), [("main/ocean".to_owned(), Some(1), 0.225)]);
    assert_eq!(path(&loss.symptom.path), "main/wait/MPI_Recv");
}

/// Work of 80 ms that waits for a core for 490 ms makes losses below 0.245 s uncertain.
#[test]
fn unequal_groups_are_no_loss_where_it_is_smaller_than_others_that_are_left_out() {
    let mut subject = ten_steps(8, |rank| {
        let (task, ms) = if rank >= 6 { ("main/ocean", 90) } else { ("main/atmosphere", 60) };
        let delayed = Doing { run_delay_ns: 490 * MS, ..doing("main/relax", 500 * MS) };
        let wait = calling("main/wait/MPI_Recv", (1000 - ms) * MS, 1, 0);
        vec![doing(task, ms * MS), delayed, wait]
    });
    subject.cores = vec![0, 1];
    let kinds: Vec<LossKind> = verdict(&subject).losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::Oversubscription]);
}

/// Rank 0 waits for a thread of its own, as the master of a pool of tasks does.
/// Rank 1 computes, and waits for a core most of the time.
#[test]
fn a_group_that_lacks_cores_does_not_wait_for_the_other() {
    let mut subject = ten_steps(2, |rank| match rank {
        0 => vec![doing("main/pool", 500 * MS)],
        _ => vec![Doing { run_delay_ns: 400 * MS, ..doing("main/task", 490 * MS) }],
    });
    subject.cores = vec![0];
    let kinds: Vec<LossKind> = verdict(&subject).losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::Oversubscription]);
}

/// The first step begins elsewhere than the others, so it is a phase of its own.
#[test]
fn the_first_step_of_unequal_groups_counts_once() {
    let mut subject = Subject::new(8);
    for _ in 0..20 {
        subject.step(BARRIER, |rank| match rank {
            6.. => vec![doing("main/ocean", 180 * MS)],
            _ => vec![doing("main/atmosphere", 60 * MS)],
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::GroupImbalance, 1.8));
}

/// The ocean's mean exceeds the mean of all ranks by 22.5 ms, and its slower rank by 52.5 ms. One
/// half of that shows in messages, the other in the barrier.
#[test]
fn groups_explain_their_share_of_each_loss_of_a_phase() {
    let summary = verdict(&ten_steps(8, |rank| {
        let task = if rank >= 6 { "main/ocean" } else { "main/atmosphere" };
        match rank {
            7 => vec![doing(task, 110 * MS)],
            _ => vec![doing(task, 50 * MS), calling("main/halo/MPI_Recv", 30 * MS, 1, 0)],
        }
    }));
    let found = [(LossKind::LoadImbalance, 0.2625); 2];
    assert_eq!(kinds(&summary), found);
    let symptom = |loss: &Loss| path(&loss.symptom.path);
    let mut symptoms: Vec<String> = summary.losses.iter().map(symptom).collect();
    symptoms.sort();
    assert_eq!(symptoms, ["main/MPI_Barrier", "main/halo/MPI_Recv"]);
}

/// The ocean waits for the atmosphere in messages. In the atmosphere, ranks 4, 5 and 7 wait for
/// rank 6 in the group's allreduce.
#[test]
fn ranks_of_a_group_wait_for_each_other_where_the_group_synchronises() {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        for step in 0..10 {
            let group = |rank| rank / 4;
            subject.step_of_parts(group, "main/loop/MPI_Allreduce", |rank| match rank {
                0..4 if step == 0 => vec![doing("main/loop/ocean", 8 * MS)],
                0..4 => vec![
                    calling("main/loop/MPI_Sendrecv", 22 * MS, 1, 8),
                    doing("main/loop/ocean", 8 * MS),
                ],
                6 => vec![doing("main/loop/atmosphere", 30 * MS)],
                _ => vec![doing("main/loop/atmosphere", 22 * MS)],
            });
        }
        subject.step(BARRIER, |rank| match rank {
            0..4 => vec![calling("main/loop/MPI_Sendrecv", 22 * MS, 1, 8)],
            _ => vec![calling("main/loop/MPI_Sendrecv", MS, 1, 8)],
        });
    }
    let summary = verdict(&subject);
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::LoadImbalance).unwrap();
    assert_eq!(path(&loss.symptom.path), "main/loop/MPI_Allreduce");
    assert_eq!((loss.group, &*loss.slow_ranks, &*loss.waiting_ranks), (Some(1), "6", "4-5,7"));
    // The mean over the atmosphere's ranks.
    assert_eq!((rounded(loss.seconds), rounded(loss.symptom.mean_s)), (0.6, 0.6));
}

#[test]
fn groups_that_take_turns_are_not_uneven_within() {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..10 {
        subject.step(BARRIER, |rank| {
            let (task, turn) = if rank >= 6 { ("main/ocean", 0) } else { ("main/atmosphere", 1) };
            let ms = if step % 2 == turn { 90 } else { 60 };
            // Slightly more work, which is not the loss.
            vec![doing(task, (ms + if rank == 3 { 3 } else { 0 }) * MS)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.group), (LossKind::LoadImbalance, None));
    assert_eq!((&*loss.slow_ranks, rounded(loss.seconds)), ("6-7", 0.16125));
}

/// Models a Fortran program: `if (rank == 0) call spin(0.18)`, else `call spin(0.06)`.
#[test]
fn the_same_function_called_at_other_places_is_no_other_task() {
    for [slow, others] in [
        ["main/spin@1", "main/spin@2"],
        ["main/loop/spin@1", "main/loop/spin@2"],
        ["main/solve/(spin)@1", "main/solve/(spin)@2"],
    ] {
        let summary = verdict(&ten_steps(4, |rank| match rank {
            0 => vec![doing(slow, 180 * MS)],
            _ => vec![doing(others, 60 * MS)],
        }));
        assert_eq!(kinds(&summary), [(LossKind::LoadImbalance, 0.9)], "{slow}");
        let loss = &summary.losses[0];
        assert_eq!((&*loss.slow_ranks, path(&loss.causes[0].path).ends_with("spin")), ("0", true));
    }
    // Different functions are different tasks.
    let summary = verdict(&ten_steps(4, |rank| match rank {
        0 => vec![doing("main/ocean/spin", 180 * MS)],
        _ => vec![doing("main/atmosphere/spin", 60 * MS)],
    }));
    assert_eq!(kinds(&summary), [(LossKind::GroupImbalance, 0.9)]);
    // A function that only one rank calls is serial work.
    let summary = verdict(&ten_steps(4, |rank| match rank {
        0 => vec![doing("main/spin@1", 180 * MS), doing("main/relax", 60 * MS)],
        _ => vec![doing("main/relax", 60 * MS)],
    }));
    assert_eq!(kinds(&summary), [(LossKind::Serialization, 1.35)]);
}
