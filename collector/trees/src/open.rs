//! Open frames: a frame on the stack, its closed children, and the loop that runs in it.

use super::ControlFlow;
use super::children::Children;
use super::closed::{Closed, Entry, Form};
use super::durations::{Durations, MAX_DURATIONS};
use super::flatten::dissolve;
use super::iteration_capture::Capture;
use super::iterations::IterationSplitter;
use super::pruning::{Pruned, prune_to};
use super::streaming::StreamingClusterer;
use super::tree_node::{Boundary, Content, Iterations, Key, Kind, Node};

/// Maximum number of nodes of rejected iterations that are not summed up yet, while a loop runs and
/// when it has ended. Summing up many at a time, or leaving them to an outer frame's summing up,
/// takes less time.
const MAX_UNSUMMED: usize = 64;
const MAX_LEFT_UNSUMMED: usize = 16;

/// Frame of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) key: Key,
    pub(super) kind: Kind,
}

impl Frame {
    /// Creates the frame of a procedure, identified by its call site.
    pub fn call(key: Key) -> Self {
        Self { key, kind: Kind::Call }
    }

    /// Creates the frame of a loop; the frames after it on the path run in the loop.
    pub fn within_loop(key: Key) -> Self {
        Self { key, kind: Kind::Loop }
    }

    /// Returns the frame's key.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Creates the frame of a code location, innermost on its path.
    pub fn leaf(key: Key) -> Self {
        Self { key, kind: Kind::Leaf }
    }
}

/// Time of a stack change: the stamp `at` assigned to it, and the interval, `earliest` to `latest`,
/// in which the change happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub(super) earliest: u64,
    pub(super) at: u64,
    pub(super) latest: u64,
}

impl Moment {
    /// Creates a moment known to the stamp.
    pub fn exact(at: u64) -> Self {
        Self { earliest: at, at, latest: at }
    }

    /// Creates a moment between two stamps; time before `at` counts as before the change.
    pub fn between(earliest: u64, at: u64, latest: u64) -> Self {
        let latest = latest.max(earliest);
        Self { earliest, at: at.clamp(earliest, latest), latest }
    }

    /// Returns the moment, moved to `stamp` if it is before: time up to `stamp` is already counted.
    pub(super) fn not_before(self, stamp: u64) -> Self {
        let at = self.at.max(stamp);
        Self { earliest: self.earliest.min(at), at, latest: self.latest.max(at) }
    }

    fn boundary(self) -> Boundary {
        Boundary { earlier: self.at - self.earliest, later: self.latest - self.at }
    }
}

/// Frame on the stack, or reusable memory for one.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) key: Key,
    pub(super) kind: Kind,
    begin: Moment,
    /// Moment up to which the frame's time belongs to closed children or lies before one.
    reached: Moment,
    /// Parent's own time before this frame, in stamps.
    before: u64,
    pub(super) children: Children,
    /// State of the loop if the frame is one; in another frame, reusable memory for the next loop.
    pub(super) running: Option<Box<OpenLoop>>,
}

/// State of a running loop. The children of its open iteration are those of its frame.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenLoop {
    identifier: IterationSplitter,
    /// Number of the open iteration, from 0; `begin` is the moment when it began, `began` the same
    /// since the tree's begin, pauses included.
    number: u64,
    begin: Moment,
    began: u64,
    pub(super) clusterer: StreamingClusterer,
    accepted: u64,
    rejected: u64,
    /// Index in [`Closed`] of the loop's first entry: first the children of rejected iterations
    /// that are not in `rejected_children` yet, then those of the open iteration.
    first: usize,
    pub(super) rejected_children: Vec<Node>,
    rejected_own: u64,
    refused_time: u64,
    durations: Durations,
}

