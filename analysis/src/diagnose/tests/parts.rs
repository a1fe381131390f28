//! Ranks that synchronise in subgroups: rows and columns of a grid.

use super::*;

const ROW: &str = "main/sweep/MPI_Allreduce";
const COLUMN: &str = "main/exchange/MPI_Alltoall";

/// Two rows of four ranks, forty steps. In each step one rank of each row, which `slow` chooses by
/// step, takes 80 ms, the others 20 ms.
fn rows(slow: impl Fn(u32) -> u32) -> Subject {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..40 {
        subject.step_of_parts(
            |rank| rank / 4,
            ROW,
            |rank| {
                let slow_ms = if rank % 4 == slow(step) { 80 } else { 20 };
                vec![doing("main/sweep/relax", 20 * MS), doing("main/sweep/solve", slow_ms * MS)]
            },
        );
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    subject
}

#[test]
fn ranks_that_take_turns_within_a_part_hold_it_up() {
    let summary = verdict(&rows(|step| step % 4));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LoadImbalance);
    // The mean of each row is 35 ms, its slowest rank takes 80 ms.
    assert_eq!(rounded(loss.seconds), 1.8);
    assert_eq!(causes(loss), [("main/sweep/solve".to_owned(), 1.8)]);
    assert_eq!(path(&loss.symptom.path), ROW);
    assert_eq!(rounded(summary.projection.elapsed_s), 2.2);
    assert!(loss.advice.contains("each time another rank"), "{}", loss.advice);
}

#[test]
fn a_rank_that_is_always_slow_in_its_part_is_named() {
    let summary = verdict(&rows(|_| 3));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 1.8));
    assert_eq!(causes(loss), [("main/sweep/solve".to_owned(), 1.8)]);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("3,7", "0-2,4-6"));
}

/// As a transform in two directions, each by other ranks in longer: the whole function is even.
#[test]
fn works_that_even_out_across_synchronisations_of_parts_are_named() {
    let run = |row_between: bool| {
        let mut subject = Subject::new(8);
        subject.step(BARRIER, |_| vec![]);
        for _ in 0..200 {
            // The excess of a single instance is within the sampling error.
            let [x_ms, y_ms] = [|rank| 8 - 4 * (rank % 2), |rank| 4 + 4 * (rank % 2)];
            let x = |rank: u32| doing("main/transform/x", u64::from(x_ms(rank)) * MS);
            let y = |rank: u32| doing("main/transform/y", u64::from(y_ms(rank)) * MS);
            if row_between {
                subject.step_of_parts(|rank| rank / 4, ROW, |rank| vec![x(rank)]);
                subject.step_of_parts(|rank| rank / 4, ROW, |rank| vec![y(rank)]);
            } else {
                subject.step_of_parts(|rank| rank / 4, ROW, |rank| vec![x(rank), y(rank)]);
            }
        }
        subject.step("main/MPI_Finalize", |_| vec![]);
        verdict(&subject)
    };
    let summary = run(true);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 0.8));
    let both = ["main/transform/x", "main/transform/y"].map(|path| (path.to_owned(), 0.4));
    assert_eq!(causes(loss), both);
    assert_eq!(run(false).losses, []);
}

#[test]
fn even_parts_lose_nothing() {
    assert_eq!(verdict(&rows(|_| 4)).losses, []);
}

#[test]
fn rows_and_columns_divide_the_work_between_them() {
    let mut subject = Subject::new(8);
    for step in 0..40 {
        subject.step_of_parts(
            |rank| rank / 4,
            ROW,
            |rank| {
                let slow_ms = if rank % 4 == step % 4 { 50 } else { 10 };
                vec![doing("main/sweep/solve", slow_ms * MS)]
            },
        );
        // Columns synchronise in a call of their own, and all have the same work.
        subject.step_of_parts(|rank| 100 + rank % 4, COLUMN, |_| vec![doing("main/pack", 10 * MS)]);
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 1.2));
    assert_eq!(causes(loss), [("main/sweep/solve".to_owned(), 1.2)]);
    assert_eq!(path(&loss.symptom.path), ROW);
}

