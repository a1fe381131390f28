//! The functions of one ELF file that have symbols.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use object::elf::{
    FileHeader64, SHF_EXECINSTR, STT_COMMON, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT,
    STT_SECTION, STT_TLS, SectionHeader64,
};
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _, SymbolTable};
use object::{Endianness, Object, ObjectSection, ReadRef};

use super::source::Source;

/// Symbols that are read between two looks at the deadline: less than a millisecond.
const SYMBOLS_PER_CHECK: usize = 1 << 12;

/// A function that has a name.
#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    /// Largest `end` of this symbol and all before it: ends the search outwards.
    reach: u64,
    name: Range<u32>,
}

/// Functions of one file, by the addresses in the file.
#[derive(Debug, Default)]
pub(crate) struct Table {
    symbols: Vec<Symbol>,
    names: String,
}

/// A symbol as found, before the choice among its aliases.
struct Candidate<'a> {
    start: u64,
    size: u64,
    section_end: u64,
    local: bool,
    name: &'a str,
}

impl Candidate<'_> {
    /// Aliases of one address: what the user is likelier to know comes first.
    fn rank(&self) -> (bool, usize, usize, &str) {
        let underscores = self.name.len() - self.name.trim_start_matches('_').len();
        (self.local, underscores, self.name.len(), self.name)
    }
}

impl Table {
    /// Reads a file's functions; `None` if it is no ELF file, or is not the build that was loaded
    /// (`build_id` is empty where that is unknown).
    #[cfg(test)]
    pub(crate) fn read(source: &Arc<Source>, build_id: &[u8]) -> Option<Self> {
        Self::read_until(source, build_id, &|| false)
    }

    /// The same, unless `is_over` says while it is read that nobody waits for it any more.
    pub(crate) fn read_until(
        source: &Arc<Source>,
        build_id: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> Option<Self> {
        Self::of(&ElfFile64::parse(&source.cache()).ok()?, build_id, is_over)
    }

    fn of<'d, R: ReadRef<'d>>(
        elf: &Elf<'d, R>,
        build_id: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> Option<Self> {
        if let Ok(Some(found)) = elf.build_id()
            && !build_id.is_empty()
            && found != build_id
        {
            return None;
        }
        let mut table = Self::default();
        table.take(candidates(elf, is_over)?);
        Some(table)
    }

    /// The symbol of the innermost function that holds `address`.
    #[cfg(test)]
    fn symbol(&self, address: u64) -> Option<&str> {
        Some(self.function(address)?.1)
    }

    /// The innermost function that holds `address`: its addresses, and its symbol.
    pub(crate) fn function(&self, address: u64) -> Option<(Range<u64>, &str)> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        self.symbols[..after]
            .iter()
            .rev()
            .take_while(|symbol| symbol.reach > address)
            .find(|symbol| symbol.end > address)
            .map(|symbol| (symbol.start..symbol.end, self.name(symbol)))
    }

    /// The addresses around this one that are in the same function, and in none inside it; or in none.
    pub(crate) fn alike(&self, address: u64) -> Range<u64> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let next = self.symbols.get(after).map_or(u64::MAX, |symbol| symbol.start);
        let mut low = 0;
        for symbol in self.symbols[..after].iter().rev() {
            if symbol.reach <= address {
                return low.max(symbol.reach)..next;
            }
            if symbol.end > address {
                return low.max(symbol.start)..next.min(symbol.end);
            }
            low = low.max(symbol.end);
        }
        low..next
    }

    /// All functions that have a symbol, by ascending address.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (Range<u64>, &str)> {
        self.symbols.iter().map(|symbol| (symbol.start..symbol.end, self.name(symbol)))
    }

    fn name(&self, symbol: &Symbol) -> &str {
        &self.names[symbol.name.start as usize..symbol.name.end as usize]
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        (self.symbols.capacity() * size_of::<Symbol>() + self.names.capacity()) as u64
    }

    fn take(&mut self, candidates: Vec<Candidate<'_>>) {
        // Only the order of their starts counts: of those that have one in common, the best stands for all.
        let mut order: Vec<(u64, u32)> =
            candidates.iter().map(|candidate| candidate.start).zip(0..).collect();
        order.sort_unstable();
        let places = order.chunk_by(|(one, _), (other, _)| one == other);
        let group = |group: &[(u64, u32)]| Group::of(group, &candidates);
        let groups: Vec<Group<'_>> = places.filter_map(group).collect();
        let ends = extents(&groups);
        let known =
            || groups.iter().zip(&ends).filter_map(|(group, end)| Some((group.best, (*end)?)));
        self.symbols.reserve_exact(known().count());
        self.names.reserve_exact(known().map(|(best, _)| best.name.len()).sum());
        let mut reach = 0;
        for (best, end) in known() {
            let from = self.names.len() as u32;
            self.names.push_str(best.name);
            let name = from..self.names.len() as u32;
            reach = end.max(reach);
            self.symbols.push(Symbol { start: best.start, end, reach, name });
        }
    }
}

/// All symbols of one address.
struct Group<'a> {
    best: &'a Candidate<'a>,
    size: u64,
}

impl<'a> Group<'a> {
    fn of(group: &[(u64, u32)], candidates: &'a [Candidate<'a>]) -> Option<Self> {
        let aliases = || group.iter().filter_map(|(_, at)| candidates.get(*at as usize));
        let size = aliases().map(|candidate| candidate.size).max()?;
        let best = match group {
            [_] => aliases().next(),
            _ => aliases().min_by(|a, b| a.rank().cmp(&b.rank())),
        };
        Some(Self { best: best?, size })
    }
}

