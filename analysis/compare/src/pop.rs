//! Scaling table of POP audits: efficiencies of each set-up and their products.
//!
//! Source: Performance Optimisation and Productivity (POP), standard metrics for parallel
//! performance analysis. Global efficiency = parallel efficiency x computation scaling; parallel
//! efficiency = load balance x communication efficiency, and x the parallel efficiency of OpenMP
//! where the ranks have teams of threads ([`plimsoll_summary::Efficiency`]); computation scaling =
//! instruction scaling x IPC scaling x frequency scaling.

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
    /// Mean useful time over ranks / elapsed time, and x the parallel efficiency of OpenMP if the
    /// ranks have teams of threads.
    pub parallel: Option<f64>,
    /// Mean / maximum of the ranks' useful time.
    pub load_balance: Option<f64>,
    /// Maximum of the ranks' useful time / elapsed time.
    pub communication: Option<f64>,
    /// Expected sum of useful time, from the first set-up, divided by the measured sum.
    pub computation_scaling: Option<f64>,
    /// Expected instructions in computation, from the first set-up, divided by the counted ones.
    /// This and the following are `None` unless all ranks of all runs counted the events.
    pub instruction_scaling: Option<f64>,
    /// Instructions per cycle in computation, divided by those of the first set-up.
    pub ipc_scaling: Option<f64>,
    /// Cycles per second of useful time, divided by those of the first set-up: less also where
    /// useful time contains waiting for a core.
    pub frequency_scaling: Option<f64>,
    /// Instructions per cycle in computation.
    pub ipc: Option<f64>,
    /// Parallel efficiency x computation scaling.
    pub global: Option<f64>,
}

/// Returns the table. `factors` are the expected sums over ranks as multiples of the first
/// set-up's.
pub fn table(setups: &[Setup], runs: &[Experiment], factors: &[f64]) -> Vec<ScalingRow> {
    let mut rows: Vec<ScalingRow> = Vec::with_capacity(setups.len());
    let mut first: Option<Reference> = None;
    for (setup, factor) in setups.iter().zip(factors) {
        let of_runs = |value: &dyn Fn(&Experiment) -> Option<f64>| -> Option<f64> {
            let values: Option<Vec<f64>> =
                setup.runs.iter().map(|run| value(&runs[*run])).collect();
            values.map(mean)
        };
        let elapsed_s = mean(setup.runs.iter().map(|run| runs[*run].elapsed_s));
        let parallel = of_runs(&|run| run.efficiency.parallel);
        let now = Reference {
            elapsed_s,
            useful_s: of_runs(&|run| Some(run.efficiency.parallel? * run.run_s())),
            instructions: of_runs(&|run| run.counts.instructions),
            cycles: of_runs(&|run| run.counts.cycles),
        };
        let first = *first.get_or_insert(now);
        let expected = factor / factors[0];
        let scaling = ratio(first.useful_s, now.useful_s).map(|it| it * expected);
        rows.push(ScalingRow {
            ranks: setup.ranks,
            elapsed_s,
            speedup: ratio(Some(first.elapsed_s), Some(elapsed_s)).map(|it| it * expected),
            parallel,
            load_balance: of_runs(&|run| run.efficiency.load_balance),
            communication: of_runs(&|run| run.efficiency.communication),
            computation_scaling: scaling,
            instruction_scaling: ratio(first.instructions, now.instructions)
                .map(|it| it * expected),
            ipc_scaling: ratio(now.ipc(), first.ipc()),
            frequency_scaling: ratio(now.frequency_hz(), first.frequency_hz()),
            ipc: now.ipc(),
            global: parallel.zip(scaling).map(|(parallel, scaling)| parallel * scaling),
        });
    }
    rows
}

/// Sums over the ranks of a set-up, as means over its runs.
#[derive(Clone, Copy, Debug)]
struct Reference {
    elapsed_s: f64,
    useful_s: Option<f64>,
    instructions: Option<f64>,
    cycles: Option<f64>,
}

impl Reference {
    fn ipc(&self) -> Option<f64> {
        ratio(self.instructions, self.cycles)
    }

    fn frequency_hz(&self) -> Option<f64> {
        ratio(self.cycles, self.useful_s)
    }
}

/// Returns a quotient; `None` if either number is unknown, or the divisor is 0.
fn ratio(dividend: Option<f64>, divisor: Option<f64>) -> Option<f64> {
    let (dividend, divisor) = dividend.zip(divisor)?;
    (divisor > 0.0).then(|| dividend / divisor)
}
