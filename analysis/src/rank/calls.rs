//! What one rank spends in calls: those that are no work, and those that are work on files or locks.

use std::collections::BTreeMap;

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{NodeId, NodeValue, PhaseProfile};

use super::Rank;
use crate::canonical::below;
use crate::label::Label;
use crate::labelling::Meaning;

/// What one rank spent in a call outside its work, such as the synchronisation that ends a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// Wall time.
    pub time_ns: u64,
    /// Calls of it.
    pub calls: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Bytes whose transfer it waited for, or made itself; of calls before the ending synchronisation
    /// [`super::transfers`] says it.
    pub moved: u64,
    /// Time in those of its calls that took long by themselves.
    pub long_ns: u64,
    /// Its time by label, in the order of [`Label::ALL`].
    pub by_label: [u64; Label::ALL.len()],
}

impl Sync {
    /// Adds a context at or below the call `top`.
    fn add(&mut self, node: NodeId, top: NodeId, value: &NodeValue, meanings: &[Meaning]) {
        self.time_ns += value.exclusive_ns;
        self.by_label[meanings[node as usize].label as usize] += value.exclusive_ns;
        if node == top {
            (self.calls, self.bytes, self.long_ns) = (value.calls, value.bytes, value.long_ns);
        }
    }
}

impl Rank<'_> {
    /// The part of a phase's work that needs no core: sleeping, and waiting for locks and threads.
    pub fn off_core_ns(&self, phase: &PhaseProfile) -> u64 {
        let tree = &self.input.profile.tree;
        let is_off = |node: NodeId| {
            let call = tree.frames[tree.nodes[node as usize].frame as usize].call;
            let class = call.and_then(calls::class);
            self.meanings[node as usize].is_work() && class.is_some_and(CallClass::leaves_core)
        };
        let off = phase.values.iter().filter(|(node, _)| is_off(*node));
        off.map(|(_, value)| value.net_ns()).sum()
    }

    /// Where a phase spends time outside work, by the outermost such context; the synchronisation
    /// that ends it is left to [`Rank::sync`].
    pub fn waits(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, Sync> {
        let mut waits: BTreeMap<NodeId, Sync> = BTreeMap::new();
        // It may lie within a function of the user's that is no work either.
        let ending = below(&self.input.profile.tree, phase.ends_in);
        for (node, value) in phase.values.iter().filter(|(node, _)| !ending[*node as usize]) {
            let Some(top) = self.owners.wait[*node as usize] else { continue };
            waits.entry(top).or_default().add(*node, top, value, &self.meanings);
        }
        waits
    }

    /// Whether its threads can wait for each other.
    pub fn is_multithreaded(&self) -> bool {
        let profile = &self.input.profile;
        profile.threads > 1 || profile.collection.unseen_threads > 0
    }

    /// Whether a call is work on files or waits for a lock. A single thread waits for other processes, also
    /// in the calls of locks, as in those of a semaphore that processes share.
    fn takes_resource(&self, call: NodeId) -> bool {
        self.is_multithreaded() || !self.meanings[call as usize].label.is_a(Label::WaitLock)
    }

    /// Calls of a phase that are work on files or wait for locks.
    pub fn resources(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, Sync> {
        let mut resources: BTreeMap<NodeId, Sync> = BTreeMap::new();
        for (node, value) in &phase.values {
            let top = self.owners.resource[*node as usize];
            let Some(top) = top.filter(|top| self.takes_resource(*top)) else { continue };
            resources.entry(top).or_default().add(*node, top, value, &self.meanings);
        }
        resources.values_mut().for_each(|call| call.moved = call.bytes);
        resources
    }

    /// How long its threads waited for locks, in the whole run.
    pub fn locked_ns(&self) -> u64 {
        if !self.is_multithreaded() {
            return 0;
        }
        let main = self.phases.iter().flat_map(|phase| &phase.values);
        let locked = main.chain(&self.input.profile.other_threads).filter(|(node, _)| {
            self.owners.resource[*node as usize]
                .is_some_and(|top| self.meanings[top as usize].label.is_a(Label::WaitLock))
        });
        locked.map(|(_, value)| value.exclusive_ns).sum()
    }

    /// The synchronisation that ends a phase: its time and all that was counted in it.
    pub fn sync(&self, phase: &PhaseProfile) -> Sync {
        let inside = below(&self.input.profile.tree, phase.ends_in);
        let mut sync = Sync::default();
        for (node, value) in phase.values.iter().filter(|(node, _)| inside[*node as usize]) {
            sync.add(*node, phase.ends_in.unwrap_or(*node), value, &self.meanings);
        }
        sync.moved = sync.bytes;
        sync
    }
}
