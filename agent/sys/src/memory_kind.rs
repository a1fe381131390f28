//! Kinds of the library's own memory: each thread sets the kind of its work, and the heap counts
//! every block by the kind of work that allocated it.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

// The kind is read at every allocation, so it is a TLS word of the initial-exec model: one load
// relative to the thread pointer (ELF Handling for Thread-Local Storage, 3.4). `thread_local!` in a
// shared library calls `__tls_get_addr`, which may itself allocate.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl plimsoll_memory_kind",
    ".hidden plimsoll_memory_kind",
    ".type plimsoll_memory_kind,@object",
    ".size plimsoll_memory_kind,8",
    "plimsoll_memory_kind:",
    ".zero 8",
    ".popsection",
);

/// Purpose of a block of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryKind {
    /// Sampling and everything without a kind of its own: loaded modules, frame rules, the job's
    /// settings.
    Sampling = 0,
    /// Calling contexts, their values by phase, addresses and their names.
    Contexts = 1,
    /// Temporal context trees: the clusters of iterations.
    Clusters = 2,
    /// Symbols, loops and lines of the program's functions.
    Structure = 3,
    /// Records on their way to the spool.
    Spool = 4,
    /// Profiles, their reduction over ranks, the summary and the reports.
    Analysis = 5,
    /// Debug information and unwind tables, while they are read.
    DebugInfo = 6,
}

/// Number of values of [`MemoryKind`].
pub const MEMORY_KINDS: usize = 7;

/// Bytes that the heap has mapped, including free blocks; 0 if the allocator does not count them.
pub static HEAP_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether much memory was freed, so that whole mappings of the heap may be free.
static IS_TRIM_DUE: AtomicBool = AtomicBool::new(false);

/// Requests that the heap return its free mappings to the system when the next block is freed.
pub fn request_trim() {
    IS_TRIM_DUE.store(true, Ordering::Relaxed);
}

/// Returns whether a trim was requested since the last call.
#[inline]
pub fn take_trim_request() -> bool {
    IS_TRIM_DUE.load(Ordering::Relaxed) && IS_TRIM_DUE.swap(false, Ordering::Relaxed)
}

/// Returns the index of the kind for which the calling thread allocates, less than
/// [`MEMORY_KINDS`].
#[inline]
pub fn current() -> usize {
    word() as usize % MEMORY_KINDS
}

/// Runs `work` and counts its allocations on this thread as `kind`. Scopes may be nested.
#[inline]
pub fn count_as<R>(kind: MemoryKind, work: impl FnOnce() -> R) -> R {
    /// Restores the kind of the outer scope, also after a panic.
    struct Outer(u64);
    impl Drop for Outer {
        fn drop(&mut self) {
            set_word(self.0);
        }
    }
    let _outer = Outer(word());
    set_word(kind as u64);
    work()
}

/// Returns the calling thread's [`MemoryKind`] as a number.
#[inline(always)]
fn word() -> u64 {
    let kind: u64;
    // SAFETY: reads the calling thread's own TLS word, which lives as long as the thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + plimsoll_memory_kind@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) kind,
            options(nostack, readonly, preserves_flags),
        );
    }
    kind
}

#[inline(always)]
fn set_word(kind: u64) {
    // SAFETY: writes the calling thread's own TLS word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + plimsoll_memory_kind@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) kind,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_end_with_the_kind_of_the_outer_one() {
        let kinds = || current();
        let seen = count_as(MemoryKind::Contexts, || {
            let inner = count_as(MemoryKind::Clusters, kinds);
            let panicked = std::panic::catch_unwind(|| {
                count_as(MemoryKind::Spool, || std::panic::resume_unwind(Box::new(())))
            });
            assert!(panicked.is_err());
            [inner, current(), std::thread::spawn(kinds).join().unwrap()]
        });
        let sampling = MemoryKind::Sampling as usize;
        assert_eq!(seen, [MemoryKind::Clusters as usize, MemoryKind::Contexts as usize, sampling]);
        assert_eq!(current(), sampling);
    }
}
