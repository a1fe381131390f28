use super::*;
use crate::subject::{Doing, MS, Subject, doing, job};
use crate::summary::{Cause, Label, Loss, LossKind, MpiAbi, Phase};
use crate::threads::run;

const BARRIER: &str = "main/MPI_Barrier";

fn verdict(subject: &Subject) -> Summary {
    let summary = diagnose_alone(subject.inputs(), &job()).unwrap();
    let text = serde_json::to_string(&summary).unwrap();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    summary
}

fn path(frames: &[crate::summary::Frame]) -> String {
    frames.iter().map(|frame| frame.function.as_str()).collect::<Vec<_>>().join("/")
}

fn causes(loss: &Loss) -> Vec<(String, f64)> {
    loss.causes.iter().map(|cause: &Cause| (path(&cause.path), rounded(cause.seconds))).collect()
}

/// To microseconds: the truth is written in decimal, the summary divides.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn only_loss(summary: &Summary) -> &Loss {
    assert_eq!(summary.losses.len(), 1, "{:#?}", summary.losses);
    &summary.losses[0]
}

/// Ten steps, after a barrier, of an even function of 30 ms and one of 40 ms, on the last two of
/// eight ranks 80 ms.
fn uneven(slow: &'static str) -> Subject {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank >= 6 { 80 } else { 40 };
            vec![doing("main/step/relax", 30 * MS), doing(slow, slow_ms * MS)]
        });
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    subject
}

#[test]
fn the_uneven_one_of_two_functions_is_the_cause() {
    let summary = verdict(&uneven("main/step/assemble"));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LoadImbalance);
    // The mean of the ranks is 50 ms, the slowest takes 80.
    assert_eq!(causes(loss), [("main/step/assemble".to_owned(), 0.3)]);
    assert_eq!((rounded(loss.seconds), rounded(loss.severity)), (0.3, rounded(0.3 / 1.1)));
    assert_eq!(rounded(summary.projection.elapsed_s), 0.8);
    assert_eq!(rounded(loss.elapsed_without_s), 0.8);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("6-7", "0-5"));
    assert_eq!((loss.label, loss.phase), (Label::CollectiveSynchronisation, 1));
    let cause = &loss.causes[0];
    assert_eq!((rounded(cause.share), cause.mean_s, cause.max_s), (1.0, 0.5, 0.8));
    assert!(!loss.evened_out);
    let symptom = &loss.symptom;
    assert_eq!(path(&symptom.path), BARRIER);
    assert_eq!(path(&summary.tree.path(symptom.node)), BARRIER);
    assert_eq!(path(&summary.tree.path(cause.node)), "main/step/assemble");
    assert_eq!((symptom.mean_s, symptom.min_s, symptom.max_s), (0.3, 0.0, 0.4));
    assert_eq!((symptom.calls, symptom.calls_exact), (80, true));
    assert_eq!(symptom.per_call_s, Some(0.03));
    assert_eq!(symptom.breakdown, [(Label::CollectiveSynchronisation, 1.0)].into());
    assert!(loss.advice.contains("assemble takes 0.800 s"), "{}", loss.advice);
}

#[test]
fn phases_are_named_by_the_synchronisations_around_them() {
    let summary = verdict(&uneven("main/step/assemble"));
    let shape = |phase: &Phase| {
        let begin = phase.begins_after.as_deref().map(path);
        (begin, phase.ends_in.as_deref().map(path), phase.instances, rounded(phase.duration_s))
    };
    let barrier = || Some(BARRIER.to_owned());
    let finalize = || Some("main/MPI_Finalize".to_owned());
    let truth = [
        (None, barrier(), 1, 0.0),
        (barrier(), barrier(), 10, 1.1),
        (barrier(), finalize(), 1, 0.0),
    ];
    assert_eq!(summary.phases.iter().map(shape).collect::<Vec<_>>(), truth);
    assert_eq!(summary.phases[1].groups[0].ranks, "0-7");
    assert_eq!(rounded(summary.phases[1].groups[0].mean_work_s), 0.8);
}

