//! Groups of contexts and ranks that vary together (Fowler's slides: bi-clustering): the ranks of a
//! group have more, or less, work in its contexts than the other ranks, or more, or fewer, events.
//!
//! The matrix of contexts and ranks is bounded: it holds the contexts in which ranks differ most,
//! and evenly spaced ranks. Process 0 finds the groups in the matrix ([`shaving`]); then every
//! process determines which of all its ranks belong to a group.

mod block_fit;
pub mod shaving;

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalTree, Threads};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::input::RankInput;
use crate::labelling::ContextClass;
use crate::metrics::Accumulator;
use crate::ranks::RankSet;
use crate::summary::Bicluster;
use crate::totals::Totals;

use shaving::{Block, MIN_COLUMNS, MIN_ROWS, Matrix, blocks};

/// Maximum number of compared contexts: those in which ranks differ most.
const MAX_CONTEXTS: usize = 64;
/// Maximum number of compared ranks, evenly spaced.
const MAX_RANKS: u32 = 128;
/// Minimum standard deviation over ranks of a compared context, as a fraction of the run, or of the
/// events of the run.
const MIN_DEVIATION_FRACTION: f64 = 0.001;

/// Contexts and ranks that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The event that is compared; `None` for the time.
    event: Option<String>,
    contexts: Vec<NodeId>,
    ranks: RankSet,
}

/// Contexts and ranks that vary together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    event: Option<String>,
    contexts: Vec<NodeId>,
    ranks: RankSet,
    more: bool,
    variance_share: f64,
}

/// Membership rule of a group: ranks with a sum of scaled values above a threshold, or below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Rule {
    /// Scale of each compared context; 0 for contexts outside the group.
    scales: Vec<f64>,
    threshold: f64,
    more: bool,
}

impl Comparison {
    /// Chooses the contexts of work and the ranks to compare: in their times, and in each event
    /// that all ranks counted. Leaves out quantities with too few contexts or ranks: too small a
    /// matrix cannot be distinguished from chance.
    pub fn all(totals: &Totals, context_classes: &[ContextClass]) -> Vec<Self> {
        let count = totals.job.ranks.len();
        let run_ns = totals.nodes.iter().map(|node| node.inclusive.mean(count)).fold(0.0, f64::max);
        let times = (0..).zip(&totals.nodes).map(|(node, it)| (node, &it.exclusive));
        let of_time = Self::of(totals, context_classes, (None, run_ns), times);
        let of_event = |event: String| {
            let contexts = || totals.counters.contexts_of(&event);
            let most = contexts().map(|(_, it)| it.inclusive.mean(count)).fold(0.0, f64::max);
            let counts = contexts().map(|(node, it)| (node, &it.exclusive));
            Self::of(totals, context_classes, (Some(event.clone()), most), counts)
        };
        let events = totals.counters.counted_by(&totals.job.ranks);
        of_time.into_iter().chain(events.into_iter().filter_map(of_event)).collect()
    }

    /// Chooses among contexts with their exclusive values; `most` is the mean value of the run.
    fn of<'a>(
        totals: &Totals,
        context_classes: &[ContextClass],
        (event, most): (Option<String>, f64),
        candidates: impl Iterator<Item = (NodeId, &'a Accumulator)>,
    ) -> Option<Self> {
        let count = totals.job.ranks.len();
        let least = (MIN_DEVIATION_FRACTION * most).powi(2);
        let mut varying: Vec<(f64, NodeId)> = candidates
            .filter(|(node, _)| context_classes[*node as usize].is_work())
            .map(|(node, value)| (value.variance(count), node))
            .filter(|(variance, _)| *variance > least)
            .collect();
        varying.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        varying.truncate(MAX_CONTEXTS);
        let mut contexts: Vec<NodeId> = varying.into_iter().map(|(_, id)| id).collect();
        contexts.sort_unstable();
        if contexts.len() < MIN_ROWS || (count as usize) < MIN_COLUMNS {
            return None;
        }
        let step = count.div_ceil(MAX_RANKS) as usize;
        let ranks = totals.job.ranks.iter().step_by(step).collect();
        Some(Self { event, contexts, ranks })
    }
}

/// Returns the groups of a job at process 0, those by time first; an empty list elsewhere. `tree`
/// and `comparisons` must be the same in all processes. Collective.
pub fn find(
    comm: &dyn Communicator,
    local: &[RankInput],
    tree: &mut CanonicalTree,
    comparisons: &[Comparison],
) -> Result<Vec<Group>, CommunicatorError> {
    let mut groups = Vec::new();
    for comparison in comparisons {
        groups.extend(find_in(comm, local, tree, comparison)?);
    }
    Ok(groups)
}

