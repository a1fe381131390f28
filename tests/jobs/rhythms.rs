//! Representative iterations: planted kinds of iterations, and LAMMPS, which rebuilds its neighbour
//! lists in every tenth step.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use plimsoll_tests::artifacts::{artifacts, workspace_dir};
use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use serde_json::Value;

/// Returns the clusters of the outermost loop of a function, the heaviest first.
fn clusters<'a>(job: &'a Outcome, function: &str) -> Vec<&'a Value> {
    let found = job.summary().loop_of(function)["clusters"].as_array().expect("a list");
    let mut found: Vec<&Value> = found.iter().collect();
    found.sort_by_key(|it| std::cmp::Reverse(it["weight"].as_u64()));
    found
}

fn members(cluster: &Value) -> Vec<u64> {
    numbers(cluster["iterations"].as_str().expect("a list"))
}

/// Returns whether the distinction of a cluster lies in a function, and the time there.
fn distinct_in<'a>(cluster: &'a Value, function: &str) -> Option<&'a Value> {
    let path = cluster["distinction"]["path"].as_array()?;
    path.iter().any(|frame| frame["function"] == function).then(|| &cluster["distinction"])
}

/// Every cluster is represented by one of its members, and all weights together are the loop's.
fn assert_represented(job: &Outcome, function: &str, iterations: u64) {
    let clusters = clusters(job, function);
    for cluster in &clusters {
        let representative = cluster["representative"].as_u64().expect("a representative");
        assert!(members(cluster).contains(&representative), "{cluster:#}");
    }
    let all: u64 = clusters.iter().filter_map(|it| it["weight"].as_u64()).sum();
    assert_eq!(all, iterations, "{clusters:#?}");
}

#[test]
fn planted_kinds_of_iterations_have_representatives() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("rhythms", Mpi::OpenMpi, 2).options("--period 1ms").watch(Watch::Run);
    let job = job.run_until(|job| {
        every_tenth_iteration_is_a_cluster(job);
        a_drift_has_no_period(job);
        three_kinds_in_turns_have_period_three(job);
        planted_kinds_are_exported(job);
    });
    exports_show_just_the_representatives(&job);
}

fn every_tenth_iteration_is_a_cluster(job: &Outcome) {
    assert_represented(job, "every_tenth", 60);
    let clusters = clusters(job, "every_tenth");
    // A disturbed iteration may be a cluster of its own.
    let usual = clusters[0];
    assert!(usual["weight"].as_u64() >= Some(40) && usual["period"].is_null(), "{usual:#}");
    let rebuilding = clusters.iter().find(|it| it["period"] == 10);
    let rebuilding = *rebuilding.unwrap_or_else(|| panic!("{clusters:#?}"));
    assert!(rebuilding["weight"].as_u64() >= Some(5), "{rebuilding:#}");
    assert!(members(rebuilding).iter().all(|it| it % 10 == 9), "{rebuilding:#}");
    let distinction = distinct_in(rebuilding, "rebuild_list");
    let distinction = distinction.unwrap_or_else(|| panic!("{rebuilding:#}"));
    assert_eq!(distinction["others_s"], 0.0, "{distinction:#}");
    let time_s = distinction["mean_s"].as_f64().unwrap_or_default();
    assert!((0.025..0.05).contains(&time_s), "{distinction:#}");
    let words = job.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("(every 10th, such as"), "{}", job.text());
}

fn a_drift_has_no_period(job: &Outcome) {
    assert_represented(job, "drift", 40);
    let clusters = clusters(job, "drift");
    assert!(clusters.len() >= 3, "{clusters:#?}");
    for cluster in clusters {
        assert!(cluster["period"].is_null(), "{cluster:#}");
        // Iteration n sleeps for 8 ms and n halves; a busy machine wakes late.
        let representative = cluster["representative"].as_f64().unwrap_or_default();
        let asleep_s = 0.008 + 0.0005 * representative;
        let mean_s = cluster["mean_s"].as_f64().unwrap_or_default();
        assert!((0.5 * mean_s..1.1 * mean_s).contains(&asleep_s), "{cluster:#}");
    }
}

fn three_kinds_in_turns_have_period_three(job: &Outcome) {
    assert_represented(job, "turns", 36);
    let clusters = clusters(job, "turns");
    for (remainder, function) in ["assemble", "solve", "exchange"].into_iter().enumerate() {
        let has = |it: &&&Value| members(it).iter().all(|it| it % 3 == remainder as u64);
        let cluster = clusters.iter().find(has).unwrap_or_else(|| panic!("{clusters:#?}"));
        assert!(cluster["weight"].as_u64() >= Some(9), "{cluster:#}");
        assert_eq!(cluster["period"], 3, "{cluster:#}");
        // An iteration without `assemble` differs from the others by its other calls.
        let distinct = ["assemble", "solve", "exchange"];
        assert!(distinct.iter().any(|it| distinct_in(cluster, it).is_some()), "{cluster:#}");
        let slices = cluster["slices"].as_array().expect("a loop of a third of the run");
        let nodes = job.summary().of_function(function).nodes;
        let is_of = |slice: &Value| nodes.contains(&(slice["node"].as_u64().unwrap() as usize));
        assert!(slices.iter().any(is_of), "{function}: {slices:#?}");
    }
}

