//! Fits one clock to another: a line through the gaps between two ranks' returns from the same
//! synchronisations (PPoPP20, 4.1).
//!
//! No rank returns from a synchronisation before the last rank has entered it, but any rank may
//! return later: a rank without a core by a whole time slice, and on one side more often than on
//! the other. Gaps are therefore not distributed symmetrically around the true offset. A mean
//! follows every delay; a median and a median of pairwise slopes are biased towards the rank that
//! is delayed more as soon as that rank is delayed in every second or third synchronisation. Prompt
//! returns agree with each other, delayed returns do not. The fit therefore searches the line along
//! which a third of the gaps lies within the narrowest band (Rousseeuw's least quantile of squares,
//! 1984) and refines it by least squares over the gaps within that band.
//!
//! PPoPP20 infers a constant offset, because samples are precise to a period only. Here the ends of
//! synchronisations are known to less than a microsecond, and a clock that runs 1 ppm fast is off
//! by a period after an hour. A drift is therefore fitted too, but only reported if it exceeds the
//! noise within the run.

use serde::{Deserialize, Serialize};

/// Minimum number of common synchronisations for a fit.
pub const MIN_SYNCS: usize = 3;
/// Minimum number of gaps for a drift: any two gaps lie on some line.
const MIN_GAPS_FOR_DRIFT: usize = 10;
/// Largest plausible drift: crystals are accurate to 100 ppm, and NTP corrects by at most 500 ppm.
const MAX_DRIFT: f64 = 1e-3;
/// Maximum number of points from which candidate drifts are derived.
const TRIED_POINTS: usize = 96;
/// Minimum half width of a band, in nanoseconds: the accuracy of anchors and their rates.
const EXACT_NS: f64 = 500.0;
/// Minimum ratio of the band widths without and with drift, for at least [`MANY_GAPS`] gaps. Noise
/// alone also gives a narrower band along the best of many slopes: with 50 gaps hardly ever half as
/// wide, with fewer gaps more and more often. The required ratio therefore grows as the number of
/// gaps falls below [`MANY_GAPS`].
const NARROWER: f64 = 2.0;
const MANY_GAPS: usize = 50;
/// Number of band widths that a drift must exceed within the run, and number of standard errors
/// that its slope must exceed.
const CROSSED_BANDS: f64 = 2.0;
const STANDARD_ERRORS: f64 = 5.0;
/// Maximum number of refinements of a line by the points near it; two mostly suffice.
const ROUNDS: usize = 10;

/// Offset and drift of a clock relative to the reference clock. Integers, so that equal gaps give
/// equal summaries wherever they are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    /// Offset in the middle of the run, in nanoseconds; positive if the clock is ahead. In the
    /// middle, unlike at the begin, an error of the drift does not affect the offset.
    pub middle_ns: i64,
    /// Drift in parts per 10^12; positive if the clock is faster, 0 if the drift is within the
    /// noise.
    pub drift_ppt: i64,
    /// Median distance of the gaps from the line, in nanoseconds.
    pub spread_ns: u64,
}

