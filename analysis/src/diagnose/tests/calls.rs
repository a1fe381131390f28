//! Losses to communication, files and locks, alone and in addition to uneven work.

use super::*;
use crate::phrase::TIED;
use crate::synthetic_run::calling;

pub fn kinds(summary: &Summary) -> Vec<(LossKind, f64)> {
    summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect()
}

/// Ten steps of 100 ms of even work and the additional activity of each rank; each step ends in a
/// barrier.
pub fn beside_work(part: impl Fn(u32) -> Vec<crate::synthetic_run::Doing>) -> Subject {
    ten_steps(4, |rank| [doing("main/solve", 100 * MS)].into_iter().chain(part(rank)).collect())
}

#[test]
fn many_short_calls_are_frequent_communication_and_their_loop_is_the_cause() {
    let summary = verdict(&beside_work(|_| {
        vec![
            calling("main/exchange/loop/MPI_Iprobe", 20 * MS, 4000, 0),
            calling("main/exchange/loop/MPI_Testall", 15 * MS, 4000, 0),
            calling("main/exchange/loop/MPI_Test", 5 * MS, 1000, 0),
        ]
    }));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.polling), (LossKind::FrequentCommunication, true));
    assert_eq!(rounded(loss.seconds), 0.4);
    assert_eq!(causes(loss), [("main/exchange/loop".to_owned(), 0.4)]);
    assert_eq!(path(&loss.symptom.path), "main/exchange/loop/MPI_Iprobe");
    assert_eq!((loss.symptom.calls, loss.symptom.per_call_s), (160_000, Some(5e-6)));
    assert_eq!(rounded(summary.projection.elapsed_s), 1.0);
    let names = "360,000 calls of MPI_Iprobe, MPI_Testall and MPI_Test";
    assert!(loss.advice.contains(names) && loss.advice.contains("blocking"), "{}", loss.advice);

    // Calls that do not poll; the loop is in an outer function of the calling function.
    let small = beside_work(|_| vec![calling("main/loop/send_one/MPI_Send", 30 * MS, 1000, 8000)]);
    let summary = verdict(&small);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.polling), (LossKind::FrequentCommunication, false));
    assert_eq!(causes(loss), [("main/loop".to_owned(), 0.3)]);
    // Less than a hundredth of the run is no loss.
    let little = beside_work(|_| vec![calling("main/loop/MPI_Test", MS, 1000, 0)]);
    assert_eq!(verdict(&little).losses, []);
}

/// Half of the ranks send and the other half receives: both are in the calls of one loss.
#[test]
fn the_ranks_of_all_calls_of_a_loss_wait() {
    for (sends, receives) in [
        ("main/exchange/loop/MPI_Send", "main/exchange/loop/MPI_Recv"),
        ("main/exchange/loop/write", "main/exchange/loop/read"),
    ] {
        let summary = verdict(&beside_work(|rank| match rank {
            0 | 1 => vec![calling(sends, 30 * MS, 2000, 16_000)],
            _ => vec![calling(receives, 24 * MS, 2000, 16_000)],
        }));
        let loss = summary.losses.first().unwrap();
        assert_eq!(loss.kind, LossKind::FrequentCommunication, "{sends}");
        assert_eq!(loss.waiting_ranks, "0-3", "{sends}");
    }
}

#[test]
fn who_waits_for_another_job_waits_for_no_rank() {
    for (call, losses) in [("main/MPI_Comm_spawn", 0), ("main/MPI_Recv", 1)] {
        let summary = verdict(&beside_work(|_| vec![calling(call, 40 * MS, 1, 0)]));
        assert_eq!(summary.losses.len(), losses, "{call}: {:?}", kinds(&summary));
    }
}

