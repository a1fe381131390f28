//! Interned addresses: each distinct address is checked and numbered once per process.
//!
//! The handler looks up the address of every frame here. A known address costs a hash probe and has
//! already been checked. A new address is checked against the loaded modules, gets the next id, and
//! is published to the consumer by its entry in the segment's address table.

use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::hash::DefaultHasher;

use crate::cfi::{CfiScratch, FrameRule, judge};
use crate::marks::{self, Markable};
use crate::modules::{Snapshot, asks_for_caller};
use crate::plausible::{SIGNAL_RETURN, follows_call, jumps_to_import};
use plimsoll_calls::FIRST_CODE_ADDRESS;
use plimsoll_wire::segment::{ADDRESS_IS_DECLARED, ADDRESS_IS_LEAF, Address, MAX_ADDRESSES};

/// Number of entries of the hash table: twice the ids, so that probe sequences stay short.
const TABLE: usize = 2 * MAX_ADDRESSES;
/// Maximum number of probes before an address is refused.
const PROBES: usize = 64;
/// Number of probes near the addresses of the same stretch of code, before those elsewhere.
const NEAR_PROBES: usize = 16;
/// Size of a stretch of code that shares a page of the table, as a binary logarithm of bytes.
const STRETCH: u32 = 12;
/// Number of table entries in one page.
const PAGE: usize = 4096 / size_of::<Entry>();
/// Maximum number of frame rules.
const MAX_RULES: usize = 8192;
/// Number of rules that new addresses share if theirs are equal.
const SHARED_RULES: usize = 64;

/// Key bit of program counters: the same value may also be a return address.
const LEAF_KEY: u64 = 1 << 63;
/// Key bit of declared functions, together with [`LEAF_KEY`].
const DECLARED_KEY: u64 = 1 << 62;

/// Flag in a payload (id in the low half, rule index plus one above, flags on top): the address is
/// the kernel's signal return.
const SIGNAL_RETURN_PAYLOAD: u64 = 1 << 63;
/// Flag in a payload: the code was unloaded. The code at the address now is checked before the
/// entry is used again.
const UNLOADED_PAYLOAD: u64 = 1 << 62;
const RULE_BITS: u32 = 0x3fff_ffff;

/// Properties of an interned address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interned {
    /// Id of the address.
    pub id: u32,
    /// Index of the frame rule; `None` if framehop can step over the frame.
    pub rule: Option<u32>,
    /// Whether the address is the kernel's signal return, so that the frame is a signal frame.
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

/// Reason why an address was not interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The address lies in no executable module, or follows no call instruction.
    Implausible,
    /// The tables are full.
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
    /// Latest rules by their hash: index plus one. All samples of a kernel without unwind
    /// information have the same rule.
    shared_rules: [AtomicU32; SHARED_RULES],
    /// Stubs of return addresses, by address id.
    pub markable: Markable,
}

// SAFETY: entries are atomic; a rule is written once by the thread that reserved its index and
// read by others only after an entry's payload has published it.
unsafe impl Sync for Addresses {}

impl Addresses {
    /// Interns a return address, or a program counter if `leaf`, and returns its properties.
    #[inline]
    pub fn intern(
        &self,
        value: u64,
        leaf: bool,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        let flags = if leaf { ADDRESS_IS_LEAF } else { 0 };
        self.intern_as(value, flags, published, snapshot, scratch)
    }

    /// Interns the first address of a declared function.
    pub fn intern_declared(
        &self,
        value: u64,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        let flags = ADDRESS_IS_LEAF | ADDRESS_IS_DECLARED;
        self.intern_as(value, flags, published, snapshot, scratch)
    }

    #[inline]
    fn intern_as(
        &self,
        value: u64,
        flags: u32,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        match self.find(key(value, flags)) {
            Found::Payload(payload) => Ok(Interned::from_payload(payload)),
            Found::Room(_) | Found::Claimed(_) | Found::Unloaded(..) => {
                self.enter(value, flags, published, snapshot, scratch)
            }
            Found::Nothing => Err(Refused::NoRoom),
        }
    }

