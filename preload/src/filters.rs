//! Hooks of prctl and syscall: a process that is about to forbid itself system calls by seccomp(2),
//! or the time stamp counter, is no longer measured from then on.
//!
//! A filter may end the process at a system call that only Plimsoll makes, and the calls that a
//! filter allows cannot be known. So before the filter is in force, the report of what was measured
//! is written, and Plimsoll's threads, timers and handlers end. A program started by an exec
//! inherits the filter and is not measured either. A thread that forbids itself the time stamp
//! counter passes that on to new threads and programs in the same way, and reading a clock would be
//! a fault in them.
//!
//! Waits for a futex by syscall are measured: C++20's barriers, latches, semaphores and atomics,
//! Rust's locks and TBB wait so.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll_agent::observed_process;

use crate::bodies::{pop, push};
use crate::guard::guarded;
use crate::passing_hook;
use crate::real::{self, Function};
use crate::stubs::futex_wait;
use crate::wrappers::REGIONS;
use crate::{ALLOWED, job, log, processes, signals, termination, threads};

/// Whether this process, or an ancestor that it was forked from, has a filter.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Withdraws Plimsoll from this process, which is about to restrict itself, after the report is
/// written by `report`.
fn withdraw(report: fn()) {
    FILTERED.store(true, Ordering::Relaxed);
    let Some(observed) = observed_process::current().filter(|observed| observed.is_own_process())
    else {
        return;
    };
    ALLOWED.store(false, Ordering::Relaxed);
    report();
    job::withdraw();
    REGIONS.store(false, Ordering::Relaxed);
    observed.withdraw();
    signals::withdraw();
}

/// Detaches the calling thread, which is about to forbid itself all system calls but a few. The
/// thread can create no others.
fn leave() {
    if observed_process::current().is_some_and(|observed| observed.is_own_thread()) {
        log::debug(|| String::from("a thread forbids itself system calls: it is measured no more"));
        threads::leave_early();
    }
}

/// Handles a call of seccomp with this operation and filter, before the real call.
fn before_seccomp(operation: c_ulong, filter: *const c_void) {
    const STRICT: c_ulong = libc::SECCOMP_SET_MODE_STRICT as c_ulong;
    const FILTER: c_ulong = libc::SECCOMP_SET_MODE_FILTER as c_ulong;
    match operation {
        STRICT => guarded("seccomp", leave, || ()),
        // A call without a filter fails; programs use it to ask what the kernel supports.
        FILTER if !filter.is_null() => {
            guarded("seccomp", || withdraw(termination::by_filter), || ());
        }
        _ => {}
    }
}

/// Handles a call of prctl that restricts the process or the thread. Returns the real prctl.
extern "C" fn before_prctl(option: c_int, mode: c_ulong, filter: *const c_void) -> *const c_void {
    static FUNCTION: Function = Function::named(c"prctl");
    match option {
        libc::PR_SET_SECCOMP if mode == c_ulong::from(libc::SECCOMP_MODE_STRICT) => {
            before_seccomp(libc::SECCOMP_SET_MODE_STRICT.into(), filter);
        }
        libc::PR_SET_SECCOMP if mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) => {
            before_seccomp(libc::SECCOMP_SET_MODE_FILTER.into(), filter);
        }
        libc::PR_SET_TSC if mode == libc::PR_TSC_SIGSEGV as c_ulong => {
            guarded("prctl", || withdraw(termination::by_lost_clock), || ());
        }
        _ => {}
    }
    FUNCTION.get()
}

passing_hook! {
    /// Hook of prctl. All arguments reach the real function unchanged.
    prctl, before_prctl
}

/// Address of the next definition of `syscall`; 0 before Plimsoll's constructor has run, and if
/// there is none.
static SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// Looks up the real `syscall`. Must be called in the constructor.
pub fn resolve() {
    let next = real::resolve(c"syscall", None).unwrap_or(std::ptr::null());
    SYSCALL.store(next as usize, Ordering::Relaxed);
}

/// Handles a system call that restricts Plimsoll or ends the process, before it is made.
extern "C" fn before_syscall(
    number: libc::c_long,
    operation: c_ulong,
    _: c_ulong,
    filter: *const c_void,
) {
    match number {
        libc::SYS_seccomp => before_seccomp(operation, filter),
        _ => guarded("exit_group", processes::report, || ()),
    }
}

/// Operations of futex(2) without the flags that may be set in them.
const FUTEX_COMMAND: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);

