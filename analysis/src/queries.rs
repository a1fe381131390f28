//! Queries for the ranks that a loss concerns. Totals hold the time of the slowest rank, not its
//! number, so process 0 queries all ranks and every collector answers for its own.

use plimsoll_collector::profile::PhaseProfile;
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, find};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::team_times::{TeamTimes, imbalance_ns};

/// A time of one rank.
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
    /// Time in other contexts outside of work in a phase, callees included.
    Wait {
        /// First index of the phase.
        phase: u64,
        /// Call paths of the contexts.
        paths: Vec<Vec<Step>>,
    },
    /// All time outside of work in a phase, without the ending synchronisation.
    Waits {
        /// First index of the phase.
        phase: u64,
    },
    /// Time in a call on a file or lock in a phase.
    Resource {
        /// First index of the phase.
        phase: u64,
        /// Call path of the call.
        path: Vec<Step>,
    },
    /// Time that all threads wait for locks in the whole run.
    Locks,
    /// Time that the communicating thread's team loses by uneven threads in a parallel region, in
    /// the whole run.
    Region {
        /// Call path of the call that makes the region.
        path: Vec<Step>,
    },
    /// Run time that a rank would save if its team did the work outside of parallel regions.
    SerialWork,
    /// Time of waiting for a core during work in the whole run.
    RunDelay,
}

/// Query for the ranks on which a time is at least a bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// Time that is compared.
    pub quantity: Quantity,
    /// Lower bound, in nanoseconds.
    pub at_least_ns: u64,
    /// Ranks that are queried; `None` for all.
    pub among: Option<RankSet>,
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

/// Returns whether the time of a rank is at least the query's bound.
pub fn is_meant(rank: &Rank<'_>, query: &Query) -> bool {
    time_ns(rank, &query.quantity) >= query.at_least_ns
}

fn time_ns(rank: &Rank<'_>, quantity: &Quantity) -> u64 {
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
        Quantity::Wait { phase: index, paths } => {
            let waits = phase(*index).map(|phase| rank.waits(phase)).unwrap_or_default();
            let nodes = paths.iter().filter_map(|path| find(&rank.input.profile.tree, path));
            nodes.filter_map(|node| waits.get(&node)).map(|wait| wait.time_ns).sum()
        }
        Quantity::Waits { phase: index } => {
            let waits = phase(*index).map(|phase| rank.waits(phase)).unwrap_or_default();
            waits.values().map(|wait| wait.time_ns).sum()
        }
        Quantity::Resource { phase: index, path } => {
            let node = find(&rank.input.profile.tree, path);
            let time = phase(*index).zip(node).and_then(|(phase, node)| {
                rank.resources(phase).get(&node).map(|call| call.time_ns)
            });
            time.unwrap_or(0)
        }
        Quantity::Locks => rank.locked_ns(),
        Quantity::Region { path } => {
            let node = find(&rank.input.profile.tree, path);
            let regions = rank.input.profile.openmp.regions.iter();
            let here = regions.filter(|region| region.is_main && Some(region.node) == node);
            here.map(imbalance_ns).sum()
        }
        Quantity::SerialWork => TeamTimes::of(rank).map_or(0, |times| times.serial_gain_ns()),
        Quantity::RunDelay => {
            let delay_ns = |phase: &PhaseProfile| rank.run_delays(phase).values().sum::<u64>();
            rank.phases.iter().map(delay_ns).sum()
        }
    }
}
