//! Load imbalance and serialization.

use super::*;
use crate::synthetic_run::{Doing, calling};

#[test]
fn the_uneven_one_of_two_functions_is_the_cause() {
    let summary = verdict(&uneven("main/step/assemble"));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LoadImbalance);
    // The mean over ranks is 50 ms, the slowest takes 80 ms.
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
fn a_loss_names_the_line_of_its_call() {
    let mut subject = Subject::new(8);
    for _ in 0..10 {
        subject.step("main/loop/MPI_Allreduce#20@1", |_| vec![doing("main/loop/relax", 30 * MS)]);
        subject.step("main/loop/MPI_Allreduce#22@2", |rank| {
            let slow_ms = if rank >= 6 { 80 } else { 40 };
            vec![doing("main/loop/assemble", slow_ms * MS)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    let end = loss.symptom.path.last().unwrap();
    assert_eq!((&*end.function, end.line), ("MPI_Allreduce", Some(22)));
    let waits = "ranks 0-5 wait for them in MPI_Allreduce at app.c:22.";
    assert!(loss.advice.contains(waits), "{}", loss.advice);
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
    // If the outermost function itself sleeps, the call is named instead of its caller.
    let summary = verdict(&uneven("main/usleep"));
    assert_eq!(causes(only_loss(&summary)), [("main/usleep".to_owned(), 0.3)]);
}

#[test]
fn the_function_of_a_library_that_takes_most_of_a_cause_is_named() {
    for (inner, named) in
        [("/libc.so.6!fprintf", " (mostly in fprintf)"), ("/libc.so.6+0x8", ""), ("", "")]
    {
        let summary = verdict(&uneven(format!("main/step/assemble{inner}").leak()));
        let loss = only_loss(&summary);
        assert_eq!(causes(loss), [("main/step/assemble".to_owned(), 0.3)]);
        assert!(loss.advice.contains(&format!("assemble{named} takes 0.8")), "{}", loss.advice);
    }
}

/// Half of the time in the polls is waiting for a core.
#[test]
fn a_loss_is_at_most_the_waiting_where_it_shows() {
    let mut subject = Subject::new(2);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| match rank {
            0 => vec![doing("main/step", 120 * MS)],
            _ => {
                let polls = calling("main/MPI_Iprobe", 98 * MS, 1000, 0);
                vec![doing("main/step", 20 * MS), Doing { run_delay_ns: 50 * MS, ..polls }]
            }
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!(path(&loss.symptom.path), "main/MPI_Iprobe");
    // A mean rank waits for 10 ms in the barrier.
    assert_eq!((rounded(loss.seconds), rounded(loss.symptom.mean_s)), (0.5, 0.49));
}

#[test]
fn user_code_that_is_inlined_into_the_language_is_the_cause() {
    for template in ["std::_Function_handler::_M_invoke", "(std::for_each)"] {
        let work = format!("main/recurse/{template}/(lambda)/usleep/nanosleep");
        let summary = verdict(&uneven(work.leak()));
        let lambda = format!("main/recurse/{}/lambda", template.trim_matches(['(', ')']));
        let [(cause, _)] = &causes(only_loss(&summary))[..] else { panic!("{summary:#?}") };
        assert_eq!(*cause, lambda);
    }
    // Code of the language's own library is on behalf of its caller.
    let summary = verdict(&uneven("main/recurse/libstdc++.so.6!sort/libstdc++.so.6!(compare)"));
    assert_eq!(causes(only_loss(&summary))[0].0, "main/recurse");
}

#[test]
fn a_slow_rank_does_not_wait_for_itself() {
    let mut subject = Subject::new(4);
    for step in 0..20 {
        subject.step(BARRIER, |rank| match (step % 2, rank) {
            (0, 2) => vec![doing("main/assemble", 80 * MS)],
            (0, _) => vec![doing("main/assemble", 40 * MS)],
            (_, 2) => vec![doing("main/relax", 40 * MS)],
            (_, _) => vec![doing("main/relax", 70 * MS)],
        });
    }
    let summary = verdict(&subject);
    let loss = &summary.losses[0];
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("2", "0-3"), "{loss:#?}");
    assert!(loss.advice.contains("rank 2 is slow in it, and ranks 0-1, 3 wait for it"), "{loss:?}");
}

#[test]
fn a_call_in_which_the_other_ranks_wait_is_no_work_of_the_slow_one() {
    let mut subject = ten_steps(4, |rank| match rank {
        3 => vec![doing("main/update/usleep", 80 * MS)],
        _ => vec![
            doing("main/update/usleep", 5 * MS),
            calling("main/update/MPI_Win_lock", 75 * MS, 1, 0),
        ],
    });
    subject.step("main/MPI_Finalize", |_| vec![]);
    let summary = verdict(&subject);
    let uneven = summary.losses.iter().find(|loss| loss.kind == LossKind::LoadImbalance).unwrap();
    assert!(uneven.advice.starts_with("update (mostly in usleep) takes"), "{}", uneven.advice);
}

#[test]
fn a_function_with_several_callers_is_named_with_the_one_that_is_slow_in_it() {
    let cases = [
        ("main/setup/relax/dot", "dot (called by assemble) takes"),
        ("main/setup/relax", "dot takes"),
    ];
    for (other, named) in cases {
        let mut subject = ten_steps(8, |rank| {
            let slow_ms = if rank >= 6 { 80 } else { 40 };
            vec![doing(other, 30 * MS), doing("main/step/assemble/dot", slow_ms * MS)]
        });
        subject.step("main/MPI_Finalize", |_| vec![]);
        let summary = verdict(&subject);
        let loss = only_loss(&summary);
        assert_eq!(causes(loss), [("main/step/assemble/dot".to_owned(), 0.3)]);
        assert!(loss.advice.contains(named), "{}", loss.advice);
    }
}

/// All code is inlined into main; its time-step loop contains everything.
#[test]
fn the_uneven_one_of_two_inlined_kernels_is_the_cause() {
    let (even, slow) = ("main/loop/(assemble)/loop2", "main/loop/(smooth)/loop3");
    let slow_ms = |rank: u32, step: u32, turns: bool| match turns {
        true => {
            if step % 8 == rank {
                80
            } else {
                40
            }
        }
        false => {
            if rank >= 6 {
                80
            } else {
                40
            }
        }
    };
    for turns in [false, true] {
        let mut subject = Subject::new(8);
        for step in 0..40 {
            subject.step("main/loop/MPI_Barrier", |rank| {
                let slow_ms = slow_ms(rank, step, turns);
                vec![doing("main/loop", 2 * MS), doing(even, 60 * MS), doing(slow, slow_ms * MS)]
            });
        }
        let summary = verdict(&subject);
        let loss = only_loss(&summary);
        let (lost_s, path) =
            (if turns { 40.0 * 0.035 } else { 40.0 * 0.03 }, "main/loop/smooth/loop3");
        assert_eq!(causes(loss), [(path.to_owned(), rounded(lost_s))], "{turns}");
        assert_eq!(rounded(loss.seconds), rounded(lost_s), "{turns}");
    }
}

/// Several contexts that together explain most of the loss are all named, instead of the function
/// that contains them.
#[test]
fn two_uneven_loops_of_a_function_are_its_causes() {
    let mut subject = Subject::new(4);
    for _ in 0..20 {
        subject.step(BARRIER, |rank| {
            let more = if rank == 3 { 2 } else { 1 };
            let loops = [("main/solve/loop2", 20), ("main/solve/loop3", 30), ("main/solve", 4)];
            loops.map(|(path, ms)| doing(path, more * ms * MS)).into()
        });
    }
    let summary = verdict(&subject);
    let names: Vec<String> =
        causes(only_loss(&summary)).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["main/solve/loop3", "main/solve/loop2"]);
}

/// Two ranks that are slow in alternate steps.
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
    assert!(loss.by_turns && loss.advice.contains("each time another rank"), "{}", loss.advice);
    let text = plimsoll_report::text(&summary);
    assert!(text.contains("takes longer each time on another rank"), "{text}");
}

/// As output by one rank after another, with a barrier after each.
#[test]
fn ranks_that_work_one_at_a_time_are_advised_to_work_side_by_side() {
    // Work that all ranks do side by side before it changes nothing.
    let cases = [(0, 0, true), (400, 0, true), (2000, 0, false), (0, 10, true)];
    for (others_us, before_ms, alone) in cases {
        let kind = if alone { LossKind::Serialization } else { LossKind::LoadImbalance };
        let mut subject = Subject::new(4);
        subject.step(BARRIER, |_| vec![]);
        for step in 0..100 {
            subject.step(BARRIER, |rank| {
                let work_us = if step % 4 == rank { 20_000 } else { others_us };
                let before = doing("main/compute", before_ms * MS);
                vec![before, doing("main/write_all/write_mine", work_us * MS / 1000)]
            });
        }
        let summary = verdict(&subject);
        let loss = only_loss(&summary);
        let is_said = loss.advice.contains("only one rank at a time is in it");
        assert!(loss.by_turns && is_said == alone, "{others_us}: {}", loss.advice);
        assert_eq!(loss.kind, kind, "{others_us}");
        let text = plimsoll_report::text(&summary);
        assert_eq!(text.contains("where only one rank at a time works"), alone, "{text}");
    }
}

/// Output in turns, for which other barriers begin and end: the first rank works in a phase of its
/// own, after the step's computation.
#[test]
fn turns_in_several_phases_are_one_serialization() {
    const SUM: &str = "main/MPI_Allreduce";
    let mut subject = Subject::new(4);
    for step in 0..10 {
        for turn in 0..4 {
            subject.step(BARRIER, |rank| {
                let compute_ms = if turn == 0 { 30 } else { 0 };
                let writes = rank == turn;
                let write = writes.then(|| doing("main/write_mine", (20 + step % 3) * MS));
                [doing("main/solve", compute_ms * MS)].into_iter().chain(write).collect()
            });
        }
        subject.step(SUM, |_| vec![]);
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.by_turns), (LossKind::Serialization, true));
    assert!(loss.advice.contains("only one rank at a time is in it"), "{}", loss.advice);
    assert!(!loss.also_in_phases.is_empty(), "{loss:#?}");
    // Side by side, a step takes a quarter of the time.
    assert_eq!(rounded(loss.seconds), 0.627);
}

/// A step calls `push` twice before the same sum, and a third time before a barrier.
#[test]
fn one_uneven_function_in_several_phases_is_one_loss() {
    const SUM: &str = "main/step/MPI_Allreduce";
    // The slow rank of each phase: one rank of both phases, or another rank of each.
    for (slow, losses) in [([3, 3], 1), ([3, 0], 2)] {
        let mut subject = Subject::new(4);
        for _ in 0..20 {
            for slow in slow {
                subject.step(SUM, |rank| {
                    let push_ms = if rank == slow { 30 } else { 10 };
                    vec![doing("main/step/push", push_ms * MS)]
                });
            }
            subject.step(BARRIER, |_| vec![doing("main/field", 20 * MS)]);
        }
        let summary = verdict(&subject);
        let uneven = summary
            .losses
            .iter()
            .filter(|loss| loss.symptom.path == summary.losses[0].symptom.path);
        assert_eq!((uneven.count(), summary.losses.len()), (losses, losses), "{slow:?}");
        let seconds: f64 = summary.losses.iter().map(|loss| loss.seconds).sum();
        assert_eq!(rounded(seconds), 0.6, "{slow:?}");
        let loss = &summary.losses[0];
        if losses == 1 {
            assert!(!loss.also_in_phases.is_empty(), "{loss:#?}");
            assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("3", "0-2"));
            assert_eq!(causes(loss), [("main/step/push".to_owned(), 0.6)]);
            assert_eq!(rounded(loss.symptom.mean_s), 0.6);
            assert!(loss.advice.contains("takes 1.200 s on the slowest rank"), "{}", loss.advice);
        }
    }
}

