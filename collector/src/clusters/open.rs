//! What is still open: a frame on the stack, the children that it has had, the loop that runs.

use super::ControlFlow;
use super::durations::Durations;
use super::flatten::{dissolve, gather, insert};
use super::identify::{Evidence, Identifier};
use super::node::{Boundary, Content, Iterations, Key, Kind, Node};
use super::online::Online;
use super::shed::{Shed, limit};

/// Most children that are kept in order: what calls more, one after another, outside all known
/// loops, becomes a profile node.
pub const MOST_CHILDREN: usize = 256;

/// Most durations that are kept of a loop inside another.
const MOST_INNER_DURATIONS: usize = 32;

/// When something changed: put at one stamp, truly at any in an interval around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub(super) earliest: u64,
    pub(super) at: u64,
    pub(super) latest: u64,
}

impl Moment {
    /// A moment that is known to the stamp.
    pub fn exact(at: u64) -> Self {
        Self { earliest: at, at, latest: at }
    }

    /// Some time between two stamps; time before `at` counts as before it.
    pub fn between(earliest: u64, at: u64, latest: u64) -> Self {
        let latest = latest.max(earliest);
        Self { earliest, at: at.clamp(earliest, latest), latest }
    }

    /// The same, but not before a stamp up to which time is already counted.
    pub(super) fn not_before(self, stamp: u64) -> Self {
        let at = self.at.max(stamp);
        Self { earliest: self.earliest.min(at), at, latest: self.latest.max(at) }
    }

    fn boundary(self) -> Boundary {
        Boundary { earlier: self.at - self.earliest, later: self.latest - self.at }
    }
}

/// Closed children of an open node.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    pub(super) nodes: Vec<Node>,
    /// They were too many: now they are a set of profile nodes, and this is their parent's own time.
    profile: Option<u64>,
    evidence: Evidence,
}

impl Children {
    fn push(&mut self, node: Node, shed: &mut Shed) {
        self.evidence.add(&node);
        if let Some(own) = &mut self.profile {
            *own += node.before;
            insert(&mut self.nodes, &node);
            return;
        }
        self.nodes.push(node);
        if self.nodes.len() > MOST_CHILDREN {
            self.collapse(shed);
        }
    }

    /// Gives up their order.
    pub(super) fn collapse(&mut self, shed: &mut Shed) {
        if self.profile.is_none() && !self.nodes.is_empty() {
            let nodes = std::mem::take(&mut self.nodes);
            self.profile = Some(gather(&nodes, &mut self.nodes));
            shed.collapsed += 1;
        }
    }

    /// Their parent's content, and its own time besides that before children; `rest` is what came
    /// after the last. None are left, but room for those of the parent's next instance.
    fn close(&mut self, rest: u64) -> (u64, Content) {
        self.evidence = Evidence::default();
        let nodes: Vec<Node> = self.nodes.drain(..).collect();
        self.nodes.shrink_to(MOST_CHILDREN);
        match self.profile.take() {
            Some(own) => (own + rest, Content::Profile(nodes)),
            None => (rest, Content::Ordered(nodes)),
        }
    }

    /// Memory in use for them, beside what they hold.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Adds them to a set of profile nodes; returns their parent's own time besides what came after the
    /// last. None are left.
    fn dissolve(&mut self, set: &mut Vec<Node>) -> u64 {
        self.evidence = Evidence::default();
        // Those of a profile have no time before them.
        let before = gather(&self.nodes, set);
        self.nodes.clear();
        self.profile.take().unwrap_or(0) + before
    }
}

/// A frame that is on the stack, or room for one.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) key: Key,
    pub(super) kind: Kind,
    begin: Moment,
    /// Up to where its time belongs to its closed children or lies before one.
    reached: Moment,
    /// The parent's own time before it.
    before: u64,
    pub(super) children: Children,
    /// Of a loop; of another frame where a loop was before, room for the next.
    pub(super) running: Option<Box<OpenLoop>>,
}

/// A loop that runs. The children of its open iteration are those of its frame.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenLoop {
    identifier: Identifier,
    /// Number of the open iteration, and when it began.
    number: u64,
    begin: Moment,
    pub(super) online: Online,
    accepted: u64,
    rejected: u64,
    pub(super) refused: Vec<Node>,
    refused_own: u64,
    refused_time: u64,
    durations: Durations,
}

