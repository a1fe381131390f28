//! Conversion of raw contexts to the user's calling contexts: paths begin at `main` or at a
//! thread's start routine, and calls of one function from several sites of its caller are one
//! context (except MPI calls, which keep their site). The outlined function of a parallel region is
//! called by the function that makes the region, on every thread of the team, and a thread's start
//! routine by the function that creates the thread. The frame of an MPI call has the source line of
//! its site.

use std::collections::{HashMap, HashSet};

use plimsoll_calls::{self as calls, Call, CallClass, CallId};

use crate::address_table::{Addresses, Named, OWN_LIBRARY, Role};
use crate::graft_makers;
use crate::profile::{ContextTree, Frame, FrameKind, Node, NodeId};
use crate::raw_tree::{IdMap, ROOT, RawId, Tree};
use crate::region_values::RegionValues;
use plimsoll_binary::Location;

/// Builds a [`ContextTree`] from the requested raw contexts.
pub(crate) struct Contexts<'a> {
    tree: &'a Tree,
    addresses: &'a Addresses,
    out: ContextTree,
    /// Node ids, keyed by caller (node id plus one; 0 for none), frame and call site.
    nodes: IdMap<(u32, u32, u64), NodeId>,
    frames: HashMap<Frame, u32>,
    /// Frame index in `out` for each frame of [`Addresses`], keyed by its index there, by whether
    /// the frame stands for the MPI call that its function implements, and by the address id of the
    /// site of an MPI call (0 for other frames).
    of_addresses: IdMap<(u32, bool, u32), u32>,
    known: IdMap<RawId, Option<UserContext>>,
    /// Raw contexts with calls that are not counted: frames that are left out of the user's paths,
    /// and the library's own entry function of a wrapped call, counted by the wrapper.
    uncounted: HashSet<RawId>,
    /// Program entries: `_start`, which has no name in a stripped program, but is outermost and
    /// calls libc's entry.
    entries: HashSet<RawId>,
    /// Set if wrapped calls are not measured. MPI calls are then recognised by the functions that
    /// samples are in.
    only_samples: bool,
    /// Contexts of the calls that make the regions or threads in which grafted stacks lie, by the
    /// roots of these stacks.
    makers: IdMap<RawId, RawId>,
    /// Outermost contexts inside regions, by the contexts of the calls that make the regions.
    outlined: IdMap<RawId, NodeId>,
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
    pub(crate) fn new(
        tree: &'a Tree,
        addresses: &'a Addresses,
        regions: &RegionValues,
        only_samples: bool,
    ) -> Self {
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
            uncounted: HashSet::new(),
            only_samples,
            makers: graft_makers::makers(tree, regions),
            outlined: IdMap::default(),
        }
    }

    /// Returns the user's context of a raw context; `None` if it lies outside `main` or the start
    /// routine of its thread.
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
        let (maker, begin) = self.outside(raw, &path);
        let mut reached: Option<UserContext> = maker;
        if begin == path.len() && self.creator(raw).is_some() {
            reached = None;
        }
        let mut region = self.makers.get(&self.tree.root(raw)).copied();
        let mut caller = path.get(begin.wrapping_sub(1)).copied().unwrap_or(ROOT);
        let mut in_mpi = false;
        let mut script = None;
        let path = self.without_runtime(path.get(begin..).unwrap_or_default());
        if path.last() != Some(&raw) {
            self.uncounted.insert(raw);
        }
        for raw in &path {
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
                self.uncounted.insert(*raw);
                continue;
            }
            let has_site = is_mpi || frame.is_some_and(makes_region);
            let site =
                if has_site { self.named(caller).map_or(0, |named| named.offset) } else { 0 };
            let line_of = if is_mpi { self.site_with_line(caller, script) } else { 0 };
            let frame = match named {
                Some(named) => self.of_address(named.frame, call, line_of),
                None => self.frame(unknown()),
            };
            let called = self.intern(reached.map(|place| place.inner), frame, site);
            if let Some(maker) = region.take() {
                self.outlined.insert(maker, called);
            }
            let mut inner = called;
            for step in named.map_or(&[][..], |named| &named.steps) {
                let frame = self.of_address(*step, None, 0);
                inner = self.intern(Some(inner), frame, 0);
            }
            reached = Some(UserContext { called, inner });
            caller = *raw;
            script = Some(*raw).filter(|raw| self.is_of_script(*raw)).or(script);
        }
        self.known.insert(raw, reached);
        reached
    }

    /// Returns the context of another thread that a stack lies in, and the number of frames at the
    /// outer end of the path that do not belong to the program.
    fn outside(&mut self, raw: RawId, path: &[RawId]) -> (Option<UserContext>, usize) {
        // The maker is removed while its own context is looked up: in a damaged stream, a call path
        // may lie in itself.
        let root = self.tree.root(raw);
        let Some(maker) = self.makers.remove(&root) else { return (None, self.begin(path)) };
        let reached = self.place(self.tree.parent(maker));
        self.makers.insert(root, maker);
        if self.creates_thread(maker) {
            return (reached, self.begin(path));
        }
        // The outlined function follows, or comes before if it has ended by a jump to a call.
        let of_program = |share: usize| match share.checked_sub(1) {
            Some(before) if !self.is_outside_share(path[before]) => before,
            _ => share + 1,
        };
        let share = path.iter().position(|raw| self.is_own(*raw)).map(of_program);
        // A runtime that calls back leaves no frame of the library on the stack.
        let outside = || path.iter().take_while(|raw| self.is_outside_share(**raw)).count();
        // Outside of a share nothing is known but the maker.
        (reached, share.unwrap_or_else(outside))
    }

    /// Returns the context of the call that created the thread of a raw context; `None` if that
    /// call is unknown, or the context lies in a parallel region.
    fn creator(&self, raw: RawId) -> Option<RawId> {
        let maker = *self.makers.get(&self.tree.root(raw))?;
        self.creates_thread(maker).then_some(maker)
    }

    fn creates_thread(&self, raw: RawId) -> bool {
        let call = self.named(raw).and_then(|named| self.addresses.frame(named.frame).call);
        call.and_then(calls::class) == Some(CallClass::ThreadCreation)
    }

    /// Whether a raw context at the outer end of a thread's stack is the start of the thread or
    /// lies in an OpenMP runtime.
    fn is_outside_share(&self, raw: RawId) -> bool {
        let starts = |named: &Named| matches!(named.role, Role::ThreadStart | Role::Outside);
        let in_runtime = || OPENMP_RUNTIMES.iter().any(|name| self.is_in(raw, name));
        self.named(raw).is_none_or(starts) || in_runtime()
    }

    /// Returns the outermost context inside the regions that a call makes; `None` if no thread of a
    /// pool was seen in them.
    pub(crate) fn outlined(&self, maker: RawId) -> Option<NodeId> {
        self.outlined.get(&maker).copied()
    }

    /// Returns a path without the frames of this library: their time counts for the caller. Left
    /// out as well are frames of the OpenMP runtime between the call that makes a parallel region,
    /// or executes tasks, and the outlined function; and those in which the C library creates a
    /// thread: creations are counted.
    fn without_runtime(&self, path: &[RawId]) -> Vec<RawId> {
        let mut kept = Vec::with_capacity(path.len());
        let mut at = 0;
        while at < path.len() {
            if !self.is_own(path[at]) {
                kept.push(path[at]);
                at += 1;
                continue;
            }
            let inner = &path[at + 1..];
            let runtime = inner.iter().take_while(|raw| self.in_openmp_runtime(**raw)).count();
            let begins_share = inner.get(runtime).is_some_and(|raw| self.is_own(*raw));
            at += match runtime {
                0 if self.is_creating_hook(path[at]) => break,
                0 => 1,
                _ if begins_share => runtime + 2,
                // In the runtime itself, the function that the wrapper calls repeats its name.
                _ => 2,
            };
        }
        self.without_interpreter(self.without_calling_runtime(kept))
    }

    /// Drops the frames of an interpreter, but for `main`, where it executes functions of scripts:
    /// their time counts for these functions.
    fn without_interpreter(&self, mut path: Vec<RawId>) -> Vec<RawId> {
        let (tree, addresses) = (self.tree, self.addresses);
        if addresses.has_scripts() && path.iter().any(|raw| self.is_of_script(*raw)) {
            let is_main = |raw: RawId| self.named(raw).is_some_and(|it| it.role == Role::Main);
            path.retain(|raw| !addresses.is_in_interpreter(tree.address(*raw)) || is_main(*raw));
        }
        path
    }

    /// Drops the frames of a runtime that calls back, where the program's code continues the path.
    fn without_calling_runtime(&self, path: Vec<RawId>) -> Vec<RawId> {
        let in_runtime =
            |raw: &RawId| OPENMP_RUNTIMES[1..].iter().any(|name| self.is_in(*raw, name));
        if !path.iter().any(in_runtime) {
            return path;
        }
        let in_program = |raw: &RawId| {
            let named = self.named(*raw).filter(|named| named.role != Role::Outside);
            named.is_some_and(|named| self.addresses.frame(named.frame).call.is_none())
        };
        let mut kept = Vec::with_capacity(path.len());
        let mut rest = &path[..];
        while !rest.is_empty() {
            let runtime = rest.iter().take_while(|raw| in_runtime(raw)).count();
            let Some(next) = rest.get(runtime) else {
                kept.extend_from_slice(rest);
                break;
            };
            if !in_program(next) {
                kept.extend_from_slice(&rest[..runtime]);
            }
            kept.push(*next);
            rest = &rest[runtime + 1..];
        }
        kept
    }

    fn is_of_script(&self, raw: RawId) -> bool {
        self.addresses.is_of_script(self.tree.address(raw))
    }

    /// Returns the address id of the site of a call, for its line: that of its caller or, if that
    /// has no lines, of the innermost function of a script around it.
    fn site_with_line(&self, caller: RawId, script: Option<RawId>) -> u32 {
        let has_line = self.named(caller).is_some_and(|named| named.call_line.is_some());
        self.tree.address(script.filter(|_| !has_line).unwrap_or(caller))
    }

    /// Whether a raw context is the function of this library that creates threads for the program.
    fn is_creating_hook(&self, raw: RawId) -> bool {
        let frame = self.named(raw).map(|named| self.addresses.frame(named.frame));
        frame.is_some_and(|frame| frame.function.contains("::threads::create"))
    }

    /// Whether a raw context is a function of this library.
    fn is_own(&self, raw: RawId) -> bool {
        self.is_in(raw, OWN_LIBRARY)
    }

    fn in_openmp_runtime(&self, raw: RawId) -> bool {
        self.is_in(raw, "libgomp")
    }

    fn is_in(&self, raw: RawId, library: &str) -> bool {
        let frame = self.named(raw).map(|named| self.addresses.frame(named.frame));
        frame.is_some_and(|frame| frame.call.is_none() && frame.module.starts_with(library))
    }

    /// Returns the context of a procedure that another one, or its innermost loop in `caller`,
    /// calls; `None` if nothing was seen in it.
    pub(crate) fn callee(&self, caller: NodeId, address: u32) -> Option<NodeId> {
        let named = self.addresses.named(address)?;
        let frame = *self.of_addresses.get(&(named.frame, false, 0))?;
        self.nodes.get(&(caller + 1, frame, 0)).copied()
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
        !self.uncounted.contains(&raw)
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

    /// Returns the outermost context of the thread of a raw context, with the start routine at
    /// address id `address`.
    pub(crate) fn start_routine(&mut self, address: u32, raw: RawId) -> NodeId {
        let frame = match self.addresses.named(address) {
            Some(named) => self.of_address(named.frame, None, 0),
            None => self.frame(unknown()),
        };
        let creator = self.creator(raw).and_then(|creator| self.node(self.tree.parent(creator)));
        self.intern(creator, frame, 0)
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
    pub(crate) fn finish(mut self) -> ContextTree {
        // Kept until the end of the analysis, for each rank of the node.
        self.out.nodes.shrink_to_fit();
        self.out.frames.shrink_to_fit();
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
    /// given, with the source line of the call site at address id `site` (0 for none).
    fn of_address(&mut self, index: u32, call: Option<&Call>, site: u32) -> u32 {
        let key = (index, call.is_some(), site);
        if let Some(known) = self.of_addresses.get(&key) {
            return *known;
        }
        let mut frame = self.addresses.frame(index).clone();
        if let Some(call) = call {
            call.name.clone_into(&mut frame.function);
            frame.kind = FrameKind::Mpi;
        }
        let site = self.addresses.named(site).and_then(|site| site.call_line.as_ref());
        if let Some(Location { file, line }) = site {
            (frame.file, frame.line) = (Some(file.to_string()), Some(*line));
        }
        let known = self.frame(frame);
        self.of_addresses.insert(key, known);
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
        return calls::call(id).filter(|call| call.provider.is_mpi()).map(|_| id);
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

/// Whether a frame is a call that makes a parallel region. Calls of one function at different
/// places are different contexts, as with MPI.
fn makes_region(frame: &Frame) -> bool {
    frame.call.and_then(calls::class) == Some(CallClass::Region)
}

/// Beginnings of the file names of OpenMP runtimes: GCC's, and those that call back. The latter may
/// be installed under the name of the former.
const OPENMP_RUNTIMES: [&str; 4] = ["libgomp", "libomp.", "libomp-", "libiomp5"];

fn unknown() -> Frame {
    Frame::new(FrameKind::Function, "[unknown]", "[unknown]")
}