#[test]
fn a_front_that_passes_through_the_ranks_is_waiting_for_partners() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let before = u64::from(rank) * 50 * MS;
            vec![doing("main/sweep/MPI_Recv", before), doing("main/sweep/block", 50 * MS)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::WaitForPartner);
    // If all ranks worked concurrently, a step would take 50 ms instead of 200.
    assert_eq!(rounded(loss.seconds), 1.5);
    assert_eq!(rounded(summary.projection.elapsed_s), 0.5);
    assert_eq!(path(&loss.symptom.path), "main/sweep/MPI_Recv");
    assert_eq!(causes(loss), [("main/sweep/block".to_owned(), 1.5)]);
    // The first ranks wait for the last ones in the barrier that ends each step.
    let [barrier] = &*loss.also_in else { panic!("{:?}", loss.also_in) };
    assert_eq!((path(&barrier.path), rounded(barrier.mean_s)), (BARRIER.to_owned(), 0.75));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("", "2-3"));
    assert!(loss.advice.starts_with("In MPI_Recv, ranks 2-3 wait"), "{}", loss.advice);
    assert_eq!(loss.symptom.breakdown, [(Label::WaitPartner, 1.0)].into());
}

/// The first step has most of its work in a loop, and begins at another place than the others.
#[test]
fn the_first_wait_for_the_same_function_is_part_of_the_others() {
    let mut subject = Subject::new(4);
    for step in 0..10 {
        for sync in [BARRIER, "main/MPI_Allreduce"] {
            subject.step(sync, |rank| {
                if sync != BARRIER {
                    return vec![];
                }
                let before = u64::from(rank) * 50 * MS;
                let block = match step {
                    0 => vec![doing("main/sweep/block/loop", 50 * MS)],
                    _ => vec![
                        doing("main/sweep/block/loop", 5 * MS),
                        doing("main/sweep/block", 45 * MS),
                    ],
                };
                [doing("main/sweep/MPI_Recv", before)].into_iter().chain(block).collect()
            });
        }
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::WaitForPartner, 1.5));
    assert_eq!(loss.also_in_phases, [0]);
}

#[test]
fn ranks_that_work_after_each_other_are_said_to_work_equally_long() {
    // Much less work than waiting, but not equally much, is no even work.
    for (before_ms, work_ms, last_ms, is_even) in
        [(50, 50, 50, true), (50, 50, 150, false), (200, 2, 8, false)]
    {
        let summary = verdict(&ten_steps(4, |rank| {
            let work_ms = if rank == 3 { last_ms } else { work_ms };
            let before = u64::from(rank) * before_ms * MS;
            vec![doing("main/sweep/MPI_Recv", before), doing("main/sweep/block", work_ms * MS)]
        }));
        let mut losses = summary.losses.iter();
        let loss = losses.find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
        let said = "all ranks work equally long, but one after the other: only one rank at a time";
        assert_eq!(loss.advice.contains(said), is_even, "{}", loss.advice);
    }
}

#[test]
fn what_moves_as_fast_as_it_can_is_large_and_what_does_not_waits() {
    const MIB: u64 = 1 << 20;
    let summary =
        verdict(&beside_work(|_| vec![calling("main/pass_on/MPI_Sendrecv", 80 * MS, 1, 80 * MIB)]));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LargeMessage, 0.8));
    assert_eq!(causes(loss), [("main/pass_on".to_owned(), 0.8)]);
    assert_eq!(loss.symptom.bytes, Some(40 * 80 * MIB));
    assert_eq!(loss.symptom.breakdown, [(Label::Message, 1.0)].into());
    assert!(loss.advice.ends_with("by MPI_Isend and MPI_Irecv."), "{}", loss.advice);
    let summary =
        verdict(&beside_work(|_| vec![calling("main/pass_on/MPI_Bcast", 80 * MS, 1, 80 * MIB)]));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::LargeMessage);
    assert!(loss.advice.ends_with("by MPI_Ibcast."), "{}", loss.advice);
    // The transfer is started by one call and completed by another, which takes the time.
    let summary = verdict(&beside_work(|_| {
        vec![
            calling("main/pass_on/MPI_Isend", MS / 100, 1, 80 * MIB),
            calling("main/pass_on/MPI_Wait", 80 * MS, 1, 0),
        ]
    }));
    let loss = &summary.losses[0];
    assert_eq!(
        (loss.kind, &*path(&loss.symptom.path)),
        (LossKind::LargeMessage, "main/pass_on/MPI_Wait")
    );
    // The same time for few bytes.
    let summary =
        verdict(&beside_work(|_| vec![calling("main/pass_on/MPI_Sendrecv", 80 * MS, 1, 8)]));
    assert_eq!(kinds(&summary), [(LossKind::WaitForPartner, 0.8)]);
}

