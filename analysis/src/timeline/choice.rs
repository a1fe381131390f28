//! Which call paths a timeline shows.

use std::collections::BTreeSet;

use plimsoll_collector::profile::NodeId;

use crate::canonical::Threads;
use crate::finding::Finding;
use crate::labelling::Meaning;
use crate::totals::Totals;

/// Time of a call path, without the shown ones below it, from which on it is shown, as a fraction of
/// the time of all ranks.
const MIN_SHOWN_FRACTION: f64 = 0.01;
/// Most symptoms of losses whose time is followed.
const MAX_SYMPTOMS: usize = 32;
/// Most call paths.
const MAX_SHOWN: usize = u16::MAX as usize;

/// The call paths that cells show, ascending: symptoms and causes of losses; where the time went
/// otherwise, as far inward as it takes [`MIN_SHOWN_FRACTION`]; and the outermost.
///
/// Depths differ, so that losses are visible side by side (PPoPP20, Figure 10): below a symptom or a
/// cause nothing is shown but further symptoms and causes, and below a call of MPI nothing.
pub fn chosen(totals: &Totals, meanings: &[Meaning], findings: &[Finding]) -> Vec<NodeId> {
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
        let is_other = totals.tree.threads[id] != Threads::Main;
        is_hidden[id] = match context.parent {
            None => is_other,
            Some(parent) => {
                is_hidden[parent as usize]
                    || meanings[parent as usize].in_mpi
                    || of_losses.contains(&parent)
            }
        };
        if context.parent.is_none() && !is_other {
            shown.insert(id as NodeId);
        }
    }
    let mut left_ns: Vec<u128> = totals.nodes.iter().map(|node| node.exclusive.sum).collect();
    let all_ns: f64 = (0..count)
        .filter(|id| totals.tree.threads[*id] == Threads::Main)
        .map(|id| left_ns[id] as f64)
        .sum();
    for id in (0..count).rev() {
        let node = id as NodeId;
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

/// The symptoms of the largest losses, each once.
pub fn symptoms(findings: &[Finding]) -> Vec<NodeId> {
    let mut symptoms: Vec<NodeId> = Vec::new();
    for finding in findings {
        if !symptoms.contains(&finding.symptom) && symptoms.len() < MAX_SYMPTOMS {
            symptoms.push(finding.symptom);
        }
    }
    symptoms
}
