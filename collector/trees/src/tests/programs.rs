//! Iterations of sampled programs, compared with their true number.

use super::machine::{Code, Machine, PERIOD, Seen, busy, iterations, observe, repeat, time};
use super::*;
use crate::{Durations, Frame, Lca, Limits, Moment, TreeBuilder};

/// Returns the loop's node, which must be the only one with its key and no profile node.
fn the_loop(tree: &Node, key: u32) -> &Node {
    let mut open = vec![tree];
    while let Some(node) = open.pop() {
        if node.key() == Key(key) && node.kind() == Kind::Loop {
            return node;
        }
        open.extend(node.children_by_time().map(|(_, child)| child));
    }
    panic!("no loop {key} outside of loops")
}

fn clusters(tree: &Node, key: u32) -> Vec<String> {
    match the_loop(tree, key).content() {
        Content::Loop(body) => members(body.clusters()),
        _ => panic!("loop {key} is a profile node"),
    }
}

/// Asserts that sampled times differ from the truth by at most a period per instance of the call.
fn times_are_true(seen: &Seen, instances: u64) {
    for (key, truth) in &seen.truth {
        let off = time(&seen.tree, *key).abs_diff(*truth);
        assert!(off <= PERIOD * instances, "{key}: {truth}, off by {off}");
    }
}

#[test]
fn a_loop_of_alike_iterations() {
    let seen = observe(vec![repeat(1, 30, |_| vec![busy(10, 6_000), busy(20, 3_000)])]);
    assert_eq!(iterations(&seen.tree, 1), (30, 0, false));
    assert_eq!(clusters(&seen.tree, 1), ["0-29"]);
    times_are_true(&seen, 30);
    let Content::Loop(body) = the_loop(&seen.tree, 1).content() else { unreachable!() };
    let durations: &Durations = body.durations();
    assert_eq!(durations.stretches().len(), 30);
    for stretch in &durations.stretches()[1..29] {
        assert!(stretch.sum.abs_diff(9_000) <= PERIOD, "{stretch:?}");
    }
}

/// The durations of a loop, wherever it is in the tree.
fn durations_within(tree: &Node, key: u32) -> Option<Durations> {
    let within = |nodes: &[Node]| nodes.iter().find_map(|it| durations_within(it, key));
    match tree.content() {
        Content::Loop(body) if tree.key() == Key(key) => Some(body.durations().clone()),
        Content::Loop(body) => {
            let trees = body.clusters().iter().map(|cluster| &cluster.tree);
            trees.chain(body.rejected_children()).find_map(|it| durations_within(it, key))
        }
        Content::Ordered(children) | Content::Profile(children) => within(children),
    }
}

/// The loop of time steps in a loop over commands: each step is known, until executions are
/// averaged.
#[test]
fn a_loop_in_a_loop_keeps_its_iterations_while_it_runs_once() {
    let durations = |executions: u64| {
        let step = |_| vec![busy(10, 6_000), busy(20, 3_000)];
        let steps = |_| vec![busy(7, 30_000), repeat(1, 100, step)];
        durations_within(&observe(vec![repeat(9, executions, steps)]).tree, 1).unwrap()
    };
    let (once, thrice) = (durations(1), durations(3));
    assert_eq!((once.stretches().len(), once.stride()), (100, 1));
    assert_eq!((thrice.stretches().len(), thrice.stride()), (25, 4));
    assert_eq!(thrice.stretches().iter().map(|it| it.count).sum::<u64>(), 300);
}

#[test]
fn planted_behaviours_through_samples() {
    let body = |at| match at {
        5 => vec![busy(10, 8_000), busy(20, 60_000)],
        2 | 9 | 11 => vec![busy(10, 30_000), busy(20, 8_000)],
        _ => vec![busy(10, 8_000), busy(20, 8_000)],
    };
    let seen = observe(vec![repeat(1, 16, body)]);
    assert_eq!(clusters(&seen.tree, 1), ["0-1,3-4,6-8,10,12-15", "2,9,11", "5"]);
}

#[test]
fn three_loops_in_each_other() {
    let inner = |_| vec![busy(50, 7_000), busy(60, 2_000)];
    let middle = move |_| vec![busy(30, 6_000), repeat(40, 5, inner)];
    let outer = move |_| vec![busy(10, 6_000), repeat(20, 3, middle), busy(80, 3_000)];
    let seen = observe(vec![busy(7, 4_000), repeat(1, 4, outer)]);
    assert_eq!(iterations(&seen.tree, 1), (4, 0, false));
    assert_eq!(iterations(&seen.tree, 20), (12, 0, false));
    assert_eq!(iterations(&seen.tree, 40), (60, 0, false));
    assert_eq!(clusters(&seen.tree, 1), ["0-3"]);
    times_are_true(&seen, 60);
}

