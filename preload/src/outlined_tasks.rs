//! Explicit tasks of GCC's OpenMP runtime: the outlined function that a program passes to the
//! runtime is replaced by one of [`MAX_FUNCTIONS`] stubs; each stub stands for one function.
//!
//! The runtime copies the data of a task, and may call back into the program to do so. The data
//! therefore stays as it is, and the stub alone tells which function to call.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_agent::regions::tasks::{self, OpenTask};
use plimsoll_calls::{CALLS, CallId, id_of};
use plimsoll_wire::clock_anchor::ticks;

use crate::bodies::open_frame;
use crate::guard::guarded;
use crate::stubs::Frame;
use crate::this_thread::this_thread;

/// Maximum number of functions of tasks that are measured.
const MAX_FUNCTIONS: usize = 128;

/// Size of a stub in bytes.
const STUB: usize = 16;

/// Functions by stub; 0: the stub is not used yet.
static FUNCTIONS: [AtomicUsize; MAX_FUNCTIONS] = [const { AtomicUsize::new(0) }; MAX_FUNCTIONS];

/// Whether a call's first argument is the outlined function of tasks.
pub fn creates_tasks(call: CallId) -> bool {
    const CREATORS: [bool; CALLS.len() + 1] = {
        let mut creators = [false; CALLS.len() + 1];
        creators[id_of("GOMP_task") as usize] = true;
        creators[id_of("GOMP_taskloop") as usize] = true;
        creators[id_of("GOMP_taskloop_ull") as usize] = true;
        creators
    };
    CREATORS[usize::from(call)]
}

/// Replaces the outlined function in the arguments of a call by a stub, if there is one left.
pub fn replace(frame: &mut Frame) {
    if let Some(stub) = stub_for(frame.registers[0]) {
        frame.registers[0] = stub;
    }
}

/// Returns the stub that stands for a function; `None` if all are in use by others.
fn stub_for(function: usize) -> Option<usize> {
    if function == 0 {
        return None;
    }
    let first = function.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let at = (first..first + MAX_FUNCTIONS).map(|at| at % MAX_FUNCTIONS).find(|at| {
        let place = &FUNCTIONS[*at];
        let claim = || place.compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire);
        match place.load(Ordering::Acquire) {
            0 => claim().map_or_else(|found| found == function, |_| true),
            found => found == function,
        }
    })?;
    Some(stubs as *const () as usize + at * STUB)
}

/// [`MAX_FUNCTIONS`] stubs of [`STUB`] bytes, one behind the other: each loads its number and jumps
/// to [`task`].
#[unsafe(naked)]
unsafe extern "C-unwind" fn stubs() {
    naked_asm!(
        ".cfi_startproc",
        ".set plimsoll_task_number, 0",
        ".rept {count}",
        ".balign {size}",
        "mov r11d, plimsoll_task_number",
        "jmp {task}",
        ".set plimsoll_task_number, plimsoll_task_number + 1",
        ".endr",
        ".balign {size}",
        ".cfi_endproc",
        count = const MAX_FUNCTIONS,
        size = const STUB,
        task = sym task,
    )
}

/// Stack frame of [`task`].
#[repr(C, align(16))]
struct TaskFrame {
    /// The outlined function, beside the return address of its call.
    function: usize,
    data: usize,
    number: u64,
    task: OpenTask,
    caller_rbp: u64,
    return_address: u64,
}

/// Size in bytes of a [`TaskFrame`] below the caller's rbp, rounded up.
const ROOM: usize = offset_of!(TaskFrame, caller_rbp).next_multiple_of(16);

/// Replaces the outlined function of a task; `r11d` holds the stub's number.
#[unsafe(naked)]
unsafe extern "C-unwind" fn task() {
    naked_asm!(
        ".cfi_startproc",
        open_frame!(),
        "mov [rsp + {data}], rdi",
        "mov rdi, rsp",
        "mov esi, r11d",
        "call {begin}",
        "mov rdi, [rsp + {data}]",
        "call rax",
        ".globl plimsoll_task_return",
        ".hidden plimsoll_task_return",
        "plimsoll_task_return:",
        "mov rdi, rsp",
        "call {end}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        room = const ROOM,
        data = const offset_of!(TaskFrame, data),
        begin = sym begin,
        end = sym end,
    )
}

/// Begins a task, and returns the outlined function.
///
/// # Safety
/// The frame is that of [`task`].
unsafe extern "C" fn begin(frame: *mut TaskFrame, number: u32) -> usize {
    let function = FUNCTIONS[number as usize].load(Ordering::Acquire);
    let begin = || {
        let (block, observed) = this_thread()?;
        block.enter(|state| tasks::begin_task(observed, state, function as u64, ticks()))
    };
    let mut task = guarded("task", begin, || None).unwrap_or(OpenTask::UNMEASURED);
    task.start(ticks());
    // SAFETY: as the caller promises.
    unsafe {
        (&raw mut (*frame).task).write(task);
        (&raw mut (*frame).function).write(function);
    }
    function
}

/// # Safety
/// The frame is that of [`task`], and the task's function has returned.
unsafe extern "C" fn end(frame: &TaskFrame) {
    let now = ticks();
    let end = || {
        let Some((block, observed)) = this_thread().filter(|_| frame.task.is_measured()) else {
            return;
        };
        // SAFETY: the task was begun on this thread, and its region ends after its tasks.
        block.enter(|state| unsafe { tasks::end_task(observed, state, &frame.task, now) });
    };
    guarded("task's end", end, || ());
}
