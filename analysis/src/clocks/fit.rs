//! One clock held against another: a line through the gaps between their ranks' returns from the same
//! synchronisations (PPoPP20, 4.1).
//!
//! Nobody returns from a synchronisation before the last rank has entered it, but anybody may return
//! later: a rank without a core by a time slice, and more often on one side than on the other. The gaps
//! are therefore not spread around the truth. A mean follows every delay, a median and a median of
//! pairwise slopes say who is delayed more as soon as that is one rank in every second or third
//! synchronisation. What prompt returns have in common, and delays have not, is that they agree: the line
//! sought is the one along which a third of the gaps lies within the narrowest band (Rousseeuw's least
//! quantile of squares, 1984), made precise by least squares over what lies in that band.
//!
//! PPoPP20 infers a constant, because samples know no better than a period. Here the ends are known to less
//! than a microsecond, and a clock that runs 1 ppm fast is a period off after an hour: so a drift is told,
//! but only one that shows above the noise within the run.

use serde::{Deserialize, Serialize};

/// Fewest common synchronisations that tell how clocks stand.
pub const FEWEST: usize = 3;
/// Fewest that tell of a drift: any two gaps lie on some line.
const FEWEST_FOR_DRIFT: usize = 10;
/// Largest drift that is believed: crystals are good to 100 ppm, and NTP corrects by 500 at most.
const MOST_DRIFT: f64 = 1e-3;
/// Points over which drifts are tried out.
const TRIED_POINTS: usize = 96;
/// Half the width of a band that is narrow enough, in nanoseconds: what anchors and their rates are
/// good for.
const EXACT_NS: f64 = 500.0;
/// By how much a drift must make the band narrower to be told, of so many gaps at least. Along the best of
/// many slopes noise alone has a narrower one, too: of 50 gaps hardly ever half as wide, of fewer more and
/// more often. These must then be the narrower the fewer they are.
const NARROWER: f64 = 2.0;
const MANY: usize = 50;
/// Bands that it must cross within the run, and standard errors that it must exceed.
const CROSSED_BANDS: f64 = 2.0;
const STANDARD_ERRORS: f64 = 5.0;
/// Rounds in which a line and the points near it find each other; mostly two are enough.
const ROUNDS: usize = 10;

/// How a clock stands to the reference, in integers, so that the same gaps give the same summary
/// wherever they are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    /// By how much it is ahead in the middle of the run, in nanoseconds: there, unlike at the begin, an
    /// error of the drift does no harm.
    pub middle_ns: i64,
    /// By how much it runs faster, in parts per 10^12; 0 if that cannot be told from noise.
    pub drift_ppt: i64,
    /// Median distance of the gaps from that line, in nanoseconds.
    pub spread_ns: u64,
}

/// Fits gaps: by how many nanoseconds a clock was ahead at moments of the reference's, in nanoseconds
/// since the begin of the run, in the order of time. `middle_ns` is the middle of the run. `None` if
/// they are fewer than [`FEWEST`].
pub fn fit(gaps: &[(i64, i64)], middle_ns: i64) -> Option<Fit> {
    if gaps.len() < FEWEST {
        return None;
    }
    let mut sorted: Vec<i64> = gaps.iter().map(|(_, gap)| *gap).collect();
    sorted.sort_unstable();
    // Clocks may stand years apart, which leaves a float no room for nanoseconds.
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
    /// Where it is in the middle of the run.
    height: f64,
}

impl Line {
    fn misses(&self, (at, gap): (f64, f64)) -> f64 {
        gap - self.height - self.slope * at
    }
}

/// The narrowest stretch of some values that holds a number of them.
struct Band {
    centre: f64,
    half: f64,
}

/// How many of so many gaps must agree: more than half of a few, a third of many.
fn share(points: usize) -> usize {
    (points / 2 + 1).min(5).max(points.div_ceil(3))
}

/// Sorts the values.
fn narrowest(values: &mut [f64]) -> Band {
    values.sort_unstable_by(f64::total_cmp);
    let share = share(values.len()).min(values.len());
    let bands = values.windows(share).map(|band| (band[share - 1] - band[0], band));
    let best = bands.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let (width, first) = best.map_or((0.0, 0.0), |(width, band)| (width, band[0]));
    Band { centre: first + width / 2.0, half: (width / 2.0).max(EXACT_NS) }
}

/// The points no further from a line than the band is wide.
fn near(points: &[(f64, f64)], line: Line, half: f64) -> Vec<(f64, f64)> {
    points.iter().copied().filter(|point| line.misses(*point).abs() <= 2.0 * half).collect()
}

/// Makes a line precise by what is near it.
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

/// The line with a drift, if there is one to tell.
fn drifting(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < FEWEST_FOR_DRIFT {
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
    // The narrowest band runs along two points of it; far ones, for what is near tells no slope.
    let count = tried.len();
    let pairs = [count / 3, count / 2, count * 3 / 4]
        .into_iter()
        .flat_map(|far| tried.iter().zip(&tried[far..]));
    let slopes = pairs.filter(|(one, other)| one.0 < other.0);
    let slopes = slopes.map(|(one, other)| (other.1 - one.1) / (other.0 - one.0));
    let (slope, _) = slopes
        .filter(|slope| slope.abs() <= MOST_DRIFT)
        .map(|slope| (slope, band_along(&tried, slope).half))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let Band { centre, half } = band_along(points, slope);
    let line = settled(points, Line { slope, height: centre }, half, least_squares);
    let (level, along) = (band_along(points, 0.0).half, band_along(points, line.slope).half);
    let narrower = NARROWER * (MANY as f64 / points.len() as f64).powi(2).max(1.0);
    let shows = level > narrower * along && shows(&near(points, line, half), line, along);
    shows.then_some(line)
}

fn means(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let sums = points.iter().fold((0.0, 0.0), |sums, (at, gap)| (sums.0 + at, sums.1 + gap));
    (sums.0 / count, sums.1 / count)
}

/// Sum of squared distances in time from the mean of it.
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

/// Whether a line's slope is more than noise, of the points that it is drawn from.
fn shows(points: &[(f64, f64)], line: Line, half: f64) -> bool {
    let slope = line.slope.abs();
    let times = points.iter().map(|(at, _)| *at);
    let span = times.clone().fold(f64::MIN, f64::max) - times.fold(f64::MAX, f64::min);
    let squares: f64 = points.iter().map(|point| line.misses(*point).powi(2)).sum();
    let error = (squares / (points.len() as f64 - 2.0).max(1.0) / breadth(points)).sqrt();
    points.len() >= share(FEWEST_FOR_DRIFT)
        && slope <= MOST_DRIFT
        && slope * span > CROSSED_BANDS * 2.0 * half
        && slope > STANDARD_ERRORS * error
}

#[cfg(test)]
mod tests;
