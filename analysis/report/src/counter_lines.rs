//! perf events and derived metrics in sentences: totals, and the function with the most events.

use std::collections::BTreeMap;

use plimsoll_summary::phrase::{count, end_of, percent};
use plimsoll_summary::{CountedEvent, FrameKind, Summary};

/// Minimum fraction of an event's number for a function to be named.
const MIN_NAMED_FRACTION: f64 = 0.05;

/// Returns the totals of all counted events, each with the function that has most of them, and the
/// derived metrics; `None` if nothing was counted.
pub fn counters(summary: &Summary) -> Option<String> {
    let counters = &summary.counters;
    let events = counters.events.iter().filter_map(|event| {
        let total = event.total?;
        // The number has no sign and is far below 2^64.
        let shown = format!("{} {}", count(total as u64), event.name);
        Some(match most(summary, event, total) {
            Some((function, part)) => format!("{shown} ({} in {function})", percent(part)),
            None => shown,
        })
    });
    let metrics = counters.metrics.iter().filter_map(|metric| {
        metric.value.map(|value| format!("{} {}", metric.name, significant(value)))
    });
    let parts: Vec<String> = events.chain(metrics).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// Returns the procedure with the most events of its own, and its fraction of all of them.
fn most(summary: &Summary, event: &CountedEvent, total: f64) -> Option<(String, f64)> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for context in &summary.counters.contexts {
        let path = summary.tree.path(context.node);
        let name = match path.last() {
            Some(frame) if frame.kind == FrameKind::Function => end_of(&path),
            // Its calls count together, at all lines.
            Some(frame) if frame.kind == FrameKind::Mpi => frame.function.clone(),
            // The events of loops and inlined calls are those of their procedure as well.
            _ => continue,
        };
        let own = context.events.get(&event.name).map_or(0.0, |it| it.exclusive.sum);
        *sums.entry(name).or_default() += own;
    }
    let (function, sum) = sums.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let part = sum / total;
    (total > 0.0 && part >= MIN_NAMED_FRACTION).then_some((function, part.min(1.0)))
}

/// Returns a number with three significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    match digits {
        0..=6 => format!("{value:.*}", digits as usize),
        -9..0 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let values = [1.2345, 0.001_234_5, 12_345.6, 0.0, -2.5, 1.5e-9, 3e12];
        let shown = values.map(significant);
        assert_eq!(shown, ["1.23", "0.00123", "12346", "0", "-2.50", "1.50e-9", "3.00e12"]);
    }
}
