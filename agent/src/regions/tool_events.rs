//! Events of an OpenMP runtime that calls back (OMPT), as the regions, shares and waits of
//! [`super::shares`].
//!
//! A callback tells what happens, but neither where on the stack the program has called the runtime
//! nor, for each event, from where in the program. The call path is therefore unwound from the
//! callback, and the frames inside the runtime are dropped. The distance between the callback's
//! place and the call's is the same for all events from one place of the runtime, and is kept.
//!
//! The share of a thread ends when the thread reaches the barrier at the end of the region. The
//! runtime's own event of the end comes when the thread begins its next share, or never; the team
//! is gone by then, so that nothing but the number of open shares depends on this event.

use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc_zeroed};

use super::lock_holders::{LockId, begin_lock_wait, end_lock_wait};
use super::paths::{KnownCall, find, unwind_in_runtime};
use super::shares::{self, IdlePlace, Runtime, Share, Team};
use super::tasks::{OpenTask, begin_task, end_task};
use super::{CallKind, Entry, Measured, enter_as, exit};
use crate::marks::mark_stubs;
use crate::observed_process::Observed;
use crate::thread_state::{State, ThreadBlock, add_owned};
use plimsoll_calls::{CallId, OPENMP_IDLE};
use plimsoll_wire::clock_anchor::ticks;

/// Maximum number of regions that a thread makes, and of shares that it executes, inside of each
/// other.
const MAX_NESTED: usize = 8;

/// Maximum number of tasks that a thread executes inside of each other.
const MAX_TASKS: usize = 16;

/// Maximum number of runtimes in a process.
const MAX_RUNTIMES: usize = 4;

/// Number of places of the runtime with a known distance to the program's call.
const PLACES: usize = 32;

/// Maximum distance between a callback's place and that of the program's call, in bytes.
const MAX_DISTANCE: u64 = 64 << 10;

/// Place in the runtime that calls back.
#[derive(Clone, Copy, Debug)]
pub struct RuntimePlace {
    /// Place of the callback's return address on the stack.
    pub return_slot: u64,
    /// That return address, in the runtime.
    pub return_address: u64,
    /// Value of rbp in the runtime.
    pub caller_rbp: u64,
}

/// Object of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// The other threads of the team, or tasks.
    Team,
    /// A lock or section.
    Lock(LockId),
}

impl WaitKind {
    fn call_kind(self) -> CallKind {
        match self {
            Self::Team => CallKind::Barrier,
            Self::Lock(_) => CallKind::Lock,
        }
    }
}

/// Code of the runtimes: first and end address, 0 if unused.
static RUNTIMES: [[AtomicU64; 2]; MAX_RUNTIMES] =
    [const { [const { AtomicU64::new(0) }; 2] }; MAX_RUNTIMES];

/// Number of entries of [`RUNTIMES`] in use.
static RUNTIME_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a runtime that calls back, by the addresses of its code. Returns false if there are too
/// many.
pub fn add_runtime(code: Range<u64>) -> bool {
    let at = RUNTIME_COUNT.fetch_add(1, Ordering::Relaxed);
    let Some(runtime) = RUNTIMES.get(at) else { return false };
    runtime[0].store(code.start, Ordering::Relaxed);
    runtime[1].store(code.end, Ordering::Release);
    true
}

/// Whether an address is in the code of a runtime that calls back.
#[inline]
pub(super) fn is_in_runtime(address: u64) -> bool {
    RUNTIMES.iter().any(|runtime| {
        address < runtime[1].load(Ordering::Acquire)
            && address >= runtime[0].load(Ordering::Relaxed)
    })
}