#[test]
fn a_function_that_works_by_sleeping_is_the_cause_and_not_the_sleep() {
    let summary = verdict(&uneven("main/step/assemble/usleep/nanosleep"));
    let loss = only_loss(&summary);
    assert_eq!(causes(loss), [("main/step/assemble".to_owned(), 0.3)]);
    assert!(loss.advice.contains("assemble (mostly in usleep)"), "{}", loss.advice);
    let efficiency = summary.efficiency;
    assert_eq!(efficiency.communication, Some(1.0), "sleeping of one's own wish is work");
    assert_eq!(efficiency.load_balance.map(rounded), Some(rounded(0.8 / 1.1)));
    assert_eq!(efficiency.parallel.map(rounded), Some(rounded(0.8 / 1.1)));
    // Where the outermost function itself sleeps, the call says more than its caller.
    let summary = verdict(&uneven("main/usleep"));
    assert_eq!(causes(only_loss(&summary)), [("main/usleep".to_owned(), 0.3)]);
}

/// Two ranks that take turns in being slow.
fn by_turns() -> Subject {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..100 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if step % 2 == rank { 80 } else { 20 };
            vec![doing("main/relax", 20 * MS), doing("main/assemble", slow_ms * MS)]
        });
    }
    subject
}

#[test]
fn ranks_with_equal_totals_that_take_turns_are_found() {
    let summary = verdict(&by_turns());
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LoadImbalance);
    assert_eq!(rounded(loss.seconds), 3.0);
    assert_eq!(causes(loss), [("main/assemble".to_owned(), 3.0)]);
    assert_eq!(rounded(summary.projection.elapsed_s), 7.0);
    assert!(loss.advice.contains("each time another rank"), "{}", loss.advice);
}

#[test]
fn instances_that_one_rank_dropped_are_scaled_for_all() {
    let mut subject = by_turns();
    subject.level(1, 1);
    let kept = subject.profile(1).rows.rows.len();
    assert!((20..80).contains(&kept), "a level halves: {kept} of 101");
    let loss = &verdict(&subject).losses[0];
    assert_eq!(rounded(loss.seconds), 3.0);
    assert_eq!(causes(loss), [("main/assemble".to_owned(), 3.0)]);
    // With all dropped only totals are left, and these are even.
    subject.level(0, 60);
    assert_eq!(verdict(&subject).losses, []);
}

#[test]
fn totals_alone_find_what_is_uneven_in_total() {
    let mut subject = uneven("main/step/assemble");
    subject.level(0, 60);
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!(rounded(loss.seconds), 0.3);
    assert_eq!(causes(loss), [("main/step/assemble".to_owned(), 0.3)]);
}

#[test]
fn balanced_runs_have_no_loss() {
    let mut subject = Subject::new(4);
    for step in 0..20 {
        // What a sample more or less makes of equal work.
        subject.step(BARRIER, |rank| {
            let more = if (rank + step) % 4 == 0 { 4 * MS } else { 0 };
            vec![doing("main/relax", 96 * MS + more), doing("main/assemble", 104 * MS - more)]
        });
    }
    let summary = verdict(&subject);
    assert_eq!(summary.losses, []);
    assert_eq!(summary.efficiency.parallel, Some(1.0));
    assert_eq!(summary.projection.elapsed_s, summary.run.elapsed_s);
}

#[test]
fn sampling_errors_of_an_even_function_are_no_cause() {
    let mut subject = Subject::new(4);
    for step in 0..100 {
        subject.step(BARRIER, |rank| {
            let error = if (rank + step) % 4 == 0 { 3 * MS } else { 0 };
            let slow = if rank == 3 { 5 * MS } else { 0 };
            vec![
                doing("main/relax", 30 * MS + error),
                doing("main/assemble", 30 * MS - error + slow),
            ]
        });
    }
    let summary = verdict(&subject);
    let loss = &summary.losses[0];
    assert_eq!(loss.causes.len(), 1, "{:?}", causes(loss));
    assert_eq!(path(&loss.causes[0].path), "main/assemble");
    assert_eq!((loss.kind, &*loss.slow_ranks), (LossKind::LoadImbalance, "3"));
}

