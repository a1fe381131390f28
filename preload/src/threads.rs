//! Hook of pthread_create: the application's threads are observed, the MPI library's helper threads
//! are not. Creates Plimsoll's own threads as well.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use plimsoll_agent::loader;
use plimsoll_agent::marks::mark_stubs;
use plimsoll_agent::observed_process;
use plimsoll_agent::regions::Entry;
use plimsoll_agent::regions::thread_creations::{ThreadOrigin, begin_creation};
use plimsoll_calls::CREATE_THREAD;
use plimsoll_sys::float_environment::{self, in_default_environment};
use plimsoll_sys::quiet::quietly;
use plimsoll_sys::syscalls::{keep_errno, syscall};

use crate::guard::guarded;
use crate::this_thread::this_thread;
use crate::wrappers::REGIONS;
use crate::{communicating_thread, job, signals};

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

/// Start routine of a new thread and its argument, and the call path that creates the thread.
struct Begin {
    routine: Routine,
    argument: *mut c_void,
    origin: ThreadOrigin,
}

/// Prefixes of the names of libraries that create MPI's helper threads: progress engines, event
/// loops, transports.
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

/// Prefixes of the names of OpenMP runtimes. The threads of their pools serve regions of all call
/// paths, and lie in the path of a region while they execute a share of that region.
const OPENMP_RUNTIMES: [&str; 4] = ["libgomp", "libomp.", "libomp-", "libiomp5"];

/// Creates a thread. If the limit on threads is reached (EAGAIN) while threads of Plimsoll are
/// running, ends those and tries again.
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
        create()
    } else {
        result
    }
}

/// Hook of pthread_create. Called by the assembly below with the place of the caller's return
/// address and the caller's rbp, which a Rust function cannot obtain.
///
/// # Safety
/// As pthread_create.
unsafe extern "C-unwind" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
    return_slot: *const u64,
    caller_rbp: u64,
) -> libc::c_int {
    // SAFETY: the place lies on the stack of the calling thread, above this function's frame.
    let return_address = mark_stubs::original(unsafe { *return_slot });
    let origin = || {
        observed_process::current()?;
        let caller = library_of(return_address as *const c_void);
        let begins = |prefixes: &[&str]| prefixes.iter().any(|it| caller.starts_with(it));
        if begins(&HELPER_LIBRARIES)
            || is_helper(routine as *const c_void)
            || job::inside_mpi_init()
        {
            return None;
        }
        let place = (!begins(&OPENMP_RUNTIMES)).then_some(Entry {
            call: CREATE_THREAD,
            return_slot: return_slot as u64,
            return_address,
            caller_rbp,
            descriptor: -1,
            ticks: 0,
        });
        Some(place.map_or_else(ThreadOrigin::default, |entry| origin_of(&entry)))
    };
    let Some(origin) = guarded("pthread_create", origin, || None) else {
        // SAFETY: as the caller promises.
        return unsafe {
            create_for_program(thread, attributes, routine as *const c_void, argument)
        };
    };
    let begin = Box::into_raw(Box::new(Begin { routine, argument, origin }));
    // The count is raised before the thread exists, since the creating thread may end first.
    LIVING.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises; the new thread takes the box.
    let result = unsafe {
        create_for_program(thread, attributes, thread_entry as *const c_void, begin.cast())
    };
    if result != 0 {
        LIVING.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: no thread was created, so no other owner of the box exists.
        drop(unsafe { Box::from_raw(begin) });
    }
    result
}

/// Returns the call path of a thread that the calling thread creates by the call of `entry`.
fn origin_of(entry: &Entry) -> ThreadOrigin {
    let Some((block, observed)) = this_thread() else { return ThreadOrigin::default() };
    let counts = REGIONS.load(Ordering::Relaxed);
    let begin = |state: &mut _| begin_creation(observed, state, entry, counts);
    block.enter(begin).unwrap_or_default()
}

