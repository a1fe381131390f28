//! Sessions (MPI-4, 11.3), besides MPI_Init or instead of it.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

fn assert_found(how: &str) {
    for mpi in [Mpi::Mpich, Mpi::MpichWheel, Mpi::MpichWheelStandard, Mpi::OpenMpiWheel]
        .into_iter()
        .filter(|it| it.available())
    {
        let job = Job::ranks("sessions", mpi, 2).arguments(&format!("sleep 40 10 3 {how}"));
        let run = || {
            let plain = job.run().succeeded();
            let watched = job.clone().watch(Watch::Run).run().succeeded();
            watched.assert_same_as(&plain);
            let summary = watched.summary();
            assert_eq!(summary.text("/run/mpi/abi"), mpi.abi());
            assert_eq!(summary.number("/run/ranks"), 2.0);
            assert_eq!(summary.at("/run/complete"), true);
            watched
        };
        retry_on_noise(run, |watched| {
            let (worst, truth) = (watched.summary().worst(), watched.truth());
            assert_eq!(worst.first_cause(), Some("work_uneven"), "{mpi}: {worst:?}");
            assert_eq!(worst.field("slow_ranks"), "1", "{mpi}: {worst:?}");
            assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.10);
        });
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn besides_mpi_init() {
    assert_found("besides");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn instead_of_mpi_init() {
    assert_found("instead");
}
