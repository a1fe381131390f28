//! Steps from experiments to the comparison, in order.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::comparison::ExpectationKind;
use crate::comparison::{
    Comparison, Context, ContextExcess, DiffVersion, Finding, FoundCause, SetupRow, Spread,
    TimeClass, WholeExcess,
};
use crate::context_keys::ContextKeys;
use crate::diff_thresholds::{
    ASSUMED_NOISE_FRACTION, GROWTH_NOISE_FRACTION, MIN_CONTEXT_FRACTION, MIN_EXCESS_FRACTION,
};
use crate::excess::{Cost, ensemble, pair};
use crate::expectation::{Expect, Expectation, decide};
use crate::experiment::{CLASSES, Experiment};
use crate::growth::{Growth, Point, fit};
use crate::loss_changes::loss_changes;
use crate::merged::{ContextId, MergedTree};
use crate::regression::{Regression, Sample, WithinRuns, regression};
use crate::setups::{Setup, deviation, group, mean};
use crate::significant::{Part, known_name, name, parts, raised};
use crate::{diff_thresholds, diff_verdict, notes, pop};

/// Options of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Expectation; `None` to derive it from ranks and arguments.
    pub expect: Option<Expect>,
    /// Fraction above which the comparison fails.
    pub fail_above: Option<f64>,
}

/// Reason why runs cannot be compared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CompareError {
    /// Set-ups or versions cannot be distinguished.
    #[error("{0}")]
    NoSetups(String),
    /// The expectation does not fit the runs.
    #[error("{0}")]
    Expectation(String),
    /// A run has no comparable contexts.
    #[error("{source_name}: the run has no measured time, so there is nothing to compare.")]
    Empty {
        /// File of the run.
        source_name: String,
    },
}

/// Compares runs.
///
/// # Errors
/// [`CompareError`], with a sentence that says what to do.
pub fn compare(runs: &[Experiment], options: &Options) -> Result<Comparison, CompareError> {
    if let Some(empty) = runs.iter().find(|run| run.nodes_of_tree.is_empty() || run.run_s() <= 0.0)
    {
        return Err(CompareError::Empty { source_name: empty.source.clone() });
    }
    let setups = group(runs).map_err(CompareError::NoSetups)?;
    let expectation =
        decide(options.expect.as_ref(), &setups, runs).map_err(CompareError::Expectation)?;
    let keys = ContextKeys::new(runs);
    let tree = MergedTree::new(runs, &setups, &keys);
    let core_s = |setup: &Setup| mean(setup.runs.iter().map(|run| runs[*run].core_s()));
    let contrast = Contrast {
        runs,
        setups: &setups,
        expectation: &expectation,
        tree: &tree,
        core_s: setups.iter().map(core_s).collect(),
    };
    let parts = contrast.parts(&keys);
    let contexts: Vec<Context> = parts.all.iter().map(|part| contrast.context(part)).collect();
    let excess = contrast.whole_excess();
    let findings = contrast.findings(&parts, &contexts);
    let regression = contrast.regression(&parts, &contexts);
    let losses = loss_changes(&tree, &setups, runs, &parts.all);
    let scaling = pop::table(&setups, runs, &expectation.factors);
    let mut comparison = Comparison {
        schema: DiffVersion::V1,
        verdict: diff_verdict::pending(options.fail_above),
        setups: setups.iter().map(|setup| setup_row(setup, runs)).collect(),
        notes: notes::notes(&setups, runs, &expectation),
        expectation,
        scaling,
        excess,
        findings,
        contexts,
        losses,
        regression,
        thresholds: diff_thresholds::all(),
    };
    diff_verdict::conclude(&mut comparison);
    Ok(comparison)
}

/// Runs, and the values that they share.
struct Contrast<'c> {
    runs: &'c [Experiment],
    setups: &'c [Setup],
    expectation: &'c Expectation,
    tree: &'c MergedTree,
    /// Core time of each set-up in seconds, the mean over its runs.
    core_s: Vec<f64>,
}

/// Parts of the tree that the comparison reports.
struct Parts {
    /// All parts.
    all: Vec<Part>,
    /// Indices of the parts with significant excess; they do not overlap.
    of_excess: Vec<usize>,
    /// Indices of the parts with significant time; they do not overlap.
    of_time: Vec<usize>,
}