/// Returns whether the code at `address` belongs to one of the [`HELPER_LIBRARIES`].
fn is_helper(address: *const c_void) -> bool {
    let file = library_of(address);
    HELPER_LIBRARIES.iter().any(|library| file.starts_with(library))
}

/// Returns the name of the file that holds the code at `address`, without its folder; empty if it
/// is the program's or unknown.
pub fn library_of(address: *const c_void) -> String {
    let name = loader::in_object_at(address.addr() as u64, |object, _| {
        // SAFETY: the loader's names are C strings.
        let path = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(file).into_owned()
    });
    name.unwrap_or_default()
}

/// Hook of pthread_create.
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
    naked_asm!("mov r8, rsp", "mov r9, rbp", "jmp {create}", create = sym create)
}

/// Routine and argument that a new thread jumps to after [`attach`]. The System V ABI returns both
/// in registers (rax, rdx).
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
        if let Some(observed) = observed_process::current() {
            watch_exit();
            observed.attach_thread(begin.routine as *const () as u64, begin.origin);
            signals::tell_stepped_aside();
        }
    };
    keep_errno(|| guarded("thread", observe, || ()));
    Next { routine: begin.routine as *const c_void, argument: begin.argument }
}

/// Entry point of a new observed thread: attaches the thread and jumps to its start routine, so
/// that no frame of Plimsoll stays on the thread's stack.
///
/// # Safety
/// Must be called by pthread_create only.
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

/// Thread-specific key plus one, or 0 if there is no key. The key's destructor runs at any end of
/// an observed thread.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Number of observed threads that have not ended. When the last one ends, the threads of Plimsoll
/// must end too: the C library ends the process with its last thread (pthread_exit(3)).
static LIVING: AtomicUsize = AtomicUsize::new(0);

/// Creates the key. Must be called once, before any thread is observed.
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

/// Detaches the calling thread, which ends or is no longer measured for another reason. When the
/// count of observed threads falls to zero, the report is written.
fn leave() {
    let Some(observed) = observed_process::current() else { return };
    let detach = || {
        communicating_thread::forget_current();
        observed.detach_thread();
    };
    guarded("thread's end", detach, || ());
    if LIVING.fetch_sub(1, Ordering::AcqRel) == 1 {
        guarded("last thread's end", job::last_thread_ended, || ());
    }
}

/// Detaches the calling thread before it forbids itself system calls or the time stamp counter,
/// which measuring needs. If the thread is the last observed one, the report is written now, since
/// no later moment would allow it.
pub fn leave_early() {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is valid; the destructor does not run for null.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
    leave();
}

/// Counts the calling thread as the first observed thread, and watches its end.
pub fn watch_first() {
    // SAFETY: no preconditions.
    let is_initial = current_id() == unsafe { libc::getpid() };
    // If another thread is observed first, the initial thread ends without notice; counting the
    // initial thread as well keeps the count above zero.
    LIVING.store(1 + usize::from(!is_initial), Ordering::Release);
    watch_exit();
}

fn watch_exit() {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is valid; any value that is not null makes the destructor run.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    }
}

/// Stack size of Plimsoll's threads, in bytes, beside the program's thread-local variables, which
/// the C library places on each stack. Trees are walked by recursion, and the stack limit that the
/// application sets for its threads may be small.
const STACK_BYTES: usize = 8 << 20;

/// Definition of pthread_create in the C library; 0: unknown. Tools that pin threads in the order
/// of their creation (likwid-pin) replace the function, and would count Plimsoll's threads.
static CREATE: AtomicUsize = AtomicUsize::new(0);

/// Finds the C library's pthread_create. For the constructor: takes the loader's lock.
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
            None => c::pthread_create(thread, attributes, routine as *const c_void, argument),
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
        crate::signals::real_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let bytes = STACK_BYTES + loader::thread_local_bytes();
        libc::pthread_attr_setstacksize(&mut attributes, bytes);
        let mut thread = 0;
        let result = create_own(&mut thread, &attributes, run, work.cast());
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
