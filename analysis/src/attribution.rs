//! Attributes imbalance and waiting to contexts over the whole run: imbalance and wait with their
//! sums (ICS18, 4.3.1 and 4.3.2), and idleness with its blame (SC10, II-B and II-C).
//!
//! ICS18 sums over the leaves of the tree, which are source lines there. Leaves here may be
//! coarser, so a context's exclusive time counts as one more leaf below it. For a procedure this
//! leaf includes its loops and inlined calls, for a loop or inlined call only its own time.
//!
//! Both papers compare threads. For threads other than the communicating one, a rank has only the
//! sum of their times, so the mean thread of each rank is compared. Imbalance among the threads of
//! one rank therefore does not show, and no context waits for longer than the run.
//!
//! In SC10 a context is balanced if its time varies over ranks little more than the root's time.
//! The root of a tree of wall-clock time hardly varies at all, so the sampling error is allowed in
//! addition.

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::frame_classes::is_part;
use crate::label::Label;
use crate::labelling::{ContextClass, is_thread_barrier};
use crate::metrics::Accumulator;
use crate::owners::{Owners, function_around};
use crate::thresholds::{BALANCED_RATIO, NOISE_FRACTION, ORIGIN_FRACTION, SIGNIFICANT_FRACTION};
use crate::totals::Totals;

/// Categories of contexts in ICS18, Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The ranks' own work.
    Computation,
    /// Wait time and communication that does not synchronise all ranks; also waiting for a lock, a
    /// condition or the end of a thread.
    Wait,
    /// A collective that ranks leave together, or a barrier of threads.
    Synchronisation,
}

impl Category {
    /// Returns the category of a context that is neither a thread barrier nor called by one.
    pub fn of(context_class: ContextClass) -> Self {
        match context_class.label {
            Label::CollectiveSynchronisation => Self::Synchronisation,
            label if !context_class.is_work() || label.is_a(Label::Wait) => Self::Wait,
            _ => Self::Computation,
        }
    }

    /// Returns the categories of all contexts; waiting inside a synchronisation belongs to the
    /// synchronisation.
    fn of_all(tree: &ContextTree, context_classes: &[ContextClass]) -> Vec<Self> {
        let mut categories: Vec<Self> = Vec::with_capacity(tree.nodes.len());
        for (node, context_class) in tree.nodes.iter().zip(context_classes) {
            let outer = node.parent.map(|parent| categories[parent as usize]);
            let is_barrier = is_thread_barrier(&tree.frames[node.frame as usize]);
            categories.push(match Self::of(*context_class) {
                Self::Wait if is_barrier || outer == Some(Self::Synchronisation) => {
                    Self::Synchronisation
                }
                category => category,
            });
        }
        categories
    }
}

/// Imbalance and wait of a context, in nanoseconds: the reduction of the run time if the imbalance
/// were removed, and if the waiting were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inefficiency {
    /// imb(N).
    pub imb_ns: f64,
    /// wait(N).
    pub wait_ns: f64,
}

/// Returns imbalance and wait by the formulas of ICS18, Table 1.
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

/// Attribution of one context; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attributed {
    /// Imbalance and wait of the context.
    pub own: Inefficiency,
    /// sumImb(N) and sumWait(N).
    pub sum: Inefficiency,
    /// Mean idleness in the context, callees included.
    pub idle_ns: f64,
    /// Whether the context is a balance point.
    pub balanced: bool,
    /// Idleness that the context is blamed for: inclusive (with callees) and exclusive. As with
    /// exclusive time, a procedure's exclusive blame includes its loops and inlined calls (SC10,
    /// footnote 3).
    pub blame_ns: (f64, f64),
    /// Inclusive blame as a fraction of the blame of all contexts (SC10, II-C), 0 to 1.
    pub blame_fraction: f64,
}

