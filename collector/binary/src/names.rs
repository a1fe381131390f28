//! Symbols of functions that only need a name: code inside wrapped calls, mostly. A module's whole
//! table takes long to read, and other jobs need the same few symbols.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Symbol;

/// Symbols by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By the first address of each range: its end, and the symbol for all of it.
    stretches: BTreeMap<u64, (u64, Symbol)>,
}

impl Symbols {
    /// Returns the symbol of an address.
    pub(super) fn get(&self, address: u64) -> Option<&Symbol> {
        let (_, (end, symbol)) = self.stretches.range(..=address).next_back()?;
        (address < *end).then_some(symbol)
    }

    /// Sets the symbol of all addresses of a range.
    pub(super) fn add(&mut self, stretch: Range<u64>, symbol: Symbol) {
        self.stretches.insert(stretch.start, (stretch.end, symbol));
    }

    /// Returns all ranges and their symbols, by ascending address.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Range<u64>, &Symbol)> {
        self.stretches.iter().map(|(start, (end, symbol))| (*start..*end, symbol))
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.stretches.len() * 2 * size_of::<(u64, u64, Symbol)>()
    }
}
