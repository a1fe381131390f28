//! Numbers that stand still on a machine that others use too: percentiles and minima.

/// The value below which `percent` of the values lie; 0 of none.
pub fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get(last * percent / 100).copied().unwrap_or(0.0)
}

/// The middle one.
pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50)
}

/// The smallest: what remains when nobody disturbs.
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}
