//! perf events by call path, and metrics derived from them.

use std::process::Command;

use serde_json::Value;

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::nodes;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;
use plimsoll_tests::truth::assert_within;

fn faults(counters: &str) -> Job {
    let job = Job::ranks("faults", Mpi::OpenMpi, 4).arguments("sleep 8 1 1 8000");
    job.watch(Watch::Run).options("--period 1ms").variable("PLIMSOLL_COUNTERS", counters)
}

/// Returns the events of all contexts of a function, without those inside of each other.
fn count(summary: &Summary, function: &str, event: &str, which: &str) -> f64 {
    let nodes = summary.of_function(function).nodes;
    let contexts = summary.at("/counters/contexts").as_array().expect("a list");
    let of_function =
        |it: &&Value| it["node"].as_u64().is_some_and(|node| nodes.contains(&(node as usize)));
    let found = contexts.iter().filter(of_function);
    found.filter_map(|it| it["events"][event][which]["sum"].as_f64()).sum()
}

/// Returns whether an event was counted; says so if the kernel refused.
fn is_counted(job: &Outcome, event: &str) -> bool {
    let events = job.summary().at("/counters/events").as_array().expect("a list");
    let found = events.iter().find(|it| it["name"] == event).expect("every event is listed");
    if found["total"].is_null() {
        let reason = found["refused"].as_str().expect("a refusal has a reason");
        assert!(job.report_contains(&format!("{event} is not counted")), "{}", job.text());
        println!("SKIPPED: {event} is not counted here: {reason}");
        return false;
    }
    true
}

