//! One pointer and one number per thread, readable in a signal handler.
//!
//! `thread_local!` in a shared library calls `__tls_get_addr`, which may allocate on a thread's
//! first access: forbidden in a handler. A TLS symbol of our own, read through the initial-exec
//! model (ELF Handling for Thread-Local Storage, 3.4), is one load relative to the thread pointer.

use core::arch::{asm, global_asm};

use crate::thread::ThreadBlock;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl plimsoll_thread",
    ".hidden plimsoll_thread",
    ".type plimsoll_thread,@object",
    ".size plimsoll_thread,8",
    "plimsoll_thread:",
    ".zero 8",
    ".globl plimsoll_memory_kind",
    ".hidden plimsoll_memory_kind",
    ".type plimsoll_memory_kind,@object",
    ".size plimsoll_memory_kind,8",
    "plimsoll_memory_kind:",
    ".zero 8",
    ".popsection",
);

/// The calling thread's block, or null if the thread is not observed.
#[inline(always)]
pub fn get() -> *mut ThreadBlock {
    let block: *mut ThreadBlock;
    // SAFETY: reads the calling thread's own TLS word, which exists since the thread does.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) block,
            options(nostack, readonly, preserves_flags),
        );
    }
    block
}

/// Sets the calling thread's block.
pub fn set(block: *mut ThreadBlock) {
    // SAFETY: writes the calling thread's own TLS word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) block,
            options(nostack, preserves_flags),
        );
    }
}

/// What the calling thread allocates memory for: a [`crate::memory_kind::MemoryKind`].
#[inline(always)]
pub fn memory_kind() -> u64 {
    let kind: u64;
    // SAFETY: as in `get`.
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

/// Sets what the calling thread allocates memory for.
#[inline(always)]
pub fn set_memory_kind(kind: u64) {
    // SAFETY: as in `set`.
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
