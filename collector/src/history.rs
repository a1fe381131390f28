//! State aggregated from the records of one process: contexts, phases and times.
//!
//! A history does not depend on the source of the records (rings or spool). The reader passes the
//! state of the process at each record in a [`Setting`], and the values that the process keeps
//! outside its records at the end.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_calls::{CallClass, CallId};
use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_wire::clock_anchor::Anchor;
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::ClockKind;
use plimsoll_wire::teams::PathKey;

use crate::address_table::Addresses;
use crate::clock_rate::{Rate, Timeline};
use crate::concurrency::Concurrency;
use crate::event_counts::ProcessEvents;
use crate::exemplars::Exemplars;
use crate::partner_values::PartnerValues;
use crate::periods::Periods;
use crate::phases::Phases;
use crate::process_info::{FinalThreadState, ProcessInfo, ThreadCounters};
use crate::profile::{
    Aggregation, CollectionCounts, CounterProfile, LateFunction, MAX_NAMED_LATE, ProcessProfile,
    SyncReturns,
};
use crate::raw_tree::{ROOT, RawId, Tree};
use crate::referenced_addresses;
use crate::region_values::RegionValues;
use crate::replay::Replay;
use crate::replay_target::{CorruptStream, ReplayTarget, Window};
use crate::resolved_profile::FinishedRun;
use crate::sample_series::Series;
use crate::spooling::meta::NameMeta;
use crate::tables::Tables;
use crate::temporal::{TemporalTrees, ThreadTree};
use crate::thread_accounts::ThreadAccounts;
use crate::time_series::{FIRST_BIN_NS, Grouping, Resolution, TimeSeries};
use plimsoll_binary::{Function, Structures};
use plimsoll_trees::WantedIteration;

/// Estimated memory of a raw context with its values, in bytes; used to bound the number of
/// contexts.
const CONTEXT_BYTES: u64 = 256;

/// Aggregated state of a process.
pub(crate) struct History {
    addresses: Addresses,
    tree: Tree,
    periods: Periods,
    phases: Phases,
    /// Sample series of the communicating thread.
    series: Series,
    /// Time of the communicating thread, binned over the run.
    times: TimeSeries,
    /// Values of the other threads.
    thread_accounts: ThreadAccounts,
    /// Number of threads seen, during the run and before.
    seen: u32,
    /// Messages of all threads per partner rank.
    partners: PartnerValues,
    /// Parallel regions of all threads.
    regions: RegionValues,
    /// perf events of all threads.
    events: ProcessEvents,
    /// Exemplary messages of all threads.
    exemplars: Exemplars,
    temporal_trees: TemporalTrees,
    begin: u64,
    /// Stamp up to which the communicating thread is accounted for; `None` until that thread is
    /// closed.
    main_end: Option<u64>,
    row_bytes: usize,
    /// Number of threads that lived during the run.
    pub(crate) threads: u32,
    /// Lifetimes of the threads that do not communicate.
    concurrency: Concurrency,
    /// Summed counters of ended threads, plus losses detected by the collector.
    pub(crate) counts: CollectionCounts,
    /// Functions not looked up by the deadline, at most [`MAX_NAMED_LATE`] of them.
    late: Vec<LateFunction>,
    /// Number of times that records of a thread could not be decoded.
    pub(crate) unread: u64,
    handler_ticks: u64,
}

/// Settings of a [`History`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryOptions {
    /// Approximate maximum memory of the history, in bytes.
    pub(crate) memory_bytes: u64,
    /// Build temporal context trees from the begin of the history on, not only after
    /// [`History::restart`].
    pub(crate) follows: bool,
    /// Wrapped calls are not measured.
    pub(crate) only_samples: bool,
    /// Aggregation of threads.
    pub(crate) aggregation: Aggregation,
}

/// State of one thread within the history of its process.
pub(crate) struct ThreadHistory {
    /// Position in the order in which the process's threads were seen.
    pub(crate) number: u32,
    /// Stamp of birth; `None` if unknown.
    born: Option<u64>,
    /// Address id of the start routine; 0 if unknown.
    pub(crate) routine: u32,
    /// Set for the communicating thread.
    pub(crate) is_main: bool,
    pub(crate) replay: Replay,
    pub(crate) temporal_tree: ThreadTree,
}

