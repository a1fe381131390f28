//! The samples of the communicating thread in their order. They are kept only if calls are not
//! measured: the ends of synchronisations are then found by comparing ranks (PPoPP20, 4).
//!
//! The rank that arrives last leaves a synchronisation at once, so its samples miss the call.
//! Samples of other ranks show that the rank took part. The boundaries of phases are therefore not
//! known during the run.
//!
//! PPoPP20 stores all samples on disk. Here they are in memory, 24 bytes each, and take at most an
//! eighth of a rank's memory: by default, that is twenty minutes of samples every 4 ms. A longer
//! run is not divided into phases, and the report says so; nor is a run that pauses the measurement
//! (MPI_Pcontrol).

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
    is_sample: bool,
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
        }
    }

    /// Restarts the series for a run that begins at another stamp.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.is_whole = true;
        self.is_unsure = false;
        self.begin = begin;
        self.last = begin;
        self.seen.clear();
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
        if self.seen.len() >= self.most {
            return self.give_up();
        }
        self.last = latest;
        let is_known = !std::mem::take(&mut self.is_unsure);
        let common = u16::try_from(common).ok().filter(|_| is_known);
        self.seen.push(Seen { node, since_last, before, run_delay: 0, common, is_sample });
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

    /// Drops all samples because the measurement was paused or the memory is used up: phase
    /// boundaries cannot be found any more.
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