#[test]
fn events_belong_to_the_functions_that_cause_them() {
    needs!(Mpi::OpenMpi);
    let job = faults("page-faults,context-switches,task-clock");
    let job = job.variable(
        "PLIMSOLL_METRICS",
        "us = task_clock / page_faults / 1000; zero = 1 / (page_faults - page_faults)",
    );
    job.run_until(|job| {
        let (summary, truth) = (job.summary(), job.truth());
        if is_counted(job, "page-faults") {
            for (function, key) in
                [("touch_pages", "faults"), ("touch_pages_in_thread", "faults_in_thread")]
            {
                let found = count(summary, function, "page-faults", "inclusive");
                assert_within(function, found, truth.number(key), 0.01);
            }
            // The file beside the summary agrees with it; the numbers of one rank are its own.
            let per_rank = summary.per_rank().expect("a job of four ranks has one");
            assert_eq!(per_rank.contradictions(summary.value()), Vec::<String>::new());
            let nodes = summary.of_function("touch_pages").nodes.into_iter();
            let of_node = |node| {
                let counts = per_rank.of(node as u64, "page-faults.inclusive");
                counts.expect("every context and event is in the file")
            };
            let counts = nodes.map(of_node).reduce(|sum, it| {
                sum.into_iter().zip(it).map(|(one, other)| one + other).collect()
            });
            for count in counts.expect("the function is there") {
                assert_within("a rank's faults", count, truth.number("faults") / 4.0, 0.02);
            }
        }
        if is_counted(job, "context-switches") {
            // The initial thread only: the other one's naps have their own contexts. The
            // outermost of the C library's functions has the others in it.
            let nodes = summary.of_function("nanosleep").nodes;
            let contexts = summary.at("/counters/contexts").as_array().expect("a list");
            let is_mine = |it: &&Value| {
                let node = it["node"].as_u64().expect("an index") as usize;
                let path = summary.path_to(node);
                nodes.contains(&node)
                    && !path.contains(&"second_thread")
                    && path.iter().filter(|function| **function == "nanosleep").count() == 1
            };
            let events = contexts.iter().filter(is_mine);
            let found: f64 = events
                .filter_map(|it| it["events"]["context-switches"]["inclusive"]["sum"].as_f64())
                .sum();
            // The naps after the last touching are not in the truth.
            let truth = truth.number("switches") * 9.0 / 8.0;
            assert_within("switches", found, truth, 0.01);
        }
        if is_counted(job, "page-faults") && is_counted(job, "task-clock") {
            let total = |event: &str| {
                let events = summary.at("/counters/events").as_array().expect("a list");
                let found = events.iter().find(|it| it["name"] == event).expect("it is counted");
                found["total"].as_f64().expect("a number")
            };
            let by_hand = total("task-clock") / total("page-faults") / 1000.0;
            assert_within("metric", summary.number("/counters/metrics/0/value"), by_hand, 1e-9);
            assert!(summary.at("/counters/metrics/1/value").is_null(), "a division by zero");
        }
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn events_that_the_machine_lacks_are_named_and_the_run_goes_on() {
    needs!(Mpi::OpenMpi);
    let job = faults("cycles,instructions,page-faults").run().succeeded();
    let (cycles, instructions) = (is_counted(&job, "cycles"), is_counted(&job, "instructions"));
    if cycles && instructions {
        let ipc = job.summary().number("/counters/metrics/0/value");
        assert!((0.05..20.0).contains(&ipc), "{ipc}");
    }
    assert!(job.summary().of_function("touch_pages").mean_s > 0.0);
}

/// The second node brings rank 0 of the analysis to divide on the thread of the program.
#[test]
fn the_analysis_neither_traps_nor_raises_flags_of_the_program() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("float_traps", Mpi::OpenMpi, 2).shares_cores();
    let plain = job.run().succeeded();
    assert_eq!(plain.stdout(), "as it was\n");
    let job = job.watch(Watch::Run).variable("PLIMSOLL_COUNTERS", "page-faults,context-switches");
    let job = job.variable("PLIMSOLL_METRICS", "zero = context_switches / (page_faults * 0)");
    job.run().succeeded().assert_same_as(&plain);
    if nodes::available() {
        job.nodes(2).run().succeeded().assert_same_as(&plain);
    }
}

/// Returns the number of instructions that perf-stat(1) counts in user code, or the reason why it
/// counts none.
fn instructions_by_perf_stat(arguments: &[&str]) -> Result<f64, String> {
    let program = executable("fixed_rounds", Form::C, None);
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ",", "-e", "instructions:u"]).arg(program).args(arguments);
    let output = command.output().map_err(|error| format!("perf cannot be run: {error}"))?;
    let lines = String::from_utf8_lossy(&output.stderr);
    let line = lines.lines().find(|line| line.contains("instructions"));
    let value = line.and_then(|line| line.split(',').next()).unwrap_or("nothing");
    value.parse().map_err(|_| format!("perf stat says {value}"))
}

/// The program's start is in both of perf's numbers.
#[test]
fn instructions_are_those_of_perf_stat() {
    let by_perf = instructions_by_perf_stat(&["400"])
        .and_then(|few| Ok(instructions_by_perf_stat(&["800"])? - few));
    let expected = match by_perf {
        Ok(expected) => expected,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let job = Job::alone("fixed_rounds").arguments("400").watch(Watch::Run);
    let job = job.variable("PLIMSOLL_COUNTERS", "cycles,instructions").options("--period 1ms");
    let job = job.run().succeeded();
    if is_counted(&job, "instructions") {
        let found = count(job.summary(), "count_rounds", "instructions", "inclusive");
        assert_within("instructions", found, expected, 0.02);
    }
}

#[test]
fn without_counters_the_summary_has_none_and_wrong_names_are_told() {
    let job = Job::alone("plain").arguments("burn 10 10").watch(Watch::Run);
    let plain = job.clone().run().succeeded();
    assert!(plain.summary().value().get("counters").is_none());
    let wrong = job.variable("PLIMSOLL_COUNTERS", "cycels");
    let wrong = wrong.variable("PLIMSOLL_METRICS", "ipc = a +* b").run().succeeded();
    let messages = wrong.plimsoll_messages().join("\n");
    assert!(messages.contains("`cycels` is not the name of an event"), "{messages}");
    assert!(messages.contains("character 10: "), "{messages}");
}
