//! A module's file, open for analysis: bytes by address, symbols, and unwind tables.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _};
use object::{Endianness, ReadRef, SymbolIndex};

use super::code::{Code, Extent, LandingPad};
use super::explore::explore;
use super::headers::{Headers, Load};
use super::unwind_tables::Frames;

use crate::symbols::{Found, Names, Source, Table, never_returns};

/// Maximum size in bytes of a callee that is decoded to know whether it returns: functions that end
/// the program are short.
const MAX_CALLEE_BYTES: u64 = 1024;

/// Maximum depth of calls to which callees are decoded for that.
const MAX_CALLEE_DEPTH: u32 = 2;

/// Maximum number of bytes of a split-off part that are searched for jumps back.
const MAX_PART_BYTES: u64 = 1 << 16;

/// Maximum number of functions that are recovered to find the one a part was split off from.
pub(super) const MAX_OWNERS: usize = 8;

/// A module's file with its symbols and unwind tables.
pub(super) struct Binary {
    pub(super) source: Arc<Source>,
    loads: Vec<Load>,
    frames: Option<Frames>,
    table: Arc<Table>,
    dead_slots: DeadSlots,
    returns: RefCell<HashMap<u64, bool>>,
    depth: Cell<u32>,
}

/// Slots that the loader fills with addresses of functions that do not return; empty until first
/// needed. The set is small, but all relocations are read for it: it outlives the open file.
pub(super) type DeadSlots = Arc<OnceLock<HashSet<u64>>>;

/// Build-id of a module's file, and whether it has full symbols.
pub(super) struct FileTraits {
    /// Build-id; empty if the file has none.
    pub(super) build_id: Vec<u8>,
    /// Whether the file has symbols beyond those for dynamic linking (`.symtab`).
    pub(super) has_symbols: bool,
}

/// Reads a file's facts; `None` if the file is not a 64-bit ELF file of this machine.
pub(super) fn facts(source: &Arc<Source>) -> Option<FileTraits> {
    let cache = source.cache();
    facts_of(&Headers::parse(&cache)?)
}

/// Returns the facts of a file from its parsed headers; `None` as for [`facts`].
pub(super) fn facts_of<'d, R: ReadRef<'d>>(headers: &Headers<'d, R>) -> Option<FileTraits> {
    let facts = || FileTraits {
        build_id: headers.build_id().to_vec(),
        has_symbols: headers.has(".symtab"),
    };
    headers.is_of_this_machine().then(facts)
}

impl Binary {
    /// Prepares a file for analysis. `table` holds its symbols, `dead_slots` the result of an
    /// earlier search.
    pub(super) fn new<'d, R: ReadRef<'d>>(
        headers: &Headers<'d, R>,
        source: Arc<Source>,
        table: Arc<Table>,
        dead_slots: DeadSlots,
    ) -> Self {
        let loads = headers.loads().filter(|it| it.address.checked_add(it.size).is_some());
        let loads = loads.collect();
        let frames = Frames::of(headers, &source);
        Self {
            source,
            loads,
            frames,
            table,
            dead_slots,
            returns: RefCell::default(),
            depth: Cell::new(0),
        }
    }

    /// Returns the extent of the function, or the split-off part, that holds an address, and its
    /// symbol. Without a symbol, the extent comes from the unwind table.
    pub(super) fn function(&self, address: u64) -> Option<(Extent, Option<Found<'_>>)> {
        let frame = || self.frames.as_ref()?.range(address);
        match self.table.function(address) {
            Some(found) => {
                let extent = Extent { range: found.range(), is_part: found.is_part() };
                Some((extent, Some(found)))
            }
            None => {
                let range = frame()?;
                let is_part = self.frames.as_ref()?.begins_within_frame(range.start);
                Some((Extent { range, is_part }, None))
            }
        }
    }

    /// Returns the addresses around this one for which [`Binary::function`] has the same answer.
    /// `extent` is its answer for `address`.
    pub(super) fn alike(&self, address: u64, extent: &Extent) -> Range<u64> {
        let alike = self.table.alike(address);
        alike.start.max(extent.range.start)..alike.end.min(extent.range.end)
    }

    /// Returns the stretches of a function, or of a split-off part, that belong to no other
    /// function.
    pub(super) fn without_nested(&self, part: &Range<u64>) -> Vec<Range<u64>> {
        self.table.without_nested(part)
    }

