//! Large messages and late messages, independent of the calls that start and complete them.

use super::calls::{beside_work, kinds};
use super::*;
use crate::phrase::TIED;
use crate::synthetic_run::calling;

const MIB: u64 = 1 << 20;

/// Checks that the run's losses are large messages in these calls.
fn assert_large(subject: &Subject, symptoms: &[&str]) {
    let summary = verdict(subject);
    let shown = summary.losses.iter().map(|loss| (loss.kind, path(&loss.symptom.path)));
    let truth: Vec<_> =
        symptoms.iter().map(|it| (LossKind::LargeMessage, (*it).to_owned())).collect();
    assert_eq!(shown.collect::<Vec<_>>(), truth, "{:#?}", summary.losses);
}

#[test]
fn messages_are_large_whichever_functions_start_and_complete_them() {
    let subject = beside_work(|_| {
        vec![
            calling("main/post/MPI_Irecv", MS / 100, 1, 80 * MIB),
            calling("main/share/pack/MPI_Isend", MS / 100, 1, 80 * MIB),
            calling("main/finish/MPI_Waitall", 80 * MS, 1, 0),
            // A message of the same size and speed.
            calling("main/pass_on/MPI_Sendrecv", 60 * MS, 1, 60 * MIB),
        ]
    });
    assert_large(&subject, &["main/finish/MPI_Waitall", "main/pass_on/MPI_Sendrecv"]);
    let advice = &verdict(&subject).losses[0].advice;
    assert!(advice.contains("move 80.0 MiB each"), "not twice as much: {advice}");
}

#[test]
fn collectives_and_accesses_are_large_where_they_are_completed() {
    for (start, end) in [
        ("main/reduce/MPI_Iallreduce", "main/use_it/MPI_Wait"),
        ("main/put/MPI_Put", "main/close/MPI_Win_fence"),
        ("main/get/MPI_Get", "main/close/MPI_Win_flush_all"),
        ("main/add/MPI_Accumulate", "main/close/MPI_Win_unlock"),
        ("main/add/MPI_Rput", "main/close/MPI_Waitany"),
        ("main/add/MPI_Rput", "main/close/MPI_Win_flush"),
    ] {
        let subject = beside_work(|_| {
            vec![
                calling(start, MS / 1000, 1, 80 * MIB),
                calling(end, 80 * MS, 1, 0),
                calling("main/pass_on/MPI_Bcast", 60 * MS, 1, 60 * MIB),
            ]
        });
        assert_large(&subject, &[end, "main/pass_on/MPI_Bcast"]);
    }
}

#[test]
fn a_synchronisation_may_lie_between_start_and_completion() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step("main/MPI_Barrier@1", |_| {
            vec![doing("main/solve", 50 * MS), calling("main/share/MPI_Isend", MS, 1, 80 * MIB)]
        });
        subject.step("main/MPI_Barrier@2", |_| {
            vec![doing("main/solve", 50 * MS), calling("main/finish/MPI_Wait", 80 * MS, 1, 0)]
        });
    }
    assert_large(&subject, &["main/finish/MPI_Wait"]);
}

#[test]
fn who_waits_for_a_late_partner_does_not_wait_for_the_data() {
    // The partner's ranks are late by 72 ms; the data then takes 8 ms.
    let late = |rank: u32, call: &'static str, start: &'static str| {
        let (work, wait) = if rank < 2 { (10, 80) } else { (82, 8) };
        vec![
            doing("main/assemble", work * MS),
            calling(start, MS / 1000, 1, 32 * MIB),
            calling(call, wait * MS, 1, 0),
            doing("main/finish/unpack", (92 - work) * MS),
        ]
    };
    let summary =
        verdict(&beside_work(|rank| late(rank, "main/finish/MPI_Wait", "main/share/MPI_Isend")));
    let kinds: Vec<LossKind> = kinds(&summary).iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.contains(&LossKind::WaitForPartner), "{:#?}", summary.losses);
    assert!(!kinds.contains(&LossKind::LargeMessage), "{:#?}", summary.losses);
}

/// Without the waiting for the slow rank, the exchange at the end of each step takes 80 ms.
#[test]
fn an_exchange_that_ends_uneven_work_is_large_by_its_own_time() {
    const EXCHANGE: &str = "main/exchange/MPI_Alltoall";
    let diagnosed = |bytes: u64| {
        let mut subject = Subject::new(4);
        for _ in 0..10 {
            subject.step(EXCHANGE, |rank| {
                let work_ms = if rank == 3 { 200 } else { 50 };
                vec![doing("main/solve", work_ms * MS), calling(EXCHANGE, 80 * MS, 0, bytes)]
            });
        }
        let mut summary = verdict(&subject);
        summary.losses.sort_by_key(|loss| loss.kind);
        summary
    };
    let uneven = (LossKind::LoadImbalance, 1.125);
    assert_eq!(kinds(&diagnosed(MIB / 2)), [uneven]);
    let summary = diagnosed(80 * MIB);
    assert_eq!(kinds(&summary), [uneven, (LossKind::LargeMessage, 0.8)]);
    let advice = &summary.losses[1].advice;
    assert!(advice.contains("move 80.0 MiB each, which takes 80.0 ms."), "{advice}");
}

/// The rank that receives nearly all data takes long for it, and all others wait for that rank.
#[test]
fn uneven_data_in_a_synchronisation_limits_all_ranks() {
    const EXCHANGE: &str = "main/exchange/MPI_Alltoallv";
    let diagnosed = |steps: u64, ns: u64, bytes: &dyn Fn(u32) -> u64| {
        let mut subject = Subject::new(8);
        for _ in 0..steps {
            subject.step(EXCHANGE, |rank| {
                vec![doing("main/solve", ns), calling(EXCHANGE, ns, 0, bytes(rank))]
            });
        }
        verdict(&subject)
    };
    // Few long calls; and many short ones, with fewer bytes on average than in a large message.
    const KIB: u64 = 1 << 10;
    for (steps, ns, most, other) in [(10, 80 * MS, 80 * MIB, MIB), (400, 2 * MS, 320 * KIB, KIB)] {
        let summary = diagnosed(steps, ns, &|rank| if rank == 5 { most } else { other });
        let loss = only_loss(&summary);
        assert_eq!((loss.kind, &*loss.slow_ranks), (LossKind::LargeMessage, "5"), "{most}");
        let each = crate::phrase::bytes(most).replace(TIED, " ");
        let said = format!("rank 5 needs, which moves the most data: up to {each} each time");
        assert!(loss.advice.contains(&said), "{}", loss.advice);
    }
    let even = diagnosed(10, 80 * MS, &|_| 80 * MIB);
    let loss = only_loss(&even);
    assert_eq!((loss.kind, &*loss.slow_ranks), (LossKind::LargeMessage, ""));
    assert!(loss.advice.contains("move 80.0 MiB each"), "{}", loss.advice);
}