/// State of the process while its records are read.
pub(crate) struct Setting<'a> {
    /// Id tables: addresses and modules that the records refer to.
    pub(crate) tables: &'a dyn Tables,
    /// Stamps that belong to the run.
    pub(crate) window: Window,
    /// Duration of a stamp as measured by the process; accurate enough to compare durations.
    pub(crate) rate: Rate,
    /// Sampling period that the timers can sustain, in stamps.
    pub(crate) period: u64,
    /// Requested sampling period in stamps, which ticks are encoded with.
    pub(crate) tick_period: u64,
}

impl History {
    /// Creates a history that begins at stamp `begin`.
    pub(crate) fn new(begin: u64, options: &HistoryOptions) -> Self {
        let HistoryOptions { memory_bytes, follows, only_samples, aggregation } = *options;
        let contexts = (memory_bytes / 2 / CONTEXT_BYTES).clamp(1 << 10, 1 << 26) as usize;
        let row_bytes = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
        Self {
            addresses: Addresses::default(),
            tree: Tree::new(contexts),
            periods: Periods::default(),
            phases: Phases::new(begin, row_bytes),
            series: Series::new(begin, memory_bytes, only_samples),
            times: TimeSeries::new(begin, Resolution::MAIN),
            thread_accounts: ThreadAccounts::new(begin, aggregation),
            seen: 0,
            partners: PartnerValues::default(),
            regions: RegionValues::default(),
            events: ProcessEvents::default(),
            exemplars: Exemplars::default(),
            temporal_trees: TemporalTrees::new(begin, memory_bytes, follows),
            begin,
            main_end: None,
            row_bytes,
            threads: 0,
            concurrency: Concurrency::new(begin),
            counts: CollectionCounts::default(),
            late: Vec::new(),
            unread: 0,
            handler_ticks: 0,
        }
    }

    /// Returns the stamp at which the history begins.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// Discards the collected values and starts a new run at stamp `begin` with `threads` threads.
    pub(crate) fn restart(&mut self, begin: u64, threads: u32) {
        self.begin = begin;
        self.phases.restart(begin, self.row_bytes);
        self.series.restart(begin);
        self.times = TimeSeries::new(begin, Resolution::MAIN);
        self.thread_accounts.restart(begin);
        self.partners = PartnerValues::default();
        self.regions.restart();
        self.events.restart();
        self.exemplars = Exemplars::default();
        self.temporal_trees.restart(begin);
        self.addresses.put_off();
        self.threads = threads;
        self.concurrency = Concurrency::new(begin);
    }

    /// Registers a new thread. `routine`: address id of its start routine; `origin`: name of the
    /// call path that created the thread.
    pub(crate) fn thread(
        &mut self,
        routine: u32,
        origin: PathKey,
        mut replay: Replay,
        tables: &dyn Tables,
    ) -> ThreadHistory {
        self.threads += 1;
        let number = self.seen;
        self.seen += 1;
        let known = self.addresses.is_code(routine, tables);
        let routine = if known { routine } else { 0 };
        replay.begin_in(self.tree.root_in(origin));
        let born = replay.booked();
        let temporal_tree = self.temporal_trees.thread(born);
        ThreadHistory { number, born, routine, is_main: false, replay, temporal_tree }
    }

    /// Marks the thread as the communicating one from the begin of the run.
    pub(crate) fn make_main(&mut self, thread: &mut ThreadHistory) {
        thread.is_main = true;
        self.thread_accounts.remove(thread.number);
        thread.replay.begin_at(self.begin);
        self.temporal_trees.make_main(&mut thread.temporal_tree);
    }

    /// Returns whether the thread has no temporal context tree, because too many others had one.
    pub(crate) fn is_unfollowed(&self, thread: &ThreadHistory) -> bool {
        self.temporal_trees.is_unfollowed(&thread.temporal_tree)
    }

    /// Drops the temporal context tree of a thread that had none when its records were collected.
    pub(crate) fn unfollow(&mut self, thread: &mut ThreadHistory) {
        self.temporal_trees.unfollow(&mut thread.temporal_tree);
    }