#[test]
fn where_all_ranks_follow_what_the_last_part_left_is_compared_among_all() {
    let mut subject = Subject::new(8);
    for step in 0..40 {
        subject.step_of_parts(|rank| rank / 4, ROW, |_| vec![doing("main/sweep/solve", 10 * MS)]);
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == step % 8 { 90 } else { 10 };
            vec![doing("main/gather", slow_ms * MS)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    // The mean is 20 ms.
    assert_eq!(rounded(loss.seconds), 2.8);
    assert_eq!(causes(loss), [("main/gather".to_owned(), 2.8)]);
    assert_eq!(path(&loss.symptom.path), BARRIER);
}

#[test]
fn turns_within_parts_show_there_also_if_all_ranks_meet_each_time() {
    let mut subject = Subject::new(8);
    for step in 0..40 {
        subject.step_of_parts(
            |rank| rank / 4,
            ROW,
            |rank| {
                let slow_ms = if rank % 4 == step % 4 { 80 } else { 20 };
                vec![doing("main/sweep/solve", slow_ms * MS)]
            },
        );
        subject.step(BARRIER, |_| vec![]);
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((rounded(loss.seconds), &*path(&loss.symptom.path)), (1.8, ROW));
    assert_eq!(causes(loss), [("main/sweep/solve".to_owned(), 1.8)]);
}

#[test]
fn divisions_that_were_dropped_are_scaled_for_all() {
    let mut inputs = rows(|step| step % 4).inputs();
    let rows = &mut inputs[5].profile.subgroup_intervals;
    rows.level = 1;
    rows.rows.retain(|row| plimsoll_collector::profile::instance_level(row.index) >= 1);
    let kept = rows.rows.iter().filter(|row| row.subgroup.is_some()).count();
    assert!((10..30).contains(&kept), "a level halves: {kept} of 40");
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let loss = only_loss(&summary);
    // The ranks wait 1.8 s, which is all that they can lose.
    assert_eq!(rounded(loss.seconds), rounded(0.045 * 2.0 * kept as f64).min(1.8));
}

/// Forty steps of ranks in the subgroups that `row` names: `advect` and `diffuse` take 20 ms each
/// and more in the ranks that `more_ms` chooses, and each ends in a synchronisation of the rows.
fn two_kernels(
    ranks: u32,
    row: fn(u32) -> u32,
    more_ms: impl Fn(u32) -> (u64, u64),
) -> Vec<[String; 4]> {
    let mut subject = Subject::new(ranks);
    for _ in 0..40 {
        subject.step_of_parts(row, "main/loop/MPI_Allreduce@1", |rank| {
            vec![doing("main/loop/advect", (20 + more_ms(rank).0) * MS)]
        });
        subject.step_of_parts(row, "main/loop/MPI_Allreduce@2", |rank| {
            vec![doing("main/loop/diffuse", (20 + more_ms(rank).1) * MS)]
        });
    }
    subject.step(BARRIER, |_| vec![]);
    let losses = verdict(&subject).losses.into_iter();
    let mut found: Vec<_> = losses
        .map(|loss| {
            let (slow, waiting) = (loss.slow_ranks.clone(), loss.waiting_ranks.clone());
            [path(&loss.symptom.path), slow, waiting, causes(&loss)[0].0.clone()]
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_rank_that_waits_for_another_row_is_not_slow() {
    // Rank 5 of the second row holds up its row, which waits for rank 1 of the first in the end.
    for (advect, diffuse) in [(60, 20), (30, 20), (30, 10)] {
        let found = two_kernels(
            6,
            |rank| rank / 3,
            |rank| match rank {
                1 => (advect, 0),
                5 => (0, diffuse),
                _ => (0, 0),
            },
        );
        let truth = [
            [BARRIER, "1", "3-5", "main/loop/advect"],
            ["main/loop/MPI_Allreduce", "1", "0,2", "main/loop/advect"],
        ];
        assert_eq!(found, truth, "{advect} ms and {diffuse} ms");
    }
}

#[test]
fn a_loss_within_a_row_is_due_to_what_the_row_waits_for() {
    // Most waiting is that of the second row for rank 2, although rank 0 of the first takes longer.
    let found = two_kernels(
        8,
        |rank| u32::from(rank > 1),
        |rank| match rank {
            0 => (60, 0),
            2 => (0, 50),
            _ => (0, 0),
        },
    );
    let truth = [
        [BARRIER, "0", "2-7", "main/loop/advect"],
        ["main/loop/MPI_Allreduce", "2", "3-7", "main/loop/diffuse"],
    ];
    assert_eq!(found, truth);
}

#[test]
fn members_wait_for_their_slowest_rank_and_then_for_their_leader() {
    let mut subject = Subject::new(8);
    let node = |rank| rank / 4;
    for _ in 0..40 {
        subject.step_of_parts(node, "main/reduce/MPI_Barrier", |rank| {
            let slow_ms = if rank % 4 == 2 { 24 } else { 8 };
            vec![doing("main/local_work", slow_ms * MS)]
        });
        // The leaders exchange their results meanwhile.
        subject.step_of_parts(node, "main/distribute/MPI_Bcast", |rank| {
            if rank % 4 == 0 { vec![doing("main/leader_work", 12 * MS)] } else { vec![] }
        });
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    let summary = verdict(&subject);
    let found: Vec<_> = summary
        .losses
        .iter()
        .map(|loss| {
            let ranks = [loss.slow_ranks.clone(), loss.waiting_ranks.clone()];
            (path(&loss.symptom.path), ranks, causes(loss).remove(0).0, rounded(loss.seconds))
        })
        .collect();
    let ranks = |slow: &str, waiting: &str| [slow.into(), waiting.into()];
    // The means are 12 and 3 ms.
    let (of_all, of_leaders) = ("main/local_work".to_owned(), "main/leader_work".to_owned());
    let truth = [
        ("main/reduce/MPI_Barrier".to_owned(), ranks("2,6", "0-1,3-5,7"), of_all, 0.48),
        ("main/distribute/MPI_Bcast".to_owned(), ranks("0,4", "1-3,5-7"), of_leaders, 0.36),
    ];
    assert_eq!(found, truth);
}
