//! Runs of a subject with known growth (`tests/programs/growth.c`), recorded on 1 to 16 sleeping
//! ranks, compared with the subject's own measurements.

use std::fs;
use std::path::PathBuf;

use plimsoll_compare::comparison::{Comparison, Context, ExpectationKind, TimeClass, VerdictKind};
use plimsoll_compare::{Expect, Experiment, Options, compare, text, to_json};
use serde_json::Value;

const RANKS: [u32; 5] = [1, 2, 4, 8, 16];

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/growth").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn experiment(name: &str) -> Experiment {
    Experiment::from_json(name, 0, &file(name)).expect("recorded summaries are summaries")
}

fn series(how: &str) -> Vec<Experiment> {
    RANKS.iter().map(|ranks| experiment(&format!("{how}-{ranks}.plimsoll.json"))).collect()
}

/// Returns a recorded run on 4 ranks as the measured part of a job with this number of ranks.
fn part_of(world_ranks: u32) -> Experiment {
    let mut summary: Value = serde_json::from_slice(&file("strong-4.plimsoll.json")).expect("JSON");
    summary["run"]["world_ranks"] = world_ranks.into();
    let json = serde_json::to_vec(&summary).expect("JSON");
    Experiment::from_json("part", 0, &json).expect("a summary")
}

#[test]
fn measured_ranks_stand_for_all_ranks_of_the_job() {
    let runs = [part_of(64), part_of(128)];
    let comparison = compare(&runs, &Options { expect: None, fail_above: None }).expect("two");
    assert_eq!(comparison.expectation.kind, ExpectationKind::Strong);
    let [first, second] = &comparison.scaling[..] else { panic!("{:?}", comparison.scaling) };
    assert_eq!((first.ranks, second.ranks), (64, 128));
    // Each rank computes as long as before: the doubled ranks do all work twice.
    assert_eq!(second.computation_scaling, Some(0.5));
    assert_eq!(second.parallel, first.parallel);
    assert!(comparison.notes.iter().any(|note| note.starts_with("Only some ranks")));
}

fn compared(how: &str, expect: Expect) -> Comparison {
    let options = Options { expect: Some(expect), fail_above: None };
    compare(&series(how), &options).expect("five set-ups")
}

/// Returns the seconds of a function that the subject measured, the sum over ranks, by set-up.
fn truth(how: &str, key: &str) -> Vec<f64> {
    let of = |ranks: &u32| {
        let truth: Value =
            serde_json::from_slice(&file(&format!("{how}-{ranks}.truth.json"))).expect("JSON");
        truth[key].as_f64().expect(key)
    };
    RANKS.iter().map(of).collect()
}

fn context<'c>(comparison: &'c Comparison, name: &str) -> &'c Context {
    let found = comparison.contexts.iter().find(|it| it.name == name && !it.rest);
    found.unwrap_or_else(|| {
        let names: Vec<&str> = comparison.contexts.iter().map(|it| it.name.as_str()).collect();
        panic!("no {name} among {names:?}")
    })
}

/// Returns the excess work of the first and the last set-up, and of the ensemble, by the slides'
/// formulas on the subject's own numbers. `weak`: constant time is expected.
fn true_excess(how: &str, key: &str, weak: bool) -> (f64, f64) {
    let (totals, elapsed) = (truth(how, key), truth(how, "elapsed_s"));
    let sizes: Vec<f64> = RANKS.iter().map(|ranks| f64::from(*ranks)).collect();
    let excess = |at: usize| totals[at] - if weak { sizes[at] } else { 1.0 } * totals[0];
    let pair = excess(4) / (sizes[4] * elapsed[4]);
    let runs: f64 = (1..5).map(|at| sizes[at] * elapsed[at]).sum();
    (pair, (0..5).map(excess).sum::<f64>() / runs)
}

fn assert_near(what: &str, found: f64, expected: f64) {
    // An excess of 0 has no relative error: a thousandth of the run is allowed instead.
    let allowed = (0.10 * expected.abs()).max(0.001);
    assert!((found - expected).abs() <= allowed, "{what}: {found} instead of {expected}");
}