#[test]
fn one_rank_that_works_while_all_others_wait_is_serialization() {
    let mut subject = Subject::new(4);
    for _ in 0..10 {
        subject.step("main/solve/MPI_Allreduce", |rank| {
            let alone = (rank == 0).then(|| doing("main/solve/factorise", 60 * MS));
            [doing("main/solve/update", 40 * MS)].into_iter().chain(alone).collect()
        });
    }
    let summary = verdict(&subject);
    let loss = &summary.losses[0];
    assert_eq!(loss.kind, LossKind::Serialization);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-3"));
    assert_eq!(causes(loss), [("main/solve/factorise".to_owned(), rounded(0.045 * 9.0))]);
    assert!(loss.advice.starts_with("Only rank 0 is in factorise"), "{}", loss.advice);
}

fn delayed(path: &'static str, wall_ns: u64, run_delay_ns: u64) -> Doing {
    Doing { path, wall_ns, run_delay_ns }
}

#[test]
fn more_ranks_than_cores_are_oversubscription_and_no_imbalance() {
    let mut subject = Subject::new(4);
    subject.cores = vec![0, 1];
    for step in 0..10 {
        // Equal work; chance decides who gets a core first.
        subject.step(BARRIER, |rank| {
            let delay = u64::from((rank + step) % 4) * 20 * MS;
            vec![delayed("main/relax", 50 * MS + delay, delay)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.label), (LossKind::Oversubscription, Label::Computation));
    assert_eq!(rounded(loss.seconds), 0.3);
    assert_eq!(path(&loss.symptom.path), "main/relax");
    assert_eq!(loss.waiting_ranks, "0-3");
    assert!(loss.advice.starts_with("4 ranks with 4 busy threads share 2 cores on sloop."));
    assert_eq!(summary.run.nodes[0].cores, 2);
    let node = &summary.tree.nodes[loss.symptom.node as usize];
    assert_eq!(rounded(node.counters["run_delay_s"]), 1.2);
}

#[test]
fn a_rank_that_works_more_is_uneven_also_where_cores_are_short() {
    let mut subject = Subject::new(4);
    subject.cores = vec![0, 1];
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == 2 { 100 } else { 20 };
            vec![delayed("main/relax", slow_ms * 2 * MS, slow_ms * MS)]
        });
    }
    let summary = verdict(&subject);
    let kinds: Vec<LossKind> = summary.losses.iter().map(|loss| loss.kind).collect();
    // 540 ms of work of the slowest, 600 in the first instance too; two phases.
    assert_eq!(
        kinds,
        [LossKind::LoadImbalance, LossKind::Oversubscription, LossKind::LoadImbalance,]
    );
    assert_eq!(rounded(summary.losses[0].seconds), 0.54);
    assert_eq!(rounded(summary.losses[1].seconds), 0.4);
    assert_eq!(rounded(summary.losses[2].seconds), 0.06);
    assert_eq!(rounded(summary.projection.elapsed_s), 1.0);
}

#[test]
fn waiting_for_a_core_with_cores_enough_counts_when_it_is_much() {
    let subject = |delay_ms: u64| {
        let mut subject = Subject::new(2);
        subject.step(BARRIER, |_| vec![delayed("main/relax", 100 * MS, delay_ms * MS)]);
        subject
    };
    assert_eq!(verdict(&subject(3)).losses, []);
    let summary = verdict(&subject(10));
    assert_eq!(only_loss(&summary).kind, LossKind::Oversubscription);
    assert!(only_loss(&summary).advice.contains("binding"));
}