fn report(summary: &Path, options: &[&str]) -> Output {
    Command::new(&artifacts().command)
        .arg("report")
        .args(options)
        .arg(summary)
        .output()
        .expect("the command was built")
}

/// Exports the representative iterations for Firefox. Returns the profile's threads, and what the
/// command printed to stderr.
fn exported(summary: &Path) -> (Vec<Value>, String) {
    let exported = report(summary, &["--format", "firefox", "--iterations", "representative"]);
    let profile: Value = serde_json::from_slice(&exported.stdout).expect("JSON");
    let threads = profile["threads"].as_array().expect("a list");
    (threads.clone(), String::from_utf8_lossy(&exported.stderr).into_owned())
}

fn names(threads: &[Value]) -> Vec<&str> {
    threads.iter().filter_map(|it| it["name"].as_str()).collect()
}

fn planted_kinds_are_exported(job: &Outcome) {
    let (threads, _) = exported(&job.files_ending(".plimsoll.json")[0]);
    let names = names(&threads);
    let stands = |what: &str| names.iter().filter(|name| name.ends_with(what)).count();
    assert_eq!(stands("of 60 iterations, one in 10"), 1, "{names:?}");
    assert_eq!(stands("of 36 iterations, one in 3"), 3, "{names:?}");
    iterations_of_a_drift_last_as_long_as_they_did(&threads);
}

fn exports_show_just_the_representatives(job: &Outcome) {
    let summary = job.files_ending(".plimsoll.json").remove(0);
    let (threads, _) = exported(&summary);
    let names = names(&threads);
    let loops = job.summary().at("/loops").as_array().expect("a list");
    let several = |it: &&Value| it["iterations"]["accepted"].as_u64() > Some(1);
    let described = loops.iter().filter(several).filter_map(|it| it["clusters"].as_array()).filter(
        |clusters| clusters.iter().any(|cluster| cluster["slices"] != Value::Array(Vec::new())),
    );
    assert_eq!(names.len(), described.map(Vec::len).sum::<usize>(), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("iteration ")), "{names:?}");
    without_the_spool_the_mean_course_is_exported(&summary);
    let refused = report(&summary, &["--format", "pprof", "--iterations", "representative"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("--format perfetto or firefox"), "{message}");
}

/// Iteration n sleeps for 8 ms and n halves: of a cluster of a drift, no other one lasts as long.
fn iterations_of_a_drift_last_as_long_as_they_did(threads: &[Value]) {
    let is_of_drift = |thread: &&Value| {
        thread["processName"].as_str().is_some_and(|name| name.ends_with("in drift"))
    };
    let of_drift: Vec<&Value> = threads.iter().filter(is_of_drift).collect();
    assert!(of_drift.len() >= 3, "{}", of_drift.len());
    for thread in of_drift {
        let name = thread["name"].as_str().expect("a name");
        let number = name.trim_start_matches("iteration ").split(',').next().expect("a number");
        let asleep_ms = 8.0 + 0.5 * number.parse::<f64>().expect("a number");
        let deltas = thread["samples"]["timeDeltas"].as_array().expect("a list");
        let lasts_ms: f64 = deltas.iter().filter_map(Value::as_f64).sum();
        // A busy machine wakes late.
        assert!((asleep_ms..2.0 * asleep_ms).contains(&lasts_ms), "{name}: {lasts_ms} ms");
    }
}

fn without_the_spool_the_mean_course_is_exported(summary: &Path) {
    let name = summary.file_name().expect("a file").to_string_lossy().replace(".json", ".d");
    let (spool, away) = (summary.with_file_name(name), summary.with_file_name("away"));
    fs::rename(&spool, &away).expect("the run kept its spool");
    let (threads, message) = exported(summary);
    fs::rename(&away, &spool).expect("it was renamed");
    assert!(message.contains("is missing. The mean course of each cluster is"), "{message}");
    let is_mean = |it: &Value| it["name"].as_str().is_some_and(|it| it.starts_with("mean course"));
    assert!(threads.iter().all(is_mean), "{threads:#?}");
}

/// The input makes every tenth step build the lists anew, needed or not.
#[test]
fn steps_of_lammps_that_rebuild_neighbour_lists_are_a_cluster() {
    needs!(Mpi::OpenMpi);
    let input = workspace_dir().join("tests/lammps/rebuilds.in");
    let job = Job::ranks("lmp", Mpi::OpenMpi, 1)
        .form(Form::Installed)
        .arguments(&format!("-in {} -log none", input.display()))
        .variable("OMP_NUM_THREADS", "1")
        .options("--period 1ms")
        .watch(Watch::Run);
    job.run_until(|job| {
        let clusters = clusters(job, "LAMMPS_NS::Verlet::run");
        let rebuilding = clusters.iter().find(|it| it["period"] == 10);
        let rebuilding = rebuilding.unwrap_or_else(|| panic!("{clusters:#?}"));
        let members = members(rebuilding);
        assert!(members.len() >= 8, "{rebuilding:#}");
        let distinction = &rebuilding["distinction"];
        let path = distinction["path"].as_array().expect("a distinction");
        let builds = |frame: &Value| {
            let name = frame["function"].as_str().unwrap_or_default();
            name.contains("Neighbor::build") || name.contains("NPair")
        };
        assert!(path.iter().any(builds), "{distinction:#}");
    });
}
