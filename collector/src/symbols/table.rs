//! The functions of one ELF file that have symbols.

use std::ops::Range;
use std::sync::Arc;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, ElfSymbol64, Sym as _, SymbolTable};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadRef, SectionFlags, SymbolKind};

use super::source::Source;

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
    pub(crate) fn read(source: &Arc<Source>, build_id: &[u8]) -> Option<Self> {
        Self::of(&ElfFile64::parse(&source.cache()).ok()?, build_id)
    }

    fn of<'d, R: ReadRef<'d>>(elf: &Elf<'d, R>, build_id: &[u8]) -> Option<Self> {
        if let Ok(Some(found)) = elf.build_id()
            && !build_id.is_empty()
            && found != build_id
        {
            return None;
        }
        let mut table = Self::default();
        table.take(candidates(elf));
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

    fn take(&mut self, mut candidates: Vec<Candidate<'_>>) {
        candidates.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| a.rank().cmp(&b.rank())));
        let ends = extents(&candidates);
        let mut reach = 0;
        for (group, end) in candidates.chunk_by(|a, b| a.start == b.start).zip(ends) {
            let Some(end) = end else { continue };
            let best = &group[0];
            let from = self.names.len() as u32;
            self.names.push_str(best.name);
            let name = from..self.names.len() as u32;
            reach = end.max(reach);
            self.symbols.push(Symbol { start: best.start, end, reach, name });
        }
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
    }
}

/// Ends of the functions, one for each distinct start in `sorted`. A symbol without a size reaches
/// to the next symbol, within its section, and is none at all inside a function that has a size.
fn extents(sorted: &[Candidate<'_>]) -> Vec<Option<u64>> {
    let groups: Vec<&[Candidate<'_>]> = sorted.chunk_by(|a, b| a.start == b.start).collect();
    let mut sized_reach = 0;
    let mut ends = Vec::with_capacity(groups.len());
    for (index, group) in groups.iter().enumerate() {
        let start = group[0].start;
        let size = group.iter().map(|candidate| candidate.size).max().unwrap_or(0);
        let end = if size > 0 {
            Some(start.saturating_add(size))
        } else if start < sized_reach {
            None
        } else {
            let next = groups.get(index + 1).map_or(u64::MAX, |group| group[0].start);
            Some(next.min(group[0].section_end))
        };
        if size > 0 {
            sized_reach = sized_reach.max(start.saturating_add(size));
        }
        ends.push(end.filter(|end| *end > start));
    }
    ends
}

type Elf<'d, R> = ElfFile64<'d, Endianness, R>;

fn candidates<'d, R: ReadRef<'d>>(elf: &Elf<'d, R>) -> Vec<Candidate<'d>> {
    let mut found = Vec::new();
    let (names, dynamic_names) =
        (Names::of(elf, elf.elf_symbol_table()), Names::of(elf, elf.elf_dynamic_symbol_table()));
    let symbols = elf.symbols().map(|symbol| (symbol, names));
    let dynamic = elf.dynamic_symbols().map(|symbol| (symbol, dynamic_names));
    for (symbol, names) in symbols.chain(dynamic) {
        let code = match symbol.kind() {
            SymbolKind::Text => true,
            // Hand-written assembly often gives its labels no type.
            SymbolKind::Unknown => symbol.is_global(),
            _ => false,
        };
        if !code || symbol.is_undefined() {
            continue;
        }
        let Some(section) = symbol.section_index().and_then(|i| elf.section_by_index(i).ok())
        else {
            continue;
        };
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(object::elf::SHF_EXECINSTR) == 0 {
            continue;
        }
        let Some(name) = names.name(&symbol) else { continue };
        if name.is_empty() || name.starts_with(".L") {
            continue;
        }
        found.push(Candidate {
            start: symbol.address(),
            size: symbol.size(),
            section_end: section.address().saturating_add(section.size()),
            local: symbol.is_local(),
            name,
        });
    }
    found
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

    /// The name of a symbol of that table; `None` if it is not UTF-8.
    pub(crate) fn name<R: ReadRef<'d>>(
        self,
        symbol: &ElfSymbol64<'d, '_, Endianness, R>,
    ) -> Option<&'d str> {
        // Files of other machines are not read.
        let offset = symbol.elf_symbol().st_name(Endianness::Little) as usize;
        let name = self.0.get(offset..)?.split(|byte| *byte == 0).next()?;
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
