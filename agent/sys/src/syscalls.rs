//! System calls that leave errno alone (System V ABI for x86-64, A.2.1).
//!
//! Plimsoll's code runs between two instructions of the application, or inside one of its calls
//! that succeeds: errno belongs to the application. The C library's `syscall` writes errno whenever
//! the kernel returns an error.

use core::arch::asm;

/// Largest error number that the kernel returns.
const MAX_ERRNO: isize = 4095;

/// Makes a system call. Returns the kernel's result, or its error number.
///
/// # Safety
/// The arguments are valid for the system call of this number.
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, libc::c_int> {
    let result: isize;
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11; the caller promises
    // that its memory accesses are sound.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if (-MAX_ERRNO..0).contains(&result) {
        Err(-result as libc::c_int)
    } else {
        Ok(result as usize)
    }
}

/// Makes a system call with up to six arguments, each of a type that casts to `usize`; see
/// [`call`] for the result and for what its caller promises.
#[macro_export]
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let mut arguments = [0usize; 6];
        let given = [$($argument as usize),*];
        arguments[..given.len()].copy_from_slice(&given);
        $crate::syscalls::call($number, arguments)
    }};
}

pub use crate::syscall;

/// Runs `work`, which may call the C library, and restores errno. Async-signal-safe if `work` is.
pub fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: errno's location is valid in every thread, and stays as long as the thread.
    let (errno, before) = unsafe { (libc::__errno_location(), *libc::__errno_location()) };
    let result = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_refusal_is_returned_and_errno_stays() {
        // SAFETY: errno's location is valid; the descriptor is none.
        let (refused, errno) = unsafe {
            *libc::__errno_location() = 4711;
            (syscall!(libc::SYS_close, -1i32), *libc::__errno_location())
        };
        assert_eq!((refused, errno), (Err(libc::EBADF), 4711));
        // SAFETY: no preconditions.
        let pid = unsafe { syscall!(libc::SYS_getpid) };
        assert_eq!(pid, Ok(std::process::id() as usize));
    }
}
