//! Hooks of input and output by streams of the C library. Its streams call the kernel past the
//! wrappers of `read` and `write`.

use std::arch::naked_asm;
use std::ffi::c_int;

use plimsoll_calls::{CallId, id_of};
use plimsoll_sys::syscalls::keep_errno;

use crate::real::CALL_DEFINITIONS;
use crate::stubs::measured;

/// Minimum number of bytes that a measured call moves: fewer most often stay in the stream's
/// buffer.
const MIN_BYTES: usize = 4096;

/// Returns the file descriptor of a stream, given by its address; -1 if it has none.
///
/// # Safety
/// `stream` is 0 or the address of an open stream.
pub unsafe fn descriptor_of(stream: usize) -> c_int {
    if stream == 0 {
        return -1;
    }
    // SAFETY: as the caller promises.
    keep_errno(|| unsafe { libc::fileno(stream as *mut libc::FILE) })
}

/// Offsets of a stream's next character in its buffer, and of the end of the characters there: the
/// beginning of FILE, which the C library keeps for programs that have its macros compiled in.
const NEXT: usize = 8;
const END: usize = 16;

/// Defines the hook of a call that is measured if `$condition`, assembly that may change rax, jumps
/// to label 2 or the real function is not known yet. It jumps to the real function otherwise.
macro_rules! hook {
    ($name:ident, $($condition:expr),*; $($operand:ident = const $value:expr),*) => {
        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            const ID: CallId = id_of(stringify!($name));
            naked_asm!(
                ".cfi_startproc",
                $($condition,)*
                "mov rax, qword ptr [rip + {definitions} + {at}]",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2: mov r11d, {code}",
                "jmp {measured}",
                ".cfi_endproc",
                $($operand = const $value,)*
                definitions = sym CALL_DEFINITIONS,
                // The first definitions are those of C.
                at = const size_of::<usize>() * ID as usize,
                code = const ID as u32,
                measured = sym measured,
            )
        }
    };
}

/// Defines the hook of a call that moves items. Calls that move little are not measured.
macro_rules! items_hook {
    ($name:ident, $size:literal, $count:literal) => {
        hook!(
            $name,
            concat!("mov rax, ", $size),
            concat!("imul rax, ", $count),
            "cmp rax, {least}",
            "jae 2f";
            least = const MIN_BYTES
        );
    };
}

/// Defines the hook of a call that reads a line. Calls that find characters in the stream's buffer
/// are not measured.
macro_rules! line_hook {
    ($name:ident, $stream:literal) => {
        hook!(
            $name,
            concat!("test ", $stream, ", ", $stream),
            "jz 2f",
            concat!("mov rax, [", $stream, " + {next}]"),
            concat!("cmp rax, [", $stream, " + {end}]"),
            "jae 2f";
            next = const NEXT, end = const END
        );
    };
}

items_hook!(fread, "rsi", "rdx");
items_hook!(__fread_chk, "rdx", "rcx");
items_hook!(fwrite, "rsi", "rdx");
line_hook!(fgets, "rdx");
line_hook!(__fgets_chk, "rcx");
line_hook!(__getdelim, "rcx");
