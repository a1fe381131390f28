//! One rank of two carries the library, the other does not. A collective that only one of them
//! enters would hang; so the library must not communicate, and the report must say why.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

fn assert_told_and_unhurt(mpi: Mpi, preloaded: u32) {
    needs!(mpi);
    let job = Job::ranks("imbalance", mpi, 2).arguments("burn 20 10 3");
    let plain = job.run().succeeded();
    let job = job.watch(Watch::PreloadRank(preloaded));
    let run = || {
        let watched = job.run().succeeded();
        watched.assert_same_as(&plain);
        assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.transcript());
        let messages = watched.plimsoll_messages();
        let is_reported = messages.iter().any(|message| message.to_lowercase().contains("preload"));
        assert!(
            is_reported,
            "nothing says that a rank is without the library: {}",
            watched.transcript()
        );
        // One file for the process that carries the library; there is no report of the whole job.
        assert_eq!(watched.summary().at("/run/complete"), false);
        assert_eq!(watched.summary().text("/run/mpi/abi"), mpi.abi());
        watched
    };
    retry_on_noise(run, |watched| {
        let of = |function| watched.summary().of_function(function).sum_s;
        let own_s = watched.truth().numbers("work_s")[preloaded as usize];
        assert_within("work of its own rank", of("work_even") + of("work_uneven"), own_s, 0.10);
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn first_rank_of_mpich() {
    assert_told_and_unhurt(Mpi::Mpich, 0);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn second_rank_of_mpich() {
    assert_told_and_unhurt(Mpi::Mpich, 1);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn first_rank_of_open_mpi() {
    assert_told_and_unhurt(Mpi::OpenMpi, 0);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn second_rank_of_open_mpi() {
    assert_told_and_unhurt(Mpi::OpenMpi, 1);
}
