//! Whose fault imbalance and waiting are, context by context, over the whole run: imbalance and wait with
//! their sums (ICS18, 4.3.1 and 4.3.2), and idleness with its blame (SC10, II-B and II-C).
//!
//! ICS18 adds up over the leaves of the tree; its leaves are source lines. Ours may end earlier, so the
//! time that a context takes by itself counts like one more leaf below it: of a procedure with its
//! loops and inlined calls, of these alone.
//!
//! Both papers compare threads. Of the threads beside the communicating one a rank has only what they took
//! together: what is compared is the mean thread of each rank, so that uneven work among the threads of one
//! rank does not show, and no context waits for longer than the run.
//!
//! SC10 takes a context for balanced if its time varies over ranks little more than the root's. The root of a
//! tree of wall time hardly varies at all, so what sampling is wrong by is allowed on top.

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::frames::is_part;
use crate::label::Label;
use crate::labelling::{Meaning, is_thread_barrier};
use crate::metrics::Accumulator;
use crate::owners::{Owners, function_around};
use crate::thresholds::{BALANCED_RATIO, NOISE_FRACTION, ORIGIN_FRACTION, SIGNIFICANT_FRACTION};
use crate::totals::Totals;

/// What ICS18's Table 1 tells contexts apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The ranks' own work.
    Computation,
    /// Waiting, and what communicates without synchronising all: also for a lock, a condition or the end of a
    /// thread.
    Wait,
    /// A collective that ranks leave together, or a barrier that threads do.
    Synchronisation,
}

impl Category {
    /// The category of a context that is no barrier of threads, nor called by one.
    pub fn of(meaning: Meaning) -> Self {
        match meaning.label {
            Label::CollectiveSynchronisation => Self::Synchronisation,
            label if !meaning.is_work() || label.is_a(Label::Wait) => Self::Wait,
            _ => Self::Computation,
        }
    }

    /// Those of all contexts: what a synchronisation does to wait belongs to it.
    fn of_all(tree: &ContextTree, meanings: &[Meaning]) -> Vec<Self> {
        let mut categories: Vec<Self> = Vec::with_capacity(tree.nodes.len());
        for (node, meaning) in tree.nodes.iter().zip(meanings) {
            let outer = node.parent.map(|parent| categories[parent as usize]);
            let is_barrier = is_thread_barrier(&tree.frames[node.frame as usize]);
            categories.push(match Self::of(*meaning) {
                Self::Wait if is_barrier || outer == Some(Self::Synchronisation) => {
                    Self::Synchronisation
                }
                category => category,
            });
        }
        categories
    }
}

/// Imbalance and wait, in nanoseconds: what the run would be shorter by if the one were mended, or the
/// other left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inefficiency {
    /// imb(N).
    pub imb_ns: f64,
    /// wait(N).
    pub wait_ns: f64,
}

/// ICS18, Table 1.
pub fn inefficiency(category: Category, time: &Accumulator, ranks: u32) -> Inefficiency {
    let (mean_ns, min_ns) = (time.mean(ranks), time.min(ranks) as f64);
    match category {
        Category::Computation => Inefficiency { imb_ns: time.imbalance(ranks), wait_ns: 0.0 },
        Category::Wait => Inefficiency { imb_ns: time.imbalance(ranks), wait_ns: mean_ns },
        Category::Synchronisation => {
            Inefficiency { imb_ns: (mean_ns - min_ns).max(0.0), wait_ns: min_ns }
        }
    }
}

/// What is said of one context, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attributed {
    /// Its imbalance and wait.
    pub own: Inefficiency,
    /// sumImb(N) and sumWait(N).
    pub sum: Inefficiency,
    /// Mean idleness in it.
    pub idle_ns: f64,
    /// Whether it is a balance point.
    pub balanced: bool,
    /// Idleness that it is blamed for: with what it calls, and by itself; of a procedure with its loops and
    /// inlined calls, like its exclusive time (SC10, footnote 3).
    pub blame_ns: (f64, f64),
    /// The first of them as a part of all that is blamed on anything (SC10, II-C).
    pub blame_fraction: f64,
}