    /// Returns the frame rule with this index ([`Interned::rule`]).
    pub fn rule(&self, index: u32) -> FrameRule {
        // SAFETY: indices come from published payloads and shared rules only, and the rule was
        // written before.
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
                        0 => Found::Claimed(at),
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
        value: u64,
        flags: u32,
        published: &Published<'_>,
        snapshot: &Snapshot,
        scratch: &mut CfiScratch,
    ) -> Result<Interned, Refused> {
        let (key, leaf) = (key(value, flags), flags & ADDRESS_IS_LEAF != 0);
        let mut payload = 0;
        let mut module_number = 0;
        let mut sensitive = false;
        if value >= FIRST_CODE_ADDRESS {
            let module = snapshot.find(value).ok_or(Refused::Implausible)?;
            // A return address may be the end of a segment.
            let (text, offset) = match module.code_at(value - u64::from(!leaf)) {
                Some((text, offset)) => (text, offset + usize::from(!leaf)),
                None => (&[][..], 0),
            };
            if leaf {
                // The function behind an import may look up its caller (dlsym(3)).
                sensitive = text.get(offset..).is_some_and(jumps_to_import);
            } else if text.get(offset..offset + SIGNAL_RETURN.len()) == Some(&SIGNAL_RETURN) {
                payload |= SIGNAL_RETURN_PAYLOAD;
            } else if !text.get(..offset).is_some_and(follows_call) {
                return Err(Refused::Implausible);
            }
            let code = judge(module, value, leaf, scratch);
            sensitive |= code.delicate || marks::is_sensitive(module) || asks_for_caller(value);
            if let Some(rule) = code.rule {
                let before = match self.find(key) {
                    Found::Unloaded(_, before) => Interned::from_payload(before).rule,
                    _ => None,
                };
                let index = match before.filter(|before| self.rule(*before) == rule) {
                    Some(index) => index,
                    None => self.shared_rule(rule)?,
                };
                payload |= (u64::from(index) + 1) << 32;
            }
            module_number = module.index + 1;
        }
        let mut announced = None;
        let mut announce = || match announced {
            Some(id) => Ok(id),
            None => {
                let id = published.announce(value, module_number, flags)?;
                announced = Some(id);
                Ok(id)
            }
        };
        // Another thread may enter the same address meanwhile: then that thread's id is used, and
        // the id announced here stays unused. None waits for the other, which may be off its core.
        loop {
            let (at, before) = match self.find(key) {
                Found::Payload(payload) => return Ok(Interned::from_payload(payload)),
                Found::Nothing => return Err(Refused::NoRoom),
                Found::Room(at) => {
                    let key_word = &self.entries[at].key;
                    // Either way, the next look shows which key has won.
                    let _ = key_word.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
                    continue;
                }
                Found::Claimed(at) => (at, 0),
                Found::Unloaded(at, before) => (at, before),
            };
            // The same file is back where it was: its addresses keep their ids.
            let is_back = before != 0 && published.module(before as u32) == module_number;
            let id = if is_back { before as u32 } else { announce()? };
            if sensitive {
                self.markable.deny(id);
            }
            let (word, payload) = (&self.entries[at].payload, payload | u64::from(id));
            if word.compare_exchange(before, payload, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(Interned::from_payload(payload));
            }
        }
    }

