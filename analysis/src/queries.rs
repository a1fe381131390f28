//! The second exchange: which ranks are meant. Totals know how slow the slowest rank is, not which
//! it is, and that some ranks have a context, not which; so the root asks, and every collector answers for
//! its ranks.

use std::collections::BTreeMap;

use plimsoll_collector::profile::PhaseProfile;
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, find};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::groups::{self, ByContexts, Divergence};
use crate::rank::Rank;
use crate::ranks::RankSet;

/// A time of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// Work of a context in a phase, net of waiting for a core.
    Work {
        /// First index of the phase.
        phase: u64,
        /// Call path of the context.
        path: Vec<Step>,
        /// Only that for which it answers itself.
        own: bool,
    },
    /// The synchronisation that ends a phase.
    Sync {
        /// First index of the phase.
        phase: u64,
    },
    /// Any other context outside work, in a phase, with all that it calls.
    Wait {
        /// First index of the phase.
        phase: u64,
        /// Its call path.
        path: Vec<Step>,
    },
    /// All time outside work in a phase but for the synchronisation that ends it.
    Waits {
        /// First index of the phase.
        phase: u64,
    },
    /// Files and locks: a call on one, in a phase.
    Resource {
        /// First index of the phase.
        phase: u64,
        /// Its call path.
        path: Vec<Step>,
    },
    /// Waiting for locks in all threads, in the whole run.
    Locks,
    /// Waiting for a core during work, in the whole run.
    RunDelay,
}

/// On which ranks is this time at least so long?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// The time.
    pub quantity: Quantity,
    /// The bound, in nanoseconds.
    pub at_least_ns: u64,
}

/// All that process 0 asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// On which ranks times are so long.
    pub queries: Vec<Query>,
    /// Which contexts ranks have, where they diverge.
    pub divergences: Vec<Divergence>,
}

/// What some ranks answer, or all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// The ranks that each query is about, in the order of the queries.
    pub ranks: Vec<RankSet>,
    /// The ranks by the contexts that they have, by first index of the phase.
    pub groups: BTreeMap<u64, ByContexts>,
}

/// Asks all ranks; the answers are at process 0, `None` elsewhere. Process 0's `questions` count, the
/// others' are ignored. Collective.
pub fn ask(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    questions: Result<Option<Questions>, CommunicatorError>,
) -> Result<Option<Answers>, CommunicatorError> {
    let Questions { queries, divergences } = broadcast(comm, questions)?;
    let mut ours = Answers {
        ranks: vec![RankSet::default(); queries.len()],
        groups: groups::of_ranks(local, &divergences),
    };
    for (ranks, query) in ours.ranks.iter_mut().zip(&queries) {
        let meant = local.iter().filter(|rank| time_ns(rank, &query.quantity) >= query.at_least_ns);
        *ranks = meant.map(|rank| rank.input.rank).collect();
    }
    reduce(comm, ours, Answers::combine)
}

impl Answers {
    fn combine(mut self, other: Self) -> Self {
        for (ours, theirs) in self.ranks.iter_mut().zip(&other.ranks) {
            *ours = ours.union(theirs);
        }
        groups::combine(&mut self.groups, other.groups);
        self
    }
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
        Quantity::Wait { phase: index, path } => {
            let node = find(&rank.input.profile.tree, path);
            let time = phase(*index)
                .zip(node)
                .and_then(|(phase, node)| rank.waits(phase).get(&node).map(|wait| wait.time_ns));
            time.unwrap_or(0)
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
        Quantity::RunDelay => {
            let delay_ns = |phase: &PhaseProfile| rank.run_delays(phase).values().sum::<u64>();
            rank.phases.iter().map(delay_ns).sum()
        }
    }
}
