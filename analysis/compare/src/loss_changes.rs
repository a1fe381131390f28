//! Changes of losses over the set-ups: appeared, grew, shrank, vanished.

use std::collections::BTreeMap;

use crate::comparison::{Change, LossChange};
use crate::diff_thresholds::{ASSUMED_NOISE_FRACTION, GROWTH_NOISE_FRACTION};
use crate::experiment::Experiment;
use crate::growth::{Point, fit};
use crate::merged::MergedTree;
use crate::setups::Setup;
use crate::significant::{Part, known_name};

/// Minimum change of a loss, as a fraction of the run.
const MIN_LOSS_CHANGE: f64 = 0.01;

/// Returns all losses of all runs, by falling change of severity.
pub fn loss_changes(
    tree: &MergedTree,
    setups: &[Setup],
    runs: &[Experiment],
    parts: &[Part],
) -> Vec<LossChange> {
    let mut of_kinds: BTreeMap<_, Vec<(usize, usize)>> = BTreeMap::new();
    for (run, places) in tree.losses.iter().enumerate() {
        for (index, (symptom, _)) in places.iter().enumerate() {
            if let Some(symptom) = symptom {
                let kind = runs[run].losses[index].kind;
                of_kinds.entry((kind, *symptom)).or_default().push((run, index));
            }
        }
    }
    let mut changes: Vec<LossChange> = of_kinds
        .into_iter()
        .map(|((kind, symptom), places)| {
            let of_setups = |value: &dyn Fn(&Experiment, usize) -> f64| -> Vec<f64> {
                let of_setup = |setup: &Setup| {
                    let here = places.iter().filter(|(run, _)| setup.runs.contains(run));
                    let values = here.map(|(run, index)| value(&runs[*run], *index));
                    // The sum of an empty iterator is a negative zero.
                    let sum = values.fold(0.0, |sum, value| sum + value);
                    sum / setup.runs.len() as f64
                };
                setups.iter().map(of_setup).collect()
            };
            let severity = of_setups(&|run, index| run.losses[index].severity);
            let seconds = of_setups(&|run, index| run.losses[index].seconds);
            let cause = places.last().and_then(|(run, index)| {
                let (_, cause) = tree.losses[*run][*index];
                Some(known_name(cause?, parts, tree, runs))
            });
            LossChange {
                kind,
                symptom: known_name(symptom, parts, tree, runs),
                cause,
                path: tree.frames_of(runs, symptom),
                change: change(&severity),
                growth: growth(&seconds, setups, runs),
                seconds,
                severity,
            }
        })
        .collect();
    let size = |it: &LossChange| {
        let first_and_last = it.severity.first().zip(it.severity.last());
        first_and_last.map_or(0.0, |(first, last)| (last - first).abs())
    };
    changes.sort_by(|one, other| size(other).total_cmp(&size(one)));
    changes
}

fn change(severity: &[f64]) -> Change {
    let (first, last) = match severity {
        [first, .., last] => (*first, *last),
        _ => return Change::Unchanged,
    };
    match (first > 0.0, last > 0.0) {
        (false, true) => Change::Appeared,
        (_, false) => Change::Vanished,
        _ if last - first > MIN_LOSS_CHANGE => Change::Grew,
        _ if first - last > MIN_LOSS_CHANGE => Change::Shrank,
        _ => Change::Unchanged,
    }
}

fn growth(seconds: &[f64], setups: &[Setup], runs: &[Experiment]) -> Option<crate::growth::Growth> {
    let point = |(value_s, setup): (&f64, &Setup)| {
        let elapsed_s = setup.runs.first().map_or(0.0, |run| runs[*run].elapsed_s);
        // Losses below one percent of the run are not reported: 0 stands for up to that.
        let noise_s = ASSUMED_NOISE_FRACTION * value_s
            + GROWTH_NOISE_FRACTION * elapsed_s
            + if *value_s == 0.0 { 0.01 * elapsed_s } else { 0.0 };
        Point { ranks: f64::from(setup.ranks), value_s: *value_s, noise_s: noise_s.max(1e-9) }
    };
    let points: Vec<Point> = seconds.iter().zip(setups).map(point).collect();
    fit("seconds", &points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_between_the_first_and_the_last() {
        assert_eq!(change(&[0.0, 0.1, 0.2]), Change::Appeared);
        assert_eq!(change(&[0.1, 0.2]), Change::Grew);
        assert_eq!(change(&[0.1, 0.3, 0.105]), Change::Unchanged);
        assert_eq!(change(&[0.2, 0.1]), Change::Shrank);
        assert_eq!(change(&[0.0, 0.1, 0.0]), Change::Vanished);
        assert_eq!(change(&[0.2, 0.0]), Change::Vanished);
    }
}
