//! Choice of the call paths that a timeline shows.

use std::collections::{BTreeSet, HashMap};

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::canonical::{CanonicalTree, Threads};
use crate::finding::Finding;
use crate::labelling::ContextClass;
use crate::owners::Owners;
use crate::sites::code_site;
use crate::totals::Totals;

/// Minimum time of a shown call path, without the shown paths below it, as a fraction of the time
/// of all ranks.
const MIN_SHOWN_FRACTION: f64 = 0.01;
/// Maximum number of loss symptoms followed over time.
const MAX_SYMPTOMS: usize = 32;
/// Maximum number of call paths.
const MAX_SHOWN: usize = u16::MAX as usize;

/// Returns the call paths that cells show, ascending: symptoms and causes of losses; other paths
/// with much time, as far inward as they hold [`MIN_SHOWN_FRACTION`] of the time of their class of
/// threads; and the outermost paths. `shows_threads`: also paths of threads that do not
/// communicate.
///
/// Depths differ, so that losses are visible side by side (PPoPP20, Figure 10): below a symptom or
/// a cause only further symptoms and causes are shown, and below an MPI call nothing. In parallel
/// regions, the same holds for the twins of symptoms and causes on other threads.
pub fn chosen(
    totals: &Totals,
    context_classes: &[ContextClass],
    findings: &[Finding],
    shows_threads: bool,
) -> Vec<NodeId> {
    let contexts = &totals.tree.contexts.nodes;
    let count = contexts.len();
    let mut of_losses: BTreeSet<NodeId> = BTreeSet::new();
    for finding in findings {
        of_losses.extend(finding.shown_in());
        of_losses.extend(finding.causes.iter().map(|cause| cause.node));
    }
    if shows_threads {
        of_losses.extend(twins_in_regions(&totals.tree, &of_losses));
    }
    let mut is_hidden = vec![false; count];
    let mut shown = of_losses.clone();
    for (id, context) in contexts.iter().enumerate() {
        let is_left_out = !shows_threads && totals.tree.threads[id] != Threads::Main;
        is_hidden[id] = match context.parent {
            None => is_left_out,
            Some(parent) => {
                is_hidden[parent as usize]
                    || context_classes[parent as usize].in_mpi
                    || of_losses.contains(&parent)
            }
        };
        if context.parent.is_none() && !is_left_out {
            shown.insert(id as NodeId);
        }
    }
    let mut left_ns: Vec<u128> = totals.nodes.iter().map(|node| node.exclusive.sum).collect();
    let all_ns = |threads: Threads| {
        let of_class = (0..count).filter(|id| totals.tree.threads[*id] == threads);
        of_class.map(|id| left_ns[id] as f64).sum::<f64>()
    };
    let [main_ns, other_ns] = [Threads::Main, Threads::Other].map(all_ns);
    for id in (0..count).rev() {
        let node = id as NodeId;
        let all_ns = match totals.tree.threads[id] {
            Threads::Main => main_ns,
            Threads::Other => other_ns,
        };
        let is_shown = shown.contains(&node)
            || !is_hidden[id] && left_ns[id] as f64 > MIN_SHOWN_FRACTION * all_ns;
        if is_shown && shown.len() < MAX_SHOWN {
            shown.insert(node);
        } else if let Some(parent) = contexts[id].parent {
            left_ns[parent as usize] += left_ns[id];
        }
    }
    shown.into_iter().collect()
}

/// Returns the contexts of other threads that have the path of one of `contexts`, below the context
/// that makes their region or creates them.
fn twins_in_regions(tree: &CanonicalTree, contexts: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let ContextTree { nodes, frames } = &tree.contexts;
    let mut by_path: HashMap<(Option<NodeId>, u32, u64), NodeId> = HashMap::new();
    // The first context with the path of each context.
    let mut firsts: Vec<NodeId> = Vec::with_capacity(nodes.len());
    let mut makers: BTreeSet<NodeId> = BTreeSet::new();
    for (node, id) in nodes.iter().zip(0..) {
        let parent = node.parent.map(|parent| firsts[parent as usize]);
        firsts.push(*by_path.entry((parent, node.frame, node.site)).or_insert(id));
        let class = frames[node.frame as usize].call.and_then(calls::class);
        let makes = matches!(class, Some(CallClass::Region | CallClass::ThreadCreation));
        makers.extend(parent.filter(|_| makes));
    }
    let mut in_region: Vec<bool> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let is_made = |parent: NodeId| {
            in_region[parent as usize] || makers.contains(&firsts[parent as usize])
        };
        in_region.push(node.parent.is_some_and(is_made));
    }
    let paths: BTreeSet<NodeId> = contexts.iter().map(|node| firsts[*node as usize]).collect();
    let is_twin = |id: &NodeId| {
        let at = *id as usize;
        tree.threads[at] == Threads::Other && in_region[at] && paths.contains(&firsts[at])
    };
    (0..nodes.len() as NodeId).filter(is_twin).collect()
}

/// Returns the symptoms of the largest losses, without duplicates: each is the first of the
/// contexts in which ranks wait. Different ranks may call the synchronisation that ends a phase at
/// different places of one function.
pub fn symptoms(totals: &Totals, owners: &Owners, findings: &[Finding]) -> Vec<Vec<NodeId>> {
    let mut symptoms: Vec<Vec<NodeId>> = Vec::new();
    for finding in findings {
        let symptom = finding.symptom;
        if symptoms.len() == MAX_SYMPTOMS || symptoms.iter().any(|known| known[0] == symptom) {
            continue;
        }
        let phase = totals.sums.phases.get(&finding.phase);
        let ends_phase = phase.is_some_and(|phase| phase.ends_in == Some(symptom));
        let tree = &totals.tree.contexts;
        let place = if ends_phase { code_site(tree, owners, symptom) } else { None };
        let is_other = |node: &NodeId| {
            *node != symptom && place.is_some() && code_site(tree, owners, *node) == place
        };
        let others = (0..tree.nodes.len() as NodeId).filter(is_other);
        symptoms.push([symptom].into_iter().chain(others).collect());
    }
    symptoms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_run::Contexts;

    #[test]
    fn twins_lie_on_other_threads_in_regions() {
        let mut contexts = Contexts::default();
        let [solve, kernel, start, task] =
            ["main/solve", "main/solve/share/kernel", "start", "start/task"]
                .map(|path| contexts.node(path));
        contexts.node("main/solve/GOMP_parallel");
        let mut tree = CanonicalTree::default();
        let main = tree.adopt(&contexts.tree, Threads::Main, |_| true);
        let other = tree.adopt(&contexts.tree, Threads::Other, |_| true);
        let at = |places: &[Option<NodeId>], node: NodeId| places[node as usize].unwrap();
        let of_losses = [solve, kernel, start, task].map(|node| at(&main, node));
        let twins = twins_in_regions(&tree, &BTreeSet::from(of_losses));
        assert_eq!(twins, [at(&other, kernel)]);
    }
}
