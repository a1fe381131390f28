//! Functions of one ELF file that have symbols.

use std::ops::Range;
use std::sync::Arc;

use object::Object;
use object::read::elf::ElfFile64;

use super::candidates::{Candidate, best, candidates, names_range};
use super::main_function::main_function;
use super::noreturn::never_returns;
use super::source::Source;
use crate::headers::Headers;

/// A function with a name. Large programs have hundreds of thousands.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u64,
    /// Size in bytes, at most `u32::MAX`.
    size: u32,
    /// Bytes from `start` to the end of this symbol and of all before it: ends the search outwards.
    reach: u32,
    /// Offset of the name in the string table.
    name: u32,
    traits: Traits,
}

impl Symbol {
    fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.size))
    }

    fn reach(&self) -> u64 {
        self.start.saturating_add(u64::from(self.reach))
    }
}

/// Facts about a name that lookups need most often, stored so that the name need not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits(u32);

impl Traits {
    /// Set if the name is in the dynamic table.
    const DYNAMIC: u32 = 1;
    /// Set if the symbol is a split-off part of a function.
    const PART: u32 = 2;
    const NEVER_RETURNS: u32 = 4;
    const ALL: u32 = Self::DYNAMIC | Self::PART | Self::NEVER_RETURNS;

    fn of(name: &str, is_dynamic: bool) -> Self {
        let flag = |holds: bool, flag| if holds { flag } else { 0 };
        let flags = flag(is_dynamic, Self::DYNAMIC)
            | flag(name.contains(PART), Self::PART)
            | flag(never_returns(name), Self::NEVER_RETURNS);
        Self(crc32fast::hash(name.as_bytes()) & !Self::ALL | flags)
    }

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Returns whether two names may be equal; if not, they differ.
    fn may_name(self, other: Self) -> bool {
        (self.0 ^ other.0) & !Self::ALL == 0
    }
}

/// Suffix of the names of split-off parts, after the function's name.
pub(crate) const PART: &str = ".cold";

/// Functions of one file, by address in the file. Names are read from the file on demand.
#[derive(Debug)]
pub(crate) struct Table {
    symbols: Vec<Symbol>,
    source: Arc<Source>,
    /// Ranges in the file of the names of its symbol table, and of the dynamic one.
    names: [Range<u64>; 2],
}

/// A function of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'t> {
    table: &'t Table,
    symbol: &'t Symbol,
}

impl Found<'_> {
    pub(crate) fn range(&self) -> Range<u64> {
        self.symbol.range()
    }

    /// Returns whether the symbol is a split-off part of a function.
    pub(crate) fn is_part(&self) -> bool {
        self.symbol.traits.has(Traits::PART)
    }

    /// Returns whether the name is one of a function that does not return.
    pub(crate) fn never_returns(&self) -> bool {
        self.symbol.traits.has(Traits::NEVER_RETURNS)
    }

    /// Returns the symbol's name; `None` if the file can no longer be read.
    pub(crate) fn name(&self) -> Option<String> {
        let names = &self.table.names[usize::from(self.symbol.traits.has(Traits::DYNAMIC))];
        let mut at = names.start.checked_add(u64::from(self.symbol.name))?;
        let mut name = Vec::new();
        while at < names.end {
            let mut piece = [0; NAME_BYTES];
            let piece = &mut piece[..(names.end - at).min(NAME_BYTES as u64) as usize];
            if !self.table.source.read(at, piece) {
                return None;
            }
            let end = piece.iter().position(|byte| *byte == 0);
            name.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                break;
            }
            at += piece.len() as u64;
        }
        String::from_utf8(name).ok()
    }
}

/// Number of bytes of a name read at once.
const NAME_BYTES: usize = 256;

impl Table {
    /// Reads a file's functions; `None` if the file is not ELF, or is not the build that was loaded
    /// (`build_id` is empty if unknown).
    #[cfg(test)]
    pub(crate) fn read(source: &Arc<Source>, build_id: &[u8]) -> Option<Self> {
        Self::read_until(source, build_id, &|| false)
    }

