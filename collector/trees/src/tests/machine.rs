//! Machine that runs small programs, samples them with true LCAs, and knows the number of
//! iterations of each loop. Its stack changes are those of a replayed record stream.

use std::collections::BTreeMap;

use super::*;
use crate::{BuildCounts, Frame, Lca, Limits, Moment, TreeBuilder};

/// Sampling period of all programs here.
pub(super) const PERIOD: u64 = 1000;

/// A stretch of code.
#[derive(Clone, Debug)]
pub(super) enum Code {
    /// Work in the innermost frame.
    Work(u64),
    /// Call of a procedure.
    Call(u32, Vec<Code>),
    /// Wrapped call: its entry and return are known to the stamp.
    Wrapped(u32, u64),
    /// Loop: the body of each of its iterations.
    Loop(u32, Vec<Vec<Code>>),
}

/// Returns a call that works.
pub(super) fn busy(key: u32, time: u64) -> Code {
    Code::Call(key, vec![Code::Work(time)])
}

/// Returns a loop; `body` receives the number of the iteration.
pub(super) fn repeat(key: u32, times: u64, body: impl Fn(u64) -> Vec<Code>) -> Code {
    Code::Loop(key, (0..times).map(body).collect())
}

/// Result of a run.
pub(super) struct Seen {
    pub(super) tree: Node,
    pub(super) counts: BuildCounts,
    /// True time in each loop and call.
    pub(super) truth: BTreeMap<u32, u64>,
    /// True number of iterations of each loop.
    pub(super) iterations: BTreeMap<u32, u64>,
    pub(super) end: u64,
}

pub(super) struct Machine {
    pub(super) builder: TreeBuilder,
    stack: Vec<(Frame, u32, u64)>,
    /// Stack and stamp of the last sample.
    last: (Vec<(Frame, u32, u64)>, u64),
    now: u64,
    next: u64,
    instances: u64,
    truth: BTreeMap<u32, u64>,
    iterations: BTreeMap<u32, u64>,
    /// Whether LCAs are known.
    pub(super) marks: bool,
}

impl Machine {
    pub(super) fn new(nodes: usize) -> Self {
        let limits = Limits { period: PERIOD, nodes, iteration_nodes: 512 };
        Self {
            builder: TreeBuilder::new(Key(0), 0, limits),
            stack: Vec::new(),
            last: (Vec::new(), 0),
            now: 0,
            // The first sample is at no multiple of the period.
            next: PERIOD / 3,
            instances: 0,
            truth: BTreeMap::new(),
            iterations: BTreeMap::new(),
            marks: true,
        }
    }

    pub(super) fn run(&mut self, code: &[Code]) {
        for code in code {
            match code {
                Code::Work(time) => self.work(*time),
                Code::Call(key, body) => {
                    self.inside(Frame::call(Key(*key)), *key, |machine| machine.run(body));
                }
                Code::Wrapped(key, time) => self.wrapped(*key, *time),
                Code::Loop(key, bodies) => {
                    let frame = Frame::within_loop(Key(*key));
                    *self.iterations.entry(*key).or_default() += bodies.len() as u64;
                    self.inside(frame, *key, |machine| {
                        bodies.iter().for_each(|body| machine.run(body));
                    });
                }
            }
        }
    }

    pub(super) fn finish(self) -> Seen {
        let (tree, counts) = self.builder.finish(self.now, &Decades);
        Seen { tree, counts, truth: self.truth, iterations: self.iterations, end: self.now }
    }

    fn inside(&mut self, frame: Frame, key: u32, body: impl FnOnce(&mut Self)) {
        let begin = self.now;
        self.instances += 1;
        self.stack.push((frame, key, self.instances));
        body(self);
        self.stack.pop();
        *self.truth.entry(key).or_default() += self.now - begin;
    }

    fn work(&mut self, time: u64) {
        let end = self.now + time;
        while self.next <= end {
            self.now = self.next;
            let (earlier, stamp) = (self.last.1, self.now);
            let middle = earlier + (stamp - earlier) / 2;
            self.change_stack(Moment::between(earlier, middle, stamp));
            // Periods vary a little.
            self.next += PERIOD - 20 + (stamp * 7919) % 41;
        }
        self.now = end;
    }

    /// Passes the current stack to the builder.
    fn change_stack(&mut self, when: Moment) {
        // Marks show whether a call was left between two samples, not whether a loop was.
        let both = self.last.0.iter().zip(&self.stack);
        let same = both.take_while(|(one, other)| {
            one.0 == other.0 && (one.2 == other.2 || one.0 == Frame::within_loop(Key(one.1)))
        });
        let shared: Vec<bool> = same.map(|(one, _)| one.0 == Frame::call(Key(one.1))).collect();
        let kept = shared.iter().rposition(|is_call| *is_call).map_or(0, |at| at + 1);
        let added: Vec<Frame> = self.stack[kept..].iter().map(|frame| frame.0).collect();
        let lca = if self.marks { Lca::exactly(kept) } else { Lca::at_least(0) };
        let added = if self.marks { added } else { self.stack.iter().map(|it| it.0).collect() };
        self.builder.change(lca, &added, when, &Decades);
        self.last = (self.stack.clone(), self.now);
    }

    fn wrapped(&mut self, key: u32, time: u64) {
        // Its callers began or ended at any time since the last sample; the call itself begins now.
        let (earlier, now) = (self.last.1, self.now);
        self.change_stack(Moment::between(earlier, earlier + (now - earlier) / 2, now));
        let depth = self.stack.len();
        let call = [Frame::call(Key(key))];
        self.builder.change(Lca::exactly(depth), &call, Moment::exact(now), &Decades);
        self.now += time;
        *self.truth.entry(key).or_default() += time;
        self.builder.change(Lca::exactly(depth), &[], Moment::exact(self.now), &Decades);
        self.last.1 = self.now;
        // The call takes no CPU time, so that the next sample comes that much later.
        self.next += time;
    }
}

/// Runs a program in `main`, samples it, and builds its tree.
pub(super) fn observe(code: Vec<Code>) -> Seen {
    let mut machine = Machine::new(100_000);
    machine.run(&[Code::Call(9, code)]);
    let seen = machine.finish();
    assert!(seen.tree.is_partitioned());
    assert_eq!(seen.tree.duration(), seen.end);
    seen
}

/// Returns accepted and rejected iterations of all instances of a loop, and whether one is a
/// profile node.
pub(super) fn iterations(tree: &Node, key: u32) -> (u64, u64, bool) {
    let mut sum = match tree.content() {
        _ if tree.key() != Key(key) || tree.kind() != Kind::Loop => (0, 0, false),
        Content::Loop(body) => (body.accepted(), body.rejected(), false),
        _ => (0, 0, true),
    };
    for child in below(tree) {
        let child = iterations(child, key);
        sum = (sum.0 + child.0, sum.1 + child.1, sum.2 || child.2);
    }
    sum
}

/// Returns the time in all instances of a loop or call.
pub(super) fn time(tree: &Node, key: u32) -> u64 {
    if tree.key() == Key(key) && tree.kind() != Kind::Iteration {
        return tree.duration();
    }
    below(tree).iter().map(|child| time(child, key)).sum()
}

fn below(tree: &Node) -> Vec<&Node> {
    match tree.content() {
        Content::Ordered(children) | Content::Profile(children) => children.iter().collect(),
        Content::Loop(body) => {
            let trees = body.clusters().iter().map(|cluster| &cluster.tree);
            trees.chain(body.rejected_children()).collect()
        }
    }
}
