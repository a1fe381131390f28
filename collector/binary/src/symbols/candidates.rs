//! Symbols as a file has them, and the choice among aliases of one address.

use std::ffi::CStr;
use std::ops::Range;

use object::elf::{
    FileHeader64, SHF_EXECINSTR, STT_COMMON, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT,
    STT_SECTION, STT_TLS, SectionHeader64,
};
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _, SymbolTable};
use object::{Endianness, Object, ObjectSection, ReadRef};

/// Number of symbols read between two checks of the deadline: less than a millisecond.
const SYMBOLS_PER_CHECK: usize = 1 << 12;

/// A symbol before the choice among its aliases.
pub(super) struct Candidate<'a> {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) section_end: u64,
    pub(super) local: bool,
    pub(super) name: &'a str,
    pub(super) name_at: u32,
    pub(super) is_dynamic: bool,
}

impl Candidate<'_> {
    /// Sort key among aliases of one address: the name that the user more likely knows comes first.
    /// The version of a symbol (`exp@@GLIBC_2.29`) is no part of the name that is shown.
    fn rank(&self) -> (bool, usize, usize, &str) {
        let underscores = self.name.len() - self.name.trim_start_matches('_').len();
        let length = self.name.find('@').unwrap_or(self.name.len());
        (self.local, underscores, length, self.name)
    }
}

/// Returns the best of the symbols of one address; `None` without symbols.
pub(super) fn best<'g, 'a>(aliases: &'g [Candidate<'a>]) -> Option<&'g Candidate<'a>> {
    match aliases {
        [only] => Some(only),
        _ => aliases.iter().min_by(|a, b| a.rank().cmp(&b.rank())),
    }
}

pub(super) type Elf<'d, R> = ElfFile64<'d, Endianness, R>;

/// Reads the candidates; `None` if the deadline passed first.
pub(super) fn candidates<'d, R: ReadRef<'d>>(
    elf: &Elf<'d, R>,
    is_over: &dyn Fn() -> bool,
) -> Option<Vec<Candidate<'d>>> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    // End of each section that holds code.
    let end = |section: &SectionHeader64<Endianness>| {
        let is_code = section.sh_flags(endian) & u64::from(SHF_EXECINSTR) != 0;
        is_code.then(|| section.sh_addr(endian).saturating_add(section.sh_size(endian)))
    };
    let ends: Vec<Option<u64>> = sections.iter().map(end).collect();
    let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
    let mut found = Vec::with_capacity(tables.iter().map(|table| table.len()).sum());
    for (table, is_dynamic) in tables.into_iter().zip([false, true]) {
        let names = Names::of(elf, table);
        for (index, symbol) in table.enumerate() {
            if index.0.is_multiple_of(SYMBOLS_PER_CHECK) && is_over() {
                return None;
            }
            let is_code = match symbol.st_type() {
                STT_FUNC | STT_GNU_IFUNC => true,
                STT_OBJECT | STT_COMMON | STT_SECTION | STT_FILE | STT_TLS => false,
                // Labels of hand-written assembly often have no type.
                _ => !symbol.is_local(),
            };
            if !is_code {
                continue;
            }
            let Ok(Some(section)) = table.symbol_section(endian, symbol, index) else { continue };
            let Some(section_end) = ends.get(section.0).copied().flatten() else { continue };
            let name_at = symbol.st_name(endian);
            let Some(name) = names.name(name_at) else { continue };
            if name.is_empty() || name.starts_with(".L") {
                continue;
            }
            found.push(Candidate {
                start: symbol.st_value(endian),
                size: symbol.st_size(endian),
                section_end,
                local: symbol.is_local(),
                name,
                name_at,
                is_dynamic,
            });
        }
    }
    Some(found)
}

/// Returns the range in the file of the names of a symbol table.
pub(super) fn names_range<'d, R: ReadRef<'d>>(
    elf: &Elf<'d, R>,
    table: &SymbolTable<'d, FileHeader64<Endianness>, R>,
) -> Option<Range<u64>> {
    let (begin, size) = elf.section_by_index(table.string_section()).ok()?.file_range()?;
    Some(begin..begin.checked_add(size)?)
}

/// The names of a symbol table, read all at once: one by one, each would be a read of the file.
#[derive(Clone, Copy)]
pub(crate) struct Names<'d>(&'d [u8]);

impl<'d> Names<'d> {
    /// Reads the names of one of a file's symbol tables; empty if they cannot be read.
    pub(crate) fn of<R: ReadRef<'d>>(
        elf: &Elf<'d, R>,
        table: &SymbolTable<'d, FileHeader64<Endianness>, R>,
    ) -> Self {
        let section = elf.section_by_index(table.string_section()).ok();
        Self(section.and_then(|section| section.data().ok()).unwrap_or_default())
    }

    /// Returns the name at an offset; `None` if there is none, or it is not UTF-8.
    pub(crate) fn name(self, offset: u32) -> Option<&'d str> {
        let rest = self.0.get(offset as usize..)?;
        let name = CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes);
        std::str::from_utf8(name).ok()
    }
}
