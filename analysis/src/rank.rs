//! One rank as the analysis sees it: what each of its contexts means, and what its phases and
//! instances hold of work and of waiting.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_collector::profile::{
    ContextTree, InstanceRow, NodeId, NodeValue, PhaseProfile, ProcessProfile, instance_level,
};

use crate::agreement::{Agreed, Matching};
use crate::canonical::{below, is_sound};
use crate::label::Label;
use crate::labelling::{Meaning, meanings};
use crate::totals::is_part;

/// Modules whose functions are never named as a cause: they work on behalf of their caller.
const SYSTEM_MODULES: &[&str] = &[
    "libc.so",
    "libc-2",
    "libm.so",
    "libm-2",
    "ld-linux",
    "ld-2",
    "libpthread",
    "librt.so",
    "[vdso]",
];

/// To whom the work of each context is put down.
///
/// A function that works by calling the C library, or by sleeping, is the worker, not the call.
/// Only where the outermost function itself makes the call is the call named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// For each context the one that answers for its work; `None` where it does no work.
    pub of: Vec<Option<NodeId>>,
    /// For each context that answers, the next one outwards that does.
    pub outer: Vec<Option<NodeId>>,
    /// For each context outside work, the outermost of those around it that are: the call.
    pub wait: Vec<Option<NodeId>>,
}

impl Owners {
    /// Puts the work in a tree down to its contexts.
    pub fn new(tree: &ContextTree, meanings: &[Meaning]) -> Self {
        let mut owners = Self { of: Vec::new(), outer: Vec::new(), wait: Vec::new() };
        for (node, id) in tree.nodes.iter().zip(0..) {
            let outer = node.parent.and_then(|parent| owners.of[parent as usize]);
            let frame = &tree.frames[node.frame as usize];
            let serves =
                frame.call.is_some() || SYSTEM_MODULES.iter().any(|m| frame.module.starts_with(m));
            let outermost = |outer: NodeId| tree.nodes[outer as usize].parent.is_none();
            // Loops and inlined calls are parts of their function.
            let own = !is_part(frame) && (!serves || outer.is_none_or(outermost));
            owners.of.push(match (meanings[id as usize].is_work(), own) {
                (false, _) => None,
                (true, true) => Some(id),
                (true, false) => outer,
            });
            owners.outer.push(outer);
            let around = node.parent.and_then(|parent| owners.wait[parent as usize]);
            let waits = !meanings[id as usize].is_work();
            owners.wait.push(waits.then_some(around.unwrap_or(id)));
        }
        owners
    }

    /// The context that answers for `node`'s work, and those that answer for it in turn.
    pub fn chain(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let first = self.of[node as usize];
        std::iter::successors(first, |owner| self.outer[*owner as usize])
    }
}

/// Work of a context, net of waiting for a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// With that of the contexts that it calls.
    pub inclusive_ns: u64,
    /// That for which it answers itself.
    pub own_ns: u64,
}

/// Room for adding up work by context: a run has many instances, each with few of its contexts.
pub struct Scratch {
    // All zero between uses.
    work: Vec<Work>,
    touched: Vec<NodeId>,
}

/// One rank's profile with what is derived from it alone.
pub struct Rank<'a> {
    /// The profile.
    pub profile: &'a ProcessProfile,
    /// Meaning of each context.
    pub meanings: Vec<Meaning>,
    /// Who answers for each context's work.
    pub owners: Owners,
    /// Its phases, as all ranks see them.
    pub phases: Cow<'a, [PhaseProfile]>,
    // Of the instances that all ranks kept; `None` where instances do not correspond.
    level: Option<u32>,
}

impl<'a> Rank<'a> {
    /// The rank's view, phases as agreed. The profile must be sound ([`profile_is_sound`]).
    pub fn new(profile: &'a ProcessProfile, agreed: &Agreed) -> Self {
        let meanings = meanings(&profile.tree);
        let owners = Owners::new(&profile.tree, &meanings);
        let (phases, level) = match agreed.matching {
            Matching::Phases => (Cow::Borrowed(&profile.phases[..]), Some(agreed.level)),
            Matching::WholeRun => (Cow::Owned(vec![whole_run(profile)]), None),
        };
        Self { profile, meanings, owners, phases, level }
    }

