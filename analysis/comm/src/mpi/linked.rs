//! Detects programs with a statically linked MPI, which preloaded wrappers do not reach.

use std::fs::File;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use plimsoll_sys::own::Own;

/// A function that every MPI library defines and that hardly any program calls: it is meant for
/// tools.
const DEFINED_BY_MPI: &[u8] = b"PMPI_Init";

/// Returns whether the program defines MPI itself, that is whether MPI is linked statically.
/// Returns false for a stripped program.
pub fn is_linked_in(program: &Path) -> bool {
    let Ok(file) = File::open(program).and_then(Own::hidden) else { return false };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    elf.symbols()
        .chain(elf.dynamic_symbols())
        .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(DEFINED_BY_MPI))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_carries_none() {
        let program = std::env::current_exe().expect("a test knows its own path");
        assert!(!is_linked_in(&program));
        assert!(!is_linked_in(Path::new("/proc/self/maps")));
        assert!(!is_linked_in(Path::new("/nowhere")));
    }
}
