//! Difference and merge of loops through their clusters (ICS18, 4.2.1): summed over groups of
//! matching iterations.
//!
//! The i-th iterations of two loops match. The members of the clusters determine the groups of
//! iterations with the same pair of clusters. Iterations without a partner (one of the two was
//! rejected) are compared as profiles, together with the rejected ones, so that an iteration near
//! the limit of acceptance causes no difference by itself.
//!
//! Beyond ICS18: loops with different numbers of iterations have no i-th one in common. Usually
//! samples have missed short iterations of one loop, so that all later ones are numbered
//! differently. Such loops are compared as profiles, and their iterations are merged by similarity.

use super::ControlFlow;
use super::difference::{Side, nodes, profiles};
use super::flatten::{dissolve, empty, insert};
use super::instance_sample::InstanceSample;
use super::k_farthest::{merge_sets, most_clusters, reduced};
use super::members::Members;
use super::merge::{merged, split};
use super::tree_node::{Cluster, Iterations, Kind, Node};

/// Fraction of an iteration below which a remainder without a partner is rounding.
const ROUNDING: f64 = 1e-6;

/// A pair of clusters with common members.
struct Pair {
    left: usize,
    right: usize,
    /// Maximum number of iterations that the two have in common.
    capacity: f64,
    /// Difference between one iteration of each.
    difference: f64,
}

