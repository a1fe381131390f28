//! Scaling table of POP audits: efficiencies of each set-up and their products.
//!
//! Source: Performance Optimisation and Productivity (POP), standard metrics for parallel
//! performance analysis. Global efficiency = parallel efficiency x computation scaling; parallel
//! efficiency = load balance x communication efficiency.

use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::setups::{Setup, mean};

/// Efficiencies of a set-up, means over its runs; fractions of 1, `None` without MPI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingRow {
    /// Ranks.
    pub ranks: u32,
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Elapsed time of the first set-up divided by this one's, times the expected growth of the
    /// work: equal to the growth of ranks under perfect scaling.
    pub speedup: Option<f64>,
    /// Mean useful time over ranks / elapsed time.
    pub parallel: Option<f64>,
    /// Mean / maximum of the ranks' useful time.
    pub load_balance: Option<f64>,
    /// Maximum of the ranks' useful time / elapsed time.
    pub communication: Option<f64>,
    /// Expected sum of useful time, from the first set-up, divided by the measured sum.
    pub computation_scaling: Option<f64>,
    /// Parallel efficiency x computation scaling.
    pub global: Option<f64>,
}

/// Returns the table. `factors` are the expected sums over ranks as multiples of the first
/// set-up's.
pub fn table(setups: &[Setup], runs: &[Experiment], factors: &[f64]) -> Vec<ScalingRow> {
    let mut rows: Vec<ScalingRow> = Vec::with_capacity(setups.len());
    let mut first: Option<(f64, Option<f64>)> = None;
    for (setup, factor) in setups.iter().zip(factors) {
        let of_runs = |value: &dyn Fn(&Experiment) -> Option<f64>| -> Option<f64> {
            let values: Option<Vec<f64>> =
                setup.runs.iter().map(|run| value(&runs[*run])).collect();
            values.map(mean)
        };
        let elapsed_s = mean(setup.runs.iter().map(|run| runs[*run].elapsed_s));
        let parallel = of_runs(&|run| run.efficiency.parallel);
        let useful_s = of_runs(&|run| Some(run.efficiency.parallel? * run.run_s()));
        let (first_s, first_useful_s) = *first.get_or_insert((elapsed_s, useful_s));
        let scaling = first_useful_s.zip(useful_s).and_then(|(first, useful)| {
            (useful > 0.0).then(|| first * factor / factors[0] / useful)
        });
        rows.push(ScalingRow {
            ranks: setup.ranks,
            elapsed_s,
            speedup: (elapsed_s > 0.0).then(|| first_s / elapsed_s * factor / factors[0]),
            parallel,
            load_balance: of_runs(&|run| run.efficiency.load_balance),
            communication: of_runs(&|run| run.efficiency.communication),
            computation_scaling: scaling,
            global: parallel.zip(scaling).map(|(parallel, scaling)| parallel * scaling),
        });
    }
    rows
}
