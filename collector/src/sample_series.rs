//! The samples of the communicating thread in their order. They are kept only if calls are not
//! measured: the ends of synchronisations are then found by comparing ranks (PPoPP20, 4).
//!
//! The rank that arrives last leaves a synchronisation at once, so its samples miss the call.
//! Samples of other ranks show that the rank took part. The boundaries of phases are therefore not
//! known during the run.
//!
//! PPoPP20 stores all samples on disk. Here they are in memory, 24 bytes each, and take at most an
//! eighth of a rank's memory: by default, that is twenty minutes of samples every 4 ms. In a longer
//! run neighbouring samples merge, evenly over the run, so that the first hour is known as well as
//! the last one: each time the memory is full, half of the samples remain. A run that pauses the
//! measurement (MPI_Pcontrol) is not divided into phases, and the report says so.

mod series_export;

use crate::raw_tree::RawId;

pub(crate) use series_export::SeriesExporter;

/// One sample of the thread: its context and its times relative to the previous sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    node: RawId,
    /// Stamps from the previous sample to this one.
    since_last: u32,
    /// Stamps before this sample that are charged to its context.
    before: u32,
    /// Stamps in which the thread was runnable without a core.
    run_delay: u32,
    /// Number of outermost frames kept since the previous sample; `None` if records are missing.
    common: Option<u16>,
    /// Number of samples that this one stands for.
    samples: u16,
}

impl Seen {
    /// Merges a sample with the next one, which remains: the time of the first one goes to its two
    /// neighbours, half of it to each. Returns `None` if the two are too far apart in time.
    fn merge(self, next: Self) -> Option<Self> {
        let since_last = self.since_last.checked_add(next.since_last)?;
        let of_first = self.before.saturating_add(next.since_last.saturating_sub(next.before));
        let of_next = if self.node == next.node { of_first } else { of_first / 2 };
        let common = self.common.zip(next.common).map(|(one, other)| one.min(other));
        Some(Self {
            node: next.node,
            since_last,
            before: next.before.saturating_add(of_next),
            run_delay: self.run_delay.saturating_add(next.run_delay),
            common,
            samples: self.samples.saturating_add(next.samples),
        })
    }
}

/// All samples of a run, or none if `is_kept` is false.
#[derive(Debug, Default)]
pub(crate) struct Series {
    is_kept: bool,
    is_whole: bool,
    is_unsure: bool,
    begin: u64,
    last: u64,
    seen: Vec<Seen>,
    most: usize,
    /// Number of stack changes that an element of `seen` stands for.
    stride: u32,
    /// Number of stack changes that the last element of `seen` stands for so far.
    merged: u32,
}

