//! Conversion of raw contexts to the user's calling contexts: paths begin at `main` or at a
//! thread's start routine, and calls of one function from several sites of its caller are one
//! context (except MPI calls, which keep their site).

use std::collections::{HashMap, HashSet};

use plimsoll_calls::{self as calls, Call, CallId, Provider};

use crate::address_table::{Addresses, Named, Role};
use crate::profile::{ContextTree, Frame, FrameKind, Node, NodeId};
use crate::raw_tree::{IdMap, ROOT, RawId, Tree};

/// Builds a [`ContextTree`] from the requested raw contexts.
pub(crate) struct Contexts<'a> {
    tree: &'a Tree,
    addresses: &'a Addresses,
    out: ContextTree,
    /// Node ids, keyed by caller (node id plus one; 0 for none), frame and call site.
    nodes: IdMap<(u32, u32, u64), NodeId>,
    frames: HashMap<Frame, u32>,
    /// Frame index in `out` for each frame of [`Addresses`], keyed by its index there and by
    /// whether the frame stands for the MPI call that its function implements.
    of_addresses: IdMap<(u32, bool), u32>,
    known: IdMap<RawId, Option<UserContext>>,
    /// Raw contexts that are the MPI library's own entry function of a wrapped call; the wrapper
    /// counts these calls already.
    entries_of_calls: HashSet<RawId>,
    /// Program entries: `_start`, which has no name in a stripped program, but is outermost and
    /// calls libc's entry.
    entries: HashSet<RawId>,
    /// Set if wrapped calls are not measured. MPI calls are then recognised by the functions that
    /// samples are in.
    only_samples: bool,
}

/// User's context of a raw context.
#[derive(Clone, Copy)]
pub(crate) struct UserContext {
    /// Node of the procedure or wrapped call.
    pub(crate) called: NodeId,
    /// Node of the innermost loop or inlined call in `called` that holds the address; equal to
    /// `called` if there is none.
    pub(crate) inner: NodeId,
}

impl<'a> Contexts<'a> {
    /// Creates an empty context tree for the raw context tree of a process.
    pub(crate) fn new(tree: &'a Tree, addresses: &'a Addresses, only_samples: bool) -> Self {
        let role = |raw| addresses.named(tree.address(raw)).map(|named| named.role);
        let entries = tree
            .ids()
            .filter(|raw| tree.depth(*raw) == 2 && role(*raw) == Some(Role::ProgramStart))
            .map(|raw| tree.parent(raw))
            .collect();
        Self {
            entries,
            tree,
            addresses,
            out: ContextTree::default(),
            nodes: IdMap::default(),
            frames: HashMap::new(),
            of_addresses: IdMap::default(),
            known: IdMap::default(),
            entries_of_calls: HashSet::new(),
            only_samples,
        }
    }

    /// Returns the user's context of a raw context; `None` if it lies outside `main` or the start
    /// routine.
    pub(crate) fn node(&mut self, raw: RawId) -> Option<NodeId> {
        Some(self.place(raw)?.inner)
    }

    /// Returns the user's context of a raw context together with the procedure or call that
    /// contains it; `None` as for [`Contexts::node`].
    pub(crate) fn place(&mut self, raw: RawId) -> Option<UserContext> {
        if let Some(place) = self.known.get(&raw) {
            return *place;
        }
        let path = self.tree.path(raw);
        let begin = self.begin(&path);
        let mut reached: Option<UserContext> = None;
        let mut caller = path.get(begin.wrapping_sub(1)).copied().unwrap_or(ROOT);
        let mut in_mpi = false;
        for raw in path.get(begin..).unwrap_or_default() {
            let named = self.named(*raw);
            let frame = named.map(|named| self.addresses.frame(named.frame));
            let call = frame.filter(|_| self.only_samples && !in_mpi).and_then(call_of_function);
            let is_mpi = call.is_some() || frame.is_some_and(|frame| frame.kind == FrameKind::Mpi);
            in_mpi |= is_mpi;
            // The library's own entry, under any of its names, is merged with the call itself.
            let is_entry =
                |call: UserContext| frame.is_some_and(|it| self.is_entry_of(call.inner, it));
            if call.is_none() && reached.is_some_and(is_entry) {
                caller = *raw;
                self.entries_of_calls.insert(*raw);
                continue;
            }
            let site = if is_mpi { self.named(caller).map_or(0, |named| named.offset) } else { 0 };
            let frame = match named {
                Some(named) => self.of_address(named.frame, call),
                None => self.frame(unknown()),
            };
            let called = self.intern(reached.map(|place| place.inner), frame, site);
            let mut inner = called;
            for step in named.map_or(&[][..], |named| &named.steps) {
                let frame = self.of_address(*step, None);
                inner = self.intern(Some(inner), frame, 0);
            }
            reached = Some(UserContext { called, inner });
            caller = *raw;
        }
        self.known.insert(raw, reached);
        reached
    }