/// State of a thread between its events. All zeros before the first event.
pub struct ToolThread {
    /// Distances by the callback's return address.
    distances: [Distance; PLACES],
    /// Teams of the regions that the thread makes, outermost first; null until the first use.
    teams: [*mut ToolTeam; MAX_NESTED],
    /// Number of these regions that have begun and not ended, also beyond [`MAX_NESTED`].
    open_regions: usize,
    /// Shares that the thread executes, outermost first.
    shares: [OpenShare; MAX_NESTED],
    /// Number of these shares, also beyond [`MAX_NESTED`].
    open_shares: usize,
    /// Waits of the tasks that the thread executes inside of each other, the implicit task first:
    /// all but the last are interrupted.
    waits: [OpenWait; MAX_TASKS],
    /// Explicit tasks that the thread executes inside of each other, outermost first.
    tasks: [TakenTask; MAX_TASKS],
    /// Number of these tasks, also beyond [`MAX_TASKS`].
    open_tasks: usize,
}

/// An explicit task that the thread executes.
struct TakenTask {
    /// Name of the task, for the runtime's events.
    name: usize,
    open: OpenTask,
}

#[derive(Clone, Copy)]
struct Distance {
    return_address: u64,
    distance: u64,
}

/// Team of a region, and what [`shares`] does not keep of it.
pub struct ToolTeam {
    team: Team,
    /// Return address of the region's call as the runtime states it.
    stated_address: u64,
    /// Next team in the list of free ones; null at its end.
    next: *mut ToolTeam,
}

struct OpenShare {
    /// `None`: the share is not measured.
    share: Option<Share>,
    team: *const ToolTeam,
    is_primary: bool,
    has_ended: bool,
}

impl OpenShare {
    /// Begins an unmeasured share of the region of `team`, which is null if the region is not
    /// measured. Field by field: a whole value would be copied.
    #[inline]
    fn begin(&mut self, team: *const ToolTeam) {
        self.share = None;
        self.team = team;
        self.is_primary = false;
        self.has_ended = team.is_null();
    }
}

/// A wait in a call; the return slot is 0 if there is no wait.
#[derive(Clone, Copy)]
struct OpenWait {
    entry: Entry,
    kind: WaitKind,
}

impl ToolThread {
    fn share(&mut self) -> Option<&mut OpenShare> {
        self.shares.get_mut(self.open_shares.checked_sub(1)?)
    }

    /// Returns the number of measured regions that the thread executes inside of each other.
    fn level(&self) -> u32 {
        let open = &self.shares[..self.open_shares.min(MAX_NESTED)];
        open.iter().filter(|share| !share.team.is_null()).count() as u32
    }

    /// Returns the open wait of the task that the thread executes, if there is one.
    fn wait(&self) -> Option<OpenWait> {
        self.waits.get(self.open_tasks).copied().filter(|wait| wait.entry.return_slot != 0)
    }

    fn set_wait(&mut self, wait: OpenWait) {
        if let Some(place) = self.waits.get_mut(self.open_tasks) {
            *place = wait;
        }
    }

    fn clear_wait(&mut self) {
        if let Some(place) = self.waits.get_mut(self.open_tasks) {
            place.entry.return_slot = 0;
        }
    }
}

/// Returns the call that the program has made to reach `place`. Its call path is known afterwards.
#[inline(always)]
fn locate(
    observed: &Observed,
    state: &mut State,
    place: &RuntimePlace,
    call: CallId,
) -> Option<KnownCall> {
    let at = place.return_address as usize / 4 % PLACES;
    let Distance { return_address, distance } = state.regions.tool.distances[at];
    if return_address == place.return_address
        && let Some(entry) = entry_at(state, place, distance, call)
        && let Some(slot) = find(state, &entry)
    {
        return Some(KnownCall { entry, slot });
    }
    locate_by_unwinding(observed, state, place, call)
}

/// Returns the call with its return address `distance` above the callback's; `None` if that place
/// is not on the thread's stack.
#[inline(always)]
fn entry_at(state: &State, place: &RuntimePlace, distance: u64, call: CallId) -> Option<Entry> {
    let return_slot = place.return_slot + distance;
    let (low, high) = state.stack_bounds;
    if place.return_slot < low || return_slot >= high - 8 {
        return None;
    }
    // SAFETY: the place lies on the thread's own stack, above the callback's frame.
    let word = unsafe { *(return_slot as *const u64) };
    let return_address = mark_stubs::original(word);
    Some(Entry { return_slot, return_address, ..entry_of(place, call) })
}