/// Computes [`Attributed`] for every context.
pub fn attribute(
    totals: &Totals,
    context_classes: &[ContextClass],
    owners: &Owners,
) -> Vec<Attributed> {
    let ranks = totals.job.ranks.len();
    let tree = &totals.tree.contexts;
    let moving = moving_ns(totals, context_classes);
    let categories = Category::of_all(tree, context_classes);
    let works = works_inside(tree, &categories);
    let of = |id: usize, time: &Accumulator| inefficiency(categories[id], time, ranks);
    let with_callees =
        |id: usize, time: &Accumulator| match context_classes[id].in_thread_runtime && works[id] {
            // Work of the program inside the threading runtime is no waiting of the runtime.
            true => inefficiency(Category::Computation, time, ranks),
            false => of(id, time),
        };
    let mut all: Vec<Attributed> = (0..tree.nodes.len())
        .map(|id| Attributed {
            own: with_callees(id, totals.nodes[id].of_one_thread().0),
            idle_ns: match owners.wait[id] {
                // Time in a call that is not known to move data counts as idle.
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
    // Idleness is passed on to the callers, up to the root.
    for id in (0..tree.nodes.len()).rev() {
        // Contexts inside a waiting call are part of that call's idleness, which is counted
        // already.
        let within = owners.wait[id].is_some_and(|top| top as usize != id);
        if let (Some(parent), false) = (tree.nodes[id].parent, within) {
            all[parent as usize].idle_ns += all[id].idle_ns;
        }
    }
    let balanced = balanced(totals, owners);
    blame(tree, &mut all, &balanced, |id| owners.wait[id] == Some(id as NodeId));
    all
}

/// Returns for each context whether it is computation or has computation among its callees.
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

/// Returns the mean time of each context in data transfers, in nanoseconds.
fn moving_ns(totals: &Totals, context_classes: &[ContextClass]) -> Vec<f64> {
    let ranks = totals.job.ranks.len();
    let nodes = &totals.tree.contexts.nodes;
    let mut moving = vec![0.0; nodes.len()];
    for id in (0..nodes.len()).rev() {
        if context_classes[id].label.is_a(Label::DataTransfer) {
            moving[id] = totals.nodes[id].of_one_thread().0.mean(ranks);
        }
        if let Some(parent) = nodes[id].parent {
            moving[parent as usize] += moving[id];
        }
    }
    moving
}

/// Returns sumImb and sumWait from each context's own values and from the values of its exclusive
/// time.
fn sums(tree: &ContextTree, own: &[Inefficiency], leaves: &[Inefficiency]) -> Vec<Inefficiency> {
    let mut has_callees = vec![false; tree.nodes.len()];
    // Sums over callees, without the exclusive time of loops and inlined calls, which is included
    // in the procedure's exclusive time.
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

/// Returns for each context whether it is balanced (SC10, equation 2). Calls that communicate and
/// contexts inside them are never balanced.
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

/// Returns the procedure that contains a loop or an inlined call.
fn procedure_of_part(tree: &ContextTree, id: usize) -> Option<NodeId> {
    let is_part_of_one = is_part(&tree.frames[tree.nodes[id].frame as usize]);
    is_part_of_one.then(|| function_around(tree, id as NodeId)).flatten()
}

/// Returns the contexts at the depth where losses arise (ICS18, 4.3.2): significant contexts with
/// more than `ORIGIN_FRACTION` of the sum below them. If several contexts of a path qualify, the
/// innermost one that is not explained by its callees is returned. For wall-clock time a caller is
/// as even as its callees are after waiting. For work alone, which `value` may also return, every
/// caller up to main is as uneven as a single uneven callee.
pub fn significant(
    parents: &[Option<NodeId>],
    value: impl Fn(usize) -> (f64, f64),
    run_ns: f64,
) -> Vec<NodeId> {
    let mut callees: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    // Contexts found at and below each context.
    let mut found: Vec<Vec<NodeId>> = vec![Vec::new(); parents.len()];
    for id in (0..parents.len()).rev() {
        let (own, sum) = value(id);
        let inner: Vec<NodeId> =
            callees[id].iter().flat_map(|callee| std::mem::take(&mut found[*callee])).collect();
        let of_callees = callees[id].iter().map(|callee| value(*callee).0);
        // The outermost function contains everything, so naming it carries no information: the sum
        // of its callees explains it.
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
