//! Address table of one process: what each address id stands for, and the names of sampled
//! addresses.
//!
//! The kind of an address (code or wrapped call) is needed as soon as a stack arrives. Names are
//! looked up between drains, so that neither the drain nor the end of the run waits for symbol
//! tables.

mod agenda;
mod naming;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_calls::{CallId, FIRST_CODE_ADDRESS, call};
use plimsoll_wire::segment::{
    ADDRESS_IS_CONSTRUCT, ADDRESS_IS_DECLARED, ADDRESS_IS_LEAF, MAX_ADDRESSES, script_place,
};
use serde::{Deserialize, Serialize};

use crate::profile::{Frame, LateFunction};
use crate::raw_tree::{IdMap, RawId, Tree};
use crate::spooling::meta::NameMeta;
use crate::tables::Tables;
use plimsoll_binary::{Location, ModuleId, Structures};

use naming::Module;
pub(crate) use naming::{OWN_LIBRARY, Role, is_only_interpreter, locate};

/// Kind of an address id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code.
    Code,
    /// A wrapped call, or a function that a rule declares to synchronise ranks.
    Call,
}

/// Depth of the lookup that an address needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Detail {
    /// Function name only: used for code inside wrapped calls, which is not the user's.
    Symbol,
    /// Function name, and the enclosing loops and inlined calls where the code is the user's.
    Structure,
}

impl Detail {
    /// Returns the detail needed for addresses directly inside the context `outer`.
    pub(crate) fn of(tree: &Tree, outer: RawId) -> Self {
        if tree.in_call(outer) { Self::Symbol } else { Self::Structure }
    }
}

/// Number of samples of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    /// Samples taken at the address itself.
    pub(crate) own: u64,
    /// Samples taken at the address and in its callees; a recursive call counts once per
    /// activation.
    pub(crate) all: u64,
}

/// Lookup request of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Detail to be looked up.
    pub(crate) detail: Detail,
    /// Samples at the address; they decide the order of lookups.
    pub(crate) samples: Samples,
}

/// Function, identified by its module and its entry address in the module's file.
pub(crate) type FunctionKey = (ModuleId, u64);

/// Result of an address lookup.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Function or call as an index into [`Addresses::frames`].
    pub(crate) frame: u32,
    /// Frames between the function and the address (loops and inlined calls), outermost first, as
    /// indices into [`Addresses::frames`].
    pub(crate) steps: Box<[u32]>,
    /// Address in the module's file; 0 for wrapped calls.
    pub(crate) offset: u64,
    /// Role of the function at the outer end of a stack.
    pub(crate) role: Role,
    /// Detail that was looked up.
    pub(crate) detail: Detail,
    /// Function that contains the address; `None` if unknown.
    pub(crate) function: Option<FunctionKey>,
    /// Source line of a function, for the address at which it begins, or of a construct of OpenMP;
    /// `None` for all other addresses, and without debug information.
    pub(crate) begin: Option<Location>,
    /// Source line of the call that returns to the address, in the innermost inlined function;
    /// `None` for all other addresses, without structure, and without debug information.
    pub(crate) call_line: Option<Location>,
}

#[derive(Clone, Copy)]
struct Raw {
    value: u64,
    module: u32,
    leaf: bool,
    /// Whether the source line of the address is wanted.
    construct: bool,
    /// Whether the address stands for a declared function as a whole.
    declared: bool,
    detail: Detail,
}

/// All addresses that appeared in the records of a process.
#[derive(Default)]
pub(crate) struct Addresses {
    /// Entries indexed by address id; a process numbers its addresses from 1.
    seen: Vec<Option<Raw>>,
    /// Ids of addresses that still need a lookup of their function or structure.
    waiting: Vec<u32>,
    /// Ids of named addresses that still lack their structure, in reverse order of lookup.
    agenda: Vec<u32>,
    /// Set if ids were added to `agenda` since it was last sorted.
    is_unordered: bool,
    put_off: IdMap<u32, Raw>,
    named: IdMap<u32, Named>,
    /// Ids in the order in which they were named; an id may occur more than once.
    order: Vec<u32>,
    frames: Vec<Frame>,
    frame_ids: std::collections::HashMap<Frame, u32>,
    /// Source files of names that were recorded in a spool.
    files: HashSet<Arc<str>>,
    modules: IdMap<u32, Option<Module>>,
    /// Numbers of the modules that only hold an interpreter that executes functions of scripts.
    interpreters: HashSet<u32>,
    /// Whether functions of scripts were executed.
    has_scripts: bool,
}