fn find_in(
    comm: &dyn Communicator,
    local: &[RankInput],
    tree: &mut CanonicalTree,
    comparison: &Comparison,
) -> Result<Vec<Group>, CommunicatorError> {
    let values: Vec<(u32, Vec<u64>)> =
        local.iter().map(|input| (input.rank, values(input, tree, comparison))).collect();
    let compared = values.iter().filter(|(rank, _)| comparison.ranks.contains(*rank));
    let ours: BTreeMap<u32, Vec<u64>> = compared.cloned().collect();
    let all = reduce(comm, ours, |mut ours, theirs| {
        ours.extend(theirs);
        ours
    });
    let mut found = Vec::new();
    let rules = all.map(|all| {
        all.map(|all| {
            let matrix = matrix(&all, comparison.contexts.len());
            found = blocks(&matrix);
            found.iter().map(|block| rule(&matrix, block)).collect::<Vec<Rule>>()
        })
    });
    let rules = broadcast(comm, rules)?;
    let members = |rule: &Rule| {
        let within = values.iter().filter(|(_, values)| rule.includes(values));
        within.map(|(rank, _)| *rank).collect::<RankSet>()
    };
    let ours: Vec<RankSet> = rules.iter().map(members).collect();
    let members = reduce(comm, ours, |ours: Vec<RankSet>, theirs| {
        ours.iter().zip(&theirs).map(|(ours, theirs)| ours.union(theirs)).collect()
    })?;
    let groups = found.into_iter().zip(members.into_iter().flatten());
    let groups = groups.filter(|(_, ranks)| !ranks.is_empty());
    Ok(groups.map(|(block, ranks)| Group::new(comparison, block, ranks)).collect())
}

/// Returns the exclusive work of a rank's communicating thread in each compared context, in
/// nanoseconds, or the number of the event. Not SC10's hybrid exclusive values, because a function
/// and its loop must not share time.
fn values(input: &RankInput, tree: &mut CanonicalTree, comparison: &Comparison) -> Vec<u64> {
    let profile = &input.profile;
    let places = tree.adopt(&profile.tree, Threads::Main, |_| true);
    let mut values = vec![0; comparison.contexts.len()];
    let mut add = |node: NodeId, value: u64| {
        let context = places[node as usize];
        let at = context.and_then(|context| comparison.contexts.binary_search(&context).ok());
        if let Some(at) = at {
            values[at] += value;
        }
    };
    match &comparison.event {
        None => {
            for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
                add(*node, value.net_ns());
            }
        }
        Some(name) => {
            let counters = &profile.counters;
            let index = counters.events.iter().position(|event| event.name == *name);
            for (node, increments) in &counters.main {
                add(*node, index.map_or(0, |index| increments[index]));
            }
        }
    }
    values
}

fn matrix(ranks: &BTreeMap<u32, Vec<u64>>, contexts: usize) -> Matrix {
    let row = |context: usize| ranks.values().map(|values| values[context] as f64).collect();
    Matrix::new(ranks.len(), (0..contexts).map(row))
}

/// Returns the rule that separates the columns of a block from the others: the threshold is
/// half-way between their means.
fn rule(matrix: &Matrix, block: &Block) -> Rule {
    let mut scales = vec![0.0; matrix.height()];
    for row in &block.rows {
        let deviation = shaving::moments(matrix.row(*row)).1.sqrt();
        scales[*row] = if deviation > 0.0 { deviation.recip() } else { 0.0 };
    }
    let score = |column: usize| -> f64 {
        block.rows.iter().map(|row| scales[*row] * matrix.row(*row)[column]).sum()
    };
    let columns = 0..matrix.width();
    let (inside, outside): (Vec<usize>, Vec<usize>) =
        columns.partition(|column| block.columns.contains(column));
    let mean = |columns: &[usize]| {
        columns.iter().map(|column| score(*column)).sum::<f64>() / columns.len().max(1) as f64
    };
    Rule { threshold: (mean(&inside) + mean(&outside)) / 2.0, scales, more: block.more }
}

impl Rule {
    fn includes(&self, values: &[u64]) -> bool {
        let scaled = self.scales.iter().zip(values).map(|(scale, value)| scale * *value as f64);
        let score: f64 = scaled.sum();
        (score > self.threshold) == self.more
    }
}

impl Group {
    fn new(comparison: &Comparison, block: Block, ranks: RankSet) -> Self {
        let contexts = block.rows.iter().map(|row| comparison.contexts[*row]).collect();
        let Block { more, variance_share, .. } = block;
        Self { event: comparison.event.clone(), contexts, ranks, more, variance_share }
    }

    /// Returns the group for the summary. `places` are the contexts' indices in the summary's tree.
    pub fn shown(&self, places: &[Option<u32>]) -> Bicluster {
        Bicluster {
            event: self.event.clone(),
            nodes: self.contexts.iter().filter_map(|id| places[*id as usize]).collect(),
            ranks: self.ranks.to_string(),
            sign: if self.more { 1 } else { -1 },
            variance_share: self.variance_share,
        }
    }
}
