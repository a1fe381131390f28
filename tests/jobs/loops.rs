//! Loops: found in the machine code, and their iterations counted from samples.

use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;
use plimsoll_tests::truth::Truth;
use serde_json::Value;

fn near(value: &Value, truth: f64, within: f64) {
    let value = value.as_f64().unwrap_or(f64::NAN);
    assert!((value - truth).abs() <= within * truth, "{value} is not {truth}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn loops_of_a_known_source() {
    needs!(Mpi::OpenMpi);
    Job::ranks("loops", Mpi::OpenMpi, 2).watch(Watch::Run).run_until(|job| {
        let summary = job.summary();
        iterations_are_those_of_the_source(summary);
        iterations_that_become_shorter_stay_in_order(summary, &job.truth());
        iterations_that_only_sleep_are_counted(summary);
        iterations_of_a_tail_call_are_not_invented(summary);
        iterations_shorter_than_a_period_are_not_invented(summary);
    });
}

fn iterations_are_those_of_the_source(summary: &Summary) {
    let steps = summary.loop_of("steps");
    assert_eq!(steps["executions"], 2, "once on each rank: {steps:#}");
    assert_eq!(steps["iterations"]["accepted"], 24, "{steps:#}");
    assert_eq!(steps["iterations"]["calls_seen"], 24, "{steps:#}");
    assert_eq!(steps["iterations"]["exact"], true, "{steps:#}");
    assert_eq!(steps["ranks"], "0-1");
    near(&steps["mean_duration_s"], 24.0 * 0.170, 0.1);
    // Iterations that solve differ from the others, even if one is disturbed.
    let mut alike = [0; 2];
    for cluster in steps["clusters"].as_array().unwrap() {
        let numbers = numbers(cluster["iterations"].as_str().unwrap());
        let solves = numbers[0] % 2;
        assert!(numbers.iter().all(|number| number % 2 == solves), "{steps:#}");
        if numbers.len() > 8 {
            alike[solves as usize] = numbers.len();
            near(&cluster["mean_s"], if solves == 1 { 0.190 } else { 0.150 }, 0.1);
        }
    }
    assert!(alike.iter().all(|number| *number > 8), "{steps:#}");

    let assemble = summary.loop_of("assemble");
    assert_eq!(assemble["executions"], 2 * 24, "{assemble:#}");
    assert_eq!(assemble["iterations"]["accepted"], 3, "{assemble:#}");
    let line = assemble["path"].as_array().unwrap().last().unwrap()["line"].as_u64().unwrap();
    let source = std::fs::read_to_string(
        plimsoll_tests::artifacts::workspace_dir().join("tests/programs/loops.c"),
    );
    let shown = source.unwrap().lines().nth(line as usize - 1).unwrap_or_default().to_owned();
    assert!(shown.contains("for (int i = 0; i < elements; i++)"), "line {line}: {shown}");
}

fn iterations_that_become_shorter_stay_in_order(summary: &Summary, truth: &Truth) {
    let levels = summary.loop_of("levels");
    assert_eq!(levels["iterations"]["accepted"], 10, "{levels:#}");
    let durations: Vec<f64> =
        levels["durations_s"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    let truth = truth.numbers("levels_s");
    assert_eq!(durations.len(), truth.len());
    for (level, (duration, truth)) in durations.iter().zip(&truth).enumerate() {
        // A boundary is exact to a period.
        assert!((duration - truth).abs() < 0.1 * truth + 0.004, "{level}: {duration} not {truth}");
    }
    assert!(levels["clusters"].as_array().unwrap().len() >= 3, "{levels:#}");
}

fn iterations_that_only_sleep_are_counted(summary: &Summary) {
    let sleeps = summary.loop_of("sleeps");
    assert_eq!(sleeps["iterations"]["accepted"], 12, "{sleeps:#}");
    near(&sleeps["mean_duration_s"], 12.0 * 0.060, 0.1);
    let calls = summary.of_function("wait_a_while").calls;
    assert!(calls >= 22.0, "{calls} of 2 x 12 calls, and the first may be missed on each rank");
}

fn iterations_of_a_tail_call_are_not_invented(summary: &Summary) {
    let halves = summary.loop_of("halves");
    assert_eq!(halves["iterations"]["accepted"], 10, "{halves:#}");
    assert_eq!(halves["iterations"]["rejected"], 0, "{halves:#}");
}

fn iterations_shorter_than_a_period_are_not_invented(summary: &Summary) {
    for it in summary.at("/loops").as_array().unwrap() {
        let path = it["path"].as_array().unwrap();
        assert_ne!(path.last().unwrap()["function"], "short_ones", "{it:#}");
    }
    // The loop is in the tree.
    let found = summary
        .at("/tree/frames")
        .as_array()
        .unwrap()
        .iter()
        .any(|frame| frame["kind"] == "loop" && frame["function"] == "short_ones");
    assert!(found, "{}", summary.at("/tree/frames"));
}

/// As in ICS18 for AMG2013 (Table 7; hypre contains its solver): the set-up loop has one iteration
/// fewer than the grid has levels, and its last iterations are too short to be accepted; the solve
/// loop has one iteration per multigrid cycle.
#[test]
fn iterations_of_multigrid_are_those_that_it_prints() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("multigrid", Mpi::OpenMpi, 2).form(Form::Hypre).arguments("64 1 1");
    job.options("--period 1ms").watch(Watch::Run).run_until(|job| {
        let (levels, cycles) = levels_and_cycles(job.stdout());
        let counts = |function: &str| {
            let iterations = &job.summary().loop_of(function)["iterations"];
            ["accepted", "rejected"].map(|key| iterations[key].as_u64().unwrap_or_default())
        };
        let [accepted, rejected] = counts("hypre_BoomerAMGSetup");
        assert_eq!(accepted + rejected, levels - 1, "set-up of {levels} levels: {}", job.text());
        assert!(accepted >= levels / 2, "set-up: {accepted} of {levels} levels: {}", job.text());
        assert_eq!(counts("hypre_BoomerAMGSolve"), [cycles, 0], "solve: {}", job.text());
    });
}

/// Returns the levels of the grid, which are rows of the first table that hypre prints, and the
/// cycles of the solver, which the subject prints.
fn levels_and_cycles(printed: &str) -> (u64, u64) {
    let mut table = printed.lines().skip_while(|line| !line.starts_with("lev "));
    let levels = table.by_ref().skip(2).take_while(|line| !line.trim().is_empty()).count();
    let cycles = printed
        .lines()
        .find_map(|line| line.strip_prefix("multigrid: 2 ranks, ")?.strip_suffix(" iterations"))
        .and_then(|cycles| cycles.parse().ok());
    (levels as u64, cycles.expect("the subject prints its iterations"))
}

#[test]
fn a_loop_of_a_program_in_cxx_has_its_line() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).form(Form::Cxx).arguments("sleep 20 20 3");
    job.watch(Watch::Run).run_until(|job| {
        let it = job.summary().loop_of("main");
        assert_eq!(it["iterations"]["accepted"], 20, "{it:#}");
        let header = it["path"].as_array().and_then(|path| path.last()).expect("a path");
        let file = header["file"].as_str().unwrap_or_default();
        assert!(file.ends_with("imbalance.cpp") && header["line"].is_u64(), "{it:#}");
    });
}

