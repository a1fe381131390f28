//! Messages and wait times by ordered pair of ranks, reduced over all ranks in bounded memory: in
//! jobs of up to [`MAX_SINGLE_RANKS`] ranks each rank has a row and column, in larger jobs each
//! cluster of ranks.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, OTHER_PARTNERS, PartnerValue, UNKNOWN_PARTNER};
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, find};
use crate::clocks::Alignment;
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::delays::Waits;
use crate::map_merge::merge;
use crate::message_ends::Ends;
use crate::metrics::NS_PER_S;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::{Matrix, Untold};

/// Maximum number of ranks of a job for each rank to have its own row.
pub const MAX_SINGLE_RANKS: u32 = 512;
/// Maximum number of losses with partners per loss.
const MAX_LOSSES: usize = 32;
/// Maximum number of contexts listed by each rank at the begin of a chain.
const MAX_WORKERS: usize = 8;

/// Axis of the matrix: the ranks that each row or column stands for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MatrixAxis {
    /// One axis entry per rank.
    Ranks(RankSet),
    /// One axis entry per set of ranks; the sets are disjoint.
    Clusters(Vec<RankSet>),
}

impl MatrixAxis {
    /// Builds the axis for all ranks of a job with known clusters. Ranks in no cluster share the
    /// last axis entry.
    pub fn new<'c>(ranks: &RankSet, clusters: impl IntoIterator<Item = &'c RankSet>) -> Self {
        if ranks.len() <= MAX_SINGLE_RANKS {
            return Self::Ranks(ranks.clone());
        }
        let mut clusters: Vec<RankSet> = clusters.into_iter().cloned().collect();
        let seated = clusters.iter().fold(RankSet::default(), |all, it| all.union(it));
        let rest: RankSet = ranks.iter().filter(|rank| !seated.contains(*rank)).collect();
        clusters.extend((!rest.is_empty()).then_some(rest));
        Self::Clusters(clusters)
    }

    /// Returns the number of axis entries.
    pub fn count(&self) -> usize {
        match self {
            Self::Ranks(ranks) => ranks.len() as usize,
            Self::Clusters(clusters) => clusters.len(),
        }
    }

    /// Returns the number of ranks.
    pub fn ranks_count(&self) -> usize {
        match self {
            Self::Ranks(ranks) => ranks.len() as usize,
            Self::Clusters(clusters) => clusters.iter().map(|it| it.len() as usize).sum(),
        }
    }

    /// Returns the axis entry of a rank; `None` if the rank has none.
    pub fn of(&self, rank: u32) -> Option<u32> {
        match self {
            Self::Ranks(ranks) => ranks.position(rank),
            Self::Clusters(clusters) => {
                let at = clusters.iter().position(|cluster| cluster.contains(rank))?;
                Some(at as u32)
            }
        }
    }

    /// Returns the ranks of an axis entry.
    pub fn ranks(&self, index: u32) -> RankSet {
        match self {
            Self::Ranks(ranks) => ranks.iter().nth(index as usize).into_iter().collect(),
            Self::Clusters(clusters) => clusters.get(index as usize).cloned().unwrap_or_default(),
        }
    }
}

/// Messages of a pair: numbers of messages, bytes, and wait time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    sent: u64,
    bytes: u64,
    received: u64,
    waited_ns: u64,
}

impl Messages {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.received += other.received;
        self.waited_ns += other.waited_ns;
    }

    fn untold(&self) -> Untold {
        Untold {
            calls: self.sent,
            bytes: self.bytes,
            received: self.received,
            wait_s: self.waited_ns as f64 / NS_PER_S,
        }
    }
}

impl From<&PartnerValue> for Messages {
    fn from(it: &PartnerValue) -> Self {
        Self { sent: it.sent, bytes: it.bytes, received: it.received, waited_ns: it.waited_ns }
    }
}

/// Request of process 0 to all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// For each loss, the call paths in which it shows.
    pub axis: MatrixAxis,
    /// Call paths in which each loss shows.
    pub losses: Vec<Vec<Vec<Step>>>,
    /// Shifts that convert the times of exemplary messages to the reference clock.
    pub alignment: Alignment,
}