impl Series {
    /// Creates the series of a run that begins at stamp `begin`; samples take at most an eighth of
    /// `memory_bytes`. Without `is_kept`, no samples are kept.
    pub(crate) fn new(begin: u64, memory_bytes: u64, is_kept: bool) -> Self {
        let most = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX) / size_of::<Seen>();
        Self {
            is_kept,
            is_whole: true,
            is_unsure: false,
            begin,
            last: begin,
            seen: Vec::new(),
            most,
            stride: 1,
            merged: 0,
        }
    }

    /// Restarts the series for a run that begins at another stamp.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.is_whole = true;
        self.is_unsure = false;
        self.begin = begin;
        self.last = begin;
        self.seen.clear();
        (self.stride, self.merged) = (1, 0);
    }

    /// Adds a stack change: the thread is now in context `node`, with the outermost `common` frames
    /// unchanged; `when` as for a temporal context tree.
    pub(crate) fn set_stack(
        &mut self,
        node: RawId,
        common: u32,
        is_sample: bool,
        when: (u64, u64, u64),
    ) {
        // A stack change relative to an unknown stack is unknown as well.
        let builds_upon = self.is_unsure && common > 0;
        if !self.is_kept || !self.is_whole || builds_upon {
            return;
        }
        let (_, at, latest) = when;
        if latest < self.begin {
            self.is_unsure = false;
            return;
        }
        let latest = latest.max(self.last);
        let (since_last, before) = (latest - self.last, latest - at.clamp(self.last, latest));
        let (Ok(since_last), Ok(before)) = (u32::try_from(since_last), u32::try_from(before))
        else {
            return self.give_up();
        };
        self.last = latest;
        let is_known = !std::mem::take(&mut self.is_unsure);
        let common = u16::try_from(common).ok().filter(|_| is_known);
        let samples = u16::from(is_sample);
        self.add(Seen { node, since_last, before, run_delay: 0, common, samples });
    }

    /// Adds a sample, which becomes part of the last one as long as that stands for too few.
    fn add(&mut self, seen: Seen) {
        if self.merged < self.stride
            && let Some(last) = self.seen.last_mut()
            && let Some(both) = last.merge(seen)
        {
            *last = both;
            self.merged += 1;
            return;
        }
        if self.seen.len() >= self.most {
            self.thin();
        }
        if self.seen.len() < self.most {
            self.seen.push(seen);
            self.merged = 1;
        } else {
            self.give_up();
        }
    }

    /// Merges each two neighbouring samples.
    fn thin(&mut self) {
        let mut kept = 0;
        for at in (0..self.seen.len()).step_by(2) {
            let first = self.seen[at];
            let second = self.seen.get(at + 1).copied();
            let (one, other) = match second.map(|second| first.merge(second)) {
                Some(Some(both)) => (both, None),
                _ => (first, second),
            };
            for seen in [Some(one), other].into_iter().flatten() {
                self.seen[kept] = seen;
                kept += 1;
            }
        }
        self.seen.truncate(kept);
        self.stride *= 2;
    }

    /// Adds the time in which the thread waited for a core to the last sample and to the one before
    /// it.
    pub(crate) fn wait(&mut self, run_delay: u64, run_delay_before: u64) {
        let waits = [run_delay, run_delay_before];
        for (seen, wait) in self.seen.iter_mut().rev().zip(waits) {
            seen.run_delay = seen.run_delay.saturating_add(u32::try_from(wait).unwrap_or(u32::MAX));
        }
    }

    /// Marks a loss of records or of the outer part of a stack: the stack is unknown until a whole
    /// one.
    pub(crate) fn mark_gap(&mut self) {
        self.is_unsure = true;
    }

    /// Drops all samples, because the measurement was paused or samples are too far apart to merge:
    /// phase boundaries cannot be found any more.
    pub(crate) fn give_up(&mut self) {
        self.is_whole = false;
        self.seen = Vec::new();
    }

    /// Returns whether samples are kept, because calls are not measured.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns the contexts of all samples.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = RawId> + '_ {
        self.seen.iter().map(|seen| seen.node)
    }

    /// Returns the approximate memory in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.seen.capacity() * size_of::<Seen>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PERIOD: u64 = 100;

    /// Returns the series of samples that come once per period, each in the context that
    /// `node_at` gives by its number. Memory suffices for `most` of them.
    fn series(count: u64, most: usize, node_at: impl Fn(u64) -> RawId) -> Series {
        let mut series = Series::new(0, (8 * most * size_of::<Seen>()) as u64, true);
        for number in 0..count {
            let latest = (number + 1) * PERIOD;
            let at = if number == 0 { 0 } else { latest - PERIOD / 2 };
            series.set_stack(node_at(number), 1, true, (latest - PERIOD, at, latest));
        }
        series
    }

    /// Returns the time of each context up to the last sample, as the profile has it.
    fn times(series: &Series) -> BTreeMap<RawId, u64> {
        let mut times = BTreeMap::new();
        for (at, seen) in series.seen.iter().enumerate() {
            let after = series.seen.get(at + 1).map_or(0, |next| next.since_last - next.before);
            *times.entry(seen.node).or_default() += u64::from(seen.before + after);
        }
        times
    }

    #[test]
    fn a_long_run_keeps_samples_evenly() {
        for count in [16, 17, 100, 1000, 1023, 1024, 5000] {
            let series = series(count, 16, |number| 1 + (number / 400) as RawId);
            assert!(series.is_whole && series.seen.len() <= 16, "{count}");
            assert!(series.seen.len() >= 8, "{count}: {}", series.seen.len());
            let last: u64 = series.seen.iter().map(|seen| u64::from(seen.since_last)).sum();
            assert_eq!(last, count * PERIOD, "the samples reach to the last one");
            let samples: u64 = series.seen.iter().map(|seen| u64::from(seen.samples)).sum();
            assert_eq!(samples, count);
            let (end, whole) = series.seen.split_last().unwrap();
            assert!(whole.iter().all(|seen| u32::from(seen.samples) == series.stride), "{count}");
            assert!(u32::from(end.samples) <= series.stride);
            assert!(series.seen.iter().all(|seen| seen.before <= seen.since_last));
        }
    }

    #[test]
    fn merged_samples_keep_the_time_of_their_contexts() {
        // Each context is seen eight times in a row; four samples become one.
        let count = 16 * 4 * 8;
        let of_all = series(count, 1 << 12, |number| (number / 8 % 5) as RawId);
        let merged = series(count, 16 * 8, |number| (number / 8 % 5) as RawId);
        assert_eq!((of_all.stride, merged.stride), (1, 4));
        assert_eq!(times(&merged), times(&of_all));
        // A context seen once among others shares its time with its neighbours.
        let brief = series(9, 8, |number| if number == 3 { 7 } else { RawId::from(number == 2) });
        let whole = series(9, 64, |number| if number == 3 { 7 } else { RawId::from(number == 2) });
        assert_eq!((times(&whole)[&1], times(&whole)[&7]), (PERIOD, PERIOD));
        assert_eq!(times(&brief)[&7], PERIOD + PERIOD / 2);
        assert_eq!(times(&brief).values().sum::<u64>(), times(&whole).values().sum::<u64>());
    }

    #[test]
    fn samples_that_are_too_far_apart_do_not_merge() {
        let mut series = Series::new(0, (8 * 4 * size_of::<Seen>()) as u64, true);
        let far = u64::from(u32::MAX) - 1;
        for number in 1..=5 {
            let latest = number * far;
            series.set_stack(1, 1, true, (latest - far, latest, latest));
        }
        assert!(!series.is_whole && series.seen.is_empty());
    }
}
