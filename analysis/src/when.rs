//! Time at which a loss occurs: all the time, increasingly, or in a part of the run.

use plimsoll_summary::{When, WhenKind};

use crate::thresholds::{
    CONFINED_SHARE, MAX_CONFINED_FRACTION, MAX_SPAN_FRACTION, MIN_GROWTH_FACTOR,
    MIN_STEADY_FRACTION,
};

/// Minimum number of windows in a run.
const MIN_WINDOWS: usize = 9;
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
    if last >= MIN_GROWTH_FACTOR * first && first <= middle && middle <= last {
        Some(range(WhenKind::Growing, begin, end))
    } else if (end - begin) as f64 <= MAX_SPAN_FRACTION * lost.len() as f64 {
        Some(range(WhenKind::Confined, begin, end))
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
