//! A thread's temporal context tree, built while it runs (ICS18, 3.1; PPoPP20, 3, steps 4 and 5).
//!
//! Whoever replays the records says how the stack changed, and when. What leaves the stack closes
//! from the inside out; iterations are told apart as children of loops begin, and are clustered as they
//! close, inner loops first. So only the open path, the clusters of its loops and what closed on it
//! outside all loops are in memory.

use super::ControlFlow;
use super::open::{Closing, Frame, Moment, Open, OpenLoop};
use super::open_path::Path;
use super::pruning::{Pruned, prune_to};
use super::tree_node::{Key, Kind, Node};

/// Most frames of an open path, loops included. Trees are walked by recursion, on threads whose stacks
/// the application's limits decide: merging takes about a kilobyte for each level.
const MAX_DEPTH: usize = 256;

/// Fewest clusters that a running loop keeps when memory is short.
const MIN_CLUSTERS: usize = 2;

/// The innermost frame that two neighbouring stacks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lca {
    kept: usize,
    certain: bool,
}

impl Lca {
    /// The outermost `kept` frames have stayed, all others have left the stack. Loops count as
    /// frames; that the execution stayed in a loop, where the first frames that differ are both in
    /// it, is found here (ICS18, 3.1: the LCA is pushed deeper).
    pub fn exactly(kept: usize) -> Self {
        Self { kept, certain: true }
    }

    /// The outermost `kept` frames have stayed; whether others have is not known (they could not be
    /// marked). No instance is invented from it: frames that look the same are the same.
    pub fn at_least(kept: usize) -> Self {
        Self { kept, certain: false }
    }
}

/// Bounds of a tree that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The sampling period, in stamps: for what is accepted as an iteration.
    pub period: u64,
    /// Most nodes in memory; one takes about 110 bytes, a loop up to 3.5 KiB more for the durations of its
    /// iterations (0.5 inside another loop).
    pub nodes: usize,
    /// Most nodes of one iteration.
    pub iteration_nodes: usize,
}

/// What a tree could not hold or did not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildCounts {
    /// Detail that was given up to stay within the limits.
    pub pruned: Pruned,
    /// Frames too deep to be kept: their time is that of the innermost that was.
    pub cut_frames: u64,
    /// Stacks whose frames were taken to have stayed because they look the same.
    pub uncertain: u64,
}

/// The tree of one thread, growing. To look at a run that goes on, finish a clone.
///
/// Costs O(depth) for each frame that begins or ends, and what [`super::StreamingClusterer`] costs for
/// each iteration.
#[derive(Clone, Debug)]
pub struct TreeBuilder {
    path: Path,
    /// Frames inside these that are not kept.
    cut: usize,
    /// The latest boundary.
    now: u64,
    limits: Limits,
    /// Nodes when they were last counted, and those that have been made since: no fewer than are.
    nodes: usize,
    /// At how many they are to be counted again.
    next_count: usize,
    counts: BuildCounts,
}

impl TreeBuilder {
    /// A tree that begins at a stamp, with an empty stack. `root` stands for the thread.
    pub fn new(root: Key, begin: u64, limits: Limits) -> Self {
        let nothing_known = Closing { period: limits.period, tree_nodes: 1, flow: &Unknown };
        let mut counts = BuildCounts::default();
        let when = Moment::exact(begin);
        let mut path = Path::default();
        path.enter(Frame::call(root), when, nothing_known, &mut counts.pruned);
        Self { path, cut: 0, now: begin, limits, nodes: 1, next_count: limits.nodes, counts }
    }

    /// The stamp of the latest change.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Number of frames on the stack, loops included.
    pub fn depth(&self) -> usize {
        self.path.frames().len() - 1 + self.cut
    }

    /// The stack has changed: the frames behind the innermost common one have ended, `added` have
    /// begun. Nothing else happened at that moment as far as is known; a stack that has not changed
    /// need not be told.
    ///
    /// - Two samples: one change, between their stamps, put where the replay parts their time.
    /// - A wrapped call: its callers, between the last stamp and its entry; the call, at its entry;
    ///   nothing new behind its callers, at its return.
    /// - Records were lost: nothing is kept and nothing new, between the stamps around the gap.
    ///
    /// Moments come in order; one that does not is put at the one before it. Time that does not
    /// count (a pause) is taken off all later stamps by whoever tells them.
    pub fn change(&mut self, lca: Lca, added: &[Frame], when: Moment, flow: &dyn ControlFlow) {
        let when = when.not_before(self.now);
        self.now = when.at;
        let mut kept = lca.kept.min(self.depth());
        let mut added = added;
        let mut guessed = false;
        while let (Some(open), [first, rest @ ..]) = (self.path.frames().get(kept + 1), added) {
            let same = open.key == first.key && open.kind == first.kind;
            if !same || (first.kind == Kind::Call && lca.certain) {
                break;
            }
            guessed |= first.kind == Kind::Call;
            kept += 1;
            added = rest;
        }
        self.counts.uncertain += u64::from(guessed);
        self.leave(kept, when, flow);
        for frame in added {
            self.enter(*frame, when, flow);
        }
        if self.nodes > self.next_count {
            self.prune(flow);
            // Where nothing more can be given up, it is not tried at each frame.
            self.next_count = self.limits.nodes.max(self.nodes + self.limits.nodes / 16);
        }
    }

