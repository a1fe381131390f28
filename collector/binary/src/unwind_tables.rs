//! Facts about functions from a module's unwind tables: their extents, which of them are split-off
//! parts, and their landing pads.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, FrameDescriptionEntry, Pointer, Reader,
    UnwindContext, UnwindSection, X86_64,
};
use object::ReadRef;

use super::bytes::Bytes;
use super::code::LandingPad;
use super::headers::Headers;
use super::limit::Limit;
use crate::symbols::Source;

/// Maximum number of call sites read per function.
const MAX_CALL_SITES: usize = 1 << 16;

/// `.eh_frame` of a module, with the table that finds its entries by address.
pub(super) struct Frames {
    entries: EhFrame<Bytes>,
    table: Table,
    bases: BaseAddresses,
    /// Address and bytes of `.gcc_except_table`, which holds the landing pads.
    exceptions: Option<(u64, Bytes)>,
    /// Address ranges of the linker's stubs, which share one entry.
    stubs: Vec<Range<u64>>,
}

type Entry = FrameDescriptionEntry<Bytes>;

/// `.eh_frame_hdr`: pairs of the address of a function and of its entry, sorted (LSB, "Exception
/// Frames"). Only the encoding that all linkers write is read. gimli's own search is not used: it
/// multiplies before it checks bounds.
struct Table {
    address: u64,
    pairs: Bytes,
    count: usize,
}

impl Table {
    fn parse(address: u64, mut reader: Bytes) -> Option<Self> {
        const RELATIVE_TO_TABLE: u8 = 0x3b;
        const PAIR_BYTES: usize = 8;
        let mut encodings = [0; 4];
        reader.read_slice(&mut encodings).ok()?;
        let [version, _, count_encoding, encoding] = encodings;
        // The address of .eh_frame, which the section header has, too.
        reader.skip(4).ok()?;
        if version != 1 || count_encoding != 0x03 || encoding != RELATIVE_TO_TABLE {
            return None;
        }
        let count = (reader.read_u32().ok()? as usize).min(reader.len() / PAIR_BYTES);
        Some(Self { address, pairs: reader, count })
    }

    /// Returns the addresses of a function and of its entry.
    fn pair(&self, index: usize) -> Option<(u64, u64)> {
        let mut reader = self.pairs.clone();
        reader.skip(8 * index).ok()?;
        let mut address =
            || reader.read_i32().ok().map(|offset| self.address.wrapping_add_signed(offset.into()));
        Some((address()?, address()?))
    }

    /// Returns the address of the last entry that begins at or before an address.
    fn entry(&self, address: u64) -> Option<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.pair(middle)?.0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(self.pair(low.checked_sub(1)?)?.1)
    }
}

impl Frames {
    /// Finds the tables; `None` for a module without them.
    pub(super) fn of<'d, R: ReadRef<'d>>(
        headers: &Headers<'d, R>,
        source: &Arc<Source>,
    ) -> Option<Self> {
        let section = |name| {
            let (address, offset, size) = headers.range(name)?;
            let bytes = Bytes::paged(source, offset..offset.checked_add(size)?, &Limit::default())?;
            Some((address, bytes))
        };
        let (address, bytes) = section(".eh_frame")?;
        let (table_address, table) = section(".eh_frame_hdr")?;
        let start = |name| headers.range(name).map_or(0, |(address, ..)| address);
        let bases = BaseAddresses::default()
            .set_eh_frame(address)
            .set_eh_frame_hdr(table_address)
            .set_text(start(".text"))
            .set_got(start(".got"));
        let table = Table::parse(table_address, table)?;
        let mut entries = EhFrame::from(bytes);
        entries.set_address_size(8);
        let stubs = headers.beginning(".plt");
        let stubs = stubs.map(|(address, size)| address..address.saturating_add(size)).collect();
        Some(Self { entries, table, bases, exceptions: section(".gcc_except_table"), stubs })
    }

