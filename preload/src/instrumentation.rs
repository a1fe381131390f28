//! Tools that instrument the process already: sanitizers and valgrind. The library does not observe
//! such a process, since each tool takes the library's work for a fault of the program.

use std::arch::asm;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

use crate::real;

/// A function of the runtime of each sanitizer that misbehaves beside a preloaded library, and the
/// sanitizer's name. UndefinedBehaviorSanitizer is absent: its checks do not affect the library.
const SANITIZERS: [(&CStr, &str); 5] = [
    (c"__asan_init", "AddressSanitizer"),
    (c"__tsan_init", "ThreadSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
    (c"__hwasan_init", "HWAddressSanitizer"),
    (c"__lsan_init", "LeakSanitizer"),
];

/// Returns the name of the tool that instruments this process; `None` if there is none.
pub fn tool() -> Option<&'static str> {
    // SAFETY: looks C strings up; nothing is called.
    let loaded = |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    let sanitizer = SANITIZERS.iter().find(|(function, _)| loaded(function));
    sanitizer.map(|(_, name)| *name).or_else(|| runs_on_valgrind().then_some("valgrind"))
}

/// Returns whether the process runs on valgrind. Asks valgrind's core by its client request
/// RUNNING_ON_VALGRIND (valgrind.h): on a processor the instructions change nothing, and the answer
/// stays the default, 0.
fn runs_on_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request: [u64; 6] = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: rdi is rotated by 128 bits in all, and rbx exchanged with itself. Valgrind reads the
    // request, which outlives the instructions, and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdi") 0_u64 => _,
            in("rax") &raw const request,
            inout("rdx") 0_u64 => answer,
        );
    }
    answer != 0
}

/// Returns options for AddressSanitizer. Its shared runtime ends a program in which another library
/// was loaded before it, and reads further options from this function before any constructor runs:
/// the check of the order is switched off, and the options of another library's definition are
/// kept. (A program's own function is found before this one; such a program needs
/// `ASAN_OPTIONS=verify_asan_link_order=0`.)
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    const OURS: &CStr = c"verify_asan_link_order=0";
    std::panic::catch_unwind(|| {
        let next = real::resolve(c"__asan_default_options", None).unwrap_or(null());
        if next.is_null() {
            return OURS.as_ptr();
        }
        // SAFETY: the next definition has the type that AddressSanitizer's interface gives it, and
        // returns a C string or null.
        let theirs = unsafe {
            let function: extern "C" fn() -> *const c_char = std::mem::transmute(next);
            let options = function();
            if options.is_null() { c"" } else { CStr::from_ptr(options) }
        };
        let both = [OURS.to_bytes(), b":", theirs.to_bytes()].concat();
        // The runtime reads the options once, at the start, so the leak is a single string.
        CString::new(both).map_or(OURS.as_ptr(), |both| both.into_raw().cast_const())
    })
    .unwrap_or(OURS.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tool_instruments_a_plain_process() {
        assert_eq!(tool(), None);
    }

    #[test]
    fn the_check_of_the_order_is_switched_off() {
        // SAFETY: a C string that stays.
        let options = unsafe { CStr::from_ptr(__asan_default_options()) };
        assert!(options.to_bytes().starts_with(b"verify_asan_link_order=0"), "{options:?}");
    }
}