/// Short calls are frequent ones only if they move little.
#[test]
fn short_calls_that_move_much_are_large_messages() {
    const MIB: u64 = 1 << 20;
    let of_calls = |bytes: u64| {
        let pass = calling("main/loop/pass_on/MPI_Sendrecv", 60 * MS, 15, 15 * bytes);
        let summary = verdict(&beside_work(|_| vec![pass]));
        let loss = only_loss(&summary);
        assert_eq!(rounded(loss.seconds), 0.6);
        (loss.kind, causes(loss).remove(0).0)
    };
    assert_eq!(of_calls(4 * MIB), (LossKind::LargeMessage, "main/loop/pass_on".to_owned()));
    let frequent = (LossKind::FrequentCommunication, "main/loop".to_owned());
    assert_eq!(of_calls(60 << 10), frequent);
    assert_eq!(of_calls(8), frequent);
}

#[test]
fn advice_counts_the_calls_of_the_first_iteration() {
    const MIB: u64 = 1 << 20;
    // The first iteration is a phase of its own, and moves ten times as many bytes.
    let mut subject = Subject::new(4);
    for step in 0..10 {
        let size = if step == 0 { 10 } else { 1 };
        subject.step(BARRIER, |_| {
            let pass = calling("main/pass_on/MPI_Sendrecv", size * 20 * MS, 1, size * 20 * MIB);
            vec![doing("main/solve", 100 * MS), pass]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.symptom.calls), (LossKind::LargeMessage, 40));
    let mean = ["38.0 MiB each", "takes 38.0 ms"];
    assert!(mean.iter().all(|it| loss.advice.replace(TIED, " ").contains(it)), "{}", loss.advice);
}

#[test]
fn the_calls_of_a_loss_in_several_phases_are_those_of_its_advice() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..20 {
        subject.step(["main/MPI_Barrier@1", "main/MPI_Barrier@2"][step % 2], |_| {
            vec![doing("main/solve", 50 * MS), calling("main/loop/MPI_Test", 30 * MS, 1000, 0)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::FrequentCommunication, 0.6));
    assert!(loss.advice.contains("80,000 calls of MPI_Test"), "{}", loss.advice);
    assert_eq!((loss.symptom.calls, rounded(loss.symptom.mean_s)), (80_000, 0.6));
}

#[test]
fn ranks_that_wait_for_the_lock_of_a_window_hold_it_too_long() {
    for (calls, kind) in [(90, LossKind::FrequentCommunication), (1, LossKind::WaitForPartner)] {
        let summary = verdict(&beside_work(|_| {
            vec![calling("main/update_table/MPI_Win_lock", 80 * MS, calls, 0)]
        }));
        let loss = only_loss(&summary);
        assert_eq!(loss.kind, kind);
        assert!(loss.advice.contains("holds the window's lock"), "{}", loss.advice);
        assert!(!loss.advice.contains("all less often"), "{}", loss.advice);
    }
}

#[test]
fn ranks_that_share_a_window_wait_for_their_accesses() {
    for (calls, kind) in [(90, LossKind::FrequentCommunication), (1, LossKind::WaitForPartner)] {
        let summary = verdict(&beside_work(|_| {
            let lock = calling("main/MPI_Win_lock_all", 1, 1, 0);
            vec![lock, calling("main/update_table/MPI_Win_flush", 80 * MS, calls, 0)]
        }));
        let loss = only_loss(&summary);
        assert_eq!(loss.kind, kind);
        assert!(!loss.advice.contains("lock"), "{}", loss.advice);
        assert!(loss.advice.contains("until its accesses to a window are complete"), "{loss:?}");
    }
}

/// One function does all of a time step, so that only the order of its parts tells what a rank does
/// while it holds the lock, and the calls that release a lock are mostly too short to be seen.
#[test]
fn what_a_rank_does_while_it_holds_the_lock_of_a_window_is_the_cause() {
    for unlock in [None, Some(calling("main/MPI_Win_unlock", MS / 10, 1, 0))] {
        let summary = verdict(&ten_steps(4, |_| {
            let lock = [calling("main/MPI_Win_lock", 60 * MS, 1, 0), doing("main/apply", 30 * MS)];
            let work = [doing("main/collect", 10 * MS), doing("main/solve", 20 * MS)];
            lock.into_iter().chain(unlock).chain(work).collect()
        }));
        let loss = only_loss(&summary);
        assert_eq!(loss.kind, LossKind::WaitForPartner);
        let causes = loss.causes.iter().map(|cause| (path(&cause.path), rounded(cause.share)));
        assert_eq!(causes.collect::<Vec<_>>(), [("main/apply".to_owned(), 1.0)]);
        assert!(loss.advice.contains("holds while it executes apply."), "{}", loss.advice);
    }
}

#[test]
fn files_are_a_loss_where_all_ranks_have_them() {
    const MIB: u64 = 1 << 20;
    let summary = verdict(&beside_work(|_| {
        vec![
            calling("main/checkpoint/write", 30 * MS, 2, 60 * MIB),
            calling("main/checkpoint/fsync", 20 * MS, 1, 0),
        ]
    }));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.label), (LossKind::LargeIo, Label::Io));
    assert_eq!(causes(loss), [("main/checkpoint".to_owned(), 0.5)]);
    assert!(loss.advice.contains("write and fsync in checkpoint"), "{}", loss.advice);
    // If only one rank has the writes, the others wait for it.
    let summary = verdict(&beside_work(|rank| match rank {
        0 => vec![calling("main/checkpoint/write", 50 * MS, 2, 60 * MIB)],
        _ => vec![],
    }));
    assert_eq!(kinds(&summary), [(LossKind::Serialization, rounded(0.0375 * 10.0))]);
    // The same on one of two ranks.
    let summary = verdict(&ten_steps(2, |rank| match rank {
        0 => vec![calling("main/checkpoint/write", 50 * MS, 2, 60 * MIB)],
        _ => vec![doing("main/solve", MS)],
    }));
    assert!(kinds(&summary).iter().all(|(kind, _)| *kind != LossKind::LargeIo));
    // Many small writes.
    let summary = verdict(&beside_work(|_| {
        vec![calling("main/checkpoint/loop/write", 50 * MS, 5000, 5000 * 16)]
    }));
    let loss = only_loss(&summary);
    assert_eq!(loss.kind, LossKind::FrequentCommunication);
    assert_eq!(causes(loss), [("main/checkpoint/loop".to_owned(), 0.5)]);
    assert!(loss.advice.contains("larger pieces"), "{}", loss.advice);
}