/// Only a wrapped call separates one pass of the inner loop from the next; its boundaries are
/// exact.
#[test]
fn a_wrapped_call_anchors_iterations() {
    let inner = |_| vec![busy(40, 6_500)];
    let outer = move |_| vec![repeat(2, 4, inner), Code::Wrapped(80, 700)];
    let seen = observe(vec![repeat(1, 6, outer)]);
    assert_eq!(iterations(&seen.tree, 1), (6, 0, false));
    assert_eq!(iterations(&seen.tree, 2), (24, 0, false));
    assert_eq!(time(&seen.tree, 80), 6 * 700);
}

/// Known bound: a loop directly in a loop looks like one long inner loop.
#[test]
fn a_perfect_nest_is_a_lower_bound() {
    let seen = observe(vec![repeat(1, 6, |_| vec![repeat(2, 4, |_| vec![busy(40, 6_000)])])]);
    assert_eq!(iterations(&seen.tree, 1), (1, 0, false));
    assert_eq!(iterations(&seen.tree, 2), (24, 0, false));
}

#[test]
fn continue_leaves_out_the_rest_of_the_body() {
    let body = |at: u64| match at % 3 {
        0 => vec![busy(10, 6_000)],
        _ => vec![busy(10, 6_000), busy(20, 9_000)],
    };
    let seen = observe(vec![repeat(1, 12, body)]);
    assert_eq!(iterations(&seen.tree, 1), (12, 0, false));
    assert_eq!(clusters(&seen.tree, 1), ["0-9:3", "1-10:3,2-11:3"]);
}

#[test]
fn the_cases_of_a_switch_are_iterations_of_their_own() {
    let body = |at: u64| match at % 4 {
        0 => vec![busy(21, 6_000), busy(30, 2_000)],
        1 => vec![busy(22, 9_000), busy(30, 2_000)],
        _ => vec![busy(23, 14_000)],
    };
    let seen = observe(vec![repeat(1, 16, body)]);
    assert_eq!(iterations(&seen.tree, 1), (16, 0, false));
    assert_eq!(clusters(&seen.tree, 1), ["0-12:4", "1-13:4", "2-14:4,3-15:4"]);
}

#[test]
fn an_early_exit_ends_the_last_iteration() {
    let body = |at: u64| match at {
        9 => vec![busy(10, 6_000)],
        _ => vec![busy(10, 6_000), busy(20, 20_000)],
    };
    let seen = observe(vec![repeat(1, 10, body), busy(60, 7_000)]);
    assert_eq!(iterations(&seen.tree, 1), (10, 0, false));
    assert_eq!(clusters(&seen.tree, 1), ["0-8", "9"]);
}

/// Iterations far shorter than a period become a profile: samples hit them at random.
#[test]
fn iterations_that_cannot_be_resolved_are_a_profile() {
    let seen = observe(vec![repeat(1, 5_000, |_| vec![busy(10, 30), busy(20, 17), busy(30, 23)])]);
    assert_eq!(iterations(&seen.tree, 1), (0, 0, true));
    let node = the_loop(&seen.tree, 1);
    assert!(node.is_profile() && node.nodes() == 4);
    // The profile is correct within the error of 350 samples.
    for (key, share) in [(10, 30.0 / 70.0), (20, 17.0 / 70.0), (30, 23.0 / 70.0)] {
        let seen_share = time(&seen.tree, key) as f64 / node.duration() as f64;
        assert!((seen_share - share).abs() < 0.1, "{key}: {share} {seen_share}");
    }
}

/// Occasional long iterations in a loop of short ones: most of the time decides.
#[test]
fn the_longer_part_of_a_loop_decides() {
    let mixed = |long: u64| {
        observe(vec![repeat(1, 400, move |at| match at % 100 {
            50 => vec![busy(10, long), busy(20, 30)],
            _ => vec![busy(10, 300), busy(20, 110)],
        })])
    };
    let (accepted, rejected, profile) = iterations(&mixed(60_000).tree, 1);
    assert!(accepted == 4 && rejected > 100 && !profile);
    assert_eq!(iterations(&mixed(9_000).tree, 1), (0, 0, true));
}

/// Without marks, equal frames are not known to be the same call: no instance is invented.
#[test]
fn without_lca_no_instance_is_invented() {
    let mut machine = Machine::new(100_000);
    machine.marks = false;
    machine.run(&[Code::Call(9, vec![repeat(1, 30, |_| vec![busy(10, 6_000)])])]);
    let unmarked = machine.finish();
    assert_eq!(iterations(&unmarked.tree, 1), (1, 0, false));
    assert!(unmarked.counts.uncertain > 100);
    // A step back in the control flow is still another iteration.
    let mut machine = Machine::new(100_000);
    machine.marks = false;
    let body = |_| vec![busy(10, 6_000), busy(20, 6_000)];
    machine.run(&[Code::Call(9, vec![repeat(1, 30, body)])]);
    assert_eq!(iterations(&machine.finish().tree, 1), (30, 0, false));
}

