//! This process as the subject: the agent is linked in and observes it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_agent::counters::Event;
use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config, Observed};
use plimsoll_agent::timer::SIGNAL;
use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_wire::segment::Thread;

/// Begins to observe this process; at most once per process.
///
/// # Panics
/// If the process cannot be observed.
pub fn start(period_ns: u64, marks: Marks) -> &'static Observed {
    start_counting(period_ns, marks, Vec::new())
}

/// Begins to observe this process and to count perf events; at most once per process.
///
/// # Panics
/// If the process cannot be observed.
pub fn start_counting(period_ns: u64, marks: Marks, events: Vec<Event>) -> &'static Observed {
    // The library must be loaded before the agent lists the modules.
    frames();
    let config = Config { events, ..Config::new(period_ns, marks) };
    observed_process::start(&config).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the nanoseconds per tick of the time stamp counter.
pub fn ns_per_tick(observed: &Observed) -> f64 {
    observed.header().ns_per_ticks_q32.load(Ordering::Relaxed) as f64 / 2f64.powi(32)
}

/// Returns the calling thread's part of the segment.
///
/// # Panics
/// If the calling thread is not observed.
pub fn thread(observed: &Observed) -> &'static Thread {
    let area = observed.with_thread(|state| state.area).expect("this thread is observed");
    // SAFETY: the area stays mapped until the thread is detached; those who ask never outlive it.
    unsafe { &(*area).thread }
}

/// Returns the number of frames of the last stack.
pub fn depth(observed: &Observed) -> usize {
    observed.with_thread(|state| state.current.as_slice().len()).unwrap_or(0)
}

/// Returns the number of frames that the last sample had to unwind.
pub fn unwound(observed: &Observed) -> usize {
    observed.with_thread(|state| state.found.as_slice().len()).unwrap_or(0)
}

/// Sends the sampling signal to the calling thread; the signal is handled before this returns.
pub fn interrupt() {
    // SAFETY: no pointers; the ids are our own.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL);
    }
}

extern "C" fn nothing(_: c_int) {}

/// Replaces the sampling signal's handler by one that does nothing; returns the one before.
pub fn install_nothing() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction; the handler does nothing at all.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        install(&action)
    }
}

/// Installs a handler of the sampling signal; returns the one before.
///
/// # Safety
/// The action's handler may run at any time.
pub unsafe fn install(action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: as promised; all-zero is a valid sigaction.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(SIGNAL, action, &mut before), 0);
        before
    }
}

/// Returns the CPU time of the calling thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

type Work = extern "C" fn(*mut c_void);

/// Functions to take samples in, from a library (`tests/programs/frames.c`).
struct Frames {
    inside: extern "C" fn(u64, Work, *mut c_void),
    leaves: [extern "C" fn(Work, *mut c_void); 2],
    burn: Work,
}

/// Loads the library, once.
fn frames() -> &'static Frames {
    static FRAMES: OnceLock<Frames> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let path = {
            let _job_lock = lock_exclusively();
            executable("frames", Form::Library, None)
        };
        let path = CString::new(path.into_os_string().into_vec()).expect("a path has no zeros");
        // SAFETY: the library has no constructors, and is never unloaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let find = |name: &CStr| {
            // SAFETY: the library is loaded.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?} is missing");
            found
        };
        // SAFETY: the types are those of the library's source.
        unsafe {
            Frames {
                inside: transmute::<*mut c_void, extern "C" fn(u64, Work, *mut c_void)>(find(
                    c"inside",
                )),
                leaves: [c"leaf_one", c"leaf_two"].map(|name| {
                    transmute::<*mut c_void, extern "C" fn(Work, *mut c_void)>(find(name))
                }),
                burn: transmute::<*mut c_void, Work>(find(c"burn")),
            }
        }
    })
}

/// Calls the closure at address `argument`.
extern "C" fn call(argument: *mut c_void) {
    // SAFETY: `inside` passes a pointer to a reference that lives as long as it runs.
    unsafe { (*argument.cast::<&mut dyn FnMut()>())() }
}

/// Runs `work` inside `calls` nested calls.
pub fn inside(calls: usize, mut work: &mut dyn FnMut()) {
    (frames().inside)(calls as u64, call, (&raw mut work).cast());
}

/// Takes a sample in one of two leaf functions.
pub fn interrupt_in_leaf(which: usize) {
    extern "C" fn work(_: *mut c_void) {
        interrupt();
    }
    (frames().leaves[which % 2])(work, null_mut());
}

/// Argument that [`burn`] passes to the library, laid out as in its source.
#[repr(C)]
struct Watched {
    rounds: u64,
    counter: *const AtomicU64,
    rises: *mut u64,
    room: u64,
    count: u64,
    result: u64,
}

/// Works for `rounds` rounds inside `calls` nested calls, in two functions by turns. Returns the
/// increases of `counter`, up to the capacity of `rises`.
pub fn burn(calls: usize, rounds: u64, counter: &AtomicU64, mut rises: Vec<u64>) -> Vec<u64> {
    let mut watched = Watched {
        rounds,
        counter,
        rises: rises.as_mut_ptr(),
        room: rises.capacity() as u64,
        count: 0,
        result: 0,
    };
    (frames().inside)(calls as u64, frames().burn, (&raw mut watched).cast());
    // SAFETY: the library has written `count` elements, within the capacity.
    unsafe { rises.set_len(watched.count as usize) };
    rises
}