#[test]
fn ranks_meet_in_one_synchronisation_from_different_places() {
    let mut subject = Subject::new(3);
    for _ in 0..5 {
        subject.step_of_sites(
            |rank| {
                if rank == 0 { "main/master/MPI_Barrier@16" } else { "main/worker/MPI_Barrier@32" }
            },
            |rank| match rank {
                0 => vec![doing("main/master/deal", 20 * MS)],
                _ => vec![doing("main/worker/work", 80 * MS)],
            },
        );
    }
    let summary = verdict(&subject);
    let loss = &summary.losses[0];
    assert_eq!(path(&loss.symptom.path), "main/master/MPI_Barrier");
    assert_eq!((loss.symptom.calls, loss.symptom.max_s), (12, 0.24));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("1-2", "0"));
    // Both functions are uneven over all ranks: each exists on some only.
    assert_eq!(rounded(loss.seconds), 0.08);
    assert!(loss.evened_out);
}

#[test]
fn ranks_that_disagree_on_phases_share_the_whole_run() {
    let mut subject = Subject::new(2);
    for step in 0..6 {
        subject.step_of_sites(
            |rank| if rank == 1 && step == 3 { "main/MPI_Barrier@9" } else { BARRIER },
            |_| vec![doing("main/relax", 50 * MS)],
        );
    }
    subject
        .step("main/MPI_Finalize", |rank| vec![doing("main/output", 100 * MS * u64::from(rank))]);
    let summary = verdict(&subject);
    assert_eq!((summary.phases.len(), summary.phases[0].instances), (1, 1));
    assert_eq!(rounded(summary.phases[0].duration_s), 0.4);
    let loss = only_loss(&summary);
    assert_eq!(path(&loss.symptom.path), "main/MPI_Finalize");
    assert_eq!(causes(loss), [("main/output".to_owned(), 0.05)]);
}

#[test]
fn causes_on_different_ranks_even_each_other_out() {
    let mut subject = Subject::new(4);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let (a, b) = if rank == 0 { (100, 20) } else { (20, 70) };
            vec![doing("main/a", a * MS), doing("main/b", b * MS)]
        });
    }
    let summary = verdict(&subject);
    let loss = &summary.losses[0];
    assert!(loss.evened_out);
    assert_eq!(rounded(loss.seconds), rounded((120.0 - 97.5) * 9e-3));
    let truth = [("main/a".to_owned(), 0.54), ("main/b".to_owned(), rounded(12.5 * 9e-3))];
    assert_eq!(causes(loss), truth);
    assert!(loss.advice.contains("partly even it out"));
}

#[test]
fn a_function_that_is_uneven_in_many_small_parts_is_the_cause_itself() {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |rank| {
        let parts = ["main/solve/a", "main/solve/b", "main/solve/c", "main/solve/d"];
        let mut all: Vec<Doing> =
            parts.map(|part| doing(part, (5 + u64::from(rank)) * MS)).to_vec();
        all.push(doing("main/solve", (10 + 16 * u64::from(rank)) * MS));
        all
    });
    let summary = verdict(&subject);
    assert_eq!(causes(only_loss(&summary)), [("main/solve".to_owned(), 0.01)]);
}

#[test]
fn other_threads_have_roots_of_their_own_and_no_part_in_efficiency() {
    let mut subject = Subject::new(2);
    subject.threads = 3;
    subject.others = vec![doing("worker/compute", 150 * MS), doing("main", 10 * MS)];
    subject.step(BARRIER, |rank| vec![doing("main/relax", (50 + 50 * u64::from(rank)) * MS)]);
    let summary = verdict(&subject);
    assert_eq!(summary.efficiency.parallel, Some(0.75));
    assert_eq!(summary.run.threads, 6);
    let roots = summary.tree.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_none());
    let roots: Vec<(String, f64)> = roots
        .map(|(index, node)| (path(&summary.tree.path(index as u32)), node.inclusive.sum_s))
        .collect();
    let truth = [("main".to_owned(), 0.2), ("worker".to_owned(), 0.3), ("main".to_owned(), 0.02)];
    assert_eq!(roots, truth);
}

