//! Queries for the ranks that a loss concerns. Totals hold the time of the slowest rank, not its
//! number, so process 0 queries all ranks and every collector answers for its own.

use plimsoll_collector::profile::{NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, find};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::siblings::siblings_of;
use crate::team_times::{TeamTimes, imbalance_ns};

/// A time of one rank, in nanoseconds, or the bytes that it moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// Work of a context in a phase, net of waiting for a core.
    Work {
        /// First index of the phase.
        phase: u64,
        /// Call path of the context.
        path: Vec<Step>,
        /// Whether only the work that the context itself is responsible for counts.
        own: bool,
    },
    /// Time in the synchronisation that ends a phase.
    Sync {
        /// First index of the phase.
        phase: u64,
    },
    /// Bytes of the synchronisation that ends a phase.
    SyncBytes {
        /// First index of the phase.
        phase: u64,
    },
    /// Time in calls, callees included.
    Calls(Vec<PhaseCalls>),
    /// All time outside of work in a phase, without the ending synchronisation.
    Waits {
        /// First index of the phase.
        phase: u64,
    },
    /// Time that all threads wait for locks in the whole run.
    Locks,
    /// Time that the communicating thread's team loses by uneven threads in parallel regions, in
    /// the whole run.
    Regions {
        /// Call paths of the calls that make the regions.
        paths: Vec<Vec<Step>>,
    },
    /// Time by which a rank would be faster if the sibling threads of one place had even work, in
    /// the whole run.
    Siblings {
        /// Call path of the outermost function of the program in these threads.
        path: Vec<Step>,
    },
    /// Run time that a rank would save if its team did the work outside of parallel regions.
    SerialWork,
    /// Time of waiting for a core during work in the whole run.
    RunDelay,
}

/// Calls in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCalls {
    /// First index of the phase.
    pub phase: u64,
    /// Whether the synchronisation that ends the phase is one of the calls.
    pub ending: bool,
    /// Call paths of other calls: outside of work, on files, or for locks.
    pub paths: Vec<Vec<Step>>,
}

/// Query for the ranks on which a quantity is at least a bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// Quantity that is compared.
    pub quantity: Quantity,
    /// Lower bound, in nanoseconds or bytes.
    pub at_least: u64,
    /// Ranks that are queried; `None` for all.
    pub among: Option<RankSet>,
}

impl Query {
    /// Makes this the query for the times of both queries together, with the higher bound. Changes
    /// nothing unless both are times in calls, or both in regions. Copies nothing of this query: a
    /// loss in thousands of phases joins as many queries.
    pub fn join(&mut self, other: &Self) {
        match (&mut self.quantity, &other.quantity) {
            (Quantity::Calls(ours), Quantity::Calls(theirs)) => ours.extend_from_slice(theirs),
            (Quantity::Regions { paths: ours }, Quantity::Regions { paths: theirs }) => {
                ours.extend_from_slice(theirs);
            }
            _ => return,
        }
        let among = self.among.take().zip(other.among.as_ref());
        self.among = among.map(|(ours, theirs)| ours.union(theirs));
        self.at_least = self.at_least.max(other.at_least);
    }
}

/// Queries all ranks. Returns the matching ranks of each query, in the order of the queries, on
/// process 0, and `None` elsewhere. Only the `queries` of process 0 count. Collective.
pub fn ask(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    queries: Result<Option<Vec<Query>>, CommunicatorError>,
) -> Result<Option<Vec<RankSet>>, CommunicatorError> {
    let queries = broadcast(comm, queries)?;
    let meant = |query: &Query| {
        let asked = local.iter().filter(|rank| {
            query.among.as_ref().is_none_or(|among| among.contains(rank.input.rank))
        });
        let meant = asked.filter(|rank| is_meant(rank, query));
        meant.map(|rank| rank.input.rank).collect()
    };
    reduce(comm, queries.iter().map(meant).collect(), |mut ours: Vec<RankSet>, theirs| {
        for (ours, theirs) in ours.iter_mut().zip(&theirs) {
            *ours = ours.union(theirs);
        }
        ours
    })
}

/// Returns whether the quantity of a rank is at least the query's bound.
pub fn is_meant(rank: &Rank<'_>, query: &Query) -> bool {
    amount(rank, &query.quantity) >= query.at_least
}

/// Returns the value of a quantity on one rank, in nanoseconds or bytes.
fn amount(rank: &Rank<'_>, quantity: &Quantity) -> u64 {
    let phase = |index: u64| rank.phases.iter().find(|phase| phase.first_index == index);
    match quantity {
        Quantity::Work { phase: index, path, own } => {
            let node = find(&rank.input.profile.tree, path);
            let work = phase(*index)
                .zip(node)
                .and_then(|(phase, node)| {
                    let work = rank.phase_work(phase);
                    work.into_iter().find(|(owner, _)| *owner == node)
                })
                .map(|(_, work)| work)
                .unwrap_or_default();
            if *own { work.own_ns } else { work.inclusive_ns }
        }
        Quantity::Sync { phase: index } => {
            phase(*index).map_or(0, |phase| rank.sync(phase).time_ns)
        }
        Quantity::SyncBytes { phase: index } => {
            phase(*index).map_or(0, |phase| rank.sync(phase).bytes)
        }
        Quantity::Calls(of_phases) => {
            let of_phase = |calls: &PhaseCalls| Some(in_calls_ns(rank, phase(calls.phase)?, calls));
            of_phases.iter().filter_map(of_phase).sum()
        }
        Quantity::Waits { phase: index } => {
            let waits = phase(*index).map(|phase| rank.waits(phase)).unwrap_or_default();
            waits.values().map(|wait| wait.time_ns).sum()
        }
        Quantity::Locks => rank.locked_ns(),
        Quantity::Regions { paths } => {
            let nodes: Vec<NodeId> =
                paths.iter().filter_map(|path| find(&rank.input.profile.tree, path)).collect();
            let regions = rank.input.profile.openmp.regions.iter();
            let here = regions.filter(|region| region.is_main && nodes.contains(&region.node));
            here.map(imbalance_ns).sum()
        }
        Quantity::Siblings { path } => {
            let routine = find(&rank.input.profile.tree, path);
            let siblings = siblings_of(rank).into_iter();
            let here = siblings.filter(|it| Some(it.threads.routine) == routine);
            here.map(|it| it.gain_ns).sum()
        }
        Quantity::SerialWork => TeamTimes::of(rank).map_or(0, |times| times.serial_gain_ns()),
        Quantity::RunDelay => {
            let delay_ns = |phase: &PhaseProfile| rank.run_delays(phase).values().sum::<u64>();
            rank.phases.iter().map(delay_ns).sum()
        }
    }
}

fn in_calls_ns(rank: &Rank<'_>, phase: &PhaseProfile, calls: &PhaseCalls) -> u64 {
    let (waits, resources) = (rank.waits(phase), rank.resources(phase));
    let nodes = calls.paths.iter().filter_map(|path| find(&rank.input.profile.tree, path));
    let times = nodes.filter_map(|node| waits.get(&node).or_else(|| resources.get(&node)));
    let ending_ns = if calls.ending { rank.sync(phase).time_ns } else { 0 };
    ending_ns + times.map(|call| call.time_ns).sum::<u64>()
}
