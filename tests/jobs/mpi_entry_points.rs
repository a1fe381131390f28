//! The ways in which a program loads MPI: late, twice, never, by dlopen, through another program of
//! the same world, in a spawned world, statically.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;
use plimsoll_tests::truth::assert_within;

const ARGUMENTS: &str = "sleep 40 10 3";

/// Runs a job unwatched and watched, and asserts that the program sees no difference.
fn pair(job: &Job, watch: Watch) -> (Outcome, Outcome) {
    let (plain, watched) = (job.run(), job.clone().watch(watch).run());
    watched.assert_same_as(&plain);
    watched.summaries();
    (plain, watched)
}

/// Runs a watched job until the assertions hold; it must be a complete job of this MPI.
fn shown(job: &Job, mpi: Mpi, assertions: impl Fn(&Outcome)) -> Outcome {
    let run = || {
        let watched = pair(job, Watch::Run).1.succeeded();
        assert_eq!(watched.summary().text("/run/mpi/abi"), mpi.abi());
        assert_eq!(watched.summary().at("/run/complete"), true);
        watched
    };
    retry_on_noise(run, assertions)
}

/// Asserts that the subject's loss is the worst one, with the cause `cause`.
fn assert_found(job: &Outcome, cause: &str) {
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.first_cause(), Some(cause), "{worst:?}");
    assert_eq!(worst.field("slow_ranks").as_str(), truth.text("slow_ranks"), "{worst:?}");
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.10);
    assert_within("elapsed", summary.number("/run/elapsed_s"), truth.number("elapsed_s"), 0.05);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn loaded_by_a_plugin_that_nobody_else_sees() {
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, mpi.ranks()).form(Form::Plugin);
        shown(&job.arguments(ARGUMENTS), mpi, |job| {
            assert_found(job, "work_uneven");
            let path = job.summary().worst().cause_path();
            assert_eq!(path[..2], ["main", "plugin_main"], "{path:?}");
        });
    }
}

