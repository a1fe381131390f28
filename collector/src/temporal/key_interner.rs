//! Meaning of the keys of temporal context trees, and the order in which keys can follow each
//! other.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_calls::FIRST_CODE_ADDRESS;
use plimsoll_wire::segment::script_place;

use super::Sources;
use crate::address_table::{is_only_interpreter, locate};
use crate::raw_tree::{IdMap, RawId, Tree};
use plimsoll_binary::{Address, Child, Function, LoopId};
use plimsoll_trees::{ControlFlow, Frame, Key};

/// Key of the thread, the root of its tree.
pub(super) const ROOT: Key = Key(0);

/// Maximum number of cached control-flow answers; a full cache is cleared.
const MAX_ANSWERS: usize = 1 << 12;

/// Target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Callee {
    /// Wrapped call, by its id.
    Wrapped(u64),
    /// Function of a script, by its index.
    Script(u64),
    /// Function, by its index in [`KeyInterner::functions`].
    Function(u32),
    /// Unknown code.
    Unknown,
}

/// Tree node that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyKind {
    Root,
    /// Call, by the address id of its site (`None` for the outermost), and its target.
    Call(Option<u32>, Callee),
    /// Loop, by the index of its function and its id there.
    Loop(u32, LoopId),
    /// Sampled address, by its address id.
    Leaf(u32),
}

/// Meaning of a key within its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeSite {
    /// Call, by the address id of its site; `None` for the outermost call.
    Call(Option<u32>),
    /// Loop, by the number of loops of its function around it.
    Loop(usize),
    /// Sampled address, by its address id.
    Address(u32),
}

/// Location of an address in the code.
struct CodeLocation {
    callee: Callee,
    /// Address in the module's file, inside the instruction.
    address: u64,
    /// Set if the instruction is a call.
    is_call: bool,
    /// Loops around the address, outermost first.
    loops: Box<[LoopId]>,
}

/// Tree frames of an address on the stack that was called from a given site.
struct FrameExpansion {
    outer: Box<[Frame]>,
    /// Frame of the sampled address itself.
    leaf: Option<Frame>,
}

/// Identity of a key that does not depend on the order in which keys were created: a kind and up to
/// four numbers.
type Name = (u8, u64, u64, u64, u64);

/// Keys of all trees of a process.
pub(crate) struct KeyInterner {
    kinds: Vec<KeyKind>,
    ids: HashMap<KeyKind, Key>,
    /// Functions, each with the number of its module in the process.
    functions: Vec<(u32, Arc<Function>)>,
    /// Index into `functions` by the address of the [`Function`] in memory. `functions` keeps them
    /// alive, so the addresses are not reused.
    known: HashMap<usize, u32>,
    locations: IdMap<u32, CodeLocation>,
    /// Numbers of the modules that only hold an interpreter that executes functions of scripts.
    interpreters: HashSet<u32>,
    expansions: Vec<FrameExpansion>,
    /// Expansion numbers, counted from 1. `by_pair`: by call site and address id. `by_node`: by raw
    /// context; 0 means not expanded yet.
    by_pair: IdMap<u64, u32>,
    by_node: Vec<u32>,
    /// Cache of control-flow answers: each comparison of two iterations asks the same few
    /// questions.
    answers: RefCell<IdMap<(u32, u32, u32), Option<bool>>>,
}

impl Default for KeyInterner {
    fn default() -> Self {
        Self {
            kinds: vec![KeyKind::Root],
            ids: HashMap::from([(KeyKind::Root, ROOT)]),
            functions: Vec::new(),
            known: HashMap::new(),
            locations: IdMap::default(),
            interpreters: HashSet::new(),
            expansions: Vec::new(),
            by_pair: IdMap::default(),
            by_node: Vec::new(),
            answers: RefCell::default(),
        }
    }
}

impl KeyInterner {
    /// Appends the tree frames that a raw context adds to its caller: the call, the loops around
    /// the address and, with `is_leaf`, the address itself.
    pub(super) fn expand(
        &mut self,
        node: RawId,
        is_leaf: bool,
        frames: &mut Vec<Frame>,
        tree: &Tree,
        sources: &mut Sources<'_>,
    ) {
        let known = self.by_node.get(node as usize).copied().unwrap_or_default();
        let number = if known == 0 { self.find(node, tree, sources) } else { known };
        let expansion = &self.expansions[number as usize - 1];
        frames.extend_from_slice(&expansion.outer);
        if is_leaf {
            frames.extend(expansion.leaf);
        }
    }