/// What an open frame must know to close.
#[derive(Clone, Copy)]
pub(super) struct Closing<'a> {
    pub(super) period: u64,
    /// Most nodes of a closed iteration.
    pub(super) tree_nodes: usize,
    pub(super) flow: &'a dyn ControlFlow,
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
    /// A frame begins here, inside `parent` if it is not the root. It must be new, or closed.
    pub(super) fn begin(
        &mut self,
        key: Key,
        kind: Kind,
        when: Moment,
        parent: Option<&mut Self>,
        closing: Closing<'_>,
        shed: &mut Shed,
    ) {
        (self.key, self.kind, self.begin, self.reached) = (key, kind, when, when);
        self.before =
            parent.map_or(0, |parent| parent.child_begins(key, kind, when, closing, shed));
        if kind == Kind::Loop {
            self.running.get_or_insert_default().begin(key, when);
        }
    }

    /// The loop that runs, if it is one.
    fn running(&mut self) -> Option<&mut OpenLoop> {
        self.running.as_deref_mut().filter(|_| self.kind == Kind::Loop)
    }

    /// A child begins: returns the own time before it, in this node or its open iteration.
    fn child_begins(
        &mut self,
        child: Key,
        kind: Kind,
        when: Moment,
        closing: Closing<'_>,
        shed: &mut Shed,
    ) -> u64 {
        let is_next = match self.running() {
            Some(running) => running.identifier.begins(kind, child, closing.flow),
            None => false,
        };
        if is_next {
            // The back edge was taken somewhere since the last child ended. Work between counts to
            // the iteration that ends: so one that repeats is equally long each time.
            let back_edge = Moment { earliest: self.reached.earliest.min(when.at), ..when };
            self.close_iteration(back_edge, closing, shed);
            self.reached = back_edge;
        }
        when.at - self.reached.at
    }

    /// A child has closed.
    pub(super) fn child_ended(&mut self, child: Node, when: Moment, shed: &mut Shed) {
        self.children.push(child, shed);
        self.reached = when;
    }

    fn close_iteration(&mut self, when: Moment, closing: Closing<'_>, shed: &mut Shed) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let children = &mut self.children;
        let (duration, rest) = (when.at - running.begin.at, when.at - self.reached.at);
        let is_recorded =
            |child: &Node| child.any(|node: &Node| closing.flow.is_recorded(node.key));
        let recorded = || children.nodes.iter().any(is_recorded);
        if children.evidence.is_accepted(closing.period, recorded) {
            let (own, content) = children.close(rest);
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
            limit(&mut iteration, closing.tree_nodes, shed);
            running.accepted += 1;
            running.durations.add(running.number, duration);
            running.online.push(running.number, iteration, closing.flow);
            running.online.limit_merged(closing.tree_nodes, shed);
        } else {
            running.rejected += 1;
            running.refused_time += duration;
            running.refused_own += rest + children.dissolve(&mut running.refused);
        }
        running.number += 1;
        running.begin = when;
    }

    /// The frame has left the stack; `is_inner`: a loop is around it. What is left is room for another.
    pub(super) fn close(
        &mut self,
        when: Moment,
        is_inner: impl FnOnce() -> bool,
        closing: Closing<'_>,
        shed: &mut Shed,
    ) -> Node {
        let duration = when.at - self.begin.at;
        if !self.children.nodes.is_empty() && self.kind == Kind::Loop {
            self.close_iteration(when, closing, shed);
            self.reached = when;
        }
        let rest = when.at - self.reached.at;
        let (own, content) = match self.running() {
            Some(running) => running.close(rest, duration, is_inner, closing),
            None => self.children.close(rest),
        };
        Node {
            key: self.key,
            kind: self.kind,
            count: 1,
            before: self.before,
            duration,
            own,
            begin: self.begin.boundary(),
            end: when.boundary(),
            content,
        }
    }
}

impl OpenLoop {
    /// Another loop begins here.
    fn begin(&mut self, key: Key, when: Moment) {
        self.identifier = Identifier::new(key);
        self.begin = when;
        (self.number, self.accepted, self.rejected) = (0, 0, 0);
        (self.refused_own, self.refused_time) = (0, 0);
    }

    /// A loop keeps its iterations if more of its time is in accepted ones (ICS18, 3.2). Unlike
    /// there, what lies between the children counts with them: a loop whose rejected iterations work
    /// mostly outside of any call is a profile node, too.
    fn close(
        &mut self,
        rest: u64,
        duration: u64,
        is_inner: impl FnOnce() -> bool,
        closing: Closing<'_>,
    ) -> (u64, Content) {
        let mut refused: Vec<Node> = self.refused.drain(..).collect();
        let mut own = self.refused_own + rest;
        let clusters = match self.accepted {
            0 => Vec::new(),
            _ => std::mem::take(&mut self.online).finish(closing.flow),
        };
        let mut durations = std::mem::take(&mut self.durations);
        if clusters.is_empty() || self.refused_time > duration / 2 {
            for cluster in clusters {
                own += dissolve(&cluster.tree, &mut refused);
            }
            return (own, Content::Profile(refused));
        }
        if is_inner() {
            durations.thin(MOST_INNER_DURATIONS);
        }
        let iterations = Iterations {
            clusters,
            accepted: self.accepted,
            rejected: self.rejected,
            refused,
            durations,
        };
        (own, Content::Loop(Box::new(iterations)))
    }
}
