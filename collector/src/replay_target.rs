//! State that the replay of one stream updates, and the operations on it.

use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_wire::sync_id::Subgroup;

use crate::account::{Account, Between};
use crate::address_table::{Addresses, Detail};
use crate::clock_rate::Rate;
use crate::event_counts::ProcessEvents;
use crate::exemplars::Exemplars;
use crate::partner_values::PartnerValues;
use crate::periods::Periods;
use crate::raw_tree::{RawId, Tree};
use crate::region_values::RegionValues;
use crate::sample_series::Series;
use crate::tables::Tables;
use crate::temporal::{KeyInterner, Sources, TemporalTree};
use crate::time_series::{FIRST_BIN_NS, Grouping, Span, TimeSeries};
use plimsoll_binary::Structures;

/// Range of stamps that belongs to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Begin of the run, as a stamp.
    pub(crate) begin: u64,
    /// End of the run, as a stamp; `u64::MAX` while it goes on.
    pub(crate) end: u64,
    /// Upper bound of the stamps of all records.
    pub(crate) latest: u64,
}

impl Window {
    /// Returns the nearest stamp within the run.
    pub(crate) fn clip(&self, stamp: u64) -> u64 {
        stamp.max(self.begin).min(self.end.max(self.begin))
    }

    /// Returns whether a stamp lies within the run.
    pub(crate) fn holds(&self, stamp: u64) -> bool {
        (self.begin..=self.end).contains(&stamp)
    }
}

/// State that a replay reads and writes in addition to its own.
pub(crate) struct ReplayTarget<'a> {
    /// Id tables: addresses and modules that records refer to.
    pub(crate) tables: &'a dyn Tables,
    /// Addresses of the process.
    pub(crate) addresses: &'a mut Addresses,
    /// Raw contexts of the process.
    pub(crate) tree: &'a mut Tree,
    /// Account to which the thread's time is charged.
    pub(crate) account: &'a mut Account,
    /// Sums of the thread's messages per partner rank.
    pub(crate) partners: &'a mut PartnerValues,
    /// Parallel regions of the process.
    pub(crate) regions: &'a mut RegionValues,
    /// Whether the thread is the communicating one.
    pub(crate) is_main: bool,
    /// perf events of the process.
    pub(crate) events: &'a mut ProcessEvents,
    /// Exemplary messages.
    pub(crate) exemplars: &'a mut Exemplars,
    /// Intervals between samples.
    pub(crate) periods: &'a mut Periods,
    /// Number of stacks without their inner frames.
    pub(crate) pruned: &'a mut u64,
    /// The thread's temporal context tree; `None` if none is built for the thread.
    pub(crate) temporal_tree: Option<&'a mut TemporalTree>,
    /// Meaning of the keys in temporal context trees.
    pub(crate) keys: &'a mut KeyInterner,
    /// Sample series; `None` unless the thread is the communicating one.
    pub(crate) series: Option<&'a mut Series>,
    /// Time by bins of the run; `None` if none is kept for the thread.
    pub(crate) times: Option<&'a mut TimeSeries>,
    /// Program structure (functions, loops, lines) of the modules.
    pub(crate) structures: &'a mut Structures,
    /// Range of stamps that belongs to the run.
    pub(crate) window: Window,
    /// Duration of a stamp.
    pub(crate) rate: Rate,
    /// Sampling period that the timers can sustain, in stamps: the limit for iterations.
    pub(crate) period: u64,
    /// Requested sampling period in stamps: ticks count from one such period after the record
    /// before, also where the timers sustain only a longer one.
    pub(crate) tick_period: u64,
}