#[test]
fn frequent_file_calls_of_one_rank_are_counted_over_all_phases() {
    let mut subject = Subject::new(3);
    subject.cores = vec![0];
    for _ in 0..11 {
        subject.step(BARRIER, |rank| {
            let calls = calling("main/log/loop/MPI_File_sync", 300 * MS, 100, 0);
            let work = doing("main/solve", 10 * MS);
            if rank == 0 { vec![work, calls] } else { vec![work] }
        });
    }
    let summary = verdict(&subject);
    let of_calls = |loss: &&Loss| loss.kind == LossKind::FrequentCommunication;
    let loss = summary.losses.iter().find(of_calls).unwrap();
    assert_eq!(loss.symptom.calls, 1100, "{}", loss.advice);
    assert!(loss.advice.contains("1,100 calls of MPI_File_sync on rank 0,"), "{}", loss.advice);
    assert!(!loss.advice.contains("share cores"), "{}", loss.advice);
}

#[test]
fn advice_on_files_has_the_mean_time_and_names_the_slow_rank() {
    const MIB: u64 = 1 << 20;
    let advice = |call: &'static str, ms: [u64; 4]| {
        let summary =
            verdict(&beside_work(|rank| vec![calling(call, ms[rank as usize] * MS, 4, 60 * MIB)]));
        let mut losses = summary.losses.into_iter();
        losses.find(|loss| loss.kind == LossKind::LargeIo).unwrap().advice.replace(TIED, " ")
    };
    let even = advice("main/dump/MPI_File_write_at", [30; 4]);
    assert!(even.contains("take 0.30 s on each rank, 2.3 GiB in all ranks"), "{even}");
    assert!(even.contains("by collective calls of MPI-IO"), "{even}");
    let uneven = advice("main/dump/MPI_File_write_at", [20, 80, 20, 20]);
    assert!(uneven.contains("take 0.35 s on each rank on average, 0.80 s on rank 1"), "{uneven}");
    let collective = advice("main/dump/MPI_File_write_at_all", [30; 4]);
    assert!(!collective.contains("by collective calls"), "{collective}");
    let open = advice("main/dump/MPI_File_open", [30; 4]);
    assert!(open.contains("Open files less often, or fewer of them; or leave"), "{open}");
    let open = advice("main/dump/open", [30; 4]);
    assert!(open.contains("or fewer of them; let ranks share a file"), "{open}");
}

