//! To whom work and waiting are put down: the user's functions with their loops and the functions inlined
//! into them, and the calls that wait.

use std::collections::BTreeSet;

use plimsoll_collector::profile::{ContextTree, Frame, FrameKind, NodeId};

use crate::frames::{is_loop, is_of_language, is_part, is_system};
use crate::label::Label;
use crate::labelling::Meaning;

/// To whom the work of each context is put down.
///
/// A function that works by calling the C library, or by sleeping, is the worker, not the call.
/// Only where the outermost function, or its outermost loop, itself makes the call is the call named. What belongs to MPI's or a
/// language's library never is, unless nothing of the user's is around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// For each context the one that answers for its work; `None` where it does no work.
    pub of: Vec<Option<NodeId>>,
    /// For each context that answers, the next one outwards that does.
    pub outer: Vec<Option<NodeId>>,
    /// For each context outside work, the outermost of those around it that are: the call.
    pub wait: Vec<Option<NodeId>>,
    /// For each context inside a call that is work on files or waits for a lock, that call.
    pub resource: Vec<Option<NodeId>>,
}

impl Owners {
    /// Puts the work in a tree down to its contexts.
    pub fn new(tree: &ContextTree, meanings: &[Meaning]) -> Self {
        let mut owners =
            Self { of: Vec::new(), outer: Vec::new(), wait: Vec::new(), resource: Vec::new() };
        // For each context the innermost at or around it that answers: work may lie within waiting,
        // where the user says so.
        let mut answering: Vec<Option<NodeId>> = Vec::new();
        // Whether a context's function answers, so that its loops and what is inlined into it do, too.
        let mut by_user: Vec<bool> = Vec::new();
        // What the MPI library does for itself, as to tell the time, is its caller's. Not so where it is linked
        // into the program.
        let is_call = |frame: &&Frame| frame.kind == FrameKind::Mpi;
        let mut mpi: BTreeSet<&str> =
            tree.frames.iter().filter(is_call).map(|frame| frame.module.as_str()).collect();
        for (root, id) in tree.nodes.iter().zip(0..) {
            if root.parent.is_none() {
                mpi.remove(frame_of(tree, id).module.as_str());
            }
        }
        let is_inside_mpi =
            |frame: &Frame| frame.call.is_none() && mpi.contains(frame.module.as_str());
        let is_library = |frame: &Frame| is_of_language(frame) || is_inside_mpi(frame);
        for (node, id) in tree.nodes.iter().zip(0..) {
            let outer = node.parent.and_then(|parent| answering[parent as usize]);
            let frame = &tree.frames[node.frame as usize];
            let serves =
                frame.call.is_some() || meanings[id as usize].in_runtime || is_system(frame);
            // The outermost function, or the outermost loop of it: they hold everything.
            let outermost = |outer: NodeId| match tree.nodes[outer as usize].parent {
                None => true,
                Some(around) => {
                    is_loop(frame_of(tree, outer)) && tree.nodes[around as usize].parent.is_none()
                }
            };
            let is_user = match is_part(frame) {
                true => {
                    let around = node.parent.is_some_and(|parent| by_user[parent as usize]);
                    around && !is_library(frame)
                }
                false if is_library(frame) => outer.is_none(),
                false => !serves || outer.is_none_or(outermost),
            };
            by_user.push(is_user);
            let own = is_user && frame.kind != FrameKind::Line;
            let of = match (meanings[id as usize].is_work(), own) {
                (false, _) => None,
                (true, true) => Some(id),
                (true, false) => outer,
            };
            answering.push(of.or(outer));
            owners.of.push(of);
            owners.outer.push(outer);
            let around = node.parent.filter(|parent| !meanings[*parent as usize].between);
            let around = around.and_then(|parent| owners.wait[parent as usize]);
            let waits = !meanings[id as usize].is_work();
            owners.wait.push(waits.then_some(around.unwrap_or(id)));
            let around = node.parent.and_then(|parent| owners.resource[parent as usize]);
            let label = meanings[id as usize].label;
            let takes = !waits && (label.is_a(Label::Io) || label.is_a(Label::WaitLock));
            owners.resource.push(takes.then_some(around.unwrap_or(id)));
        }
        owners
    }

    /// For a context that answers, the next one outwards that is a whole function.
    pub fn function_outside(&self, tree: &ContextTree, node: NodeId) -> Option<NodeId> {
        self.outside(node, |outer| !is_part(frame_of(tree, outer)))
    }

    /// The same, or an inlined function.
    pub fn caller(&self, tree: &ContextTree, node: NodeId) -> Option<NodeId> {
        self.outside(node, |outer| !is_loop(frame_of(tree, outer)))
    }

    fn outside(&self, node: NodeId, is_wanted: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let outer = |node: &NodeId| self.outer[*node as usize];
        std::iter::successors(outer(&node), outer).find(|outer| is_wanted(*outer))
    }

    /// The context that answers for `node`'s work, and those that answer for it in turn.
    pub fn chain(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let first = self.of[node as usize];
        std::iter::successors(first, |owner| self.outer[*owner as usize])
    }
}

fn frame_of(tree: &ContextTree, node: NodeId) -> &Frame {
    &tree.frames[tree.nodes[node as usize].frame as usize]
}

/// The function that makes a call: what is around it, loops and inlined calls left out.
pub fn function_around(tree: &ContextTree, node: NodeId) -> Option<NodeId> {
    let outer = |node: &NodeId| tree.nodes[*node as usize].parent;
    let is_whole = |node: &NodeId| !is_part(frame_of(tree, *node));
    std::iter::successors(outer(&node), outer).find(is_whole)
}
