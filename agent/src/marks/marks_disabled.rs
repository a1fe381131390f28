//! Reasons to disable marks: conditions that make return-address marks unsafe, and their detection.

use core::ffi::{c_int, c_long, c_void};

use plimsoll_sys::syscalls::syscall;

/// Reason why marks are disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MarksDisabled {
    /// PLIMSOLL_MARKS=off.
    Setting = 1,
    /// The kernel keeps a shadow stack for the process: a changed return address would end it.
    ShadowStack = 2,
    /// Exceptions are unwound by another library than GCC's.
    ForeignUnwinder = 3,
    /// All stubs are in use.
    PoolExhausted = 4,
    /// Exceptions are unwound by unknown code.
    UnknownUnwinder = 5,
    /// A language runtime looks up return addresses of the stack in tables of its own.
    StackWalker = 6,
    /// Another tool of the OpenMP runtime receives return addresses of calls.
    OpenMpTool = 7,
}

impl MarksDisabled {
    /// Returns the reason with a number from a segment; `None` for 0, which means that marks are
    /// used, and for numbers unknown to this build.
    pub fn from_number(number: u32) -> Option<Self> {
        [
            Self::Setting,
            Self::ShadowStack,
            Self::ForeignUnwinder,
            Self::PoolExhausted,
            Self::UnknownUnwinder,
            Self::StackWalker,
            Self::OpenMpTool,
        ]
        .into_iter()
        .find(|reason| *reason as u32 == number)
    }
}

impl core::fmt::Display for MarksDisabled {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Setting => "PLIMSOLL_MARKS is off",
            Self::ShadowStack => "the process has a shadow stack",
            Self::ForeignUnwinder => {
                "exceptions are unwound by a library that does not know how to pass a mark"
            }
            Self::UnknownUnwinder => "exceptions are unwound by code that is not understood",
            Self::StackWalker => {
                "the program's language runtime walks the stack by return addresses"
            }
            Self::OpenMpTool => "another tool of the OpenMP runtime receives return addresses",
            Self::PoolExhausted => "more distinct return addresses than marks are made for",
        })
    }
}

/// Queries about the process that decide whether marks are safe; replaced in tests.
pub struct UnwinderProbe {
    /// Result of arch_prctl(ARCH_SHSTK_STATUS) or its error number, and the status.
    pub shadow_stack: fn() -> (Result<usize, c_int>, u64),
    /// The module path in which `_Unwind_RaiseException` is found, if any.
    pub unwinder: fn() -> Option<std::vec::Vec<u8>>,
}

impl UnwinderProbe {
    /// Queries of the real process.
    pub const REAL: Self = Self { shadow_stack: shadow_stack_status, unwinder: exception_unwinder };

    /// Returns the reason why marks must not be used in this process; `None` if they may be used.
    pub fn reason(&self) -> Option<MarksDisabled> {
        /// Bit of the status: shadow stacks are on (Linux, Documentation/arch/x86/shstk).
        const SHADOW_STACK_ON: u64 = 1;
        let (result, status) = (self.shadow_stack)();
        if result == Ok(0) && status & SHADOW_STACK_ON != 0 {
            return Some(MarksDisabled::ShadowStack);
        }
        let unwinder = (self.unwinder)()?;
        let file = unwinder.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        file.starts_with(b"libunwind").then_some(MarksDisabled::ForeignUnwinder)
    }
}

fn shadow_stack_status() -> (Result<usize, c_int>, u64) {
    const ARCH_SHSTK_STATUS: c_long = 0x5005;
    let mut status = 0u64;
    // SAFETY: the kernel writes one word, or refuses a code that it does not know.
    let result = unsafe { syscall!(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut status) };
    (result, status)
}

/// Returns the path of the library that raises exceptions for the program: the first in the
/// program's search order.
fn exception_unwinder() -> Option<std::vec::Vec<u8>> {
    // SAFETY: a C string; dladdr fills in the structure; the name in it is the loader's.
    unsafe {
        let raise: *mut c_void =
            libc::dlsym(libc::RTLD_DEFAULT, c"_Unwind_RaiseException".as_ptr());
        if raise.is_null() {
            return None;
        }
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(raise, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(core::ffi::CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> (Result<usize, c_int>, u64) {
        (Err(libc::EINVAL), 0)
    }

    #[test]
    fn marks_retreat_before_shadow_stacks_and_foreign_unwinders() {
        let with = |shadow_stack, unwinder| UnwinderProbe { shadow_stack, unwinder }.reason();
        let gcc = || Some(b"/lib/x86_64-linux-gnu/libgcc_s.so.1".to_vec());
        assert_eq!(with(none, gcc), None);
        assert_eq!(with(none, || None), None);
        assert_eq!(with(|| (Ok(0), 0), gcc), None);
        assert_eq!(with(|| (Ok(0), 1), gcc), Some(MarksDisabled::ShadowStack));
        let nongnu = || Some(b"/usr/lib/libunwind.so.8".to_vec());
        assert_eq!(with(none, nongnu), Some(MarksDisabled::ForeignUnwinder));
        for number in 1..=7 {
            assert_eq!(
                MarksDisabled::from_number(number).map(|reason| reason as u32),
                Some(number)
            );
        }
        assert_eq!(MarksDisabled::from_number(0), None);
    }
}