impl Wanted {
    /// Builds a request with at most `MAX_LOSSES` losses.
    pub fn new(axis: MatrixAxis, mut losses: Vec<Vec<Vec<Step>>>, alignment: Alignment) -> Self {
        losses.truncate(MAX_LOSSES);
        Self { axis, losses, alignment }
    }
}

/// Messages of all ranks, by pair of axis entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    all: BTreeMap<(u32, u32), Messages>,
    unknown: Messages,
    others: Messages,
    /// For each loss, nanoseconds that the first axis entry of a pair waits for the second.
    losses: Vec<BTreeMap<(u32, u32), u64>>,
    /// For each loss, nanoseconds that ranks wait for partners that are unknown: those of wildcard
    /// receives without a status, and processes outside of the job.
    unknown_of_losses: Vec<u64>,
    /// Ends of exemplary messages; empty without losses.
    ends: Ends,
}

impl Pairs {
    /// Adds up the messages of these ranks.
    pub fn of(ranks: &[Rank<'_>], wanted: &Wanted) -> Self {
        let count = wanted.losses.len();
        let mut pairs = Self {
            losses: vec![BTreeMap::new(); count],
            unknown_of_losses: vec![0; count],
            ..Self::default()
        };
        for rank in ranks.iter().filter(|rank| !rank.input.profile.partners.is_empty()) {
            pairs.add_rank(rank, wanted);
        }
        pairs
    }

    fn add_rank(&mut self, rank: &Rank<'_>, wanted: &Wanted) {
        let Some(index) = wanted.axis.of(rank.input.rank) else { return };
        let profile = &rank.input.profile;
        // Losses by the context of this rank in which they show.
        let mut shows: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (loss, paths) in wanted.losses.iter().enumerate() {
            for node in paths.iter().filter_map(|path| find(&profile.tree, path)) {
                shows.entry(node).or_default().push(loss);
            }
        }
        if !wanted.losses.is_empty() {
            self.ends.add_rank(rank, &wanted.alignment, &shows);
        }
        for value in &profile.partners {
            let messages = Messages::from(value);
            let partner = match value.partner {
                UNKNOWN_PARTNER => None,
                OTHER_PARTNERS => {
                    self.others.add(&messages);
                    continue;
                }
                partner => wanted.axis.of(partner),
            };
            let losses = shows.get(&value.node).map_or(&[][..], Vec::as_slice);
            let Some(partner) = partner else {
                self.unknown.add(&messages);
                losses.iter().for_each(|it| self.unknown_of_losses[*it] += value.waited_ns);
                continue;
            };
            self.all.entry((index, partner)).or_default().add(&messages);
            for loss in losses {
                *self.losses[*loss].entry((index, partner)).or_default() += value.waited_ns;
            }
        }
    }

    /// Adds the messages of other ranks.
    #[must_use]
    pub fn combine(mut self, other: Self) -> Self {
        merge(&mut self.all, other.all, |ours, theirs| ours.add(&theirs));
        self.unknown.add(&other.unknown);
        self.others.add(&other.others);
        for (ours, theirs) in self.losses.iter_mut().zip(other.losses) {
            merge(ours, theirs, |ours, ns| *ours += ns);
        }
        for (ours, ns) in self.unknown_of_losses.iter_mut().zip(other.unknown_of_losses) {
            *ours += ns;
        }
        self.ends.combine(other.ends);
        self
    }

    /// Returns the matrix; `None` if no messages are known.
    pub fn matrix(&self, axis: &MatrixAxis) -> Option<Matrix> {
        if self.all.is_empty() && self.unknown == Messages::default() {
            return None;
        }
        let count = axis.count();
        let zeros = || vec![vec![0; count]; count];
        let mut matrix = Matrix {
            calls: zeros(),
            bytes: zeros(),
            received: zeros(),
            wait_s: vec![vec![0.0; count]; count],
            unknown: self.unknown.untold(),
            others: self.others.untold(),
            ..Matrix::default()
        };
        match axis {
            MatrixAxis::Ranks(ranks) => matrix.ranks = Some(ranks.to_string()),
            MatrixAxis::Clusters(clusters) => {
                matrix.clusters = Some(clusters.iter().map(RankSet::to_string).collect());
            }
        }
        for ((row, column), it) in &self.all {
            let (row, column) = (*row as usize, *column as usize);
            matrix.calls[row][column] = it.sent;
            matrix.bytes[row][column] = it.bytes;
            matrix.received[row][column] = it.received;
            matrix.wait_s[row][column] = it.waited_ns as f64 / NS_PER_S;
        }
        Some(matrix)
    }

    /// Returns the ends of exemplary messages.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Returns all wait times, in nanoseconds, by pair of axis entries.
    pub fn waits(&self) -> Waits {
        self.all.iter().map(|(pair, it)| (*pair, it.waited_ns as f64)).collect()
    }

    /// Returns the time that ranks wait for unknown partners in the calls in which a loss shows, in
    /// nanoseconds.
    pub fn unknown_of_loss_ns(&self, loss: usize) -> f64 {
        self.unknown_of_losses.get(loss).map_or(0.0, |ns| *ns as f64)
    }

    /// Returns the wait times, in nanoseconds, in the calls in which a loss shows; `None` if the
    /// loss was not requested.
    pub fn loss_waits(&self, loss: usize) -> Option<Waits> {
        let waits = self.losses.get(loss)?;
        Some(waits.iter().map(|(pair, ns)| (*pair, *ns as f64)).collect())
    }
}

/// Adds up the messages of all ranks. Returns the sums on process 0, `None` elsewhere. The request
/// of process 0 counts. Collective.
pub fn collect(
    comm: &dyn Communicator,
    ranks: &[Rank<'_>],
    wanted: Result<Option<Wanted>, CommunicatorError>,
) -> Result<Option<Pairs>, CommunicatorError> {
    let wanted = broadcast(comm, wanted)?;
    reduce(comm, Pairs::of(ranks, &wanted), Pairs::combine)
}

/// Ranks at the begin of a chain of waiting ranks, and the phase in which their work is looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// First index of the phase.
    pub phase: u64,
    /// Ranks at the begin of the chain.
    pub ranks: RankSet,
}

/// Work in each context, in nanoseconds, summed over the ranks concerned.
pub type Work = BTreeMap<Vec<Step>, u64>;

/// Collects the contexts in which ranks work. Returns the answers on process 0, in the order of
/// `begins`, and `None` elsewhere. Collective.
pub fn ask_for_work(
    comm: &dyn Communicator,
    ranks: &[Rank<'_>],
    begins: Result<Option<Vec<Begin>>, CommunicatorError>,
) -> Result<Option<Vec<Work>>, CommunicatorError> {
    let begins = broadcast(comm, begins)?;
    let ours: Vec<Work> = begins.iter().map(|begin| work_at(ranks, begin)).collect();
    reduce(comm, ours, |mut ours, theirs| {
        for (ours, theirs) in ours.iter_mut().zip(theirs) {
            merge(ours, theirs, |ours, ns| *ours += ns);
        }
        ours
    })
}

fn work_at(ranks: &[Rank<'_>], begin: &Begin) -> Work {
    let mut all = Work::new();
    for rank in ranks.iter().filter(|rank| begin.ranks.contains(rank.input.rank)) {
        let phase = rank.phases.iter().find(|phase| phase.first_index == begin.phase);
        let mut work = phase.map_or_else(Vec::new, |phase| rank.phase_work(phase));
        work.sort_by_key(|(node, work)| (std::cmp::Reverse(work.own_ns), *node));
        for (node, work) in work.into_iter().take(MAX_WORKERS) {
            let path = crate::canonical::path(&rank.input.profile.tree, node);
            *all.entry(path).or_default() += work.own_ns;
        }
    }
    all
}
