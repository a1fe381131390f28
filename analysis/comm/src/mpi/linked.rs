//! Whether a program carries an MPI in itself, where no hook of ours is called.

use std::fs::File;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use plimsoll_sys::own::Own;

/// A function that every MPI library defines and hardly a program calls: it is for tools.
const DEFINED_BY_MPI: &[u8] = b"PMPI_Init";

/// Whether the program's own symbols define MPI: it is linked statically. A program that was
/// stripped of its symbols does not show it.
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