    /// Returns the targets of a part's jumps out of itself, each once, at most [`MAX_OWNERS`].
    pub(super) fn jumps_out_of(&self, part: &Range<u64>) -> Vec<u64> {
        let size = part.end.saturating_sub(part.start).min(MAX_PART_BYTES);
        let mut bytes = vec![0; size as usize];
        let mut found = Vec::new();
        if !self.read(part.start, &mut bytes) {
            return found;
        }
        for instruction in Decoder::with_ip(64, &bytes, part.start, DecoderOptions::NONE) {
            let is_jump = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            );
            let target = instruction.near_branch_target();
            if is_jump && target != 0 && !part.contains(&target) && !found.contains(&target) {
                found.push(target);
            }
            if found.len() == MAX_OWNERS {
                break;
            }
        }
        found
    }

    /// Returns the extents of the functions with this plain name.
    pub(super) fn named(&self, name: &str) -> Vec<Range<u64>> {
        self.table.named(name).map(|found| found.range()).collect()
    }

    /// Returns addresses and symbols of all functions that have a symbol.
    #[cfg(test)]
    pub(super) fn functions(&self) -> impl Iterator<Item = (Range<u64>, String)> {
        self.table.named_functions()
    }

    fn dead_slots(&self) -> &HashSet<u64> {
        self.dead_slots.get_or_init(|| read_dead_slots(&self.source).unwrap_or_default())
    }

    /// Returns the slot through which a stub of the linker jumps.
    fn slot_of_stub(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 16];
        if !self.read(address, &mut bytes) {
            return None;
        }
        let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
        for _ in 0..2 {
            let instruction = decoder.decode();
            if instruction.flow_control() == FlowControl::IndirectBranch {
                return instruction
                    .is_ip_rel_memory_operand()
                    .then(|| instruction.ip_rel_memory_address());
            }
        }
        None
    }

    /// Returns whether a function returns; `None` if the limit on the depth of calls is reached.
    fn look_whether_it_returns(&self, function: u64) -> Option<bool> {
        if let Some(found) = self.table.function(function)
            && found.range().start == function
        {
            if found.never_returns() {
                return Some(false);
            }
        } else if let Some(slot) = self.slot_of_stub(function) {
            return Some(self.slot_returns(slot));
        }
        let Some(Extent { range, .. }) = self.extent(function) else { return Some(true) };
        if range.end - range.start > MAX_CALLEE_BYTES {
            return Some(true);
        }
        if self.depth.get() >= MAX_CALLEE_DEPTH {
            return None;
        }
        self.depth.set(self.depth.get() + 1);
        let returns = explore(self, function, &range).map_or(true, |explored| explored.returns);
        self.depth.set(self.depth.get() - 1);
        Some(returns)
    }
}

impl Code for Binary {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let inside = |load: &&Load| (load.address..load.address + load.size).contains(&address);
        let Some(load) = self.loads.iter().find(inside) else { return false };
        let from = address - load.address;
        let Some(offset) = load.offset.checked_add(from) else { return false };
        into.len() as u64 <= load.size - from && self.source.read(offset, into)
    }

    fn extent(&self, address: u64) -> Option<Extent> {
        self.function(address).map(|(extent, _)| extent)
    }

    fn returns(&self, function: u64) -> bool {
        if let Some(known) = self.returns.borrow().get(&function) {
            return *known;
        }
        // A recursive call counts as returning: the other paths decide.
        self.returns.borrow_mut().insert(function, true);
        let found = self.look_whether_it_returns(function);
        let mut known = self.returns.borrow_mut();
        match found {
            Some(returns) => known.insert(function, returns),
            None => known.remove(&function),
        };
        found.unwrap_or(true)
    }

    fn slot_returns(&self, slot: u64) -> bool {
        !self.dead_slots().contains(&slot)
    }

    fn landing_pads(&self, within: &Range<u64>) -> Vec<LandingPad> {
        self.frames.as_ref().map_or_else(Vec::new, |frames| frames.landing_pads(within))
    }
}

/// Reads the slots that the loader fills with functions that do not return. A large library has
/// tens of thousands of relocations and nearly as many symbols: each symbol is read from its table
/// in place, and each name is compared once.
fn read_dead_slots(source: &Arc<Source>) -> Option<HashSet<u64>> {
    let cache = source.cache();
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let (endian, symbols) = (elf.endian(), elf.elf_dynamic_symbol_table());
    let names = Names::of(&elf, symbols);
    // By symbol index; index 0 means no symbol.
    let mut is_dead = vec![None; symbols.len()];
    let mut slots = HashSet::new();
    for section in elf.elf_section_table().iter() {
        if section.link(endian) != symbols.section() {
            continue;
        }
        let Ok(Some((relocations, _))) = section.rela(endian, &cache) else { continue };
        for relocation in relocations {
            let number = relocation.r_sym(endian, false) as usize;
            let Some(known) = is_dead.get_mut(number).filter(|_| number != 0) else { continue };
            let symbol = || symbols.symbol(SymbolIndex(number)).ok();
            let look = || names.name(symbol()?.st_name(endian)).map(never_returns);
            if *known.get_or_insert_with(|| look().unwrap_or(false)) {
                slots.insert(relocation.r_offset.get(endian));
            }
        }
    }
    Some(slots)
}
