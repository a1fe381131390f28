//! The samples of the communicating thread in their order: kept where nothing else is known of it, for
//! where synchronisations end is then found out only when the ranks are compared (PPoPP20, 4).
//!
//! A rank that comes last to a synchronisation leaves it at once, so its samples miss it. That it was
//! there follows from what other ranks saw: so where the run is to be cut is not known while it goes on.
//!
//! PPoPP20 has all samples on disk. Here they are in memory, 24 bytes each, and take an eighth of what a rank
//! may use: by default, that is twenty minutes of samples every 4 ms. A run that is longer is not cut, and says so;
//! nor is one that pauses the measurement (MPI_Pcontrol).

mod told;

use crate::tree::RawId;

pub(crate) use told::Teller;

/// The thread was seen in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    node: RawId,
    /// When it was there for certain, since the one before was, in stamps.
    since_last: u32,
    /// From how long before that its time counts.
    before: u32,
    /// Of its time it waited so long for a core.
    run_delay: u32,
    /// Frames that stayed since the one before; `None` where records are missing.
    kept: Option<u16>,
    is_sample: bool,
}

/// All that was seen.
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
    /// Of a run that begins at a stamp, with a bound on the memory for it. Without `is_kept`, nothing is.
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

    /// The run begins at another stamp.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.is_whole = true;
        self.is_unsure = false;
        self.begin = begin;
        self.last = begin;
        self.seen.clear();
    }

    /// The stack is now that of a context, of which the outermost `kept` frames have stayed; `when` as
    /// for a course.
    pub(crate) fn stand(&mut self, node: RawId, kept: u32, is_sample: bool, when: (u64, u64, u64)) {
        // What builds upon a stack that is not known is not known either.
        let builds_upon = self.is_unsure && kept > 0;
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
        let kept = u16::try_from(kept).ok().filter(|_| is_known);
        self.seen.push(Seen { node, since_last, before, run_delay: 0, kept, is_sample });
    }

    /// Where it was seen last it waited for a core, and where it was before.
    pub(crate) fn wait(&mut self, run_delay: u64, run_delay_before: u64) {
        let waits = [run_delay, run_delay_before];
        for (seen, wait) in self.seen.iter_mut().rev().zip(waits) {
            seen.run_delay = seen.run_delay.saturating_add(u32::try_from(wait).unwrap_or(u32::MAX));
        }
    }

    /// Records or the outer part of a stack are missing: until all of it is said again nothing is known.
    pub(crate) fn lose(&mut self) {
        self.is_unsure = true;
    }

    /// Time does not count, or there is no room: nobody can tell any more where the run is to be cut.
    pub(crate) fn give_up(&mut self) {
        self.is_whole = false;
        self.seen = Vec::new();
    }

    /// Whether there is one: calls are not measured.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Contexts that were seen.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = RawId> + '_ {
        self.seen.iter().map(|seen| seen.node)
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        (self.seen.capacity() * size_of::<Seen>()) as u64
    }
}
