//! Choice of the call paths that a timeline shows.

use std::collections::BTreeSet;

use plimsoll_collector::profile::NodeId;

use crate::canonical::Threads;
use crate::finding::Finding;
use crate::labelling::ContextClass;
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
/// threads; and the outermost paths. `shows_threads`: also those of threads that do not communicate.
///
/// Depths differ, so that losses are visible side by side (PPoPP20, Figure 10): below a symptom or
/// a cause only further symptoms and causes are shown, and below an MPI call nothing.
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
        of_losses.insert(finding.symptom);
        of_losses.extend(&finding.also_in);
        of_losses.extend(finding.causes.iter().map(|cause| cause.node));
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

/// Returns the symptoms of the largest losses, without duplicates.
pub fn symptoms(findings: &[Finding]) -> Vec<NodeId> {
    let mut symptoms: Vec<NodeId> = Vec::new();
    for finding in findings {
        if !symptoms.contains(&finding.symptom) && symptoms.len() < MAX_SYMPTOMS {
            symptoms.push(finding.symptom);
        }
    }
    symptoms
}