#[test]
fn a_profile_that_contradicts_itself_is_left_out_and_named() {
    let mut subject = Subject::new(3);
    subject.step(BARRIER, |_| vec![doing("main/relax", 50 * MS)]);
    let mut inputs = subject.inputs();
    inputs[1].profile.tree.nodes[0].frame = 77;
    let summary = diagnose_alone(inputs, &job()).unwrap();
    assert_eq!((summary.run.ranks, summary.run.complete), (2, false));
    assert!(summary.notes[0].contains("rank 1 "), "{:?}", summary.notes);
}

#[test]
fn nothing_is_said_about_nobody() {
    assert_eq!(diagnose_alone(Vec::new(), &job()), Err(DiagnoseError::NoRanks));
    let empty = diagnose_alone(Subject::new(1).inputs(), &job()).unwrap();
    assert_eq!((empty.losses.len(), empty.run.elapsed_s), (0, 0.0));
}

#[test]
fn a_process_without_mpi_has_a_tree_and_no_parallel_efficiency() {
    let mut subject = Subject::new(1);
    subject.step(BARRIER, |_| vec![doing("main/relax", 50 * MS), doing("main/read", 10 * MS)]);
    let mut job = job();
    job.mpi.abi = MpiAbi::None;
    let summary = diagnose_alone(subject.inputs(), &job).unwrap();
    assert_eq!(summary.efficiency.parallel, None);
    assert_eq!(summary.tree.nodes[0].inclusive.sum_s, 0.06);
    let labels: Vec<Label> = summary.tree.nodes.iter().map(|node| node.label).collect();
    assert_eq!(
        labels,
        [Label::Computation, Label::Computation, Label::Io, Label::CollectiveSynchronisation]
    );
}

/// A run without any regularity: pseudo-random work in pseudo-random functions.
fn irregular(ranks: u32) -> Subject {
    const PATHS: [&str; 6] =
        ["main/a", "main/a/b", "main/a/b/usleep", "main/c", "main/c/MPI_Recv", "main/c/d"];
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ u64::from(ranks);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut subject = Subject::new(ranks);
    for step in 0..12 {
        let parts: Vec<Vec<Doing>> = (0..ranks)
            .map(|_| {
                let count = next() % 4;
                (0..count)
                    .map(|_| {
                        let wall = next() % (90 * MS);
                        delayed(PATHS[(next() % 6) as usize], wall, wall / 7)
                    })
                    .collect()
            })
            .collect();
        let sync = if step % 3 == 0 { "main/c/MPI_Allreduce" } else { BARRIER };
        subject.step(sync, |rank| parts[rank as usize].clone());
    }
    subject
}

#[test]
fn the_summary_does_not_depend_on_where_ranks_are() {
    for ranks in [1, 2, 3, 8, 64] {
        let subject = irregular(ranks);
        let truth = verdict(&subject);
        assert!(ranks == 1 || !truth.losses.is_empty());
        for nodes in 1..=8u32 {
            for stride in [1, 3] {
                // Ranks in other orders, on other nodes; every second process holds none.
                let summaries = run(nodes * 2, |comm| {
                    let here = |rank: &u32| {
                        comm.rank() % 2 == 0 && rank * stride % nodes == comm.rank() / 2
                    };
                    let ours = (0..ranks).rev().filter(here);
                    diagnose(comm, ours.map(|rank| subject.input(rank)).collect(), &job()).unwrap()
                });
                assert_eq!(summaries[0].as_ref(), Some(&truth), "{ranks} ranks, {nodes} nodes");
                assert!(summaries[1..].iter().all(Option::is_none));
            }
        }
    }
}
