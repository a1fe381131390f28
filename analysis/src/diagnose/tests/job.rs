//! The job as a whole: phases, threads, processes and the placement of ranks on nodes.

use super::*;
use crate::random::Random;
use crate::summary::{MpiAbi, Phase, PhaseKind};
use crate::synthetic_run::Doing;
use crate::thread_ranks::run;

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
    assert_eq!((loss.symptom.calls, rounded(loss.symptom.max_s)), (15, 0.3));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("1-2", "0"));
    // Each function exists on some ranks only and is uneven over all ranks: the imbalance is
    // between tasks.
    assert_eq!(loss.kind, LossKind::GroupImbalance);
    assert_eq!(loss.causes[0].group, Some(1));
    assert_eq!(rounded(loss.seconds), 0.1);
    assert!(loss.evened_out);
    let phase = &summary.phases[1];
    assert_eq!(phase.kind, PhaseKind::Mpmd);
    let groups = phase.groups.iter().map(|group| (&*group.ranks, rounded(group.mean_work_s)));
    assert_eq!(groups.collect::<Vec<_>>(), [("0", 0.08), ("1-2", 0.32)]);
}

#[test]
fn what_one_rank_does_beside_the_common_task_makes_no_group() {
    let mut subject = Subject::new(4);
    for _ in 0..5 {
        subject.step(BARRIER, |rank| {
            let mut part = vec![doing("main/relax", 50 * MS)];
            part.extend((rank == 0).then(|| doing("main/write", 80 * MS)));
            part
        });
    }
    let summary = verdict(&subject);
    assert!(summary.phases.iter().all(|phase| phase.kind == PhaseKind::Spmd));
    assert!(summary.phases.iter().all(|phase| phase.groups[0].ranks == "0-3"));
}

#[test]
fn a_part_in_which_ranks_disagree_on_phases_is_one_phase() {
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
    let shown = |phase: &Phase| (phase.instances, rounded(phase.duration_s));
    let phases: Vec<_> = summary.phases.iter().map(shown).collect();
    assert_eq!(phases, [(1, 0.05), (5, 0.25), (1, 0.1)]);
    let note = "that do not correspond (on other call paths, or in copies of one call";
    assert!(summary.notes.iter().any(|it| it.contains(note)), "{:?}", summary.notes);
    let loss = only_loss(&summary);
    assert_eq!(path(&loss.symptom.path), "main/MPI_Finalize");
    assert_eq!(causes(loss), [("main/output".to_owned(), 0.05)]);
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
fn a_profile_of_a_process_in_which_we_failed_is_left_out_and_named() {
    let mut subject = Subject::new(3);
    subject.step(BARRIER, |_| vec![doing("main/relax", 50 * MS)]);
    let mut inputs = subject.inputs();
    inputs[2].profile.collection.failed = true;
    let summary = diagnose_alone(inputs, &job()).unwrap();
    assert_eq!((summary.run.ranks, summary.run.complete), (2, false));
    let note = "The profile of rank 2 ends with an error of our own and was left out.";
    assert_eq!(summary.notes[0], note);
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
    let mut random = Random::new(u64::from(ranks));
    let mut subject = Subject::new(ranks);
    subject.threads = 3;
    subject.cores = (0..8).collect();
    subject.others = vec![doing("work/relax", 300 * MS), doing("work/pthread_cond_wait", 300 * MS)];
    subject.workers = |rank| {
        let work = |ms: u64| vec![doing("work/relax", ms * MS), doing("work/wait", (90 - ms) * MS)];
        if rank % 5 == 4 { vec![work(80), work(20)] } else { vec![work(20), work(21)] }
    };
    for step in 0..12 {
        let parts: Vec<Vec<Doing>> = (0..ranks)
            .map(|_| {
                let count = random.next() % 4;
                (0..count)
                    .map(|_| {
                        let wall = random.next() % (90 * MS);
                        Doing {
                            run_delay_ns: wall / 7,
                            ..doing(PATHS[(random.next() % 6) as usize], wall)
                        }
                    })
                    .collect()
            })
            .collect();
        let sync = if step % 3 == 0 { "main/c/MPI_Allreduce" } else { BARRIER };
        let part = |rank: u32| parts[rank as usize].clone();
        match step % 4 {
            2 => subject.step_of_parts(|rank| rank % 3, sync, part),
            _ => subject.step(sync, part),
        };
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
                // Ranks in other orders and on other nodes; every second process holds no rank.
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