    /// Returns the innermost loop around a raw context within its function, or the call of that
    /// function if there is no such loop; `None` until a temporal context tree has passed through
    /// the context.
    pub(crate) fn innermost(&self, node: RawId) -> Option<Key> {
        let number = *self.by_node.get(node as usize)?;
        let expansion = self.expansions.get((number as usize).checked_sub(1)?)?;
        expansion.outer.last().map(Frame::key)
    }

    /// Forgets which contexts trees have passed through. The keys remain.
    ///
    /// What [`KeyInterner::innermost`] says of a run must not depend on how much of the time before
    /// the run was read.
    pub(super) fn forget_contexts(&mut self) {
        self.by_node.clear();
    }

    /// Returns the number of a context's expansion, counted from 1, and creates the expansion if
    /// needed.
    fn find(&mut self, node: RawId, tree: &Tree, sources: &mut Sources<'_>) -> u32 {
        let (outer, id) = (tree.parent(node), tree.address(node));
        let site = (tree.depth(outer) > 0).then(|| tree.address(outer));
        let pair = u64::from(site.map_or(0, |site| site + 1)) << 32 | u64::from(id);
        let number = match self.by_pair.get(&pair) {
            Some(number) => *number,
            None => {
                let new = self.make(site, id, sources);
                self.expansions.push(new);
                let number = self.expansions.len() as u32;
                self.by_pair.insert(pair, number);
                number
            }
        };
        if self.by_node.len() <= node as usize {
            self.by_node.resize(node as usize + 1, 0);
        }
        self.by_node[node as usize] = number;
        number
    }

    fn make(&mut self, site: Option<u32>, id: u32, sources: &mut Sources<'_>) -> FrameExpansion {
        if !self.locations.contains_key(&id) {
            let location = self.look_up(id, sources);
            self.locations.insert(id, location);
        }
        let location = &self.locations[&id];
        let (callee, loops) = (location.callee, location.loops.clone());
        let mut outer = vec![Frame::call(self.key(KeyKind::Call(site, callee)))];
        if let Callee::Function(function) = callee {
            for it in &loops {
                outer.push(Frame::within_loop(self.key(KeyKind::Loop(function, *it))));
            }
        }
        let is_code = !matches!(callee, Callee::Wrapped(_));
        let leaf = is_code.then(|| Frame::leaf(self.key(KeyKind::Leaf(id))));
        FrameExpansion { outer: outer.into(), leaf }
    }

    /// Returns the meaning of a node under a call site of its caller: a call by its site, a loop by
    /// the number of loops of its function around it, or a sampled address by its id.
    pub(super) fn node_site(&self, key: Key) -> Option<NodeSite> {
        match *self.kinds.get(key.0 as usize)? {
            KeyKind::Root => Some(NodeSite::Call(None)),
            KeyKind::Call(site, _) => Some(NodeSite::Call(site)),
            KeyKind::Loop(function, id) => {
                let depth = self.functions[function as usize].1.loop_at(id).depth;
                Some(NodeSite::Loop(depth as usize))
            }
            KeyKind::Leaf(place) => Some(NodeSite::Address(place)),
        }
    }

    /// Returns the entry address, in the module's file, of the function that a call targets; `None`
    /// for other keys and for calls of no known function.
    pub(super) fn entry(&self, key: Key) -> Option<u64> {
        match *self.kinds.get(key.0 as usize)? {
            KeyKind::Call(_, Callee::Function(function)) => {
                Some(self.functions[function as usize].1.entry)
            }
            _ => None,
        }
    }

    /// Returns whether an address that was on the stack lies within the node of `key`, provided
    /// that both have the same caller.
    pub(super) fn holds(&self, key: Key, id: u32) -> bool {
        let (Some(entry), Some(location)) =
            (self.kinds.get(key.0 as usize), self.locations.get(&id))
        else {
            return false;
        };
        match *entry {
            KeyKind::Root => false,
            KeyKind::Call(_, callee) => location.callee == callee,
            KeyKind::Loop(function, it) => {
                location.callee == Callee::Function(function) && location.loops.contains(&it)
            }
            KeyKind::Leaf(place) => place == id,
        }
    }

