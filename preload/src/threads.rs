//! pthread_create: the application's threads are observed, the MPI library's helpers are not.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use plimsoll_agent::process;
use plimsoll_sys::quiet::quietly;

use crate::guard::guarded;
use crate::{job, signals};

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

mod c {
    use super::*;
    crate::real! {
        /// Waits for a thread.
        pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> libc::c_int
    }
    crate::real! {
    /// Creates a thread.
    pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t,
        routine: *const c_void, argument: *mut c_void
    ) -> libc::c_int
    }
}

/// What a new thread shall run.
struct Begin {
    routine: Routine,
    argument: *mut c_void,
}

/// Begins of library names whose threads are MPI's own: progress engines, event loops, transports.
const HELPER_LIBRARIES: [&str; 22] = [
    "libmpi",
    "libmpich",
    "libpmpi",
    "libopen-pal",
    "libopen-rte",
    "libpmix",
    "libprrte",
    "libevent",
    "libucs",
    "libucp",
    "libuct",
    "libucm",
    "libfabric",
    "libpsm",
    "libibverbs",
    "librdmacm",
    "libpals",
    "libmca",
    "mca_",
    "libhwloc",
    "libnuma",
    "libplimsoll",
];

/// Creates a thread. Where there is room for no further one, and threads of ours take some, ours give way.
///
/// # Safety
/// As pthread_create.
unsafe fn create_for_program(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> libc::c_int {
    // SAFETY: as the caller promises.
    let create = || unsafe { c::pthread_create(thread, attributes, routine, argument) };
    let result = create();
    let gives_way = || job::give_threads_back();
    if result == libc::EAGAIN && guarded("pthread_create without room", gives_way, || false) {
        return create();
    }
    result
}

/// The hook. Called by the assembly below with the caller's address, which a Rust function cannot
/// know.
///
/// # Safety
/// As pthread_create.
unsafe extern "C-unwind" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
    caller: *const c_void,
) -> libc::c_int {
    let is_observed = || {
        process::current().is_some()
            && !is_helper(caller)
            && !is_helper(routine as *const c_void)
            && !job::inside_mpi_init()
    };
    if !guarded("pthread_create", is_observed, || false) {
        // SAFETY: as the caller promises.
        return unsafe {
            create_for_program(thread, attributes, routine as *const c_void, argument)
        };
    }
    let begin = Box::into_raw(Box::new(Begin { routine, argument }));
    // Before there is the thread: its creator may end first.
    LIVING.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises; the new thread takes the box.
    let result = unsafe {
        create_for_program(thread, attributes, thread_entry as *const c_void, begin.cast())
    };
    if result != 0 {
        LIVING.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: no thread was created, so the box is still ours.
        drop(unsafe { Box::from_raw(begin) });
    }
    result
}

/// Whether the code at `address` belongs to an MPI library's own machinery.
fn is_helper(address: *const c_void) -> bool {
    // SAFETY: all-zero is a valid Dl_info; dladdr fills it in.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy()
    };
    let file = name.rsplit('/').next().unwrap_or_default();
    HELPER_LIBRARIES.iter().any(|library| file.starts_with(library))
}

/// pthread_create.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> libc::c_int {
    naked_asm!("mov r8, [rsp]", "jmp {create}", create = sym create)
}

/// What a new thread runs first, and what it shall run. Returns both in registers.
#[repr(C)]
struct Next {
    routine: *const c_void,
    argument: *mut c_void,
}

/// # Safety
/// `begin` is the box made by `create`.
unsafe extern "C" fn attach(begin: *mut Begin) -> Next {
    // SAFETY: promised by the caller.
    let begin = unsafe { Box::from_raw(begin) };
    let observe = || {
        if let Some(observed) = process::current() {
            watch_exit();
            observed.attach_thread(begin.routine as *const () as u64);
            signals::tell_stepped_aside();
        }
    };
    guarded("thread", observe, || ());
    Next { routine: begin.routine as *const c_void, argument: begin.argument }
}

/// A new thread's first code: attaches it and jumps to its routine, so that none of our frames
/// stays on its stack.
///
/// # Safety
/// To be called by pthread_create only.
#[unsafe(naked)]
unsafe extern "C" fn thread_entry(begin: *mut c_void) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {attach}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        attach = sym attach,
    )
}

