//! Hooks of unshare and setns. The kernel refuses a process with several threads a user namespace
//! of its own (unshare(2), setns(2)), as programs that start containers make: Plimsoll's threads
//! must not be what it counts.

use std::ffi::c_int;

use plimsoll_sys::syscalls::keep_errno;

use crate::guard::guarded;
use crate::job;

mod c {
    use super::*;
    crate::real! {
        /// The C library's function of this name.
        unshare(flags: c_int) -> c_int
    }
    crate::real! {
        /// The C library's function of this name.
        setns(descriptor: c_int, kind: c_int) -> c_int
    }
}

/// Hook of unshare.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    again_without_threads(|| unsafe { c::unshare(flags) })
}

/// Hook of setns.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    // SAFETY: as the caller promises.
    again_without_threads(|| unsafe { c::setns(descriptor, kind) })
}

/// Makes a call. If the kernel refuses it (EINVAL) while threads of Plimsoll are running, ends
/// those, tries again, and starts them anew.
fn again_without_threads(call: impl Fn() -> c_int) -> c_int {
    let result = call();
    if result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return result;
    }
    if !keep_errno(|| guarded("namespace", job::end_threads, || false)) {
        return result;
    }
    let result = call();
    keep_errno(|| guarded("after namespace", job::start_threads_again, || ()));
    result
}
