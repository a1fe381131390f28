//! Distribution of durations: counts by logarithmic buckets, four for each power of two.
//!
//! Distributions of several threads add up, unlike medians.

use core::sync::atomic::{AtomicU32, Ordering};

/// Number of buckets of a distribution.
pub const MAX_BUCKETS: usize = 112;

/// Bits below the leading one that tell the buckets of a power of two apart.
const FRACTION_BITS: u32 = 2;
/// The first bucket begins at two to this, in ticks: a few nanoseconds. It also holds all shorter
/// durations, and the last bucket all longer ones: some seconds.
const FIRST_BITS: u32 = 6;

/// Returns the bucket of a duration in ticks.
#[inline]
pub fn bucket_of(ticks: u64) -> usize {
    let ticks = ticks.max(1 << FIRST_BITS);
    let bits = ticks.ilog2();
    let fraction = (ticks >> (bits - FRACTION_BITS)) as usize & ((1 << FRACTION_BITS) - 1);
    let bucket = ((bits - FIRST_BITS) as usize) << FRACTION_BITS | fraction;
    bucket.min(MAX_BUCKETS - 1)
}

/// Returns the middle of a bucket in ticks.
pub fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket.min(MAX_BUCKETS - 1);
    let bits = FIRST_BITS + (bucket >> FRACTION_BITS) as u32;
    let fraction = (bucket & ((1 << FRACTION_BITS) - 1)) as u64;
    let width = 1 << (bits - FRACTION_BITS);
    (1 << bits) + fraction * width + width / 2
}

/// Counts by bucket in the segment. Only the thread of the area writes.
#[repr(C)]
pub struct LengthCounters([AtomicU32; MAX_BUCKETS]);

impl LengthCounters {
    /// Counts a duration.
    #[inline]
    pub fn add(&self, ticks: u64) {
        let place = &self.0[bucket_of(ticks)];
        place.store(place.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the buckets in use with their counts.
    pub fn read(&self) -> impl Iterator<Item = LengthCount> + '_ {
        let used = self.0.iter().zip(0..).map(|(place, bucket)| LengthCount {
            bucket,
            count: place.load(Ordering::Relaxed).into(),
        });
        used.filter(|it| it.count > 0)
    }

    /// Sets all counts to zero.
    pub fn clear(&self) {
        // Entries that were never used take no memory.
        for place in self.0.iter().filter(|it| it.load(Ordering::Relaxed) != 0) {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Number of durations in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthCount {
    /// Index of the bucket, less than [`MAX_BUCKETS`].
    pub bucket: u32,
    /// Number of durations.
    pub count: u64,
}

/// Construct that durations belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthOf {
    /// Instances of the parallel region that is made by calls through this slot.
    Region(u32),
    /// Executions of tasks with the function of this address id.
    Task(u32),
}

/// Number of integers that a count is written as.
pub const NUMBERS: usize = 3;

/// Returns a count and what it belongs to as integers. Inverse of [`of_numbers`].
pub fn numbers(of: LengthOf, length: LengthCount) -> [u64; NUMBERS] {
    let name = match of {
        LengthOf::Region(slot) => u64::from(slot) << 1,
        LengthOf::Task(function) => u64::from(function) << 1 | 1,
    };
    [name, length.bucket.into(), length.count]
}

/// Returns a count and what it belongs to; `None` if an integer is out of range.
pub fn of_numbers([name, bucket, count]: [u64; NUMBERS]) -> Option<(LengthOf, LengthCount)> {
    let id = u32::try_from(name >> 1).ok()?;
    let of = if name & 1 == 0 { LengthOf::Region(id) } else { LengthOf::Task(id) };
    let bucket = u32::try_from(bucket).ok().filter(|it| (*it as usize) < MAX_BUCKETS)?;
    Some((of, LengthCount { bucket, count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_near_all_its_durations() {
        let longest = middle_of(MAX_BUCKETS - 1);
        let mut ticks = 1 << FIRST_BITS;
        while ticks < longest {
            let middle = middle_of(bucket_of(ticks));
            assert_eq!(bucket_of(middle), bucket_of(ticks));
            let error = middle.abs_diff(ticks) as f64 / ticks as f64;
            assert!(error <= 0.126, "{ticks} is {error} from {middle}");
            ticks += ticks / 50 + 1;
        }
        assert!(longest > 10_000_000_000, "some seconds: {longest}");
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, MAX_BUCKETS - 1));
    }

    #[test]
    fn counts_are_read_by_bucket_and_cleared() {
        // SAFETY: atomics are valid as zeros.
        let counters = unsafe { Box::<LengthCounters>::new_zeroed().assume_init() };
        for ticks in [3_000, 3_010, 90_000] {
            counters.add(ticks);
        }
        let read: Vec<_> = counters.read().collect();
        let of = |ticks, count| LengthCount { bucket: bucket_of(ticks) as u32, count };
        assert_eq!(read, [of(3_000, 2), of(90_000, 1)]);
        for of in [LengthOf::Region(7), LengthOf::Task(u32::MAX)] {
            assert_eq!(of_numbers(numbers(of, read[0])), Some((of, read[0])));
        }
        assert_eq!(of_numbers([0, MAX_BUCKETS as u64, 1]), None);
        counters.clear();
        assert_eq!(counters.read().next(), None);
    }
}
