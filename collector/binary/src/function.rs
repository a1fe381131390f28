//! The structure of one function, and queries on its control flow.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::code::Code;
use super::code_order::{Node, Reach, node_of};
use super::explore::{Failure, explore};
use super::graph::Graph;
use super::natural_loops::Nest;

/// Index of a loop in its function; depends on the function's code alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopId(pub u32);

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Path as the debug information has it, or the name alone if the path is not known.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u32,
}

/// A call that the compiler has replaced by the called function's body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inlined {
    /// Name of the called function, demangled.
    pub function: Arc<str>,
    /// Source position of the call; `None` if the debug information has none.
    pub call: Option<Location>,
}

/// Source position of an address: the inlined calls around it and its line in the innermost of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lines {
    /// Inlined calls, outermost first. Calls of a function that are inlined in the function itself
    /// are left out.
    pub inlined: Vec<Inlined>,
    /// Line in the innermost function; `None` if the debug information has none.
    pub location: Option<Location>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Address of the header, to which the back edges lead.
    pub header: u64,
    /// Loop directly around this one; `None` for an outermost loop.
    pub parent: Option<LoopId>,
    /// Number of loops around this one.
    pub depth: u32,
    /// Whether control can also enter the loop other than at its header.
    pub is_irreducible: bool,
}

/// Source position of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopSource {
    /// Inlined calls around the loop, and the loop's line in the innermost of them.
    pub lines: Lines,
    /// First of the loops that are copies of the same source loop: unrolling, versioning and
    /// vectorising make several loops of one. Loops are copies if they have the same line, the same
    /// inlined calls around them, and if the loops around them are copies. A loop without a line
    /// has no copies.
    pub original: LoopId,
}

/// Reason why a function has no structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Absent {
    /// The module's file is missing, is a build other than the loaded one, or is not for this
    /// machine.
    Module,
    /// Neither the symbols nor the unwind table have a function at the address.
    Function,
    /// The file does not have the function's bytes.
    Code,
    /// More code than [`super::MAX_CODE_BYTES`] or [`super::MAX_INSTRUCTIONS`].
    TooLarge,
    /// Too many jumps into the middle of loops to separate the loops.
    TooIntricate,
    /// The deadline of the lookup has passed ([`super::Limit`]).
    Late,
}

/// Child of a function or of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Child {
    /// Address of code in no inner loop: a call, or the program counter of a sample.
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
    /// Address of the first instruction.
    pub entry: u64,
    /// Address ranges, ascending: the function and the parts that were split off, without the
    /// functions within them that have symbols of their own.
    pub parts: Vec<Range<u64>>,
    pub(super) body: Result<Body, Absent>,
    /// Source positions by loop; empty until needed, as debug information is slow to read.
    sources: OnceLock<Vec<LoopSource>>,
    reach: Mutex<Reach>,
    /// Positions by block; empty until [`Function::position`] is called.
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

    /// Sets the source positions of the loops, one for each loop, unless they are set already.
    pub(super) fn locate(&self, sources: impl FnOnce() -> Vec<LoopSource>) {
        let found = self.sources.get_or_init(sources);
        debug_assert_eq!(found.len(), self.loops().len());
    }

    /// Returns the source positions of the loops; `None` before [`Function::locate`].
    pub(super) fn sources(&self) -> Option<&[LoopSource]> {
        self.sources.get().map(Vec::as_slice)
    }

    /// Recovers a function's structure from its code; `range` is the extent according to its symbol
    /// or its entry in the unwind table. Lines are not looked up.
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

    /// Returns why the function has no blocks and loops; `None` if it has them.
    pub fn absent(&self) -> Option<Absent> {
        self.body.as_ref().err().copied()
    }

    /// Returns whether an address belongs to the function.
    pub fn contains(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.contains(&address))
    }

    /// Returns the control-flow graph.
    pub fn graph(&self) -> Option<&Graph> {
        self.body.as_ref().ok().map(|body| &body.graph)
    }

    /// Returns the addresses of the calls, ascending, without tail calls, which leave no frame.
    pub fn calls(&self) -> &[u64] {
        self.body.as_ref().map_or(&[], |body| &body.calls)
    }

    /// Returns whether the targets of all indirect jumps are known. Otherwise loops may be missing.
    pub fn is_complete(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| body.is_complete)
    }

    /// Returns the loops, outer ones first, indexed by [`LoopId`].
    pub fn loops(&self) -> &[Loop] {
        self.body.as_ref().map_or(&[], |body| &body.loops)
    }

    /// Returns a loop of this function.
    ///
    /// # Panics
    /// If `id` belongs to another function and this one has fewer loops.
    pub fn loop_at(&self, id: LoopId) -> &Loop {
        &self.loops()[id.0 as usize]
    }

    /// Returns the source position of a loop; `None` before [`super::Structures::place`] has looked
    /// up the loops of this function.
    pub fn source_of(&self, id: LoopId) -> Option<&LoopSource> {
        self.sources()?.get(id.0 as usize)
    }

    /// Returns the innermost loop that holds an address.
    pub fn innermost_loop(&self, address: u64) -> Option<LoopId> {
        let body = self.body.as_ref().ok()?;
        body.nest.innermost(body.graph.block_at(address)?).map(LoopId)
    }

    /// Returns the loops around an address, from the innermost outwards.
    pub fn loops_around(&self, address: u64) -> impl Iterator<Item = LoopId> + '_ {
        std::iter::successors(self.innermost_loop(address), |id| self.loop_at(*id).parent)
    }

    /// Returns the innermost loop that holds both addresses.
    pub fn common_loop(&self, a: u64, b: u64) -> Option<LoopId> {
        self.loops_around(a).find(|around| self.loops_around(b).any(|other| other == *around))
    }

    /// Returns the child of a loop, or of the function, that holds an address; `None` if none does.
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

    /// Returns whether `b` can run after `a` without a back edge of the loop `parent` (`b` is in
    /// `successor[a]`: ICS18, Algorithm 1); without a parent, both are children of the function,
    /// which has no back edges outside its loops. False for `a` itself, which runs again only after
    /// a back edge. Loops within `parent` count as one node each.
    ///
    /// `None` if the answer is unknown: a child does not stand directly below `parent`, or its code
    /// is behind an indirect jump with unknown targets. Copies of a loop are distinct here: ask
    /// about the loop that holds the address, not about its [original](LoopSource::original).
    pub fn can_follow(&self, parent: Option<LoopId>, a: Child, b: Child) -> Option<bool> {
        let body = self.body.as_ref().ok()?;
        let (from, to) = (self.node(parent, a)?, self.node(parent, b)?);
        // An address within an inner loop is not a child; the loop is.
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

    /// Returns a number that grows along the control flow: a child that can run before another
    /// child of the same loop without a back edge has a lower number, as long as no loop is
    /// irreducible. The number depends on the function's code alone. `None` for code that no known
    /// path reaches.
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

    /// Returns the approximate memory in use, in bytes, without the strings, which are shared.
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

/// Returns the loops of a nest, indexed as its cycles.
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