    fn entry(&self, address: u64) -> Option<Entry> {
        if self.stubs.iter().any(|stubs| stubs.contains(&address)) {
            return None;
        }
        let offset = self.table.entry(address)?.checked_sub(self.bases.eh_frame.section?)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let cie = |entries: &EhFrame<Bytes>, bases: &BaseAddresses, offset| {
            entries.cie_from_offset(bases, offset)
        };
        self.entries.fde_from_offset(&self.bases, offset, cie).ok()
    }

    /// Returns the extent of the entry that holds an address.
    pub(super) fn range(&self, address: u64) -> Option<Range<u64>> {
        let entry = self.entry(address)?;
        let start = entry.initial_address();
        let end = start.checked_add(entry.len())?;
        (start..end).contains(&address).then_some(start..end)
    }

    /// Returns whether the code at `start` begins with a frame already set up: the code is then a
    /// part of a function that jumps to it.
    pub(super) fn begins_within_frame(&self, start: u64) -> bool {
        let Some(entry) = self.entry(start).filter(|entry| entry.initial_address() == start) else {
            return false;
        };
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&self.entries, &self.bases, &mut context, start);
        row.is_ok_and(|row| match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                (*register, *offset) != (X86_64::RSP, 8)
            }
            // Assembly that describes its frame by an expression.
            CfaRule::Expression(_) => false,
        })
    }

    /// Returns the landing pads of the calls within a range of code.
    pub(super) fn landing_pads(&self, within: &Range<u64>) -> Vec<LandingPad> {
        let mut found = Vec::new();
        let mut at = within.start;
        // A function with one symbol may consist of several entries.
        while let Some(entry) = self.entry(at) {
            let start = entry.initial_address();
            let Some(end) = start.checked_add(entry.len()) else { break };
            if !(start..end).contains(&at) {
                break;
            }
            if let Some(Pointer::Direct(table)) = entry.lsda() {
                let _ = self.call_sites(table, start, &mut found);
            }
            at = end;
            if at >= within.end || found.len() > MAX_CALL_SITES {
                break;
            }
        }
        found
    }

    /// Reads a table of call sites: the "language-specific data area" of C++, Rust and others,
    /// after libgcc's unwind-pe.h and libstdc++'s eh_personality.cc.
    fn call_sites(
        &self,
        table: u64,
        function: u64,
        into: &mut Vec<LandingPad>,
    ) -> gimli::Result<()> {
        const OMITTED: u8 = 0xff;
        let Some((address, section)) = &self.exceptions else { return Ok(()) };
        let Some(offset) = table.checked_sub(*address) else { return Ok(()) };
        let mut reader = section.clone();
        reader.skip(offset as usize)?;
        let encoding = reader.read_u8()?;
        let mut landing_base = function;
        if encoding != OMITTED {
            let place = address.wrapping_add(reader.offset_from(section) as u64);
            let value = encoded(encoding, &mut reader)?;
            landing_base = if encoding & 0x70 == 0x10 { place.wrapping_add(value) } else { value };
        }
        if reader.read_u8()? != OMITTED {
            reader.read_uleb128()?;
        }
        let encoding = reader.read_u8()?;
        let length = reader.read_uleb128()?;
        let mut sites = reader.split(length as usize)?;
        while !sites.is_empty() && into.len() <= MAX_CALL_SITES {
            let start = function.wrapping_add(encoded(encoding, &mut sites)?);
            let end = start.wrapping_add(encoded(encoding, &mut sites)?);
            let pad = encoded(encoding, &mut sites)?;
            sites.read_uleb128()?;
            if pad != 0 && start < end {
                into.push(LandingPad { calls: start..end, pad: landing_base.wrapping_add(pad) });
            }
        }
        Ok(())
    }
}

/// Reads a number in one of the encodings of exception tables.
fn encoded(encoding: u8, reader: &mut Bytes) -> gimli::Result<u64> {
    Ok(match encoding & 0x0f {
        0x01 => reader.read_uleb128()?,
        0x02 => u64::from(reader.read_u16()?),
        0x03 => u64::from(reader.read_u32()?),
        0x09 => reader.read_sleb128()? as u64,
        0x0a => reader.read_i16()? as i64 as u64,
        0x0b => reader.read_i32()? as i64 as u64,
        _ => reader.read_u64()?,
    })
}