#[test]
fn communicators_created_in_a_loop_are_to_be_kept() {
    let summary =
        verdict(&beside_work(|_| vec![calling("main/loop/MPI_Comm_dup", 30 * MS, 900, 0)]));
    let advice = &only_loss(&summary).advice;
    assert!(advice.contains("Create the communicator once"), "{advice}");
    assert!(!advice.contains("one message"), "{advice}");
}

#[test]
fn calls_that_also_wait_for_uneven_work_are_told_without_that_time() {
    // Two calls a step take 1 ms each; in the second one, ranks wait 4 ms for rank 3.
    const CALL: &str = "main/loop/MPI_Allreduce";
    let mut subject = Subject::new(4);
    for _ in 0..20 {
        subject.step(CALL, |rank| {
            let work_ms = if rank == 3 { 12 } else { 8 };
            vec![doing("main/loop/work", work_ms * MS), calling(CALL, 2 * MS, 1, 0)]
        });
    }
    let summary = verdict(&subject);
    let of_calls = |loss: &&Loss| loss.kind == LossKind::FrequentCommunication;
    let advice = summary.losses.iter().find(of_calls).unwrap().advice.replace(TIED, " ");
    let calls = "0.9 ms each without the waiting for uneven work, beside 4.5 ms of work. Call less";
    assert!(advice.contains(calls), "{advice}");
}

#[test]
fn frequent_calls_are_compared_with_the_work_beside_them() {
    let calls = || calling("main/send_all/loop/MPI_Send", 40 * MS, 2000, 0);
    let advice = |places: &[&'static str]| {
        let summary = verdict(&ten_steps(4, |_| {
            let work = places.iter().map(|place| doing(place, 60 * MS));
            work.chain([calls()]).collect()
        }));
        only_loss(&summary).advice.replace(TIED, " ")
    };
    // Work outside of the loop that makes the calls does not lie between them.
    let outside = advice(&["main/stencil"]);
    assert!(outside.contains("20.0 us each: there is little work between them"), "{outside}");
    let inside = advice(&["main/stencil", "main/send_all/loop/pack"]);
    assert!(inside.contains("20.0 us each, beside 30.0 us of work"), "{inside}");
}

/// Each rank in turn leaves a collective late, and so enters the next one late.
#[test]
fn ranks_that_leave_collectives_after_each_other_pay_for_them() {
    const CALL: &str = "main/loop/MPI_Allreduce";
    let lost = |work_us: u64| {
        let mut subject = Subject::new(4);
        for _ in 0..401 {
            subject.step(CALL, |_| {
                vec![doing("main/loop/work", work_us * 1000), calling(CALL, 900_000, 1, 8)]
            });
        }
        let mut inputs = subject.inputs();
        for input in &mut inputs {
            let rank = u64::from(input.rank);
            for row in &mut input.profile.rows.rows {
                let Some(call) = row.ends_in else { continue };
                let (_, wait_ns) = row.values.iter_mut().find(|(node, _)| *node == call).unwrap();
                let later_ns = match (row.index % 4, (row.index + 1) % 4) {
                    (turn, _) if turn == rank => -800_000,
                    (_, next) if next == rank => 800_000,
                    _ => 0,
                };
                *wait_ns = wait_ns.saturating_add_signed(later_ns);
                row.duration_ns = row.duration_ns.saturating_add_signed(later_ns);
            }
        }
        let summary = diagnose_alone(inputs, &job()).unwrap();
        summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect::<Vec<_>>()
    };
    assert_eq!(lost(700), [(LossKind::FrequentCommunication, 0.36)]);
    // Where ranks work for longer, only the time that all ranks spend in the call is its cost.
    assert_eq!(lost(900), [(LossKind::FrequentCommunication, 0.04)]);
}