impl ReplayTarget<'_> {
    /// Charges `stamps` of `span` to short wrapped calls: [`Account::spend`].
    pub(crate) fn spend(&mut self, node: RawId, stamps: u64, span: Span) {
        self.account.spend(node, stamps);
        self.events.charge(node, stamps, false);
        self.add_time(node, stamps, span);
        if let Some(temporal_tree) = self.temporal_tree.as_deref_mut().filter(|_| !self.is_main) {
            count_as(MemoryKind::Clusters, || temporal_tree.spend(node, stamps));
        }
    }

    /// Charges `stamps` of `span` to the wrapped call that a record reports: [`Account::spend`].
    pub(crate) fn spend_inside(&mut self, node: RawId, stamps: u64, span: Span) {
        self.account.spend(node, stamps);
        self.events.charge(node, stamps, true);
        self.add_time(node, stamps, span);
    }

    /// Charges `stamps` of `span` to code outside wrapped calls: [`Account::work`].
    pub(crate) fn work(&mut self, node: RawId, stamps: u64, run_delay: u64, span: Span) {
        self.account.work(node, stamps, run_delay);
        self.events.charge(node, stamps, false);
        self.add_time(node, stamps, span);
    }

    /// Charges `stamps` of `span` that no sample covers: [`Account::charge_unsampled`].
    pub(crate) fn charge_unsampled(&mut self, between: Between, stamps: u64, span: Span) {
        self.account.charge_unsampled(between, stamps);
        self.events.charge_rest(between, stamps);
        let (one, other) = between;
        let node = if one == other { one } else { self.tree.parent(one) };
        self.add_time(node, stamps, span);
    }

    fn add_time(&mut self, node: RawId, stamps: u64, span: Span) {
        if let Some(times) = self.times.as_deref_mut() {
            // For other threads, a wrapped call is one context with all that its samples show: what
            // lies inside would be grouped by the trees of all threads that called it.
            let node = match self.is_main {
                true => node,
                false => self.tree.outermost_call(node).unwrap_or(node),
            };
            let grouping = Grouping { tree: self.tree, keys: self.keys };
            let first_width = || self.rate.stamps(FIRST_BIN_NS);
            times.add(node, stamps, span, first_width, grouping);
        }
    }

    /// Requests the name of a function by its address id.
    pub(crate) fn name_function(&mut self, id: u32) {
        self.addresses.kind(id, Detail::Structure, self.tables);
    }

    /// Applies a stack change: the stack is now that of context `node`, see
    /// [`TemporalTree::set_stack`].
    pub(crate) fn set_stack(
        &mut self,
        node: RawId,
        common: u32,
        is_leaf: bool,
        when: (u64, u64, u64),
    ) {
        // A stack change after the end of the run is left out of the temporal context tree.
        let (earliest, at, latest) = when;
        let end = self.window.end;
        let when = (earliest, at.min(end), latest.min(end));
        if let Some(series) = self.series.as_deref_mut().filter(|_| earliest < end) {
            series.set_stack(node, common, is_leaf, when);
        }
        if let Some(temporal_tree) = self.temporal_tree.as_deref_mut().filter(|_| earliest < end) {
            let (tables, structures) = (self.tables, &mut *self.structures);
            let mut sources = Sources { tables, structures };
            let keys = &mut *self.keys;
            let (period, tree) = (self.period, &*self.tree);
            count_as(MemoryKind::Clusters, || {
                temporal_tree.set_stack(
                    node,
                    common,
                    is_leaf,
                    when,
                    period,
                    tree,
                    keys,
                    &mut sources,
                );
            });
        }
    }

    /// Notes that the outer part of the stack could not be unwound: [`TemporalTree::mark_gap`].
    pub(crate) fn stack_truncated(&mut self) {
        if let Some(series) = self.series.as_deref_mut() {
            series.mark_gap();
        }
        if let Some(temporal_tree) = self.temporal_tree.as_deref_mut() {
            temporal_tree.mark_gap();
        }
    }

    /// Removes the innermost call, which returned at stamp `at`: [`TemporalTree::leave`].
    pub(crate) fn leave(&mut self, node: RawId, at: u64) {
        if let Some(temporal_tree) = self.temporal_tree.as_deref_mut() {
            let (end, tree, keys) = (self.window.end, &*self.tree, &*self.keys);
            count_as(MemoryKind::Clusters, || temporal_tree.leave(node, at.min(end), tree, keys));
        }
    }
}

/// Completed synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletedSync {
    /// Subgroup of ranks that synchronised; `None` for all ranks.
    pub(crate) subgroup: Option<Subgroup>,
    /// Index of the synchronisation in its group.
    pub(crate) index: u64,
    /// Raw context of the call.
    pub(crate) node: RawId,
    /// Stamp at which the call returned.
    pub(crate) stamp: u64,
    /// Set if the call completed a nonblocking collective.
    pub(crate) is_completion: bool,
    /// Set if the synchronisation lies within the run.
    pub(crate) counted: bool,
}

/// Error: records contradict each other, so the stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorruptStream;
