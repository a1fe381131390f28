//! Memory is bounded by structure, not by run time: the tests count nodes.

use super::machine::{Code, Machine, busy, repeat};
use super::*;
use crate::{Frame, Lca, Limits, Moment, StreamingClusterer, TreeBuilder, most_clusters};

#[test]
fn many_iterations_are_few_trees() {
    let mut clusterer = StreamingClusterer::default();
    let mut most = 0;
    let count = 100_000u64;
    // Five behaviours with noise; the pattern changes halfway.
    let time = |at: u64| {
        let kind = if at < count / 2 { at % 5 } else { at % 3 };
        1000 * (1 + kind * kind) + at % 7
    };
    for at in 0..count {
        let tree = regular(1, Kind::Iteration, vec![Part::Own(time(at))]);
        clusterer.push(at, tree, &Decades);
        if at % 1024 == 1023 {
            most = most.max(clusterer.trees().map(Node::nodes).sum());
        }
    }
    assert!(most <= 8 * most_clusters(count), "{most} nodes");
    assert!(clusterer.bytes() < 100_000, "{} bytes", clusterer.bytes());
    let clusters = clusterer.finish(&Decades);
    assert_eq!(clusters.iter().map(Cluster::weight).sum::<u64>(), count);
    let truth: u64 = (0..count).map(time).sum();
    assert_eq!(clusters.iter().map(|cluster| cluster.tree.duration()).sum::<u64>(), truth);
    assert_eq!(clusters.len(), 5, "{:?}", members(&clusters));
}

/// An endless time-step loop with inner loops: the node bound holds all the time, and no time is
/// lost.
#[test]
fn a_running_loop_stays_within_its_bound() {
    let inner = |_| vec![busy(40, 5_300), busy(50, 1_000)];
    let step = |at: u64| {
        let calls = (0..30).map(|call| busy(100 + 10 * call, 700 + at % 5 * 300));
        vec![busy(10, 6_000), repeat(20, 3 + at % 4, inner), Code::Call(60, calls.collect())]
    };
    for (bound, is_short) in [(100usize, true), (300, true), (2_000, false)] {
        let mut machine = Machine::new(bound);
        let mut most = 0;
        machine.run(&[Code::Call(9, vec![])]);
        for at in 0..400 {
            // The loop is entered anew each time, without evidence that it was left.
            machine.run(&[Code::Loop(1, vec![step(at)])]);
            most = most.max(machine.builder.nodes());
        }
        assert!(most <= bound + bound / 16 + 40, "{most} of {bound}");
        let seen = machine.finish();
        assert!(seen.tree.is_partitioned());
        assert_eq!(seen.tree.duration(), seen.end);
        let pruned = seen.counts.pruned;
        assert_eq!(pruned.collapsed > 0, is_short, "{pruned:?}");
    }
}

/// A procedure with endless calls outside any known loop: its children become a profile.
#[test]
fn endless_calls_outside_of_loops_become_a_profile() {
    let mut machine = Machine::new(100_000);
    machine.run(&[Code::Call(9, (0..3_000).map(|at| busy(10 + at % 20, 2_000)).collect())]);
    let seen = machine.finish();
    assert!(seen.tree.nodes() <= 2 + 20, "{}", seen.tree.nodes());
    assert_eq!(seen.counts.pruned.collapsed, 1);
    assert!(seen.tree.is_partitioned());
    assert_eq!(seen.tree.duration(), 3_000 * 2_000);
}

/// Endless recursion with every other frame a loop: frames beyond the bound count to the innermost
/// frame kept. Trees are walked by recursion, here on the small stack of a test's thread.
#[test]
fn a_stack_without_end_is_cut() {
    let limits = Limits { period: 1000, nodes: 100_000, iteration_nodes: 2_000 };
    let mut builder = TreeBuilder::new(Key(0), 0, limits);
    let frame = |at: u32| match at % 2 {
        0 => Frame::call(Key(20 + at)),
        _ => Frame::within_loop(Key(20 + at)),
    };
    let frames: Vec<Frame> = (0..2_000).map(frame).collect();
    builder.change(Lca::exactly(0), &frames, Moment::exact(0), &Decades);
    for at in 1..5 {
        // All but the outermost four frames return and are called again.
        let when = Moment::exact(at * 10_000);
        builder.change(Lca::exactly(1_990), &frames[1_990..1_992], when, &Decades);
        assert_eq!(builder.depth(), 1_992);
        builder.change(Lca::exactly(4), &frames[4..], when, &Decades);
        assert_eq!(builder.depth(), 2_000);
    }
    let (tree, counts) = builder.finish(50_000, &Decades);
    assert!(counts.cut_frames > 5 * 1_000);
    assert!(tree.is_partitioned() && tree.nodes() > 300, "{}", tree.nodes());
    assert_eq!(tree.duration(), 50_000);
    let twice = crate::merged(tree.clone(), tree.clone(), &Decades);
    assert_eq!(crate::difference(&twice, &tree, &Decades), 0.0);
    let (mut half, rest) = crate::merge::split(twice, 1, 2);
    assert_eq!(half.duration(), rest.duration());
    crate::pruning::prune_to(&mut half, 100, &mut Default::default());
    assert_eq!(crate::flatten::flattened(&rest).duration(), 50_000);
}

