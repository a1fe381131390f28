//! Behaviours planted among iterations and ranks become clusters with exactly these members.

use proptest::prelude::*;

use super::*;
use crate::k_farthest::merge_sets;
use crate::{Members, StreamingClusterer, merged, most_clusters};

/// Three behaviours, with a little noise.
fn behaviour(kind: usize, noise: u64) -> Node {
    match kind {
        0 => iteration(&[(10, 1_000 + noise), (20, 100)]),
        1 => iteration(&[(10, 300), (20, 600 + noise)]),
        _ => iteration(&[(10, 100), (30, 2_000 + noise)]),
    }
}

fn streamed(trees: impl IntoIterator<Item = Node>) -> Vec<Cluster> {
    let mut streamed = StreamingClusterer::default();
    for (member, tree) in trees.into_iter().enumerate() {
        streamed.push(member as u64, tree, &Decades);
    }
    streamed.finish(&Decades)
}

/// 16 iterations of three behaviours (1, 3 and 12 of them), in any order.
fn one_three_twelve() -> impl Strategy<Value = Vec<usize>> {
    let kinds: Vec<usize> =
        (0..16).map(|at| if at == 0 { 0 } else { 1 + usize::from(at > 3) }).collect();
    Just(kinds).prop_shuffle()
}

fn truth(kinds: &[usize]) -> Vec<Members> {
    let of = |kind| -> Members {
        (0..kinds.len() as u64).filter(|at| kinds[*at as usize] == kind).collect()
    };
    let mut sets = vec![of(0), of(1), of(2)];
    sets.sort_by_key(Members::first);
    sets
}

