//! What the keys of a temporal context tree stand for, and which of them can follow which.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_calls::FIRST_CODE_ADDRESS;

use super::Sources;
use crate::addresses::locate;
use crate::tree::{self, IdMap, RawId, Tree};
use plimsoll_binary::{Address, Child, Function, LoopId};
use plimsoll_trees::{ControlFlow, Frame, Key};

/// The thread.
pub(super) const ROOT: Key = Key(0);

/// Most answers that are kept; beyond it they are forgotten and found again.
const MOST_ANSWERS: usize = 1 << 12;

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Callee {
    /// A wrapped call, by its id.
    Wrapped(u64),
    /// A function, by its place in [`Keys::functions`].
    Function(u32),
    /// Code of which nothing is known.
    Unknown,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Root,
    /// A call, by the address id of its site.
    Call(Option<u32>, Callee),
    /// A loop of a function.
    Loop(u32, LoopId),
    /// A place, by its address id.
    Leaf(u32),
}

/// What a key is to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A call, by the address id of its site; none for the outermost.
    Call(Option<u32>),
    /// A loop, by how many loops of its function are around it.
    Loop(usize),
    /// A place in the code, by its address id.
    Place(u32),
}

/// Where an address lies.
struct Spot {
    callee: Callee,
    /// In the module's file, within the instruction.
    address: u64,
    /// It is that of a call.
    is_call: bool,
    /// The loops around it, outermost first.
    loops: Box<[LoopId]>,
}

/// The frames of an address on the stack that was called from a site.
struct Expansion {
    outer: Box<[Frame]>,
    /// The place itself.
    leaf: Option<Frame>,
}

/// What a key stands for, by what does not depend on which was seen first: a kind, and up to four numbers.
type Name = (u8, u64, u64, u64, u64);

/// All keys of the trees of a process.
pub(crate) struct Keys {
    entries: Vec<Entry>,
    ids: HashMap<Entry, Key>,
    /// With the number of the process's module that each is in.
    functions: Vec<(u32, Arc<Function>)>,
    /// By where they lie in memory: they are held here, so nothing else comes to lie there.
    known: HashMap<usize, u32>,
    spots: IdMap<u32, Spot>,
    expansions: Vec<Expansion>,
    /// Their numbers, counted from 1: by site and id of the address, and by raw context, where 0 stands for
    /// none yet.
    by_pair: IdMap<u64, u32>,
    by_node: Vec<u32>,
    /// What was asked of the control flow: the same few questions, at each comparison of two iterations.
    answers: RefCell<IdMap<(u32, u32, u32), bool>>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            entries: vec![Entry::Root],
            ids: HashMap::from([(Entry::Root, ROOT)]),
            functions: Vec::new(),
            known: HashMap::new(),
            spots: IdMap::default(),
            expansions: Vec::new(),
            by_pair: IdMap::default(),
            by_node: Vec::new(),
            answers: RefCell::default(),
        }
    }
}

impl Keys {
    /// Adds the frames of a raw context inside its caller's: what was called, the loops in it, and
    /// where it `is_leaf` the place itself.
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

    /// The innermost loop around a raw context in the function that holds it, or the call of that function;
    /// `None` as long as no temporal context tree has come through the context.
    pub(crate) fn innermost(&self, node: RawId) -> Option<Key> {
        let number = *self.by_node.get(node as usize)?;
        let expansion = self.expansions.get((number as usize).checked_sub(1)?)?;
        expansion.outer.last().map(Frame::key)
    }

