//! A thread's temporal context tree, built while it runs (ICS18, 3.1; PPoPP20, 3, steps 4 and 5).
//!
//! The replay of a thread's records reports each stack change and its time. Frames that left the
//! stack close, innermost first. The builder splits loops into iterations when children of loops
//! begin, and clusters an iteration when the iteration closes, inner loops first. Memory therefore
//! holds only the open path, the clusters of the running loops, and the closed nodes that lie
//! outside all loops.

use super::ControlFlow;
use super::iteration_capture::{Capture, CapturedIteration, WantedIteration};
use super::open::{Closing, Frame, Moment, Open, OpenLoop, Origin};
use super::open_path::Path;
use super::pruning::{Pruned, prune_to};
use super::tree_node::{Key, Kind, Node};

/// Maximum number of frames of an open path, loops included. Trees are walked by recursion, on
/// threads with stack sizes set by the application's limits: merging takes about a kilobyte per
/// level.
const MAX_DEPTH: usize = 256;

/// Number of clusters to which a running loop is reduced when the tree exceeds its node budget.
const MIN_CLUSTERS: usize = 2;

/// Innermost frame common to two neighbouring stacks (LCA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lca {
    kept: usize,
    certain: bool,
    by_tail_call: bool,
}

impl Lca {
    /// LCA below exactly `kept` outermost frames: all frames inside it have left the stack. Loops
    /// count as frames. If the first differing frames lie in the same loop, [`TreeBuilder::change`]
    /// recognises that the execution stayed in that loop (ICS18, 3.1: the LCA is pushed deeper).
    pub fn exactly(kept: usize) -> Self {
        Self { kept, certain: true, by_tail_call: false }
    }

    /// LCA below at least `kept` outermost frames: frames inside it may have stayed, too (they
    /// could not be marked). Frames that look equal are then taken to be the same call, so that no
    /// instance is invented.
    pub fn at_least(kept: usize) -> Self {
        Self { kept, certain: false, by_tail_call: false }
    }

    /// Sets that the call directly inside the LCA has not returned although its function has
    /// changed: the function before has jumped to the new one (a tail call). No loop iterates in
    /// between.
    #[must_use]
    pub fn by_tail_call(self) -> Self {
        Self { by_tail_call: true, ..self }
    }
}

/// Limits of a growing tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sampling period, in stamps: decides which iterations are accepted.
    pub period: u64,
    /// Maximum number of nodes in memory. A node takes about 110 bytes, a loop up to 5 KiB more
    /// for the durations of its iterations (0.8 KiB for the mean of several instances).
    pub nodes: usize,
    /// Maximum number of nodes of one iteration.
    pub iteration_nodes: usize,
}

/// Counts of what is missing or uncertain in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildCounts {
    /// Detail that was pruned to stay within the limits.
    pub pruned: Pruned,
    /// Number of frames beyond the maximum depth. Their time counts to the innermost frame kept.
    pub cut_frames: u64,
    /// Number of stack changes where unmarked frames were taken to have stayed because they look
    /// equal.
    pub uncertain: u64,
}

/// Builder of one thread's tree. For the tree of a thread that still runs, finish a clone.
///
/// Costs O(depth) for each frame that begins or ends, plus the cost of
/// [`super::StreamingClusterer`] for each iteration.
#[derive(Clone, Debug)]
pub struct TreeBuilder {
    path: Path,
    /// Number of frames on the stack inside `path`, beyond the maximum depth.
    cut: usize,
    /// Stamp of the latest stack change.
    now: u64,
    limits: Limits,
    origin: Origin,
    /// Upper bound of the number of nodes: the last count plus the nodes made since.
    nodes: usize,
    /// Value of `nodes` above which the next pruning counts the nodes again.
    next_count: usize,
    counts: BuildCounts,
    /// Iterations to be captured; `None` without any, as in a running job.
    capture: Option<Box<Capture>>,
}

impl TreeBuilder {
    /// Creates a tree that begins at stamp `begin`, with an empty stack. `root` stands for the
    /// thread.
    pub fn new(root: Key, begin: u64, limits: Limits) -> Self {
        let origin = Origin { begin, excluded: 0 };
        let nothing_known = Closing { tree_nodes: 1, ..closing(&limits, origin, &Unknown, None) };
        let mut counts = BuildCounts::default();
        let when = Moment::exact(begin);
        let mut path = Path::default();
        path.enter(Frame::call(root), when, nothing_known, &mut counts.pruned);
        let next_count = limits.nodes;
        Self {
            path,
            cut: 0,
            now: begin,
            limits,
            origin,
            nodes: 1,
            next_count,
            counts,
            capture: None,
        }
    }

    /// Captures these iterations, in addition to building the tree.
    #[must_use]
    pub fn capturing(self, wanted: Vec<WantedIteration>) -> Self {
        let capture = (!wanted.is_empty()).then(|| Box::new(Capture::new(wanted)));
        Self { capture, ..self }
    }

    /// Notes that `stamps` are missing in all later stamps (a pause), so that begins of iterations
    /// count them.
    pub fn exclude(&mut self, stamps: u64) {
        self.origin.excluded = self.origin.excluded.saturating_add(stamps);
    }

    /// Returns the stamp of the latest stack change.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of frames on the stack, loops included.
    pub fn depth(&self) -> usize {
        self.path.frames().len() - 1 + self.cut
    }

