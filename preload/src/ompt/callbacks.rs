//! Callbacks that the runtime calls: each saves its argument words and its caller's place on the
//! stack, from which the call path of the event is found.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use plimsoll_agent::observed_process::Observed;
use plimsoll_agent::regions::lock_holders::LockId;
use plimsoll_agent::regions::tool_events::{self, Membership, RuntimePlace, TaskName, WaitKind};
use plimsoll_agent::thread_state::{State, ThreadBlock};
use plimsoll_calls::{CallId, id_of};
use plimsoll_wire::clock_anchor::ticks;

use super::interface::{
    Data, Event, PARALLEL_LEAGUE, SCOPE_BEGIN, SCOPE_END, has_ended, mutex, sync, task,
};
use crate::bodies::{open_frame, save_words};
use crate::guard::guarded;
use crate::this_thread::this_thread;
use crate::wrappers::REGIONS;

/// Entry points of the callbacks, by event.
pub const ENTRIES: [(Event, unsafe extern "C" fn()); 9] = [
    (Event::ParallelBegin, parallel_begin),
    (Event::ParallelEnd, parallel_end),
    (Event::ImplicitTask, implicit_task),
    (Event::SyncRegion, sync_region),
    (Event::MutexAcquire, mutex_acquire),
    (Event::MutexAcquired, mutex_acquired),
    (Event::NestLock, nest_lock),
    (Event::TaskCreate, task_create),
    (Event::TaskSchedule, task_schedule),
];

/// Stack frame of a callback.
#[repr(C)]
struct Frame {
    words: [u64; 6],
    caller_rbp: u64,
    return_address: u64,
}

/// Size in bytes of the part of a [`Frame`] below the caller's rbp.
const ROOM: usize = offset_of!(Frame, caller_rbp);
const _: () = assert!(ROOM.is_multiple_of(16) && offset_of!(Frame, return_address) == ROOM + 8);

impl Frame {
    /// Returns an argument that is a C int.
    fn int(&self, index: usize) -> u32 {
        self.words[index] as u32
    }

    /// Returns an argument that is the address of a word that a tool keeps, or null.
    fn data(&self, index: usize) -> *mut Data {
        self.words[index] as *mut Data
    }

    /// Returns the value of such a word; 0 if there is none.
    ///
    /// # Safety
    /// The argument is the address of such a word, or null.
    unsafe fn value(&self, index: usize) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { self.data(index).as_ref() }.map_or(0, |data| data.value)
    }

    /// Returns the place in the runtime that calls back.
    fn place(&self) -> RuntimePlace {
        RuntimePlace {
            return_slot: &raw const self.return_address as u64,
            return_address: self.return_address,
            caller_rbp: self.caller_rbp,
        }
    }
}

/// Defines the callback `$name`, which hands its frame to `$note`.
macro_rules! callback {
    ($name:ident, $note:ident) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                open_frame!(),
                save_words!(),
                "mov rdi, rsp",
                "call {note}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                room = const ROOM,
                words = const 0,
                note = sym $note,
            )
        }
    };
}

callback!(parallel_begin, note_parallel_begin);
callback!(parallel_end, note_parallel_end);
callback!(implicit_task, note_implicit_task);
callback!(sync_region, note_sync_region);
callback!(mutex_acquire, note_mutex_acquire);
callback!(mutex_acquired, note_mutex_acquired);
callback!(nest_lock, note_nest_lock);
callback!(task_create, note_task_create);
callback!(task_schedule, note_task_schedule);

/// The calling thread, while its handler is excluded.
struct Thread<'t> {
    observed: &'t Observed,
    block: &'t ThreadBlock,
    state: &'t mut State,
}