    /// Reads a file's functions; `None` also if `is_over` returns true while the file is read.
    pub(crate) fn read_until(
        source: &Arc<Source>,
        build_id: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let cache = source.cache();
        let elf = &ElfFile64::parse(&cache).ok()?;
        if let Ok(Some(found)) = elf.build_id()
            && !build_id.is_empty()
            && found != build_id
        {
            return None;
        }
        let names = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()]
            .map(|table| names_range(elf, table).unwrap_or(0..0));
        let mut candidates = candidates(elf, is_over)?;
        let main = Headers::parse(&cache).and_then(|it| main_function(elf, &it, source));
        let is_new = |main: &Candidate<'_>| candidates.iter().all(|it| it.start != main.start);
        candidates.extend(main.filter(is_new));
        Some(Self { symbols: symbols(candidates), source: source.clone(), names })
    }

    /// Returns the innermost function that holds `address`.
    pub(crate) fn function(&self, address: u64) -> Option<Found<'_>> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        self.symbols[..after]
            .iter()
            .rev()
            .take_while(|symbol| symbol.reach() > address)
            .find(|symbol| symbol.range().end > address)
            .map(|symbol| Found { table: self, symbol })
    }

    /// Returns the addresses around this one with the same innermost function, or with none.
    pub(crate) fn alike(&self, address: u64) -> Range<u64> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let next = self.symbols.get(after).map_or(u64::MAX, |symbol| symbol.start);
        let mut low = 0;
        for symbol in self.symbols[..after].iter().rev() {
            let Range { start, end } = symbol.range();
            if symbol.reach() <= address {
                return low.max(symbol.reach())..next;
            }
            if end > address {
                return low.max(start)..next.min(end);
            }
            low = low.max(end);
        }
        low..next
    }

    /// Returns the stretches of a function, ascending, that belong to no other one: symbols of
    /// assembly can be nested. Also for a function without a symbol.
    pub(crate) fn without_nested(&self, function: &Range<u64>) -> Vec<Range<u64>> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= function.start);
        let (before, inside) = self.symbols.split_at(after);
        let before = before.last().filter(|symbol| symbol.range() != *function);
        let mut at = before.map_or(0, Symbol::reach).max(function.start);
        let mut found = Vec::new();
        for symbol in inside.iter().take_while(|symbol| symbol.start < function.end) {
            found.push(at..symbol.start);
            at = at.max(symbol.range().end);
        }
        found.push(at..function.end);
        found.retain(|stretch| !stretch.is_empty());
        found
    }

    /// Returns all functions with a symbol, by ascending address.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Found<'_>> {
        self.symbols.iter().map(|symbol| Found { table: self, symbol })
    }

    /// Returns addresses and names of all functions.
    #[cfg(test)]
    pub(crate) fn named_functions(&self) -> impl Iterator<Item = (Range<u64>, String)> {
        self.functions().filter_map(|found| Some((found.range(), found.name()?)))
    }

    /// Returns the functions of this name.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = Found<'_>> {
        let wanted = Traits::of(name, false);
        let may_be = move |found: &Found<'_>| found.symbol.traits.may_name(wanted);
        self.functions().filter(may_be).filter(move |found| found.name().as_deref() == Some(name))
    }

    /// Returns the approximate memory in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.symbols.capacity() * size_of::<Symbol>()) as u64
    }
}