impl Addresses {
    /// Returns the kind of address `id` and requests at least `detail` for it. Returns `None` if
    /// `id` was never announced or stands for a call unknown to this build.
    pub(crate) fn kind(&mut self, id: u32, detail: Detail, tables: &dyn Tables) -> Option<Kind> {
        let raw = match self.seen.get_mut(id as usize) {
            Some(Some(raw)) => {
                if raw.detail < detail {
                    raw.detail = detail;
                    self.waiting.push(id);
                }
                *raw
            }
            Some(None) | None => {
                // Bound for ids read from a corrupt spool: no process has more addresses.
                if id as usize >= MAX_ADDRESSES {
                    return None;
                }
                let (value, module, flags) = tables.address(id)?;
                let [leaf, construct, declared] =
                    [ADDRESS_IS_LEAF, ADDRESS_IS_CONSTRUCT, ADDRESS_IS_DECLARED]
                        .map(|flag| flags & flag != 0);
                let raw = Raw { value, module, leaf, construct, declared, detail };
                if value < FIRST_CODE_ADDRESS {
                    call(value as CallId)?;
                }
                if self.seen.len() <= id as usize {
                    self.seen.resize(id as usize + 1, None);
                }
                self.seen[id as usize] = Some(raw);
                self.waiting.push(id);
                self.has_scripts |= script_place(value).is_some();
                if script_place(value).is_some() && is_only_interpreter(module, tables) {
                    self.interpreters.insert(module);
                }
                raw
            }
        };
        let is_call = raw.value < FIRST_CODE_ADDRESS || raw.declared;
        Some(if is_call { Kind::Call } else { Kind::Code })
    }

    /// Returns whether `id` stands for a function that a rule declares to synchronise ranks.
    pub(crate) fn is_declared(&self, id: u32) -> bool {
        self.seen.get(id as usize).and_then(Option::as_ref).is_some_and(|raw| raw.declared)
    }

    /// Returns whether functions of scripts were executed.
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Returns whether an address stands for a function of a script.
    pub(crate) fn is_of_script(&self, id: u32) -> bool {
        self.raw(id).is_some_and(|raw| script_place(raw.value).is_some())
    }

    /// Returns whether an address is code of an interpreter that executes functions of scripts.
    pub(crate) fn is_in_interpreter(&self, id: u32) -> bool {
        self.raw(id).is_some_and(|raw| {
            script_place(raw.value).is_none() && self.interpreters.contains(&raw.module)
        })
    }

    /// Returns whether `id` was announced as code.
    pub(crate) fn is_code(&mut self, id: u32, tables: &dyn Tables) -> bool {
        self.kind(id, Detail::Symbol, tables) == Some(Kind::Code)
    }

    /// Returns whether any address lacks a name or the requested detail.
    pub(crate) fn has_nameless(&self) -> bool {
        !self.waiting.is_empty() || !self.agenda.is_empty()
    }

