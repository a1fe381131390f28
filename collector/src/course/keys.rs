//! What the keys of a temporal context tree stand for, and which of them can follow which.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_agent::calls::FIRST_CODE_ADDRESS;

use super::Sources;
use crate::addresses::locate;
use crate::clusters::{ControlFlow, Frame, Key};
use crate::structure::{Child, Function, LoopId};
use crate::tree::IdMap;

/// The thread.
pub(super) const ROOT: Key = Key(0);

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

/// Where an address lies.
struct Spot {
    callee: Callee,
    /// In the module's file, within the instruction.
    address: u64,
    /// The loops around it, outermost first.
    loops: Box<[LoopId]>,
}

/// The frames of an address on the stack that was called from a site.
struct Expansion {
    outer: Box<[Frame]>,
    /// The place itself.
    leaf: Option<Frame>,
}

/// All keys of a tree.
pub(crate) struct Keys {
    entries: Vec<Entry>,
    ids: HashMap<Entry, Key>,
    functions: Vec<Arc<Function>>,
    /// By where they lie in memory: they are held here, so nothing else comes to lie there.
    known: HashMap<usize, u32>,
    spots: IdMap<u32, Spot>,
    /// By site and id of the address.
    expansions: IdMap<u64, Expansion>,
    /// Of each loop an address id in it, and how many loops of its function are around it.
    samples: HashMap<Key, (u32, usize)>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            entries: vec![Entry::Root],
            ids: HashMap::from([(Entry::Root, ROOT)]),
            functions: Vec::new(),
            known: HashMap::new(),
            spots: IdMap::default(),
            expansions: IdMap::default(),
            samples: HashMap::new(),
        }
    }
}

impl Keys {
    /// Adds the frames of an address on the stack: what was called from `site`, the loops in it, and
    /// where it `is_leaf` the place itself.
    pub(super) fn expand(
        &mut self,
        site: Option<u32>,
        id: u32,
        is_leaf: bool,
        frames: &mut Vec<Frame>,
        sources: &mut Sources<'_>,
    ) {
        let pair = u64::from(site.map_or(0, |site| site + 1)) << 32 | u64::from(id);
        let expansion = match self.expansions.get(&pair) {
            Some(known) => known,
            None => {
                let new = self.make(site, id, sources);
                self.expansions.entry(pair).or_insert(new)
            }
        };
        frames.extend_from_slice(&expansion.outer);
        if is_leaf {
            frames.extend(expansion.leaf);
        }
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
            for (depth, it) in loops.iter().enumerate() {
                let key = self.key(Entry::Loop(function, *it));
                self.samples.entry(key).or_insert((id, depth));
                outer.push(Frame::within_loop(key));
            }
        }
        let is_code = !matches!(callee, Callee::Wrapped(_));
        let leaf = is_code.then(|| Frame::leaf(self.key(Entry::Leaf(id))));
        Expansion { outer: outer.into(), leaf }
    }

    /// The address id from which a call was made; `None` if the key is no call's, or the outermost.
    pub(super) fn site(&self, key: Key) -> Option<u32> {
        match self.entries.get(key.0 as usize)? {
            Entry::Call(site, _) => *site,
            _ => None,
        }
    }

    /// An address id in a loop, and how many loops of its function are around it.
    pub(super) fn sample(&self, key: Key) -> Option<(u32, usize)> {
        self.samples.get(&key).copied()
    }

    /// Memory in use, roughly; functions belong to their modules.
    pub(super) fn bytes(&self) -> u64 {
        let each = size_of::<Entry>() * 2 + size_of::<Key>();
        let spots = self.spots.capacity() * (size_of::<Spot>() + 4);
        let frames: usize = self.expansions.values().map(|it| size_of_val(&*it.outer)).sum();
        let expansions = self.expansions.capacity() * (size_of::<Expansion>() + 8) + frames;
        let samples = self.samples.capacity() * 24;
        (self.entries.capacity() * each + spots + expansions + samples) as u64
    }

    fn key(&mut self, entry: Entry) -> Key {
        let entries = &mut self.entries;
        *self.ids.entry(entry).or_insert_with(|| {
            entries.push(entry);
            Key(entries.len() as u32 - 1)
        })
    }

    fn look_up(&mut self, id: u32, sources: &mut Sources<'_>) -> Spot {
        let nothing = |callee| Spot { callee, address: 0, loops: Box::default() };
        let Some((value, _, _)) = sources.tables.address(id) else {
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
            functions.push(function.clone());
            functions.len() as u32 - 1
        });
        let callee = Callee::Function(number);
        Spot { callee, address: address_in_file, loops: loops.into() }
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
}

impl ControlFlow for Keys {
    fn precedes(&self, parent: Key, one: Key, other: Key) -> bool {
        let (function, around) = match self.entries.get(parent.0 as usize) {
            Some(Entry::Call(_, Callee::Function(function))) => (*function, None),
            Some(Entry::Loop(function, id)) => (*function, Some(*id)),
            _ => return false,
        };
        let (Some(one), Some(other)) = (self.child(one), self.child(other)) else { return false };
        self.functions[function as usize].can_follow(around, one, other).unwrap_or(false)
    }

    fn is_recorded(&self, call: Key) -> bool {
        let entry = self.entries.get(call.0 as usize);
        matches!(entry, Some(Entry::Call(_, Callee::Wrapped(_))))
    }
}