    /// Returns the position of a call or a loop in the code of the function that contains it.
    /// Positions are ordered such that no node precedes one that can run before it without a back
    /// edge ([`Function::position`]).
    pub(super) fn position(&self, key: Key) -> Option<u64> {
        let function = match *self.kinds.get(key.0 as usize)? {
            KeyKind::Call(site, _) => match self.locations.get(&site?)?.callee {
                Callee::Function(function) => function,
                _ => return None,
            },
            KeyKind::Loop(function, _) => function,
            _ => return None,
        };
        self.functions[function as usize].1.position(self.child(key)?)
    }

    /// Returns the calls that a function may have made and returned from on its shortest path from
    /// one address on the stack to another, as addresses in its module's file; `None` if that is
    /// unknown. Without `from`, the function was called meanwhile; without `to`, it has returned.
    /// Calls in a loop without a sample are left out, because the number of iterations is unknown.
    pub(crate) fn passed(&self, from: Option<u32>, to: Option<u32>) -> Option<Vec<u64>> {
        let location = |id: Option<u32>| id.and_then(|id| self.locations.get(&id));
        let (one, other) = (location(from), location(to));
        let Callee::Function(number) = one.or(other)?.callee else { return None };
        let function = &self.functions[number as usize].1;
        let around = match (one, other) {
            (Some(one), Some(other)) if one.callee == other.callee => {
                function.common_loop(one.address, other.address)
            }
            (Some(_), Some(_)) => return None,
            _ => None,
        };
        let goes_around = match (one, other) {
            (Some(one), Some(other)) => {
                let place = |location: &CodeLocation| function.child(around, location.address);
                !function.can_follow(around, place(one)?, place(other)?)?
            }
            _ => false,
        };
        if goes_around && around.is_none() {
            return None;
        }
        // Loops that were left are completed from the address `from` on; loops that were entered
        // have run up to the address `to`.
        let within = |location: Option<&CodeLocation>| -> Vec<LoopId> {
            let loops =
                location.into_iter().flat_map(|location| function.loops_around(location.address));
            loops.take_while(|it| Some(*it) != around).collect()
        };
        let (left, entered) = (within(one), within(other));
        let is_passed = |call: &u64| {
            let directly_in = function.innermost_loop(*call);
            let child = Child::Code(*call);
            let place = |location: &CodeLocation| function.child(directly_in, location.address);
            let follows = |one: Option<Child>, other: Option<Child>| {
                let both = one.zip(other);
                both.and_then(|(one, other)| function.can_follow(directly_in, one, other))
                    .unwrap_or(false)
            };
            let after = || one.is_none_or(|one| follows(place(one), Some(child)));
            let before = || other.is_none_or(|other| follows(Some(child), place(other)));
            match directly_in {
                inner if inner == around && goes_around => after() || before(),
                inner if inner == around => after() && before(),
                Some(inner) if left.contains(&inner) => after(),
                Some(inner) if entered.contains(&inner) => before(),
                _ => false,
            }
        };
        // The call open at `to` has not returned.
        let open = other
            .filter(|other| other.is_call)
            .and_then(|other| function.calls().iter().rev().find(|call| **call <= other.address));
        let calls = function.calls().iter().filter(|call| Some(*call) != open);
        Some(calls.copied().filter(is_passed).collect())
    }

    /// Returns all functions without the first `known` ones, each with the number of its module.
    pub(crate) fn functions_since(&self, known: usize) -> &[(u32, Arc<Function>)] {
        self.functions.get(known..).unwrap_or_default()
    }

