//! Lookup of the unit of the debug information that describes an address.

use std::collections::HashSet;

use gimli::Dwarf;

use super::bytes::Bytes;

/// Address ranges of all units, ascending by start: from `.debug_aranges`, and from the units
/// missing there. They only decide the order of lookups, so overlaps do no harm.
#[derive(Debug, Default)]
pub(super) struct Units(Vec<(u64, u64, u64)>);

impl Units {
    /// Reads the ranges of a file, as far as they are readable.
    pub(super) fn of(dwarf: &Dwarf<Bytes>) -> Self {
        let mut units = Self::default();
        let _ = units.read(dwarf);
        units.0.sort_unstable();
        units
    }

    /// Returns the offset in `.debug_info` of the unit that describes an address.
    pub(super) fn unit(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|(begin, ..)| *begin <= address);
        let (_, end, unit) = *self.0.get(after.checked_sub(1)?)?;
        (address < end).then_some(unit)
    }

    fn read(&mut self, dwarf: &Dwarf<Bytes>) -> gimli::Result<()> {
        let mut listed = HashSet::new();
        let mut headers = dwarf.debug_aranges.headers();
        while let Some(header) = headers.next()? {
            let unit = header.debug_info_offset().0 as u64;
            let mut entries = header.entries();
            while let Some(entry) = entries.next()? {
                listed.insert(unit);
                self.add(entry.range(), unit);
            }
        }
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let Some(offset) = header.debug_info_offset().map(|offset| offset.0 as u64) else {
                continue;
            };
            if listed.contains(&offset) {
                continue;
            }
            let Ok(unit) = dwarf.unit(header) else { continue };
            let mut ranges = dwarf.unit_ranges(&unit)?;
            while let Some(range) = ranges.next()? {
                self.add(range, offset);
            }
        }
        Ok(())
    }

    fn add(&mut self, range: gimli::Range, unit: u64) {
        self.0.push((range.begin, range.end, unit));
    }
}