    /// The number of a context's expansion, counted from 1.
    fn find(&mut self, node: RawId, tree: &Tree, sources: &mut Sources<'_>) -> u32 {
        let (outer, id) = (tree.parent(node), tree.address(node));
        let site = (outer != tree::ROOT).then(|| tree.address(outer));
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

    fn make(&mut self, site: Option<u32>, id: u32, sources: &mut Sources<'_>) -> Expansion {
        if !self.spots.contains_key(&id) {
            let spot = self.look_up(id, sources);
            self.spots.insert(id, spot);
        }
        let spot = &self.spots[&id];
        let (callee, loops) = (spot.callee, spot.loops.clone());
        let mut outer = vec![Frame::call(self.key(Entry::Call(site, callee)))];
        if let Callee::Function(function) = callee {
            for it in &loops {
                outer.push(Frame::within_loop(self.key(Entry::Loop(function, *it))));
            }
        }
        let is_code = !matches!(callee, Callee::Wrapped(_));
        let leaf = is_code.then(|| Frame::leaf(self.key(Entry::Leaf(id))));
        Expansion { outer: outer.into(), leaf }
    }

    /// What a node under a site of its caller stands for: a call by where it is made, or a loop by how many
    /// loops of its function are around it, or a place in the code by its address id.
    pub(super) fn meaning(&self, key: Key) -> Option<Meaning> {
        match *self.entries.get(key.0 as usize)? {
            Entry::Root => Some(Meaning::Call(None)),
            Entry::Call(site, _) => Some(Meaning::Call(site)),
            Entry::Loop(function, id) => {
                let depth = self.functions[function as usize].1.loop_at(id).depth;
                Some(Meaning::Loop(depth as usize))
            }
            Entry::Leaf(place) => Some(Meaning::Place(place)),
        }
    }

    /// Where the function begins that a call calls, in its module's file.
    pub(super) fn entry(&self, key: Key) -> Option<u64> {
        match *self.entries.get(key.0 as usize)? {
            Entry::Call(_, Callee::Function(function)) => {
                Some(self.functions[function as usize].1.entry)
            }
            _ => None,
        }
    }

    /// Whether an address that was on the stack lies in what a key stands for, provided that its caller is
    /// the same.
    pub(super) fn holds(&self, key: Key, id: u32) -> bool {
        let (Some(entry), Some(spot)) = (self.entries.get(key.0 as usize), self.spots.get(&id))
        else {
            return false;
        };
        match *entry {
            Entry::Root => false,
            Entry::Call(_, callee) => spot.callee == callee,
            Entry::Loop(function, it) => {
                spot.callee == Callee::Function(function) && spot.loops.contains(&it)
            }
            Entry::Leaf(place) => place == id,
        }
    }

    /// Where a call or a loop stands in the code of the function that holds it, in an order in which nothing
    /// comes before what can run before it without a back edge ([`Function::position`]).
    pub(super) fn position(&self, key: Key) -> Option<u64> {
        let function = match *self.entries.get(key.0 as usize)? {
            Entry::Call(site, _) => match self.spots.get(&site?)?.callee {
                Callee::Function(function) => function,
                _ => return None,
            },
            Entry::Loop(function, _) => function,
            _ => return None,
        };
        self.functions[function as usize].1.position(self.child(key)?)
    }

    /// Calls that a function may have made and returned from on its shortest way from one address on the
    /// stack to another, by their addresses in its module's file; `None` where nothing can be said. Without
    /// `from`, it was called meanwhile, and without `to` it has returned. A call in a loop of which nothing
    /// was seen is none of them: how often it was made nobody knows.
    pub(crate) fn passed(&self, from: Option<u32>, to: Option<u32>) -> Option<Vec<u64>> {
        let spot = |id: Option<u32>| id.and_then(|id| self.spots.get(&id));
        let (one, other) = (spot(from), spot(to));
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
                let place = |spot: &Spot| function.child(around, spot.address);
                !function.can_follow(around, place(one)?, place(other)?)?
            }
            _ => false,
        };
        if goes_around && around.is_none() {
            return None;
        }
        // Loops that it has left are finished from where it was, those that it has entered begun up to
        // where it is.
        let within = |spot: Option<&Spot>| -> Vec<LoopId> {
            let loops = spot.into_iter().flat_map(|spot| function.loops_around(spot.address));
            loops.take_while(|it| Some(*it) != around).collect()
        };
        let (left, entered) = (within(one), within(other));
        let is_passed = |call: &u64| {
            let directly_in = function.innermost_loop(*call);
            let child = Child::Code(*call);
            let place = |spot: &Spot| function.child(directly_in, spot.address);
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
        // The call that it is in has not returned.
        let open = other
            .filter(|other| other.is_call)
            .and_then(|other| function.calls().iter().rev().find(|call| **call <= other.address));
        let calls = function.calls().iter().filter(|call| Some(*call) != open);
        Some(calls.copied().filter(is_passed).collect())
    }

    /// All functions but the first `known`, each with the number of its module.
    pub(crate) fn functions_since(&self, known: usize) -> &[(u32, Arc<Function>)] {
        self.functions.get(known..).unwrap_or_default()
    }

