//! Number of threads of a process that live at one time.

/// Maximum number of bins; a longer run has wider ones.
const MAX_BINS: usize = 256;

/// Lifetimes of threads in equal bins of the run. They are sums, so that they do not depend on the
/// order in which threads end.
#[derive(Debug)]
pub(crate) struct Concurrency {
    /// Stamp at which the first bin begins.
    begin: u64,
    /// Length of a bin in stamps; 0 before the first thread.
    width: u64,
    /// Stamps that threads lived in each bin.
    bins: Vec<u64>,
}

impl Concurrency {
    /// Begins at stamp `begin` without threads.
    pub(crate) fn new(begin: u64) -> Self {
        Self { begin, width: 0, bins: Vec::new() }
    }

    /// Adds a thread that lived from stamp `born` to `end`. A run of up to [`MAX_BINS`] bins has
    /// bins of `first_width` stamps.
    pub(crate) fn add(&mut self, born: u64, end: u64, first_width: u64) {
        let from = born.saturating_sub(self.begin);
        let to = end.saturating_sub(self.begin);
        if from >= to {
            return;
        }
        self.width = self.width.max(first_width).max(1);
        while (to - 1) / self.width >= MAX_BINS as u64 {
            self.bins = self.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2;
        }
        let (first, last) = (from / self.width, (to - 1) / self.width);
        self.bins.resize(self.bins.len().max(last as usize + 1), 0);
        for bin in first..=last {
            let begin = (bin * self.width).max(from);
            let lived = (bin + 1).saturating_mul(self.width).min(to) - begin;
            let sum = &mut self.bins[bin as usize];
            *sum = sum.saturating_add(lived);
        }
    }

    /// Returns the number of threads alive at one time: the largest mean over a bin, rounded; at
    /// least 1 if there were any.
    pub(crate) fn peak(&self) -> u32 {
        let most = self.bins.iter().max().copied().unwrap_or(0);
        let mean = most.saturating_add(self.width / 2).checked_div(self.width).unwrap_or(0);
        u32::try_from(mean.max(most.min(1))).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_pools_count_as_often_as_they_live_at_one_time() {
        let peak = |lives: &[(u64, u64)]| {
            let mut concurrency = Concurrency::new(1000);
            lives.iter().for_each(|(born, end)| concurrency.add(1000 + born, 1000 + end, 10));
            concurrency.peak()
        };
        assert_eq!(peak(&[]), 0);
        assert_eq!(peak(&[(5, 5)]), 0);
        assert_eq!(peak(&[(5, 6)]), 1);
        assert_eq!(peak(&[(0, 100), (0, 1000), (10, 20)]), 3);
        // The bins of a long run are wider than what two of these lived.
        assert_eq!(peak(&[(0, 100), (0, 100_000), (10, 20)]), 1);
        // A pool of four in each of 50 steps, whichever of its threads ends first.
        let mut pools: Vec<_> = (0..200).map(|at| (at / 4 * 100, at / 4 * 100 + 98)).collect();
        assert_eq!(peak(&pools), 4);
        pools.reverse();
        assert_eq!(peak(&pools), 4);
        // One thread after another.
        assert_eq!(peak(&(0..999).map(|at| (at, at + 1)).collect::<Vec<_>>()), 1);
    }

    #[test]
    fn bins_stay_few_in_any_run() {
        let mut concurrency = Concurrency::new(0);
        concurrency.add(0, u64::MAX, 1);
        concurrency.add(u64::MAX - 1, u64::MAX, 1);
        assert_eq!(concurrency.bins.len(), MAX_BINS);
        assert_eq!(concurrency.peak(), 1);
    }
}
