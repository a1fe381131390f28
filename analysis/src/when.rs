//! Time at which a loss occurs: all the time, increasingly, or in a part of the run.

use plimsoll_summary::{When, WhenKind};

use crate::thresholds::{
    CONFINED_SHARE, MAX_CONFINED_FRACTION, MAX_SPAN_FRACTION, MIN_GROWTH_ERRORS, MIN_GROWTH_FACTOR,
    MIN_STEADY_FRACTION,
};

/// Minimum number of windows in a run.
const MIN_WINDOWS: usize = 9;
/// Number of parts of a loss's time that a line is fitted to.
const FITTED_PARTS: usize = 9;
/// Fraction of a loss that is ignored at either end of its time.
const TRIMMED_FRACTION: f64 = 0.01;

/// Returns when a loss happens. `lost` has the time of the loss in each window of `window_s`
/// seconds of a run that ends at `end_s` seconds. `reference` has the time in each window that a
/// steady loss is proportional to. Windows that are not `is_measured` do not count: the program
/// paused the measurement. `None` if the run has too few windows, or the loss follows none of the
/// three patterns.
pub fn when(
    (lost, reference): (&[f64], &[f64]),
    is_measured: &[bool],
    window_s: f64,
    end_s: f64,
) -> Option<When> {
    let measured: Vec<usize> = (0..lost.len()).filter(|at| is_measured[*at]).collect();
    let of_measured =
        |values: &[f64]| -> Vec<f64> { measured.iter().map(|at| values[*at]).collect() };
    let (lost, reference) = (of_measured(lost), of_measured(reference));
    let (lost, reference) = (lost.as_slice(), reference.as_slice());
    let all: f64 = lost.iter().sum();
    if lost.len() < MIN_WINDOWS || all <= 0.0 {
        return None;
    }
    let range = |kind, begin: usize, end: usize| When {
        kind,
        from_s: measured[begin] as f64 * window_s,
        to_s: ((measured[end - 1] + 1) as f64 * window_s).min(end_s),
        share: lost[begin..end].iter().sum::<f64>() / all,
    };
    let (begin, end) = shortest(lost, CONFINED_SHARE * all);
    if (end - begin) as f64 <= MAX_CONFINED_FRACTION * lost.len() as f64 {
        return Some(range(WhenKind::Confined, begin, end));
    }
    let (begin, end) = span(lost, TRIMMED_FRACTION * all);
    let third = (end - begin) / 3;
    if third == 0 {
        return None;
    }
    // Steps that take longer and longer because of the loss fill their windows with the loss alike:
    // per useful time the loss grows.
    let rate = |begin: usize, end: usize| {
        lost[begin..end].iter().sum::<f64>() / reference[begin..end].iter().sum::<f64>()
    };
    let first = rate(begin, begin + third);
    let middle = rate(begin + third, end - third);
    let last = rate(end - third, end);
    let least = first.min(middle).min(last);
    let most = first.max(middle).max(last);
    if grows(&lost[begin..end], &reference[begin..end]) {
        Some(range(WhenKind::Growing, begin, end))
    } else if (end - begin) as f64 <= MAX_SPAN_FRACTION * lost.len() as f64 {
        Some(range(WhenKind::Confined, begin, end))
    } else if least >= MIN_STEADY_FRACTION * most {
        Some(range(WhenKind::Steady, begin, end))
    } else {
        None
    }
}

/// Returns whether a loss grows in relation to `reference`: a line fitted to the loss by time rises
/// by more than its error, and its end lies far above its begin. The first and the last third alone
/// differ little where growing steps fill more and more time each.
fn grows(lost: &[f64], reference: &[f64]) -> bool {
    let parts = FITTED_PARTS.min(lost.len());
    let of_part = |values: &[f64], part: usize| -> f64 {
        values[part * lost.len() / parts..(part + 1) * lost.len() / parts].iter().sum()
    };
    // Time of the middle of each part, reference and loss. The loss per reference is as exact as
    // the reference is large.
    let points: Vec<(f64, f64, f64)> = (0..parts)
        .map(|part| (part as f64 + 0.5, of_part(reference, part), of_part(lost, part)))
        .collect();
    if parts < 3 || points.iter().any(|(_, weight, _)| *weight <= 0.0) {
        return false;
    }
    let weight: f64 = points.iter().map(|(_, weight, _)| weight).sum();
    let mean_time = points.iter().map(|(time, weight, _)| time * weight).sum::<f64>() / weight;
    let mean = points.iter().map(|(.., lost)| lost).sum::<f64>() / weight;
    let spread: f64 = points.iter().map(|(t, weight, _)| weight * (t - mean_time).powi(2)).sum();
    let slope =
        points.iter().map(|(time, _, lost)| (time - mean_time) * lost).sum::<f64>() / spread;
    let line = |time: f64| mean + slope * (time - mean_time);
    let residual =
        |(time, weight, lost): &(f64, f64, f64)| (lost - weight * line(*time)).powi(2) / weight;
    let variance = points.iter().map(residual).sum::<f64>() / (parts - 2) as f64;
    let error = (variance / spread).sqrt();
    slope > MIN_GROWTH_ERRORS * error
        && line(parts as f64) >= MIN_GROWTH_FACTOR * line(0.0).max(0.0)
}

