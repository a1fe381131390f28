//! Difference between two trees (ICS18, 4.1, Algorithm 2): the least time to add to one tree or
//! remove from it that makes it equal to the other, within the precision of sampling.
//!
//! # Where this differs from ICS18
//! - Algorithm 2 deducts two periods from each difference of gaps. This module deducts the
//!   uncertainty of the gaps' boundaries: equal for regular samples, and nothing where a wrapped
//!   call's entry and return are known to the stamp.
//! - The deduction from a child without a partner applies to the whole child, not gap by gap (lines
//!   14 and 18): its length is known, not when its parts began. The partner may have run unseen
//!   between two samples, so that its maximum unseen time is deducted as well.
//! - The errors of summed instances (profile nodes) are independent and grow with the root of the
//!   number of instances; a merged tree keeps the mean error of its instances.
//!
//! # The laws
//! The difference is never negative, symmetric (up to rounding), and zero between a tree and
//! itself. Without deductions and between trees with the same children, the difference is the
//! Manhattan distance of the own times, hence a metric; also with missing children, if parents have
//! no own time between children. With deductions the difference is no metric (a may look like b and
//! b like c, but not a like c).
//!
//! # Cost
//! Linear in the sizes of the two trees. For each pair of loops: the number of pairs of clusters
//! with a common member, times their sizes. For each child without a partner: a constant number of
//! look-ups of the control flow.

use std::borrow::Cow;

use super::ControlFlow;
use super::child_alignment::{Step, Walk};
use super::flatten::flattened;
use super::loop_clusters;
use super::tree_node::{Boundary, Content, Node};

/// Returns the mean difference between one instance of each tree, in the trees' unit of time.
pub fn difference(one: &Node, other: &Node, flow: &dyn ControlFlow) -> f64 {
    nodes(Side::of(one), Side::of(other), flow)
}

/// Returns the difference relative to the durations of both (ICS18, 4.1): 0 for equal trees, at
/// most 1.
pub fn ratio(one: &Node, other: &Node, flow: &dyn ControlFlow) -> f64 {
    let whole = one.mean() + other.mean();
    if whole > 0.0 { difference(one, other, flow) / whole } else { 0.0 }
}

/// Node with the weight by which its sums are divided: the count of the root of its tree.
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

/// Stretch of own time per instance, with the uncertainty of its boundaries.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    time: u64,
    shorter: u64,
    longer: u64,
}

impl Gap {
    /// Creates a gap that begins at this boundary.
    fn after(boundary: Boundary) -> Self {
        Self { time: 0, shorter: boundary.later, longer: boundary.earlier }
    }

    /// Extends the gap by `time`, up to this boundary.
    fn until(self, time: u64, boundary: Boundary) -> Self {
        Self {
            time: self.time + time,
            shorter: self.shorter.saturating_add(boundary.earlier),
            longer: self.longer.saturating_add(boundary.later),
        }
    }

    /// Extends the gap over a child without a partner.
    fn over(self, child: &Node) -> Self {
        let before = self.until(child.before, child.begin);
        Self {
            shorter: before.shorter.saturating_add(child.end.later),
            longer: before.longer.saturating_add(child.end.earlier),
            ..before
        }
    }

    /// Returns the bounds of the gap's mean length over `weight`.
    fn per(self, weight: f64) -> (f64, f64) {
        let scale = 1.0 / weight;
        let least = self.time.saturating_sub(self.shorter) as f64;
        (least * scale, self.time.saturating_add(self.longer) as f64 * scale)
    }

    /// Returns the bounds for a sum of `instances` per unit of the weight, with independent errors.
    fn per_many(self, weight: f64, instances: f64) -> (f64, f64) {
        if instances <= 1.0 {
            return self.per(weight);
        }
        let (time, shrink) = (self.time as f64, instances.sqrt());
        let least = (time - self.shorter as f64 / shrink).max(0.0);
        (least / weight, (time + self.longer as f64 / shrink) / weight)
    }
}

/// Returns the distance between two intervals (diffGap in ICS18).
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
        // At least one of the two is not ordered in time: both are compared as profiles.
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
    // Last boundary of each, with the number of instances in its sum.
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

/// Returns the difference to a dummy node (ICS18, Algorithm 2, lines 14 and 18), which may have run
/// for `unseen` without a sample.
pub(super) fn alone(side: Side<'_>, unseen: f64) -> f64 {
    let instances = side.node.count as f64 / side.weight;
    let (least, _) = length(side);
    (least - unseen * instances.min(1.0)).max(0.0)
}

/// Returns the bounds of the node's mean duration.
fn length(side: Side<'_>) -> (f64, f64) {
    let node = side.node;
    let whole = Gap {
        time: node.duration,
        shorter: node.begin.later.saturating_add(node.end.earlier),
        longer: node.begin.earlier.saturating_add(node.end.later),
    };
    whole.per_many(side.weight, node.count as f64 / side.weight)
}

/// Returns the difference between two sets of profile nodes and the own times of their parents.
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

/// Returns the bounds of a profile node's own time: its boundaries and its children's count once
/// per instance.
fn own(side: Side<'_>, children: &[Node]) -> (f64, f64) {
    let node = side.node;
    let mut gap = Gap::after(node.begin).until(node.own, node.end);
    let mut instances = node.count as f64;
    for child in children {
        // A child's begin ends a gap of its parent, and its end begins one.
        gap = gap.until(0, child.begin);
        gap.shorter = gap.shorter.saturating_add(child.end.later);
        gap.longer = gap.longer.saturating_add(child.end.earlier);
        instances += child.count as f64;
    }
    gap.per_many(side.weight, instances / side.weight)
}