    /// Applies one record of a thread.
    pub(crate) fn apply(
        &mut self,
        thread: &mut ThreadHistory,
        record: &Record<'_>,
        setting: &Setting<'_>,
        structures: &mut Structures,
    ) -> Result<(), CorruptStream> {
        if matches!(record, Record::Lost { .. }) {
            self.note_lost_records(thread);
        }
        self.temporal_trees.keep_up(
            &mut thread.temporal_tree,
            thread.is_main,
            thread.replay.booked(),
        );
        let (replay, mut target) = self.target(thread, setting, structures);
        if let Some(sync) = replay.apply(record, &mut target)?
            && thread.is_main
        {
            self.phases.synchronise(sync);
        }
        Ok(())
    }

    /// Counts unreadable records and ignores the thread until its producer resynchronises.
    pub(crate) fn count_unreadable(&mut self, thread: &mut ThreadHistory) {
        self.unread += 1;
        self.mark_gap(thread);
    }

    /// Ignores the thread until its producer resynchronises, for a loss that is counted elsewhere.
    pub(crate) fn mark_gap(&mut self, thread: &mut ThreadHistory) {
        thread.replay.mark_gap();
        self.note_lost_records(thread);
    }

    /// Notes a gap in the records of a thread.
    fn note_lost_records(&mut self, thread: &mut ThreadHistory) {
        if thread.is_main {
            self.phases.mark_gap();
            self.series.mark_gap();
        }
        thread.temporal_tree.mark_gap();
    }

    /// Closes a thread at stamp `end`, because the thread or the run has ended: accounts for the
    /// time and calls missing from its records, and adds its counters to the totals.
    pub(crate) fn close(
        &mut self,
        thread: &mut ThreadHistory,
        last: &FinalThreadState,
        end: u64,
        setting: &Setting<'_>,
        structures: &mut Structures,
    ) {
        let (replay, mut target) = self.target(thread, setting, structures);
        let lost = replay.close(end, last, &mut target);
        self.counts.lost += lost;
        let end = thread.replay.booked().unwrap_or(end);
        if thread.is_main {
            self.main_end = thread.replay.booked();
        } else {
            let born = thread.born.unwrap_or(self.begin);
            self.concurrency.add(born, end, setting.rate.stamps(FIRST_BIN_NS));
            let works = |raw| is_work(&self.tree, setting.tables, raw);
            self.thread_accounts.end(thread.number, works);
        }
        count_as(MemoryKind::Clusters, || {
            self.temporal_trees.end(&mut thread.temporal_tree, thread.is_main, end);
        });
        self.count(&last.counters);
    }

    fn count(&mut self, counters: &ThreadCounters) {
        let counts = &mut self.counts;
        for (sum, counter) in [
            (&mut counts.samples, counters.samples),
            (&mut counts.lost, counters.lost),
            (&mut counts.truncated, counters.truncated),
            (&mut counts.mpi_calls, counters.mpi_calls),
            (&mut counts.marks_planted, counters.marks_planted),
            (&mut counts.marks_hit, counters.marks_hit),
            (&mut counts.marks_stale, counters.marks_stale),
            (&mut counts.marks_verified, counters.marks_verified),
            (&mut counts.marks_mismatched, counters.marks_mismatched),
            (&mut self.handler_ticks, counters.handler_ticks),
            (&mut self.regions.unmeasured, counters.unmeasured_regions),
        ] {
            *sum = sum.saturating_add(counter);
        }
        for (sum, counter) in counts.truncated_by.iter_mut().zip(counters.truncated_by) {
            *sum = sum.saturating_add(counter);
        }
    }

    /// Notes that the run does not reach its regular end: [`Phases::break_off`].
    pub(crate) fn break_off(&mut self) {
        self.phases.break_off();
    }

    /// Completes the run at stamp `end`, after all threads are closed. `has_main`: one of them was
    /// the communicating thread.
    pub(crate) fn finish(&mut self, has_main: bool, end: u64, tables: &dyn Tables) {
        if !has_main {
            let length = end.saturating_sub(self.begin);
            self.phases.open.pass(length);
            self.phases.open.charge_unsampled((ROOT, ROOT), length);
        }
        self.phases.end();
        let grouping = Grouping { tree: &self.tree, keys: &self.temporal_trees.keys };
        self.times.finish(grouping);
        self.thread_accounts.finish(grouping, |raw| is_work(&self.tree, tables, raw));
        count_as(MemoryKind::Clusters, || self.temporal_trees.finish());
    }

