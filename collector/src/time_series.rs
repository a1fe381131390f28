//! A thread's time by context in a bounded number of equal bins of its run.
//!
//! Bins begin narrow. When the run outgrows the maximum number of bins, neighbouring bins merge and
//! each covers twice the time. A closed bin keeps a few contexts with the most time; the time of
//! all others is kept as two sums: inside and outside of wrapped calls. The memory is thereby
//! independent of the length of the run and of the number of contexts ([`Resolution`]).

use crate::raw_tree::{IdMap, RawId, Tree};
use crate::temporal::KeyInterner;

/// Bounds of a series: how much of the time of a thread it tells apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolution {
    /// Maximum number of bins of a run. A run that is longer than the first bins has at least half
    /// as many.
    pub(crate) max_bins: usize,
    /// Maximum number of contexts that a closed bin keeps.
    bin_contexts: usize,
    /// Maximum number of contexts of the open bin. Beyond it, half of that number are kept.
    max_open: usize,
}

impl Resolution {
    /// Resolution for the communicating thread. The open bin has no bound, because there is only
    /// one such thread per process.
    pub(crate) const MAIN: Self = Self { max_bins: 256, bin_contexts: 8, max_open: usize::MAX };

    /// Resolution for any other thread: at most about 6 KiB, because a process may have many.
    pub(crate) const OTHER: Self = Self { max_bins: 48, bin_contexts: 4, max_open: 28 };
}

/// Length of the first bins. Independent of the sampling period: timers that cannot keep the
/// requested period may change it while the job runs, and a digest must end with the same bins.
pub(crate) const FIRST_BIN_NS: u64 = 1_000_000;

/// A stretch of time, in stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin: u64,
    /// At least `begin`.
    pub(crate) end: u64,
}

impl Span {
    /// Returns both halves.
    pub(crate) fn halves(self) -> (Self, Self) {
        let middle = self.begin + (self.end - self.begin) / 2;
        (Self { end: middle, ..self }, Self { begin: middle, ..self })
    }
}

/// Grouping of raw contexts that share an entry of a closed bin.
#[derive(Clone, Copy)]
pub(crate) struct Grouping<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) keys: &'a KeyInterner,
}

impl Grouping<'_> {
    /// Returns whether two contexts are places in the same innermost loop or function, called by
    /// the same context.
    fn are_alike(self, one: RawId, other: RawId) -> bool {
        let key = |node| self.keys.innermost(node);
        let same_caller = || self.tree.parent(one) == self.tree.parent(other);
        one == other || (same_caller() && key(one).is_some() && key(one) == key(other))
    }

    /// Builds a closed bin of at most `contexts` contexts of some values, each context once.
    fn bin(self, mut values: Vec<(RawId, u64)>, contexts: usize) -> TimeBin {
        // Numbers of contexts depend on the order in which the records of two threads are read.
        values.sort_unstable_by(|(one, time), (other, other_time)| {
            other_time.cmp(time).then_with(|| self.tree.path_order(*one, *other))
        });
        let mut bin = TimeBin::default();
        for (node, time) in values {
            bin.add(node, time, contexts, self);
        }
        bin.values.shrink_to_fit();
        bin
    }
}

/// A closed bin. All times are stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeBin {
    /// A bounded number of contexts ([`Resolution`]), each once. An entry also has the time of
    /// other contexts in the same innermost loop or function, and is the one with the most time.
    pub(crate) values: Vec<(RawId, u64)>,
    /// Time of all other contexts outside of wrapped calls.
    pub(crate) other_work: u64,
    /// Time of all other contexts inside of wrapped calls.
    pub(crate) other_calls: u64,
}

impl TimeBin {
    /// Adds time of a context. The context takes the entry of one with less time only if its own
    /// time exceeds that.
    fn add(&mut self, node: RawId, time: u64, contexts: usize, grouping: Grouping<'_>) {
        let alike = |(known, _): &&mut (RawId, u64)| grouping.are_alike(*known, node);
        if let Some((_, known)) = self.values.iter_mut().find(alike) {
            *known += time;
        } else if self.values.len() < contexts {
            self.values.push((node, time));
        } else if let Some(least) = self.values.iter_mut().min_by_key(|(_, time)| *time) {
            let given_up =
                if least.1 < time { std::mem::replace(least, (node, time)) } else { (node, time) };
            self.add_other(given_up, grouping.tree);
        }
    }