#[test]
fn threads_that_wait_for_locks_contend_for_them() {
    let mut subject = beside_work(|_| {
        let lock = calling("main/update/pthread_mutex_lock", 30 * MS, 9, 0);
        vec![lock, calling("main/pthread_join", 10 * MS, 1, 0)]
    });
    subject.threads = 4;
    subject.others = vec![
        doing("run/solve", 3000 * MS),
        // Sum over three threads.
        doing("run/update/pthread_mutex_lock", 1200 * MS),
    ];
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.label), (LossKind::LockContention, Label::WaitLock));
    // (0.3 s + 1.2 s) divided by four threads.
    assert_eq!(rounded(loss.seconds), 0.375);
    assert_eq!(causes(loss), [("run/update".to_owned(), 0.375)], "a function is named once");
    assert_eq!(rounded(loss.symptom.mean_s), 1.2);
    assert_eq!(loss.waiting_ranks, "0-3");
    // So do four threads at one time in pools that are created anew in each step.
    (subject.threads, subject.concurrent_threads) = (81, Some(3));
    assert_eq!(rounded(only_loss(&verdict(&subject)).seconds), 0.375);
    // A thread that only waits for the others does not take part in the contention.
    let mut subject = beside_work(|_| vec![calling("main/pthread_join", 50 * MS, 1, 0)]);
    (subject.threads, subject.others) = (4, subject_others());
    let summary = verdict(&subject);
    assert_eq!(kinds(&summary), [(LossKind::LockContention, 0.4)]);
    let foretold_s = summary.projection.elapsed_s;
    assert_eq!(rounded(foretold_s), rounded(only_loss(&summary).elapsed_without_s));
}

/// The functions of a runtime that wait are not known to wait for a lock.
#[test]
fn all_time_inside_of_a_lock_is_waiting_for_it() {
    const LOCK: &str = "main/update/OpenMP_critical";
    const SPIN: &str = "main/update/OpenMP_critical/libomp.so.5!__kmp_wait_4";
    let mut subject = beside_work(|_| vec![calling(LOCK, 20 * MS, 9, 0), doing(SPIN, 10 * MS)]);
    subject.threads = 2;
    assert_eq!(kinds(&verdict(&subject)), [(LossKind::LockContention, 0.15)]);
}

#[test]
fn locks_cost_no_more_than_the_communicating_threads_wait() {
    // Helpers wait for their next job while the communicating thread works.
    let mut subject = beside_work(|_| vec![]);
    (subject.threads, subject.others) = (4, subject_others());
    assert_eq!(verdict(&subject).losses, []);
    // The communicating thread waits for them for 0.25 s.
    let mut subject = beside_work(|_| vec![calling("main/pthread_join", 25 * MS, 1, 0)]);
    (subject.threads, subject.others) = (4, subject_others());
    assert_eq!(kinds(&verdict(&subject)), [(LossKind::LockContention, 0.25)]);
}

#[test]
fn a_single_thread_contends_for_no_lock() {
    let mut subject =
        beside_work(|_| vec![calling("main/fetch/pthread_mutex_timedlock", 30 * MS, 9, 0)]);
    assert_eq!(verdict(&subject).losses, []);
    // With more threads the same waits are contention.
    subject.threads = 2;
    let summary = verdict(&subject);
    assert_eq!(only_loss(&summary).kind, LossKind::LockContention);
    assert_eq!(rounded(only_loss(&summary).seconds), 0.15);
}

fn subject_others() -> Vec<crate::synthetic_run::Doing> {
    vec![doing("run/update/pthread_mutex_lock", 1200 * MS)]
}