    /// Looks up pending addresses for at most `limit`: first the function of every address, then
    /// structure in descending order of samples.
    pub(crate) fn name_some(
        &mut self,
        limit: Duration,
        samples: impl FnOnce() -> IdMap<u32, Samples>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        let begin = Instant::now();
        while begin.elapsed() < limit
            && let Some(id) = self.waiting.pop()
        {
            if !self.name(id, Detail::Symbol, tables, structures) {
                self.waiting.push(id);
                return;
            }
            self.agenda.push(id);
            self.is_unordered = true;
        }
        if self.waiting.is_empty() && self.is_unordered {
            let (samples, agenda) = (samples(), std::mem::take(&mut self.agenda));
            let all = |id: u32| samples.get(&id).map_or(0, |samples| samples.all);
            self.agenda = self.in_order(agenda, all, tables, structures);
            self.agenda.reverse();
            self.is_unordered = false;
        }
        while begin.elapsed() < limit
            && !self.is_unordered
            && let Some(id) = self.agenda.pop()
        {
            if !self.name(id, Detail::Structure, tables, structures) {
                self.agenda.push(id);
                return;
            }
        }
    }

    /// Names the addresses `ids` and sets the detail of each to exactly the requested one, so that
    /// no result depends on lookups made by chance during the run. If the deadline of `structures`
    /// has passed, the whole function is left without structure; otherwise some of its samples
    /// would be attributed to its loops and others would not.
    pub(crate) fn name_all(
        &mut self,
        ids: impl IntoIterator<Item = (u32, Use)>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        self.waiting.clear();
        self.agenda.clear();
        let mut ids: Vec<(u32, Use)> = ids.into_iter().collect();
        // Some may not be named by the deadline: those with the fewest samples.
        ids.sort_unstable_by_key(|(id, used)| (std::cmp::Reverse(used.samples.all), *id));
        let mut samples: IdMap<u32, u64> = IdMap::default();
        for (id, used) in &ids {
            let seen = self.seen.get_mut(*id as usize).and_then(Option::as_mut);
            if let Some(raw) = seen.or_else(|| self.put_off.get_mut(id)) {
                raw.detail = used.detail;
            }
            if !self.name(*id, Detail::Symbol, tables, structures) {
                self.name_by_module(*id, tables, structures);
            }
            samples.insert(*id, used.samples.all);
        }
        let agenda = ids.iter().map(|(id, _)| *id).collect();
        let all = |id: u32| samples.get(&id).copied().unwrap_or_default();
        for id in self.in_order(agenda, all, tables, structures) {
            if !self.name(id, Detail::Structure, tables, structures)
                && let Some(function) = self.named.get(&id).and_then(|named| named.function)
            {
                structures.give_up(function);
            }
        }
    }

    /// Removes the loops, inlined calls and lines of calls of addresses that need only a symbol,
    /// and of all functions given up at the deadline. Returns the latter functions in descending
    /// order of samples.
    pub(crate) fn without_structure(
        &mut self,
        ids: impl IntoIterator<Item = (u32, Use)>,
        structures: &Structures,
    ) -> Vec<LateFunction> {
        let mut late: std::collections::HashMap<FunctionKey, (u32, u64)> = Default::default();
        for (id, used) in ids {
            let Some(named) = self.named.get_mut(&id) else { continue };
            let given_up = |function: &FunctionKey| structures.is_given_up(*function);
            if used.detail == Detail::Symbol {
                (named.steps, named.call_line) = (Box::default(), None);
            } else if let Some(function) = named.function.filter(given_up) {
                (named.steps, named.call_line) = (Box::default(), None);
                named.detail = Detail::Symbol;
                late.entry(function).or_insert((named.frame, 0)).1 += used.samples.own;
            }
        }
        let of =
            |(frame, samples)| LateFunction { name: self.frame(frame).function.clone(), samples };
        let mut late: Vec<LateFunction> = late.into_values().map(of).collect();
        late.sort_by(|one, other| {
            other.samples.cmp(&one.samples).then_with(|| one.name.cmp(&other.name))
        });
        late
    }

    /// Defers pending lookups until the address is seen again or [`Addresses::name_all`] runs.
    pub(crate) fn put_off(&mut self) {
        for id in self.waiting.drain(..).chain(self.agenda.drain(..)) {
            let is_known = |named: &Named, raw: &Raw| named.detail >= raw.detail;
            let seen = self.seen.get_mut(id as usize);
            let named = self.named.get(&id);
            if let Some(seen) = seen
                && let Some(raw) = seen.take_if(|raw| !named.is_some_and(|it| is_known(it, raw)))
            {
                self.put_off.insert(id, raw);
            }
        }
    }