/// Returns the shortest range of windows that holds `share` seconds; of several, the first.
fn shortest(lost: &[f64], share: f64) -> (usize, usize) {
    let (mut best, mut begin, mut sum) = ((0, lost.len()), 0, 0.0);
    for (at, more) in lost.iter().enumerate() {
        sum += more;
        while sum - lost[begin] >= share {
            sum -= lost[begin];
            begin += 1;
        }
        if sum >= share && at + 1 - begin < best.1 - best.0 {
            best = (begin, at + 1);
        }
    }
    best
}

/// Returns the range of windows without those at either end that hold at most `trimmed` seconds.
fn span(lost: &[f64], trimmed: f64) -> (usize, usize) {
    let within = |sum: &mut f64, more: &f64| {
        *sum += more;
        Some(*sum <= trimmed)
    };
    let begin = lost.iter().scan(0.0, within).take_while(|is| *is).count();
    let behind = lost.iter().rev().scan(0.0, within).take_while(|is| *is).count();
    (begin, lost.len() - behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lost: impl Fn(usize) -> f64) -> Option<(WhenKind, f64, f64, f64)> {
        let lost: Vec<f64> = (0..100).map(lost).collect();
        let rounded = |share: f64| (share * 100.0).round() / 100.0;
        let when = when((&lost, &[1.0; 100]), &[true; 100], 0.5, 49.8);
        when.map(|it| (it.kind, it.from_s, it.to_s, rounded(it.share)))
    }

    #[test]
    fn losses_are_steady_growing_or_confined() {
        use WhenKind::{Confined, Growing, Steady};
        assert_eq!(of(|_| 1.0), Some((Steady, 0.5, 49.5, 0.98)));
        assert_eq!(of(|at| if at % 4 == 0 { 1.0 } else { 0.0 }), Some((Steady, 0.0, 48.5, 1.0)));
        // Nine of ten parts between 41 s and 44 s.
        let hiccup = |at| if (82..88).contains(&at) { 15.0 } else { 10.0 / 94.0 };
        assert_eq!(of(hiccup), Some((Confined, 41.0, 44.0, 0.9)));
        assert_eq!(of(|at| at as f64).map(|it| it.0), Some(Growing));
        // A third of the run is without the loss, which is constant in the rest.
        let late = |at| if at < 33 { 0.0 } else { 1.0 };
        assert_eq!(of(late), Some((Confined, 16.5, 49.8, 1.0)));
        let early = |at| if at < 67 { 1.0 } else { 0.0 };
        assert_eq!(of(early), Some((Confined, 0.0, 33.5, 1.0)));
    }

    #[test]
    fn a_loss_that_makes_steps_longer_grows_though_it_fills_its_windows() {
        // One of four ranks takes (10 + step / 2) ms, the others 10 ms.
        let (mut lost, mut useful) = ([0.0; 100], [0.0; 100]);
        let mut now_ms = 0.0;
        for step in 0..80 {
            let more_ms = f64::from(step) / 2.0;
            let window = (now_ms / 24.0) as usize;
            lost[window] += 3.0 * more_ms;
            useful[window] += 40.0 + more_ms;
            now_ms += 10.0 + more_ms;
        }
        let when = when((&lost, &useful), &[true; 100], 0.024, 2.38);
        assert_eq!(when.map(|it| it.kind), Some(WhenKind::Growing));
    }

    #[test]
    fn a_loss_that_grows_evenly_grows_in_spite_of_noise() {
        // From 0 to 4 times the step, by samples that see a part of each window.
        let noise = |at: usize| 1.0 + 0.4 * ((at * 7919 % 13) as f64 / 6.0 - 1.0);
        let useful: Vec<f64> = (0..100).map(|at| 40.0 * noise(at + 5)).collect();
        let concave = |at: usize| 60.0 * (0.15 + at as f64 / 100.0).sqrt() * noise(at);
        let lost: Vec<f64> = (0..100).map(concave).collect();
        let kind =
            |lost: &[f64]| when((lost, &useful), &[true; 100], 0.5, 50.0).map(|when| when.kind);
        assert_eq!(kind(&lost), Some(WhenKind::Growing));
        let steady: Vec<f64> = (0..100).map(|at| 60.0 * noise(at)).collect();
        assert_eq!(kind(&steady), Some(WhenKind::Steady));
        // A third more at the end is no growth.
        let slow: Vec<f64> = (0..100).map(|at| 60.0 + 0.2 * at as f64).collect();
        assert_eq!(kind(&slow), Some(WhenKind::Steady));
    }

    #[test]
    fn a_pause_of_the_measurement_does_not_confine_a_loss() {
        let mut lost = [1.0; 100];
        lost[..50].fill(0.0);
        let is_measured: Vec<bool> = lost.iter().map(|it| *it > 0.0).collect();
        let when = when((&lost, &[1.0; 100]), &is_measured, 0.5, 50.0).unwrap();
        assert_eq!((when.kind, when.from_s, when.to_s), (WhenKind::Steady, 25.0, 50.0));
    }

    #[test]
    fn of_others_nothing_is_said() {
        assert_eq!(of(|at| 100.0 - at as f64), None);
        assert_eq!(of(|_| 0.0), None);
        assert_eq!(when((&[1.0; 8], &[1.0; 8]), &[true; 8], 1.0, 8.0), None);
    }
}