    /// Work of every context that answers for some in a phase, from its totals, by node.
    pub fn phase_work(&self, phase: &PhaseProfile) -> Vec<(NodeId, Work)> {
        let net = |value: &NodeValue| value.exclusive_ns.saturating_sub(value.run_delay_ns);
        let values = phase.values.iter().map(|(node, value)| (*node, net(value)));
        self.work(&mut self.scratch(), values)
    }

    /// Work of every context in one instance, by node.
    pub fn row_work(&self, row: &InstanceRow, scratch: &mut Scratch) -> Vec<(NodeId, Work)> {
        self.work(scratch, row.values.iter().copied())
    }

    /// Room for adding up this rank's work, to be used for many instances.
    pub fn scratch(&self) -> Scratch {
        Scratch { work: vec![Work::default(); self.profile.tree.nodes.len()], touched: Vec::new() }
    }

    fn work(
        &self,
        Scratch { work, touched }: &mut Scratch,
        values: impl Iterator<Item = (NodeId, u64)>,
    ) -> Vec<(NodeId, Work)> {
        for (node, ns) in values.filter(|(_, ns)| *ns > 0) {
            for (depth, owner) in self.owners.chain(node).enumerate() {
                let place = &mut work[owner as usize];
                if place.inclusive_ns == 0 {
                    touched.push(owner);
                }
                place.inclusive_ns += ns;
                place.own_ns += if depth == 0 { ns } else { 0 };
            }
        }
        touched.sort_unstable();
        touched.drain(..).map(|node| (node, std::mem::take(&mut work[node as usize]))).collect()
    }

    /// Waiting for a core during work, by the context that answers for it.
    pub fn run_delays(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, u64> {
        let mut delays = BTreeMap::new();
        for (node, value) in phase.values.iter().filter(|(_, value)| value.run_delay_ns > 0) {
            if let Some(owner) = self.owners.of[*node as usize] {
                *delays.entry(owner).or_default() += value.run_delay_ns;
            }
        }
        delays
    }

    /// Where a phase spends time outside work, by the outermost such context; the synchronisation
    /// that ends it is left to [`Rank::sync`].
    pub fn waits(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, Sync> {
        let mut waits: BTreeMap<NodeId, Sync> = BTreeMap::new();
        for (node, value) in &phase.values {
            let Some(top) = self.owners.wait[*node as usize] else { continue };
            if Some(top) != phase.ends_in {
                waits.entry(top).or_default().add(*node, top, value, &self.meanings);
            }
        }
        waits
    }

    /// The synchronisation that ends a phase: its time and all that was counted in it.
    pub fn sync(&self, phase: &PhaseProfile) -> Sync {
        let inside = below(&self.profile.tree, phase.ends_in);
        let mut sync = Sync::default();
        for (node, value) in phase.values.iter().filter(|(node, _)| inside[*node as usize]) {
            sync.add(*node, phase.ends_in.unwrap_or(*node), value, &self.meanings);
        }
        sync
    }

    /// The instances that all ranks kept, with their phases.
    pub fn rows(&self) -> impl Iterator<Item = (&InstanceRow, &PhaseProfile)> {
        let rows = self.profile.rows.rows.iter();
        rows.filter(|row| self.level.is_some_and(|level| instance_level(row.index) >= level))
            .map(|row| (row, &self.phases[row.phase as usize]))
    }
}

/// What one rank spent in a call outside its work, such as the synchronisation that ends a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// Wall time.
    pub time_ns: u64,
    /// Calls of it.
    pub calls: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Its time by label, in the order of [`Label::ALL`].
    pub by_label: [u64; Label::ALL.len()],
}

impl Sync {
    /// Adds a context at or below the call `top`.
    fn add(&mut self, node: NodeId, top: NodeId, value: &NodeValue, meanings: &[Meaning]) {
        self.time_ns += value.exclusive_ns;
        self.by_label[meanings[node as usize].label as usize] += value.exclusive_ns;
        if node == top {
            (self.calls, self.bytes) = (value.calls, value.bytes);
        }
    }
}

/// All phases of a rank as one, for ranks that do not agree on their phases.
fn whole_run(profile: &ProcessProfile) -> PhaseProfile {
    let mut values: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
    for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
        values.entry(*node).or_default().add(value);
    }
    PhaseProfile {
        begins_after: None,
        // The last synchronisation belongs to the phase that began last, or in which the run ended.
        ends_in: profile.phases.iter().max_by_key(|p| p.first_index).and_then(|p| p.ends_in),
        first_index: 0,
        instances: 1,
        first_begin_ns: 0,
        duration_ns: profile.phases.iter().map(|phase| phase.duration_ns).sum(),
        values: values.into_iter().collect(),
    }
}