/// The back edge was taken at an unknown time between the last child's end and the next child's
/// begin.
#[test]
fn an_iteration_begins_somewhere_since_the_last_child() {
    let limits = Limits { period: 10, nodes: 1000, iteration_nodes: 100 };
    let mut builder = TreeBuilder::new(Key(0), 0, limits);
    let path = [Frame::within_loop(Key(1)), Frame::call(Key(10))];
    builder.change(Lca::exactly(0), &path, Moment::exact(100), &Decades);
    builder.change(Lca::exactly(1), &[], Moment::between(190, 200, 210), &Decades);
    builder.change(Lca::exactly(1), &path[1..], Moment::between(220, 230, 240), &Decades);
    let (tree, _) = builder.finish(400, &Decades);
    assert_eq!(clusters(&tree, 1), ["0", "1"]);
    let Content::Loop(body) = the_loop(&tree, 1).content() else { unreachable!() };
    let [first, second] = body.clusters() else { unreachable!() };
    // The loop's own work counts to the iteration that ends.
    assert_eq!((first.tree.duration(), second.tree.duration()), (130, 170));
    let boundary = Boundary { earlier: 40, later: 10 };
    assert_eq!((first.tree.end(), second.tree.begin()), (boundary, boundary));
}

/// Stamps leave pauses out; begins of iterations do not.
#[test]
fn iterations_begin_when_they_did_whatever_pauses_there_were() {
    let limits = Limits { period: 10, nodes: 1000, iteration_nodes: 100 };
    let mut builder = TreeBuilder::new(Key(0), 1000, limits);
    let path = [Frame::within_loop(Key(1)), Frame::call(Key(10))];
    builder.change(Lca::exactly(0), &path, Moment::exact(1100), &Decades);
    builder.exclude(50_000);
    for at in [1300, 1600] {
        builder.change(Lca::exactly(1), &path[1..], Moment::exact(at), &Decades);
    }
    let (tree, _) = builder.finish(2000, &Decades);
    let Content::Loop(body) = the_loop(&tree, 1).content() else { unreachable!() };
    let of = |it: &crate::Stretch| (it.begin, it.sum);
    let found: Vec<(u64, u64)> = body.durations().stretches().iter().map(of).collect();
    assert_eq!(found, [(100, 200), (50_300, 300), (50_600, 400)]);
}

/// Ranks of one job, each sampled independently, clustered as trees.
#[test]
fn ranks_cluster_by_what_they_did() {
    let rank = |rank: u64| {
        let slow = if rank % 8 == 3 { 3 } else { 1 };
        let body = move |_| vec![busy(10, 8_000 * slow), Code::Wrapped(80, 24_000 - 8_000 * slow)];
        observe(vec![busy(7, 10_000 + 137 * rank), repeat(1, 20, body)]).tree
    };
    let ranks = (0..32).map(|member| Cluster::one(member, rank(member))).collect();
    let found = clustered(ranks);
    let mut truth: Vec<crate::Members> = vec![
        (0..32).filter(|rank| rank % 8 != 3).collect(),
        (0..32).filter(|rank| rank % 8 == 3).collect(),
    ];
    truth.sort_by_key(crate::Members::first);
    let found: Vec<_> = found.into_iter().map(|cluster| cluster.members).collect();
    assert_eq!(found, truth);
}

/// A sampled function that jumps to another one at its end leaves its caller at the same call.
#[test]
fn a_tail_call_begins_no_iteration() {
    let iterations_of = |after_first: fn(Lca) -> Lca| {
        let limits = Limits { period: 10, nodes: 1000, iteration_nodes: 100 };
        let mut builder = TreeBuilder::new(Key(0), 0, limits);
        let (first, second) = (Frame::call(Key(11)), Frame::call(Key(12)));
        let mut lca = Lca::exactly(0);
        let mut added = vec![Frame::call(Key(9)), Frame::within_loop(Key(1)), first];
        for step in 0..20 {
            builder.change(lca, &added, Moment::exact(200 * step), &Decades);
            let moment = Moment::exact(200 * step + 100);
            builder.change(after_first(Lca::exactly(2)), &[second], moment, &Decades);
            (lca, added) = (Lca::exactly(2), vec![first]);
        }
        iterations(&builder.finish(4000, &Decades).0, 1)
    };
    assert_eq!(iterations_of(Lca::by_tail_call), (20, 0, false));
    assert_eq!(iterations_of(|lca| lca), (40, 0, false));
}
