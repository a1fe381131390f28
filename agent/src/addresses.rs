//! Interned addresses: each distinct address is checked and numbered once per process.
//!
//! The handler looks every frame's address up here. A known one costs a hash probe and is thereby
//! known to be plausible; a new one is checked against the loaded modules, gets the next id, and
//! is announced to readers by its entry in the segment's address table.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cfi::{CfiScratch, FrameRule, judge};
use crate::marks::{self, Markable};
use crate::modules::{Snapshot, asks_for_caller};
use crate::plausible::{SIGNAL_RETURN, follows_call};
use plimsoll_calls::FIRST_CODE_ADDRESS;
use plimsoll_wire::segment::{ADDRESS_IS_LEAF, Address, MAX_ADDRESSES};

/// Entries of the hash table: twice the ids, so that probes stay short.
const TABLE: usize = 2 * MAX_ADDRESSES;
/// Longest probe before an address is given up.
const PROBES: usize = 64;
/// Probes near the addresses of the same stretch of code, before they go on elsewhere.
const NEAR_PROBES: usize = 16;
/// A stretch of code, in bytes as a power of two, whose addresses stand in one page of the table.
const STRETCH: u32 = 12;
/// Entries of the table in one page.
const PAGE: usize = 4096 / size_of::<Entry>();
/// Most frames with a rule of their own.
const MAX_RULES: usize = 8192;

/// Marks program counters in keys: the same value may also be a return address.
const LEAF_KEY: u64 = 1 << 63;

/// Payload: id in the low half, rule index plus one above, flags on top.
const SIGNAL_RETURN_PAYLOAD: u64 = 1 << 63;
/// The code was unloaded: what lies there now is to be looked at before the entry counts again.
const UNLOADED_PAYLOAD: u64 = 1 << 62;
const RULE_BITS: u32 = 0x3fff_ffff;

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interned {
    /// Its id.
    pub id: u32,
    /// Index of its frame rule, if framehop cannot step over its frame.
    pub rule: Option<u32>,
    /// It is the kernel's signal return: the frame is a signal frame.
    pub signal_return: bool,
}

impl Interned {
    fn from_payload(payload: u64) -> Self {
        let rule = (payload >> 32) as u32 & RULE_BITS;
        Self {
            id: payload as u32,
            rule: rule.checked_sub(1),
            signal_return: payload & SIGNAL_RETURN_PAYLOAD != 0,
        }
    }
}

/// Why an address was not interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It lies in no executable module, or follows no call.
    Implausible,
    /// The tables are full, or another thread is just entering it.
    NoRoom,
}

struct Entry {
    key: AtomicU64,
    payload: AtomicU64,
}

/// A process's table of addresses. Lives in zeroed memory of its own.
pub struct Addresses {
    entries: [Entry; TABLE],
    rules: [core::cell::UnsafeCell<core::mem::MaybeUninit<FrameRule>>; MAX_RULES],
    rule_count: AtomicU32,
    /// What may be marked, by id.
    pub markable: Markable,
}

// SAFETY: entries are atomic; a rule is written once by the thread that reserved its index and
// read by others only after an entry's payload has published it.
unsafe impl Sync for Addresses {}

impl Addresses {
    /// The id of a return address, or of a program counter if `leaf`.
    #[inline]
    pub fn intern(
        &self,
        value: u64,
        leaf: bool,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        let key = value | if leaf { LEAF_KEY } else { 0 };
        match self.find(key) {
            Found::Payload(payload) => Ok(Interned::from_payload(payload)),
            Found::Room(_) | Found::Unloaded(..) => {
                self.enter(key, value, leaf, published, snapshot, scratch)
            }
            Found::Nothing => Err(Refused::NoRoom),
        }
    }

    /// The rule of an interned address.
    pub fn rule(&self, index: u32) -> FrameRule {
        // SAFETY: indices come from published payloads only, whose rule was written before.
        unsafe { (*self.rules[index as usize].get()).assume_init() }
    }

    #[inline]
    fn find(&self, key: u64) -> Found {
        for at in probe(key) {
            let entry = &self.entries[at];
            match entry.key.load(Ordering::Acquire) {
                0 => return Found::Room(at),
                found if found == key => {
                    return match entry.payload.load(Ordering::Acquire) {
                        0 => Found::Nothing,
                        payload if payload & UNLOADED_PAYLOAD != 0 => Found::Unloaded(at, payload),
                        payload => Found::Payload(payload),
                    };
                }
                _ => {}
            }
        }
        Found::Nothing
    }

