//! Time at which a loss occurs: all the time, increasingly, or in a part of the run.

use plimsoll_summary::{When, WhenKind};

use crate::thresholds::{
    CONFINED_SHARE, MAX_CONFINED_FRACTION, MIN_GROWTH_FACTOR, MIN_STEADY_FRACTION,
};

/// Minimum number of windows in a run.
const MIN_WINDOWS: usize = 9;
/// Fraction of a loss that is ignored at either end of its time.
const TRIMMED_FRACTION: f64 = 0.01;

/// Returns when a loss happens. `lost` has the time of the loss in each window of `window_s`
/// seconds of a run of `elapsed_s` seconds. `None` if the run has too few windows, or the loss
/// follows none of the three patterns.
pub fn when(lost: &[f64], window_s: f64, elapsed_s: f64) -> Option<When> {
    let all: f64 = lost.iter().sum();
    if lost.len() < MIN_WINDOWS || all <= 0.0 {
        return None;
    }
    let range = |kind, begin: usize, end: usize| When {
        kind,
        from_s: begin as f64 * window_s,
        to_s: (end as f64 * window_s).min(elapsed_s),
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
    let sum = |range: std::ops::Range<usize>| lost[range].iter().sum::<f64>() / third as f64;
    let (first, last) = (sum(begin..begin + third), sum(end - third..end));
    let middle =
        lost[begin + third..end - third].iter().sum::<f64>() / (end - begin - 2 * third) as f64;
    let least = first.min(middle).min(last);
    let most = first.max(middle).max(last);
    if last >= MIN_GROWTH_FACTOR * first && first <= middle && middle <= last {
        Some(range(WhenKind::Growing, begin, end))
    } else if least >= MIN_STEADY_FRACTION * most {
        Some(range(WhenKind::Steady, begin, end))
    } else {
        None
    }
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
        when(&lost, 0.5, 49.8).map(|it| (it.kind, it.from_s, it.to_s, rounded(it.share)))
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
        // The loss begins at a third of the run and is constant from then on.
        let late = |at| if at < 33 { 0.0 } else { 1.0 };
        assert_eq!(of(late), Some((Steady, 16.5, 49.8, 1.0)));
    }

    #[test]
    fn of_others_nothing_is_said() {
        assert_eq!(of(|at| 100.0 - at as f64), None);
        assert_eq!(of(|_| 0.0), None);
        assert_eq!(when(&[1.0; 8], 1.0, 8.0), None);
    }
}