/// Fits the gaps of a clock. Each gap is a pair: a time on the reference clock (nanoseconds since
/// the begin of the run) and the clock's lead at that time (nanoseconds); gaps are sorted by time.
/// `middle_ns` is the middle of the run. Returns `None` for fewer than [`MIN_SYNCS`] gaps.
pub fn fit(gaps: &[(i64, i64)], middle_ns: i64) -> Option<Fit> {
    if gaps.len() < MIN_SYNCS {
        return None;
    }
    let mut sorted: Vec<i64> = gaps.iter().map(|(_, gap)| *gap).collect();
    sorted.sort_unstable();
    // Clocks may differ by years, which exceeds the precision of a float in nanoseconds.
    let base = sorted[sorted.len() / 2];
    let apart = |a: i64, b: i64| (i128::from(a) - i128::from(b)) as f64;
    let point = |(at, gap): &(i64, i64)| (apart(*at, middle_ns), apart(*gap, base));
    let points: Vec<(f64, f64)> = gaps.iter().map(point).collect();
    let line = drifting(&points).unwrap_or_else(|| level(&points));
    let mut far: Vec<f64> = points.iter().map(|point| line.misses(*point).abs()).collect();
    far.sort_unstable_by(f64::total_cmp);
    Some(Fit {
        middle_ns: base.saturating_add(line.height.round() as i64),
        drift_ppt: (line.slope * 1e12).round() as i64,
        spread_ns: far[far.len() / 2].round() as u64,
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    slope: f64,
    /// Value in the middle of the run.
    height: f64,
}

impl Line {
    fn misses(&self, (at, gap): (f64, f64)) -> f64 {
        gap - self.height - self.slope * at
    }
}

/// Narrowest interval that contains a given number of values.
struct Band {
    centre: f64,
    half: f64,
}

/// Returns how many of `points` gaps must agree: more than half of a few, a third of many.
fn share(points: usize) -> usize {
    (points / 2 + 1).min(5).max(points.div_ceil(3))
}

/// Returns the narrowest band; sorts the values.
fn narrowest(values: &mut [f64]) -> Band {
    values.sort_unstable_by(f64::total_cmp);
    let share = share(values.len()).min(values.len());
    let bands = values.windows(share).map(|band| (band[share - 1] - band[0], band));
    let best = bands.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let (width, first) = best.map_or((0.0, 0.0), |(width, band)| (width, band[0]));
    Band { centre: first + width / 2.0, half: (width / 2.0).max(EXACT_NS) }
}

/// Returns the points within one band width of a line.
fn near(points: &[(f64, f64)], line: Line, half: f64) -> Vec<(f64, f64)> {
    points.iter().copied().filter(|point| line.misses(*point).abs() <= 2.0 * half).collect()
}

/// Refines a line by the points near it until it no longer changes, at most [`ROUNDS`] times.
fn settled(
    points: &[(f64, f64)],
    mut line: Line,
    half: f64,
    precise: impl Fn(&[(f64, f64)]) -> Line,
) -> Line {
    for _ in 0..ROUNDS {
        let near = near(points, line, half);
        let next = if near.is_empty() { line } else { precise(&near) };
        if next == line {
            break;
        }
        line = next;
    }
    line
}

fn level(points: &[(f64, f64)]) -> Line {
    let band = narrowest(&mut points.iter().map(|(_, gap)| *gap).collect::<Vec<_>>());
    let mean = |near: &[(f64, f64)]| Line { slope: 0.0, height: means(near).1 };
    settled(points, Line { slope: 0.0, height: band.centre }, band.half, mean)
}

/// Returns the line with a drift; `None` if the drift is within the noise.
fn drifting(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < MIN_GAPS_FOR_DRIFT {
        return None;
    }
    let tried: Vec<_> =
        points.iter().copied().step_by(points.len().div_ceil(TRIED_POINTS)).collect();
    let mut values = Vec::with_capacity(points.len());
    let mut band_along = |points: &[(f64, f64)], slope: f64| {
        values.clear();
        values.extend(points.iter().map(|(at, gap)| gap - slope * at));
        narrowest(&mut values)
    };
    // The narrowest band runs along two of its points. Only distant pairs are tried: the slope
    // between near points is mostly noise.
    let count = tried.len();
    let pairs = [count / 3, count / 2, count * 3 / 4]
        .into_iter()
        .flat_map(|far| tried.iter().zip(&tried[far..]));
    let slopes = pairs.filter(|(one, other)| one.0 < other.0);
    let slopes = slopes.map(|(one, other)| (other.1 - one.1) / (other.0 - one.0));
    let (slope, _) = slopes
        .filter(|slope| slope.abs() <= MAX_DRIFT)
        .map(|slope| (slope, band_along(&tried, slope).half))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let Band { centre, half } = band_along(points, slope);
    let line = settled(points, Line { slope, height: centre }, half, least_squares);
    let (level, along) = (band_along(points, 0.0).half, band_along(points, line.slope).half);
    let narrower = NARROWER * (MANY_GAPS as f64 / points.len() as f64).powi(2).max(1.0);
    let shows = level > narrower * along && shows(&near(points, line, half), line, along);
    shows.then_some(line)
}

fn means(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let sums = points.iter().fold((0.0, 0.0), |sums, (at, gap)| (sums.0 + at, sums.1 + gap));
    (sums.0 / count, sums.1 / count)
}

/// Returns the sum of squared distances of the times from their mean.
fn breadth(points: &[(f64, f64)]) -> f64 {
    let (mean, _) = means(points);
    points.iter().map(|(at, _)| (at - mean).powi(2)).sum()
}

fn least_squares(points: &[(f64, f64)]) -> Line {
    let (at, gap) = means(points);
    let breadth = breadth(points);
    let products: f64 = points.iter().map(|point| (point.0 - at) * (point.1 - gap)).sum();
    let slope = if breadth > 0.0 { products / breadth } else { 0.0 };
    Line { slope, height: gap - slope * at }
}

/// Returns whether a line's slope exceeds the noise of the points that it was fitted to.
fn shows(points: &[(f64, f64)], line: Line, half: f64) -> bool {
    let slope = line.slope.abs();
    let times = points.iter().map(|(at, _)| *at);
    let span = times.clone().fold(f64::MIN, f64::max) - times.fold(f64::MAX, f64::min);
    let squares: f64 = points.iter().map(|point| line.misses(*point).powi(2)).sum();
    let error = (squares / (points.len() as f64 - 2.0).max(1.0) / breadth(points)).sqrt();
    points.len() >= share(MIN_GAPS_FOR_DRIFT)
        && slope <= MAX_DRIFT
        && slope * span > CROSSED_BANDS * 2.0 * half
        && slope > STANDARD_ERRORS * error
}

#[cfg(test)]
mod tests;
