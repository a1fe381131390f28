//! One rank as the analysis sees it: the meaning of its contexts, and the work and wait time in its
//! phases and instances.

mod calls;
pub mod transfers;

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_collector::profile::{
    InstanceRow, NodeId, PhaseProfile, ProcessProfile, instance_level,
};

use crate::agreement::{Agreed, Matching};
use crate::canonical::is_sound;
use crate::input::RankInput;
use crate::labelling::{ContextClass, context_classes, polls};
use crate::owners::Owners;
use crate::phase_unification::{unify_phases, whole_run};
use crate::team_times::waits_for_work;

pub use calls::CallTime;

/// Work of a context, net of waiting for a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Work of the context, callees included.
    pub inclusive_ns: u64,
    /// Work that the context itself is responsible for.
    pub own_ns: u64,
}

/// Buffer for adding up work by context: a run has many instances, each with few of its contexts.
pub struct Scratch {
    // All zero between uses.
    work: Vec<Work>,
    touched: Vec<NodeId>,
}

/// One rank, with values derived from its profile alone.
pub struct Rank<'a> {
    /// Input from its collector.
    pub input: &'a RankInput,
    /// Meaning of each context.
    pub context_classes: Vec<ContextClass>,
    /// Useful fraction of the time of each context. A rank that waits for its own threads keeps
    /// other ranks waiting like one that computes, unless one of these threads is in MPI.
    pub useful_fraction: Vec<f64>,
    /// Responsible context for each context's work.
    pub owners: Owners,
    /// Phases of the rank, as agreed among all ranks.
    pub phases: Cow<'a, [PhaseProfile]>,
    /// Time of the rank's work as a multiple of the time that the same work takes elsewhere. All
    /// work returned by this type is divided by it.
    pub slowness: f64,
    // Index into `phases` for each phase of the profile; `None` if the phases are those of the
    // profile or the whole run is one.
    places: Option<Vec<usize>>,
    // Level of the instances that all ranks kept; `None` if instances do not correspond.
    level: Option<u32>,
}

