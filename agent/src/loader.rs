//! Iteration over the loaded objects (program and shared libraries) by dl_iterate_phdr(3).
//!
//! # Design constraints
//! - No thread of the application takes `dl_load_lock` in code of ours: constructors of libraries
//!   run under it, and may wait for that thread. dlsym, dladdr and the first use of a thread-local
//!   value with a destructor take it. Exceptions: the lookups when MPI or OpenMP begins, and those
//!   in dlopen itself, which takes the lock anyway. An iteration must not take it either: it holds
//!   `dl_load_write_lock`, which dlopen takes second.
//! - No object is unmapped during an iteration: glibc holds `dl_load_write_lock` while it calls
//!   back, and unmaps objects with this lock only (elf/dl-close.c), also after a dlopen that fails.
//! - No fork happens during an iteration: glibc 2.36 resets its other locks in the child, but not
//!   this one (posix/fork.c). If another thread of the parent iterated during the fork, dlopen in
//!   the child would block forever.

use core::ffi::{c_int, c_void};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::Result;

use plimsoll_sys::posix_clocks::clock_ns;

/// Number of iterations in progress, plus [`FORK`] for each fork in progress.
static RUNNING: AtomicU32 = AtomicU32::new(0);
const FORK: u32 = 1 << 16;

/// Maximum time that an iteration waits for a fork, and a fork for an iteration, in nanoseconds.
/// The bound excludes a deadlock where each holds a lock that the other needs.
const TIMEOUT_NS: u64 = 100_000_000;

/// Calls `visit` with each loaded object until `visit` breaks. All objects stay mapped until the
/// function returns, and no other thread visits objects meanwhile. To exclude deadlocks, the caller
/// must hold no lock that a constructor of a library or another `visit` may take.
pub fn each_object(visit: &mut dyn FnMut(&libc::dl_phdr_info) -> ControlFlow<()>) {
    enter(1, |running| running < FORK);
    let result = iterate(visit);
    RUNNING.fetch_sub(1, Ordering::Release);
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

/// Runs `work` while all objects stay mapped. `work` may call [`each_object`].
pub fn while_mapped<R>(work: impl FnOnce() -> R) -> R {
    let mut work = Some(work);
    let mut done = None;
    each_object(&mut |_| {
        done = work.take().map(|work| work());
        ControlFlow::Break(())
    });
    // A process without any object has nothing that could be unmapped.
    done.or_else(|| work.map(|work| work())).expect("either has run")
}

/// Waits for iterations in progress and keeps new ones back until [`after_fork`] or [`in_child`].
pub fn before_fork() {
    enter(FORK, |running| running % FORK == 0);
}

/// Lets iterations begin again, in the parent.
pub fn after_fork() {
    RUNNING.fetch_sub(FORK, Ordering::Release);
}

/// Resets the count in a forked child. Its only thread is not iterating.
pub fn in_child() {
    RUNNING.store(0, Ordering::Release);
}

/// Adds `what` to [`RUNNING`] once `may` allows it, at the latest after [`TIMEOUT_NS`].
fn enter(what: u32, may: impl Fn(u32) -> bool) {
    let begin = clock_ns(libc::CLOCK_MONOTONIC);
    let add = |running: u32| may(running).then(|| running + what);
    while RUNNING.fetch_update(Ordering::Acquire, Ordering::Relaxed, add).is_err() {
        if clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(begin) > TIMEOUT_NS {
            RUNNING.fetch_add(what, Ordering::Acquire);
            return;
        }
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
    }
}

/// Calls `visit` with the object that has `address` in a segment, and with the range from its first
/// to its last loaded byte. Returns the result; `None` if there is no such object.
///
/// dladdr(3) finds objects as well, but under the lock that a thread holds while it runs the
/// constructors of a library. They may wait for the caller.
pub fn in_object_at<R>(
    address: u64,
    visit: impl FnOnce(&libc::dl_phdr_info, Range<u64>) -> R,
) -> Option<R> {
    let (mut visit, mut result) = (Some(visit), None);
    each_object(&mut |info| {
        // SAFETY: the loader describes its objects.
        let segments = || unsafe { segments(info) };
        if !segments().any(|segment| segment.contains(&address)) {
            return ControlFlow::Continue(());
        }
        let whole = segments().reduce(|all, one| all.start.min(one.start)..all.end.max(one.end));
        result = visit.take().zip(whole).map(|(visit, whole)| visit(info, whole));
        ControlFlow::Break(())
    });
    result
}

/// Returns the number of bytes of the thread-local variables of all loaded objects.
pub fn thread_local_bytes() -> usize {
    let mut bytes = 0;
    each_object(&mut |info| {
        // SAFETY: the object's array of program headers.
        let headers = unsafe { headers(info) };
        let of_object = headers.iter().filter(|header| header.p_type == libc::PT_TLS);
        bytes += of_object.map(|header| header.p_memsz as usize).sum::<usize>();
        ControlFlow::Continue(())
    });
    bytes
}

/// # Safety
/// `info` describes an object that stays mapped while the result is in use.
unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the object's array of program headers.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// Returns the address ranges of an object's loaded segments.
///
/// # Safety
/// `info` describes an object that stays mapped while the result is in use.
pub unsafe fn segments(info: &libc::dl_phdr_info) -> impl Iterator<Item = Range<u64>> {
    // SAFETY: as the caller promises.
    unsafe { loaded(info, |_| true) }
}

/// Returns the address ranges of an object's code and constants: the segments that are not
/// writable.
///
/// # Safety
/// As [`segments`].
pub unsafe fn constant_segments(info: &libc::dl_phdr_info) -> impl Iterator<Item = Range<u64>> {
    // SAFETY: as the caller promises.
    unsafe { loaded(info, |header| header.p_flags & libc::PF_W == 0) }
}

/// # Safety
/// As [`segments`].
unsafe fn loaded(
    info: &libc::dl_phdr_info,
    is_wanted: fn(&libc::Elf64_Phdr) -> bool,
) -> impl Iterator<Item = Range<u64>> {
    // SAFETY: as the caller promises.
    let headers = unsafe { headers(info) }.iter();
    let wanted = headers.filter(move |it| it.p_type == libc::PT_LOAD && is_wanted(it));
    wanted.map(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        start..start + header.p_memsz
    })
}