    /// Memory in use, roughly; functions belong to their modules.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<Entry>() * 2 + size_of::<Key>();
        let spots = self.spots.capacity() * (size_of::<Spot>() + 4);
        let frames: usize = self.expansions.iter().map(|it| size_of_val(&*it.outer)).sum();
        let expansions = self.expansions.capacity() * size_of::<Expansion>() + frames;
        let numbers = self.by_pair.capacity() * 13 + self.by_node.capacity() * 4;
        let answers = self.answers.borrow().capacity() * (size_of::<((u32, u32, u32), bool)>() + 1);
        (self.entries.capacity() * each + spots + expansions + numbers + answers) as u64
    }

    fn key(&mut self, entry: Entry) -> Key {
        let entries = &mut self.entries;
        *self.ids.entry(entry).or_insert_with(|| {
            entries.push(entry);
            Key(entries.len() as u32 - 1)
        })
    }

    fn look_up(&mut self, id: u32, sources: &mut Sources<'_>) -> Spot {
        let nothing = |callee| Spot { callee, address: 0, is_call: false, loops: Box::default() };
        let Some((value, number, _)) = sources.tables.address(id) else {
            return nothing(Callee::Unknown);
        };
        if value < FIRST_CODE_ADDRESS {
            return nothing(Callee::Wrapped(value));
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
        Spot { callee, address: address_in_file, is_call, loops: loops.into() }
    }

    fn name(&self, key: Key) -> Option<Name> {
        let place = |function: u32| {
            let (module, function) = &self.functions[function as usize];
            (u64::from(*module), function.entry)
        };
        let name = match *self.entries.get(key.0 as usize)? {
            Entry::Root => (0, 0, 0, 0, 0),
            Entry::Call(site, callee) => {
                let site = site.map_or(0, |site| u64::from(site) + 1);
                match callee {
                    Callee::Unknown => (1, site, 0, 0, 0),
                    Callee::Wrapped(call) => (1, site, 1, call, 0),
                    Callee::Function(function) => {
                        let (module, entry) = place(function);
                        (1, site, 2, module, entry)
                    }
                }
            }
            Entry::Loop(function, id) => {
                let (module, entry) = place(function);
                (2, u64::from(id.0), 0, module, entry)
            }
            Entry::Leaf(id) => (3, u64::from(id), 0, 0, 0),
        };
        Some(name)
    }

    fn child(&self, key: Key) -> Option<Child> {
        let address = |id: u32| self.spots.get(&id).map(|spot| Child::Code(spot.address));
        match *self.entries.get(key.0 as usize)? {
            Entry::Root => None,
            Entry::Call(site, _) => address(site?),
            Entry::Loop(_, id) => Some(Child::Loop(id)),
            Entry::Leaf(id) => address(id),
        }
    }

    /// [`ControlFlow::precedes`], found out.
    fn can_precede(&self, parent: Key, one: Key, other: Key) -> bool {
        let (function, around) = match self.entries.get(parent.0 as usize) {
            Some(Entry::Call(_, Callee::Function(function))) => (*function, None),
            Some(Entry::Loop(function, id)) => (*function, Some(*id)),
            _ => return false,
        };
        let (Some(one), Some(other)) = (self.child(one), self.child(other)) else { return false };
        self.functions[function as usize].1.can_follow(around, one, other).unwrap_or(false)
    }
}

impl ControlFlow for Keys {
    fn precedes(&self, parent: Key, one: Key, other: Key) -> bool {
        let question = (parent.0, one.0, other.0);
        let mut answers = self.answers.borrow_mut();
        if let Some(known) = answers.get(&question) {
            return *known;
        }
        if answers.len() >= MOST_ANSWERS {
            answers.clear();
        }
        let answer = self.can_precede(parent, one, other);
        answers.insert(question, answer);
        answer
    }

    /// The same whichever thread came where first.
    fn order(&self, one: Key, other: Key) -> Ordering {
        self.name(one).cmp(&self.name(other)).then(one.cmp(&other))
    }

    fn is_recorded(&self, call: Key) -> bool {
        let entry = self.entries.get(call.0 as usize);
        matches!(entry, Some(Entry::Call(_, Callee::Wrapped(_))))
    }
}
