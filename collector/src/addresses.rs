//! The addresses of one process: what each id stands for, and the names of those that were seen.
//!
//! Kinds are needed at once, when a stack arrives; names are looked up between, so that neither
//! the drain nor the end of the run waits for symbol tables.

mod naming;

use std::time::{Duration, Instant};

use plimsoll_agent::calls::{CallId, FIRST_CODE_ADDRESS, call};
use plimsoll_agent::segment::{ADDRESS_IS_LEAF, MAX_ADDRESSES};
use serde::{Deserialize, Serialize};

use crate::profile::Frame;
use crate::spool::meta::NameMeta;
use crate::structure::Structures;
use crate::tables::Tables;
use crate::tree::{IdMap, RawId, Tree};

use naming::Module;
pub(crate) use naming::{Role, locate};

/// What an address id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code.
    Code,
    /// A wrapped call.
    Call,
}

/// How much is to be known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Detail {
    /// Which function it is in: of code inside wrapped calls, which is not the user's.
    Symbol,
    /// The loops and inlined calls around it, too, where it is the user's code.
    Structure,
}

impl Detail {
    /// Of what stands directly inside a context.
    pub(crate) fn of(tree: &Tree, outer: RawId) -> Self {
        if tree.in_call(outer) { Self::Symbol } else { Self::Structure }
    }
}

/// A frame with its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Index into [`Addresses::frames`].
    pub(crate) frame: u32,
    /// Frames between it and the address: loops and inlined calls, outermost first; likewise.
    pub(crate) steps: Box<[u32]>,
    /// The address in its module's file; 0 for wrapped calls.
    pub(crate) offset: u64,
    /// Its role.
    pub(crate) role: Role,
    /// How much of it was looked up.
    pub(crate) detail: Detail,
}

#[derive(Clone, Copy)]
struct Raw {
    value: u64,
    module: u32,
    leaf: bool,
    detail: Detail,
}

/// All addresses of a process that were seen.
#[derive(Default)]
pub(crate) struct Addresses {
    /// By id: a process numbers them from 1 on.
    seen: Vec<Option<Raw>>,
    waiting: Vec<u32>,
    put_off: IdMap<u32, Raw>,
    named: IdMap<u32, Named>,
    /// Their ids, in the order in which they were named.
    order: Vec<u32>,
    frames: Vec<Frame>,
    frame_ids: std::collections::HashMap<Frame, u32>,
    modules: IdMap<u32, Option<Module>>,
}

impl Addresses {
    /// What `id` stands for, of which so much is to be known; `None` if it was never announced or is a
    /// call that this build does not know.
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
                // No process has more: a spool may say anything.
                if id as usize >= MAX_ADDRESSES {
                    return None;
                }
                let (value, module, flags) = tables.address(id)?;
                let raw = Raw { value, module, leaf: flags & ADDRESS_IS_LEAF != 0, detail };
                if value < FIRST_CODE_ADDRESS {
                    call(value as CallId)?;
                }
                if self.seen.len() <= id as usize {
                    self.seen.resize(id as usize + 1, None);
                }
                self.seen[id as usize] = Some(raw);
                self.waiting.push(id);
                raw
            }
        };
        Some(if raw.value < FIRST_CODE_ADDRESS { Kind::Call } else { Kind::Code })
    }

    /// Whether `id` was announced as code.
    pub(crate) fn is_code(&mut self, id: u32, tables: &dyn Tables) -> bool {
        self.kind(id, Detail::Symbol, tables) == Some(Kind::Code)
    }

    /// Whether there are addresses without a name, or of which more is to be known.
    pub(crate) fn has_nameless(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Names addresses that have no name yet, for so long at most.
    pub(crate) fn name_some(
        &mut self,
        limit: Duration,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        let begin = Instant::now();
        while begin.elapsed() < limit
            && let Some(id) = self.waiting.pop()
        {
            self.name(id, tables, structures);
        }
    }

    /// Names these addresses, and lets exactly so much be known of each: what else was known of one was
    /// so by chance.
    pub(crate) fn name_all(
        &mut self,
        ids: impl IntoIterator<Item = (u32, Detail)>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        self.waiting.clear();
        for (id, detail) in ids {
            let seen = self.seen.get_mut(id as usize).and_then(Option::as_mut);
            if let Some(raw) = seen.or_else(|| self.put_off.get_mut(&id)) {
                raw.detail = detail;
            }
            self.name(id, tables, structures);
            if let Some(named) = self.named.get_mut(&id).filter(|named| named.detail > detail) {
                named.steps = Box::default();
            }
        }
    }

    /// Leaves addresses without a name until they are seen again, or all are named.
    pub(crate) fn put_off(&mut self) {
        for id in self.waiting.drain(..) {
            if !self.named.contains_key(&id) {
                let seen = self.seen.get_mut(id as usize).and_then(Option::take);
                self.put_off.extend(seen.map(|raw| (id, raw)));
            }
        }
    }

    fn name(&mut self, id: u32, tables: &dyn Tables, structures: &mut Structures) {
        let seen = self.seen.get(id as usize).copied().flatten();
        let Some(raw) = seen.or_else(|| self.put_off.get(&id).copied()) else { return };
        if self.named.get(&id).is_none_or(|named| named.detail < raw.detail) {
            let named = self.look_up(raw, tables, structures);
            self.named.insert(id, named);
            self.order.push(id);
        }
    }

    /// Takes the name of an address from who has looked it up before.
    pub(crate) fn learn(&mut self, name: &NameMeta) {
        let frame = self.intern(name.frame.clone());
        let steps = name.steps.iter().map(|step| self.intern(step.clone())).collect();
        let NameMeta { offset, role, detail, .. } = *name;
        self.named.insert(name.id, Named { frame, steps, offset, role, detail });
    }

    /// All names but the first `known`.
    pub(crate) fn named_since(&self, process: u32, known: usize) -> impl Iterator<Item = NameMeta> {
        let new = self.order.get(known..).unwrap_or_default().iter();
        new.filter_map(move |id| {
            let named = self.named.get(id)?;
            Some(NameMeta {
                process,
                id: *id,
                offset: named.offset,
                role: named.role,
                detail: named.detail,
                frame: self.frame(named.frame).clone(),
                steps: named.steps.iter().map(|step| self.frame(*step).clone()).collect(),
            })
        })
    }

    /// The frame of an address that has been named.
    pub(crate) fn named(&self, id: u32) -> Option<&Named> {
        self.named.get(&id)
    }

    /// A distinct frame, by its index.
    pub(crate) fn frame(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let frames: usize = self.frames.iter().map(|f| f.function.len() + f.module.len()).sum();
        (self.seen.capacity() * size_of::<Option<Raw>>()
            + self.named.capacity() * size_of::<(u32, Named)>()
            + 2 * (frames + self.frames.capacity() * size_of::<Frame>())) as u64
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