    /// Applies one stack change: the frames inside the LCA have ended, the frames `added` have
    /// begun. The caller knows of no other change between `when.earliest` and `when.latest`; an
    /// unchanged stack need not be passed.
    ///
    /// - Two samples: one change, between their stamps, at the stamp where the replay divides the
    ///   interval.
    /// - A wrapped call: its callers begin between the last stamp and the call's entry, the call
    ///   begins at its entry; at its return the call ends and nothing begins.
    /// - Lost records: nothing is kept and nothing begins, between the stamps around the gap.
    ///
    /// Moments are in ascending order; one before its predecessor is moved to its predecessor. The
    /// caller subtracts time that does not count (a pause) from all later stamps.
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
        let is_tail_call = lca.by_tail_call && kept == lca.kept;
        self.leave(kept, when, flow);
        for (at, frame) in added.iter().enumerate() {
            self.enter(*frame, when, is_tail_call && at == 0, flow);
        }
        if self.nodes > self.next_count {
            self.prune(flow);
            // Nodes that cannot be pruned further would otherwise trigger a prune at every frame.
            self.next_count = self.limits.nodes.max(self.nodes + self.limits.nodes / 16);
        }
    }

    /// Closes all frames at stamp `end`; returns the tree and the counts of what it lacks.
    pub fn finish(self, end: u64, flow: &dyn ControlFlow) -> (Node, BuildCounts) {
        let (root, counts, _) = self.finish_capture(end, flow);
        (root, counts)
    }

    /// Closes all frames at stamp `end`; returns the tree, the counts of what it lacks, and the
    /// captured iterations.
    pub fn finish_capture(
        mut self,
        end: u64,
        flow: &dyn ControlFlow,
    ) -> (Node, BuildCounts, Vec<CapturedIteration>) {
        let when = Moment::exact(end.max(self.now));
        self.leave(0, when, flow);
        let closing = closing(&self.limits, self.origin, flow, None);
        let root = self.path.finish(when, closing, &mut self.counts.pruned);
        let captured = self.capture.map_or_else(Vec::new, |capture| capture.into_captured());
        (root, self.counts, captured)
    }

    /// Returns the counts of what is missing or uncertain so far.
    pub fn counts(&self) -> BuildCounts {
        self.counts
    }

    /// Returns the number of nodes in memory, open ones included. Costs a walk over them.
    pub fn nodes(&self) -> usize {
        let frames = self.path.frames();
        let trees = frames.iter().flat_map(Open::trees).map(Node::nodes).sum::<usize>();
        frames.len() + trees + self.path.closed()
    }

    /// Returns the memory in use, in bytes, roughly. Costs a walk over all trees.
    pub fn bytes(&self) -> usize {
        let trees = self.path.frames().iter().flat_map(Open::trees);
        self.path.bytes() + trees.map(|tree| size_of::<Node>() + tree.bytes()).sum::<usize>()
    }

    fn leave(&mut self, kept: usize, when: Moment, flow: &dyn ControlFlow) {
        let capture = self.capture.as_deref();
        let closing = closing(&self.limits, self.origin, flow, capture);
        let held = self.path.frames().len() - 1;
        self.cut = kept.saturating_sub(held).min(self.cut);
        while self.path.frames().len() > kept + 1 {
            self.path.leave(when, closing, &mut self.counts.pruned);
            if let Some(capture) = capture {
                capture.place(self.path.frames());
            }
        }
    }

    fn enter(&mut self, frame: Frame, when: Moment, is_tail_call: bool, flow: &dyn ControlFlow) {
        if self.path.frames().len() > MAX_DEPTH || self.cut > 0 {
            self.cut += 1;
            self.counts.cut_frames += 1;
            return;
        }
        let capture = self.capture.as_deref();
        let closing = Closing { is_tail_call, ..closing(&self.limits, self.origin, flow, capture) };
        // A child of a loop may have begun an iteration, which is a node, too.
        let parent = self.path.frames().last();
        self.nodes += 1 + usize::from(parent.is_some_and(|it| it.kind == Kind::Loop));
        self.path.enter(frame, when, closing, &mut self.counts.pruned);
        if let Some(capture) = capture {
            // The frame may have begun the next iteration of the loop around it.
            let frames = self.path.frames();
            capture.place(&frames[..frames.len().saturating_sub(2)]);
        }
    }

    /// Prunes until at most three quarters of the node limit are in use: first the largest trees,
    /// evenly; then the order of the closed children on the open path; then clusters of the running
    /// loops.
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
                running.clusterer.reduce_clusters_to(MIN_CLUSTERS, flow);
            }
        }
        self.path.put(taken);
        self.nodes = self.nodes();
    }
}

fn closing<'a>(
    limits: &Limits,
    origin: Origin,
    flow: &'a dyn ControlFlow,
    capture: Option<&'a Capture>,
) -> Closing<'a> {
    let (period, tree_nodes) = (limits.period, limits.iteration_nodes);
    Closing { period, tree_nodes, is_tail_call: false, origin, flow, capture }
}

impl Open {
    /// Returns the trees of this frame, except closed nodes that are not summed up yet.
    fn trees(&self) -> impl Iterator<Item = &Node> {
        let running = self.running.iter();
        let running =
            running.flat_map(|running| running.clusterer.trees().chain(&running.rejected_children));
        self.children.profile().iter().chain(running)
    }

    /// Returns the trees of [`Open::trees`] for change, except those that [`Path::take`] takes.
    fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.running.iter_mut().flat_map(|running| {
            let OpenLoop { clusterer, rejected_children, .. } = &mut **running;
            clusterer.trees_mut().chain(rejected_children)
        })
    }
}

/// Control flow about which nothing is known.
struct Unknown;

impl ControlFlow for Unknown {
    fn precedes(&self, _: Key, _: Key, _: Key) -> Option<bool> {
        None
    }
}
