//! Every number that decides a verdict of a comparison.

use std::collections::BTreeMap;

/// Minimum excess work of a reported context, as a fraction of the larger run.
pub const MIN_EXCESS_FRACTION: f64 = 0.01;
/// Minimum time of a context, as a fraction of any compared run, for a test of its growth and its
/// regression.
pub const MIN_CONTEXT_FRACTION: f64 = 0.01;
/// Maximum fraction of a context's cost that a frame below it may lack and still represent the same
/// code.
pub const SAME_CONTEXT_FRACTION: f64 = 0.02;
/// Minimum number of different numbers of ranks for a growth model.
pub const MIN_GROWTH_SIZES: usize = 4;
/// Relative deviation assumed between runs without repetitions.
pub const ASSUMED_NOISE_FRACTION: f64 = 0.02;
/// Absolute deviation of a context's time in growth models, as a fraction of its run.
pub const GROWTH_NOISE_FRACTION: f64 = 0.001;
/// Factor between the predictions of equally good growth models above which the data do not decide.
pub const UNDECIDED_FACTOR: f64 = 1.5;
/// Probability that a comparison of two equal versions reports a difference.
pub const FALSE_ALARM_CHANCE: f64 = 0.005;
/// Minimum change of a context in a regression, as a fraction of its run.
pub const MIN_CHANGE_FRACTION: f64 = 0.001;
/// Minimum relative change of a context or of the run in a comparison of single runs: iterations of
/// one run do not show the deviation between runs.
pub const MIN_SINGLE_RUN_CHANGE: f64 = 0.03;
/// Degrees of freedom of a deviation that was estimated from the iterations of single runs.
pub const SINGLE_RUN_FREEDOM: f64 = 10.0;
/// Degrees of freedom (runs of both versions less two) below which the deviation of repetitions is
/// at least that of the iterations within them.
pub const MIN_FREEDOM: f64 = 4.0;
/// Ratio of times that counts as unchanged: between this and its inverse.
pub const UNCHANGED_RATIO: f64 = 0.9;

/// Returns all thresholds by name.
pub fn all() -> BTreeMap<String, f64> {
    [
        ("MIN_EXCESS_FRACTION", MIN_EXCESS_FRACTION),
        ("MIN_CONTEXT_FRACTION", MIN_CONTEXT_FRACTION),
        ("SAME_CONTEXT_FRACTION", SAME_CONTEXT_FRACTION),
        ("MIN_GROWTH_SIZES", MIN_GROWTH_SIZES as f64),
        ("ASSUMED_NOISE_FRACTION", ASSUMED_NOISE_FRACTION),
        ("GROWTH_NOISE_FRACTION", GROWTH_NOISE_FRACTION),
        ("UNDECIDED_FACTOR", UNDECIDED_FACTOR),
        ("FALSE_ALARM_CHANCE", FALSE_ALARM_CHANCE),
        ("MIN_CHANGE_FRACTION", MIN_CHANGE_FRACTION),
        ("MIN_SINGLE_RUN_CHANGE", MIN_SINGLE_RUN_CHANGE),
        ("SINGLE_RUN_FREEDOM", SINGLE_RUN_FREEDOM),
        ("MIN_FREEDOM", MIN_FREEDOM),
        ("UNCHANGED_RATIO", UNCHANGED_RATIO),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_lowercase(), value))
    .collect()
}
