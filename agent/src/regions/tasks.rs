//! Explicit tasks of OpenMP, counted and timed by their functions.
//!
//! A thread executes tasks while it waits: in a barrier, in taskwait, or after the end of its share
//! of a parallel region. The wait stops while a task runs, and what the task's time holds beside
//! waits is work of the share.

use core::sync::atomic::Ordering;

use super::shares::{self, CallTimes, LastShare};
use super::{CallKind, Open, exit};
use crate::observed_process::Observed;
use crate::thread_state::{State, store_owned};
use plimsoll_calls::{CallClass, CallId, ON_RESOURCE, OPENMP_IDLE, class};
use plimsoll_wire::clock_anchor::stamp;
use plimsoll_wire::lengths::LengthOf;
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::ThreadArea;
use plimsoll_wire::teams::{MAX_TASKS, PathKey};

/// A task that runs, on the stack of the thread that executes the task.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenTask {
    /// Whether the task is measured.
    is_measured: bool,
    /// Function of the task.
    function: u64,
    begun: u64,
    /// Time that measuring took at the task's begin, in ticks: it counts as the wait around the
    /// task, not as work of the program.
    preparation: u64,
    /// Work of the tasks inside of the tasks around this one, until its begin, in ticks.
    inner: u64,
    /// Times of the thread when the task began.
    before: CallTimes,
    /// The call that the thread waited in; its `return_slot` is 0 if there was none.
    waited: Open,
    /// Name of that call's path, which changes if its slot is evicted.
    waited_path: PathKey,
    /// The share after which the task runs, if that has ended, and if no task around this one does.
    after: LastShare,
    graft: PathKey,
}

/// A call in which tasks run.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    /// Slot of the call's path.
    slot: u16,
    /// Name of the path, which changes if the slot is evicted; [`PathKey::NONE`] if no call was
    /// open.
    path: PathKey,
    /// Whether the call waits for the team or for tasks.
    is_wait: bool,
}

/// Way in which a call of the OpenMP runtime is measured.
pub(super) enum Measured {
    /// By its call path.
    ByPath,
    /// Through this slot.
    Through(usize),
    /// Not at all.
    No,
}

/// Tasks that a thread executes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tasks {
    /// Work of the tasks that ended inside of the one that runs now, in ticks.
    inner: u64,
    /// Number of tasks that the thread executes, one inside of the other.
    depth: u32,
    /// The call in which the outermost of them runs.
    outermost: Waited,
    /// Functions of the entries of the area's table of tasks.
    functions: [u64; MAX_TASKS],
}

impl OpenTask {
    /// A task that is not measured.
    pub const UNMEASURED: Self = Self {
        is_measured: false,
        function: 0,
        begun: 0,
        preparation: 0,
        inner: 0,
        before: CallTimes::NONE,
        waited: Open::NONE,
        waited_path: PathKey::NONE,
        after: LastShare::NONE,
        graft: PathKey::NONE,
    };

    /// Whether the task is measured.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Lets the program's code begin at `ticks`, after all that was to be done before it.
    pub fn start(&mut self, ticks: u64) {
        self.preparation = ticks.saturating_sub(self.begun);
        self.begun = ticks;
    }
}

/// Begins a task with this function on the calling thread, at `ticks`. [`OpenTask::start`] follows.
pub fn begin_task(observed: &Observed, state: &mut State, function: u64, ticks: u64) -> OpenTask {
    let waited = state.regions.open;
    let slot = &state.regions.slots[usize::from(waited.slot)];
    let (call, waited_path) = (slot.call & !ON_RESOURCE, slot.path_key);
    let is_open = waited.return_slot != 0;
    let kind = match class(call) {
        _ if call == OPENMP_IDLE => CallKind::Other,
        Some(CallClass::TeamWait) => CallKind::Barrier,
        _ => CallKind::Other,
    };
    // A task waits in the call of the outermost one around it, and is part of the work of that one.
    let Tasks { depth, outermost, .. } = state.regions.tasks;
    let is_inside = depth > 0 && waited.slot == outermost.slot;
    let is_after =
        is_open && !is_inside && (call == OPENMP_IDLE || class(call) == Some(CallClass::Region));
    let after = if is_after { state.regions.last_share } else { LastShare::NONE };
    if is_open {
        exit(observed, state, waited.return_slot, ticks, 0, None, kind);
    }
    let graft = state.graft;
    if call == OPENMP_IDLE && is_after {
        state.graft = after.path;
    }
    let tasks = &mut state.regions.tasks;
    let inner = core::mem::take(&mut tasks.inner);
    tasks.depth += 1;
    if tasks.depth == 1 {
        let path = if is_open { waited_path } else { PathKey::NONE };
        let is_wait = is_open && class(call).is_some_and(|it| it != CallClass::TaskCreation);
        tasks.outermost = Waited { slot: waited.slot, path, is_wait };
    }
    OpenTask {
        is_measured: true,
        function,
        begun: ticks,
        preparation: 0,
        inner,
        before: state.call_times,
        waited,
        waited_path,
        after,
        graft,
    }
}