/// The parts of a split tree have no room for further children.
#[test]
fn a_split_tree_is_as_small_as_a_copy() {
    let wrap = |inner, key| regular(key, Kind::Call, vec![Part::Own(10), Part::Child(inner)]);
    let chain = (1..30).fold(regular(0, Kind::Call, vec![Part::Own(10)]), wrap);
    let copy = chain.clone();
    let (part, rest) = crate::merge::split(chain, 1, 2);
    assert_eq!([part.bytes(), rest.bytes()], [copy.bytes(); 2]);
}

/// A serialised tree is unchanged and small.
#[test]
fn a_tree_on_its_way_is_small() {
    let mut machine = Machine::new(100_000);
    let inner = |_| vec![busy(40, 5_300), busy(50, 1_000)];
    let step =
        |at: u64| vec![busy(10, 6_000 + at % 2 * 9_000), repeat(20, 4, inner), busy(60, 700)];
    machine.run(&[Code::Call(9, vec![repeat(1, 1_000, step)])]);
    let tree = machine.finish().tree;
    let sent = postcard::to_stdvec(&tree).unwrap();
    assert_eq!(postcard::from_bytes::<Node>(&sent).unwrap(), tree);
    // The durations of the outer loop are the largest part.
    assert!(sent.len() < 200 * 6 + 40 * tree.nodes() + 400, "{} of {}", sent.len(), tree.nodes());
    assert!(tree.bytes() < 16_000, "{}", tree.bytes());
}

/// One iteration with a hundred calls, which make further calls: the iteration is pruned to its
/// bound.
#[test]
fn an_iteration_is_bounded() {
    let limits = Limits { period: 10, nodes: 100_000, iteration_nodes: 50 };
    let mut builder = TreeBuilder::new(Key(0), 0, limits);
    let mut now = 0;
    for at in 0..900u32 {
        now += 100;
        let (calls, call) = (at % 100, 10 * (at % 100) + 100);
        let path = [Frame::within_loop(Key(1)), Frame::call(Key(call)), Frame::call(Key(call + 5))];
        assert!(calls < 100);
        builder.change(Lca::exactly(0), &path, Moment::exact(now), &Decades);
    }
    let (tree, counts) = builder.finish(now + 100, &Decades);
    let (_, node) = tree.children_by_time().next().unwrap();
    let Content::Loop(body) = node.content() else { panic!("not a loop") };
    assert_eq!((body.accepted(), body.clusters().len()), (9, 1));
    assert!(body.clusters()[0].tree.nodes() <= 50);
    assert_eq!(counts.pruned.collapsed, 9);
    assert_eq!(tree.duration(), now + 100);
}

/// At the bound even clusters are pruned, but no time.
#[test]
fn clusters_are_pruned_last() {
    let mut machine = Machine::new(30);
    let mut most = 0;
    for at in 0..120 {
        machine.run(&[Code::Loop(1, vec![vec![busy(10, 6_000 << (at % 10))]])]);
        most = most.max(machine.builder.nodes());
    }
    assert!(most <= 30 + 4, "{most}");
    let seen = machine.finish();
    assert!(seen.tree.is_partitioned());
    assert_eq!(seen.tree.duration(), seen.end);

    let mut clusterer = StreamingClusterer::default();
    let tree = |at: u64| iteration(&[(10, 1 << (at % 23))]);
    for at in 0..203 {
        clusterer.push(at, tree(at), &Decades);
        if at % 50 == 9 {
            clusterer.reduce_clusters_to(2, &Decades);
            assert!(clusterer.trees().count() <= 2);
        }
    }
    let clusters = clusterer.finish(&Decades);
    assert_eq!(clusters.iter().map(Cluster::weight).sum::<u64>(), 203);
    let truth: u64 = (0..203).map(|at| tree(at).duration()).sum();
    assert_eq!(clusters.iter().map(|cluster| cluster.tree.duration()).sum::<u64>(), truth);
}
