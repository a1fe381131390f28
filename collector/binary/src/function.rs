//! The structure of one function, and the questions that it answers.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::code::Code;
use super::explore::{Failure, explore};
use super::graph::Graph;
use super::loops::Nest;
use super::order::{Node, Reach, node_of};

/// A loop of a function: a number that depends on nothing but the function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopId(pub u32);

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The file, as the debug information names it: its path if that is known.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// A call that the compiler has replaced by the called function's body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inlined {
    /// The function that was called, demangled.
    pub function: Arc<str>,
    /// Where it was called.
    pub call: Option<Location>,
}

/// Where an address stands in the source: the inlined calls around it, outermost first, and its line in
/// the innermost of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lines {
    /// Inlined calls, outermost first.
    pub inlined: Vec<Inlined>,
    /// The line in the innermost function.
    pub location: Option<Location>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Address of its header: what its back edges lead to.
    pub header: u64,
    /// The loop around it.
    pub parent: Option<LoopId>,
    /// How many loops are around it.
    pub depth: u32,
    /// Whether it can also be entered other than at its header.
    pub is_irreducible: bool,
}

/// Where a loop stands in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopSource {
    /// The inlined calls that the loop lies in, and its line in the innermost of them.
    pub lines: Lines,
    /// The first of the loops that this one is a copy of: unrolling, versioning and vectorising make
    /// several loops of one in the source. Loops are copies if they have the same line, the same inlined
    /// calls around them, and loops around them that are copies. A loop without a line has no copies.
    pub original: LoopId,
}

/// Why a function has no structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Absent {
    /// The module's file is gone, is another build than was loaded, or is not for this machine.
    Module,
    /// Neither a symbol nor the unwind table tells which function holds the address.
    Function,
    /// The file does not have the function's bytes.
    Code,
    /// More code than [`super::MAX_CODE_BYTES`] or [`super::MAX_INSTRUCTIONS`].
    TooLarge,
    /// Jumps into the middle of loops, too many to tell them apart.
    TooIntricate,
    /// The deadline of the lookup has passed ([`super::Limit`]).
    Late,
}

/// What stands below a function or a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Child {
    /// Code in no further loop, by its address: a call, or where a sample was taken.
    Code(u64),
    /// A loop.
    Loop(LoopId),
}

/// Blocks and loops of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) graph: Graph,
    pub(super) nest: Nest,
    pub(super) loops: Vec<Loop>,
    pub(super) calls: Vec<u64>,
    pub(super) is_complete: bool,
}

/// A function of a module. All addresses are those in the module's file.
#[derive(Debug)]
pub struct Function {
    /// The function's name as the user knows it; `None` if there is no symbol.
    pub name: Option<Arc<str>>,
    /// Where it begins.
    pub entry: u64,
    /// Its addresses, ascending: the function and parts that were split off.
    pub parts: Vec<Range<u64>>,
    pub(super) body: Result<Body, Absent>,
    /// Of each loop; looked up only when it is asked for, as debug information takes its time.
    sources: OnceLock<Vec<LoopSource>>,
    reach: Mutex<Reach>,
    /// Of each block, once a position is asked for.
    places: OnceLock<Vec<u32>>,
}

impl Function {
    pub(super) fn new(
        name: Option<Arc<str>>,
        entry: u64,
        parts: Vec<Range<u64>>,
        body: Result<Body, Absent>,
    ) -> Self {
        let (sources, reach, places) = Default::default();
        Self { name, entry, parts, body, sources, reach, places }
    }

    /// Where its loops stand in the source, one for each; the first who tells it counts.
    pub(super) fn locate(&self, sources: impl FnOnce() -> Vec<LoopSource>) {
        let found = self.sources.get_or_init(sources);
        debug_assert_eq!(found.len(), self.loops().len());
    }

    /// Where its loops stand in the source, if that was looked up.
    pub(super) fn sources(&self) -> Option<&[LoopSource]> {
        self.sources.get().map(Vec::as_slice)
    }

    /// Recovers a function's structure from its code; `range` is where its symbol or its entry in the
    /// unwind table says that it is. Lines are not looked up.
    pub fn recover(
        code: &dyn Code,
        name: Option<Arc<str>>,
        entry: u64,
        range: &Range<u64>,
    ) -> Self {
        let (parts, body) = match explore(code, entry, range) {
            Ok(explored) => {
                let body = Nest::of(&explored.graph).map(|nest| Body {
                    loops: loops(&explored.graph, &nest),
                    graph: explored.graph,
                    nest,
                    calls: explored.calls,
                    is_complete: explored.is_complete,
                });
                (explored.parts, body.ok_or(Absent::TooIntricate))
            }
            Err(Failure::Code) => (vec![range.clone()], Err(Absent::Code)),
            Err(Failure::Size) => (vec![range.clone()], Err(Absent::TooLarge)),
        };
        Self::new(name, entry, parts, body)
    }

    /// Why there are no blocks and loops, if there are none.
    pub fn absent(&self) -> Option<Absent> {
        self.body.as_ref().err().copied()
    }

