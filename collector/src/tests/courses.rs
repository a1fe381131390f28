//! Temporal context trees of threads with incomplete records.

use super::collect;
use super::subject::{BEGIN, STAMP_NS, Subject};
use plimsoll_trees::Node;

/// Time of each of the outermost calls of a temporal context tree, and of each call that these
/// make.
fn outermost(subject: &Subject) -> Vec<(u64, Vec<u64>)> {
    let temporal_tree = collect(subject).temporal_tree.unwrap();
    assert!(temporal_tree.tree.is_partitioned());
    let stamps = |node: &Node| node.duration() / STAMP_NS;
    let inner = |node: &Node| node.children_by_time().map(|(_, child)| stamps(child)).collect();
    temporal_tree.tree.children_by_time().map(|(_, call)| (stamps(call), inner(call))).collect()
}

#[test]
fn a_stack_that_is_cut_off_ends_no_call() {
    let mut subject = Subject::new(1 << 14);
    let [main, step, deep, other] = [0x1000, 0x2000, 0x3000, 0x4000].map(|at| subject.code(at));
    let send = subject.call("MPI_Send");
    let mut w = subject.writer(0);
    w.slot(1, &[main, step, send]);
    w.sample(BEGIN, &[main, step]);
    w.exit(BEGIN + 50, 1, 20, None);
    w.sample(BEGIN + 100, &[main, step]);
    // Twice, and once more what builds upon it.
    w.truncated(BEGIN + 200, &[deep]);
    w.truncated(BEGIN + 300, &[deep, other]);
    w.sample(BEGIN + 400, &[deep, other, deep]);
    w.sample(BEGIN + 500, &[main, step]);
    w.exit(BEGIN + 600, 1, 60, None);
    subject.end_at(BEGIN + 700);
    // One call of main, which lasts, and in it one of what calls MPI_Send.
    assert_eq!(outermost(&subject), [(700, vec![700])]);
}

#[test]
fn lost_records_end_no_call() {
    let mut subject = Subject::new(1 << 14);
    let [main, step, other] = [0x1000, 0x2000, 0x3000].map(|at| subject.code(at));
    let send = subject.call("MPI_Send");
    let mut w = subject.writer(0);
    w.slot(1, &[main, step, send]);
    w.sample(BEGIN, &[main, step]);
    w.exit(BEGIN + 100, 1, 50, None);
    w.mark_gap(7);
    w.sample(BEGIN + 300, &[main, step]);
    w.sample(BEGIN + 400, &[main, step]);
    subject.end_at(BEGIN + 500);
    assert_eq!(outermost(&subject).len(), 1);
    // Another outermost frame is another stack, as of a coroutine.
    let mut w = subject.writer(0);
    w.mark_gap(0);
    w.sample(BEGIN + 450, &[other]);
    assert_eq!(outermost(&subject).iter().map(|(time, _)| time).sum::<u64>(), 500);
}