/// Parameters for closing frames and iterations.
#[derive(Clone, Copy)]
pub(super) struct Closing<'a> {
    pub(super) period: u64,
    /// Maximum number of nodes of a closed iteration.
    pub(super) tree_nodes: usize,
    /// Whether the frame that begins was reached by a tail call from the frame that has just ended:
    /// both belong to one iteration.
    pub(super) is_tail_call: bool,
    /// Begin of the tree, moved by the pauses so far.
    pub(super) origin: Origin,
    pub(super) flow: &'a dyn ControlFlow,
    /// Capture of single iterations; `None` without one.
    pub(super) capture: Option<&'a Capture>,
}

/// From stamps without pauses to the time since the tree's begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// Stamp at which the tree begins.
    pub(super) begin: u64,
    /// Stamps excluded so far.
    pub(super) excluded: u64,
}

impl Origin {
    fn since(self, stamp: u64) -> u64 {
        (stamp + self.excluded).saturating_sub(self.begin)
    }
}

impl Default for Open {
    fn default() -> Self {
        Self {
            key: Key::default(),
            kind: Kind::Call,
            begin: Moment::default(),
            reached: Moment::default(),
            before: 0,
            children: Children::default(),
            running: None,
        }
    }
}

impl Open {
    /// Begins a frame, inside `parent` if it is not the root. `self` must be new or closed.
    pub(super) fn begin(
        &mut self,
        frame: Frame,
        when: Moment,
        parent: Option<&mut Self>,
        closed: &mut Closed,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) {
        let Frame { key, kind } = frame;
        (self.key, self.kind, self.begin, self.reached) = (key, kind, when, when);
        self.before =
            parent.map_or(0, |parent| parent.child_begins(frame, when, closed, closing, pruned));
        self.children.begin(closed);
        if kind == Kind::Loop {
            let began = closing.origin.since(when.at);
            self.running.get_or_insert_default().begin(key, (when, began), closed);
        }
    }

    /// Returns the state of the running loop if the frame is a loop.
    fn running(&mut self) -> Option<&mut OpenLoop> {
        self.running.as_deref_mut().filter(|_| self.kind == Kind::Loop)
    }

    /// Begins a child: closes the iteration before if the child begins the next one. Returns the
    /// own time before the child, in this node or its open iteration.
    fn child_begins(
        &mut self,
        child: Frame,
        when: Moment,
        closed: &mut Closed,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) -> u64 {
        let is_next = match self.running() {
            Some(running) => {
                let begins = running.identifier.begins(child.kind, child.key, closing.flow);
                begins && !closing.is_tail_call
            }
            None => false,
        };
        if is_next {
            // The back edge was taken at an unknown moment since the last child ended. Work in
            // between counts to the iteration that ends, so that repeated iterations have equal
            // durations.
            let back_edge = Moment { earliest: self.reached.earliest.min(when.at), ..when };
            self.close_iteration(back_edge, closed, closing, pruned);
            self.reached = back_edge;
        }
        when.at - self.reached.at
    }

    /// Adds the child that has just closed.
    pub(super) fn child_ended(&mut self, when: Moment, closed: &mut Closed, pruned: &mut Pruned) {
        self.children.add(closed, pruned);
        self.reached = when;
    }

    fn close_iteration(
        &mut self,
        when: Moment,
        closed: &mut Closed,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let children = &mut self.children;
        let (duration, rest) = (when.at - running.begin.at, when.at - self.reached.at);
        let recorded = || children.any(closed, |key| closing.flow.is_recorded(key));
        if children.is_iteration(closing.period, recorded) {
            let (own, content) = children.close_iteration(rest, closed);
            let mut iteration = Node {
                key: self.key,
                kind: Kind::Iteration,
                count: 1,
                before: 0,
                duration,
                own,
                begin: running.begin.boundary(),
                end: when.boundary(),
                content,
            };
            if let Some(capture) = closing.capture {
                capture.iteration_closed(running.number, &iteration);
            }
            prune_to(&mut iteration, closing.tree_nodes, pruned);
            running.accepted += 1;
            running.durations.add(running.number, running.began, duration);
            running.clusterer.push(running.number, iteration, closing.flow);
            running.clusterer.limit_merged(closing.tree_nodes, pruned);
        } else {
            running.rejected += 1;
            running.refused_time += duration;
            running.rejected_own += rest + children.refuse(&mut running.rejected_children);
            if closed.len() - running.first > MAX_UNSUMMED {
                running.sum_up(closed);
            }
        }
        children.begin(closed);
        running.number += 1;
        (running.begin, running.began) = (when, closing.origin.since(when.at));
    }