    /// The thread has ended: its tree, and what it lacks.
    pub fn finish(mut self, end: u64, flow: &dyn ControlFlow) -> (Node, BuildCounts) {
        let when = Moment::exact(end.max(self.now));
        let closing = closing(&self.limits, flow);
        let root = self.path.finish(when, closing, &mut self.counts.pruned);
        (root, self.counts)
    }

    /// What it could not hold so far.
    pub fn counts(&self) -> BuildCounts {
        self.counts
    }

    /// Nodes in memory, open ones included. Costs a walk over them.
    pub fn nodes(&self) -> usize {
        let frames = self.path.frames();
        let trees = frames.iter().flat_map(Open::trees).map(Node::nodes).sum::<usize>();
        frames.len() + trees + self.path.closed()
    }

    /// Memory in use, roughly. Costs a walk over it.
    pub fn bytes(&self) -> usize {
        let trees = self.path.frames().iter().flat_map(Open::trees);
        self.path.bytes() + trees.map(|tree| size_of::<Node>() + tree.bytes()).sum::<usize>()
    }

    fn leave(&mut self, kept: usize, when: Moment, flow: &dyn ControlFlow) {
        let closing = closing(&self.limits, flow);
        let held = self.path.frames().len() - 1;
        self.cut = kept.saturating_sub(held).min(self.cut);
        while self.path.frames().len() > kept + 1 {
            self.path.leave(when, closing, &mut self.counts.pruned);
        }
    }

    fn enter(&mut self, frame: Frame, when: Moment, flow: &dyn ControlFlow) {
        if self.path.frames().len() > MAX_DEPTH || self.cut > 0 {
            self.cut += 1;
            self.counts.cut_frames += 1;
            return;
        }
        let closing = closing(&self.limits, flow);
        // A child of a loop may have begun an iteration, which is a node, too.
        let parent = self.path.frames().last();
        self.nodes += 1 + usize::from(parent.is_some_and(|it| it.kind == Kind::Loop));
        self.path.enter(frame, when, closing, &mut self.counts.pruned);
    }

    /// Gives up detail until there is room again: first, evenly, that of the largest trees; then the
    /// order of what closed on the open path; then clusters of the loops that run.
    fn prune(&mut self, flow: &dyn ControlFlow) {
        let mut taken = self.path.take();
        let count = |path: &Path, taken: &[Vec<Node>]| {
            let trees = path.frames().iter().flat_map(Open::trees).chain(taken.iter().flatten());
            path.frames().len() + trees.map(Node::nodes).sum::<usize>()
        };
        let counts = &mut self.counts.pruned;
        let target = self.limits.nodes - self.limits.nodes / 4;
        let mut nodes = count(&self.path, &taken);
        let mut largest = self.limits.iteration_nodes.max(1);
        while nodes > target && largest > 1 {
            largest /= 2;
            let frames = self.path.frames_mut().iter_mut();
            let trees = frames.flat_map(Open::trees_mut).chain(taken.iter_mut().flatten());
            trees.for_each(|tree| prune_to(tree, largest, counts));
            nodes = count(&self.path, &taken);
        }
        if nodes > target {
            for (open, trees) in self.path.frames_mut().iter_mut().zip(&mut taken) {
                open.children.collapse_taken(trees, counts);
            }
            nodes = count(&self.path, &taken);
        }
        if nodes > target {
            let frames = self.path.frames_mut().iter_mut();
            for running in frames.filter_map(|open| open.running.as_mut()) {
                running.online.reduce_clusters_to(MIN_CLUSTERS, flow);
            }
        }
        self.path.put(taken);
        self.nodes = self.nodes();
    }
}

fn closing<'a>(limits: &Limits, flow: &'a dyn ControlFlow) -> Closing<'a> {
    Closing { period: limits.period, tree_nodes: limits.iteration_nodes, flow }
}

impl Open {
    /// Trees in it, beside those that have closed and are not summed up yet.
    fn trees(&self) -> impl Iterator<Item = &Node> {
        let running = self.running.iter();
        let running = running.flat_map(|running| running.online.trees().chain(&running.refused));
        self.children.profile().iter().chain(running)
    }

    /// The same, without those that may be taken ([`Path::take`]).
    fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.running.iter_mut().flat_map(|running| {
            let OpenLoop { online, refused, .. } = &mut **running;
            online.trees_mut().chain(refused)
        })
    }
}

/// No control flow is known.
struct Unknown;

impl ControlFlow for Unknown {
    fn precedes(&self, _: Key, _: Key, _: Key) -> bool {
        false
    }
}
