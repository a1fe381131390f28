//! The difference between two trees (ICS18, 4.1, Algorithm 2): the least time that must be added
//! to one or cut from it to make it the other, as far as sampling can tell.
//!
//! # Where this differs from ICS18
//! - Algorithm 2 deducts two periods from each difference of gaps. We deduct what the boundaries of
//!   these gaps allow, so regular samples come to the same, and where a wrapped call's entry and
//!   return are known to the stamp, nothing is deducted.
//! - A child without a partner is deducted from as a whole, not gap by gap (lines 14 and 18): what
//!   is known is its length, not when its parts began. Its partner may have run unseen between two
//!   samples; as much is deducted again.
//! - Where instances are summed up (profile nodes), their errors are independent and grow with the
//!   root of the number of instances; a merged tree keeps the mean error of its instances.
//!
//! # The laws
//! Never negative, symmetric (up to rounding), zero between a tree and itself. Where nothing is deducted
//! and trees have the same children, it is the Manhattan distance of their own times, hence a metric;
//! so it is where children are missing as long as parents have no own time between children. What is
//! deducted is no distance (a may look like b and b like c, but not a like c).
//!
//! # Cost
//! The sizes of the two trees. For each pair of loops, the number of pairs of clusters with a
//! common member times the size of these; a constant number of look-ups of the control flow for each
//! child without a partner.

use std::borrow::Cow;

use super::ControlFlow;
use super::child_alignment::{Step, Walk};
use super::flatten::flattened;
use super::loop_clusters;
use super::tree_node::{Boundary, Content, Node};

/// The difference between one instance of each tree on average, in their unit of time.
pub fn difference(one: &Node, other: &Node, flow: &dyn ControlFlow) -> f64 {
    nodes(Side::of(one), Side::of(other), flow)
}

/// The difference relative to the durations of both (ICS18, 4.1): 0 for equal ones, at most 1.
pub fn ratio(one: &Node, other: &Node, flow: &dyn ControlFlow) -> f64 {
    let whole = one.mean() + other.mean();
    if whole > 0.0 { difference(one, other, flow) / whole } else { 0.0 }
}

/// A node, with the weight over which its sums are averaged: that of the root of its tree.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) node: &'a Node,
    pub(super) weight: f64,
}

impl<'a> Side<'a> {
    pub(super) fn of(node: &'a Node) -> Self {
        Self { node, weight: node.count.max(1) as f64 }
    }

    fn child(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }
}

/// A stretch of own time, per instance, with what its boundaries allow.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    time: u64,
    shorter: u64,
    longer: u64,
}

impl Gap {
    /// A gap that begins at this boundary.
    fn after(boundary: Boundary) -> Self {
        Self { time: 0, shorter: boundary.later, longer: boundary.earlier }
    }

    /// It lasts for `time`, up to this boundary.
    fn until(self, time: u64, boundary: Boundary) -> Self {
        Self {
            time: self.time + time,
            shorter: self.shorter.saturating_add(boundary.earlier),
            longer: self.longer.saturating_add(boundary.later),
        }
    }

    /// It goes on behind a child that has no partner.
    fn over(self, child: &Node) -> Self {
        let before = self.until(child.before, child.begin);
        Self {
            shorter: before.shorter.saturating_add(child.end.later),
            longer: before.longer.saturating_add(child.end.earlier),
            ..before
        }
    }

    /// Within which bounds it lies on average over `weight`.
    fn per(self, weight: f64) -> (f64, f64) {
        let scale = 1.0 / weight;
        let least = self.time.saturating_sub(self.shorter) as f64;
        (least * scale, self.time.saturating_add(self.longer) as f64 * scale)
    }

    /// The same of a sum of so many instances in each of the weight, whose errors are independent.
    fn per_many(self, weight: f64, instances: f64) -> (f64, f64) {
        if instances <= 1.0 {
            return self.per(weight);
        }
        let (time, shrink) = (self.time as f64, instances.sqrt());
        let least = (time - self.shorter as f64 / shrink).max(0.0);
        (least / weight, (time + self.longer as f64 / shrink) / weight)
    }
}

/// ICS18's diffGap: the distance between two intervals.
fn apart((least, most): (f64, f64), (other_least, other_most): (f64, f64)) -> f64 {
    (least - other_most).max(other_least - most).max(0.0)
}

pub(super) fn nodes(one: Side<'_>, other: Side<'_>, flow: &dyn ControlFlow) -> f64 {
    match (&one.node.content, &other.node.content) {
        (Content::Ordered(left), Content::Ordered(right)) => {
            ordered((one, left), (other, right), flow)
        }
        (Content::Profile(left), Content::Profile(right)) => profiles((one, left), (other, right)),
        (Content::Loop(left), Content::Loop(right)) => {
            loop_clusters::difference((one, left), (other, right), flow)
        }
        // One of the two could not be told apart in time: then neither is.
        _ => {
            let (left, right) = (as_profile(one.node), as_profile(other.node));
            nodes(one.child(&left), other.child(&right), flow)
        }
    }
}

