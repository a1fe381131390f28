//! Phases lie between global synchronisations, recur as instances, and partition the run.

use serde_json::Value;

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::{Summary, function_path};
use plimsoll_tests::truth::assert_within;

fn job(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Job {
    Job::ranks(subject, mpi, ranks).arguments(arguments).watch(Watch::Run)
}

fn run(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Outcome {
    job(subject, mpi, ranks, arguments).run().succeeded()
}

fn phases(summary: &Summary) -> &[Value] {
    summary.at("/phases").as_array().map_or(&[], Vec::as_slice)
}

fn instances(phase: &Value) -> u64 {
    phase["instances"].as_u64().unwrap_or(0)
}

/// Asserts that every synchronisation ends one instance; the last instance ends in MPI_Finalize.
fn assert_partition(job: &Outcome) {
    let (summary, truth) = (job.summary(), job.truth());
    let count: u64 = phases(summary).iter().map(instances).sum();
    assert_eq!(count as f64, truth.number("global_syncs") + 1.0, "{:?}", phases(summary));
    let lengths_s = phases(summary).iter().filter_map(|phase| phase["duration_s"].as_f64());
    let elapsed_s = summary.number("/run/elapsed_s");
    assert_within("phases together", lengths_s.sum(), elapsed_s, 0.05);
    assert!(phases(summary).iter().all(|phase| phase["kind"] == "spmd"));
}

#[test]
fn an_iteration_is_an_instance() {
    for mpi in each_mpi() {
        job("imbalance", mpi, 2, "burn 30 5 3").run_until(|job| {
            assert_partition(job);
            let summary = job.summary();
            let longest = phases(summary).iter().max_by_key(|phase| instances(phase)).unwrap();
            // The first of the 30 begins with the run and is another phase.
            assert_eq!(instances(longest), 29);
            for end in ["begins_after", "ends_in"] {
                assert_eq!(function_path(&longest[end]).last(), Some(&"MPI_Allreduce"));
            }
            assert_eq!(&summary.worst().field("phase"), &&longest["id"]);
        });
    }
}

#[test]
fn two_barriers_make_two_phases() {
    needs!(Mpi::OpenMpi);
    let job = job("serial", Mpi::OpenMpi, 4, "sleep 30 5 3").run_until(assert_partition);
    let recurring = phases(job.summary()).iter().map(instances).filter(|&instances| instances > 1);
    let mut recurring: Vec<_> = recurring.collect();
    recurring.sort_unstable();
    // The parallel part after the first iteration, the serial part in every iteration.
    assert_eq!(recurring, [29, 30]);
}

/// Returns the number of instances of each phase, by the calls at its begin and end.
fn structure(summary: &Summary) -> Vec<(u64, String)> {
    let end = |path: &Value| function_path(path).last().copied().unwrap_or("").to_owned();
    let phase = |phase: &Value| {
        (instances(phase), format!("{} > {}", end(&phase["begins_after"]), end(&phase["ends_in"])))
    };
    phases(summary).iter().map(phase).collect()
}

/// Maximum relative difference between a loss from samples and the measured one: samples are exact
/// to a period.
const TOLERANCE: f64 = 0.20;

/// Runs a job measured by its calls, and by samples alone, which must show the phases given.
fn by_calls_and_by_samples(
    job: &Job,
    known: &[(u64, String)],
    assertions: impl Fn(&Outcome, &Outcome),
) {
    let run = || {
        let by_calls = job.run().succeeded();
        assert_eq!(structure(by_calls.summary()), known);
        let by_samples = job.clone().variable("PLIMSOLL_REGIONS", "off").run().succeeded();
        [by_calls, by_samples]
    };
    retry_on_noise(run, |[by_calls, by_samples]| {
        // A rank without a core at its release does not seem to leave together with the others.
        assert_eq!(structure(by_samples.summary()), known, "{}", by_samples.transcript());
        let measured_s = by_calls.summary().worst().seconds();
        assert_within("seconds", by_samples.summary().worst().seconds(), measured_s, TOLERANCE);
        assertions(by_calls, by_samples);
    });
}

fn phases_of(known: &[(u64, &str)]) -> Vec<(u64, String)> {
    known.iter().map(|(instances, ends)| (*instances, (*ends).to_owned())).collect()
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_run_of_known_structure_has_its_phases_with_and_without_measured_calls() {
    needs!(Mpi::OpenMpi);
    let known = phases_of(&[
        (1, " > MPI_Barrier"),
        (1, "MPI_Barrier > MPI_Allreduce"),
        (30, "MPI_Allreduce > MPI_Barrier"),
        (29, "MPI_Barrier > MPI_Allreduce"),
        (1, "MPI_Barrier > MPI_Barrier"),
        (1, "MPI_Barrier > MPI_Finalize"),
    ]);
    let job = job("stages", Mpi::OpenMpi, 4, "sleep 30 20 3");
    by_calls_and_by_samples(&job, &known, |by_calls, by_samples| {
        assert_partition(by_calls);
        assert_partition(by_samples);
        let (by_calls, by_samples) = (by_calls.summary(), by_samples.summary());
        let (expected, found) = (by_calls.worst(), by_samples.worst());
        for field in ["kind", "slow_ranks", "phase", "label"] {
            assert_eq!(found.field(field), expected.field(field), "{field} of {found:?}");
        }
        assert_eq!(by_samples.at("/notes"), by_calls.at("/notes"));
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn programs_that_differ_have_their_phases_without_measured_calls() {
    needs!(Mpi::OpenMpi);
    let known = phases_of(&[
        (1, " > MPI_Allreduce"),
        (29, "MPI_Allreduce > MPI_Allreduce"),
        (1, "MPI_Allreduce > MPI_Finalize"),
    ]);
    let job = job("coupled", Mpi::OpenMpi, 4, "sleep 30 20 3 turns");
    by_calls_and_by_samples(&job, &known, |_, by_samples| {
        assert_eq!(phases(by_samples.summary())[1]["kind"], "mpmd");
    });
}

#[test]
fn where_ranks_synchronise_at_places_of_their_own_is_one_phase_and_the_rest_as_ever() {
    needs!(Mpi::OpenMpi);
    let job = job("detours", Mpi::OpenMpi, 4, "sleep 30 10 3").run_until(|job| {
        let (worst, truth) = (job.summary().worst(), job.truth());
        assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
        assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.1);
        assert_eq!(worst.first_cause(), Some("work_uneven"), "{}", job.text());
    });
    let found: Vec<_> = phases(job.summary()).iter().map(instances).collect();
    // The first step; the other steps, some of them along another path; the barrier; the second
    // loop and its first step; the end.
    let syncs = job.truth().number("global_syncs");
    assert_eq!(found.iter().sum::<u64>() as f64, syncs + 1.0, "{found:?}");
    assert!(found.len() > 4 && found.contains(&29), "{found:?}");
    assert!(job.report_contains("places that do not correspond"), "{}", job.text());
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_with_tasks_of_their_own_are_groups() {
    needs!(Mpi::OpenMpi);
    job("coupled", Mpi::OpenMpi, 8, "sleep 30 20 3").run_until(|job| {
        let all = phases(job.summary());
        let recurring: Vec<_> = all.iter().filter(|phase| instances(phase) == 29).collect();
        let [phase] = recurring[..] else { panic!("{all:?}") };
        assert_eq!(phase["kind"], "mpmd", "{phase}");
        let groups = phase["groups"].as_array().expect("a phase has groups");
        let ranks: Vec<_> =
            groups.iter().map(|group| group["ranks"].as_str().unwrap_or("")).collect();
        assert_eq!(ranks, ["0-5", "6-7"]);
        // 29 of 30 steps, of 20 and 60 ms.
        let work_s = job.truth().numbers("work_s");
        for (group, (first, last)) in groups.iter().zip([(0, 5), (6, 7)]) {
            let mean_s = work_s[first..=last].iter().sum::<f64>() / (last - first + 1) as f64;
            let found_s = group["mean_work_s"].as_f64().unwrap_or(0.0);
            assert_within("work of a group", found_s, mean_s * 29.0 / 30.0, 0.1);
        }
    });
}

#[test]
fn a_part_of_the_world_delimits_no_phase() {
    needs!(Mpi::OpenMpi);
    job("sync_comms", Mpi::OpenMpi, 4, "sleep 30 5 3").run_until(assert_partition);
}

fn assert_ends_an_instance(hows: &[&str]) {
    for mpi in each_mpi() {
        for how in hows {
            let arguments = format!("sleep 16 10 3 {how}");
            job("alternating", mpi, mpi.ranks(), &arguments).run_until(|job| {
                assert_slow_by_turns(job, ["reduce", "test"].contains(how));
            });
        }
    }
}

#[test]
fn whatever_all_ranks_leave_together_ends_an_instance() {
    assert_ends_an_instance(&["reduce", "fence", "split", "waitall"]);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn what_else_all_ranks_leave_together_ends_an_instance() {
    assert_ends_an_instance(&["allreduce", "reordered", "dup", "wait", "test", "write"]);
}

/// Checks that the ranks that are slow by turns are found. `symptom_varies`: one rank waits in the
/// reduction, the others in the broadcast; or one sample of a loop of tests falls into the call,
/// the other beside it.
fn assert_slow_by_turns(job: &Outcome, symptom_varies: bool) {
    assert_partition(job);
    let (worst, truth) = (job.summary().worst(), job.truth());
    assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.1);
    assert_eq!(worst.first_cause(), truth.text("cause"), "{}", job.text());
    let symptom = worst.symptom_path().last().copied();
    let known = truth.text("symptom").or(symptom.filter(|_| symptom_varies));
    assert_eq!(symptom, known, "{}", job.text());
}

#[test]
#[ignore = "long: scripts/test --all"]
fn persistent_collectives_end_instances() {
    let mpis = [Mpi::Mpich, Mpi::OpenMpiWheel];
    for mpi in mpis.into_iter().filter(|mpi| mpi.available()) {
        for how in ["persistent", "startall"] {
            let job = job("alternating", mpi, mpi.ranks(), &format!("sleep 16 10 3 {how}"));
            job.run_until(|job| assert_slow_by_turns(job, false));
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn collective_calls_on_files_windows_and_topologies_end_instances() {
    for mpi in each_mpi() {
        for how in ["ordered", "view", "file", "window", "cart"] {
            let arguments = format!("sleep 16 10 3 {how}");
            job("alternating", mpi, mpi.ranks(), &arguments).run_until(|job| {
                assert_partition(job);
                // Some libraries need half a second to create a window: even work saves little.
                if mpi == Mpi::OpenMpi && how == "window" {
                    return;
                }
                let (losses, truth) = (job.summary().losses(), job.truth());
                let uneven = losses.iter().find(|loss| loss.kind() == "load_imbalance");
                let uneven = uneven.unwrap_or_else(|| panic!("{}", job.text()));
                assert_within("seconds", uneven.seconds(), truth.number("expected_loss_s"), 0.1);
                assert_eq!(uneven.first_cause(), truth.text("cause"), "{}", job.text());
                let symptom = uneven.symptom_path().last().copied();
                assert_eq!(symptom, truth.text("symptom"), "{}", job.text());
            });
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_thread_that_communicates_has_the_phases() {
    for mpi in each_mpi() {
        for how in ["thread", "helper", "multiple"] {
            let arguments = format!("sleep 30 10 3 {how}");
            job("elsewhere", mpi, mpi.ranks(), &arguments).run_until(|job| {
                let (summary, truth) = (job.summary(), job.truth());
                let count: u64 = phases(summary).iter().map(instances).sum();
                assert_eq!(count as f64, truth.number("global_syncs") + 1.0, "{:?}", job.text());
                let worst = summary.worst();
                assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
                let of_all = truth.number("global_syncs") / 30.0;
                let expected_s = truth.number("expected_loss_s") * of_all;
                assert_within("seconds", worst.seconds(), expected_s, 0.1);
                assert_eq!(worst.first_cause(), Some("work_uneven"), "{}", job.text());
                assert_eq!(worst.symptom_path().last(), Some(&"MPI_Allreduce"));
            });
        }
    }
}

/// A run with eight times the samples that its memory holds keeps its phases by every eighth one.
#[test]
#[ignore = "long: scripts/test --all"]
fn long_runs_keep_their_phases_by_samples_alone() {
    needs!(Mpi::OpenMpi);
    // With less memory, contexts of MPI_Init and of waiting ranks fill the tree.
    let job = job("stages", Mpi::OpenMpi, 2, "sleep 60 20 3");
    let job = job.variable("PLIMSOLL_PERIOD", "150us").variable("PLIMSOLL_MEMORY", "2MiB");
    job.variable("PLIMSOLL_REGIONS", "off").run_until(|job| {
        let summary = job.summary();
        let said = notes(summary, "Calls were not measured");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("one of every 8 samples"), "{said:?}");
        let long: Vec<u64> = phases(summary).iter().map(instances).filter(|it| *it > 1).collect();
        assert!(long.iter().filter(|it| **it >= 54).count() == 2, "{long:?}\n{}", job.text());
        let (worst, truth) = (summary.worst(), job.truth());
        assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
        assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    });
}

/// Returns the notes of a job that begin with `begin`.
fn notes<'a>(summary: &'a Summary, begin: &str) -> Vec<&'a str> {
    let all = summary.at("/notes").as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(Value::as_str).filter(|note| note.starts_with(begin)).collect()
}

#[test]
#[ignore = "long: scripts/test --all"]
fn what_is_not_followed_is_said() {
    needs!(Mpi::OpenMpi);
    let said = "On ranks 0-1 several threads took part in collectives";
    // The thread that called MPI_Init synchronises for as long as the other one has work.
    let elsewhere = run("elsewhere", Mpi::OpenMpi, 2, "sleep 40 10 2 multiple");
    assert_eq!(notes(elsewhere.summary(), said).len(), 1, "{}", elsewhere.text());
    let many = "More than 64 threads of ranks 0-1 lived at the same time";
    // The last of 200 threads works for 3 s, and most exist when the collector first polls them
    // all.
    for (threads, times) in [(60, 0), (200, 1)] {
        let arguments = format!("sleep 1 15 3 {threads}");
        let job = job("threads", Mpi::OpenMpi, 2, &arguments);
        // A digest reads one thread after the other, and follows more of them.
        let job = job.variable("PLIMSOLL_TRACE", "clusters").run().succeeded();
        assert_eq!(notes(job.summary(), many).len(), times, "{}", job.text());
        assert_eq!(notes(job.summary(), "On rank").len(), 0, "{}", job.text());
    }
}

#[test]
fn calls_are_counted_exactly() {
    for mpi in each_mpi() {
        let job = run("imbalance", mpi, 2, "burn 300 0.2 2");
        let calls = job.summary().of_function("MPI_Allreduce");
        assert_eq!((calls.calls, calls.calls_exact), (600.0, true));
        // Allreduce, Gather and Finalize of two ranks; further calls that MPI counts are its own.
        assert!(job.summary().number("/collection/mpi_calls") >= 602.0);
    }
}

#[test]
fn helper_threads_of_the_mpi_library_are_not_the_applications() {
    for mpi in each_mpi() {
        let job = run("threads", mpi, 2, "burn 5 10 3 2");
        assert_eq!(job.summary().number("/run/threads"), job.truth().number("threads"), "{mpi}");
    }
}
