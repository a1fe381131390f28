//! Events of an OpenMP runtime that calls back: teams, nested regions, waits and tasks of a thread,
//! without a runtime.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::Ordering;

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config, Observed};
use plimsoll_agent::regions::lock_holders::LockId;
use plimsoll_agent::regions::thread_creations::ThreadOrigin;
use plimsoll_agent::regions::tool_events::{self, Membership, RuntimePlace, TaskName, WaitKind};
use plimsoll_agent::thread_state::{State, ThreadBlock};
use plimsoll_agent::tls;
use plimsoll_calls::{CallId, id_of};
use plimsoll_wire::clock_anchor::ticks;
use plimsoll_wire::record::STAMP_SHIFT;
use plimsoll_wire::teams::{RegionCounters, TaskCounters};

const REGION: CallId = id_of("OpenMP_parallel");
const SET_LOCK: CallId = id_of("omp_set_lock");
const TASKWAIT: CallId = id_of("OpenMP_taskwait");
/// Return address of a region's call as the runtime states it.
const STATED: u64 = 0x40_1000;

/// Calls `note` with `data` and its own place: as a runtime calls a tool back.
#[unsafe(naked)]
unsafe extern "C" fn call_back(data: *mut c_void, note: *const c_void) {
    naked_asm!("mov rax, rsi", "mov rsi, rsp", "mov rdx, [rsp]", "mov rcx, rbp", "jmp rax")
}