/// Returns the difference between two loops.
pub(super) fn difference(
    (one, left): (Side<'_>, &Iterations),
    (other, right): (Side<'_>, &Iterations),
    flow: &dyn ControlFlow,
) -> f64 {
    if !are_numbered_alike((one.node.count, left), (other.node.count, right)) {
        let whole = |side: Side<'_>, iterations: &Iterations| {
            let weights: Vec<f64> = per_instance(&iterations.clusters, side.weight).collect();
            rest(side, iterations, &weights)
        };
        let (ours, theirs) = (whole(one, left), whole(other, right));
        let one = Side { node: &ours.0, ..one };
        return profiles((one, &ours.1), (Side { node: &theirs.0, ..other }, &theirs.1));
    }
    // Iterations of each cluster per instance of the root that have no partner yet.
    let mut left_over: Vec<f64> = per_instance(&left.clusters, one.weight).collect();
    let mut right_over: Vec<f64> = per_instance(&right.clusters, other.weight).collect();
    let mut pairs = Vec::new();
    for (i, a) in left.clusters.iter().enumerate() {
        for (j, b) in right.clusters.iter().enumerate() {
            let common = shared(&a.members, &b.members);
            if common == 0 {
                continue;
            }
            let share = |members: &Members, weight: f64| {
                weight * (common as f64 / members.len().max(common) as f64)
            };
            let capacity = share(&a.members, left_over[i]).min(share(&b.members, right_over[j]));
            let difference = nodes(Side::of(&a.tree), Side::of(&b.tree), flow);
            pairs.push(Pair { left: i, right: j, capacity, difference });
        }
    }
    // The order matters only where members are approximate and overlap: the most similar pairs come
    // first, which keeps the difference of a loop to itself zero.
    pairs.sort_by(|one, other| one.difference.total_cmp(&other.difference));
    let mut sum = 0.0;
    for pair in pairs {
        let group = pair.capacity.min(left_over[pair.left]).min(right_over[pair.right]);
        left_over[pair.left] -= group;
        right_over[pair.right] -= group;
        sum += group * pair.difference;
    }
    if left.rejected_children.is_empty()
        && right.rejected_children.is_empty()
        && left_over.iter().chain(&right_over).all(|rest| *rest < ROUNDING)
    {
        return sum;
    }
    let (ours, theirs) = (rest(one, left, &left_over), rest(other, right, &right_over));
    let one = Side { node: &ours.0, ..one };
    sum + profiles((one, &ours.1), (Side { node: &theirs.0, ..other }, &theirs.1))
}

fn per_instance(clusters: &[Cluster], weight: f64) -> impl Iterator<Item = f64> {
    clusters.iter().map(move |cluster| cluster.weight() as f64 / weight)
}

/// Returns whether the instances of two loops have equal numbers of iterations, as far as
/// iterations were distinguished.
fn are_numbered_alike((one, left): (u64, &Iterations), (other, right): (u64, &Iterations)) -> bool {
    let total = |iterations: &Iterations| u128::from(iterations.accepted + iterations.rejected);
    total(left) * u128::from(other) == total(right) * u128::from(one)
}

fn shared(one: &Members, other: &Members) -> u64 {
    let pairs = one
        .runs()
        .iter()
        .flat_map(|run| other.runs().iter().filter_map(|theirs| run.intersection(*theirs)));
    pairs.map(|common| common.count()).sum()
}

/// Returns the rejected iterations, and those without a partner, as a profile: own time and
/// children.
fn rest(side: Side<'_>, iterations: &Iterations, over: &[f64]) -> (Node, Vec<Node>) {
    let mut own = empty(Kind::Loop, side.node.key);
    own.own = side.node.own;
    let mut set = iterations.rejected_children.clone();
    for (cluster, over) in iterations.clusters.iter().zip(over) {
        let part = (over * side.weight).round() as u64;
        if part > 0 && *over >= ROUNDING {
            let whole = cluster.weight();
            let (part, _) = split(cluster.tree.clone(), part.min(whole), whole);
            own.begin.add(part.begin);
            own.end.add(part.end);
            own.count += part.count;
            own.own += dissolve(&part, &mut set);
        }
    }
    (own, set)
}

/// Maximum number of durations kept of several instances of a loop: there may be many such loops,
/// and the mean over instances has less detail anyway.
const MAX_MERGED_DURATIONS: usize = 32;

/// Merges all instances of two loops: iterations with the same number match.
///
/// Groups of iterations with the same pair of clusters are merged and become the clusters of the
/// result, reduced by Algorithm 3. A cluster with members in several groups is split in proportion,
/// since single iterations are already averaged; totals stay exact. `one` and `other` come with
/// their numbers of instances.
pub(super) fn merge(
    (ones, one): (u64, Iterations),
    (others, other): (u64, Iterations),
    flow: &dyn ControlFlow,
) -> Iterations {
    let are_alike = are_numbered_alike((ones, &one), (others, &other));
    let mut rejected_children = one.rejected_children;
    other.rejected_children.iter().for_each(|child| insert(&mut rejected_children, child));
    let mut durations = one.durations;
    durations.merge(other.durations);
    durations.thin(MAX_MERGED_DURATIONS);
    let numbers = |clusters: &[Cluster]| -> u64 {
        clusters.iter().map(|cluster| cluster.members.len()).sum()
    };
    let most = most_clusters(numbers(&one.clusters).max(numbers(&other.clusters)));
    Iterations {
        clusters: match are_alike {
            true => reduced(grouped(one.clusters, other.clusters, most, flow), most, flow),
            false => merge_sets(one.clusters, other.clusters, most, flow),
        },
        accepted: one.accepted + other.accepted,
        rejected: one.rejected + other.rejected,
        rejected_children,
        durations,
    }
}

fn grouped(
    left: Vec<Cluster>,
    mut right: Vec<Cluster>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster> {
    if left.iter().chain(&right).any(|cluster| cluster.members.is_approximate()) {
        // The numbers do not match: Algorithm 3 merges by similarity.
        return left.into_iter().chain(right).collect();
    }
    let mut groups: Vec<Cluster> = Vec::new();
    for mut cluster in left {
        for partner in &mut right {
            let common = cluster.members.intersection(&partner.members);
            if common.is_empty() {
                continue;
            }
            let (ours, mut instances) = take(&mut cluster, &common);
            let (theirs, others) = take(partner, &common);
            instances.join(&others);
            let tree = merged(ours, theirs, flow);
            groups.push(Cluster { members: common, tree, instances });
            if groups.len() > 2 * most {
                groups = reduced(groups, most, flow);
            }
        }
        if !cluster.members.is_empty() {
            groups.push(cluster);
        }
        right.retain(|partner| !partner.members.is_empty());
    }
    groups.extend(right);
    groups
}

/// Splits the iterations of some members off a cluster: their tree and their sampled instances.
fn take(cluster: &mut Cluster, members: &Members) -> (Node, InstanceSample) {
    let whole = cluster.members.len();
    let rest = cluster.members.without(members);
    let nothing = empty(Kind::Iteration, cluster.tree.key);
    let tree = std::mem::replace(&mut cluster.tree, nothing);
    let mut instances = cluster.instances.clone();
    instances.keep(members);
    if rest.is_empty() {
        cluster.members = rest;
        return (tree, instances);
    }
    let (part, left) = split(tree, members.len().min(whole), whole);
    cluster.instances.keep(&rest);
    cluster.tree = left;
    cluster.members = rest;
    (part, instances)
}