/// Whether all references inside a profile lead somewhere. Profiles come from segments that other
/// processes wrote; one that is not sound is left out and named.
pub fn profile_is_sound(profile: &ProcessProfile) -> bool {
    let nodes = profile.tree.nodes.len();
    let known = |node: NodeId| (node as usize) < nodes;
    is_sound(&profile.tree)
        && profile.phases.iter().all(|phase| {
            phase.begins_after.is_none_or(known)
                && phase.ends_in.is_none_or(known)
                && phase.values.iter().all(|(node, _)| known(*node))
        })
        && profile.rows.rows.iter().all(|row| {
            (row.phase as usize) < profile.phases.len()
                && row.values.iter().all(|(node, _)| known(*node))
        })
        && profile.other_threads.iter().all(|(node, _)| known(*node))
        && profile.loops.iter().all(|it| known(it.node) && it.stride.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Contexts, MS, Subject, doing};

    #[test]
    fn work_is_put_down_to_the_users_function() {
        let mut contexts = Contexts::default();
        let sleep = contexts.node("main/solve/usleep/nanosleep");
        let solve = contexts.node("main/solve");
        let outermost = contexts.node("main/fsync");
        let wait = contexts.node("main/solve/MPI_Barrier/opal_progress");
        let deep = contexts.node("main/solve/kernel");
        let main = contexts.node("main");
        let owners = Owners::new(&contexts.tree, &meanings(&contexts.tree));
        assert_eq!(owners.chain(sleep).collect::<Vec<_>>(), [solve, main]);
        assert_eq!(owners.chain(deep).collect::<Vec<_>>(), [deep, solve, main]);
        assert_eq!(owners.chain(outermost).collect::<Vec<_>>(), [outermost, main]);
        assert_eq!(owners.chain(wait).count(), 0);
    }

    #[test]
    fn work_is_net_of_waiting_for_a_core_and_of_mpi() {
        let mut subject = Subject::new(2);
        subject.step("main/MPI_Barrier", |rank| {
            let mut slow = doing("main/solve/usleep", (10 + u64::from(rank) * 10) * MS);
            slow.run_delay_ns = 4 * MS;
            vec![slow, doing("main", MS)]
        });
        let profile = subject.profile(0);
        let agreed = Agreed { matching: Matching::Phases, level: 0, ranks: 2 };
        let rank = Rank::new(&profile, &agreed);
        let mut contexts = Contexts { tree: profile.tree.clone() };
        let truth = [
            (contexts.node("main"), Work { inclusive_ns: 7 * MS, own_ns: MS }),
            (contexts.node("main/solve"), Work { inclusive_ns: 6 * MS, own_ns: 6 * MS }),
        ];
        let phase = &rank.phases[0];
        assert_eq!(rank.phase_work(phase), truth);
        let (row, mut scratch) = (rank.rows().next().unwrap().0, rank.scratch());
        assert_eq!(rank.row_work(row, &mut scratch), truth);
        assert_eq!(rank.row_work(row, &mut scratch), truth, "nothing is left from the first time");
        assert_eq!(rank.run_delays(phase), BTreeMap::from([(contexts.node("main/solve"), 4 * MS)]));
        let sync = rank.sync(phase);
        assert_eq!((sync.time_ns, sync.calls), (10 * MS, 1));
        assert_eq!(sync.by_label[Label::CollectiveSynchronisation as usize], 10 * MS);
    }

    #[test]
    fn broken_profiles_are_recognised() {
        let mut subject = Subject::new(1);
        subject.step("main/MPI_Barrier", |_| vec![doing("main/solve", MS)]);
        let sound = subject.profile(0);
        assert!(profile_is_sound(&sound));
        let mut broken = sound.clone();
        broken.tree.nodes[1].parent = Some(1);
        assert!(!profile_is_sound(&broken));
        let mut broken = sound.clone();
        broken.rows.rows[0].phase = 1;
        assert!(!profile_is_sound(&broken));
        let mut broken = sound;
        broken.phases[0].ends_in = Some(99);
        assert!(!profile_is_sound(&broken));
    }
}