    fn raw(&self, id: u32) -> Option<Raw> {
        let seen = self.seen.get(id as usize).copied().flatten();
        seen.or_else(|| self.put_off.get(&id).copied())
    }

    /// Looks up `detail` of an address, limited to the detail requested for it. Returns `false` if
    /// the lookup was abandoned because the deadline has passed.
    fn name(
        &mut self,
        id: u32,
        detail: Detail,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> bool {
        let Some(raw) = self.raw(id) else { return true };
        let raw = Raw { detail: raw.detail.min(detail), ..raw };
        let known = self.named.get(&id).cloned();
        if known.as_ref().is_some_and(|named| named.detail >= raw.detail) {
            return true;
        }
        let Some(named) = self.look_up(raw, known, tables, structures) else { return false };
        self.named.insert(id, named);
        self.order.push(id);
        true
    }

    /// Names an address by its module alone, for functions not looked up by the deadline.
    fn name_by_module(&mut self, id: u32, tables: &dyn Tables, structures: &mut Structures) {
        let Some(raw) = self.raw(id) else { return };
        let named = self.look_up_module(raw, tables, structures);
        self.named.insert(id, named);
        self.order.push(id);
    }

    /// Imports a symbol name that was recorded in a spool.
    pub(crate) fn learn(&mut self, name: &NameMeta) {
        let frame = self.intern(name.frame.clone());
        let steps = name.steps.iter().map(|step| self.intern(step.clone())).collect();
        let NameMeta { offset, role, detail, .. } = *name;
        let [begin, call_line] = [&name.begin, &name.call_line].map(|recorded| {
            let (file, line) = recorded.as_ref()?;
            Some(Location { file: self.file(file), line: *line })
        });
        let named = Named { frame, steps, offset, role, detail, function: None, begin, call_line };
        self.named.insert(name.id, named);
    }

    /// Returns the number of names added so far; an id may count more than once.
    pub(crate) fn names(&self) -> usize {
        self.order.len()
    }

    /// Returns the names added since the first `known` ones, each id once.
    pub(crate) fn named_since(&self, process: u32, known: usize) -> impl Iterator<Item = NameMeta> {
        let new = self.order.get(known..).unwrap_or_default().iter();
        let mut passed = HashSet::new();
        let recorded = |line: &Location| (line.file.to_string(), line.line);
        new.filter(move |id| passed.insert(**id)).filter_map(move |id| {
            let named = self.named.get(id)?;
            Some(NameMeta {
                process,
                id: *id,
                offset: named.offset,
                role: named.role,
                detail: named.detail,
                frame: self.frame(named.frame).clone(),
                steps: named.steps.iter().map(|step| self.frame(*step).clone()).collect(),
                begin: named.begin.as_ref().map(recorded),
                call_line: named.call_line.as_ref().map(recorded),
            })
        })
    }

    /// Returns the name of an address, or `None` if it has not been looked up.
    pub(crate) fn named(&self, id: u32) -> Option<&Named> {
        self.named.get(&id)
    }

    /// Returns the frame at `index`.
    pub(crate) fn frame(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let frames: usize = self.frames.iter().map(|f| f.function.len() + f.module.len()).sum();
        (self.seen.capacity() * size_of::<Option<Raw>>()
            + self.named.capacity() * size_of::<(u32, Named)>()
            + 2 * (frames + self.frames.capacity() * size_of::<Frame>())) as u64
    }

    /// Returns the name of a source file, which all recorded names share.
    fn file(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.files.get(name) {
            return known.clone();
        }
        let file = Arc::from(name);
        self.files.insert(Arc::clone(&file));
        file
    }

    fn intern(&mut self, frame: Frame) -> u32 {
        if let Some(index) = self.frame_ids.get(&frame) {
            return *index;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, index);
        index
    }
}