const OPTIMISED: [&[&str]; 3] = [&["-O0"], &["-O2"], &["-O3", "-march=native"]];

/// Returns the loops of a build of a subject, and a text to show if they are not as expected.
fn build(
    subject: &str,
    compiler: &'static str,
    flags: &'static [&'static str],
    assertions: impl Fn(&Summary, &str),
) {
    let job = Job::alone(subject).form(Form::By(compiler, flags)).arguments("6 15");
    job.options("--period 1ms").watch(Watch::Run).run_until(|job| {
        let summary = job.summary();
        assertions(summary, &format!("{compiler} {flags:?}: {:#}", summary.at("/loops")));
    });
}

/// Returns the iterations of the loops of a function, with the number of loops around each.
fn counted(summary: &Summary, function: &str) -> Vec<(usize, u64)> {
    let loops = summary.at("/loops").as_array().expect("a list of loops");
    let is_of = |frame: &Value| frame["kind"] == "loop" && frame["function"] == function;
    let mut found: Vec<(usize, u64)> = loops
        .iter()
        .filter_map(|it| {
            let path = it["path"].as_array()?;
            let (last, outer) = path.split_last()?;
            let around = outer.iter().filter(|frame| is_of(frame)).count();
            let accepted = it["iterations"]["accepted"].as_u64()?;
            is_of(last).then_some((around, accepted))
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
#[ignore = "long: scripts/test --all"]
fn loops_of_every_shape_are_counted_whatever_a_compiler_makes_of_them() {
    for compiler in ["gcc", "clang"] {
        for flags in OPTIMISED {
            build("shapes", compiler, flags, assert_shapes);
        }
    }
}

fn assert_shapes(summary: &Summary, what: &str) {
    let counts_of = |function| counted(summary, function);
    assert_eq!(counts_of("nested"), [(0, 6), (1, 3), (2, 2)], "{what}");
    // The inner loop has 3.5 iterations on average.
    let triangular = counts_of("triangular");
    assert_eq!(triangular[0], (0, 6), "{what}");
    assert!([3, 4].contains(&triangular[1].1), "{what}");
    for function in ["skipping", "switching", "inner"] {
        assert_eq!(counts_of(function), [(0, 6)], "{function}, {what}");
    }
    // The condition is evaluated once more than the body runs.
    assert!([6, 7].contains(&counts_of("asking")[0].1), "{what}");
    // A loop with its exit in the middle may be rotated, with the first half of its first iteration
    // before it.
    assert!([5, 6].contains(&counts_of("searching")[0].1), "{what}");
    // Either the loop is unrolled completely, or there are two loops at each level.
    assert!(counts_of("recursive").iter().all(|(_, accepted)| *accepted == 2), "{what}");
    // As many as samples can show, where no code stands beside the inner loop.
    let perfect = counts_of("perfect");
    assert!(!perfect.is_empty() && perfect[0].1 <= 6, "{what}");
    assert!(perfect.iter().all(|(_, accepted)| *accepted <= 18), "{what}");
    // Iterations are far shorter than a period.
    assert_eq!(counts_of("burn_ms"), [], "{what}");
    assert!(counts_of("summing").iter().all(|(_, accepted)| *accepted <= 1), "{what}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn do_loops_are_counted_whatever_the_compiler_makes_of_them() {
    for flags in OPTIMISED {
        build("nests", "gfortran", flags, |summary, what| {
            assert_eq!(counted(summary, "nests::sweep"), [(0, 6), (1, 3)], "{what}");
            assert_eq!(counted(summary, "nests::until"), [(0, 6)], "{what}");
            assert_eq!(counted(summary, "nests::burn"), [], "{what}");
        });
    }
}