    /// Whether an address belongs to the function.
    pub fn contains(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.contains(&address))
    }

    /// Its control-flow graph.
    pub fn graph(&self) -> Option<&Graph> {
        self.body.as_ref().ok().map(|body| &body.graph)
    }

    /// Addresses of its calls, ascending. Tail calls are none: they leave no frame.
    pub fn calls(&self) -> &[u64] {
        self.body.as_ref().map_or(&[], |body| &body.calls)
    }

    /// Whether all its indirect jumps are understood. Otherwise loops may be missing.
    pub fn is_complete(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| body.is_complete)
    }

    /// Its loops, outer ones first, by their numbers.
    pub fn loops(&self) -> &[Loop] {
        self.body.as_ref().map_or(&[], |body| &body.loops)
    }

    /// A loop of this function.
    ///
    /// # Panics
    /// If `id` is of another function that has more loops.
    pub fn loop_at(&self, id: LoopId) -> &Loop {
        &self.loops()[id.0 as usize]
    }

    /// Where a loop of this function stands in the source; `None` before that was asked of its module
    /// ([`super::Structures::place`]).
    pub fn source_of(&self, id: LoopId) -> Option<&LoopSource> {
        self.sources()?.get(id.0 as usize)
    }

    /// The innermost loop that holds an address.
    pub fn innermost_loop(&self, address: u64) -> Option<LoopId> {
        let body = self.body.as_ref().ok()?;
        body.nest.innermost(body.graph.block_at(address)?).map(LoopId)
    }

    /// The loops around an address, from the innermost outwards.
    pub fn loops_around(&self, address: u64) -> impl Iterator<Item = LoopId> + '_ {
        std::iter::successors(self.innermost_loop(address), |id| self.loop_at(*id).parent)
    }

    /// The innermost loop that holds both addresses.
    pub fn common_loop(&self, a: u64, b: u64) -> Option<LoopId> {
        self.loops_around(a).find(|around| self.loops_around(b).any(|other| other == *around))
    }

    /// The child of a loop, or of the function, that holds an address; `None` if none does.
    pub fn child(&self, parent: Option<LoopId>, address: u64) -> Option<Child> {
        match self.node(parent, Child::Code(address))? {
            Node::Block(_) => Some(Child::Code(address)),
            Node::Loop(inner) => Some(Child::Loop(LoopId(inner))),
        }
    }

    fn node(&self, parent: Option<LoopId>, child: Child) -> Option<Node> {
        let body = self.body.as_ref().ok()?;
        let parent = parent.map(|parent| parent.0);
        match child {
            Child::Code(address) => {
                let block = body.graph.block_at(address)?;
                body.graph.is_reached(block).then(|| node_of(&body.nest, parent, block)).flatten()
            }
            Child::Loop(inner) => {
                let cycle = body.nest.cycles.get(inner.0 as usize)?;
                let reached = body.graph.is_reached(cycle.header) && cycle.parent == parent;
                reached.then_some(Node::Loop(inner.0))
            }
        }
    }

    /// Whether `b` can run after `a` without a back edge of the loop `parent`, or of none in the
    /// function itself (`b` is in `successor[a]`: ICS18, Algorithm 1). False for `a` itself: to run
    /// again it takes a back edge. Loops within `parent` count as one place each.
    ///
    /// `None` where that is unknown: one of them does not stand directly below `parent`, or its code is
    /// behind an indirect jump that is not understood. Copies of a loop are told apart here: ask about
    /// the loop that holds the address, not about its [original](LoopSource::original).
    pub fn can_follow(&self, parent: Option<LoopId>, a: Child, b: Child) -> Option<bool> {
        let body = self.body.as_ref().ok()?;
        let (from, to) = (self.node(parent, a)?, self.node(parent, b)?);
        // An address of an inner loop is no child; its loop is.
        let agree = |child, node| {
            matches!(
                (child, node),
                (Child::Code(_), Node::Block(_)) | (Child::Loop(_), Node::Loop(_))
            )
        };
        if !agree(a, from) || !agree(b, to) {
            return None;
        }
        if let (Child::Code(first), Child::Code(second)) = (a, b)
            && from == to
        {
            return Some(first < second);
        }
        let parent = parent.map(|parent| parent.0);
        Some(self.reach.lock().reaches(&body.graph, &body.nest, parent, from, to))
    }

    /// A number of a child that grows along the control flow: what can run before another child of the
    /// same loop without a back edge has a lower one, as long as no loop is irreducible. It depends on
    /// nothing but the function's code. `None` for code that no known way leads to.
    pub fn position(&self, child: Child) -> Option<u64> {
        let body = self.body.as_ref().ok()?;
        let (block, offset) = match child {
            Child::Code(address) => {
                let block = body.graph.block_at(address)?;
                (block, address - body.graph.blocks()[block as usize].start)
            }
            Child::Loop(id) => (body.nest.cycles.get(id.0 as usize)?.header, 0),
        };
        let place = *self.places.get_or_init(|| body.graph.places()).get(block as usize)?;
        body.graph.is_reached(block).then_some(u64::from(place) << 32 | offset & 0xffff_ffff)
    }

    /// Memory in use, roughly; strings are shared and not counted.
    pub fn bytes(&self) -> usize {
        let body = self.body.as_ref().map_or(0, |body| {
            body.graph.bytes()
                + body.nest.bytes()
                + body.loops.capacity() * size_of::<Loop>()
                + body.calls.capacity() * size_of::<u64>()
        });
        size_of::<Self>()
            + body
            + self.reach.lock().bytes()
            + self.sources().map_or(0, size_of_val)
            + self.places.get().map_or(0, |places| size_of_val(&places[..]))
            + self.parts.capacity() * size_of::<Range<u64>>()
    }
}

/// The loops of a nest.
pub(super) fn loops(graph: &Graph, nest: &Nest) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::with_capacity(nest.cycles.len());
    for cycle in &nest.cycles {
        loops.push(Loop {
            header: graph.blocks()[cycle.header as usize].start,
            parent: cycle.parent.map(LoopId),
            depth: cycle.parent.map_or(0, |parent| loops[parent as usize].depth + 1),
            is_irreducible: cycle.irreducible,
        });
    }
    loops
}
