//! Symbols of those functions of a module of which no more is asked: code inside wrapped calls, mostly. A
//! module's whole table takes long to read, and another job asks for the same few.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Symbol;

/// Symbols by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By the first address of each stretch: where it ends, and what holds for all of it.
    stretches: BTreeMap<u64, (u64, Symbol)>,
}

impl Symbols {
    /// The symbol of an address.
    pub(super) fn get(&self, address: u64) -> Option<&Symbol> {
        let (_, (end, symbol)) = self.stretches.range(..=address).next_back()?;
        (address < *end).then_some(symbol)
    }

    /// All addresses of a stretch have this symbol.
    pub(super) fn add(&mut self, stretch: Range<u64>, symbol: Symbol) {
        self.stretches.insert(stretch.start, (stretch.end, symbol));
    }

    /// All that is known, by ascending address.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Range<u64>, &Symbol)> {
        self.stretches.iter().map(|(start, (end, symbol))| (*start..*end, symbol))
    }

    /// Memory in use, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.stretches.len() * 2 * size_of::<(u64, u64, Symbol)>()
    }
}
