//! Detection of exception unwinders that are linked statically into a module.
//!
//! A copy of GCC's unwinder passes a mark as GCC's library does. LLVM's unwinder does not: its
//! frame contexts have another format, and an exception in flight when the mark was set would find
//! no handler. The loader does not know such a copy, and a stripped file has no symbol for it. The
//! copy is therefore recognised by two things that it needs: the loader's function that finds
//! unwind tables, among the names that the module imports, and one of its own messages.

use crate::modules::LoadedModule;

/// Functions of the C library that locate unwind tables (dl_iterate_phdr(3); two since glibc 2.35).
const FINDERS: [&[u8]; 2] = [b"dl_iterate_phdr", b"_dl_find_object"];

/// Part of the message of LLVM's libunwind before it aborts, in all its versions.
const MESSAGE: &[u8] = b"personality function said it would stop here";

/// Returns whether the module carries a copy of LLVM's unwinder. May read the module's constants.
pub fn carries_foreign(module: &LoadedModule) -> bool {
    let names = module.names.unwrap_or_default();
    holds(names, &FINDERS) && module.constants.iter().any(|constants| holds(constants, &[MESSAGE]))
}

/// Number of bytes that are copied and searched together.
const PIECE: usize = 64 << 10;

/// Returns whether one of the needles, each shorter than [`PIECE`], occurs in these bytes of a
/// module. Returns false also if the bytes are unmapped: a library that fails to load, or is closed
/// meanwhile, disappears during the search.
pub(super) fn holds(bytes: &[u8], needles: &[&[u8]]) -> bool {
    let longest = needles.iter().map(|needle| needle.len()).max().unwrap_or(0);
    let mut piece = vec![0u8; PIECE];
    let mut at = 0;
    while at < bytes.len() {
        let Some(read) = copy(&bytes[at..], &mut piece) else { return false };
        let is_there = |needle: &&[u8]| {
            // SAFETY: both are given with their lengths.
            let found = unsafe {
                libc::memmem(piece.as_ptr().cast(), read, needle.as_ptr().cast(), needle.len())
            };
            !found.is_null()
        };
        if needles.iter().any(is_there) {
            return true;
        }
        if read <= longest {
            return false;
        }
        // A needle may begin at the end of this piece.
        at += read - longest + 1;
    }
    false
}

/// Copies as many bytes as fit, by a system call, since only the kernel knows which bytes are
/// mapped. Returns the number of copied bytes; `None` if there were none.
fn copy(from: &[u8], to: &mut [u8]) -> Option<usize> {
    let length = from.len().min(to.len());
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: length };
    // SAFETY: the kernel writes into `to` only, at most its length.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read).ok().filter(|read| *read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;

    #[test]
    fn a_module_is_recognised_by_imports_and_message() {
        let loaded = modules::loaded();
        let mut program = loaded.into_iter().next().expect("the program itself is loaded");
        // The test asks for dl_iterate_phdr and holds MESSAGE.
        assert!(program.names.is_some_and(|names| holds(names, &FINDERS[..1])));
        assert!(carries_foreign(&program));
        program.constants.clear();
        assert!(!carries_foreign(&program));
        program.constants.push(MESSAGE);
        program.names = Some(b"\0malloc\0free\0");
        assert!(!carries_foreign(&program));
        program.names = Some(b"\0malloc\0_dl_find_object\0");
        assert!(carries_foreign(&program));
        program.names = None;
        assert!(!carries_foreign(&program));
    }

    #[test]
    fn needles_across_pieces_are_found_and_unmapped_bytes_are_not() {
        let mut bytes = vec![0u8; 3 * PIECE];
        for at in [0, PIECE - 5, PIECE, 2 * PIECE - MESSAGE.len(), bytes.len() - MESSAGE.len()] {
            assert!(!holds(&bytes, &[MESSAGE]));
            bytes[at..at + MESSAGE.len()].copy_from_slice(MESSAGE);
            assert!(holds(&bytes, &[MESSAGE]), "at {at}");
            bytes[at..at + MESSAGE.len()].fill(0);
        }
        let memory = plimsoll_sys::mapping::private(2 * PIECE);
        // SAFETY: the memory was just mapped; of the slice, which outlives it, only the address is
        // used.
        let gone = unsafe {
            let slice = core::slice::from_raw_parts(memory, 2 * PIECE);
            libc::munmap(memory.cast(), 2 * PIECE);
            slice
        };
        assert!(!holds(gone, &[MESSAGE]));
    }

    #[test]
    fn no_library_of_this_program_carries_a_foreign_unwinder() {
        for module in &modules::loaded()[1..] {
            let name = String::from_utf8_lossy(&module.name).into_owned();
            assert!(!carries_foreign(module), "{name}");
        }
    }
}
