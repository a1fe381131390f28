//! Arithmetic progressions of numbers, and covers of a set by few of them.

use serde::{Deserialize, Serialize};

/// Numbers `first`, `first + step`, ... `last`; a single number has step 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// Lowest number.
    pub first: u64,
    /// Highest number.
    pub last: u64,
    /// Distance between neighbours; at least 1.
    pub step: u64,
}

/// Maximum number of pieces into which one subtraction breaks a run.
const MAX_PIECES: u64 = 16;

impl Run {
    /// Creates the run from `first` to the last number with this step that is not above `last`.
    pub(super) fn new(first: u64, last: u64, step: u64) -> Self {
        let last = last - (last - first) % step;
        Self { first, last, step: if first == last { 1 } else { step } }
    }

    /// Returns the count of numbers.
    pub fn count(self) -> u64 {
        (self.last - self.first) / self.step + 1
    }

    /// Returns the numbers in ascending order.
    pub fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count()).map(move |index| self.first + index * self.step)
    }

    /// Returns whether the run holds `number`.
    pub fn contains(self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
            && (number - self.first).is_multiple_of(self.step)
    }

    /// Returns the numbers of both runs. The runs meet every least common multiple of their steps
    /// (the Chinese remainder theorem), or never.
    pub(super) fn intersection(self, other: Self) -> Option<Self> {
        let (low, high) = (self.first.max(other.first), self.last.min(other.last));
        if low > high {
            return None;
        }
        let (gcd, inverse) = extended_gcd(self.step, other.step);
        let distance = i128::from(other.first) - i128::from(self.first);
        if distance % i128::from(gcd) != 0 {
            return None;
        }
        let other_step = i128::from(other.step / gcd);
        let turns = (distance / i128::from(gcd) % other_step * inverse).rem_euclid(other_step);
        let meeting = i128::from(self.first) + turns * i128::from(self.step);
        let lcm = i128::from(self.step) * other_step;
        // Moves forward to the first meeting that lies in both runs.
        let behind = i128::from(low) - meeting;
        let meeting = meeting + (behind + lcm - 1).div_euclid(lcm) * lcm;
        let meeting = u64::try_from(meeting).ok().filter(|meeting| *meeting <= high)?;
        let lcm = u64::try_from(lcm).unwrap_or(u64::MAX);
        Some(Self::new(meeting, high, lcm))
    }

    /// Pushes this run without the numbers of another one. Returns false if that takes too many
    /// pieces; the pushed pieces then hold further numbers.
    pub(super) fn subtract(self, other: Self, rest: &mut Vec<Self>) -> bool {
        let Some(common) = self.intersection(other) else {
            rest.push(self);
            return true;
        };
        if common.first > self.first {
            rest.push(Self::new(self.first, common.first - self.step, self.step));
        }
        let between = if common.first == common.last { 1 } else { common.step / self.step };
        let exact = between <= MAX_PIECES;
        if exact {
            for offset in 1..between {
                let first = common.first + offset * self.step;
                rest.push(Self::new(first, common.last - self.step, common.step));
            }
        } else {
            rest.push(Self::new(common.first, common.last, self.step));
        }
        if common.last < self.last {
            rest.push(Self::new(common.last + self.step, self.last, self.step));
        }
        exact
    }

    /// Returns this run and a later one as one run; `None` if that would hold other numbers.
    pub(super) fn joined(self, next: Self) -> Option<Self> {
        let (single, next_single) = (self.first == self.last, next.first == next.last);
        let step = match (single, next_single) {
            (true, true) => 1,
            (true, false) => next.step,
            (false, true) => self.step,
            (false, false) if self.step == next.step => self.step,
            (false, false) => return None,
        };
        (self.last.checked_add(step) == Some(next.first)).then_some(Self {
            first: self.first,
            last: next.last,
            step,
        })
    }

    /// Returns the smallest run that includes both.
    pub(super) fn hull(self, other: Self) -> Self {
        let single = |run: Self| if run.first == run.last { 0 } else { run.step };
        let step = gcd(gcd(single(self), single(other)), self.first.abs_diff(other.first));
        let (first, last) = (self.first.min(other.first), self.last.max(other.last));
        Self::new(first, last, step.max(1))
    }
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Returns the greatest common divisor of two steps, and the inverse of `one / gcd` modulo `other /
/// gcd`.
fn extended_gcd(one: u64, other: u64) -> (u64, i128) {
    let (mut old, mut new) = (i128::from(one), i128::from(other));
    let (mut old_factor, mut new_factor) = (1i128, 0i128);
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (old_factor, new_factor) = (new_factor, old_factor - quotient * new_factor);
    }
    (old as u64, old_factor)
}

/// Longest period that is searched for.
const MAX_RHYTHM: u64 = 64;

/// Covers strictly ascending numbers by few runs, the same ones for any grouping of the numbers
/// before.
///
/// The runs follow one another, as in rank lists, unless that takes twice as many runs as a period
/// has members. Then each member of the period becomes a run, and runs interleave: of period three
/// with one missing member, `1-998:3,2-998:3`. These runs do not depend on where in the period the
/// numbers begin, so that the runs of neighbouring stretches continue each other.
pub(super) fn cover(numbers: &[u64]) -> Vec<Run> {
    let ascending = ascending(numbers);
    let Some(period) = rhythm(numbers) else { return ascending };
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let beats = numbers.iter().take_while(|number| **number - first < period);
    let beats: Vec<Run> = beats.map(|first| Run::new(*first, last, period)).collect();
    if 2 * beats.len() <= ascending.len() { beats } else { ascending }
}

/// Returns runs that each lie wholly behind the previous one, formed from the lowest number on.
fn ascending(numbers: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in numbers {
        let next = Run { first: *number, last: *number, step: 1 };
        let Some(open) = runs.last_mut() else {
            runs.push(next);
            continue;
        };
        match open.count() {
            1 => *open = Run { step: number - open.first, last: *number, ..*open },
            _ if number - open.last == open.step => open.last = *number,
            // Two distant numbers are no progression yet: the second may begin one.
            2 if open.step > 1 => {
                let second = open.last;
                *open = Run { first: open.first, last: open.first, step: 1 };
                runs.push(Run { first: second, last: *number, step: number - second });
            }
            _ => runs.push(next),
        }
    }
    if let Some(open) = runs.last_mut()
        && open.count() == 2
        && open.step > 1
    {
        let second = open.last;
        *open = Run { first: open.first, last: open.first, step: 1 };
        runs.push(Run { first: second, last: second, step: 1 });
    }
    runs
}

/// Returns the shortest period in which numbers recur at least three times.
fn rhythm(numbers: &[u64]) -> Option<u64> {
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let holds = |number: u64| numbers.binary_search(&number).is_ok();
    (1..=MAX_RHYTHM.min((last - first) / 2)).find(|period| {
        numbers.iter().all(|number| {
            (last - number < *period || holds(number + period))
                && (number - first < *period || holds(number - period))
        })
    })
}