/// Runs `work` on the calling thread if the thread is measured.
#[inline(always)]
fn on_thread<R: Default>(work: impl FnOnce(Thread<'_>) -> R) -> R {
    let noted = || {
        if !REGIONS.load(Ordering::Relaxed) {
            return R::default();
        }
        let Some((block, observed)) = this_thread() else { return R::default() };
        block.enter(|state| work(Thread { observed, block, state })).unwrap_or_default()
    };
    guarded("OpenMP event", noted, R::default)
}

const REGION: CallId = id_of("OpenMP_parallel");
const BARRIER: CallId = id_of("OpenMP_barrier");
const TASKWAIT: CallId = id_of("OpenMP_taskwait");
const TASKGROUP: CallId = id_of("OpenMP_taskgroup");
const ATOMIC: CallId = id_of("OpenMP_atomic");
const CRITICAL: CallId = id_of("OpenMP_critical");
const ORDERED: CallId = id_of("OpenMP_ordered");
const SET_LOCK: CallId = id_of("omp_set_lock");
const SET_NEST_LOCK: CallId = id_of("omp_set_nest_lock");

/// Arguments: the encountering task's word and frame, the region's word, the requested number of
/// threads, flags, the return address in the program.
///
/// # Safety
/// The frame is that of a callback with these arguments; this holds for all functions below.
unsafe extern "C" fn note_parallel_begin(frame: &Frame) {
    if frame.int(4) & PARALLEL_LEAGUE != 0 {
        return;
    }
    let place = frame.place();
    let team = on_thread(|Thread { observed, block, state }| {
        tool_events::begin_region(observed, block, state, &place, REGION, frame.words[5])
    });
    // SAFETY: as the caller promises.
    if let Some(region) = unsafe { frame.data(2).as_mut() } {
        region.value = team;
    }
}

/// Arguments: the region's word, the encountering task's word, flags, the return address.
unsafe extern "C" fn note_parallel_end(frame: &Frame) {
    if frame.int(2) & PARALLEL_LEAGUE != 0 {
        return;
    }
    let now = ticks();
    // SAFETY: as the caller promises.
    let team = unsafe { frame.value(0) };
    on_thread(|Thread { observed, state, .. }| {
        tool_events::end_region(observed, state, team, now);
    });
}

/// Arguments: endpoint, the region's word, the task's word, number of threads, thread number,
/// flags.
unsafe extern "C" fn note_implicit_task(frame: &Frame) {
    if frame.int(5) & task::INITIAL != 0 {
        return;
    }
    let place = frame.place();
    match frame.int(0) {
        SCOPE_BEGIN => {
            // SAFETY: as the caller promises.
            let team = unsafe { frame.value(1) };
            let member = Membership::new(frame.int(4), frame.int(3));
            // SAFETY: `note_parallel_begin` has set the word, and the region has not ended.
            let is_noted = on_thread(|Thread { observed, block, state }| unsafe {
                tool_events::begin_share(observed, block, state, team, member);
                true
            });
            if !is_noted {
                // SAFETY: as above.
                unsafe { tool_events::leave_out(team, member) };
            }
        }
        SCOPE_END => on_thread(|Thread { observed, block, state }| {
            tool_events::leave_share(observed, block, state, &place);
        }),
        _ => {}
    }
}

/// Arguments: kind, endpoint, the region's word, the task's word, the return address.
unsafe extern "C" fn note_sync_region(frame: &Frame) {
    let place = frame.place();
    let kind = frame.int(0);
    if kind == sync::REDUCTION {
        return;
    }
    match frame.int(1) {
        SCOPE_BEGIN => {
            let call = match kind {
                sync::TASKWAIT => TASKWAIT,
                sync::TASKGROUP => TASKGROUP,
                _ => BARRIER,
            };
            let address = frame.words[4];
            on_thread(|Thread { observed, block, state }| {
                let is_end = match kind {
                    sync::BARRIER_IMPLICIT_PARALLEL => true,
                    sync::BARRIER_IMPLICIT => tool_events::is_end_of_region(state, address),
                    _ => false,
                };
                if is_end {
                    tool_events::end_share(observed, block, state, &place);
                } else {
                    tool_events::begin_wait(observed, state, &place, call, WaitKind::Team);
                }
            });
        }
        SCOPE_END => end_wait(),
        _ => {}
    }
}

fn end_wait() {
    let now = ticks();
    on_thread(|Thread { observed, state, .. }| tool_events::end_wait(observed, state, now));
}

/// Arguments: kind, hint, implementation, the lock's id, the return address.
unsafe extern "C" fn note_mutex_acquire(frame: &Frame) {
    let call = match frame.int(0) {
        mutex::LOCK => SET_LOCK,
        mutex::NEST_LOCK => SET_NEST_LOCK,
        mutex::CRITICAL => CRITICAL,
        mutex::ATOMIC => ATOMIC,
        mutex::ORDERED => ORDERED,
        // Tests of locks do not wait.
        _ => return,
    };
    let (place, lock) = (frame.place(), LockId(frame.words[3]));
    on_thread(|Thread { observed, state, .. }| {
        tool_events::begin_wait(observed, state, &place, call, WaitKind::Lock(lock));
    });
}

/// Arguments: kind, the lock's id, the return address.
unsafe extern "C" fn note_mutex_acquired(frame: &Frame) {
    let waits = [mutex::LOCK, mutex::NEST_LOCK, mutex::CRITICAL, mutex::ATOMIC, mutex::ORDERED];
    if waits.contains(&frame.int(0)) {
        end_wait();
    }
}

/// Arguments: endpoint, the lock's id, the return address. The holder of a lock acquires it again
/// without the event of an acquired lock.
unsafe extern "C" fn note_nest_lock(frame: &Frame) {
    if frame.int(0) == SCOPE_BEGIN {
        end_wait();
    }
}

/// Arguments: the encountering task's word and frame, the new task's word, flags, whether there are
/// dependences, the return address. The new task's word keeps the place of its creation.
unsafe extern "C" fn note_task_create(frame: &Frame) {
    if frame.int(3) & task::EXPLICIT == 0 {
        return;
    }
    // SAFETY: as the caller promises.
    if let Some(task) = unsafe { frame.data(2).as_mut() } {
        task.value = frame.words[5];
    }
}

/// Arguments: the word of the task that the thread leaves, the task's status, the word of the task
/// that the thread goes on with. Only words of explicit tasks are set.
unsafe extern "C" fn note_task_schedule(frame: &Frame) {
    let now = ticks();
    let [left, next] = [0, 2].map(|index| TaskName {
        name: frame.words[index] as usize,
        // SAFETY: as the caller promises.
        created_at: unsafe { frame.value(index) },
    });
    let ended = has_ended(frame.int(1));
    on_thread(|Thread { observed, state, .. }| {
        tool_events::change_task(observed, state, left, next, ended, now);
    });
}