#[test]
fn two_losses_in_one_phase_share_no_second() {
    // Rank 3 works 60 ms longer in each step, and all poll for 40 ms.
    let summary = verdict(&beside_work(|rank| {
        let more = if rank == 3 { 60 * MS } else { 0 };
        vec![
            doing("main/assemble", 20 * MS + more),
            calling("main/exchange/loop/MPI_Test", 40 * MS, 1000, 0),
        ]
    }));
    assert_eq!(
        kinds(&summary),
        [(LossKind::LoadImbalance, 0.45), (LossKind::FrequentCommunication, 0.4)]
    );
    assert_eq!(rounded(summary.run.elapsed_s), 2.2);
    assert_eq!(rounded(summary.projection.elapsed_s), 1.35);
    // As above, but ranks wait for the slow rank in messages instead of the barrier.
    let summary = verdict(&beside_work(|rank| {
        let (more, wait) = if rank == 3 { (60 * MS, 0) } else { (0, 60 * MS) };
        vec![
            doing("main/assemble", 20 * MS + more),
            calling("main/halo/MPI_Recv", wait, 1, 8),
            calling("main/exchange/loop/MPI_Test", 40 * MS, 1000, 0),
        ]
    }));
    assert_eq!(
        kinds(&summary),
        [(LossKind::LoadImbalance, 0.45), (LossKind::FrequentCommunication, 0.4)]
    );
    assert_eq!(path(&summary.losses[0].symptom.path), "main/halo/MPI_Recv");
}

#[test]
fn two_losses_in_two_phases_are_two() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step("main/MPI_Barrier@1", |rank| {
            vec![doing("main/assemble", if rank == 1 { 90 * MS } else { 30 * MS })]
        });
        subject.step("main/MPI_Barrier@2", |_| {
            vec![doing("main/solve", 50 * MS), calling("main/loop/MPI_Test", 30 * MS, 1000, 0)]
        });
    }
    let summary = verdict(&subject);
    assert_eq!(
        kinds(&summary),
        [(LossKind::LoadImbalance, 0.45), (LossKind::FrequentCommunication, 0.3)]
    );
    let phases: Vec<u32> = summary.losses.iter().map(|loss| loss.phase).collect();
    assert_ne!(phases[0], phases[1]);
    assert_eq!(rounded(summary.projection.elapsed_s), rounded(1.7 - 0.75));
    let rows: Vec<Option<u8>> = summary.segments.iter().map(|segment| segment.row).collect();
    assert!(rows.contains(&Some(3)) && rows.contains(&Some(1)), "{:?}", summary.segments);
}

#[test]
fn groups_that_have_unequal_tasks_are_told_from_unequal_ranks() {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| match rank {
            // One of the ocean's ranks is slower than the other.
            6 => vec![doing("main/ocean", 120 * MS)],
            7 => vec![doing("main/ocean", 160 * MS)],
            _ => vec![doing("main/atmosphere", 60 * MS)],
        });
    }
    let summary = verdict(&subject);
    // Mean work is 80 ms over all ranks and 140 ms in the ocean, which has 160 ms in its slowest
    // rank.
    let truth = [(LossKind::GroupImbalance, 0.6), (LossKind::LoadImbalance, 0.2)];
    assert_eq!(kinds(&summary), truth);
    let loss = &summary.losses[0];
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("6-7", "0-5"));
    assert_eq!(
        (path(&loss.causes[0].path), loss.causes[0].group),
        ("main/ocean".to_owned(), Some(1))
    );
    assert_eq!((&*summary.losses[1].slow_ranks, summary.losses[1].group), ("7", Some(1)));
    assert_eq!(rounded(summary.projection.elapsed_s), 0.8);
}

#[test]
fn slow_ranks_of_one_task_are_slow_ranks() {
    let mut subject = Subject::new(8);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| match rank {
            7 => vec![doing("main/ocean", 180 * MS)],
            4..7 => vec![doing("main/ocean", 60 * MS)],
            _ => vec![doing("main/atmosphere", 60 * MS)],
        });
    }
    let summary = verdict(&subject);
    // The mean is 75 ms, the ocean's 90: the loss is due to the ocean's slowest rank.
    assert_eq!(kinds(&summary), [(LossKind::LoadImbalance, 1.05)]);
    assert_eq!(summary.losses[0].slow_ranks, "7");
}