    /// Returns the loop around the address of a raw context that is enclosed by `depth` other loops
    /// of its function; `None` if there is no such loop.
    pub(crate) fn loop_around(&mut self, raw: RawId, depth: usize) -> Option<NodeId> {
        let place = self.place(raw)?;
        let mut loops = Vec::new();
        let mut at = place.inner;
        while at != place.called {
            let node = &self.out.nodes[at as usize];
            if self.out.frames[node.frame as usize].kind == FrameKind::Loop {
                loops.push(at);
            }
            at = node.parent?;
        }
        loops.iter().rev().nth(depth).copied()
    }

    /// Returns whether the calls counted for a raw context are to be used. [`Contexts::node`] must
    /// have been called for the context before.
    pub(crate) fn counts_calls(&self, raw: RawId) -> bool {
        !self.entries_of_calls.contains(&raw)
    }

    /// Returns the context of work between two raw siblings: the innermost context that contains
    /// both. For two places in one function this is the function or one of its loops.
    pub(crate) fn between(&mut self, one: RawId, other: RawId) -> Option<NodeId> {
        let (mut first, mut second) = (self.node(one)?, self.node(other)?);
        // The node id of a caller is smaller than the ids of its callees.
        while first != second {
            let later = if first > second { &mut first } else { &mut second };
            *later = self.out.nodes[*later as usize].parent?;
        }
        Some(first)
    }

    /// Returns the outermost context of the communicating thread, to which time with an unknown
    /// stack is charged: `main` if present.
    pub(crate) fn main(&mut self) -> NodeId {
        let outermost = |node: &&(usize, &Node)| node.1.parent.is_none();
        let nodes: Vec<(usize, &Node)> = self.out.nodes.iter().enumerate().collect();
        let is_main =
            |node: &&&(usize, &Node)| self.out.frames[node.1.frame as usize].function == "main";
        let found = nodes
            .iter()
            .filter(outermost)
            .find(|node| is_main(&node))
            .or_else(|| nodes.iter().find(outermost))
            .map(|(index, _)| *index as NodeId);
        found.unwrap_or_else(|| {
            let frame = self.frame(unknown());
            self.intern(None, frame, 0)
        })
    }

    /// Returns the outermost context of a thread with the start routine at address id `address`.
    pub(crate) fn start_routine(&mut self, address: u32) -> NodeId {
        let frame = match self.addresses.named(address) {
            Some(named) => self.of_address(named.frame, None),
            None => self.frame(unknown()),
        };
        self.intern(None, frame, 0)
    }

