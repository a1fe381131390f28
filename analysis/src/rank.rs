//! One rank as the analysis sees it: what each of its contexts means, and what its phases and
//! instances hold of work and of waiting.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_agent::calls::{self, CallClass};
use plimsoll_collector::profile::{
    ContextTree, Frame, InstanceRow, NodeId, NodeValue, PhaseProfile, ProcessProfile,
    instance_level,
};

use crate::agreement::{Agreed, Matching};
use crate::canonical::{below, is_sound};
use crate::diagnose::RankInput;
use crate::joining::{joined, whole_run};
use crate::label::Label;
use crate::labelling::{Meaning, meanings, polls};
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
    // What our wrappers take is the call's, or its caller's.
    "libplimsoll.so",
];

/// Whether a frame belongs to the system's libraries.
pub fn is_system(frame: &Frame) -> bool {
    SYSTEM_MODULES.iter().any(|module| frame.module.starts_with(module))
}

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
    /// For each context inside a call that is work on files or waits for a lock, that call.
    pub resource: Vec<Option<NodeId>>,
}

impl Owners {
    /// Puts the work in a tree down to its contexts.
    pub fn new(tree: &ContextTree, meanings: &[Meaning]) -> Self {
        let mut owners =
            Self { of: Vec::new(), outer: Vec::new(), wait: Vec::new(), resource: Vec::new() };
        // For each context the innermost at or around it that answers: work may lie within waiting,
        // where the user says so.
        let mut answering: Vec<Option<NodeId>> = Vec::new();
        for (node, id) in tree.nodes.iter().zip(0..) {
            let outer = node.parent.and_then(|parent| answering[parent as usize]);
            let frame = &tree.frames[node.frame as usize];
            let serves =
                frame.call.is_some() || meanings[id as usize].in_runtime || is_system(frame);
            let outermost = |outer: NodeId| tree.nodes[outer as usize].parent.is_none();
            // Loops and inlined calls are parts of their function.
            let own = !is_part(frame) && (!serves || outer.is_none_or(outermost));
            let of = match (meanings[id as usize].is_work(), own) {
                (false, _) => None,
                (true, true) => Some(id),
                (true, false) => outer,
            };
            answering.push(of.or(outer));
            owners.of.push(of);
            owners.outer.push(outer);
            let around = node.parent.filter(|parent| !meanings[*parent as usize].between);
            let around = around.and_then(|parent| owners.wait[parent as usize]);
            let waits = !meanings[id as usize].is_work();
            owners.wait.push(waits.then_some(around.unwrap_or(id)));
            let around = node.parent.and_then(|parent| owners.resource[parent as usize]);
            let label = meanings[id as usize].label;
            let takes = !waits && (label.is_a(Label::Io) || label.is_a(Label::WaitLock));
            owners.resource.push(takes.then_some(around.unwrap_or(id)));
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

/// One rank, with what is derived from its profile alone.
pub struct Rank<'a> {
    /// What its collector handed on.
    pub input: &'a RankInput,
    /// Meaning of each context.
    pub meanings: Vec<Meaning>,
    /// Who answers for each context's work.
    pub owners: Owners,
    /// Its phases, as all ranks see them.
    pub phases: Cow<'a, [PhaseProfile]>,
    // Which of them each phase of the profile has become, where they are others.
    places: Option<Vec<usize>>,
    // Of the instances that all ranks kept; `None` where instances do not correspond.
    level: Option<u32>,
}

impl<'a> Rank<'a> {
    /// The rank's view, phases as agreed. The profile must be sound ([`profile_is_sound`]).
    pub fn new(input: &'a RankInput, agreed: &Agreed) -> Self {
        let profile = &input.profile;
        let mut meanings = meanings(&profile.tree, &agreed.rules);
        let mut own = vec![(0, 0); profile.tree.nodes.len()];
        for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
            let (time_ns, calls) = &mut own[*node as usize];
            *time_ns += value.exclusive_ns;
            *calls += value.calls;
        }
        polls::mark(&profile.tree, &mut meanings, |id| own[id]);
        let owners = Owners::new(&profile.tree, &meanings);
        let level = Some(agreed.level);
        let (phases, places, level) = match &agreed.matching {
            Matching::Phases => (Cow::Borrowed(&profile.phases[..]), None, level),
            Matching::Joined(parts) => {
                let (phases, places) = joined(profile, parts);
                (Cow::Owned(phases), Some(places), level)
            }
            Matching::WholeRun => (Cow::Owned(vec![whole_run(profile)]), None, None),
        };
        Self { input, meanings, owners, phases, places, level }
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
        Scratch {
            work: vec![Work::default(); self.input.profile.tree.nodes.len()],
            touched: Vec::new(),
        }
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

    /// The part of a phase's work that needs no core: sleeping, and waiting for locks and threads.
    pub fn off_core_ns(&self, phase: &PhaseProfile) -> u64 {
        let tree = &self.input.profile.tree;
        let is_off = |node: NodeId| {
            let call = tree.frames[tree.nodes[node as usize].frame as usize].call;
            let class = call.and_then(calls::class);
            self.meanings[node as usize].is_work() && class.is_some_and(CallClass::leaves_core)
        };
        let off = phase.values.iter().filter(|(node, _)| is_off(*node));
        off.map(|(_, value)| value.exclusive_ns.saturating_sub(value.run_delay_ns)).sum()
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
        self.add_started(&mut waits);
        waits
    }

    /// What nonblocking calls of a function have started, its waiting calls bring to an end: each has
    /// its part of the bytes, by time.
    fn add_started(&self, waits: &mut BTreeMap<NodeId, Sync>) {
        let tree = &self.input.profile.tree;
        let mut functions: BTreeMap<Option<NodeId>, (u64, u64)> = BTreeMap::new();
        for (node, wait) in waits.iter() {
            let (bytes, time_ns) = functions.entry(function_around(tree, *node)).or_default();
            match part_in_transfer(tree, *node) {
                Some(Part::Starts) => *bytes += wait.bytes,
                Some(Part::Completes) => *time_ns += wait.time_ns,
                None => {}
            }
        }
        for (node, wait) in waits.iter_mut() {
            let (bytes, time_ns) = functions[&function_around(tree, *node)];
            wait.moved = match part_in_transfer(tree, *node) {
                Some(Part::Starts) if time_ns > 0 => 0,
                Some(Part::Completes) if time_ns > 0 => {
                    let part = u128::from(bytes) * u128::from(wait.time_ns) / u128::from(time_ns);
                    u64::try_from(part).unwrap_or(u64::MAX)
                }
                _ => wait.bytes,
            };
        }
    }

    /// Calls of a phase that are work on files or wait for locks.
    pub fn resources(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, Sync> {
        let mut resources: BTreeMap<NodeId, Sync> = BTreeMap::new();
        for (node, value) in &phase.values {
            let Some(top) = self.owners.resource[*node as usize] else { continue };
            resources.entry(top).or_default().add(*node, top, value, &self.meanings);
        }
        resources.values_mut().for_each(|call| call.moved = call.bytes);
        resources
    }

    /// How long its threads waited for locks, in the whole run.
    pub fn locked_ns(&self) -> u64 {
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

    /// The instances that all ranks kept, with their phases.
    pub fn rows(&self) -> impl Iterator<Item = (&InstanceRow, &PhaseProfile)> {
        let rows = self.input.profile.rows.rows.iter();
        rows.filter(|row| self.level.is_some_and(|level| instance_level(row.index) >= level))
            .map(|row| (row, self.phase_of(row)))
    }

    /// The divisions of instances that all ranks kept, those of this level at least, with their phases. Where
    /// instances do not correspond, those of parts of the ranks still do.
    pub fn divisions(&self, level: u32) -> impl Iterator<Item = (&InstanceRow, &PhaseProfile)> {
        let rows = self.input.profile.divisions.rows.iter();
        rows.filter(move |row| {
            (row.part.is_some() || self.level.is_some()) && instance_level(row.index) >= level
        })
        .map(|row| (row, self.phase_of(row)))
    }

    fn phase_of(&self, row: &InstanceRow) -> &PhaseProfile {
        let place = match (&self.places, self.level) {
            (Some(places), _) => places[row.phase as usize],
            (None, Some(_)) => row.phase as usize,
            // The whole run is one.
            (None, None) => 0,
        };
        &self.phases[place]
    }
}

/// What a call of MPI has to do with a message that travels by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Starts,
    Completes,
}

fn part_in_transfer(tree: &ContextTree, node: NodeId) -> Option<Part> {
    let name = calls::call(tree.frames[tree.nodes[node as usize].frame as usize].call?)?.name;
    if name.starts_with("MPI_Wait") || name.starts_with("MPI_Test") {
        return Some(Part::Completes);
    }
    let starts = ["MPI_Isend", "MPI_Irecv", "MPI_Issend", "MPI_Irsend", "MPI_Ibsend", "MPI_Imrecv"];
    starts.contains(&name).then_some(Part::Starts)
}

/// The function that makes a call: what is around it, loops and inlined calls left out.
pub fn function_around(tree: &ContextTree, node: NodeId) -> Option<NodeId> {
    let outer = |node: &NodeId| tree.nodes[*node as usize].parent;
    let is_whole =
        |node: &NodeId| !is_part(&tree.frames[tree.nodes[*node as usize].frame as usize]);
    std::iter::successors(outer(&node), outer).find(is_whole)
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
    /// Bytes whose transfer it waited for, or made itself.
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
        && profile.rows.rows.iter().chain(&profile.divisions.rows).all(|row| {
            (row.phase as usize) < profile.phases.len()
                && row.ends_in.is_none_or(known)
                && row.values.iter().all(|(node, _)| known(*node))
        })
        && profile.other_threads.iter().all(|(node, _)| known(*node))
        && profile.loops.iter().all(|it| known(it.node) && it.stride.is_power_of_two())
        && profile.series.iter().all(|series| {
            series.sites.iter().all(|site| known(site.node))
                && series
                    .sights
                    .iter()
                    .all(|sight| known(sight.node) && sight.begun.iter().all(|node| known(*node)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use crate::subject::{Contexts, MS, Subject, doing};

    fn agreed(rules: &str) -> Agreed {
        let rules = Rules::from(rules.to_owned());
        Agreed { matching: Matching::Phases, level: 0, division_level: 0, ranks: 2, rules }
    }

    #[test]
    fn work_is_put_down_to_the_users_function() {
        let mut contexts = Contexts::default();
        let sleep = contexts.node("main/solve/usleep/nanosleep");
        let solve = contexts.node("main/solve");
        let outermost = contexts.node("main/fsync");
        let wait = contexts.node("main/solve/MPI_Barrier/opal_progress");
        let deep = contexts.node("main/solve/kernel");
        let region = contexts.node("main/solve/GOMP_parallel");
        let threads = contexts.node("main/solve/GOMP_parallel/libgomp.so.1+0x1f780");
        let main = contexts.node("main");
        let owners = Owners::new(&contexts.tree, &meanings(&contexts.tree, &Rules::default()));
        assert_eq!(owners.chain(sleep).collect::<Vec<_>>(), [solve, main]);
        assert_eq!(owners.chain(deep).collect::<Vec<_>>(), [deep, solve, main]);
        assert_eq!(owners.chain(outermost).collect::<Vec<_>>(), [outermost, main]);
        assert_eq!(owners.chain(threads).collect::<Vec<_>>(), [region, solve, main]);
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
        let input = subject.input(0);
        let agreed = agreed("");
        let rank = Rank::new(&input, &agreed);
        let mut contexts = Contexts { tree: input.profile.tree.clone() };
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
    fn a_wait_that_the_user_names_is_a_wait() {
        let mut subject = Subject::new(1);
        subject.step("main/exchange/MPI_Barrier", |_| {
            vec![
                doing("main/exchange", 2 * MS),
                doing("main/exchange/spin/usleep", 3 * MS),
                doing("main/exchange/MPI_Send", 5 * MS),
                doing("main/exchange/pack", 7 * MS),
                doing("main/solve", 11 * MS),
            ]
        });
        let mut input = subject.input(0);
        // So long it waits in the ending synchronisation.
        let mut contexts = Contexts { tree: input.profile.tree.clone() };
        let barrier = contexts.node("main/exchange/MPI_Barrier");
        let values = &mut input.profile.phases[0].values;
        values.iter_mut().find(|(node, _)| *node == barrier).unwrap().1.exclusive_ns = 13 * MS;
        let agreed = agreed("exchange = communication\nspin = wait_partner\npack = computation");
        let rank = Rank::new(&input, &agreed);
        let phase = &rank.phases[0];
        let waits = rank.waits(phase);
        let (top, wait) = waits.first_key_value().unwrap();
        assert_eq!((*top, waits.len()), (contexts.node("main/exchange"), 1));
        assert_eq!(wait.time_ns, 10 * MS);
        assert_eq!(wait.by_label[Label::WaitPartner as usize], 3 * MS);
        assert_eq!(wait.by_label[Label::Communication as usize], 7 * MS);
        assert_eq!(rank.sync(phase).time_ns, 13 * MS, "it counts once, there");
        let work = |path: &str, inclusive: u64, own: u64| {
            let work = Work { inclusive_ns: inclusive * MS, own_ns: own * MS };
            (contexts.clone().node(path), work)
        };
        let mut truth =
            [work("main", 18, 0), work("main/exchange/pack", 7, 7), work("main/solve", 11, 11)];
        truth.sort_by_key(|(node, _)| *node);
        assert_eq!(rank.phase_work(phase), truth);
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
