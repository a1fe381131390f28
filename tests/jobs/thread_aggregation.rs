//! Threads of processes, aggregated in each way, in the job and in the digest of its spool.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

const RANKS: u32 = 2;
const TOLERANCE: f64 = 0.10;

/// Runs two ranks with three threads each that work for once, twice and three times as long.
fn with(aggregation: &str, check: impl Fn(&Outcome)) {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("threads", Mpi::OpenMpi, RANKS).arguments("sleep 60 10 1 3");
    job.variable("PLIMSOLL_THREADS", aggregation).watch(Watch::Run).run_until(|job| {
        assert_eq!(job.summary().text("/threads/aggregation"), aggregation);
        check(job);
    });
}

fn role<'j>(job: &'j Outcome, name: &str) -> &'j Value {
    let roles = job.summary().at("/threads/roles").as_array().expect("it is a list");
    roles.iter().find(|it| it["role"] == name).unwrap_or_else(|| panic!("no {name}: {roles:?}"))
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().expect("it is a number")
}

#[test]
fn the_slowest_and_the_fastest_thread_of_each_process_are_named() {
    with("key", |job| {
        let works_s = job.truth().numbers("work_s");
        for (name, truth_s) in
            [("fastest", works_s[0]), ("rest", works_s[1]), ("slowest", works_s[2])]
        {
            let role = role(job, name);
            assert_eq!((&role["ranks"], &role["threads"]), (&"0-1".into(), &RANKS.into()));
            assert_within(name, seconds(&role["work_s"]), truth_s, TOLERANCE);
        }
        assert!(seconds(&role(job, "initial")["work_s"]) < 0.5 * works_s[0], "waits in join");
        for (rank, process) in
            job.summary().at("/threads/processes").as_array().unwrap().iter().enumerate()
        {
            assert_eq!((&process["rank"], &process["threads"]), (&rank.into(), &4.into()));
            let key = &process["key"];
            assert_within("slowest", seconds(&key["slowest"]["work_s"]), works_s[2], TOLERANCE);
            assert_within("fastest", seconds(&key["fastest"]["work_s"]), works_s[0], TOLERANCE);
        }
        let path = job.summary().at("/threads/distinction/path").to_string();
        assert!(path.contains("work_in_thread"), "{path}");
        assert!(
            job.report_contains("The slowest differ from the fastest mostly in"),
            "{}",
            job.text()
        );
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn threads_of_one_call_tree_are_a_class_and_all_threads_can_be_kept() {
    let work_s = |job: &Outcome| job.truth().numbers("work_s");
    with("calltree", |job| {
        let class = role(job, "class 1");
        assert_eq!(class["threads"], 3 * RANKS);
        let mean_s = work_s(job).iter().sum::<f64>() / 3.0;
        assert_within("class", seconds(&class["work_s"]), mean_s, TOLERANCE);
    });
    with("all", |job| {
        let classes = job.summary().at("/threads/processes/1/classes").as_array().unwrap();
        let mut found: Vec<f64> = classes.iter().map(|it| seconds(&it["work_s"])).collect();
        found.sort_by(f64::total_cmp);
        assert_eq!(found.len(), 3);
        for (found, truth) in found.into_iter().zip(work_s(job)) {
            assert_within("thread", found, truth, TOLERANCE);
        }
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_set_has_the_spread_over_threads_and_a_sum_has_nothing_of_them() {
    with("set", |job| {
        let works_s = job.truth().numbers("work_s");
        let nodes = job.summary().at("/tree/nodes").as_array().unwrap();
        let mut sleeping = nodes.iter().map(|it| &it["thread_times"]).filter(|times| {
            times["threads"].as_f64() == Some(f64::from(3 * RANKS))
                && seconds(&times["mean"]) > 0.01
        });
        let times = sleeping.next().unwrap_or_else(|| panic!("no such context: {}", job.text()));
        assert_within("minimum", seconds(&times["minimum"]), works_s[0], TOLERANCE);
        assert_within("maximum", seconds(&times["maximum"]), works_s[2], TOLERANCE);
        assert_within("mean", seconds(&times["mean"]), works_s[1], TOLERANCE);
    });
    with("sum", |job| {
        assert_eq!(job.summary().at("/threads/roles"), &Value::Array(Vec::new()));
        let nodes = job.summary().at("/tree/nodes").as_array().unwrap();
        assert!(nodes.iter().all(|node| node["thread_times"] == serde_json::json!({})));
    });
}