/// Ends of the functions, one for each of `groups`, by ascending address. A symbol without a size reaches
/// to the next symbol, within its section, and is none at all inside a function that has a size.
fn extents(groups: &[Group<'_>]) -> Vec<Option<u64>> {
    let mut sized_reach = 0;
    let mut ends = Vec::with_capacity(groups.len());
    for (index, Group { best, size }) in groups.iter().enumerate() {
        let start = best.start;
        let end = if *size > 0 {
            Some(start.saturating_add(*size))
        } else if start < sized_reach {
            None
        } else {
            let next = groups.get(index + 1).map_or(u64::MAX, |group| group.best.start);
            Some(next.min(best.section_end))
        };
        if *size > 0 {
            sized_reach = sized_reach.max(start.saturating_add(*size));
        }
        ends.push(end.filter(|end| *end > start));
    }
    ends
}

type Elf<'d, R> = ElfFile64<'d, Endianness, R>;

/// `None` if that took too long.
fn candidates<'d, R: ReadRef<'d>>(
    elf: &Elf<'d, R>,
    is_over: &dyn Fn() -> bool,
) -> Option<Vec<Candidate<'d>>> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    // Of each section, where it ends if it holds code.
    let end = |section: &SectionHeader64<Endianness>| {
        let is_code = section.sh_flags(endian) & u64::from(SHF_EXECINSTR) != 0;
        is_code.then(|| section.sh_addr(endian).saturating_add(section.sh_size(endian)))
    };
    let ends: Vec<Option<u64>> = sections.iter().map(end).collect();
    let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
    let mut found = Vec::with_capacity(tables.iter().map(|table| table.len()).sum());
    for table in tables {
        let names = Names::of(elf, table);
        for (index, symbol) in table.enumerate() {
            if index.0.is_multiple_of(SYMBOLS_PER_CHECK) && is_over() {
                return None;
            }
            let is_code = match symbol.st_type() {
                STT_FUNC | STT_GNU_IFUNC => true,
                STT_OBJECT | STT_COMMON | STT_SECTION | STT_FILE | STT_TLS => false,
                // Hand-written assembly often gives its labels no type.
                _ => !symbol.is_local(),
            };
            if !is_code {
                continue;
            }
            let Ok(Some(section)) = table.symbol_section(endian, symbol, index) else { continue };
            let Some(section_end) = ends.get(section.0).copied().flatten() else { continue };
            let Some(name) = names.name(symbol.st_name(endian)) else { continue };
            if name.is_empty() || name.starts_with(".L") {
                continue;
            }
            found.push(Candidate {
                start: symbol.st_value(endian),
                size: symbol.st_size(endian),
                section_end,
                local: symbol.is_local(),
                name,
            });
        }
    }
    Some(found)
}

/// The names of a table of symbols, read all at once: one by one, each would be read from the file.
#[derive(Clone, Copy)]
pub(crate) struct Names<'d>(&'d [u8]);

impl<'d> Names<'d> {
    /// Those of one of a file's tables; none where they cannot be read.
    pub(crate) fn of<R: ReadRef<'d>>(
        elf: &Elf<'d, R>,
        table: &SymbolTable<'d, FileHeader64<Endianness>, R>,
    ) -> Self {
        let section = elf.section_by_index(table.string_section()).ok();
        Self(section.and_then(|section| section.data().ok()).unwrap_or_default())
    }

    /// The name that begins at an offset; `None` if it is not UTF-8, or none.
    pub(crate) fn name(self, offset: u32) -> Option<&'d str> {
        let rest = self.0.get(offset as usize..)?;
        let name = CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes);
        std::str::from_utf8(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, bool, &str)]) -> Table {
        let mut table = Table::default();
        table.take(
            symbols
                .iter()
                .map(|(start, size, local, name)| Candidate {
                    start: *start,
                    size: *size,
                    section_end: 0x1000,
                    local: *local,
                    name,
                })
                .collect(),
        );
        table
    }

    #[test]
    fn an_address_beyond_a_symbol_is_not_that_symbol() {
        let table = table(&[(0x100, 0x20, false, "f"), (0x140, 0x10, false, "g")]);
        assert_eq!(table.symbol(0x0ff), None);
        assert_eq!(table.symbol(0x100), Some("f"));
        assert_eq!(table.symbol(0x11f), Some("f"));
        assert_eq!(table.symbol(0x120), None);
        assert_eq!(table.symbol(0x14f), Some("g"));
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
        assert_eq!(table.symbol(0x13f), Some("_start"));
        assert_eq!(table.symbol(0x150), Some("f"));
        assert_eq!(table.symbol(0x17f), Some("f"));
        assert_eq!(table.symbol(0x180), None);
        assert_eq!(table.symbol(0xfff), Some("last"));
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
        ]);
        assert_eq!(table.symbol(0x125), Some("inner"));
        assert_eq!(table.symbol(0x130), Some("outer"));
        assert_eq!(table.symbol(0x300), Some("write"));
    }

    #[test]
    fn what_holds_for_an_address_holds_for_all_that_are_alike() {
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
            assert_eq!(ends.map(|end| table.symbol(end)), [symbol; 2], "{address:#x}");
            assert!(alike.clone().take(0x320).all(|each| table.symbol(each) == symbol));
            let beyond = [alike.start.checked_sub(1), Some(alike.end)];
            let beyond = beyond.into_iter().flatten().filter(|beyond| *beyond < 0x310);
            assert!(beyond.into_iter().all(|beyond| table.symbol(beyond) != symbol));
        }
    }
}