/// Key whose destructor runs when an observed thread ends, by whatever way; plus one, 0 if none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Observed threads that have not ended. When the last of them ends, so must ours: the C library ends the
/// process with its last thread (pthread_exit(3)).
static LIVING: AtomicUsize = AtomicUsize::new(0);

/// Makes the key. To be called once, before any thread is observed.
pub fn prepare_exit_watch() {
    unsafe extern "C" fn ended(_value: *mut c_void) {
        leave();
    }
    let mut key = 0;
    // SAFETY: the key outlives the threads: it is never deleted.
    if unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

/// The calling thread ends, or is measured no more for another reason.
fn leave() {
    let Some(observed) = process::current() else { return };
    let detach = || {
        job::forget_thread();
        observed.detach_thread();
    };
    guarded("thread's end", detach, || ());
    if LIVING.fetch_sub(1, Ordering::AcqRel) == 1 {
        guarded("last thread's end", job::last_thread_ended, || ());
    }
}

/// The calling thread is about to forbid itself what our code needs: it is left as if it ended. If it is
/// the last one, the report is written now, for there is no way to do so later.
pub fn leave_early() {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is valid; the destructor does not run for null.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
    leave();
}

/// Counts the calling thread, the first that is observed, and watches its end.
pub fn watch_first() {
    // SAFETY: no preconditions.
    let is_initial =
        unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) };
    // An initial thread that is not observed ends unseen: then the count never falls to zero.
    LIVING.store(1 + usize::from(!is_initial), Ordering::Release);
    watch_exit();
}

fn watch_exit() {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is valid; any value that is not null makes the destructor run.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    }
}

/// Stack of our threads: trees are walked by recursion, and what the application's limits give its
/// threads may be little.
const STACK_BYTES: usize = 8 << 20;

/// Runs `work` on a thread of our own: all signals blocked, not observed. Returns the thread.
pub fn spawn(work: Box<dyn FnOnce() + Send>) -> Option<libc::pthread_t> {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        // SAFETY: the double box made by `spawn`.
        let work = unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce() + Send>>()) };
        OWN.set(true);
        // A panic of ours must not end the application.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        std::ptr::null_mut()
    }
    let work = Box::into_raw(Box::new(work));
    // SAFETY: all signals are blocked while the thread is created, and it inherits that; the new
    // thread takes the box.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        crate::signals::real_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        let mut thread = 0;
        let result = c::pthread_create(&mut thread, &attributes, run as *const c_void, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        crate::signals::real_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if result != 0 {
            drop(Box::from_raw(work));
            return None;
        }
        Some(thread)
    }
}

thread_local! {
    /// The thread is one of ours.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Ends the calling thread where it is, if it is one of ours: nothing can be gone on with without memory.
/// Its stack stays until it is joined, and what it has locked stays locked.
pub fn perish() {
    if OWN.get() {
        job::abandon();
        // SAFETY: ends this thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// By how much our threads that work while the job runs are nicer than the job. On a core that is busy they
/// get a quarter: more than they need, and the job is served first.
const NICER: libc::c_int = 5;

/// Lets the calling thread give way to the job's.
pub fn give_way() {
    // SAFETY: no pointers. To Linux, 0 is the calling thread alone.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice + NICER);
    }
}

/// Runs `work` on a thread of our own and waits for it; where there can be no thread, on the calling
/// one. `None` if it failed.
pub fn on_own_stack<R: Send>(work: impl FnOnce() -> R + Send) -> Option<R> {
    let (mut waiting, mut result) = (Some(work), None);
    let (from, into) = (&mut waiting, &mut result);
    let run: Box<dyn FnOnce() + Send + '_> =
        Box::new(move || *into = from.take().map(|work| work()));
    // SAFETY: only the lifetime changes; the thread has ended before what is borrowed does.
    let run: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(run) };
    if let Some(thread) = spawn(run) {
        join(thread);
    } else if let Some(work) = waiting {
        let quiet = || quietly(work);
        result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(quiet)).ok();
    }
    result
}

/// Waits for a thread made by [`spawn`].
pub fn join(thread: libc::pthread_t) {
    // SAFETY: the thread is ours and joined once.
    unsafe { c::pthread_join(thread, std::ptr::null_mut()) };
}
