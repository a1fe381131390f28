//! The period that the samples really kept.

/// Buckets: two to an octave of stamps.
const BUCKETS: usize = 128;

/// A histogram of the intervals between neighbouring samples with nothing else between them.
///
/// Such an interval is one period of the thread's CPU time, unless the thread lost its core, slept
/// in a call that is not wrapped, or a sample was dropped: those are longer. So the period is the
/// mean around the median, not the mean of all.
pub(crate) struct Periods {
    count: [u64; BUCKETS],
    sum: [u64; BUCKETS],
}

impl Default for Periods {
    fn default() -> Self {
        Self { count: [0; BUCKETS], sum: [0; BUCKETS] }
    }
}

impl Periods {
    /// Adds an interval, in stamps.
    pub(crate) fn add(&mut self, interval: u64) {
        if interval > 0 {
            let octave = interval.ilog2() as usize;
            let half = if octave == 0 { 0 } else { (interval >> (octave - 1)) as usize & 1 };
            let bucket = 2 * octave + half;
            self.count[bucket] += 1;
            self.sum[bucket] = self.sum[bucket].saturating_add(interval);
        }
    }

    /// Returns the period, in stamps: the mean of the intervals in the bucket of the median and its
    /// two neighbours. 0 if no two samples were neighbours.
    pub(crate) fn typical(&self) -> u64 {
        let total: u64 = self.count.iter().sum();
        let mut seen = 0;
        for bucket in 0..BUCKETS {
            seen += self.count[bucket];
            if seen > 0 && 2 * seen >= total {
                let near = bucket.saturating_sub(1)..(bucket + 2).min(BUCKETS);
                let sum = self.sum[near.clone()].iter().fold(0u64, |a, b| a.saturating_add(*b));
                return sum / self.count[near].iter().sum::<u64>().max(1);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_typical_not_mean() {
        let mut periods = Periods::default();
        assert_eq!(periods.typical(), 0);
        for _ in 0..50 {
            periods.add(127);
            periods.add(129);
        }
        for _ in 0..20 {
            periods.add(100_000);
        }
        assert_eq!(periods.typical(), 128);
        periods.add(0);
        periods.add(1);
        periods.add(u64::MAX);
        assert_eq!(periods.typical(), 128);
    }
}