/// Hook of syscall: seccomp has no function of its own in the C library, some programs end by
/// exit_group, and waits for a futex are measured. All other calls, including Plimsoll's, pass
/// directly. Before Plimsoll's constructor has run, the hook makes the system call itself: an
/// allocator may make one at a time when no symbol can be looked up.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je 3f",
        "cmp rdi, {exit_group}",
        "je 3f",
        "2: mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jz 4f",
        "cmp rdi, {futex}",
        "jne 6f",
        "mov r11d, edx",
        "and r11d, {command}",
        "cmp r11d, {wait}",
        "je {measured}",
        "cmp r11d, {wait_bitset}",
        "je {measured}",
        "6: jmp rax",
        // Seven words, so that the stack is aligned to 16 at the call.
        "3:",
        push!(rdi rsi rdx rcx r8 r9),
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        pop!(r9 r8 rcx rdx rsi rdi),
        "jmp 2b",
        // System V ABI for x86-64, A.2.1.
        "4: mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 5f",
        "ret",
        "5: neg rax",
        push!(rax),
        "call {errno}",
        pop!(rcx),
        "mov dword ptr [rax], ecx",
        "mov rax, -1",
        "ret",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        exit_group = const libc::SYS_exit_group,
        futex = const libc::SYS_futex,
        command = const FUTEX_COMMAND,
        wait = const libc::FUTEX_WAIT,
        wait_bitset = const libc::FUTEX_WAIT_BITSET,
        measured = sym futex_wait,
        next = sym SYSCALL,
        before = sym before_syscall,
        errno = sym libc::__errno_location,
    )
}

/// Runs `exec` with the environment of the new program. Behind a filter, the library is disabled
/// there (PLIMSOLL_DISABLE).
pub fn with_environment(
    environment: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    const OFF: &CStr = c"PLIMSOLL_DISABLE=1";
    if !FILTERED.load(Ordering::Relaxed) || environment.is_null() {
        return exec(environment);
    }
    let mut changed = vec![OFF.as_ptr()];
    // SAFETY: an environment is a list of C strings that ends with a null.
    unsafe {
        let mut at = environment;
        while !(*at).is_null() {
            if !CStr::from_ptr(*at).to_bytes().starts_with(b"PLIMSOLL_DISABLE=") {
                changed.push(*at);
            }
            at = at.add(1);
        }
    }
    changed.push(std::ptr::null());
    exec(changed.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::time::{Duration, Instant};

    use plimsoll_wire::clock_anchor::ticks;

    use super::*;
    use crate::this_thread::this_thread;

    /// Time that the calling thread has waited for other threads, in ticks.
    fn waited() -> u64 {
        let (block, _) = this_thread().expect("the process of the tests is observed");
        block.enter(|state| state.call_times.barrier).expect("the handler does not run")
    }

    /// Makes a futex call for a word that holds 0, with all arguments. Returns the result, the
    /// error, and whether the call counts as a wait as long as it took, within a half.
    fn futex(operation: c_int, value: u32, timeout: *const libc::timespec) -> (i64, i32, bool) {
        let word = 0u32;
        let (before, began) = (waited(), ticks());
        // SAFETY: the word and the timeout outlive the call.
        let result = unsafe {
            let (word, other) = (&raw const word, std::ptr::null::<u32>());
            libc::syscall(libc::SYS_futex, word, operation, value, timeout, other, 1u32)
        };
        let error = Error::last_os_error().raw_os_error().unwrap_or(0);
        let took = ticks() - began;
        (result, error, waited() - before > took / 2)
    }

    #[test]
    fn waits_for_a_futex_are_measured_and_other_calls_pass() {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let private = libc::FUTEX_PRIVATE_FLAG;
        for flags in [0, private] {
            let began = Instant::now();
            let waited = futex(libc::FUTEX_WAIT | flags, 0, &raw const pause);
            assert_eq!(waited, (-1, libc::ETIMEDOUT, true));
            assert!(began.elapsed() >= Duration::from_millis(20));
        }
        // The time out is a time of the clock, and long past.
        for flags in [private, private | libc::FUTEX_CLOCK_REALTIME] {
            let (result, error, _) = futex(libc::FUTEX_WAIT_BITSET | flags, 0, &raw const at_once);
            assert_eq!((result, error), (-1, libc::ETIMEDOUT));
        }
        let (result, error, _) = futex(libc::FUTEX_WAIT | private, 1, std::ptr::null());
        assert_eq!((result, error), (-1, libc::EAGAIN));
        let before = waited();
        let (result, _, _) = futex(libc::FUTEX_WAKE | private, 1, std::ptr::null());
        assert_eq!(result, 0);
        // SAFETY: a call without arguments.
        assert_eq!(unsafe { libc::syscall(libc::SYS_getpid) } as u32, std::process::id());
        assert_eq!(waited(), before);
    }
}
