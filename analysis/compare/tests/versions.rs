//! Two versions of a program: false alarms are rare, a planted slow-down is found and named.

use plimsoll_compare::comparison::{Comparison, VerdictKind};
use plimsoll_compare::experiment::{ExperimentFrame, ExperimentNode};
use plimsoll_compare::{Experiment, Options, compare, text};
use plimsoll_summary::FrameKind;
use serde_json::Value;

/// Times of a run: elapsed, of ten functions, of the collective that ends each step.
#[derive(Clone, Debug)]
struct Times {
    elapsed_s: f64,
    contexts_s: Vec<(String, f64)>,
    iteration_deviation: f64,
}

fn run(times: &Times, argument: usize) -> Experiment {
    let frame = |kind, function: &str, module: &str| ExperimentFrame {
        kind,
        function: function.into(),
        file: None,
        line: None,
        offset: None,
        module: module.into(),
    };
    let node = |parent, frame, own_s: [f64; 4]| ExperimentNode { parent, frame, calls: 20, own_s };
    let mut frames = vec![frame(FrameKind::Function, "main", "versions")];
    let mut nodes = vec![node(None, 0, [0.0; 4])];
    for (name, time_s) in &times.contexts_s {
        let waits = name.starts_with("MPI_");
        let kind = if waits { FrameKind::Mpi } else { FrameKind::Function };
        let mut own_s = [0.0; 4];
        own_s[usize::from(waits)] = 2.0 * time_s;
        frames.push(frame(kind, name, "versions"));
        nodes.push(node(Some(0), frames.len() as u32 - 1, own_s));
    }
    Experiment {
        source: format!("{argument}/run.plimsoll.json"),
        argument,
        executable: "versions".into(),
        elapsed_s: times.elapsed_s,
        ranks: 2,
        measured_ranks: 2,
        threads: 2,
        nodes: 1,
        complete: true,
        period_s: 0.004,
        iteration_deviation: Some(times.iteration_deviation),
        frames,
        nodes_of_tree: nodes,
        ..Experiment::default()
    }
}

fn compared(before: &[Times], after: &[Times]) -> Comparison {
    let runs = |times: &[Times], argument| -> Vec<Experiment> {
        times.iter().map(|times| run(times, argument)).collect()
    };
    let all = [runs(before, 0), runs(after, 1)].concat();
    let options = Options { expect: None, fail_above: Some(0.002) };
    compare(&all, &options).expect("two versions")
}

fn is_flagged(comparison: &Comparison) -> bool {
    comparison.verdict.kind != VerdictKind::NoDifference
}

/// Runs of `tests/programs/versions.c` on two sleeping ranks, recorded beside other programs on the
/// machine: times vary by 30 %, those of one run together.
fn recorded() -> Vec<Times> {
    let runs: Value = serde_json::from_str(include_str!("noise/busy-machine.json")).expect("JSON");
    all_times(&runs)
}

fn all_times(runs: &Value) -> Vec<Times> {
    let seconds = |value: &Value| value.as_f64().expect("seconds");
    let times = |run: &Value| {
        let contexts = run["contexts_s"].as_object().expect("contexts");
        let mut steps: Vec<f64> =
            run["iterations_s"].as_array().expect("steps").iter().map(seconds).collect();
        steps.sort_by(f64::total_cmp);
        let quarter = |quarters: usize| steps[(steps.len() - 1) * quarters / 4];
        Times {
            elapsed_s: seconds(&run["elapsed_s"]),
            contexts_s: contexts.iter().map(|(name, it)| (name.clone(), seconds(it))).collect(),
            iteration_deviation: (quarter(3) - quarter(1)) / 1.349 / quarter(2),
        }
    };
    runs.as_array().expect("runs").iter().map(times).collect()
}

/// Returns the sum of twelve uniform numbers minus six: about normally distributed.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Deviation of a function's time between runs on a quiet machine. In the runs in `growth/`, the
/// times of `perfect` and `replicated` deviate by 0.1 % to 0.2 %.
const QUIET_DEVIATION: f64 = 0.005;

/// A synthetic run: ten functions of 1 s, `part_3` slower by a factor.
fn made(random: &mut fastrand::Rng, factor: f64) -> Times {
    let common = 1.0 + QUIET_DEVIATION / 2.0 * normal(random);
    let contexts_s: Vec<(String, f64)> = (0..10)
        .map(|part| {
            let factor = if part == 3 { factor } else { 1.0 };
            let noise = 1.0 + QUIET_DEVIATION * normal(random);
            (format!("part_{part}"), factor * noise * common)
        })
        .collect();
    let elapsed_s = contexts_s.iter().map(|(_, time_s)| time_s).sum::<f64>() * 1.01;
    Times { elapsed_s, contexts_s, iteration_deviation: QUIET_DEVIATION }
}

fn flagged_of_200(mut pair: impl FnMut() -> Comparison) -> usize {
    (0..200).filter(|_| is_flagged(&pair())).count()
}