    /// Closes the frame, which has left the stack.
    /// `self` is then reusable memory for another frame.
    pub(super) fn close(
        &mut self,
        when: Moment,
        closed: &mut Closed,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) {
        let duration = when.at - self.begin.at;
        if !self.children.is_empty() && self.kind == Kind::Loop {
            self.close_iteration(when, closed, closing, pruned);
            self.reached = when;
        }
        let rest = when.at - self.reached.at;
        let (first, (own, form)) = match self.running() {
            Some(running) => (running.first, running.close(rest, duration, closed, closing)),
            None => (self.children.first(), self.children.close(rest)),
        };
        let entry = Entry {
            key: self.key,
            kind: self.kind,
            before: self.before,
            duration,
            own,
            begin: self.begin.boundary(),
            end: when.boundary(),
            form,
        };
        closed.push(first, entry);
    }

    /// Takes the closed children, which must be the last entries of `closed`, as trees; sums up the
    /// children of a loop's rejected iterations.
    pub(super) fn take(&mut self, closed: &mut Closed) -> Vec<Node> {
        let trees = self.children.take(closed);
        if let Some(running) = self.running() {
            running.sum_up(closed);
        }
        trees
    }

    /// Puts the trees back behind the entries of the outer frames.
    pub(super) fn put(&mut self, trees: Vec<Node>, closed: &mut Closed) {
        if let Some(running) = self.running() {
            running.first = closed.len();
        }
        self.children.put(trees, closed);
    }
}

impl OpenLoop {
    /// Begins another loop.
    fn begin(&mut self, key: Key, (when, began): (Moment, u64), closed: &Closed) {
        self.identifier.restart(key);
        (self.begin, self.began) = (when, began);
        self.first = closed.len();
        (self.number, self.accepted, self.rejected) = (0, 0, 0);
        (self.rejected_own, self.refused_time) = (0, 0);
    }

    /// Sums up the children of rejected iterations, which must be the last entries of `closed`.
    fn sum_up(&mut self, closed: &mut Closed) {
        self.rejected_own += closed.sum_up(self.first, &mut self.rejected_children);
    }

    /// Closes the loop. A loop keeps its iterations if more of its time is in accepted ones (ICS18,
    /// 3.2). Unlike in ICS18, time between the children counts, too: a loop also becomes a profile
    /// node if its rejected iterations work mostly outside of any call.
    fn close(
        &mut self,
        rest: u64,
        duration: u64,
        closed: &mut Closed,
        closing: Closing<'_>,
    ) -> (u64, Form) {
        let is_profile = self.accepted == 0 && self.rejected_children.is_empty();
        if is_profile && closed.len() - self.first <= MAX_LEFT_UNSUMMED {
            return (self.rejected_own + rest, Form::Unsummed);
        }
        self.sum_up(closed);
        let mut rejected_children: Vec<Node> = self.rejected_children.drain(..).collect();
        let mut own = self.rejected_own + rest;
        let clusters = match self.accepted {
            0 => Vec::new(),
            _ => std::mem::take(&mut self.clusterer).finish(closing.flow),
        };
        let mut durations = std::mem::take(&mut self.durations);
        if clusters.is_empty() || self.refused_time > duration / 2 {
            for cluster in clusters {
                own += dissolve(&cluster.tree, &mut rejected_children);
            }
            return (own, Form::Apart(Content::Profile(rejected_children)));
        }
        durations.thin(MAX_DURATIONS);
        let iterations = Iterations {
            clusters,
            accepted: self.accepted,
            rejected: self.rejected,
            rejected_children,
            durations,
        };
        (own, Form::Apart(Content::Loop(Box::new(iterations))))
    }
}