impl<'a> Rank<'a> {
    /// Builds the rank with its phases as agreed. The profile must be sound ([`profile_is_sound`]).
    pub fn new(input: &'a RankInput, agreed: &Agreed) -> Self {
        let profile = &input.profile;
        let mut context_classes = context_classes(&profile.tree, &agreed.rules);
        let mut own = vec![polls::Own::default(); profile.tree.nodes.len()];
        for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
            own[*node as usize].add(value);
        }
        polls::mark(&profile.tree, &mut context_classes, !agreed.by_samples, |id| own[id]);
        let mut useful_fraction = waits_for_work(profile);
        for (fraction, class) in useful_fraction.iter_mut().zip(&context_classes) {
            *fraction = if class.is_useful() { 1.0 } else { *fraction };
        }
        let owners = Owners::new(&profile.tree, &context_classes);
        let level = Some(agreed.level);
        let (phases, places, level) = match &agreed.matching {
            Matching::Phases => (Cow::Borrowed(&profile.phases[..]), None, level),
            Matching::Joined(parts) => {
                let (phases, places) = unify_phases(profile, parts);
                (Cow::Owned(phases), Some(places), level)
            }
            Matching::WholeRun => (Cow::Owned(vec![whole_run(profile)]), None, None),
        };
        Self {
            input,
            context_classes,
            useful_fraction,
            owners,
            phases,
            slowness: 1.0,
            places,
            level,
        }
    }

    /// Returns the work in a phase by responsible context, from the phase's totals, sorted by node.
    pub fn phase_work(&self, phase: &PhaseProfile) -> Vec<(NodeId, Work)> {
        let values = phase.values.iter().map(|(node, value)| (*node, value.net_ns()));
        self.work(&mut self.scratch(), values)
    }

    /// Returns the work in one instance by responsible context, sorted by node.
    pub fn row_work(&self, row: &InstanceRow, scratch: &mut Scratch) -> Vec<(NodeId, Work)> {
        self.work(scratch, row.values.iter().copied())
    }

    /// Returns the useful wall time of the communicating thread, in nanoseconds. Waits for threads
    /// of its team count, unless these are in MPI.
    pub fn useful_ns(&self) -> u64 {
        let values = self.phases.iter().flat_map(|phase| &phase.values);
        self.useful_of(values.map(|(node, value)| (*node, value.exclusive_ns)))
    }

    /// Returns the useful part of times by context, in nanoseconds.
    pub fn useful_of(&self, times: impl Iterator<Item = (NodeId, u64)>) -> u64 {
        let useful_ns: f64 =
            times.map(|(node, ns)| ns as f64 * self.useful_fraction[node as usize]).sum();
        useful_ns.round() as u64
    }

    /// Returns a buffer for adding up this rank's work, to be reused for many instances.
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
        let even_ns = |ns: u64| match self.slowness > 1.0 {
            true => (ns as f64 / self.slowness) as u64,
            false => ns,
        };
        let values = values.map(|(node, ns)| (node, even_ns(ns)));
        for (node, ns) in values.filter(|(_, ns)| *ns > 0) {
            for (depth, owner) in self.owners.owners_outward(node).enumerate() {
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

    /// Returns the time of waiting for a core during work, in nanoseconds, by responsible context.
    pub fn run_delays(&self, phase: &PhaseProfile) -> BTreeMap<NodeId, u64> {
        let mut delays = BTreeMap::new();
        for (node, value) in phase.values.iter().filter(|(_, value)| value.run_delay_ns > 0) {
            if let Some(owner) = self.owners.owner_of[*node as usize] {
                *delays.entry(owner).or_default() += value.run_delay_ns;
            }
        }
        delays
    }

    /// Returns the instances that all ranks kept, with their phases.
    pub fn rows(&self) -> impl Iterator<Item = (&InstanceRow, &PhaseProfile)> {
        let rows = self.input.profile.rows.rows.iter();
        rows.filter(|row| self.level.is_some_and(|level| instance_level(row.index) >= level))
            .map(|row| (row, self.phase_of(row)))
    }

    /// Returns the subgroup intervals of instances of at least this level, with their phases.
    /// Subgroup intervals of subgroups correspond even if instances do not.
    pub fn subgroup_intervals(
        &self,
        level: u32,
    ) -> impl Iterator<Item = (&InstanceRow, &PhaseProfile)> {
        let rows = self.input.profile.subgroup_intervals.rows.iter();
        rows.filter(move |row| {
            (row.subgroup.is_some() || self.level.is_some()) && instance_level(row.index) >= level
        })
        .map(|row| (row, self.phase_of(row)))
    }

    fn phase_of(&self, row: &InstanceRow) -> &PhaseProfile {
        let place = match (&self.places, self.level) {
            (Some(places), _) => places[row.phase as usize],
            (None, Some(_)) => row.phase as usize,
            // The whole run is one phase.
            (None, None) => 0,
        };
        &self.phases[place]
    }
}

/// Returns the reason why a profile must not be used, as the end of a sentence; `None` if it may be
/// used.
pub fn why_unusable(profile: &ProcessProfile) -> Option<&'static str> {
    if profile.collection.failed {
        Some("ends with an error of our own")
    } else if !profile_is_sound(profile) {
        Some("contradicts itself")
    } else {
        None
    }
}

