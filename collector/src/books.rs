//! What a stream is replayed into, and what it can say to the process.

use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_wire::sync::Part;

use crate::account::{Account, Between};
use crate::addresses::Addresses;
use crate::clock::Rate;
use crate::course::{Course, Keys, Sources};
use crate::partner_values::PartnerValues;
use crate::periods::Periods;
use crate::series::Series;
use crate::tables::Tables;
use crate::time_series::{FIRST_BIN_NS, Grouping, Span, TimeSeries};
use crate::tree::{RawId, Tree};
use plimsoll_binary::Structures;

/// What counts: the run, in stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Begin of the run.
    pub(crate) begin: u64,
    /// End of the run; `u64::MAX` while it goes on.
    pub(crate) end: u64,
    /// No record can be later than this.
    pub(crate) latest: u64,
}

impl Window {
    /// The nearest stamp within the run.
    pub(crate) fn clip(&self, stamp: u64) -> u64 {
        stamp.max(self.begin).min(self.end.max(self.begin))
    }

    /// Whether a stamp lies within the run.
    pub(crate) fn holds(&self, stamp: u64) -> bool {
        (self.begin..=self.end).contains(&stamp)
    }
}

/// What a replay reads and writes besides its own state.
pub(crate) struct Books<'a> {
    /// What the numbers in records stand for.
    pub(crate) tables: &'a dyn Tables,
    /// Its addresses.
    pub(crate) addresses: &'a mut Addresses,
    /// Its contexts.
    pub(crate) tree: &'a mut Tree,
    /// Where the thread's time is booked.
    pub(crate) account: &'a mut Account,
    /// Where its messages are added up.
    pub(crate) partners: &'a mut PartnerValues,
    /// Intervals between samples.
    pub(crate) periods: &'a mut Periods,
    /// Stacks that had to be cut.
    pub(crate) cut: &'a mut u64,
    /// The thread's temporal context tree, if that is followed.
    pub(crate) course: Option<&'a mut Course>,
    /// What the keys of courses stand for.
    pub(crate) keys: &'a mut Keys,
    /// Its samples, if it is the communicating one.
    pub(crate) series: Option<&'a mut Series>,
    /// Its time by bins of the run, if it is the communicating one.
    pub(crate) times: Option<&'a mut TimeSeries>,
    /// What is known of the programs' code.
    pub(crate) structures: &'a mut Structures,
    /// What counts.
    pub(crate) window: Window,
    /// Length of a stamp.
    pub(crate) rate: Rate,
    /// Sampling period in stamps.
    pub(crate) period: u64,
}

impl Books<'_> {
    /// Time inside of a wrapped call, all of it within a span: [`Account::spend`].
    pub(crate) fn spend(&mut self, node: RawId, stamps: u64, span: Span) {
        self.account.spend(node, stamps);
        self.add_time(node, stamps, span);
    }

    /// Time outside of wrapped calls within a span: [`Account::work`].
    pub(crate) fn work(&mut self, node: RawId, stamps: u64, run_delay: u64, span: Span) {
        self.account.work(node, stamps, run_delay);
        self.add_time(node, stamps, span);
    }

    /// Time within a span that no sample vouches for: [`Account::rest`].
    pub(crate) fn rest(&mut self, between: Between, stamps: u64, span: Span) {
        self.account.rest(between, stamps);
        let (one, other) = between;
        let node = if one == other { one } else { self.tree.parent(one) };
        self.add_time(node, stamps, span);
    }

    fn add_time(&mut self, node: RawId, stamps: u64, span: Span) {
        if let Some(times) = self.times.as_deref_mut() {
            let grouping = Grouping { tree: self.tree, keys: self.keys };
            let first_width = || self.rate.stamps(FIRST_BIN_NS);
            times.add(node, stamps, span, first_width, grouping);
        }
    }

    /// The stack is now that of a context: [`Course::stand`].
    pub(crate) fn stand(&mut self, node: RawId, kept: u32, is_leaf: bool, when: (u64, u64, u64)) {
        // What happens after the run is none of its course.
        let (earliest, at, latest) = when;
        let end = self.window.end;
        let when = (earliest, at.min(end), latest.min(end));
        if let Some(series) = self.series.as_deref_mut().filter(|_| earliest < end) {
            series.stand(node, kept, is_leaf, when);
        }
        if let Some(course) = self.course.as_deref_mut().filter(|_| earliest < end) {
            let (tables, structures) = (self.tables, &mut *self.structures);
            let mut sources = Sources { tables, structures };
            let keys = &mut *self.keys;
            let (period, tree) = (self.period, &*self.tree);
            count_as(MemoryKind::Clusters, || {
                course.stand(node, kept, is_leaf, when, period, tree, keys, &mut sources);
            });
        }
    }

    /// The outer part of the stack could not be seen: [`Course::lose`].
    pub(crate) fn stand_cut_off(&mut self) {
        if let Some(series) = self.series.as_deref_mut() {
            series.lose();
        }
        if let Some(course) = self.course.as_deref_mut() {
            course.lose();
        }
    }

    /// The call of a context, which was innermost, returned: [`Course::leave`].
    pub(crate) fn leave(&mut self, node: RawId, at: u64) {
        if let Some(course) = self.course.as_deref_mut() {
            let (end, tree, keys) = (self.window.end, &*self.tree, &*self.keys);
            count_as(MemoryKind::Clusters, || course.leave(node, at.min(end), tree, keys));
        }
    }
}

/// A synchronisation that returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sync {
    /// Which ranks it was of; `None`: all of them.
    pub(crate) part: Option<Part>,
    /// Its index.
    pub(crate) index: u64,
    /// Its call path.
    pub(crate) node: RawId,
    /// When it returned.
    pub(crate) stamp: u64,
    /// The call completed a nonblocking one.
    pub(crate) is_completion: bool,
    /// Within the run.
    pub(crate) counted: bool,
}

/// The records contradict themselves: the stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;
