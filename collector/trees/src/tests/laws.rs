//! Laws over all trees: of the difference, and that totals do not depend on the order of merging.

use proptest::prelude::*;

use super::*;
use crate::durations::Durations;
use crate::flatten::flattened;
use crate::merge::split;
use crate::{Iterations, Terms, difference, merged, ratio};

/// Features of a generated tree.
#[derive(Clone, Copy)]
struct Shape {
    /// Own time between children, inexact boundaries, loops and profile nodes.
    rich: bool,
}

fn boundary(shape: Shape) -> BoxedStrategy<Boundary> {
    match shape.rich {
        true => {
            (0u64..30, 0u64..30).prop_map(|(earlier, later)| Boundary { earlier, later }).boxed()
        }
        false => Just(Boundary::default()).boxed(),
    }
}

/// A node of this key and kind with a subset of its possible children, in the order of their keys.
fn node(key: u32, kind: Kind, depth: u32, shape: Shape) -> BoxedStrategy<Node> {
    let own = if shape.rich || depth == 0 { 0u64..100 } else { 0u64..1 };
    let child = move |at: u32| {
        let kind = if shape.rich && at == 2 { Kind::Loop } else { Kind::Call };
        let child = match kind {
            Kind::Loop => loop_node(at * 10, depth - 1, shape),
            _ => node(at * 10, Kind::Call, depth - 1, shape),
        };
        (own_time(shape), prop::option::of(child)).prop_map(|(own, child)| {
            let child = child.map(Part::Child);
            std::iter::once(Part::Own(own)).chain(child).collect::<Vec<_>>()
        })
    };
    let parts = match depth {
        0 => Just(vec![]).boxed(),
        _ => (child(1), child(2), child(3))
            .prop_map(|(a, b, c)| a.into_iter().chain(b).chain(c).collect::<Vec<_>>())
            .boxed(),
    };
    (parts, own, boundary(shape), boundary(shape), prop::bool::weighted(0.1))
        .prop_map(move |(mut parts, own, begin, end, profile)| {
            parts.push(Part::Own(own));
            let node = Node { begin, end, ..regular(key, kind, parts) };
            if profile && shape.rich && kind == Kind::Call { flattened(&node) } else { node }
        })
        .boxed()
}

fn own_time(shape: Shape) -> std::ops::Range<u64> {
    if shape.rich { 0..40 } else { 0..1 }
}

fn loop_node(key: u32, depth: u32, shape: Shape) -> BoxedStrategy<Node> {
    let iterations = prop::collection::vec(node(key, Kind::Iteration, depth, shape), 0..7);
    let rejected_children = prop::option::of(node(90, Kind::Call, 0, shape));
    (iterations, rejected_children, 0u64..20, boundary(shape))
        .prop_map(move |(trees, rejected_children, own, begin)| {
            let mut durations = Durations::default();
            let accepted = trees.len() as u64;
            let mut instances = Vec::new();
            for (number, tree) in trees.into_iter().enumerate() {
                durations.add(number as u64, 100 * number as u64, tree.duration);
                instances.push(Cluster::one(number as u64, tree));
            }
            let clusters = clustered(instances);
            let rejected_children: Vec<Node> = rejected_children.iter().map(flattened).collect();
            let duration = own
                + clusters.iter().map(|cluster| cluster.tree.duration).sum::<u64>()
                + rejected_children.iter().map(|node| node.duration).sum::<u64>();
            let rejected = rejected_children.len() as u64;
            let iterations =
                Iterations { clusters, accepted, rejected, rejected_children, durations };
            let content = Content::Loop(Box::new(iterations));
            let shell = regular(key, Kind::Loop, vec![]);
            Node { duration, own, begin, content, ..shell }
        })
        .boxed()
}

fn rich() -> BoxedStrategy<Node> {
    node(1, Kind::Call, 3, Shape { rich: true })
}

/// A tree with all time in leaves and all boundaries exact.
fn plain() -> BoxedStrategy<Node> {
    node(1, Kind::Call, 3, Shape { rich: false })
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + one.abs())
}