/// Ten functions take 8 s each on all threads of two ranks, and one of them then 8.8 s: 1 % more.
#[test]
fn changes_are_parts_of_the_time_of_all_threads() {
    let made = |last_s: f64| Times {
        elapsed_s: 10.0,
        contexts_s: (0..10)
            .map(|part| (format!("part_{part}"), if part == 9 { last_s } else { 8.0 }))
            .collect(),
        iteration_deviation: 0.001,
    };
    let comparison = compared(&[made(8.0)], &[made(8.8)]);
    let regression = comparison.regression.expect("two versions");
    assert_eq!(regression.contexts[0].name, "part_9");
    assert!((regression.contexts[0].run_change - 0.01).abs() < 1e-9, "{regression:?}");
}

/// The verdict asks for several standard errors, so the column is not named noise.
#[test]
fn the_text_counts_ranks_and_names_the_standard_error() {
    let mut random = fastrand::Rng::with_seed(1);
    let times = made(&mut random, 1.0);
    let text = text(&compared(std::slice::from_ref(&times), std::slice::from_ref(&times)));
    assert!(text.starts_with("versions: 2 runs on 2 ranks; "), "{text}");
    let header = text.lines().find(|line| line.starts_with("Context ")).expect("a table");
    assert!(header.ends_with("    change  std. error"), "{header}");
    let alone = [0, 1].map(|argument| Experiment { ranks: 1, ..run(&times, argument) });
    let comparison = compare(&alone, &Options::default()).expect("comparable");
    let text = plimsoll_compare::text(&comparison);
    assert!(text.starts_with("versions: 2 runs on 1 rank; "), "{text}");
}

#[test]
fn equal_versions_on_a_quiet_machine_raise_no_alarm() {
    let mut random = fastrand::Rng::with_seed(1);
    for repetitions in [1, 2, 5] {
        let flagged = flagged_of_200(|| {
            let mut runs =
                || -> Vec<Times> { (0..repetitions).map(|_| made(&mut random, 1.0)).collect() };
            compared(&runs(), &runs())
        });
        assert!(flagged <= 2, "{flagged} of 200 pairs of {repetitions} runs");
    }
}

#[test]
fn equal_versions_on_a_busy_machine_raise_no_alarm() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut runs = recorded();
    for repetitions in [1, 2, 5] {
        let flagged = flagged_of_200(|| {
            random.shuffle(&mut runs);
            let (before, rest) = runs.split_at(repetitions);
            compared(before, &rest[..repetitions])
        });
        assert!(flagged <= 2, "{flagged} of 200 pairs of {repetitions} runs");
    }
}

#[test]
fn a_slow_function_of_ten_is_found_with_five_repetitions() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut found = 0;
    for _ in 0..100 {
        let mut runs =
            |factor: f64| -> Vec<Times> { (0..5).map(|_| made(&mut random, factor)).collect() };
        let comparison = compared(&runs(1.0), &runs(1.03));
        let regression = comparison.regression.as_ref().expect("two versions");
        let named: Vec<&str> = regression
            .contexts
            .iter()
            .filter(|difference| difference.significant)
            .map(|difference| difference.name.as_str())
            .collect();
        found += usize::from(named == ["part_3"]);
    }
    assert!(found >= 95, "found and nothing else named in {found} of 100");
}

/// Five runs of `tests/programs/versions.c` of each kind on two sleeping ranks, recorded in turn
/// without disturbance: `before`; `after`, where `part_3` sleeps 3 % longer; and `again`, the first
/// version a second time.
#[test]
fn a_real_slow_down_is_named_and_repeated_runs_raise_no_alarm() {
    let runs: Value = serde_json::from_str(include_str!("noise/quiet-machine.json")).expect("JSON");
    let [before, after, again] =
        ["before", "after", "again"].map(|version| all_times(&runs[version]));
    assert_eq!([before.len(), after.len(), again.len()], [5; 3]);

    let slower = compared(&before, &after);
    assert!(slower.verdict.failed && slower.verdict.kind == VerdictKind::Slower, "{slower:?}");
    assert_eq!(slower.verdict.sentences.len(), 1, "{:?}", slower.verdict);
    assert!(slower.verdict.sentences[0].starts_with("part_3 takes 2.9 % longer"), "{slower:?}");

    let equal = compared(&before, &again);
    assert!(!is_flagged(&equal) && !equal.verdict.failed, "{equal:?}");
}

#[test]
fn a_limit_is_exceeded_only_beyond_the_noise() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut runs =
        |factor: f64| -> Vec<Times> { (0..5).map(|_| made(&mut random, factor)).collect() };
    let slower = compared(&runs(1.0), &runs(1.5));
    assert!(slower.verdict.failed && slower.verdict.kind == VerdictKind::Slower, "{slower:?}");
    assert!(text(&slower).contains("FAILED"), "{}", text(&slower));
    assert!(slower.verdict.sentences[0].starts_with("part_3 takes"), "{:?}", slower.verdict);
    let faster = compared(&runs(1.5), &runs(1.0));
    assert!(!faster.verdict.failed && faster.verdict.kind == VerdictKind::Faster);
}

#[test]
fn single_runs_are_held_against_their_iterations() {
    let mut random = fastrand::Rng::with_seed(5);
    let slower = compared(&[made(&mut random, 1.0)], &[made(&mut random, 2.0)]);
    assert_eq!(slower.verdict.kind, VerdictKind::Slower);
    assert!(slower.verdict.sentences[0].starts_with("part_3 takes"), "{:?}", slower.verdict);
}