impl Contrast<'_> {
    fn last(&self) -> usize {
        self.setups.len() - 1
    }

    fn cost(&self, setup: usize, total_s: f64) -> Cost {
        Cost { total_s, run_s: self.core_s[setup], factor: self.expectation.factors[setup] }
    }

    /// Returns the excess of a time by set-up, the last set-up against the first.
    fn excess(&self, total_s: impl Fn(usize) -> f64) -> f64 {
        let last = self.last();
        pair(self.cost(0, total_s(0)), self.cost(last, total_s(last))).unwrap_or(0.0)
    }

    fn parts(&self, keys: &ContextKeys) -> Parts {
        let tree = self.tree;
        let excess = |context: ContextId| self.excess(|setup| tree.total_s(setup, context));
        let of_excess = parts(tree, keys, 1, |_, context| excess(context), MIN_EXCESS_FRACTION);
        let time = |setup: usize, context| tree.total_s(setup, context) / self.core_s[setup];
        let of_time = parts(tree, keys, self.setups.len(), time, MIN_CONTEXT_FRACTION);
        let raise = |parts| raised(parts, tree, keys, self.runs);
        let (of_excess, of_time) = (raise(of_excess), raise(of_time));
        let mut found = Parts { all: of_excess, of_excess: Vec::new(), of_time: Vec::new() };
        found.of_excess = (0..found.all.len()).collect();
        for part in of_time {
            let known = found.all.iter().position(|other| *other == part);
            found.of_time.push(known.unwrap_or_else(|| {
                found.all.push(part);
                found.all.len() - 1
            }));
        }
        found
    }

    fn context(&self, part: &Part) -> Context {
        let (tree, setups) = (self.tree, 0..self.setups.len());
        let total_s: Vec<f64> = setups.clone().map(|it| part.total_s(tree, it)).collect();
        let exclusive_s: Vec<f64> =
            setups.clone().map(|setup| tree.exclusive[setup][part.top as usize]).collect();
        let ranks = self.setups.iter().map(|setup| f64::from(setup.ranks));
        let costs = |values: &[f64]| -> Vec<Cost> {
            values.iter().enumerate().map(|(setup, value)| self.cost(setup, *value)).collect()
        };
        let (inclusive, exclusive) = (costs(&total_s), costs(&exclusive_s));
        let pairs: Vec<f64> =
            inclusive[1..].iter().map(|later| pair(inclusive[0], *later).unwrap_or(0.0)).collect();
        Context {
            name: name(part.top, tree, self.runs),
            path: tree.frames_of(self.runs, part.top),
            rest: !part.without.is_empty(),
            mean_s: total_s.iter().zip(ranks).map(|(total_s, ranks)| total_s / ranks).collect(),
            calls: setups.map(|setup| tree.calls[setup][part.top as usize]).collect(),
            growth: self.growth(part, &total_s),
            excess: ContextExcess {
                inclusive: pairs.last().copied().unwrap_or(0.0),
                exclusive: self.excess(|setup| exclusive_s[setup]),
                pairs,
                ensemble: ensemble(&inclusive).unwrap_or(0.0),
                ensemble_exclusive: ensemble(&exclusive).unwrap_or(0.0),
                by_class: self.by_class(|setup| part.by_class_s(tree, setup)),
            },
            total_s,
            exclusive_s,
        }
    }

    fn by_class(&self, seconds: impl Fn(usize) -> [f64; CLASSES]) -> BTreeMap<TimeClass, f64> {
        let of_class =
            |class: TimeClass| (class, self.excess(|setup| seconds(setup)[class as usize]));
        TimeClass::ALL.into_iter().map(of_class).collect()
    }

    /// Returns the growth of the quantity that the expectation makes constant.
    fn growth(&self, part: &Part, total_s: &[f64]) -> Option<Growth> {
        let quantity = match self.expectation.kind {
            ExpectationKind::Strong => "total_s",
            ExpectationKind::Weak => "mean_s",
            ExpectationKind::Same | ExpectationKind::Work => return None,
        };
        let point = |setup: usize| {
            let ranks = f64::from(self.setups[setup].ranks);
            let divisor = if quantity == "mean_s" { ranks } else { 1.0 };
            let of_runs: Vec<f64> = self.setups[setup]
                .runs
                .iter()
                .map(|run| part.of_run_s(self.tree, *run) / divisor)
                .collect();
            let value_s = total_s[setup] / divisor;
            let measured_s = deviation(&of_runs).unwrap_or(0.0) / (of_runs.len() as f64).sqrt();
            let relative_s = measured_s.max(ASSUMED_NOISE_FRACTION * value_s);
            let noise_s = relative_s.hypot(GROWTH_NOISE_FRACTION * self.core_s[setup] / divisor);
            Point { ranks, value_s, noise_s: noise_s.max(1e-12) }
        };
        let points: Vec<Point> = (0..self.setups.len()).map(point).collect();
        fit(quantity, &points)
    }

    fn whole_excess(&self) -> WholeExcess {
        let tree = self.tree;
        let whole = |setup: usize| {
            let mut sums_s = [0.0; CLASSES];
            for root in tree.roots() {
                for (sum_s, root_s) in sums_s.iter_mut().zip(tree.inclusive[setup][*root as usize])
                {
                    *sum_s += root_s;
                }
            }
            sums_s
        };
        let costs: Vec<Cost> = (0..self.setups.len())
            .map(|setup| self.cost(setup, whole(setup).iter().sum()))
            .collect();
        let fraction = pair(costs[0], costs[self.last()]).unwrap_or(0.0);
        WholeExcess {
            fraction,
            ensemble: ensemble(&costs).unwrap_or(0.0),
            seconds: fraction * self.core_s[self.last()],
            core_s: self.core_s[self.last()],
            by_class: self.by_class(whole),
        }
    }

    fn findings(&self, parts: &Parts, contexts: &[Context]) -> Vec<Finding> {
        let size = |index: &usize| contexts[*index].excess.inclusive;
        let positive: f64 = parts.of_excess.iter().map(size).filter(|excess| *excess > 0.0).sum();
        let mut order = parts.of_excess.clone();
        order.retain(|index| size(index).abs() >= MIN_EXCESS_FRACTION);
        order.sort_by(|one, other| size(other).abs().total_cmp(&size(one).abs()));
        let finding = |index: usize| {
            let context = &contexts[index];
            let excess = context.excess.inclusive;
            let largest = context
                .excess
                .by_class
                .iter()
                .max_by(|(_, one), (_, other)| (*one * excess).total_cmp(&(*other * excess)));
            let class = largest.map_or(TimeClass::Work, |(class, _)| *class);
            let caused_by = match class {
                TimeClass::Waiting if excess > 0.0 => self.cause(&parts.all[index], &parts.all),
                _ => None,
            };
            let share = if positive > 0.0 { excess / positive } else { 0.0 };
            let mut finding = Finding {
                context: index as u32,
                class,
                excess,
                seconds: excess * self.core_s[self.last()],
                share,
                sentence: String::new(),
                caused_by,
            };
            finding.sentence =
                diff_verdict::sentence(&finding, context, self.expectation, self.setups);
            finding
        };
        order.into_iter().map(finding).collect()
    }

    /// Returns the cause of the largest loss of the last set-up with a symptom in a part.
    fn cause(&self, part: &Part, parts: &[Part]) -> Option<FoundCause> {
        let run = *self.setups[self.last()].runs.last()?;
        let places = &self.tree.losses[run];
        let shows_here = |symptom: &Option<ContextId>| {
            symptom.is_some_and(|symptom| {
                let path = self.tree.path(symptom);
                path.contains(&part.top) && !path.iter().any(|it| part.without.contains(it))
            })
        };
        let found = places.iter().position(|(symptom, _)| shows_here(symptom))?;
        let loss = &self.runs[run].losses[found];
        let (_, cause) = places[found];
        Some(FoundCause {
            name: known_name(cause?, parts, self.tree, self.runs),
            kind: loss.kind,
            slow_ranks: loss.slow_ranks.clone(),
        })
    }

    /// Returns whether less than half of a part is work.
    fn waits(&self, part: &Part) -> bool {
        let sums_s = (0..self.setups.len()).map(|setup| part.by_class_s(self.tree, setup));
        let (work_s, all_s) = sums_s.fold((0.0, 0.0), |(work_s, all_s), of_setup| {
            let of_all: f64 = of_setup.iter().sum();
            (work_s + of_setup[TimeClass::Work as usize], all_s + of_all)
        });
        work_s < all_s / 2.0
    }

    fn regression(&self, parts: &Parts, contexts: &[Context]) -> Option<Regression> {
        let [before, after] = self.setups else { return None };
        if !self.expectation.is_same() {
            return None;
        }
        let per_run = |setup: &Setup, value: &dyn Fn(usize) -> f64| -> Vec<f64> {
            setup.runs.iter().map(|run| value(*run)).collect()
        };
        let elapsed = |run: usize| self.runs[run].elapsed_s;
        let core = |run: usize| self.runs[run].core_s() / f64::from(self.runs[run].ranks);
        let mut samples = vec![Sample {
            context: None,
            name: "elapsed time".into(),
            waits: false,
            before_s: per_run(before, &elapsed),
            after_s: per_run(after, &elapsed),
        }];
        for index in &parts.of_time {
            let of_run = |run: usize| {
                parts.all[*index].of_run_s(self.tree, run) / f64::from(self.runs[run].ranks)
            };
            samples.push(Sample {
                context: Some(*index as u32),
                name: contexts[*index].name.clone(),
                waits: self.waits(&parts.all[*index]),
                before_s: per_run(before, &of_run),
                after_s: per_run(after, &of_run),
            });
        }
        let both = || before.runs.iter().chain(&after.runs).map(|run| &self.runs[*run]);
        let within = WithinRuns {
            iteration_deviation: both().filter_map(|run| run.iteration_deviation).reduce(f64::max),
            period_s: both().map(|run| run.period_s).fold(0.0, f64::max),
            ranks: f64::from(before.ranks),
            core_before_s: per_run(before, &core),
            core_after_s: per_run(after, &core),
        };
        regression(&samples, &within)
    }
}

fn setup_row(setup: &Setup, runs: &[Experiment]) -> SetupRow {
    let first = &runs[setup.runs[0]];
    let times_s: Vec<f64> = setup.runs.iter().map(|run| runs[*run].elapsed_s).collect();
    SetupRow {
        executable: first.executable.clone(),
        arguments: first.arguments.clone(),
        ranks: setup.ranks,
        threads: first.threads,
        nodes: first.nodes,
        mpi: first.mpi.clone(),
        runs: setup.runs.iter().map(|run| runs[*run].source.clone()).collect(),
        elapsed_s: Spread {
            mean: mean(times_s.iter().copied()),
            min: times_s.iter().copied().fold(f64::INFINITY, f64::min),
            max: times_s.iter().copied().fold(0.0, f64::max),
            stddev: deviation(&times_s),
        },
    }
}