fn as_profile(node: &Node) -> Cow<'_, Node> {
    match node.is_profile() {
        true => Cow::Borrowed(node),
        false => Cow::Owned(flattened(node)),
    }
}

fn ordered(
    (one, left): (Side<'_>, &[Node]),
    (other, right): (Side<'_>, &[Node]),
    flow: &dyn ControlFlow,
) -> f64 {
    let mut sum = 0.0;
    let mut gaps = (Gap::after(one.node.begin), Gap::after(other.node.begin));
    // The last boundary of each, with the number of instances that it is summed over.
    let mut last = ((one.node.begin, one.node.count), (other.node.begin, other.node.count));
    for step in Walk::new(one.node.key, left, right, flow) {
        match step {
            Step::Both(i, j) => {
                let (a, b) = (&left[i], &right[j]);
                let ours = gaps.0.until(a.before, a.begin).per(one.weight);
                sum += apart(ours, gaps.1.until(b.before, b.begin).per(other.weight));
                sum += nodes(one.child(a), other.child(b), flow);
                gaps = (Gap::after(a.end), Gap::after(b.end));
                last = ((a.end, a.count), (b.end, b.count));
            }
            Step::Left(i, j) => {
                let unseen = mean_width(last.1).max(next_width(right, j, other.node));
                sum += alone(one.child(&left[i]), unseen);
                gaps.0 = gaps.0.over(&left[i]);
            }
            Step::Right(i, j) => {
                let unseen = mean_width(last.0).max(next_width(left, i, one.node));
                sum += alone(other.child(&right[j]), unseen);
                gaps.1 = gaps.1.over(&right[j]);
            }
        }
    }
    let ours = gaps.0.until(one.node.own, one.node.end).per(one.weight);
    sum + apart(ours, gaps.1.until(other.node.own, other.node.end).per(other.weight))
}

fn mean_width((boundary, count): (Boundary, u64)) -> f64 {
    boundary.width() as f64 / count.max(1) as f64
}

fn next_width(children: &[Node], next: usize, parent: &Node) -> f64 {
    match children.get(next) {
        Some(child) => mean_width((child.begin, child.count)),
        None => mean_width((parent.end, parent.count)),
    }
}

/// Difference to a dummy node (ICS18, Algorithm 2, lines 14 and 18), which may have run for
/// `unseen` without a sample.
pub(super) fn alone(side: Side<'_>, unseen: f64) -> f64 {
    let instances = side.node.count as f64 / side.weight;
    let (least, _) = length(side);
    (least - unseen * instances.min(1.0)).max(0.0)
}

/// Within which bounds its mean duration lies.
fn length(side: Side<'_>) -> (f64, f64) {
    let node = side.node;
    let whole = Gap {
        time: node.duration,
        shorter: node.begin.later.saturating_add(node.end.earlier),
        longer: node.begin.earlier.saturating_add(node.end.later),
    };
    whole.per_many(side.weight, node.count as f64 / side.weight)
}

/// The difference between two sets of profile nodes, and the own times of their parents.
pub(super) fn profiles(
    (one, left): (Side<'_>, &[Node]),
    (other, right): (Side<'_>, &[Node]),
) -> f64 {
    let mut sum = apart(own(one, left), own(other, right));
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        let order = match (left.get(i), right.get(j)) {
            (Some(a), Some(b)) => a.id().cmp(&b.id()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        if order.is_eq() {
            sum += match (&left[i].content, &right[j].content) {
                (Content::Profile(a), Content::Profile(b)) => {
                    profiles((one.child(&left[i]), a), (other.child(&right[j]), b))
                }
                // All nodes under a profile node are profile nodes.
                _ => 0.0,
            };
        } else if order.is_lt() {
            sum += alone(one.child(&left[i]), 0.0);
        } else {
            sum += alone(other.child(&right[j]), 0.0);
        }
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    sum
}

/// Own time of a profile node: each of its instances and its children's has its boundaries.
fn own(side: Side<'_>, children: &[Node]) -> (f64, f64) {
    let node = side.node;
    let mut gap = Gap::after(node.begin).until(node.own, node.end);
    let mut instances = node.count as f64;
    for child in children {
        // The child begins where a gap of its parent ends, and the other way round.
        gap = gap.until(0, child.begin);
        gap.shorter = gap.shorter.saturating_add(child.end.later);
        gap.longer = gap.longer.saturating_add(child.end.earlier);
        instances += child.count as f64;
    }
    gap.per_many(side.weight, instances / side.weight)
}