type Visit<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> ControlFlow<()>;

/// Argument of the loader's callback. A panic of `visit` is kept here, since it must not unwind
/// through the loader.
struct Visitor<'a> {
    visit: Visit<'a>,
    panic: Option<Box<dyn core::any::Any + Send>>,
}

fn iterate(visit: Visit<'_>) -> Result<()> {
    let mut visitor = Visitor { visit, panic: None };
    // SAFETY: the callback gets the visitor, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(called_back), (&raw mut visitor).cast()) };
    visitor.panic.map_or(Ok(()), Err)
}

/// # Safety
/// `info` is the loader's, `visitor` a [`Visitor`].
unsafe extern "C" fn called_back(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    visitor: *mut c_void,
) -> c_int {
    // SAFETY: promised by `iterate`, which passes this function to the loader.
    let (info, visitor) = unsafe { (&*info, &mut *visitor.cast::<Visitor<'_>>()) };
    match catch_unwind(AssertUnwindSafe(|| (visitor.visit)(info))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(panic) => {
            visitor.panic = Some(panic);
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn work_runs_once_and_may_look_at_the_objects() {
        let mut objects = 0;
        let result = while_mapped(|| {
            each_object(&mut |_| {
                objects += 1;
                ControlFlow::Continue(())
            });
            7
        });
        assert_eq!(result, 7);
        assert!(objects > 2, "{objects} objects");
    }

    #[test]
    fn thread_local_variables_of_this_program_are_counted() {
        const LARGE: usize = 100_000;
        std::thread_local! {
            static TABLE: [Cell<u8>; LARGE] = const { [const { Cell::new(0) }; LARGE] };
        }
        TABLE.with(|table| table[1].set(1));
        assert!((LARGE..2 * LARGE).contains(&thread_local_bytes()), "{}", thread_local_bytes());
    }

    #[test]
    fn a_panic_comes_out_where_the_look_began() {
        let caught = catch_unwind(|| while_mapped(|| panic!("on purpose")));
        let message = caught.expect_err("it panics");
        assert_eq!(message.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
