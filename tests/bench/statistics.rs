//! Statistics that are stable on a shared machine: percentiles and minima.

/// Returns the value below which `percent` of the values lie; 0 without values.
pub fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get(last * percent / 100).copied().unwrap_or(0.0)
}

/// Returns the median.
pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50)
}

/// Returns the minimum: the value of an undisturbed run.
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}