/// Returns whether all references inside a profile are valid. Profiles come from segments that
/// other processes wrote; an unsound profile is left out, and the summary names its rank.
fn profile_is_sound(profile: &ProcessProfile) -> bool {
    let nodes = profile.tree.nodes.len();
    let known = |node: NodeId| (node as usize) < nodes;
    is_sound(&profile.tree)
        && profile.phases.iter().all(|phase| {
            phase.begins_after.is_none_or(known)
                && phase.ends_in.is_none_or(known)
                && phase.values.iter().all(|(node, _)| known(*node))
        })
        && profile.outside_main.is_none_or(|it| known(it.node))
        && profile.rows.rows.iter().chain(&profile.subgroup_intervals.rows).all(|row| {
            (row.phase as usize) < profile.phases.len()
                && row.ends_in.is_none_or(known)
                && row.values.iter().all(|(node, _)| known(*node))
        })
        && profile.other_threads.iter().all(|(node, _)| known(*node))
        && profile.thread_locations.statistics.iter().all(|(node, _)| known(*node))
        && profile.thread_locations.locations.iter().all(|it| {
            let mut in_bins = it.times.bins.iter().flat_map(|bin| &bin.values);
            it.values.iter().all(|(node, _)| known(*node)) && in_bins.all(|(node, _)| known(*node))
        })
        && profile.times.bins.iter().flat_map(|bin| &bin.values).all(|(node, _)| known(*node))
        && profile
            .counters
            .main
            .iter()
            .chain(&profile.counters.other_threads)
            .all(|(node, _)| known(*node))
        && profile.partners.iter().all(|it| known(it.node))
        && profile.openmp.regions.iter().all(|it| known(it.node) && it.function.is_none_or(known))
        && profile.openmp.lock_waits.iter().all(|it| known(it.node) && it.holder.is_none_or(known))
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
    use crate::label::Label;
    use crate::rules::Rules;
    use crate::synthetic_run::{Contexts, MS, Subject, doing};

    fn agreed(rules: &str) -> Agreed {
        let rules = Rules::from(rules.to_owned());
        let matching = Matching::Phases;
        Agreed { matching, level: 0, subgroup_level: 0, ranks: 2, rules, by_samples: false }
    }

    #[test]
    fn work_is_put_down_to_the_users_function() {
        let mut contexts = Contexts::default();
        let sleep = contexts.node("main/solve/usleep/nanosleep");
        let solve = contexts.node("main/solve");
        let outermost = contexts.node("main/fsync");
        let wait = contexts.node("main/solve/MPI_Barrier/opal_progress");
        let deep = contexts.node("main/solve/kernel");
        let region = contexts.node("main/solve/GOMP_teams_reg");
        let threads = contexts.node("main/solve/GOMP_teams_reg/libgomp.so.1+0x1f780");
        let main = contexts.node("main");
        let owners =
            Owners::new(&contexts.tree, &context_classes(&contexts.tree, &Rules::default()));
        assert_eq!(owners.owners_outward(sleep).collect::<Vec<_>>(), [solve, main]);
        assert_eq!(owners.owners_outward(deep).collect::<Vec<_>>(), [deep, solve, main]);
        assert_eq!(owners.owners_outward(outermost).collect::<Vec<_>>(), [outermost, main]);
        assert_eq!(owners.owners_outward(threads).collect::<Vec<_>>(), [region, solve, main]);
        assert_eq!(owners.owners_outward(wait).count(), 0);
    }

    #[test]
    fn work_is_put_down_to_the_users_loops_and_inlined_functions() {
        let mut contexts = Contexts::default();
        contexts.node("main/MPI_Barrier");
        for (path, answering) in [
            ("main/solve/loop", vec!["main/solve/loop", "main/solve", "main"]),
            ("main/(smooth)/loop", vec!["main/(smooth)/loop", "main/(smooth)", "main"]),
            ("main/solve/(smooth)/usleep", vec!["main/solve/(smooth)", "main/solve", "main"]),
            // The outermost loop holds all work, as the outermost function does.
            ("main/loop/usleep", vec!["main/loop/usleep", "main/loop", "main"]),
            ("main/loop/loop2/usleep", vec!["main/loop/loop2", "main/loop", "main"]),
            // Functions of a language's library count as work of their caller.
            ("main/loop/(std::sort<int>)/loop", vec!["main/loop", "main"]),
            ("main/solve/std::sort<int>/(std::move<int>)", vec!["main/solve", "main"]),
            (
                "main/solve/std::sort<int>/(compare)/loop",
                vec![
                    "main/solve/std::sort<int>/(compare)/loop",
                    "main/solve/std::sort<int>/(compare)",
                    "main/solve",
                    "main",
                ],
            ),
            ("main/libgfortran.so.5+0x1f780", vec!["main"]),
            ("main/libmpi.so.40+0x1f780", vec!["main"]),
        ] {
            let node = contexts.node(path);
            let truth: Vec<NodeId> = answering.iter().map(|path| contexts.node(path)).collect();
            let owners =
                Owners::new(&contexts.tree, &context_classes(&contexts.tree, &Rules::default()));
            assert_eq!(owners.owners_outward(node).collect::<Vec<_>>(), truth, "{path}");
        }
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
        // Time that the rank waits in the ending synchronisation.
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