fn assert_excess(how: &str, expect: Expect) {
    let weak = expect == Expect::Weak;
    let comparison = compared(how, expect);
    for (name, key) in [
        ("replicated", "replicated_s"),
        ("reduction", "reduction_s"),
        ("serial", "serial_s"),
        ("perfect", "perfect_s"),
        ("MPI_Barrier in hand_out", "hand_out_s"),
    ] {
        let (pair, ensemble) = true_excess(how, key, weak);
        let found = context(&comparison, name);
        assert_near(&format!("{how}, {name}"), found.excess.inclusive, pair);
        assert_near(&format!("{how}, {name}, ensemble"), found.excess.ensemble, ensemble);
    }
}

fn models(comparison: &Comparison) -> Vec<(&str, &str)> {
    ["replicated", "reduction", "serial", "perfect", "MPI_Barrier in hand_out"]
        .map(|name| {
            let growth = context(comparison, name).growth.as_ref().expect("five sizes");
            (name, growth.model.as_str())
        })
        .to_vec()
}

fn order(comparison: &Comparison) -> Vec<&str> {
    let name = |index: u32| comparison.contexts[index as usize].name.as_str();
    comparison.findings.iter().map(|finding| name(finding.context)).take(3).collect()
}

#[test]
fn excess_work_is_that_of_the_subject() {
    assert_excess("strong", Expect::Strong);
    assert_excess("weak", Expect::Weak);
}

#[test]
fn strong_scaling_names_losses_in_order_and_their_growth() {
    let comparison = compared("strong", Expect::Strong);
    println!("{}", text(&comparison));
    assert_eq!(order(&comparison), ["reduction", "replicated", "MPI_Barrier in hand_out"]);
    // Sums over ranks: log p on each of p ranks is p log p in total.
    assert_eq!(
        models(&comparison),
        [
            ("replicated", "p"),
            ("reduction", "p log p"),
            ("serial", "constant"),
            ("perfect", "constant"),
            ("MPI_Barrier in hand_out", "p"),
        ]
    );
    assert_eq!(comparison.verdict.kind, VerdictKind::ScalingLoss);
}

#[test]
fn weak_scaling_names_losses_in_order_and_their_growth() {
    let comparison = compared("weak", Expect::Weak);
    println!("{}", text(&comparison));
    assert_eq!(order(&comparison), ["replicated", "MPI_Barrier in hand_out", "reduction"]);
    // Times per rank: the serial part of rank 0 grows like the number of ranks in the mean.
    let models = models(&comparison);
    assert_eq!(models[..2], [("replicated", "p"), ("reduction", "log p")]);
    assert_eq!(models[3..], [("perfect", "constant"), ("MPI_Barrier in hand_out", "p")]);
}

#[test]
fn waiting_is_linked_to_its_cause() {
    let comparison = compared("strong", Expect::Strong);
    let waiting = comparison
        .findings
        .iter()
        .find(|finding| finding.class == TimeClass::Waiting)
        .expect("ranks wait for the serial part");
    let cause = waiting.caused_by.as_ref().expect("the run's own loss names it");
    assert_eq!((cause.name.as_str(), cause.slow_ranks.as_str()), ("serial", "0"));
    assert!(waiting.sentence.contains("caused by serial"), "{}", waiting.sentence);
    let loss = &comparison.losses[0];
    assert_eq!(loss.cause.as_deref(), Some("serial"));
    assert_eq!(loss.severity.len(), 5);
}

/// Each number of the table follows from the subject's: work of all ranks over ranks times elapsed
/// time.
#[test]
fn the_scaling_table_multiplies() {
    let comparison = compared("strong", Expect::Strong);
    let work: Vec<f64> = ["perfect_s", "replicated_s", "reduction_s", "serial_s"]
        .map(|key| truth("strong", key))
        .iter()
        .fold(vec![0.0; 5], |sums, part| sums.iter().zip(part).map(|(a, b)| a + b).collect());
    let elapsed = truth("strong", "elapsed_s");
    for (at, row) in comparison.scaling.iter().enumerate() {
        let ranks = f64::from(RANKS[at]);
        assert_near("parallel", row.parallel.unwrap(), work[at] / ranks / elapsed[at]);
        assert_near("computation", row.computation_scaling.unwrap(), work[0] / work[at]);
        assert_near("speedup", row.speedup.unwrap(), elapsed[0] / elapsed[at]);
        assert_near("global", row.global.unwrap(), row.speedup.unwrap() / ranks);
    }
}

