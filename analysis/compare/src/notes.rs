//! Notes about the compared runs for the reader of a comparison.

use plimsoll_summary::{LossKind, phrase};

use crate::comparison::ExpectationKind;
use crate::diff_thresholds::{MIN_EXCESS_FRACTION, UNCHANGED_RATIO};
use crate::diff_verdict::percent;
use crate::expectation::Expectation;
use crate::experiment::Experiment;
use crate::setups::{Setup, mean};

/// Returns the notes, one sentence each.
pub fn notes(setups: &[Setup], runs: &[Experiment], expectation: &Expectation) -> Vec<String> {
    let mut notes = Vec::new();
    let incomplete: Vec<&str> =
        runs.iter().filter(|run| !run.complete).map(|run| run.source.as_str()).collect();
    if !incomplete.is_empty() {
        notes.push(format!("Not complete, so their times are too short: {}.", list(&incomplete)));
    }
    let partial: Vec<&str> = runs
        .iter()
        .filter(|run| run.measured_ranks < run.ranks)
        .map(|run| run.source.as_str())
        .collect();
    if !partial.is_empty() {
        notes.push(format!(
            "Only some ranks were measured and stand for all of their job: {}.",
            list(&partial)
        ));
    }
    let differs = |value: &dyn Fn(&Experiment) -> String| {
        runs.iter().any(|run| value(run) != value(&runs[0]))
    };
    if differs(&|run| run.program().to_owned()) {
        notes.push("The executables have different names.".into());
    }
    if expectation.is_same() && differs(&|run| run.arguments.join(" ")) {
        notes.push("The arguments differ between runs of the same number of ranks.".into());
    }
    if differs(&|run| run.mpi.clone().unwrap_or_default()) {
        notes.push("The MPI libraries differ.".into());
    }
    if differs(&|run| format!("{:.3}", f64::from(run.threads) / f64::from(run.ranks))) {
        notes.push(
            "The number of threads per rank differs; scaling is judged by the number of ranks."
                .into(),
        );
    }
    if differs(&|run| format!("{:.9}", run.period_s)) {
        notes.push("The sampling periods differ.".into());
    }
    notes.extend(crowded(runs));
    if expectation.kind == ExpectationKind::Strong
        && !expectation.asked
        && work_follows_ranks(setups, runs)
    {
        notes.push(
            "The ranks compute about as long in each set-up: if the problem grew with the ranks, \
             use --expect weak."
                .into(),
        );
    }
    notes
}

/// Returns notes on oversubscribed nodes: waiting for cores lengthens every context and is not
/// caused by the program.
fn crowded(runs: &[Experiment]) -> Vec<String> {
    let mut notes = Vec::new();
    let with = runs.iter().filter_map(|run| run.crowded.as_ref());
    if let Some(node) = with.max_by_key(|node| node.ranks) {
        notes.push(format!(
            "Some runs have more ranks than cores (up to {} ranks on {} of {}): where ranks wait \
             for a core, that is part of their times, of excess work and of predictions.",
            node.ranks,
            phrase::counted(u64::from(node.cores), "core").replace(phrase::TIED, " "),
            node.host
        ));
    }
    let waited = |run: &&Experiment| waited_for_cores(run) >= MIN_EXCESS_FRACTION;
    let apart = runs.iter().filter(|run| run.crowded.is_none()).filter(waited);
    if let Some(worst) =
        apart.max_by(|one, other| waited_for_cores(one).total_cmp(&waited_for_cores(other)))
    {
        notes.push(format!(
            "Other programs took cores from the ranks: up to {} of a run ({}) went into waiting \
             for a core.",
            percent(waited_for_cores(worst)),
            worst.source
        ));
    }
    notes
}

/// Returns the fraction of a run lost to oversubscription.
fn waited_for_cores(run: &Experiment) -> f64 {
    let of_kind = run.losses.iter().filter(|loss| loss.kind == LossKind::Oversubscription);
    of_kind.map(|loss| loss.severity).sum()
}

/// Returns whether useful time per rank is about equal in the first and the last set-up.
fn work_follows_ranks(setups: &[Setup], runs: &[Experiment]) -> bool {
    let useful = |setup: &Setup| -> f64 {
        mean(setup.runs.iter().map(|run| {
            let run = &runs[*run];
            run.efficiency.parallel.unwrap_or(0.0) * run.elapsed_s
        }))
    };
    match setups {
        [first, .., last] if useful(first) > 0.0 => {
            let ratio = useful(last) / useful(first);
            (UNCHANGED_RATIO..=1.0 / UNCHANGED_RATIO).contains(&ratio)
        }
        _ => false,
    }
}

/// Lists the first few names.
fn list(names: &[&str]) -> String {
    const MAX_SHOWN: usize = 3;
    let shown = names[..names.len().min(MAX_SHOWN)].join(", ");
    match names.len().checked_sub(MAX_SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}