/// Says it of all contexts of a run.
pub fn attribute(totals: &Totals, meanings: &[Meaning], owners: &Owners) -> Vec<Attributed> {
    let ranks = totals.job.ranks.len();
    let tree = &totals.tree.contexts;
    let moving = moving_ns(totals, meanings);
    let categories = Category::of_all(tree, meanings);
    let works = works_inside(tree, &categories);
    let of = |id: usize, time: &Accumulator| inefficiency(categories[id], time, ranks);
    let with_callees = |id: usize, time: &Accumulator| match meanings[id].in_runtime && works[id] {
        // What the program does in the runtime of its threads is not the runtime's waiting.
        true => inefficiency(Category::Computation, time, ranks),
        false => of(id, time),
    };
    let mut all: Vec<Attributed> = (0..tree.nodes.len())
        .map(|id| Attributed {
            own: with_callees(id, totals.nodes[id].of_one_thread().0),
            idle_ns: match owners.wait[id] {
                // What a call is not known to move, it waits.
                Some(top) if top as usize == id => {
                    (totals.nodes[id].of_one_thread().0.mean(ranks) - moving[id]).max(0.0)
                }
                _ => 0.0,
            },
            ..Attributed::default()
        })
        .collect();
    let leaves: Vec<Inefficiency> =
        (0..tree.nodes.len()).map(|id| of(id, totals.nodes[id].of_one_thread().1)).collect();
    let own: Vec<Inefficiency> = all.iter().map(|it| it.own).collect();
    for (it, sum) in all.iter_mut().zip(sums(tree, &own, &leaves)) {
        it.sum = sum;
    }
    // Idleness is in what calls it as well, up to the root.
    for id in (0..tree.nodes.len()).rev() {
        // Within a call all is the call's, which has been counted.
        let within = owners.wait[id].is_some_and(|top| top as usize != id);
        if let (Some(parent), false) = (tree.nodes[id].parent, within) {
            all[parent as usize].idle_ns += all[id].idle_ns;
        }
    }
    let balanced = balanced(totals, owners);
    blame(tree, &mut all, &balanced, |id| owners.wait[id] == Some(id as NodeId));
    all
}

/// Which contexts are computation or call what is.
fn works_inside(tree: &ContextTree, categories: &[Category]) -> Vec<bool> {
    let mut works: Vec<bool> =
        categories.iter().map(|category| *category == Category::Computation).collect();
    for (id, node) in tree.nodes.iter().enumerate().rev() {
        if let (Some(parent), true) = (node.parent, works[id]) {
            works[parent as usize] = true;
        }
    }
    works
}

/// Mean time of each context in what is known to move data.
fn moving_ns(totals: &Totals, meanings: &[Meaning]) -> Vec<f64> {
    let ranks = totals.job.ranks.len();
    let nodes = &totals.tree.contexts.nodes;
    let mut moving = vec![0.0; nodes.len()];
    for id in (0..nodes.len()).rev() {
        if meanings[id].label.is_a(Label::DataTransfer) {
            moving[id] = totals.nodes[id].of_one_thread().0.mean(ranks);
        }
        if let Some(parent) = nodes[id].parent {
            moving[parent as usize] += moving[id];
        }
    }
    moving
}

/// sumImb and sumWait from each context's own values and those of the time that it takes by itself.
fn sums(tree: &ContextTree, own: &[Inefficiency], leaves: &[Inefficiency]) -> Vec<Inefficiency> {
    let mut has_callees = vec![false; tree.nodes.len()];
    // What lies below, without the time that loops and inlined calls take by themselves: a procedure's
    // own time holds it already.
    let mut below = vec![Inefficiency::default(); tree.nodes.len()];
    let mut sums = vec![Inefficiency::default(); tree.nodes.len()];
    for id in (0..tree.nodes.len()).rev() {
        let part = is_part(&tree.frames[tree.nodes[id].frame as usize]);
        sums[id] = match has_callees[id] {
            true => Inefficiency {
                imb_ns: below[id].imb_ns + leaves[id].imb_ns,
                wait_ns: below[id].wait_ns + leaves[id].wait_ns,
            },
            false => own[id],
        };
        let Some(parent) = tree.nodes[id].parent else { continue };
        let passed = if part { below[id] } else { sums[id] };
        below[parent as usize].imb_ns += passed.imb_ns;
        below[parent as usize].wait_ns += passed.wait_ns;
        has_callees[parent as usize] = true;
    }
    sums
}