    /// Looks up pending addresses for at most `limit`.
    pub(crate) fn name_some(
        &mut self,
        limit: Duration,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        let Self { addresses, tree, phases, thread_accounts, .. } = self;
        let samples = || referenced_addresses::samples(tree, phases, thread_accounts);
        addresses.name_some(limit, samples, tables, structures);
    }

    /// Returns whether addresses of the current run are pending lookup.
    pub(crate) fn has_nameless(&self) -> bool {
        self.follows() && self.addresses.has_nameless()
    }

    /// Names all addresses used by the finished run, as far as the deadline allows.
    pub(crate) fn name_used(&mut self, tables: &dyn Tables, structures: &mut Structures) {
        let used = referenced_addresses::addresses(
            &self.tree,
            &self.phases,
            &self.series,
            &self.thread_accounts,
            &self.temporal_trees,
            &self.regions,
        );
        self.addresses.name_all(used, tables, structures);
    }

    /// Removes the structure of functions given up at the deadline, including those that were given
    /// up for another process.
    pub(crate) fn drop_given_up(&mut self, structures: &Structures) {
        let used = referenced_addresses::addresses(
            &self.tree,
            &self.phases,
            &self.series,
            &self.thread_accounts,
            &self.temporal_trees,
            &self.regions,
        );
        let late = self.addresses.without_structure(used, structures);
        self.counts.late_functions = late.len() as u64;
        self.counts.late_samples = late.iter().map(|function| function.samples).sum();
        self.late = late;
        self.late.truncate(MAX_NAMED_LATE);
    }

    /// Captures these iterations of the communicating thread; called before that thread is known.
    pub(crate) fn capture(&mut self, wanted: Vec<WantedIteration>) {
        self.temporal_trees.capture(wanted);
    }

    /// Returns whether temporal context trees are built.
    pub(crate) fn follows(&self) -> bool {
        self.temporal_trees.are_followed
    }

    /// Returns the address table.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the functions that occur in temporal context trees, with the numbers of their
    /// modules, without the first `known` ones.
    pub(crate) fn functions_since(&self, known: usize) -> &[(u32, Arc<Function>)] {
        self.temporal_trees.keys.functions_since(known)
    }

    /// Imports a symbol name that was recorded in a spool.
    pub(crate) fn learn(&mut self, name: &NameMeta) {
        self.addresses.learn(name);
    }

    /// Returns the profile of the finished run, which ended at stamp `end`. `kept_period` is the
    /// sampling period that the timers can sustain, in stamps. All addresses must be named before.
    pub(crate) fn profile(&self, end: u64, kept_period: u64, info: &ProcessInfo) -> ProcessProfile {
        let rate = info.rate;
        let run = FinishedRun {
            tree: &self.tree,
            addresses: &self.addresses,
            phases: &self.phases,
            series: &self.series,
            times: &self.times,
            thread_accounts: &self.thread_accounts,
            partners: &self.partners,
            regions: &self.regions,
            events: &self.events,
            exemplars: &self.exemplars,
            temporal_tree: self.temporal_trees.main.as_ref(),
            captured: &self.temporal_trees.captured,
            workers: self.temporal_trees.workers.clusters(),
            keys: &self.temporal_trees.keys,
            begin: self.begin,
            rate,
        };
        let resolved = run.resolve();
        // The run is that of the communicating thread; other threads may outlive it.
        let end = self.main_end.unwrap_or(end);
        let elapsed = end.saturating_sub(self.begin).saturating_sub(self.phases.paused());
        let clock = match ClockKind::from_u32(info.clock) {
            ClockKind::Cpu => "cpu",
            ClockKind::Timer => "timer",
            ClockKind::Wall => "wall",
        };
        ProcessProfile {
            tree: resolved.tree,
            phases: resolved.phases,
            outside_main: resolved.outside_main,
            rows: resolved.rows,
            subgroup_intervals: resolved.subgroup_intervals,
            sync_returns: self.sync_returns(info),
            series: resolved.series,
            times: resolved.times,
            other_threads: resolved.other_threads,
            thread_locations: resolved.thread_locations,
            partners: resolved.partners,
            counters: CounterProfile {
                events: info.counted_events(),
                uncounted_ns: self.events.uncounted_ns,
                uncounted_threads: info.uncounted_threads,
                ..resolved.counters
            },
            messages: resolved.messages,
            openmp: resolved.openmp,
            temporal_tree: resolved.temporal_tree,
            workers: resolved.workers,
            loops: resolved.loops,
            threads: self.threads,
            concurrent_threads: self.concurrency.peak(),
            syncs: self.phases.syncs(),
            elapsed_ns: rate.ns(elapsed),
            period_ns: info.period_ns,
            kept_period_ns: rate.ns(kept_period),
            effective_period_ns: rate.ns(self.periods.typical()),
            clock: clock.to_owned(),
            collection: CollectionCounts {
                sampling_cpu_ns: rate.ns_of_ticks(self.handler_ticks),
                marks_off: info.marks_off,
                unsampled_threads: info.unsampled_threads,
                unseen_threads: info.unseen_threads,
                unfollowed: info.unfollowed | self.temporal_trees.unfollowed,
                paused_ns: rate.ns(self.phases.paused()),
                stepped_aside: info.stepped_aside,
                failed: info.failed,
                lost: self.counts.lost.saturating_add(self.unread),
                ..self.counts
            },
            late: self.late.clone(),
        }
    }

