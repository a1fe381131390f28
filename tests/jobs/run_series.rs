//! Runs of one program on several numbers of ranks, compared by the command.

use std::path::PathBuf;
use std::process::Command;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::is_within;
use serde_json::Value;

const RANKS: [u32; 4] = [1, 2, 4, 8];

fn series() -> Vec<Outcome> {
    let job = |ranks| {
        Job::ranks("growth", Mpi::OpenMpi, ranks)
            .arguments("sleep 10 20 1 strong")
            .watch(Watch::Run)
            .run()
            .succeeded()
    };
    RANKS.into_iter().map(job).collect()
}

fn compared(jobs: &[Outcome]) -> Value {
    let files: Vec<PathBuf> =
        jobs.iter().flat_map(|job| job.files_ending(".plimsoll.json")).collect();
    let mut command = Command::new(&artifacts().command);
    let output = command.args(["diff", "--format", "json"]).args(files).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the excess work of a function and its growth, by the name of its context.
fn found<'v>(comparison: &'v Value, name: &str) -> (f64, Option<&'v str>) {
    let contexts = comparison["contexts"].as_array().expect("contexts");
    let context = contexts.iter().find(|it| it["name"] == name && it["rest"] == false);
    let context = context.unwrap_or_else(|| panic!("no {name} among {contexts:#?}"));
    let excess = context["excess"]["inclusive"].as_f64().expect("a number");
    (excess, context["growth"]["model"].as_str())
}

/// Returns the excess according to the subject: seconds of the last run beyond those of the first,
/// divided by ranks times elapsed time.
fn true_excess(jobs: &[Outcome], key: &str) -> f64 {
    let (first, last) = (jobs[0].truth(), jobs[jobs.len() - 1].truth());
    let run_s = last.number("ranks") * last.number("elapsed_s");
    (last.number(key) - first.number(key)) / run_s
}

#[test]
#[ignore = "long: scripts/test --all"]
fn excess_work_of_a_series_is_what_the_subject_says() {
    needs!(Mpi::OpenMpi);
    retry_on_noise(series, |jobs| {
        let comparison = compared(jobs);
        assert_eq!(comparison["expectation"]["kind"], "strong");
        for (name, key, model) in [
            ("replicated", "replicated_s", "p"),
            ("reduction", "reduction_s", "p log p"),
            ("MPI_Barrier in hand_out", "hand_out_s", "p"),
        ] {
            let (excess, growth) = found(&comparison, name);
            let truth = true_excess(jobs, key);
            assert!(is_within(excess, truth, 0.10), "{name}: {excess} instead of {truth}");
            assert_eq!(growth, Some(model), "{name}");
        }
        assert_eq!(found(&comparison, "perfect").1, Some("constant"));
    });
}