    /// Returns the approximate memory use in bytes, without functions, which are counted with their
    /// modules.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<KeyKind>() * 2 + size_of::<Key>();
        let locations = self.locations.capacity() * (size_of::<CodeLocation>() + 4);
        let frames: usize = self.expansions.iter().map(|it| size_of_val(&*it.outer)).sum();
        let expansions = self.expansions.capacity() * size_of::<FrameExpansion>() + frames;
        let numbers = self.by_pair.capacity() * 13 + self.by_node.capacity() * 4;
        let answer = size_of::<((u32, u32, u32), Option<bool>)>() + 1;
        let answers = self.answers.borrow().capacity() * answer;
        (self.kinds.capacity() * each + locations + expansions + numbers + answers) as u64
    }

    fn key(&mut self, entry: KeyKind) -> Key {
        let kinds = &mut self.kinds;
        *self.ids.entry(entry).or_insert_with(|| {
            kinds.push(entry);
            Key(kinds.len() as u32 - 1)
        })
    }

    fn look_up(&mut self, id: u32, sources: &mut Sources<'_>) -> CodeLocation {
        let nothing =
            |callee| CodeLocation { callee, address: 0, is_call: false, loops: Box::default() };
        let Some((value, number, _)) = sources.tables.address(id) else {
            return nothing(Callee::Unknown);
        };
        if value < FIRST_CODE_ADDRESS {
            return nothing(Callee::Wrapped(value));
        }
        if let Some((function, _)) = script_place(value) {
            if is_only_interpreter(number, sources.tables) {
                self.interpreters.insert(number);
            }
            return nothing(Callee::Script(function as u64));
        }
        // The loops of an interpreter are none of the script.
        if self.interpreters.contains(&number) {
            return nothing(Callee::Unknown);
        }
        let found = locate(id, sources.tables, sources.structures);
        let Some((module, address)) = found else { return nothing(Callee::Unknown) };
        let address_in_file = address.instruction();
        let Ok(function) = sources.structures.function(module, address) else {
            return nothing(Callee::Unknown);
        };
        let mut loops: Vec<LoopId> = function.loops_around(address_in_file).collect();
        loops.reverse();
        let functions = &mut self.functions;
        let number = *self.known.entry(Arc::as_ptr(&function).addr()).or_insert_with(|| {
            functions.push((number, function.clone()));
            functions.len() as u32 - 1
        });
        let callee = Callee::Function(number);
        let is_call = matches!(address, Address::Return(_));
        CodeLocation { callee, address: address_in_file, is_call, loops: loops.into() }
    }

    fn name(&self, key: Key) -> Option<Name> {
        let place = |function: u32| {
            let (module, function) = &self.functions[function as usize];
            (u64::from(*module), function.entry)
        };
        let name = match *self.kinds.get(key.0 as usize)? {
            KeyKind::Root => (0, 0, 0, 0, 0),
            KeyKind::Call(site, callee) => {
                let site = site.map_or(0, |site| u64::from(site) + 1);
                match callee {
                    Callee::Unknown => (1, site, 0, 0, 0),
                    Callee::Wrapped(call) => (1, site, 1, call, 0),
                    Callee::Script(function) => (1, site, 3, function, 0),
                    Callee::Function(function) => {
                        let (module, entry) = place(function);
                        (1, site, 2, module, entry)
                    }
                }
            }
            KeyKind::Loop(function, id) => {
                let (module, entry) = place(function);
                (2, u64::from(id.0), 0, module, entry)
            }
            KeyKind::Leaf(id) => (3, u64::from(id), 0, 0, 0),
        };
        Some(name)
    }

    fn child(&self, key: Key) -> Option<Child> {
        let address =
            |id: u32| self.locations.get(&id).map(|location| Child::Code(location.address));
        match *self.kinds.get(key.0 as usize)? {
            KeyKind::Root => None,
            KeyKind::Call(site, _) => address(site?),
            KeyKind::Loop(_, id) => Some(Child::Loop(id)),
            KeyKind::Leaf(id) => address(id),
        }
    }

    /// Computes [`ControlFlow::precedes`] without the cache.
    fn can_precede(&self, parent: Key, one: Key, other: Key) -> Option<bool> {
        let (function, around) = match self.kinds.get(parent.0 as usize) {
            Some(KeyKind::Call(_, Callee::Function(function))) => (*function, None),
            Some(KeyKind::Loop(function, id)) => (*function, Some(*id)),
            _ => return None,
        };
        let (one, other) = (self.child(one)?, self.child(other)?);
        self.functions[function as usize].1.can_follow(around, one, other)
    }
}

impl ControlFlow for KeyInterner {
    fn precedes(&self, parent: Key, one: Key, other: Key) -> Option<bool> {
        let question = (parent.0, one.0, other.0);
        let mut answers = self.answers.borrow_mut();
        if let Some(known) = answers.get(&question) {
            return *known;
        }
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        let answer = self.can_precede(parent, one, other);
        answers.insert(question, answer);
        answer
    }

    /// Compares keys independently of the order in which threads created them.
    fn order(&self, one: Key, other: Key) -> Ordering {
        self.name(one).cmp(&self.name(other)).then(one.cmp(&other))
    }

    fn is_recorded(&self, call: Key) -> bool {
        let entry = self.kinds.get(call.0 as usize);
        matches!(entry, Some(KeyKind::Call(_, Callee::Wrapped(_))))
    }
}