    /// Returns the contexts created so far.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.out.nodes
    }

    /// Returns the position of each context in an order that does not depend on node ids, so that
    /// rounding parts of a sum gives equal results for equal runs.
    pub(crate) fn order(&self) -> Vec<u32> {
        let mut inner: Vec<Vec<NodeId>> = vec![Vec::new(); self.out.nodes.len() + 1];
        for (node, id) in self.out.nodes.iter().zip(0..) {
            inner[node.parent.map_or(0, |parent| parent as usize + 1)].push(id);
        }
        let key = |id: &NodeId| {
            let node = &self.out.nodes[*id as usize];
            (&self.out.frames[node.frame as usize], node.site)
        };
        let mut order = vec![0; self.out.nodes.len()];
        let (mut next, mut open) = (0, vec![0]);
        while let Some(at) = open.pop() {
            if at > 0 {
                order[at - 1] = next;
                next += 1;
            }
            let mut inner = std::mem::take(&mut inner[at]);
            inner.sort_unstable_by(|one, other| key(other).cmp(&key(one)));
            open.extend(inner.into_iter().map(|id| id as usize + 1));
        }
        order
    }

    /// Returns the finished context tree.
    pub(crate) fn finish(self) -> ContextTree {
        self.out
    }

    fn named(&self, raw: RawId) -> Option<&'a Named> {
        self.addresses.named(self.tree.address(raw))
    }

    /// Returns the number of frames at the outer end of a path that do not belong to the program.
    pub(crate) fn begin(&self, path: &[RawId]) -> usize {
        let mut begin = 0;
        let mut before_main = true;
        for (index, raw) in path.iter().enumerate() {
            let role = self.named(*raw).map_or(Role::Inside, |named| named.role);
            match role {
                _ if self.entries.contains(raw) => begin = index + 1,
                Role::ThreadStart if index == begin => {
                    begin = index + 1;
                    before_main = false;
                }
                Role::Outside | Role::ProgramStart if index == begin => begin = index + 1,
                Role::Main if before_main => {
                    begin = index;
                    before_main = false;
                }
                _ => {}
            }
        }
        begin
    }

    fn is_entry_of(&self, call: NodeId, frame: &Frame) -> bool {
        let call = &self.out.frames[self.out.nodes[call as usize].frame as usize];
        let name = frame.function.as_str();
        call.kind == FrameKind::Mpi
            && frame.kind == FrameKind::Function
            && name.strip_prefix('P').unwrap_or(name) == call.function
    }

    fn intern(&mut self, parent: Option<NodeId>, frame: u32, site: u64) -> NodeId {
        let out = &mut self.out.nodes;
        let caller = parent.map_or(0, |parent| parent + 1);
        *self.nodes.entry((caller, frame, site)).or_insert_with(|| {
            out.push(Node { parent, frame, site });
            out.len() as NodeId - 1
        })
    }

    /// Returns the index in `out` of an address's frame, converted to an MPI frame if `call` is
    /// given.
    fn of_address(&mut self, index: u32, call: Option<&Call>) -> u32 {
        if let Some(known) = self.of_addresses.get(&(index, call.is_some())) {
            return *known;
        }
        let mut frame = self.addresses.frame(index).clone();
        if let Some(call) = call {
            call.name.clone_into(&mut frame.function);
            frame.kind = FrameKind::Mpi;
        }
        let known = self.frame(frame);
        self.of_addresses.insert((index, call.is_some()), known);
        known
    }

    fn frame(&mut self, frame: Frame) -> u32 {
        let frames = &mut self.out.frames;
        *self.frames.entry(frame).or_insert_with_key(|frame| {
            frames.push(frame.clone());
            frames.len() as u32 - 1
        })
    }
}

/// Returns the id of the MPI call that a frame stands for, or that the frame's function implements.
pub(crate) fn mpi_call(frame: &Frame) -> Option<CallId> {
    if let Some(id) = frame.call {
        return calls::call(id).filter(|call| call.provider != Provider::Libc).map(|_| id);
    }
    let name = frame.function.strip_prefix('P').unwrap_or(&frame.function);
    let id = if name.starts_with("MPI_") { calls::id_of(name) } else { 0 };
    (id != 0).then_some(id)
}

/// Returns the MPI call that the function of a frame implements, under any of its names. The call
/// was not measured, so calls are not counted for it.
fn call_of_function(frame: &Frame) -> Option<&'static Call> {
    let is_function = frame.kind == FrameKind::Function;
    mpi_call(frame).filter(|_| is_function).and_then(calls::call)
}

fn unknown() -> Frame {
    Frame {
        kind: FrameKind::Function,
        function: "[unknown]".to_owned(),
        file: None,
        line: None,
        offset: None,
        module: "[unknown]".to_owned(),
        call: None,
    }
}
