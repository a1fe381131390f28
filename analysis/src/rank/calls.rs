//! Time of one rank in calls: calls outside of work, and calls that are work on files or locks.

use std::collections::BTreeMap;

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{NodeId, NodeValue, PhaseProfile};

use super::Rank;
use crate::canonical::below;
use crate::label::Label;
use crate::labelling::ContextClass;

/// Time of one rank in a call outside of its work, such as the synchronisation that ends a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// Wall time, in nanoseconds.
    pub time_ns: u64,
    /// Number of calls.
    pub calls: u64,
    /// Bytes moved by the call.
    pub bytes: u64,
    /// Bytes with a transfer that the call made itself or waited for; for calls before the ending
    /// synchronisation set by [`super::transfers`].
    pub moved: u64,
    /// Time in calls that took long individually, in nanoseconds.
    pub long_ns: u64,
    /// Time by label, in nanoseconds, in the order of [`Label::ALL`].
    pub by_label: [u64; Label::ALL.len()],
}

impl CallTime {
    /// Adds a context at or below the call `top`.
    fn add(
        &mut self,
        node: NodeId,
        top: NodeId,
        value: &NodeValue,
        context_classes: &[ContextClass],
    ) {
        self.time_ns += value.exclusive_ns;
        self.by_label[context_classes[node as usize].label as usize] += value.exclusive_ns;
        if node == top {
            (self.calls, self.bytes, self.long_ns) = (value.calls, value.bytes, value.long_ns);
        }
    }
}

impl Rank<'_> {
    /// Returns the part of a phase's work that needs no core, in nanoseconds: sleeping, and waiting
    /// for locks and threads.
    pub fn off_core_ns(&self, phase: &PhaseProfile) -> u64 {
        let is_off =
            |node: NodeId| self.context_classes[node as usize].is_work() && !self.needs_core(node);
        let off = phase.values.iter().filter(|(node, _)| is_off(*node));
        off.map(|(_, value)| value.net_ns()).sum()
    }

    /// Returns whether the time of a context is work that needs a core.
    pub fn needs_core(&self, node: NodeId) -> bool {
        let call = self.input.profile.tree.frame_of(node).call;
        let leaves = call.and_then(calls::class).is_some_and(CallClass::leaves_core);
        self.context_classes[node as usize].is_work() && !leaves
    }

    /// Returns the time that a phase spends outside of work, by the outermost such context; without
    /// the ending synchronisation, which [`Rank::sync`] returns.
    pub fn waits(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, CallTime> {
        let mut waits: BTreeMap<NodeId, CallTime> = BTreeMap::new();
        // The ending synchronisation may lie within a function that a user's rule puts outside of
        // work.
        let ending = below(&self.input.profile.tree, phase.ends_in);
        for (node, value) in phase.values.iter().filter(|(node, _)| !ending[*node as usize]) {
            let Some(top) = self.owners.wait[*node as usize] else { continue };
            waits.entry(top).or_default().add(*node, top, value, &self.context_classes);
        }
        waits
    }

    /// Returns whether the rank has several threads that can wait for each other.
    pub fn is_multithreaded(&self) -> bool {
        let profile = &self.input.profile;
        profile.threads > 1 || profile.collection.unseen_threads > 0
    }

    /// Returns whether a call is work on files or waits for a lock of the process. A single thread
    /// waits for other processes even in lock calls, such as those of a semaphore shared by
    /// processes.
    fn takes_resource(&self, call: NodeId) -> bool {
        self.is_multithreaded() || !self.context_classes[call as usize].label.is_a(Label::WaitLock)
    }

    /// Returns the calls of a phase that are work on files or wait for locks.
    pub fn resources(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, CallTime> {
        let mut resources: BTreeMap<NodeId, CallTime> = BTreeMap::new();
        for (node, value) in &phase.values {
            let top = self.owners.resource[*node as usize];
            let Some(top) = top.filter(|top| self.takes_resource(*top)) else { continue };
            resources.entry(top).or_default().add(*node, top, value, &self.context_classes);
        }
        resources.values_mut().for_each(|call| call.moved = call.bytes);
        resources
    }

    /// Returns the time that the rank's threads waited for locks in the whole run, in nanoseconds.
    pub fn locked_ns(&self) -> u64 {
        if !self.is_multithreaded() {
            return 0;
        }
        let main = self.phases.iter().flat_map(|phase| &phase.values);
        let locked = main.chain(&self.input.profile.other_threads).filter(|(node, _)| {
            self.owners.resource[*node as usize]
                .is_some_and(|top| self.context_classes[top as usize].label.is_a(Label::WaitLock))
        });
        locked.map(|(_, value)| value.exclusive_ns).sum()
    }

    /// Returns time and counts of the synchronisation that ends a phase.
    pub fn sync(&self, phase: &PhaseProfile) -> CallTime {
        let inside = below(&self.input.profile.tree, phase.ends_in);
        let mut sync = CallTime::default();
        for (node, value) in phase.values.iter().filter(|(node, _)| inside[*node as usize]) {
            sync.add(*node, phase.ends_in.unwrap_or(*node), value, &self.context_classes);
        }
        sync.moved = sync.bytes;
        sync
    }
}