/// Returns the callback itself as a call that begins now.
#[inline(always)]
fn entry_of(place: &RuntimePlace, call: CallId) -> Entry {
    callback_at(place, call, ticks())
}

#[inline(always)]
fn callback_at(place: &RuntimePlace, call: CallId, ticks: u64) -> Entry {
    Entry {
        call,
        return_slot: place.return_slot,
        return_address: mark_stubs::original(place.return_address),
        caller_rbp: place.caller_rbp,
        descriptor: -1,
        ticks,
    }
}

#[cold]
#[inline(never)]
fn locate_by_unwinding(
    observed: &Observed,
    state: &mut State,
    place: &RuntimePlace,
    call: CallId,
) -> Option<KnownCall> {
    let callback = entry_of(place, call);
    let known = state.with_room(|state| unwind_in_runtime(observed, state, &callback, false))?;
    let distance = known.entry.return_slot.wrapping_sub(place.return_slot);
    if distance <= MAX_DISTANCE {
        let at = place.return_address as usize / 4 % PLACES;
        let return_address = place.return_address;
        state.regions.tool.distances[at] = Distance { return_address, distance };
    }
    Some(known)
}

/// Begins a region that the thread makes. `stated_address` is the call's return address as the
/// runtime states it. Returns a value for [`begin_share`] and [`end_region`]; 0 if the region is
/// not measured.
#[inline]
pub fn begin_region(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    place: &RuntimePlace,
    call: CallId,
    stated_address: u64,
) -> u64 {
    let at = state.regions.tool.open_regions;
    state.regions.tool.open_regions += 1;
    if stated_address == 0 {
        // Made by the runtime itself, around the regions of a league's teams.
        return 0;
    }
    let Some(team) = team_at(state, at) else {
        add_owned(&state.area().thread.unmeasured_regions, 1);
        return 0;
    };
    let Some(known) = locate(observed, state, place, call) else { return 0 };
    // SAFETY: the team is this thread's, and no region that has not ended uses it.
    let begun = unsafe {
        (*team).stated_address = stated_address;
        // Within the call, which lies on the line of the construct.
        (*team).team.function = mark_stubs::original(stated_address) as usize - 1;
        let slot = Some(known.slot);
        shares::begin_region(observed, block, state, &known.entry, slot, &raw mut (*team).team)
    };
    if begun { team as u64 } else { 0 }
}

/// Returns the team of the thread's region at this depth.
#[inline]
fn team_at(state: &mut State, depth: usize) -> Option<*mut ToolTeam> {
    let team = state.regions.tool.teams.get_mut(depth)?;
    if team.is_null() {
        *team = FREE_TEAMS.take();
    }
    (!team.is_null()).then_some(*team)
}

/// Teams of ended threads, for the regions of later ones. Teams stay in memory until the process
/// ends: a thread of a pool may read a team while the thread that made the region ends.
static FREE_TEAMS: FreeTeams = FreeTeams(AtomicPtr::new(null_mut()));

/// A list without locks, linked by [`ToolTeam::next`]. A thread that takes a team takes the whole
/// list and puts the rest back: then no team can leave the list and return while another thread
/// relies on its link.
struct FreeTeams(AtomicPtr<ToolTeam>);

impl FreeTeams {
    /// Returns a free team, or else a new one; null without memory. Another team is made if two
    /// threads take one at the same time.
    #[cold]
    fn take(&self) -> *mut ToolTeam {
        let team = self.0.swap(null_mut(), Ordering::Acquire);
        if team.is_null() {
            // SAFETY: the layout has a size; a team is valid as zeros.
            return unsafe { alloc_zeroed(Layout::new::<ToolTeam>()) }.cast();
        }
        // SAFETY: the teams of the list are this thread's now.
        let mut rest = unsafe { core::mem::replace(&mut (*team).next, null_mut()) };
        while !rest.is_null() {
            // SAFETY: as above.
            let next = unsafe { (*rest).next };
            self.put(rest);
            rest = next;
        }
        team
    }