#[test]
fn expectations_are_decided_by_ranks_and_arguments() {
    let decided =
        |runs: &[Experiment]| compare(runs, &Options::default()).expect("set-ups").expectation;
    assert_eq!(decided(&series("strong")).kind, ExpectationKind::Strong);
    let mut weak = series("strong");
    weak.iter_mut().for_each(|run| run.arguments.push(run.ranks.to_string()));
    assert_eq!(decided(&weak).kind, ExpectationKind::Weak);
    let mut same = vec![experiment("strong-4.plimsoll.json"); 2];
    same[1].argument = 1;
    let same = decided(&same);
    assert!(same.kind == ExpectationKind::Same && !same.asked);
    let work = Options { expect: Some(Expect::Work(vec![2.0])), fail_above: None };
    let two = [experiment("strong-1.plimsoll.json"), experiment("strong-2.plimsoll.json")];
    let comparison = compare(&two, &work).expect("two set-ups");
    // Twice the work is expected, but the sum over ranks hardly grew: (8.04 - 2 x 7.05) / 8.04.
    assert!((comparison.excess.fraction + 0.75).abs() < 0.02, "{}", comparison.excess.fraction);
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let mut runs = vec![experiment("strong-8.plimsoll.json"); 2];
    runs[1].argument = 1;
    let options = Options { expect: None, fail_above: Some(0.0) };
    let comparison = compare(&runs, &options).expect("two versions");
    assert_eq!(comparison.verdict.kind, VerdictKind::NoDifference);
    assert!(!comparison.verdict.failed && comparison.findings.is_empty());
}

#[test]
fn runs_that_cannot_be_compared_are_refused_with_a_sentence() {
    let one = vec![experiment("strong-8.plimsoll.json")];
    let message = |runs: &[Experiment], options: &Options| {
        compare(runs, options).expect_err("no comparison").to_string()
    };
    assert!(message(&one, &Options::default()).contains("at least two"));
    let three = vec![one[0].clone(); 3];
    assert!(message(&three, &Options::default()).contains("one folder for each version"));
    let same = Options { expect: Some(Expect::Same), fail_above: None };
    assert!(message(&series("strong"), &same).contains("--expect strong"));
    let work = Options { expect: Some(Expect::Work(vec![2.0])), fail_above: None };
    assert!(message(&series("strong"), &work).contains("4, not 1"));
    let mut empty = series("strong");
    empty[2].nodes_of_tree.clear();
    assert!(message(&empty, &Options::default()).contains("strong-4.plimsoll.json"));
}

#[test]
fn comparisons_have_the_form_of_the_schema() {
    let schema: Value =
        serde_json::from_str(include_str!("../../schema/plimsoll-diff-1.schema.json"))
            .expect("JSON");
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let mut two = vec![experiment("strong-8.plimsoll.json"); 2];
    two[1].argument = 1;
    let versions = compare(&two, &Options::default()).expect("two versions");
    for comparison in [compared("strong", Expect::Strong), compared("weak", Expect::Weak), versions]
    {
        let json = to_json(&comparison).expect("a comparison is JSON");
        let value: Value = serde_json::from_str(&json).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let back: Comparison = serde_json::from_str(&json).expect("read back");
        assert_eq!(back, comparison);
    }
}

#[test]
fn the_text_is_narrow_and_plain() {
    for (how, expect) in [("strong", Expect::Strong), ("weak", Expect::Weak)] {
        for line in text(&compared(how, expect)).lines() {
            assert!(
                line.len() <= 100 && line.bytes().all(|it| (b' '..=b'~').contains(&it)),
                "{line}"
            );
        }
    }
}
