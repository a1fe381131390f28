//! Runs that were broken off while the ranks returned from a synchronisation.

use super::*;
use crate::thread_ranks::run;

/// Returns the summary of a job that was broken off.
fn broken_off(subject: &Subject) -> Summary {
    let job = JobInfo { complete: false, ended: "killed".to_owned(), ..job() };
    let summary = checked(diagnose_alone(subject.inputs(), &job).unwrap());
    for processes in 2..=4 {
        let share = |comm: &dyn Communicator| {
            let (rank, size) = (comm.rank(), comm.size());
            let ours = (0..subject.ranks).filter(|it| it % size == rank);
            // Process 0 alone knows the end of the job.
            let job = JobInfo { complete: rank > 0, ..job.clone() };
            diagnose(comm, ours.map(|rank| subject.input(rank)).collect(), &job).unwrap()
        };
        let found = run(processes, share).into_iter().next().flatten();
        assert_eq!(found.as_ref(), Some(&summary), "{processes} processes");
    }
    summary
}

fn has_phases(summary: &Summary) -> bool {
    !summary.notes.iter().any(|note| note.contains("the same synchronisations"))
}

#[test]
fn a_synchronisation_that_only_some_ranks_saw_ends_no_phase() {
    let mut subject = uneven("main/step/assemble");
    let shown = |summary: &Summary| -> Vec<_> {
        let phases = summary.phases.iter();
        phases.map(|phase| (phase.instances, rounded(phase.duration_s))).collect()
    };
    // Eleven barriers: a barrier, and one after each of ten steps.
    subject.seen = Some(|_| 10);
    let equal = broken_off(&subject);
    assert!(has_phases(&equal));
    assert_eq!(shown(&equal), [(1, 0.0), (9, 0.99), (1, 0.11)]);
    // Ranks that returned from a further barrier, and from the one at the end of the run.
    for seen in [|rank| 10 + u64::from(rank % 2), |rank| 10 + u64::from(rank % 3)] {
        subject.seen = Some(seen);
        let summary = broken_off(&subject);
        assert_eq!(shown(&summary), shown(&equal));
        assert_eq!(summary.losses, equal.losses);
        assert_eq!(summary.notes, equal.notes);
        let loss = &summary.losses[0];
        assert_eq!((loss.kind, rounded(loss.seconds)), (LossKind::LoadImbalance, 0.27));
    }
}

#[test]
fn the_intervals_of_subgroups_stay_in_their_instances() {
    let mut subject = Subject::new(8);
    for step in 0..24 {
        subject.step_of_parts(
            |rank| rank / 4,
            "main/sweep/MPI_Allreduce",
            |rank| vec![doing("main/sweep", if rank % 4 == step % 4 { 80 * MS } else { 20 * MS })],
        );
        if step % 4 == 3 {
            subject.step(BARRIER, |_| vec![]);
        }
    }
    subject.seen = Some(|_| 4);
    let equal = broken_off(&subject);
    subject.seen = Some(|rank| 4 + u64::from(rank % 3));
    assert_eq!(broken_off(&subject).losses, equal.losses);
    assert!(!equal.losses.is_empty());
}

#[test]
fn ranks_that_differ_by_many_synchronisations_contradict_each_other() {
    let mut subject = uneven("main/step/assemble");
    subject.seen = Some(|rank| if rank == 0 { 4 } else { 10 });
    let summary = broken_off(&subject);
    assert!(!has_phases(&summary));
    assert_eq!(summary.phases.len(), 1);
}

#[test]
fn ranks_of_a_complete_run_contradict_each_other() {
    let mut subject = uneven("main/step/assemble");
    subject.seen = Some(|rank| 10 + u64::from(rank % 2));
    assert!(!has_phases(&verdict(&subject)));
}
