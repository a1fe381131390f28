//! Assignment of work and wait time to contexts: to the user's functions with their loops and
//! inlined functions, and to the calls that wait.

use std::collections::BTreeSet;

use plimsoll_collector::profile::{ContextTree, Frame, FrameKind, NodeId};

use crate::frame_classes::{is_loop, is_part, is_system};
use crate::label::Label;
use crate::labelling::ContextClass;

/// Context to which the work of each context is assigned.
///
/// A function that works by calling the C library, or by sleeping, is responsible, not the call.
/// The call itself is responsible only if the outermost function, or its outermost loop, makes it.
/// Functions of the MPI library or of a language's library are never responsible, unless there is
/// no function of the user around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// Responsible context of each context; `None` if the context does no work.
    pub owner_of: Vec<Option<NodeId>>,
    /// Next responsible context outwards, for each responsible context.
    pub next_owner: Vec<Option<NodeId>>,
    /// Outermost surrounding context outside of work (the call), for each context outside of work.
    pub wait: Vec<Option<NodeId>>,
    /// Surrounding call that is work on files or waits for a lock, for each context inside of one.
    pub resource: Vec<Option<NodeId>>,
}

impl Owners {
    /// Assigns the work in a tree to its contexts.
    pub fn new(tree: &ContextTree, context_classes: &[ContextClass]) -> Self {
        let one_each = || Vec::with_capacity(tree.nodes.len());
        let mut owners = Self {
            owner_of: one_each(),
            next_owner: one_each(),
            wait: one_each(),
            resource: one_each(),
        };
        // Innermost responsible context at or around each context: work may lie within waiting if a
        // user's rule says so.
        let mut answering: Vec<Option<NodeId>> = one_each();
        // Whether the context's function is responsible, so that its loops and inlined functions
        // are, too.
        let mut by_user: Vec<bool> = Vec::new();
        // Internal work of the MPI library, such as reading the clock, belongs to its caller; not
        // if the library is linked into the program.
        let is_call = |frame: &&Frame| frame.kind == FrameKind::Mpi;
        let mut mpi: BTreeSet<&str> =
            tree.frames.iter().filter(is_call).map(|frame| frame.module.as_str()).collect();
        for (root, id) in tree.nodes.iter().zip(0..) {
            if root.parent.is_none() {
                mpi.remove(tree.frame_of(id).module.as_str());
            }
        }
        let is_inside_mpi =
            |frame: &Frame| frame.call.is_none() && mpi.contains(frame.module.as_str());
        let is_library = |frame: &Frame| frame.is_of_language() || is_inside_mpi(frame);
        for (node, id) in tree.nodes.iter().zip(0..) {
            let outer = node.parent.and_then(|parent| answering[parent as usize]);
            let frame = &tree.frames[node.frame as usize];
            let serves = frame.call.is_some()
                || context_classes[id as usize].in_thread_runtime
                || is_system(frame);
            // The outermost function and its outermost loop hold all work.
            let outermost = |outer: NodeId| match tree.nodes[outer as usize].parent {
                None => true,
                Some(around) => {
                    is_loop(tree.frame_of(outer)) && tree.nodes[around as usize].parent.is_none()
                }
            };
            let is_user = match is_part(frame) {
                true => {
                    // A lambda may be inlined into a template of the language.
                    let around = node.parent.is_some_and(|parent| {
                        let is_inlined = frame.kind == FrameKind::Inlined;
                        by_user[parent as usize]
                            || is_inlined && tree.frame_of(parent).is_of_language()
                    });
                    around && !is_library(frame)
                }
                false if is_library(frame) => outer.is_none(),
                false => !serves || outer.is_none_or(outermost),
            };
            by_user.push(is_user);
            let own = is_user && frame.kind != FrameKind::Line;
            let of = match (context_classes[id as usize].is_work(), own) {
                (false, _) => None,
                (true, true) => Some(id),
                (true, false) => outer,
            };
            answering.push(of.or(outer));
            owners.owner_of.push(of);
            owners.next_owner.push(outer);
            let around =
                node.parent.filter(|parent| !context_classes[*parent as usize].is_poll_gap);
            let around = around.and_then(|parent| owners.wait[parent as usize]);
            let waits = !context_classes[id as usize].is_work();
            owners.wait.push(waits.then_some(around.unwrap_or(id)));
            let around = node.parent.and_then(|parent| owners.resource[parent as usize]);
            let label = context_classes[id as usize].label;
            let takes = around.is_some() || label.is_a(Label::Io) || label.is_a(Label::WaitLock);
            owners.resource.push((takes && !waits).then_some(around.unwrap_or(id)));
        }
        owners
    }

    /// Returns the next whole function outwards from a responsible context.
    pub fn function_outside(&self, tree: &ContextTree, node: NodeId) -> Option<NodeId> {
        self.outside(node, |outer| !is_part(tree.frame_of(outer)))
    }

    /// Returns the next function outwards, whole or inlined.
    pub fn caller(&self, tree: &ContextTree, node: NodeId) -> Option<NodeId> {
        self.outside(node, |outer| !is_loop(tree.frame_of(outer)))
    }

    fn outside(&self, node: NodeId, is_wanted: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let outer = |node: &NodeId| self.next_owner[*node as usize];
        std::iter::successors(outer(&node), outer).find(|outer| is_wanted(*outer))
    }

    /// Returns the context responsible for `node`'s work, followed by the responsible contexts
    /// around it.
    pub fn owners_outward(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let first = self.owner_of[node as usize];
        std::iter::successors(first, |owner| self.next_owner[*owner as usize])
    }
}

/// Returns the function that makes a call, ignoring loops and inlined calls.
pub fn function_around(tree: &ContextTree, node: NodeId) -> Option<NodeId> {
    tree.outwards(node).skip(1).find(|node| !is_part(tree.frame_of(*node)))
}

/// Returns whether two contexts are one, or a function and a loop in it, or nested loops: most of a
/// function's work may lie in a loop at some times and in the whole function at others.
pub fn are_parts_of_one(tree: &ContextTree, a: NodeId, b: NodeId) -> bool {
    let function = |node: NodeId| match is_loop(tree.frame_of(node)) {
        true => function_around(tree, node),
        false => Some(node),
    };
    let is_around = |outer: NodeId, inner: NodeId| tree.outwards(inner).any(|it| it == outer);
    function(a) == function(b) && (is_around(a, b) || is_around(b, a))
}
