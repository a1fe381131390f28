//! Captured iterations: those that were wanted, as they ran, within the call path of their loop.

use super::machine::{Code, Machine, busy, repeat};
use super::*;
use crate::{CapturedIteration, WantedIteration};

/// Returns a wanted iteration of any duration.
fn wanted(number: u64) -> WantedIteration {
    WantedIteration { number, min_duration: 0, max_duration: u64::MAX }
}

/// Runs a loop (key 1) of eight iterations with an inner loop (key 20) in `main` (9), and returns
/// the tree and the captured iterations.
fn run(wanted: Vec<WantedIteration>) -> (Node, Vec<CapturedIteration>) {
    let body = |at: u64| {
        let inner = repeat(20, 3, |_| vec![busy(30, 7_000), busy(40, 5_000)]);
        vec![busy(10, 8_000 + 1_000 * at), inner, busy(50, 9_000)]
    };
    let mut machine = Machine::new(100_000);
    machine.builder = machine.builder.capturing(wanted);
    machine.run(&[Code::Call(9, vec![repeat(1, 8, body), busy(60, 4_000)])]);
    let end = machine.builder.now() + 10;
    let (tree, _, captured) = machine.builder.finish_capture(end, &Decades);
    (tree, captured)
}

/// Returns the keys of a path from the root to its loop, which has more than one child.
fn path(captured: &CapturedIteration) -> (Vec<u32>, &Node) {
    let (mut keys, mut node) = (Vec::new(), &captured.path);
    loop {
        keys.push(node.key().0);
        match node.content() {
            Content::Ordered(children) if children.len() == 1 => node = &children[0],
            _ => return (keys, node),
        }
    }
}

fn instances(tree: &Node) -> Vec<crate::Instance> {
    let mut open = vec![tree];
    while let Some(node) = open.pop() {
        match node.content() {
            Content::Loop(body) if node.key() == Key(1) => {
                let clusters = body.clusters().iter();
                return clusters.flat_map(|it| it.instances.instances()).copied().collect();
            }
            Content::Ordered(children) => open.extend(children),
            _ => {}
        }
    }
    panic!("no loop");
}

#[test]
fn wanted_iterations_are_kept_as_they_ran() {
    let (tree, captured) = run(vec![wanted(4), wanted(7)]);
    let of_loop: Vec<&CapturedIteration> =
        captured.iter().filter(|it| path(it).0 == [0, 9, 1]).collect();
    // The last iteration ends with the loop.
    assert_eq!(of_loop.iter().map(|it| it.number).collect::<Vec<_>>(), [4, 7]);
    for it in of_loop {
        let node = path(it).1;
        assert_eq!((node.kind(), node.count(), node.duration()), (Kind::Loop, 1, it.duration));
        let instance = instances(&tree).into_iter().find(|known| known.number == it.number);
        assert_eq!(instance.expect("few instances are all kept").duration, it.duration);
        let children: Vec<(u32, u64)> =
            node.children_by_time().map(|(_, child)| (child.key().0, child.duration())).collect();
        let truth = [(10, 8_000 + 1_000 * it.number), (20, 36_000), (50, 9_000)];
        assert_eq!(children.len(), truth.len(), "{children:?}");
        for ((key, time), (true_key, true_time)) in children.into_iter().zip(truth) {
            assert_eq!(key, true_key);
            assert!(time.abs_diff(true_time) <= 2 * super::machine::PERIOD, "{key}: {time}");
        }
        assert!(it.path.is_partitioned());
    }
}

#[test]
fn iterations_of_inner_loops_have_the_outer_loop_on_their_path() {
    let (_, captured) = run(vec![wanted(1)]);
    let inner = captured.iter().filter(|it| path(it).0 == [0, 9, 1, 20]).count();
    let outer = captured.iter().filter(|it| path(it).0 == [0, 9, 1]).count();
    assert!(inner >= 2, "one in each execution, {inner}");
    assert_eq!(outer, 1);
}

#[test]
fn durations_choose_among_executions_and_nothing_else_changes() {
    let (plain, none) = run(Vec::new());
    assert_eq!(none, []);
    let (tree, all) = run(vec![wanted(1)]);
    assert_eq!(tree, plain, "capturing changes no tree");
    let inner: Vec<u64> =
        all.iter().filter(|it| path(it).0.len() == 4).map(|it| it.duration).collect();
    let (min_duration, max_duration) = (inner[0], inner[0] + 1);
    let (_, some) = run(vec![WantedIteration { number: 1, min_duration, max_duration }]);
    assert!(!some.is_empty());
    assert!(some.iter().all(|it| (min_duration..=max_duration).contains(&it.duration)));
}