/// Ends a task at `ticks`. The thread waits again as before the task.
///
/// # Safety
/// The task was begun on this thread, and the region that it belongs to has not ended.
pub unsafe fn end_task(observed: &Observed, state: &mut State, task: &OpenTask, ticks: u64) {
    let waits = state.call_times.since(&task.before);
    // With the work of the tasks inside.
    let work = waits.work_in(ticks.saturating_sub(task.begun));
    let own_work = work.saturating_sub(state.regions.tasks.inner);
    let tasks = &mut state.regions.tasks;
    tasks.inner = task.inner.wrapping_add(work);
    tasks.depth = tasks.depth.saturating_sub(1);
    state.graft = task.graft;
    // SAFETY: as the caller promises.
    unsafe { shares::add_task(&task.after, work, &waits) };
    count(observed, state, task.function, own_work);
    let Open { slot, return_slot, .. } = task.waited;
    let at = &state.regions.slots[usize::from(slot)];
    if return_slot == 0 || at.path_key != task.waited_path {
        return;
    }
    let call = at.call;
    let entered = ticks.saturating_sub(task.preparation);
    state.regions.open = Open { slot, return_slot, entered, ..Open::NONE };
    let thread = &state.area().thread;
    thread.open_stamp.store(stamp(entered), Ordering::Relaxed);
    store_owned(&thread.open_call, u32::from(call));
    store_owned(&thread.open_slot, u32::from(slot) + 1);
}

/// Returns how a call of the OpenMP runtime is measured that the thread makes now.
///
/// A task that waits for others executes them on top of its stack, and these may do the same. Call
/// paths would therefore be as many as tasks. The waits of tasks that run in a wait belong to that
/// outermost wait, and deeper calls for other purposes are not measured.
pub(super) fn measured(state: &State, call: CallId) -> Measured {
    let Tasks { depth, outermost, .. } = &state.regions.tasks;
    let wait = Some(CallClass::TeamWait);
    match depth {
        0 => Measured::ByPath,
        _ if class(call) == wait && outermost.is_wait => {
            let slot = usize::from(outermost.slot);
            match outermost.path == state.regions.slots[slot].path_key {
                true => Measured::Through(slot),
                false => Measured::No,
            }
        }
        1 => Measured::ByPath,
        _ => Measured::No,
    }
}

/// Adds an execution to the table of tasks.
fn count(observed: &Observed, state: &mut State, function: u64, work: u64) {
    let used = state.area().thread.tasks.load(Ordering::Relaxed) as usize;
    let known = state.regions.tasks.functions[..used.min(MAX_TASKS)].iter();
    let at = match known.clone().position(|it| *it == function) {
        Some(at) => at,
        None => begin_counters(observed, state, function),
    };
    state.area().tasks[at].add(work);
}

#[cold]
#[inline(never)]
fn begin_counters(observed: &Observed, state: &mut State, function: u64) -> usize {
    if state.area().thread.tasks.load(Ordering::Relaxed) as usize >= MAX_TASKS {
        state.with_room(flush_tasks);
    }
    let id = state.with_room(|state| observed.intern_construct(state, function));
    let at = state.area().thread.tasks.load(Ordering::Relaxed);
    let index = at as usize % MAX_TASKS;
    state.regions.tasks.functions[index] = function;
    state.area().tasks[index].begin(id);
    store_owned(&state.area().thread.tasks, at + 1);
    index
}

/// Writes all entries of the table of tasks and clears it.
#[cold]
#[inline(never)]
pub fn flush_tasks(state: &mut State) {
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, tasks, .. } = unsafe { &*state.area };
    let used = thread.tasks.load(Ordering::Relaxed) as usize;
    for counters in &tasks[..used.min(MAX_TASKS)] {
        if let Some(totals) = counters.read() {
            let fitted = state.stream.write(&Record::Task { totals });
            state.written(fitted);
            let of = LengthOf::Task(totals.function);
            for length in counters.lengths.read() {
                let fitted = state.stream.write(&Record::Length { of, length });
                state.written(fitted);
            }
        }
        counters.clear();
    }
    store_owned(&thread.tasks, 0);
}

/// Discards the table of tasks.
pub fn discard_tasks(state: &mut State) {
    let area = state.area();
    let used = area.thread.tasks.load(Ordering::Relaxed) as usize;
    area.tasks[..used.min(MAX_TASKS)].iter().for_each(plimsoll_wire::teams::TaskCounters::clear);
    store_owned(&area.thread.tasks, 0);
}