    /// Adds a team that no region uses.
    fn put(&self, team: *mut ToolTeam) {
        let add = |first| {
            // SAFETY: the team is the caller's until it is in the list.
            unsafe { (*team).next = first };
            Some(team)
        };
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }
}

/// Hands the teams of a thread that ends to later threads, but for those of regions that have not
/// ended.
pub fn release_teams(state: &mut State) {
    let tool = &mut state.regions.tool;
    let open = tool.open_regions.min(MAX_NESTED);
    for team in tool.teams[open..].iter_mut().filter(|team| !team.is_null()) {
        FREE_TEAMS.put(core::mem::replace(team, null_mut()));
    }
}

/// Ends the region of `team`, which [`begin_region`] has returned.
#[inline]
pub fn end_region(observed: &Observed, state: &mut State, team: u64, ticks: u64) {
    let tool = &mut state.regions.tool;
    tool.open_regions = tool.open_regions.saturating_sub(1);
    let Some(own) = tool.teams.get(tool.open_regions) else { return };
    // Around the teams of a league, runtimes mix up the words of regions.
    if team != 0 && *own as u64 == team {
        // SAFETY: the team is this thread's; all shares have ended.
        let team = unsafe { &(**own).team };
        let level = tool.level();
        // Only the level is asked for.
        let member = Membership { number: 0, threads: 0, level };
        shares::end_region(observed, state, team, &member, ticks);
    }
}

/// Place of a thread in its team, as the runtime states it.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// Number of the thread in its team.
    pub number: u32,
    /// Number of threads in the team.
    pub threads: u32,
    level: u32,
}

impl Membership {
    /// Creates the place of a thread in its team.
    pub fn new(number: u32, threads: u32) -> Self {
        Self { number, threads, level: 0 }
    }
}