#[test]
fn functions_of_the_program_named_like_those_of_fortran_are_its_own() {
    for mpi in each_mpi() {
        let job = Job::ranks("own_names", mpi, 2).form(Form::Plugin).shares_cores();
        let (_, watched) = pair(&job.arguments("sleep 10 1"), Watch::Run);
        let watched = watched.succeeded();
        let summary = watched.summary();
        // Ten barriers and MPI_Finalize on each rank.
        assert_eq!(summary.number("/collection/mpi_calls"), 22.0, "{}", watched.transcript());
        let own = summary.of_function("mpi_barrier").nodes;
        assert!(!own.is_empty(), "{}", watched.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn fortran_calls_without_an_underscore_are_measured() {
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, mpi.ranks()).form(Form::WithoutUnderscores);
        shown(&job.arguments(ARGUMENTS), mpi, |job| assert_found(job, "work::work_uneven"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn initialised_late_the_run_counts_from_there() {
    for mpi in each_mpi() {
        let job = Job::ranks("init_twice", mpi, mpi.ranks()).arguments(ARGUMENTS);
        // The subject's own elapsed time begins when MPI_Init returns.
        shown(&job, mpi, |job| assert_found(job, "work_uneven"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_refused_second_initialisation_changes_nothing() {
    for mpi in each_mpi() {
        let arguments = format!("{ARGUMENTS} again");
        let job = Job::ranks("init_twice", mpi, 2).arguments(&arguments);
        let (plain, watched) = pair(&job, Watch::Run);
        if plain.status().success() {
            assert!(plain.stdout().contains("second MPI_Init: refused"), "{}", plain.transcript());
            shown(&job, mpi, |job| assert_found(job, "work_uneven"));
        } else {
            // Open MPI ends the job, despite its error handlers: so the run is cut short.
            assert_eq!(mpi, Mpi::OpenMpi, "{}", plain.transcript());
            for summary in watched.summaries() {
                assert_eq!(summary.at("/run/complete"), false, "{}", watched.transcript());
            }
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn never_initialised_it_is_a_program_without_mpi() {
    for mpi in each_mpi() {
        // One rank: a single report holds everything. The run is long compared with its start and
        // end, 10 to 25 ms in which no sample may fall: they count as the work then.
        let job = Job::ranks("init_never", mpi, 1).arguments("burn 50 10");
        let run = || {
            let (_, watched) = pair(&job, Watch::Run);
            let summary = watched.summary();
            assert_eq!(summary.text("/run/mpi/abi"), "none");
            assert!(summary.at("/run/mpi/library").is_null());
            assert_eq!(summary.text("/run/ended"), "exit");
            assert_eq!(summary.at("/run/complete"), true);
            watched
        };
        retry_on_noise(run, |watched| {
            let work_s = watched.summary().of_function("work_alone").mean_s;
            assert_within("work", work_s, watched.truth().number("work_s"), 0.10);
        });
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn two_programs_of_one_world_are_one_job() {
    for mpi in each_mpi() {
        let half = mpi.ranks() / 2;
        let job = Job::ranks("imbalance", mpi, half).and("partner", half).arguments(ARGUMENTS);
        let job = shown(&job, mpi, |job| assert_found(job, "work_of_partner"));
        let summary = job.summary();
        assert_eq!(summary.number("/run/ranks"), f64::from(2 * half));
        let program = |path: &str| path.rsplit('/').next().map(str::to_owned);
        assert_eq!(program(summary.text("/run/executable")).as_deref(), Some("imbalance"));
        // Each function belongs to its own program.
        for (function, expected) in [("work_uneven", "imbalance"), ("work_of_partner", "partner")] {
            let modules = summary.modules_of(function);
            assert_eq!(modules.len(), 1, "{function}: {modules:?}");
            assert_eq!(program(&modules[0]).as_deref(), Some(expected), "{function}");
        }
    }
}

/// Asserts that children are a world, and so a job, of their own. A user who preloads the ranks
/// through the launcher also preloads what they spawn, if the launcher passes its settings on.
fn assert_two_jobs(mpi: Mpi) {
    needs!(mpi);
    let job = Job::ranks("spawns", mpi, 2).arguments(ARGUMENTS);
    let run = || {
        let watched = pair(&job, Watch::Preload).1.succeeded();
        assert_eq!(watched.summaries().len(), 2, "{}", watched.transcript());
        for summary in watched.summaries() {
            assert_eq!(summary.number("/run/ranks"), 2.0);
            assert_eq!(summary.at("/run/complete"), true);
        }
        watched
    };
    retry_on_noise(run, |watched| {
        for (ours, theirs) in
            [("work_of_parent", "work_of_child"), ("work_of_child", "work_of_parent")]
        {
            let of_these = |summary: &&Summary| !summary.of_function(ours).nodes.is_empty();
            let found: Vec<_> = watched.summaries().iter().filter(of_these).collect();
            assert_eq!(found.len(), 1, "{mpi}, {ours}: {}", watched.transcript());
            assert_eq!(found[0].worst().first_cause(), Some(ours), "{}", watched.transcript());
            assert!(found[0].of_function(theirs).nodes.is_empty(), "{}", watched.transcript());
        }
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_open_mpi_spawns_are_a_job_of_their_own() {
    assert_two_jobs(Mpi::OpenMpi);
}

/// MPICH's launcher starts the children beside their parents, by the same process.
#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_mpich_spawns_are_a_job_of_their_own() {
    assert_two_jobs(Mpi::MpichWheel);
}

/// The settings of `plimsoll run` are not in the environment that launchers give to spawned
/// processes.
#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_spawn_are_diagnosed_without_their_children() {
    for mpi in
        [Mpi::OpenMpi, Mpi::MpichWheel, Mpi::OpenMpiWheel].into_iter().filter(|it| it.available())
    {
        shown(&Job::ranks("spawns", mpi, 2).arguments(ARGUMENTS), mpi, |job| {
            let worst = job.summary().worst();
            assert_eq!(worst.first_cause(), Some("work_of_parent"), "{}", job.transcript());
            let loss_s = job.truth().number("expected_loss_s");
            assert_within("seconds", worst.seconds(), loss_s, 0.10);
        });
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn linked_statically_each_process_reports_and_says_why() {
    needs!(Mpi::Mpich);
    let job = Job::ranks("imbalance", Mpi::Mpich, 2).form(Form::StaticMpi).arguments(ARGUMENTS);
    let run = || {
        let (_, watched) = pair(&job, Watch::Run);
        let messages = watched.plimsoll_messages();
        let reports =
            messages.iter().filter(|it| it.starts_with("MPI is linked statically")).count();
        assert_eq!(reports, 1, "{}", watched.transcript());
        assert_eq!(watched.summaries().len(), 2, "{}", watched.transcript());
        for summary in watched.summaries() {
            assert_eq!(summary.text("/run/mpi/abi"), "none");
            assert_eq!(summary.at("/run/complete"), false);
        }
        watched
    };
    retry_on_noise(run, |watched| {
        let work_s = |summary: &Summary| {
            let of = |function| summary.of_function(function).sum_s;
            of("work_even") + of("work_uneven")
        };
        let mut works_s: Vec<_> = watched.summaries().iter().map(work_s).collect();
        let mut truths_s = watched.truth().numbers("work_s");
        works_s.sort_by(f64::total_cmp);
        truths_s.sort_by(f64::total_cmp);
        for (found_s, truth_s) in works_s.iter().zip(truths_s) {
            assert_within("work of one rank", *found_s, truth_s, 0.10);
        }
    });
}