/// Builds the symbols of a table. Of several symbols at one address the best is kept. A symbol
/// without a size extends to the next symbol of its section; inside a function with a size, it is
/// dropped. Works in place: a large program's candidates take many megabytes.
fn symbols(mut candidates: Vec<Candidate<'_>>) -> Vec<Symbol> {
    candidates.sort_unstable_by_key(|candidate| (candidate.start, candidate.is_dynamic));
    let places = || candidates.chunk_by(|one, other| one.start == other.start);
    let mut symbols = Vec::with_capacity(places().count());
    let (mut reach, mut sized_reach) = (0, 0);
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut rest = places().peekable();
    while let Some(aliases) = rest.next() {
        let Some(best) = best(aliases) else { continue };
        let start = best.start;
        let size = aliases.iter().map(|alias| alias.size).max().unwrap_or_default();
        let end = if size > 0 {
            let end = start.saturating_add(size);
            sized_reach = end.max(sized_reach);
            end
        } else if start < sized_reach {
            continue;
        } else {
            rest.peek().map_or(u64::MAX, |next| next[0].start).min(best.section_end)
        };
        if end <= start {
            continue;
        }
        reach = end.max(reach);
        symbols.push(Symbol {
            start,
            size: bytes(end - start),
            reach: bytes(reach - start),
            name: best.name_at,
            traits: Traits::of(best.name, best.is_dynamic),
        });
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(found: &[(u64, u64, bool, &str)]) -> Table {
        let mut names = Vec::new();
        let mut candidates = Vec::new();
        for (start, size, local, name) in found {
            let name_at = names.len() as u32;
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            candidates.push(Candidate {
                start: *start,
                size: *size,
                section_end: 0x1000,
                local: *local,
                name,
                name_at,
                is_dynamic: true,
            });
        }
        let all = 0..names.len() as u64;
        let source = Arc::new(Source::Memory(names.leak()));
        Table { symbols: symbols(candidates), source, names: [0..0, all] }
    }

    impl Table {
        fn symbol(&self, address: u64) -> Option<String> {
            self.function(address)?.name()
        }
    }

    /// Returns a name as found.
    fn some(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn an_address_beyond_a_symbol_is_not_that_symbol() {
        let table = table(&[(0x100, 0x20, false, "f"), (0x140, 0x10, false, "g")]);
        assert_eq!(table.symbol(0x0ff), None);
        assert_eq!(table.symbol(0x100), some("f"));
        assert_eq!(table.symbol(0x11f), some("f"));
        assert_eq!(table.symbol(0x120), None);
        assert_eq!(table.symbol(0x14f), some("g"));
        assert_eq!(table.symbol(0x150), None);
    }

    #[test]
    fn labels_without_size_reach_to_the_next_symbol_but_not_into_functions() {
        let table = table(&[
            (0x100, 0, false, "_start"),
            (0x140, 0x40, false, "f"),
            (0x150, 0, false, "inside_f"),
            (0xff0, 0, false, "last"),
        ]);
        assert_eq!(table.symbol(0x13f), some("_start"));
        assert_eq!(table.symbol(0x150), some("f"));
        assert_eq!(table.symbol(0x17f), some("f"));
        assert_eq!(table.symbol(0x180), None);
        assert_eq!(table.symbol(0xfff), some("last"));
        assert_eq!(table.symbol(0x1000), None, "its section ends there");
    }

    #[test]
    fn the_innermost_of_nested_functions_and_the_plainest_alias_win() {
        let table = table(&[
            (0x100, 0x100, false, "outer"),
            (0x120, 0x10, false, "inner"),
            (0x300, 0x10, true, "wr"),
            (0x300, 0x10, false, "__write"),
            (0x300, 0x10, false, "write"),
            (0x400, 0x10, false, "expf64"),
            (0x400, 0x10, false, "exp@@GLIBC_2.29"),
        ]);
        assert_eq!(table.symbol(0x125), some("inner"));
        assert_eq!(table.symbol(0x130), some("outer"));
        assert_eq!(table.symbol(0x300), some("write"));
        assert_eq!(table.symbol(0x400), some("exp@@GLIBC_2.29"), "its version is not shown");
    }

    #[test]
    fn alike_addresses_have_the_same_function() {
        let table = table(&[
            (0x100, 0x100, false, "outer"),
            (0x120, 0x10, false, "inner"),
            (0x130, 0x20, false, "inner too"),
            (0x300, 0x10, false, "other"),
        ]);
        for address in 0x0f0..0x320 {
            let alike = table.alike(address);
            assert!(alike.contains(&address));
            let symbol = table.symbol(address);
            let ends = [alike.start, alike.end.min(0x320) - 1];
            assert!(ends.iter().all(|end| table.symbol(*end) == symbol), "{address:#x}");
            assert!(alike.clone().take(0x320).all(|each| table.symbol(each) == symbol));
            let beyond = [alike.start.checked_sub(1), Some(alike.end)];
            let beyond = beyond.into_iter().flatten().filter(|beyond| *beyond < 0x310);
            assert!(beyond.into_iter().all(|beyond| table.symbol(beyond) != symbol));
        }
        for function in table.functions() {
            let own = table.without_nested(&function.range());
            let is_own = |address| own.iter().any(|stretch| stretch.contains(&address));
            let holds = |address| table.symbol(address) == function.name();
            assert!((0x0f0..0x320).all(|address| is_own(address) == holds(address)), "{own:x?}");
        }
        // A function without a symbol.
        let own = table.without_nested(&(0x180..0x320));
        assert_eq!(own, [0x200..0x300, 0x310..0x320]);
    }

    #[test]
    fn names_are_read_from_the_file_when_they_are_asked_for() {
        let long = "x".repeat(2 * NAME_BYTES + 1);
        let full = "y".repeat(NAME_BYTES);
        let table = table(&[
            (0x100, 0x10, false, &long),
            (0x120, 0x10, false, &full),
            (0x140, 0x10, false, "f.cold.3"),
            (0x160, 0x10, false, "exit"),
            (0x180, 0x10, true, "f"),
            (0x1a0, 0x10, false, "f"),
        ]);
        assert_eq!([table.symbol(0x105), table.symbol(0x125)], [Some(long), Some(full)]);
        let found = |address| table.function(address).unwrap();
        assert!(found(0x145).is_part() && !found(0x185).is_part());
        assert!(found(0x165).never_returns() && !found(0x185).never_returns());
        let named = |name| table.named(name).map(|found| found.range().start).collect::<Vec<_>>();
        assert_eq!(named("f"), [0x180, 0x1a0]);
        assert_eq!(named("exi"), [0; 0]);
    }
}