    #[cold]
    fn enter(
        &self,
        key: u64,
        value: u64,
        leaf: bool,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        let mut payload = 0;
        let mut module_number = 0;
        let mut sensitive = false;
        if value >= FIRST_CODE_ADDRESS {
            let module = snapshot.find(value).ok_or(Refused::Implausible)?;
            let text = module.text;
            let offset = (value - module.start) as usize;
            if !leaf {
                if text.get(offset..offset + SIGNAL_RETURN.len()) == Some(&SIGNAL_RETURN) {
                    payload |= SIGNAL_RETURN_PAYLOAD;
                } else if !text.get(..offset).is_some_and(follows_call) {
                    return Err(Refused::Implausible);
                }
            }
            let code = judge(module, value - u64::from(!leaf), scratch);
            sensitive = code.delicate || marks::is_sensitive(module) || asks_for_caller(value);
            if let Some(rule) = code.rule {
                let before = match self.find(key) {
                    Found::Unloaded(_, before) => Interned::from_payload(before).rule,
                    _ => None,
                };
                let index = match before.filter(|before| self.rule(*before) == rule) {
                    Some(index) => index,
                    None => self.add_rule(rule)?,
                };
                payload |= (u64::from(index) + 1) << 32;
            }
            module_number = module.index + 1;
        }
        let mut announced = None;
        let mut announce = || match announced {
            Some(id) => Ok(id),
            None => {
                let flags = if leaf { ADDRESS_IS_LEAF } else { 0 };
                let id = published.announce(value, module_number, flags)?;
                announced = Some(id);
                Ok(id)
            }
        };
        // Another thread may enter the same address meanwhile: then its id is as good, and ours
        // stays unused.
        loop {
            let found = self.find(key);
            let id = match found {
                Found::Payload(payload) => return Ok(Interned::from_payload(payload)),
                Found::Nothing => return Err(Refused::NoRoom),
                // The same file is back where it was, and its addresses keep their ids.
                Found::Unloaded(_, before) if published.module(before as u32) == module_number => {
                    before as u32
                }
                Found::Unloaded(..) | Found::Room(_) => announce()?,
            };
            let payload = payload | u64::from(id);
            if sensitive {
                self.markable.deny(id);
            }
            let (word, before, new) = match found {
                Found::Unloaded(at, before) => (&self.entries[at].payload, before, payload),
                Found::Room(at) => (&self.entries[at].key, 0, key),
                Found::Payload(_) | Found::Nothing => continue,
            };
            if word.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                if let Found::Room(at) = found {
                    self.entries[at].payload.store(payload, Ordering::Release);
                }
                return Ok(Interned::from_payload(payload));
            }
        }
    }

    fn add_rule(&self, rule: FrameRule) -> Result<u32, Refused> {
        let index = self.rule_count.fetch_add(1, Ordering::Relaxed);
        let place = self.rules.get(index as usize).ok_or(Refused::NoRoom)?;
        // SAFETY: the index is ours alone, and no payload names it yet.
        unsafe { (*place.get()).write(rule) };
        Ok(index)
    }

    /// Lets the addresses in an unloaded range be looked at again before they count: other code may come to
    /// lie there. Their entries stay, or a table would fill with those of libraries that come and go.
    /// Other threads may be interning meanwhile, but not addresses of this range.
    pub fn forget(&self, start: u64, end: u64, published: &Published<'_>) {
        let used = published.used.load(Ordering::Acquire) as usize;
        for entry in published.table.iter().take(used).skip(1) {
            let value = entry.value.load(Ordering::Acquire);
            if value < start || value >= end {
                continue;
            }
            let leaf = entry.flags.load(Ordering::Relaxed) & ADDRESS_IS_LEAF != 0;
            if let Some(at) = self.position(value | if leaf { LEAF_KEY } else { 0 }) {
                self.entries[at].payload.fetch_or(UNLOADED_PAYLOAD, Ordering::AcqRel);
            }
        }
    }

    fn position(&self, key: u64) -> Option<usize> {
        probe(key)
            .take_while(|at| self.entries[*at].key.load(Ordering::Acquire) != 0)
            .find(|at| self.entries[*at].key.load(Ordering::Acquire) == key)
    }
}

/// Where a key may stand, in the order in which one looks. First among the addresses of its stretch
/// of code, so that a program touches as many pages of the table as it has stretches that are
/// sampled; then, where a page is crowded, anywhere (Fibonacci hashing; Knuth, TAOCP 3, 6.4).
#[inline]
fn probe(key: u64) -> impl Iterator<Item = usize> {
    let spread = |value: u64| (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    let address = key & !LEAF_KEY;
    let within = ((address as usize & ((1 << STRETCH) - 1)) * PAGE) >> STRETCH;
    let near = spread(address >> STRETCH) * PAGE + within;
    let far = move || spread(key);
    (0..PROBES).map(move |turn| {
        let at = if turn < NEAR_PROBES { near + turn } else { far() + turn };
        at & (TABLE - 1)
    })
}

enum Found {
    Payload(u64),
    /// Index and payload of an entry for code that was unloaded.
    Unloaded(usize, u64),
    Room(usize),
    Nothing,
}

/// The address table in the segment, as its writer sees it.
pub struct Published<'a> {
    /// Entries by id.
    pub table: &'a [Address],
    /// Ids in use, 0 included.
    pub used: &'a AtomicU32,
}

impl Published<'_> {
    /// Number of the module that an id was announced with.
    fn module(&self, id: u32) -> u32 {
        self.table.get(id as usize).map_or(0, |entry| entry.module.load(Ordering::Relaxed))
    }

    fn announce(&self, value: u64, module: u32, flags: u32) -> Result<u32, Refused> {
        let id = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                (used as usize + 1 < self.table.len()).then_some(used.max(1) + 1)
            })
            .map_err(|_| Refused::NoRoom)?
            .max(1);
        let entry = &self.table[id as usize];
        entry.module.store(module, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
        entry.value.store(value, Ordering::Release);
        Ok(id)
    }
}
