//! One pointer per thread, readable in a signal handler.
//!
//! `thread_local!` in a shared library calls `__tls_get_addr`, which may allocate on a thread's
//! first access: forbidden in a handler. A TLS symbol of our own, read through the initial-exec
//! model (ELF Handling for Thread-Local Storage, 3.4), is one load relative to the thread pointer.

use core::arch::{asm, global_asm};

use crate::thread_state::ThreadBlock;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl plimsoll_thread",
    ".hidden plimsoll_thread",
    ".type plimsoll_thread,@object",
    ".size plimsoll_thread,8",
    "plimsoll_thread:",
    ".zero 8",
    ".popsection",
);

/// Returns the calling thread's block, or null if the thread is not observed.
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