    /// Returns the index of a rule, which may be that of other addresses with an equal one.
    fn shared_rule(&self, rule: FrameRule) -> Result<u32, Refused> {
        let mut hasher = DefaultHasher::new();
        rule.hash(&mut hasher);
        let shared = &self.shared_rules[hasher.finish() as usize % SHARED_RULES];
        match shared.load(Ordering::Acquire).checked_sub(1) {
            Some(index) if self.rule(index) == rule => Ok(index),
            _ => {
                let index = self.add_rule(rule)?;
                shared.store(index + 1, Ordering::Release);
                Ok(index)
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

    /// Flags the addresses in an unloaded range for a new check before they are used again, since
    /// other code may be loaded there. The entries stay: otherwise libraries that come and go would
    /// fill the table. Other threads may intern addresses meanwhile, but none in this range.
    pub fn forget(&self, start: u64, end: u64, published: &Published<'_>) {
        let used = published.used.load(Ordering::Acquire) as usize;
        for entry in published.table.iter().take(used).skip(1) {
            let value = entry.value.load(Ordering::Acquire);
            if value < start || value >= end {
                continue;
            }
            if let Some(at) = self.position(key(value, entry.flags.load(Ordering::Relaxed))) {
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

/// Returns the key of an address with these flags.
#[inline]
fn key(value: u64, flags: u32) -> u64 {
    let leaf = if flags & ADDRESS_IS_LEAF != 0 { LEAF_KEY } else { 0 };
    let declared = if flags & ADDRESS_IS_DECLARED != 0 { DECLARED_KEY } else { 0 };
    value | leaf | declared
}

/// Returns the probe sequence of a key. The first probes lie in the page of the address's stretch
/// of code, so that a program touches one page of the table per sampled stretch. If that page is
/// crowded, later probes lie anywhere (Fibonacci hashing; Knuth, TAOCP 3, 6.4).
#[inline]
fn probe(key: u64) -> impl Iterator<Item = usize> {
    let spread = |value: u64| (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    let address = key & !(LEAF_KEY | DECLARED_KEY);
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
    /// Index and payload of an entry with unloaded code.
    Unloaded(usize, u64),
    /// Index of an entry with the key and without a payload: another thread is entering it.
    Claimed(usize),
    Room(usize),
    Nothing,
}

/// Producer's view of the address table in the segment.
pub struct Published<'a> {
    /// Entries by id.
    pub table: &'a [Address],
    /// Number of ids in use, 0 included.
    pub used: &'a AtomicU32,
}

impl Published<'_> {
    /// Returns the module number that an id was announced with.
    fn module(&self, id: u32) -> u32 {
        self.table.get(id as usize).map_or(0, |entry| entry.module.load(Ordering::Relaxed))
    }

    /// Announces a new address and returns its id.
    pub fn announce(&self, value: u64, module: u32, flags: u32) -> Result<u32, Refused> {
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Tables of a process without addresses.
    struct Tables {
        addresses: Box<Addresses>,
        table: Vec<Address>,
        used: AtomicU32,
    }

    impl Tables {
        fn new() -> Self {
            let address = || Address {
                value: AtomicU64::new(0),
                module: AtomicU32::new(0),
                flags: AtomicU32::new(0),
            };
            Self {
                // SAFETY: the tables live in zeroed memory.
                addresses: unsafe { Box::new_zeroed().assume_init() },
                table: (0..MAX_ADDRESSES).map(|_| address()).collect(),
                used: AtomicU32::new(0),
            }
        }

        /// Interns a wrapped call.
        fn intern(&self, call: u64) -> Result<u32, Refused> {
            let published = Published { table: &self.table, used: &self.used };
            let snapshot = Snapshot::new(Vec::new());
            let mut scratch = CfiScratch::default();
            let interned =
                self.addresses.intern(call, false, &published, &snapshot, &mut scratch)?;
            Ok(interned.id)
        }
    }

    #[test]
    fn an_address_that_another_thread_has_begun_to_enter_is_interned() {
        let tables = Tables::new();
        let at = probe(7).next().expect("a key has probes");
        tables.addresses.entries[at].key.store(7, Ordering::Relaxed);
        assert_eq!(tables.intern(7), Ok(1));
        assert_eq!(tables.intern(7), Ok(1), "the id stays");
        assert_eq!(tables.table[1].value.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn threads_that_enter_the_same_addresses_get_the_same_ids() {
        const THREADS: usize = 4;
        const CALLS: u64 = 500;
        let (tables, begin) = (Tables::new(), Barrier::new(THREADS));
        let intern_all = || {
            begin.wait();
            (1..=CALLS).map(|call| tables.intern(call)).collect::<Vec<_>>()
        };
        let of_threads = thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(intern_all));
            threads.map(|thread| thread.join().expect("no thread panics"))
        });
        for (call, id) in (1..).zip(&of_threads[0]) {
            let id = id.expect("there is room") as usize;
            assert_eq!(tables.table[id].value.load(Ordering::Relaxed), call);
        }
        assert!(of_threads.iter().all(|ids| *ids == of_threads[0]));
    }
}