/// Which contexts are balanced (SC10, equation 2): never a call that communicates, nor what lies in one.
fn balanced(totals: &Totals, owners: &Owners) -> Vec<bool> {
    let ranks = totals.job.ranks.len();
    let nodes = &totals.tree.contexts.nodes;
    let variation = |time: &Accumulator| {
        let metric = time.finalize(ranks);
        if metric.mean_s > 0.0 { metric.stddev_s / metric.mean_s } else { 0.0 }
    };
    let mut roots: Vec<NodeId> = Vec::with_capacity(nodes.len());
    let mut balanced = Vec::with_capacity(nodes.len());
    for (node, id) in nodes.iter().zip(0..) {
        let root = node.parent.map_or(id, |parent| roots[parent as usize]);
        roots.push(root);
        let time = totals.nodes[id as usize].of_one_thread().0;
        let sampling = totals.job.kept_period_ns as f64 / time.mean(ranks).max(1.0);
        let allowed = BALANCED_RATIO * variation(totals.nodes[root as usize].of_one_thread().0)
            + sampling
            + NOISE_FRACTION;
        let communicates = owners.wait[id as usize].is_some();
        balanced.push(!communicates && (id == root || variation(time) <= allowed));
    }
    balanced
}

/// Shifts idleness to the deepest balanced context around it (SC10, equations 3 and 4).
fn blame(
    tree: &ContextTree,
    all: &mut [Attributed],
    balanced: &[bool],
    is_frontier: impl Fn(usize) -> bool,
) {
    for id in 0..tree.nodes.len() {
        all[id].balanced = balanced[id];
        if !is_frontier(id) {
            continue;
        }
        let outer = |id: &NodeId| tree.nodes[*id as usize].parent;
        let suspect = std::iter::successors(tree.nodes[id].parent, outer)
            .find(|outer| balanced[*outer as usize]);
        if let Some(suspect) = suspect {
            all[suspect as usize].blame_ns.1 += all[id].idle_ns;
        }
    }
    let own: Vec<f64> = all.iter().map(|it| it.blame_ns.1).collect();
    let whole_ns: f64 = own.iter().sum();
    for id in (0..tree.nodes.len()).rev() {
        all[id].blame_ns.0 += own[id];
        let inclusive_ns = all[id].blame_ns.0;
        if whole_ns > 0.0 {
            all[id].blame_fraction = (inclusive_ns / whole_ns).min(1.0);
        }
        if let Some(parent) = tree.nodes[id].parent {
            all[parent as usize].blame_ns.0 += inclusive_ns;
        }
        if let (true, Some(procedure)) = (own[id] > 0.0, procedure_of_part(tree, id)) {
            all[procedure as usize].blame_ns.1 += own[id];
        }
    }
}

/// The procedure that a loop or an inlined call is a part of.
fn procedure_of_part(tree: &ContextTree, id: usize) -> Option<NodeId> {
    let is_part_of_one = is_part(&tree.frames[tree.nodes[id].frame as usize]);
    is_part_of_one.then(|| function_around(tree, id as NodeId)).flatten()
}

/// The contexts at the depth where losses arise (ICS18, 4.3.2): significant ones that have most of what lies
/// below them. Several on one path may be that; the innermost one that the next inner ones do not explain is
/// taken. Of time in the wall each caller is as even as what it calls is evened out by waiting; of work alone,
/// which `value` may be of, each caller up to main is as uneven as a single uneven callee.
pub fn significant(
    parents: &[Option<NodeId>],
    value: impl Fn(usize) -> (f64, f64),
    run_ns: f64,
) -> Vec<NodeId> {
    let mut callees: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    // At and below each context.
    let mut found: Vec<Vec<NodeId>> = vec![Vec::new(); parents.len()];
    for id in (0..parents.len()).rev() {
        let (own, sum) = value(id);
        let inner: Vec<NodeId> =
            callees[id].iter().flat_map(|callee| std::mem::take(&mut found[*callee])).collect();
        let of_callees = callees[id].iter().map(|callee| value(*callee).0);
        // The outermost function holds everything: to name it says nothing.
        let explained: f64 = match parents[id] {
            None => of_callees.sum(),
            Some(_) => of_callees.fold(0.0, f64::max),
        };
        let is_explained = !inner.is_empty() && explained >= ORIGIN_FRACTION * own;
        let arises =
            own > SIGNIFICANT_FRACTION * run_ns && own > ORIGIN_FRACTION * sum && !is_explained;
        found[id] = if arises { vec![id as NodeId] } else { inner };
        if let Some(parent) = parents[id] {
            callees[parent as usize].push(id);
        }
    }
    let mut all = found.concat();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests;