    /// Returns when synchronisations returned, on the process's own clock; `None` without an
    /// anchor.
    fn sync_returns(&self, info: &ProcessInfo) -> Option<SyncReturns> {
        let (ticks, ns) = info.anchor?;
        let timeline = Timeline { anchor: Anchor { ticks, ns }, rate: info.rate };
        let kept = self.phases.sync_returns().kept().iter();
        let mut ends: Vec<_> = kept.map(|(index, stamp)| (*index, timeline.ns(*stamp))).collect();
        ends.sort_unstable();
        Some(SyncReturns { begin_ns: timeline.ns(self.begin), ends })
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let threads = self.thread_accounts.bytes();
        let temporal_trees = self.temporal_trees.bytes();
        let phases = self.phases.bytes() + self.series.bytes() + self.times.bytes();
        let partners = self.partners.bytes() + self.events.bytes() + self.exemplars.bytes();
        let partners = partners + self.regions.bytes();
        self.tree.bytes() + self.addresses.bytes() + phases + threads + partners + temporal_trees
    }

    fn target<'h>(
        &'h mut self,
        thread: &'h mut ThreadHistory,
        setting: &Setting<'h>,
        structures: &'h mut Structures,
    ) -> (&'h mut Replay, ReplayTarget<'h>) {
        let is_main = thread.is_main;
        let (account, times) = match is_main {
            true => (&mut self.phases.open, Some(&mut self.times)),
            false => self.thread_accounts.of_thread(thread.number, thread.routine),
        };
        self.events.of_thread((!is_main).then_some(thread.routine));
        let target = ReplayTarget {
            tables: setting.tables,
            addresses: &mut self.addresses,
            tree: &mut self.tree,
            account,
            partners: &mut self.partners,
            regions: &mut self.regions,
            is_main,
            events: &mut self.events,
            exemplars: &mut self.exemplars,
            periods: &mut self.periods,
            pruned: &mut self.counts.pruned,
            temporal_tree: thread.temporal_tree.temporal_tree.as_mut(),
            keys: &mut self.temporal_trees.keys,
            series: is_main.then_some(&mut self.series),
            times,
            structures,
            window: setting.window,
            rate: setting.rate,
            period: setting.period,
            tick_period: setting.tick_period,
        };
        (&mut thread.replay, target)
    }
}

/// Returns whether the time in a context is work: outside of wrapped calls, or in one that sleeps.
fn is_work(tree: &Tree, tables: &dyn Tables, raw: RawId) -> bool {
    let Some(call) = tree.outermost_call(raw) else { return true };
    let address = tables.address(tree.address(call));
    let id = address.and_then(|(value, ..)| CallId::try_from(value).ok());
    id.and_then(plimsoll_calls::class) == Some(CallClass::Sleep)
}