    fn add_other(&mut self, (node, time): (RawId, u64), tree: &Tree) {
        let sum = if tree.in_call(node) { &mut self.other_calls } else { &mut self.other_work };
        *sum += time;
    }

    fn merge(self, other: Self, contexts: usize, grouping: Grouping<'_>) -> Self {
        let mut values = self.values;
        for (node, time) in other.values {
            match values.iter_mut().find(|(known, _)| *known == node) {
                Some((_, known)) => *known += time,
                None => values.push((node, time)),
            }
        }
        let mut bin = grouping.bin(values, contexts);
        bin.other_work += self.other_work + other.other_work;
        bin.other_calls += self.other_calls + other.other_calls;
        bin
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<(RawId, u64)>()
    }
}

/// The time series of one thread.
#[derive(Debug)]
pub(crate) struct TimeSeries {
    resolution: Resolution,
    /// Stamp at which the first bin begins.
    begin: u64,
    /// Length of a bin; 0 as long as there is none.
    width: u64,
    /// The bins before the open one.
    closed: Vec<TimeBin>,
    /// Times of the last bin by context.
    open: IdMap<RawId, u64>,
    open_span: Span,
    /// `other_work` and `other_calls` of the open bin.
    open_others: TimeBin,
    /// Bytes of `closed` when its last bin was closed.
    closed_bytes: usize,
}

impl TimeSeries {
    /// Creates an empty series of a run that begins at a stamp.
    pub(crate) fn new(begin: u64, resolution: Resolution) -> Self {
        Self {
            resolution,
            begin,
            width: 0,
            closed: Vec::new(),
            open: IdMap::default(),
            open_span: Span { begin, end: begin },
            open_others: TimeBin::default(),
            closed_bytes: 0,
        }
    }

    /// Adds time of a context, spread evenly over a span. `first_width`: length of the first bins
    /// in stamps.
    #[inline]
    pub(crate) fn add(
        &mut self,
        node: RawId,
        time: u64,
        span: Span,
        first_width: impl FnOnce() -> u64,
        grouping: Grouping<'_>,
    ) {
        if time == 0 {
            return;
        }
        if span.begin >= self.open_span.begin && span.end <= self.open_span.end {
            self.add_open(node, time, grouping);
        } else {
            self.spread(node, time, span, first_width, grouping);
        }
    }

    /// Ends the series: all its bins are closed.
    pub(crate) fn finish(&mut self, grouping: Grouping<'_>) {
        if !self.open.is_empty() {
            self.close(grouping);
        }
    }

    /// Returns the length of a bin, in stamps.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// Returns the closed bins, from the begin of the run on.
    pub(crate) fn bins(&self) -> &[TimeBin] {
        &self.closed
    }