fn sets(clusters: &[Cluster]) -> Vec<Members> {
    clusters.iter().map(|cluster| cluster.members.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn three_behaviours_are_three_clusters(kinds in one_three_twelve(), noise in 0u64..8) {
        let trees = kinds.iter().enumerate();
        let clusters = streamed(trees.map(|(at, kind)| behaviour(*kind, noise * (at as u64 % 3))));
        prop_assert_eq!(sets(&clusters), truth(&kinds));
        for cluster in &clusters {
            prop_assert_eq!(cluster.weight(), cluster.members.len());
        }
    }

    /// As in a reduction over ranks: sets are merged in pairs, in any order.
    #[test]
    fn any_order_of_merging_finds_the_same_where_they_are_far_apart(
        kinds in one_three_twelve(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let tree = |at: usize| behaviour(kinds[at], at as u64 % 4);
        let mut parts: Vec<Vec<Cluster>> =
            (0..kinds.len()).map(|at| vec![Cluster::one(at as u64, tree(at))]).collect();
        for pair in order.chunks(2) {
            if parts.len() > 1 {
                let one = parts.swap_remove(pair[0].index(parts.len()));
                let at = pair[1].index(parts.len());
                let other = parts.swap_remove(at);
                parts.push(merge_sets(one, other, most_clusters(16), &Decades));
            }
        }
        let clusters = parts.pop().unwrap();
        prop_assert_eq!(sets(&clusters), truth(&kinds));
        let total: u64 = clusters.iter().map(|cluster| cluster.tree.duration()).sum();
        prop_assert_eq!(total, (0..kinds.len()).map(|at| tree(at).duration()).sum::<u64>());
        // The representatives are the averages of their members for any order of merging.
        for cluster in &clusters {
            let members = (0..kinds.len()).filter(|at| cluster.members.contains(*at as u64));
            let all = members.map(tree).reduce(|one, other| merged(one, other, &Decades)).unwrap();
            prop_assert_eq!(&cluster.tree, &all);
        }
    }
}

#[test]
fn equal_iterations_are_one_cluster() {
    let clusters = streamed((0..1000).map(|at| behaviour(0, at % 7)));
    assert_eq!(members(&clusters), ["0-999"]);
    assert_eq!(clusters[0].weight(), 1000);
}

#[test]
fn clusters_say_how_far_apart_they_are() {
    let times = [100u64, 300, 900].map(|time| vec![iteration(&[(10, time)])]);
    let clusters: Vec<Cluster> = times
        .into_iter()
        .enumerate()
        .flat_map(|(at, trees)| trees.into_iter().map(move |tree| Cluster::one(at as u64, tree)))
        .collect();
    let separations = crate::separations(&clusters, &Decades);
    assert_eq!(separations, [Some(0.5), Some(0.5), Some(0.5)]);
    assert_eq!(crate::separations(&clusters[..1], &Decades), [None]);
    assert_eq!(crate::separations::<Members>(&[], &Decades), []);
}

/// Ratio_rel: a small difference makes no cluster beside a large one. Ratio_min: by itself it does.
#[test]
fn a_small_difference_counts_only_beside_small_ones() {
    let alternating = |far: Option<u64>| {
        let time = |at: u64| if far == Some(at) { 1_000 } else { 100 + at % 2 * 10 };
        members(&streamed((0..12).map(|at| iteration(&[(10, time(at))]))))
    };
    assert_eq!(alternating(None), ["0-10:2", "1-11:2"]);
    assert_eq!(alternating(Some(7)), ["0-6,8-11", "7"]);
}

#[test]
fn graded_imbalance_does_not_explode() {
    // Ranks with work that grows in steps too small to separate any two neighbours.
    let ranks = 4096u64;
    let clusters = streamed((0..ranks).map(|rank| iteration(&[(10, 100_000 + 100 * rank)])));
    assert!((2..=most_clusters(ranks)).contains(&clusters.len()), "{:?}", members(&clusters));
    assert_eq!(clusters.iter().map(Cluster::weight).sum::<u64>(), ranks);
    // Each cluster consists of neighbours, which are similar.
    let mut next = 0;
    for cluster in &clusters {
        assert_eq!(cluster.members, Members::range(next..next + cluster.weight()));
        next += cluster.weight();
    }
}

#[test]
fn iterations_that_shrink_stay_visible_in_order() {
    // A solver with fewer steps each time.
    let clusters = streamed((0..100).map(|at| iteration(&[(10, 10_000 - 90 * at), (20, 50)])));
    assert!(clusters.len() >= 3, "{:?}", members(&clusters));
    let means: Vec<f64> = clusters
        .iter()
        .map(|cluster| cluster.tree.duration() as f64 / cluster.weight() as f64)
        .collect();
    assert!(means.windows(2).all(|pair| pair[0] > pair[1]), "{means:?}");
    let mut next = 0;
    for cluster in &clusters {
        assert_eq!(cluster.members, Members::range(next..next + cluster.weight()));
        next += cluster.weight();
    }
}

#[test]
fn an_endless_alternation_is_two_short_lists() {
    let clusters = streamed((0..20_000).map(|at| behaviour(usize::from(at % 2 == 1), 0)));
    assert_eq!(members(&clusters), ["0-19998:2", "1-19999:2"]);
    let clusters = streamed((0..9_000).map(|at| behaviour(usize::from(at % 3 != 0), 0)));
    assert_eq!(members(&clusters), ["0-8997:3", "1-8998:3,2-8999:3"]);
}

#[test]
fn without_rhythm_members_are_widened_but_counted_exactly() {
    let kind = |at: u64| usize::from(crate::tests::irregular_level(at) == 0);
    let clusters = streamed((0..5_000).map(|at| behaviour(kind(at), 0)));
    assert_eq!(clusters.len(), 2);
    let ones = (0..5_000).filter(|at| kind(*at) == 1).count() as u64;
    let mut weights: Vec<u64> = clusters.iter().map(Cluster::weight).collect();
    weights.sort_unstable();
    let mut truth = [ones, 5_000 - ones];
    truth.sort_unstable();
    assert_eq!(weights, truth);
    assert!(clusters.iter().all(|cluster| cluster.members.is_approximate()));

    // As an inner loop: iterations no longer match, but their number is known.
    let duration = clusters.iter().map(|cluster| cluster.tree.duration()).sum();
    let body = crate::Iterations { clusters, ..Default::default() };
    let content = Content::Loop(Box::new(body));
    let inner = Node { duration, content, ..regular(20, Kind::Loop, vec![]) };
    assert_eq!(crate::difference(&inner, &inner, &Decades), 0.0);
    let twice = merged(inner.clone(), inner.clone(), &Decades);
    assert!(twice.is_partitioned());
    assert!(crate::difference(&inner, &twice, &Decades) < 1e-6);
    let Content::Loop(body) = twice.content() else { panic!("not a loop") };
    let mut weights: Vec<u64> = body.clusters().iter().map(Cluster::weight).collect();
    weights.sort_unstable();
    assert_eq!(weights, truth.map(|weight| 2 * weight));
}

/// An iteration of an outer loop: an inner loop of ten iterations of this duration; the last takes
/// ten times as long.
fn outer(inner: u64) -> Node {
    let trees = (0..10).map(|at| {
        let factor = if at == 9 { 10 } else { 1 };
        Node { key: Key(20), ..iteration(&[(10, inner * factor)]) }
    });
    let clusters = streamed(trees);
    let duration = clusters.iter().map(|cluster| cluster.tree.duration).sum();
    let body = crate::Iterations { clusters, accepted: 10, ..Default::default() };
    let shell = regular(20, Kind::Loop, vec![]);
    let inner = Node { duration, content: Content::Loop(Box::new(body)), ..shell };
    let shell = regular(1, Kind::Iteration, vec![]);
    Node { duration, content: Content::Ordered(vec![inner]), ..shell }
}

/// ICS18, 4.2.1: iterations of inner loops are compared and merged in groups, by number, through
/// their clusters.
#[test]
fn inner_loops_are_compared_and_merged_through_their_clusters() {
    let difference = |one, other| crate::difference(&one, &other, &Decades);
    assert_eq!(difference(outer(100), outer(100)), 0.0);
    assert_eq!(difference(outer(100), outer(150)), 9.0 * 50.0 + 500.0);
    // Every fifth outer iteration is slow in its inner loop.
    let clusters = streamed((0..100).map(|at| outer(if at % 5 == 0 { 150 } else { 100 })));
    assert_eq!(members(&clusters), ["0-95:5", "1-96:5,2-97:5,3-98:5,4-99:5"]);
    for (cluster, (weight, inner)) in clusters.iter().zip([(20, 150), (80, 100)]) {
        assert_eq!(cluster.weight(), weight);
        let Content::Ordered(children) = cluster.tree.content() else { panic!("not ordered") };
        let Content::Loop(body) = children[0].content() else { panic!("not a loop") };
        assert_eq!(body.accepted(), 10 * weight);
        assert_eq!(members(body.clusters()), ["0-8", "9"]);
        let sums = body.clusters().iter().map(|cluster| cluster.tree.duration());
        assert_eq!(sums.collect::<Vec<_>>(), [9 * inner * weight, 10 * inner * weight]);
    }
}

/// Inner loops of different lengths: the surplus of the longer one is the difference.
#[test]
fn iterations_without_partner_count_in_full() {
    let outer = |iterations: u64| {
        let trees = (0..iterations).map(|_| Node { key: Key(20), ..iteration(&[(10, 100)]) });
        let body = crate::Iterations { clusters: streamed(trees), ..Default::default() };
        let shell = regular(20, Kind::Loop, vec![]);
        let content = Content::Loop(Box::new(body));
        Node { duration: iterations * 100, content, ..shell }
    };
    assert_eq!(crate::difference(&outer(10), &outer(13), &Decades), 300.0);
    let both = merged(outer(10), outer(13), &Decades);
    assert!(both.is_partitioned());
    assert_eq!(both.duration(), 2300);
    assert_eq!(crate::difference(&both, &outer(10), &Decades), 150.0);
}

/// A cluster with members in two clusters of the other loop is divided between them, to the stamp.
#[test]
fn a_cluster_is_divided_where_the_other_loop_tells_its_members_apart() {
    let outer = |time: &dyn Fn(u64) -> u64| {
        let trees = (0..9).map(|at| Node { key: Key(20), ..iteration(&[(10, time(at))]) });
        let clusters = streamed(trees);
        let duration = clusters.iter().map(|cluster| cluster.tree.duration()).sum();
        let body = crate::Iterations { clusters, ..Default::default() };
        let shell = regular(20, Kind::Loop, vec![]);
        Node { duration, content: Content::Loop(Box::new(body)), ..shell }
    };
    let both = merged(outer(&|_| 101), outer(&|at| if at < 5 { 100 } else { 900 }), &Decades);
    assert!(both.is_partitioned());
    let Content::Loop(body) = both.content() else { panic!("not a loop") };
    assert_eq!(members(body.clusters()), ["0-4", "5-8"]);
    let sums = body.clusters().iter().map(|cluster| (cluster.weight(), cluster.tree.duration()));
    assert_eq!(sums.collect::<Vec<_>>(), [(10, 5 * 201), (8, 4 * 1001)]);
}

/// Representatives have numbers of members and durations near the mean; clusters of a periodic
/// pattern have its period.
#[test]
fn representatives_and_periods_of_planted_loops() {
    let time = |at: u64| if at % 10 == 9 { 300 } else { 100 } + at % 3;
    let clusters = streamed((0..200).map(|at| iteration(&[(10, time(at))])));
    let described: Vec<(u64, Option<u64>)> =
        clusters.iter().map(|it| (it.weight(), it.members.period())).collect();
    assert_eq!(described, [(180, None), (20, Some(10))]);
    let turns = streamed((0..300).map(|at| behaviour(at as usize % 3, 0)));
    let described: Vec<(u64, Option<u64>)> =
        turns.iter().map(|it| (it.weight(), it.members.period())).collect();
    assert_eq!(described, [(100, Some(3)); 3]);
    let drift = streamed((0..200).map(|at| iteration(&[(10, 1_000 + 20 * at)])));
    assert!(drift.len() >= 3 && drift.iter().all(|it| it.members.period().is_none()));
    for cluster in clusters.iter().chain(&turns).chain(&drift) {
        let mean = cluster.tree.duration() / cluster.weight();
        let nearest = cluster.instances.nearest(mean).unwrap();
        assert!(cluster.members.contains(nearest.number), "{nearest:?} {}", cluster.members);
        let durations = cluster.instances.instances().iter().map(|it| it.duration);
        let spread = durations.clone().max().unwrap() - durations.min().unwrap();
        assert!(nearest.duration.abs_diff(mean) <= 1 + spread / 8, "{nearest:?} of {mean}");
    }
}
