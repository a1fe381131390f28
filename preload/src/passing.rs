//! Hooks that pass their call on: each runs a function of Plimsoll, then jumps to the real function
//! with the caller's stack and arguments.

/// Defines the hook `$name`. `$note` receives the first three argument words and the place of the
/// return address, and returns the address of the real function, to which the hook jumps.
#[macro_export]
macro_rules! passing_hook {
    ($(#[$meta:meta])* $name:ident, $note:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            // Five words, so that the stack is aligned to 16 at the call.
            ::std::arch::naked_asm!(
                ".cfi_startproc",
                $crate::bodies::push!(rdi rsi rdx rcx r8),
                "lea rcx, [rsp + 40]",
                "call {note}",
                $crate::bodies::pop!(r8 rcx rdx rsi rdi),
                "jmp rax",
                ".cfi_endproc",
                note = sym $note,
            )
        }
    };
}