/// Accepted and rejected iterations, and the durations of all outermost loops.
fn iterations(node: &Node) -> (u64, u64, u64) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => children
            .iter()
            .map(iterations)
            .fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)),
        Content::Loop(body) => {
            let sum = body.durations().stretches().iter().map(|stretch| stretch.sum).sum();
            (body.accepted(), body.rejected(), sum)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_difference_is_symmetric_and_zero_to_itself(
        one in rich(),
        other in rich(),
        third in rich(),
    ) {
        prop_assert!(one.is_partitioned());
        prop_assert_eq!(difference(&one, &one, &Decades), 0.0);
        let there = difference(&one, &other, &Decades);
        let back = difference(&other, &one, &Decades);
        prop_assert!(there >= 0.0 && same(there, back), "{there} {back}");
        let ratio = ratio(&one, &other, &Decades);
        prop_assert!((0.0..=1.0 + 1e-9).contains(&ratio), "{ratio}");
        // The law also holds for trees of many instances.
        let many = merged(one.clone(), third.clone(), &Decades);
        prop_assert!(same(difference(&many, &many, &Decades), 0.0));
        let there = difference(&many, &other, &Decades);
        let back = difference(&other, &many, &Decades);
        prop_assert!(there >= 0.0 && same(there, back), "{there} {back}");
    }

    #[test]
    fn without_deduction_the_difference_is_a_metric(a in plain(), b in plain(), c in plain()) {
        let far = difference(&a, &c, &Decades);
        let over = difference(&a, &b, &Decades) + difference(&b, &c, &Decades);
        prop_assert!(far <= over + 1e-9, "{far} {over}");
        prop_assert!((a.duration() as f64 - c.duration() as f64).abs() <= far);
    }

    #[test]
    fn with_equal_children_the_difference_is_the_manhattan_distance(
        one in prop::collection::vec(0u64..1000, 10),
        other in prop::collection::vec(0u64..1000, 10),
    ) {
        let tree = |own: &[u64]| {
            let inner = |at: usize| {
                let parts = vec![Part::Own(own[at]), call(10, own[at + 1]), Part::Own(own[at + 2])];
                Part::Child(regular(10 * at as u32 + 10, Kind::Call, parts))
            };
            let parts = vec![Part::Own(own[0]), inner(1), Part::Own(own[4]), inner(5), inner(7)];
            regular(1, Kind::Call, parts)
        };
        let apart = |at: &usize| one[*at].abs_diff(other[*at]);
        let distance: u64 = [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9].iter().map(apart).sum();
        prop_assert_eq!(difference(&tree(&one), &tree(&other), &Decades), distance as f64);
    }

    #[test]
    fn the_average_of_equals_is_the_same(tree in plain(), times in 1u64..5) {
        let mut many = tree.clone();
        for _ in 1..times {
            many = merged(many, tree.clone(), &Decades);
        }
        prop_assert_eq!(many.count(), times);
        prop_assert_eq!(many.duration(), tree.duration() * times);
        prop_assert!(same(difference(&many, &tree, &Decades), 0.0));
    }

    #[test]
    fn no_order_of_merging_changes_a_total(a in rich(), b in rich(), c in rich()) {
        let merge = |one: &Node, other: &Node| merged(one.clone(), other.clone(), &Decades);
        let orders = [
            merge(&merge(&a, &b), &c),
            merge(&a, &merge(&b, &c)),
            merge(&merge(&c, &a), &b),
            merge(&b, &merge(&c, &a)),
        ];
        for order in &orders {
            prop_assert!(order.is_partitioned());
            prop_assert_eq!(order.count(), 3);
            prop_assert_eq!(order.duration(), a.duration() + b.duration() + c.duration());
            prop_assert_eq!(iterations(order).0, iterations(&orders[0]).0);
            // Equal for each context, to the stamp.
            prop_assert_eq!(&flattened(order), &flattened(&orders[0]));
        }
    }

    #[test]
    fn a_split_loses_nothing(one in rich(), other in rich(), part in 0u64..=6) {
        let whole = merged(one, other, &Decades);
        let (left, right) = split(whole.clone(), part, 6);
        prop_assert!(left.is_partitioned() && right.is_partitioned());
        prop_assert_eq!(left.count() + right.count(), whole.count());
        let (all, parts) = (iterations(&whole), (iterations(&left), iterations(&right)));
        prop_assert_eq!(parts.0.0 + parts.1.0, all.0);
        prop_assert_eq!(parts.0.2 + parts.1.2, all.2);
        let mut joined = flattened(&left);
        crate::flatten::accumulate(&mut joined, &right);
        prop_assert_eq!(joined, flattened(&whole));
    }

    #[test]
    fn shedding_keeps_the_time(one in rich(), other in rich(), most in 1usize..40) {
        let mut tree = merged(one, other, &Decades);
        let (before, duration) = (tree.nodes(), tree.duration());
        let mut pruned = crate::Pruned::default();
        crate::pruning::prune_to(&mut tree, most, &mut pruned);
        prop_assert!(tree.nodes() <= most);
        prop_assert!(tree.is_partitioned());
        prop_assert_eq!(tree.duration(), duration);
        prop_assert_eq!(pruned == Default::default(), before <= most);
    }

    #[test]
    fn time_of_dropped_nodes_is_their_parents_own(tree in rich(), dropped in 0u32..4) {
        struct Without(u32);
        impl Terms for Without {
            type Place = ();
            fn node(&mut self, (): (), node: &Node) -> Option<((), Key)> {
                (node.key.0 / 10 != self.0).then_some(((), Key(0)))
            }
            fn time(&self, time: u64) -> u64 {
                3 * time
            }
        }
        let translated = tree.translated(((), tree.key), &mut Without(dropped));
        prop_assert!(translated.is_partitioned());
        prop_assert_eq!(translated.duration(), 3 * tree.duration());
        prop_assert!(translated.nodes() <= tree.nodes());
        prop_assert_eq!(translated.kind(), tree.kind());
        // Profile nodes with equal keys are one node.
        let alike = |node: &Node| match &node.content {
            Content::Profile(children) => {
                children.windows(2).any(|pair| pair[0].id() >= pair[1].id())
            }
            _ => false,
        };
        prop_assert!(!translated.any(alike));
    }

    #[test]
    fn other_keys_change_nothing_else(one in rich(), other in rich()) {
        struct Reversed;
        impl Terms for Reversed {
            type Place = ();
            fn node(&mut self, (): (), node: &Node) -> Option<((), Key)> {
                Some(((), Key(10_000 - node.key.0)))
            }
        }
        impl ControlFlow for Reversed {
            fn precedes(&self, _: Key, one: Key, other: Key) -> Option<bool> {
                Decades.precedes(Key(0), Key(10_000 - one.0), Key(10_000 - other.0))
            }
        }
        let before = difference(&one, &other, &Decades);
        let reversed = |tree: &Node| {
            tree.translated(((), Key(10_000 - tree.key().0)), &mut Reversed)
        };
        let (one, other) = (reversed(&one), reversed(&other));
        prop_assert!(one.is_partitioned());
        prop_assert!(same(difference(&one, &other, &Reversed), before));
    }
}
