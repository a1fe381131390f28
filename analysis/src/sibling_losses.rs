//! Losses between sibling threads: one thread of a pool works longer than the others, and the
//! communicating thread waits for it.
//!
//! As with OpenMP's teams, all of this is work of the rank for other ranks: where one rank loses
//! more than others, they wait for it, which is a load imbalance. The loss here is the mean over
//! ranks, so that no second is in two losses.

use std::cmp::Reverse;

use plimsoll_collector::profile::NodeId;

use crate::canonical::{Threads, path};
use crate::finding::{Finding, half_query};
use crate::frame_classes::is_system;
use crate::imbalance::Cause;
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::queries::Quantity;
use crate::siblings::{PlaceTotals, waits_for_threads};
use crate::summary::LossKind;
use crate::team_losses::phase_of;
use crate::team_places::{TeamPlaces, with_callees};
use crate::thresholds::MIN_INNER_FRACTION;
use crate::totals::Totals;

/// Returns the losses between sibling threads of all ranks, over the whole run.
pub fn siblings(totals: &Totals, owners: &Owners) -> Vec<Finding> {
    let Some(symptom) = longest_wait(totals) else { return Vec::new() };
    let Some(phase) = phase_of(totals, owners, symptom) else { return Vec::new() };
    let places = TeamPlaces::new(totals);
    let ranks = totals.job.ranks.len();
    let finding = |(routine, place): (&NodeId, &PlaceTotals)| {
        let gain_ns = place.gain.mean(ranks);
        let cause = innermost(totals, &places, *routine, place);
        let quantity = Quantity::Siblings { path: path(&totals.tree.contexts, *routine) };
        Finding {
            causes: vec![Cause::new(cause, false, gain_ns)],
            waiting: half_query(quantity, place.gain.max),
            ..Finding::new(LossKind::ThreadImbalance, phase, gain_ns / NS_PER_S, symptom)
        }
    };
    totals.siblings.places.iter().map(finding).collect()
}

/// Returns whether a loss is one between sibling threads: uneven threads outside of OpenMP teams.
pub fn is_between_siblings(totals: &Totals, finding: &Finding) -> bool {
    finding.kind == LossKind::ThreadImbalance
        && waits_for_threads(&totals.tree.contexts, finding.symptom)
}

/// Returns the place of the sibling threads that a loss is between, and the context of the
/// outermost function of the program in them.
pub fn place_of<'t>(totals: &'t Totals, finding: &Finding) -> Option<(NodeId, &'t PlaceTotals)> {
    let cause = finding.causes.first().filter(|_| is_between_siblings(totals, finding))?.node;
    // The cause may lie below another of the paths on which the language creates threads.
    let places = totals.siblings.places.iter();
    let places: Vec<_> = places.map(|(node, it)| (*node, everywhere(totals, *node), it)).collect();
    totals.tree.contexts.outwards(cause).find_map(|at| {
        let (routine, _, place) = places.iter().find(|(_, nodes, _)| nodes.contains(&at))?;
        Some((*routine, *place))
    })
}

/// Returns the call in which the communicating threads wait longest for other threads; `None` if
/// they do not.
fn longest_wait(totals: &Totals) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let is_wait = |node: &NodeId| {
        totals.tree.threads[*node as usize] == Threads::Main
            && contexts.frame_of(*node).call.is_some()
            && waits_for_threads(contexts, *node)
    };
    let time = |node: NodeId| totals.nodes[node as usize].inclusive.sum;
    let waits = (0..totals.nodes.len() as NodeId).filter(is_wait);
    waits.max_by_key(|node| (time(*node), Reverse(*node))).filter(|node| time(*node) > 0)
}

/// Returns the contexts of other threads with the same path of functions of the program as
/// `routine`: those in which its siblings begin.
fn everywhere(totals: &Totals, routine: NodeId) -> Vec<NodeId> {
    let contexts = &totals.tree.contexts;
    let frame = |node: NodeId| contexts.nodes[node as usize].frame;
    let wanted = contexts.program_path(routine);
    let is_one = |node: &NodeId| {
        frame(*node) == frame(routine)
            && totals.tree.threads[*node as usize] == Threads::Other
            && contexts.program_path(*node) == wanted
    };
    (0..contexts.nodes.len() as NodeId).filter(is_one).collect()
}

/// Returns the innermost loop or function of the program in sibling threads, up to the first call,
/// with most of the slowest thread's excess: its work beyond the mean of its siblings.
fn innermost(
    totals: &Totals,
    places: &TeamPlaces<'_>,
    routine: NodeId,
    work: &PlaceTotals,
) -> NodeId {
    let contexts = &totals.tree.contexts;
    let mut own_ns = vec![0.0; contexts.nodes.len()];
    for (node, [slowest_ns, mean_ns]) in &work.contexts {
        own_ns[*node as usize] = *slowest_ns as f64 - *mean_ns as f64;
    }
    let excess_ns = with_callees(contexts, own_ns);
    let of_place =
        |place: &[NodeId]| -> f64 { place.iter().map(|node| excess_ns[*node as usize]).sum() };
    // The contexts of one place have the same frame.
    let frame = |place: &[NodeId]| contexts.frame_of(place[0]);
    let mut at = everywhere(totals, routine);
    let mut cause = at.clone();
    loop {
        let inner = places.inside(&at).into_iter();
        let inner = inner.filter(|inner| frame(inner).call.is_none());
        let largest =
            inner.max_by(|a, b| of_place(a).total_cmp(&of_place(b)).then_with(|| b.cmp(a)));
        let holds_most = |inner: &Vec<NodeId>| {
            of_place(inner) > 0.0 && of_place(inner) >= MIN_INNER_FRACTION * of_place(&at)
        };
        let Some(inner) = largest.filter(holds_most) else { break };
        if !frame(&inner).is_of_language() && !is_system(frame(&inner)) {
            cause = inner.clone();
        }
        at = inner;
    }
    let longest = |a: &&NodeId, b: &&NodeId| {
        let [a_ns, b_ns] = [a, b].map(|node| excess_ns[**node as usize]);
        a_ns.total_cmp(&b_ns).then(b.cmp(a))
    };
    cause.iter().max_by(longest).copied().unwrap_or(routine)
}
