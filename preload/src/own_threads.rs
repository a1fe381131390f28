//! Plimsoll's own threads: created with all signals blocked, and not observed.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_agent::loader;
use plimsoll_sys::float_environment::{self, in_default_environment};
use plimsoll_sys::quiet::quietly;
use plimsoll_sys::syscalls::syscall;

use crate::{job, signals, threads};

mod c {
    use super::*;
    crate::real! {
        /// Waits for a thread.
        pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> libc::c_int
    }
}

/// Stack size of Plimsoll's threads, in bytes, beside the program's thread-local variables, which
/// the C library places on each stack. Trees are walked by recursion, and the stack limit that the
/// application sets for its threads may be small.
const STACK_BYTES: usize = 8 << 20;

/// Definition of pthread_create in the C library; 0: unknown. Tools that pin threads in the order
/// of their creation (likwid-pin) replace the function, and would count Plimsoll's threads.
static CREATE: AtomicUsize = AtomicUsize::new(0);

/// Finds the C library's pthread_create. Takes the loader's lock.
pub fn find_creator() {
    // SAFETY: C strings; a library that is loaded is not loaded again.
    let found = unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return;
        }
        libc::dlsym(library, c"pthread_create".as_ptr())
    };
    CREATE.store(found as usize, Ordering::Relaxed);
}

/// Creates a thread of Plimsoll.
///
/// # Safety
/// As pthread_create.
unsafe fn create_own(
    thread: &mut libc::pthread_t,
    attributes: &libc::pthread_attr_t,
    routine: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> libc::c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> libc::c_int;
    // SAFETY: the function of this name, or null; the rest as the caller promises.
    unsafe {
        match std::mem::transmute::<usize, Option<Create>>(CREATE.load(Ordering::Relaxed)) {
            Some(create) => create(thread, attributes, routine, argument),
            None => {
                threads::c::pthread_create(thread, attributes, routine as *const c_void, argument)
            }
        }
    }
}

/// Runs `work` on a new thread that is not observed and has all signals blocked. Returns the
/// thread; `None` if none could be created.
pub fn spawn(work: Box<dyn FnOnce() + Send>) -> Option<libc::pthread_t> {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        // SAFETY: the double box made by `spawn`.
        let work = unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce() + Send>>()) };
        OWN.set(true);
        float_environment::set_default();
        leave_real_time();
        // A panic in Plimsoll must not end the application.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        std::ptr::null_mut()
    }
    let work = Box::into_raw(Box::new(work));
    // SAFETY: all signals are blocked while the thread is created, and the thread inherits that
    // mask; the new thread takes the box.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        signals::real_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let bytes = STACK_BYTES + loader::thread_local_bytes();
        libc::pthread_attr_setstacksize(&mut attributes, bytes);
        let mut thread = 0;
        let result = create_own(&mut thread, &attributes, run, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        signals::real_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if result != 0 {
            drop(Box::from_raw(work));
            return None;
        }
        Some(thread)
    }
}

thread_local! {
    /// Whether the calling thread belongs to Plimsoll.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Ends the calling thread immediately if it belongs to Plimsoll; called when an allocation fails,
/// since no further step is possible without memory. The thread's stack stays mapped until the
/// thread is joined, and its locks stay locked.
pub fn perish() {
    if OWN.get() {
        job::abandon();
        // SAFETY: ends this thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Gives the calling thread the ordinary scheduling policy if it has inherited a real-time one:
/// long work would keep the job's threads from their core.
fn leave_real_time() {
    // SAFETY: no pointers but that to the parameter. To Linux, 0 is the calling thread alone.
    unsafe {
        let policy = libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK;
        if [libc::SCHED_FIFO, libc::SCHED_RR].contains(&policy) {
            let ordinary = libc::sched_param { sched_priority: 0 };
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        }
    }
}

/// Increase of the nice value of Plimsoll's threads that work while the job runs. On a busy core
/// such a thread gets a quarter of the time, which is more than it needs, and the job runs first.
const NICER: libc::c_int = 5;

/// Lowers the scheduling priority of the calling thread below that of the job.
pub fn give_way() {
    // SAFETY: no pointers. To Linux, 0 is the calling thread alone.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice + NICER);
    }
}

/// Runs `work` on a thread of Plimsoll and waits for its end; runs it on the calling thread if no
/// thread can be created. `None` if `work` panicked.
pub fn on_own_stack<R: Send>(work: impl FnOnce() -> R + Send) -> Option<R> {
    let (mut waiting, mut result) = (Some(work), None);
    let (from, into) = (&mut waiting, &mut result);
    let run: Box<dyn FnOnce() + Send + '_> =
        Box::new(move || *into = from.take().map(|work| work()));
    // SAFETY: only the lifetime changes; the thread has ended before the borrows end.
    let run: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(run) };
    if let Some(thread) = spawn(run) {
        join(thread);
    } else if let Some(work) = waiting {
        let quiet = || in_default_environment(|| quietly(work));
        result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(quiet)).ok();
    }
    result
}

/// Waits for a thread made by [`spawn`].
pub fn join(thread: libc::pthread_t) {
    // SAFETY: the thread belongs to Plimsoll and is joined once.
    unsafe { c::pthread_join(thread, std::ptr::null_mut()) };
}

/// Returns the kernel's id of the calling thread. Async-signal-safe.
pub fn current_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Maximum number of checks in [`await_release`], and the pause after each.
const MAX_CHECKS: usize = 1000;
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Waits until the kernel has released a thread, given by its id, that has been joined. Until then
/// the thread counts against the limits on threads.
pub fn await_release(id: i32) {
    for _ in 0..MAX_CHECKS {
        // SAFETY: signal 0 is none, and the pause is valid. Bare system calls are no points of
        // cancellation, which pthread_create is not either.
        unsafe {
            if syscall!(libc::SYS_tgkill, libc::getpid(), id, 0).is_err() {
                return;
            }
            let _ = syscall!(libc::SYS_nanosleep, &raw const PAUSE, 0);
        }
    }
}