/// Runs `event`, which must not panic, with the place of a callback and the thread's state.
fn event<R>(event: impl FnOnce(&RuntimePlace, &ThreadBlock, &mut State) -> R) -> R {
    struct Call<F, R> {
        event: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn note<F: FnOnce(&RuntimePlace, &ThreadBlock, &mut State) -> R, R>(
        call: &mut Call<F, R>,
        return_slot: u64,
        return_address: u64,
        caller_rbp: u64,
    ) {
        let place = RuntimePlace { return_slot, return_address, caller_rbp };
        // SAFETY: the block of this thread, which is observed.
        let block = unsafe { tls::get().as_ref() }.expect("observed");
        let event = call.event.take().expect("called once");
        call.result = block.enter(|state| event(&place, block, state));
    }
    fn of<F: FnOnce(&RuntimePlace, &ThreadBlock, &mut State) -> R, R>(
        call: &mut Call<F, R>,
    ) -> (*mut c_void, *const c_void) {
        ((&raw mut *call).cast(), note::<F, R> as *const c_void)
    }
    let mut call = Call { event: Some(event), result: None };
    let (data, function) = of(&mut call);
    // SAFETY: `note` takes this data.
    unsafe { call_back(data, function) };
    call.result.expect("the handler does not run")
}

fn begin_region(observed: &Observed, stated: u64) -> u64 {
    event(|place, block, state| {
        tool_events::begin_region(observed, block, state, place, REGION, stated)
    })
}

fn begin_share(observed: &Observed, team: u64, member: Membership) {
    // SAFETY: the region has begun and has not ended.
    event(|_, block, state| unsafe {
        tool_events::begin_share(observed, block, state, team, member);
    });
}

fn end_share(observed: &Observed) {
    event(|place, block, state| tool_events::end_share(observed, block, state, place));
}

fn leave_share(observed: &Observed) {
    event(|place, block, state| tool_events::leave_share(observed, block, state, place));
}

fn end_region(observed: &Observed, team: u64) {
    event(|_, _, state| tool_events::end_region(observed, state, team, ticks()));
}

fn unmeasured() -> u64 {
    event(|_, _, state| state.area().thread.unmeasured_regions.load(Ordering::Relaxed))
}

/// Works for a duration in ticks.
fn work(duration: u64) {
    let begin = ticks();
    while ticks() - begin < duration {}
}

fn change_task(observed: &Observed, left: TaskName, next: TaskName, ended: bool) {
    event(|_, _, state| tool_events::change_task(observed, state, left, next, ended, ticks()));
}

/// One test: a process has one observation.
#[test]
fn events_become_regions_shares_waits_and_tasks() {
    let config = Config::new(1_000_000_000, Marks::Off);
    let observed = observed_process::start(&config).expect("observed");
    two_threads_share_a_region(observed);
    regions_inside_of_each_other_stay_apart(observed);
    a_wait_for_a_lock_is_no_wait_for_the_team(observed);
    a_task_that_waits_goes_on_after_the_one_that_it_executes(observed);
    a_task_belongs_to_the_outer_share_after_one_that_made_a_region(observed);
    a_wait_for_an_inner_team_is_work_in_the_outer_region(observed);
    a_thread_without_a_share_has_none_of_an_earlier_region(observed);
    a_region_outlives_its_slot(observed);
    threads_take_the_teams_of_ended_ones(observed);
}

fn two_threads_share_a_region(observed: &'static Observed) {
    // The region of a league is the runtime's own.
    assert_eq!(begin_region(observed, 0), 0);
    end_region(observed, 0);

    let team = begin_region(observed, STATED);
    assert_ne!(team, 0);
    // The worker's share begins before the primary thread's and ends after it, however the
    // threads are scheduled.
    let worker_has_begun = &*Box::leak(Box::new(Barrier::new(2)));
    let primary_has_ended = &*Box::leak(Box::new(Barrier::new(2)));
    let worker = std::thread::spawn(move || {
        observed.attach_thread(0, ThreadOrigin::default());
        begin_share(observed, team, Membership::new(1, 2));
        worker_has_begun.wait();
        primary_has_ended.wait();
        // Other threads' barriers at the end of a region have no return address.
        let is_end = |stated| event(|_, _, state| tool_events::is_end_of_region(state, stated));
        assert!(is_end(0) && !is_end(STATED));
        end_share(observed);
        leave_share(observed);
        observed.detach_thread();
    });
    worker_has_begun.wait();
    begin_share(observed, team, Membership::new(0, 2));
    work(1_000_000);
    let is_end = |stated| event(|_, _, state| tool_events::is_end_of_region(state, stated));
    assert!(is_end(STATED) && !is_end(STATED + 8) && !is_end(0));
    end_share(observed);
    // A second event of the end, as barriers of cancelled regions bring it, changes nothing.
    end_share(observed);
    primary_has_ended.wait();
    worker.join().expect("the worker has not panicked");
    leave_share(observed);
    end_region(observed, team);
    let (region, shares) = event(|_, _, state| {
        let region = &state.area().regions[0];
        (region.read(), [0, 1].map(|number| region.share(number)))
    });
    let region = region.expect("the region was measured").totals;
    assert_eq!((region.instances, region.threads), (1, 2));
    let [primary, other] = shares.map(|share| share.expect("the thread took part"));
    assert!(other.work > primary.work, "the worker works longer");
    assert_eq!((primary.count, other.count, unmeasured()), (1, 1, 0));
}

/// The ninth region inside of others is counted as unmeasured, and the outer ones end as measured.
fn regions_inside_of_each_other_stay_apart(observed: &Observed) {
    let instances = || {
        event(|_, _, state| {
            let regions = state.area().regions.iter().filter_map(RegionCounters::read);
            regions.map(|region| region.totals.instances).sum::<u64>()
        })
    };
    let before = instances();
    let mut teams = Vec::new();
    for depth in 0..10 {
        let team = begin_region(observed, STATED);
        assert_eq!(team != 0, depth < 8, "at depth {depth}");
        begin_share(observed, team, Membership::new(0, 1));
        teams.push(team);
    }
    for team in teams.into_iter().rev() {
        leave_share(observed);
        end_region(observed, team);
    }
    assert_eq!((instances() - before, unmeasured()), (8, 2));
}

fn a_wait_for_an_inner_team_is_work_in_the_outer_region(observed: &Observed) {
    let shares_of_primary = || {
        event(|_, _, state| {
            let shares = state.area().regions.iter().filter_map(|region| region.share(0));
            shares.fold((0, 0), |(work, barrier), it| (work + it.work, barrier + it.barrier))
        })
    };
    let implicit = TaskName { name: 1, created_at: 0 };
    let task = TaskName { name: 2, created_at: STATED + 64 };
    let before = shares_of_primary();
    let outer = begin_region(observed, STATED);
    begin_share(observed, outer, Membership::new(0, 2));
    let inner = begin_region(observed, STATED);
    begin_share(observed, inner, Membership::new(0, 2));
    end_share(observed);
    work(4_000_000);
    // A task in the wait divides it.
    change_task(observed, implicit, task, false);
    change_task(observed, task, implicit, true);
    work(4_000_000);
    leave_share(observed);
    end_region(observed, inner);
    end_share(observed);
    leave_share(observed);
    end_region(observed, outer);
    let (work, barrier) = shares_of_primary();
    let (work, barrier) = (work - before.0, barrier - before.1);
    assert!(work >= 8_000_000 >> STAMP_SHIFT, "{work} stamps");
    assert_eq!(barrier, 0);
}

fn a_wait_for_a_lock_is_no_wait_for_the_team(observed: &Observed) {
    let times = || event(|_, _, state| (state.call_times.lock, state.call_times.barrier));
    let (lock, barrier) = times();
    let kind = WaitKind::Lock(LockId(0x5000));
    event(|place, _, state| tool_events::begin_wait(observed, state, place, SET_LOCK, kind));
    work(1_000_000);
    let end = || event(|_, _, state| tool_events::end_wait(observed, state, ticks()));
    end();
    let (lock_after, barrier_after) = times();
    assert!(lock_after - lock >= 1_000_000 && barrier_after == barrier);
    // The end of a wait that has not begun changes nothing.
    end();
    assert_eq!(times(), (lock_after, barrier_after));
}

fn a_task_that_waits_goes_on_after_the_one_that_it_executes(observed: &Observed) {
    let implicit = TaskName { name: 1, created_at: 0 };
    let outer = TaskName { name: 2, created_at: STATED + 16 };
    let inner = TaskName { name: 3, created_at: STATED + 32 };
    let begin = ticks();
    change_task(observed, implicit, outer, false);
    event(|place, _, state| {
        tool_events::begin_wait(observed, state, place, TASKWAIT, WaitKind::Team);
    });
    change_task(observed, outer, inner, false);
    work(2_000_000);
    change_task(observed, inner, outer, true);
    event(|_, _, state| tool_events::end_wait(observed, state, ticks()));
    change_task(observed, outer, implicit, true);
    let stamps = (ticks() - begin) >> STAMP_SHIFT;
    let tasks: Vec<_> =
        event(|_, _, state| state.area().tasks.iter().filter_map(TaskCounters::read).collect());
    let [one, other] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!((one.count, other.count), (1, 1));
    // The inner task ends first. Its time is no work of the task that executes it: together they
    // work no longer than the time that passed.
    assert!(one.work >= 2_000_000 >> STAMP_SHIFT, "{tasks:?}");
    assert!(one.work + other.work <= stamps + 1, "{tasks:?} in {stamps} stamps");
}

fn a_task_belongs_to_the_outer_share_after_one_that_made_a_region(observed: &Observed) {
    let work_of_primary = || -> u64 {
        event(|_, _, state| {
            let shares = state.area().regions.iter().filter_map(|region| region.share(0));
            shares.map(|share| share.work).sum()
        })
    };
    let before = work_of_primary();
    let implicit = TaskName { name: 1, created_at: 0 };
    let first = TaskName { name: 2, created_at: STATED + 48 };
    let second = TaskName { name: 3, created_at: STATED + 48 };
    let outer = begin_region(observed, STATED);
    begin_share(observed, outer, Membership::new(0, 2));
    end_share(observed);
    change_task(observed, implicit, first, false);
    let inner = begin_region(observed, STATED);
    begin_share(observed, inner, Membership::new(0, 2));
    end_share(observed);
    leave_share(observed);
    end_region(observed, inner);
    change_task(observed, first, implicit, true);
    change_task(observed, implicit, second, false);
    work(5_000_000);
    change_task(observed, second, implicit, true);
    leave_share(observed);
    end_region(observed, outer);
    let added = work_of_primary() - before;
    assert!(added >= 5_000_000 >> STAMP_SHIFT, "{added} stamps");
}

fn a_thread_without_a_share_has_none_of_an_earlier_region(observed: &Observed) {
    let shares_of_worker = || -> u64 {
        event(|_, _, state| {
            let shares = state.area().regions.iter().filter_map(|region| region.share(1));
            shares.map(|share| share.count).sum()
        })
    };
    let before = shares_of_worker();
    let worker = Membership::new(1, 2);
    for is_observed in [true, false] {
        let team = begin_region(observed, STATED);
        begin_share(observed, team, Membership::new(0, 2));
        end_share(observed);
        leave_share(observed);
        // The worker's share, here on the thread of the primary.
        if is_observed {
            begin_share(observed, team, worker);
            end_share(observed);
            leave_share(observed);
        } else {
            // SAFETY: the region has begun and has not ended.
            unsafe { tool_events::leave_out(team, worker) };
        }
        end_region(observed, team);
    }
    assert_eq!(shares_of_worker() - before, 1);
}

/// Waits for a lock this many frames further in.
#[inline(never)]
fn wait_below(observed: &Observed, frames: u32) {
    match black_box(frames) {
        0 => {
            let kind = WaitKind::Lock(LockId(0x6000));
            event(|place, _, state| {
                tool_events::begin_wait(observed, state, place, SET_LOCK, kind);
            });
            event(|_, _, state| tool_events::end_wait(observed, state, ticks()));
        }
        _ => wait_below(observed, frames - 1),
    }
    black_box(frames);
}

/// The region's thread waits in more call paths than it can keep, so that all are evicted.
fn a_region_outlives_its_slot(observed: &Observed) {
    let team = begin_region(observed, STATED);
    begin_share(observed, team, Membership::new(0, 2));
    for frames in 400..450 {
        wait_below(observed, frames);
    }
    end_share(observed);
    let frames = event(|_, _, state| state.regions.open_call().map(|call| call.path.len()));
    assert!(frames > Some(0), "{frames:?} frames around the wait for the region's end");
    leave_share(observed);
    end_region(observed, team);
}

fn threads_take_the_teams_of_ended_ones(observed: &'static Observed) {
    let make_region = move || {
        observed.attach_thread(0, ThreadOrigin::default());
        let team = begin_region(observed, STATED);
        end_region(observed, team);
        observed.detach_thread();
        team
    };
    let teams = [(); 3].map(|()| std::thread::spawn(make_region).join().expect("it runs"));
    assert!(teams[0] != 0 && teams == [teams[0]; 3], "{teams:x?}");
}