    /// Returns the memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let open = self.open.capacity() * (size_of::<(RawId, u64)>() + 1);
        (size_of::<Self>() + self.closed_bytes + open) as u64
    }

    /// Adds time of a context to the open bin.
    #[inline]
    fn add_open(&mut self, node: RawId, time: u64, grouping: Grouping<'_>) {
        *self.open.entry(node).or_default() += time;
        if self.open.len() > self.resolution.max_open {
            let bin = grouping.bin(self.open.drain().collect(), self.resolution.max_open / 2);
            self.reopen(bin);
        }
    }

    /// Adds time that lies in several bins, or in another one than the open bin.
    fn spread(
        &mut self,
        node: RawId,
        time: u64,
        span: Span,
        first_width: impl FnOnce() -> u64,
        grouping: Grouping<'_>,
    ) {
        if self.width == 0 {
            self.width = first_width().max(1);
            self.closed.reserve_exact(self.resolution.max_bins);
            self.open_span.end = self.begin + self.width;
        }
        let begin = span.begin.max(self.begin) - self.begin;
        let end = (span.end.max(self.begin) - self.begin).max(begin + 1);
        self.reach(end, grouping);
        let open = self.closed.len();
        let first = ((begin / self.width) as usize).min(open);
        let last = (((end - 1) / self.width) as usize).min(open);
        let mut given = 0;
        for bin in first..=last {
            let until = ((bin as u64 + 1) * self.width).min(end) - begin;
            let due = (u128::from(time) * u128::from(until) / u128::from(end - begin)) as u64;
            match self.closed.get_mut(bin) {
                _ if due == given => {}
                Some(closed) => {
                    closed.add(node, due - given, self.resolution.bin_contexts, grouping);
                }
                None => self.add_open(node, due - given, grouping),
            }
            given = due;
        }
    }

    /// Makes the bin that a time before `end`, since the begin of the run, lies in the open one, if
    /// it lies after that.
    fn reach(&mut self, end: u64, grouping: Grouping<'_>) {
        let open_end = (self.closed.len() as u64 + 1) * self.width;
        if end <= open_end {
            return;
        }
        self.close(grouping);
        while end.div_ceil(self.width) > self.resolution.max_bins as u64 {
            self.double(grouping);
        }
        let open = end.div_ceil(self.width) as usize - 1;
        if open < self.closed.len() {
            // The open bin has become the later half of the last one.
            let last = self.closed.pop().unwrap_or_default();
            self.reopen(last);
        }
        self.closed.resize_with(open, TimeBin::default);
        let begin = self.begin + open as u64 * self.width;
        self.open_span = Span { begin, end: begin + self.width };
        self.closed_bytes = self.closed.iter().map(TimeBin::bytes).sum();
    }

    fn close(&mut self, grouping: Grouping<'_>) {
        let mut bin = grouping.bin(self.open.drain().collect(), self.resolution.bin_contexts);
        let others = std::mem::take(&mut self.open_others);
        bin.other_work += others.other_work;
        bin.other_calls += others.other_calls;
        self.closed_bytes += bin.bytes();
        self.closed.push(bin);
    }

    /// Moves the content of a bin to the open one.
    fn reopen(&mut self, bin: TimeBin) {
        self.open.extend(bin.values);
        self.open_others.other_work += bin.other_work;
        self.open_others.other_calls += bin.other_calls;
    }

    fn double(&mut self, grouping: Grouping<'_>) {
        let contexts = self.resolution.bin_contexts;
        let merged = Vec::with_capacity(self.resolution.max_bins);
        let mut bins = std::mem::replace(&mut self.closed, merged).into_iter();
        while let Some(first) = bins.next() {
            let second = bins.next().unwrap_or_default();
            self.closed.push(first.merge(second, contexts, grouping));
        }
        self.width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::raw_tree::ROOT;

    /// A program with one wrapped call, contexts 1 to 400 outside of it, and one inside.
    struct Program {
        tree: Tree,
        keys: KeyInterner,
        call: RawId,
    }

    impl Program {
        fn new() -> Self {
            let mut tree = Tree::new(1000);
            for address in 100..500 {
                tree.child(ROOT, address, false).unwrap();
            }
            let call = tree.child(ROOT, 1, true).unwrap();
            Self { tree, keys: KeyInterner::default(), call }
        }

        fn grouping(&self) -> Grouping<'_> {
            Grouping { tree: &self.tree, keys: &self.keys }
        }
    }

    fn sums(series: &TimeSeries) -> u64 {
        let of_bin = |bin: &TimeBin| {
            bin.values.iter().map(|(_, time)| time).sum::<u64>() + bin.other_work + bin.other_calls
        };
        series.bins().iter().map(of_bin).sum()
    }

    #[test]
    fn bins_double_and_hold_each_stamp_once() {
        let program = Program::new();
        for (count, step) in [(1u64, 1u64), (300, 7), (1000, 10), (5000, 33), (40, 90_000)] {
            let mut series = TimeSeries::new(50, Resolution::MAIN);
            let mut truth: Vec<RawId> = Vec::new();
            for index in 0..count {
                // Lengths vary, so that intervals lie across the ends of bins.
                let length = step + index % 5 * step / 2;
                let begin = 50 + truth.len() as u64;
                let node = 1 + (index % 3) as RawId;
                truth.extend(std::iter::repeat_n(node, length as usize));
                let span = Span { begin, end: begin + length };
                series.add(node, length, span, || 10, program.grouping());
            }
            series.finish(program.grouping());
            assert_eq!(sums(&series), truth.len() as u64);
            assert!(series.bins().len() <= Resolution::MAIN.max_bins);
            assert!(series.width() == 10 || series.bins().len() > Resolution::MAIN.max_bins / 2);
            for (bin, stamps) in series.bins().iter().zip(truth.chunks(series.width() as usize)) {
                let mut times: BTreeMap<RawId, u64> = BTreeMap::new();
                stamps.iter().for_each(|node| *times.entry(*node).or_default() += 1);
                let found: BTreeMap<RawId, u64> = bin.values.iter().copied().collect();
                assert_eq!(found, times, "{count} intervals of {step}");
            }
        }
    }

    #[test]
    fn a_bin_keeps_the_contexts_with_the_most_time() {
        let program = Program::new();
        let mut series = TimeSeries::new(0, Resolution::MAIN);
        let mut now = 0;
        let mut add = |series: &mut TimeSeries, node, time| {
            let span = Span { begin: now, end: now + time };
            now += time;
            series.add(node, time, span, || 2000, program.grouping());
        };
        for node in 1..=40 {
            add(&mut series, node, if node % 10 == 0 { 100 } else { 2 });
        }
        add(&mut series, program.call, 1);
        series.finish(program.grouping());
        let [bin] = series.bins() else { panic!("{} bins", series.bins().len()) };
        assert_eq!(bin.values[..4], [(10, 100), (20, 100), (30, 100), (40, 100)]);
        assert_eq!((bin.values.len(), bin.other_work, bin.other_calls), (8, 32 * 2, 1));
        assert_eq!(series.width(), 2000);
    }

    #[test]
    fn memory_is_bounded() {
        let program = Program::new();
        let mut series = TimeSeries::new(0, Resolution::MAIN);
        for index in 0..200_000u64 {
            let span = Span { begin: 10 * index, end: 10 * index + 10 };
            series.add(1 + (index % 40) as RawId, 10, span, || 10, program.grouping());
        }
        assert!(series.bytes() < 64 << 10, "{} bytes", series.bytes());
        series.finish(program.grouping());
        assert_eq!(sums(&series), 2_000_000);
    }
    #[test]
    fn the_series_of_a_worker_is_small_and_loses_no_time() {
        let program = Program::new();
        let mut series = TimeSeries::new(0, Resolution::OTHER);
        let mut peak = 0;
        for index in 0..100_000u64 {
            // One context has half of the time, and 400 share the rest.
            let node = if index % 2 == 0 { 1 } else { 1 + (index / 2 % 400) as RawId };
            let span = Span { begin: 10 * index, end: 10 * index + 10 };
            series.add(node, 10, span, || 10, program.grouping());
            peak = peak.max(series.bytes());
        }
        series.finish(program.grouping());
        assert!(peak <= 6 << 10, "{peak} bytes");
        assert_eq!(sums(&series), 1_000_000);
        let bins = series.bins();
        assert!((24..=48).contains(&bins.len()), "{} bins", bins.len());
        for bin in bins {
            let (most, time) = bin.values.iter().max_by_key(|(_, time)| *time).unwrap();
            assert_eq!((*most, bin.values.len()), (1, 4));
            let all = bin.values.iter().map(|(_, time)| time).sum::<u64>() + bin.other_work;
            assert!(*time * 2 >= all, "{time} of {all}");
        }
    }

    #[test]
    fn a_tie_does_not_depend_on_the_order_in_which_contexts_were_seen() {
        let kept = |addresses: [u32; 6]| {
            let mut tree = Tree::new(100);
            let keys = KeyInterner::default();
            let mut series = TimeSeries::new(0, Resolution::OTHER);
            let nodes = addresses.map(|address| tree.child(ROOT, address, false).unwrap());
            let grouping = Grouping { tree: &tree, keys: &keys };
            for (node, begin) in nodes.into_iter().zip((0..).step_by(10)) {
                series.add(node, 10, Span { begin, end: begin + 10 }, || 100, grouping);
            }
            series.finish(grouping);
            let values = series.bins()[0].values.iter();
            values.map(|(node, _)| tree.address(*node)).collect::<Vec<_>>()
        };
        assert_eq!(kept([5, 2, 6, 1, 4, 3]), [1, 2, 3, 4]);
        assert_eq!(kept([6, 5, 4, 3, 2, 1]), [1, 2, 3, 4]);
    }
}