impl Runtime for Membership {
    fn thread_number(&self) -> u32 {
        self.number
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn level(&self) -> u32 {
        self.level
    }
}

/// Begins the thread's share of the region of `team`.
///
/// # Safety
/// [`begin_region`] has returned `team`, and the region has not ended.
#[inline]
pub unsafe fn begin_share(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    team: u64,
    member: Membership,
) {
    let tool = &mut state.regions.tool;
    let at = tool.open_shares;
    tool.open_shares += 1;
    let Some(place) = tool.shares.get_mut(at) else {
        // SAFETY: promised by the caller.
        return unsafe { leave_out(team, member) };
    };
    place.begin(team as *const ToolTeam);
    // SAFETY: promised by the caller.
    let Some(team) = (unsafe { place.team.as_ref() }) else { return };
    place.is_primary = team.team.is_made_by(block);
    if !team.team.is_alone(block, &member) {
        let share = shares::begin_share(observed, block, state, &team.team, &member);
        state.regions.tool.shares[at].share = Some(share);
    }
}

/// Notes that a thread takes part in the region of `team` without a measured share.
///
/// # Safety
/// As [`begin_share`].
#[cold]
pub unsafe fn leave_out(team: u64, member: Membership) {
    // SAFETY: promised by the caller.
    if let Some(team) = unsafe { (team as *const ToolTeam).as_ref() } {
        team.team.leave_out(member.number);
    }
}

/// Whether an implicit barrier with this stated return address is the end of the region that the
/// thread executes: the primary thread's has that of the region's call, the others' have none.
#[inline]
pub fn is_end_of_region(state: &mut State, stated_address: u64) -> bool {
    match state.regions.tool.share() {
        // SAFETY: the primary thread has not left the region.
        Some(share) if share.is_primary => unsafe {
            (*share.team).stated_address == stated_address
        },
        _ => stated_address == 0,
    }
}

/// Ends the thread's work in its share: the thread waits for the end of the region.
#[inline]
pub fn end_share(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    place: &RuntimePlace,
) {
    let Some(open) = state.regions.tool.share().filter(|open| !open.has_ended) else { return };
    open.has_ended = true;
    let Some(share) = open.share else { return };
    let from = callback_at(place, OPENMP_IDLE, 0);
    // SAFETY: the share was begun on this thread. The region has not ended: its end waits for this
    // thread.
    unsafe {
        shares::end_share(observed, block, state, &share, &from, IdlePlace::StartOfRuntime);
    }
}

/// The thread leaves its share. The share has ended before, except in a team of one thread.
#[inline]
pub fn leave_share(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    place: &RuntimePlace,
) {
    if state.regions.tool.share().is_some_and(|open| open.is_primary) {
        end_share(observed, block, state, place);
    }
    let tool = &mut state.regions.tool;
    tool.open_shares = tool.open_shares.saturating_sub(1);
}

/// Begins a wait of the thread in `call`.
#[inline]
pub fn begin_wait(
    observed: &Observed,
    state: &mut State,
    place: &RuntimePlace,
    call: CallId,
    kind: WaitKind,
) {
    if state.regions.open.return_slot > place.return_slot {
        // Inside of another measured call.
        return;
    }
    let Some(KnownCall { entry, slot }) = locate(observed, state, place, call) else { return };
    if enter_as(observed, state, &entry, Measured::Through(slot)) {
        state.regions.tool.set_wait(OpenWait { entry, kind });
        if let WaitKind::Lock(lock) = kind {
            begin_lock_wait(state, lock, entry.ticks);
        }
    }
}

/// Ends the wait of the thread, if one is open.
#[inline]
pub fn end_wait(observed: &Observed, state: &mut State, ticks: u64) {
    if let Some(OpenWait { entry, kind }) = state.regions.tool.wait() {
        if let WaitKind::Lock(lock) = kind {
            end_lock_wait(state, lock, entry.return_slot, ticks);
        }
        exit(observed, state, entry.return_slot, ticks, 0, None, kind.call_kind());
        state.regions.tool.clear_wait();
    }
}

/// The thread changes from one task to another. `left` and `next` are the names of these tasks, and
/// the addresses after the calls that have created them, 0 for implicit tasks; `has_ended` says
/// whether the first one has ended.
///
/// A thread executes a task inside of the one that waits for it, so that the tasks that it executes
/// form a stack.
#[inline]
pub fn change_task(
    observed: &Observed,
    state: &mut State,
    left: TaskName,
    next: TaskName,
    has_ended: bool,
    ticks: u64,
) {
    let is_innermost = |state: &State, task: TaskName| {
        let tool = &state.regions.tool;
        let innermost = tool.open_tasks.checked_sub(1).and_then(|at| tool.tasks.get(at));
        innermost.is_some_and(|taken| taken.name == task.name)
    };
    if left.created_at != 0 && (has_ended || next.created_at == 0) {
        leave_task(observed, state, ticks);
    }
    if next.created_at != 0 && !is_innermost(state, next) {
        take_task(observed, state, next, ticks);
    }
}

/// A task in the events of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct TaskName {
    /// Different for all tasks that exist at one time.
    pub name: usize,
    /// Address after the call that has created the task; 0 for implicit tasks.
    pub created_at: u64,
}

#[inline]
fn take_task(observed: &Observed, state: &mut State, task: TaskName, ticks: u64) {
    let within_call = mark_stubs::original(task.created_at) - 1;
    let open = begin_task(observed, state, within_call, ticks);
    let tool = &mut state.regions.tool;
    let at = tool.open_tasks;
    tool.open_tasks += 1;
    tool.clear_wait();
    if let Some(taken) = tool.tasks.get_mut(at) {
        *taken = TakenTask { name: task.name, open };
        taken.open.start(self::ticks());
    }
}

#[inline]
fn leave_task(observed: &Observed, state: &mut State, ticks: u64) {
    end_wait(observed, state, ticks);
    let tool = &mut state.regions.tool;
    let Some(at) = tool.open_tasks.checked_sub(1) else { return };
    tool.open_tasks = at;
    if let Some(TakenTask { open, .. }) = tool.tasks.get(at)
        && open.is_measured()
    {
        let open = *open;
        // SAFETY: the task was begun on this thread, and its region waits for all tasks.
        unsafe { end_task(observed, state, &open, ticks) };
    }
}