/// A function that exchanges data is called in two places of each step.
#[test]
fn one_uneven_function_before_one_call_on_two_paths_is_one_loss() {
    let paths = ["main/step/exchange/MPI_Allreduce", "main/end/exchange/MPI_Allreduce"];
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..20 {
        for sync in paths {
            subject
                .step(sync, |rank| vec![doing("main/push", if rank == 3 { 30 } else { 10 } * MS)]);
        }
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 0.6));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("3", "0-2"));
    let [other] = &*loss.also_in else { panic!("{:?}", loss.also_in) };
    let mut shown = [path(&loss.symptom.path), path(&other.path)];
    shown.sort();
    assert_eq!(shown, [paths[1], paths[0]]);
    // Each of three ranks waits for 20 ms in each of 20 calls.
    assert_eq!((rounded(loss.symptom.mean_s), rounded(other.mean_s)), (0.3, 0.3));
}

/// Ranks 1 and 3 have more work in two functions. Which rank is slowest in each function changes
/// from step to step, by less than that.
#[test]
fn small_changing_differences_are_not_said_to_even_each_other_out() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..20 {
        subject.step(BARRIER, |rank| {
            let work_ms = |path, late: u32| {
                let more_ms = if rank % 2 == 1 { 200 } else { 0 };
                let late_ms = if rank == late % 4 { 150 } else { 0 };
                doing(path, (2000 + more_ms + late_ms) * MS)
            };
            vec![work_ms("main/transform_x", step), work_ms("main/transform_y", step + 2)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.causes.len(), &*loss.slow_ranks, loss.evened_out), (2, "1,3", false));
    assert!(loss.advice.contains("Further causes add to it."), "{}", loss.advice);
    let text = plimsoll_report::text(&summary);
    assert!(!text.contains("different ranks"), "{text}");
}

#[test]
fn ranks_slow_in_turn_by_less_than_a_period_have_no_culprit() {
    // Each time another rank takes 3 ms longer, and rank 3 takes 10 ms longer in the whole run.
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..100 {
        subject.step(BARRIER, |rank| {
            let late_ms = if step % 4 == rank { 3 } else { 0 };
            let once_ms = if step == 0 && rank == 3 { 10 } else { 0 };
            let (assemble_ms, solve_ms) = if rank < 2 { (12, 8) } else { (8, 12) };
            vec![
                doing("main/step/assemble", assemble_ms * MS),
                doing("main/step/solve", (solve_ms + late_ms + once_ms) * MS),
            ]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert!(loss.by_turns, "{loss:#?}");
    assert_eq!(path(&loss.causes[0].path), "main/step");
    assert!((0.22..0.24).contains(&loss.seconds), "{}", loss.seconds);
}

#[test]
fn turns_that_show_in_messages_are_found() {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..100 {
        subject.step(BARRIER, |rank| {
            let (slow, wait) = (doing("main/assemble", 80 * MS), doing("main/MPI_Recv", 60 * MS));
            if step % 2 == rank { vec![slow] } else { vec![doing("main/assemble", 20 * MS), wait] }
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 3.0));
    assert_eq!(path(&loss.symptom.path), "main/MPI_Recv");
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
    // With all instances dropped only totals remain, and totals are even.
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
        // Equal work with a sampling error of one sample.
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
    assert_eq!(causes(loss), [("main/solve/factorise".to_owned(), rounded(0.045 * 10.0))]);
    assert!(loss.advice.starts_with("Only rank 0 is in factorise"), "{}", loss.advice);
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
    assert_eq!(rounded(loss.seconds), rounded((120.0 - 97.5) * 10e-3));
    let truth = [("main/a".to_owned(), 0.6), ("main/b".to_owned(), rounded(12.5 * 10e-3))];
    assert_eq!(causes(loss), truth);
    assert!(loss.advice.contains("partly even it out"));
    assert!(loss.advice.ends_with("Distribute the work of a more evenly."), "{}", loss.advice);
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
fn a_loss_shows_where_the_ranks_wait_for_the_slow_one() {
    let loss_of = |part: fn(u32) -> Vec<Doing>| {
        let mut subject = Subject::new(4);
        subject.step(BARRIER, part);
        verdict(&subject).losses
    };
    // The others wait for rank 0 in a message, not in the barrier.
    let waited_elsewhere = |rank| match rank {
        0 => vec![doing("main/relax", 100 * MS)],
        _ => vec![doing("main/relax", 50 * MS), doing("main/MPI_Recv", 50 * MS)],
    };
    let losses = loss_of(waited_elsewhere);
    let shown = &losses[0].symptom;
    assert_eq!(shown.path.last().unwrap().function, "MPI_Recv");
    assert_eq!((rounded(shown.mean_s), rounded(shown.max_s)), (0.0375, 0.05));
    assert_eq!(losses[0].waiting_ranks, "1-3");
    assert_eq!(rounded(losses[0].seconds), 0.0375);
    // Rank 0 is late mostly because of a message; evening out work does not remove that delay.
    let late_by_message = |rank| match rank {
        0 => vec![doing("main/relax", 60 * MS), doing("main/MPI_Recv", 40 * MS)],
        _ => vec![doing("main/relax", 50 * MS)],
    };
    let losses = loss_of(late_by_message);
    let found: Vec<(LossKind, f64)> =
        losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect();
    assert_eq!(found, [(LossKind::WaitForPartner, 0.04), (LossKind::LoadImbalance, 0.0075)]);
}

/// The other ranks wait for the slow rank 0 in messages, and for rank 1, by much less, in the
/// barrier.
fn twice_uneven(second: Vec<Doing>) -> Vec<Loss> {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |rank| match rank {
        0 => vec![doing("main/assemble", 100 * MS)],
        1 => [vec![doing("main/MPI_Recv", 100 * MS)], second.clone()].concat(),
        _ => vec![doing("main/MPI_Recv", 100 * MS)],
    });
    verdict(&subject).losses
}

#[test]
fn a_cause_is_a_tenth_of_the_symptom_of_its_own_loss() {
    let parts = |relax: u64, pack: u64| {
        let parts = vec![doing("main/relax", relax * MS), doing("main/pack", pack * MS)];
        let losses = twice_uneven(parts);
        let ending = losses.into_iter().find(|loss| path(&loss.symptom.path) == BARRIER).unwrap();
        (rounded(ending.seconds), causes(&ending))
    };
    // The barrier shows 15 ms of the loss of 70 ms.
    let (seconds, causes) = parts(12, 8);
    assert_eq!((seconds, causes.len()), (0.015, 3));
    assert!(causes.contains(&("main/pack".to_owned(), 0.006)), "{causes:?}");
    assert_eq!(parts(17, 3).1.len(), 3, "15 % of what the barrier shows");
    let (_, causes) = parts(18, 2);
    assert_eq!(causes.len(), 2, "just a tenth of it is not more than a tenth");
}

#[test]
fn a_kernel_that_several_functions_use_is_not_the_cause_but_its_caller() {
    for [even, uneven] in [
        ["main/even/spin", "main/uneven/spin"],
        ["main/even/(spin)/loop2", "main/uneven/(spin)/loop2"],
        ["main/(even)/loop/(spin)", "main/(uneven)/(spin)"],
    ] {
        let mut subject = Subject::new(4);
        for _ in 0..10 {
            subject.step(BARRIER, |rank| {
                let slow_ms = if rank == 3 { 80 } else { 20 };
                vec![doing(even, 20 * MS), doing(uneven, slow_ms * MS)]
            });
        }
        let summary = verdict(&subject);
        assert_eq!(causes(&summary.losses[0]), [("main/uneven".to_owned(), 0.45)]);
    }
    // With one caller only, the innermost function is named.
    let mut subject = Subject::new(4);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == 3 { 80 } else { 20 };
            vec![doing("main/even", 20 * MS), doing("main/uneven/spin", slow_ms * MS)]
        });
    }
    let summary = verdict(&subject);
    assert_eq!(causes(&summary.losses[0]), [("main/uneven/spin".to_owned(), 0.45)]);
}

#[test]
fn a_segment_names_the_function_that_is_uneven() {
    let summary = verdict(&uneven("main/step/assemble"));
    let [segment] = &summary.segments[..] else { panic!("{:#?}", summary.segments) };
    let names = segment.nodes.iter().map(|node| {
        let node = &summary.tree.nodes[*node as usize];
        summary.tree.frames[node.frame as usize].function.as_str()
    });
    assert_eq!(names.collect::<Vec<_>>(), ["assemble"]);
    // Six ranks wait 40 ms in each of ten steps, two ranks do not wait: the mean is 30 ms.
    let sums = [segment.imb_sync_s, segment.sum_imb_s, segment.sum_wait_s].map(rounded);
    assert_eq!((sums, segment.row), ([0.3, 0.3, 0.0], Some(3)));
}

/// A server waits for messages while its clients work; one of them works longer, and the others
/// wait for that one in the barrier.
#[test]
fn a_cause_too_small_for_a_loss_is_not_its_first() {
    let mut subject = Subject::new(4);
    for _ in 0..20 {
        subject.step("main/loop/MPI_Barrier", |rank| match rank {
            0 => vec![calling("main/loop/server/MPI_Waitany", 148 * MS, 9, 96)],
            3 => vec![doing("main/loop/client/work_longer", 150 * MS)],
            _ => vec![doing("main/loop/client/work_even", 30 * MS)],
        });
    }
    let summary = verdict(&subject);
    assert!(!summary.losses.is_empty());
    for loss in &summary.losses {
        assert_eq!(&*loss.slow_ranks, "3", "{:?}: {:?}", loss.kind, causes(loss));
        assert!(causes(loss)[0].0.ends_with("work_longer"), "{:?}", causes(loss));
    }
}

/// Steps of a loop, each ended by a synchronisation, in which the rank that `slow` names by step
/// takes 1 s and the three others 0.4 s.
fn few_steps(steps: u32, slow: fn(u32) -> u32) -> Vec<Loss> {
    let mut subject = Subject::new(4);
    for step in 0..steps {
        subject.step("main/loop/MPI_Allreduce", |rank| {
            let work_ms = if rank == slow(step) { 1000 } else { 400 };
            vec![doing("main/loop/advance", work_ms * MS)]
        });
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    verdict(&subject).losses
}

#[test]
fn a_loss_counts_the_first_iteration_of_a_loop() {
    for steps in [2, 3, 4] {
        let [loss] = &few_steps(steps, |_| 1)[..] else { panic!("one loss") };
        let of_steps = |seconds: f64| rounded(seconds * f64::from(steps));
        let (cause, symptom) = (&loss.causes[0], &loss.symptom);
        let lost = [loss.seconds, cause.seconds, symptom.mean_s];
        assert_eq!(lost.map(rounded), [of_steps(0.45); 3], "{steps} steps");
        assert_eq!(rounded(cause.mean_s), of_steps(0.55));
        assert_eq!((rounded(cause.max_s), rounded(symptom.max_s)), (of_steps(1.0), of_steps(0.6)));
        assert_eq!((symptom.calls, &*loss.slow_ranks), (4 * u64::from(steps), "1"));
        let each = symptom.per_call_s.unwrap();
        assert_eq!(rounded(each), 0.45, "{steps} steps");
    }
}

#[test]
fn ranks_that_are_slow_in_different_iterations_are_all_named() {
    let [loss] = &few_steps(2, |step| 1 + step)[..] else { panic!("one loss") };
    assert_eq!((rounded(loss.seconds), &*loss.slow_ranks), (0.9, "1-2"));
    // Each of the two takes 1 s in one step and 0.4 s in the other.
    assert_eq!(rounded(loss.causes[0].max_s), 1.4);
    assert_eq!(rounded(loss.symptom.max_s), 1.2);
}

#[test]
fn ranks_that_wait_in_another_function_are_not_named() {
    let waiting = |calls: [&'static str; 3]| {
        let mut subject = Subject::new(4);
        subject.step(BARRIER, |rank| match calls.get(rank as usize) {
            Some(call) => vec![doing("main/produce", 20 * MS), doing(call, 50 * MS)],
            None => vec![doing("main/produce", 70 * MS)],
        });
        let summary = verdict(&subject);
        let loss = only_loss(&summary);
        (path(&loss.symptom.path), loss.waiting_ranks.clone())
    };
    let scatter = "main/MPI_Scatter";
    let (symptom, ranks) = waiting(["main/collect/MPI_Probe", scatter, scatter]);
    assert_eq!((&*symptom, &*ranks), (scatter, "1-2"));
    let (symptom, ranks) = waiting(["main/MPI_Recv@1", "main/MPI_Recv@2", "main/MPI_Recv@3"]);
    assert_eq!((&*symptom, &*ranks), ("main/MPI_Recv", "0-2"));
}
