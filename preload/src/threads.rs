//! Hook of pthread_create: the application's threads are observed, the MPI library's helper threads
//! are not.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use plimsoll_agent::loader;
use plimsoll_agent::marks::mark_stubs;
use plimsoll_agent::observed_process;
use plimsoll_agent::regions::Entry;
use plimsoll_agent::regions::thread_creations::{ThreadOrigin, begin_creation};
use plimsoll_calls::CREATE_THREAD;
use plimsoll_sys::syscalls::keep_errno;

use crate::guard::guarded;
use crate::this_thread::this_thread;
use crate::wrappers::REGIONS;
use crate::{communicating_thread, job, own_threads, signals};

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

pub mod c {
    use super::*;
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

/// Detaches the calling thread before it forbids itself system calls, which measuring needs. If the
/// thread is the last observed one, the report is written now, since no later moment would allow
/// that.
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
    let is_initial = own_threads::current_id() == unsafe { libc::getpid() };
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
