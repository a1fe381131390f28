//! Threads of the process: each gets its own area of the segment, timer and block.

use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use super::Observed;
use crate::cfi::CfiScratch;
use crate::counters::{self, Counters};
use crate::offcpu::OffCpuClock;
use crate::regions::shares::end_idle;
use crate::regions::thread_creations::ThreadOrigin;
use crate::regions::tool_events::release_teams;
use crate::regions::{RegionTable, declared, flush_openmp, flush_partners, flush_tallies, lie_in};
use crate::room::with_room_on;
use crate::started_requests::StartedRequests;
use crate::stream::Stream;
use crate::thread_blocks::BLOCK_BYTES;
use crate::thread_state::{HANDLER_STACK, State, ThreadBlock, stack_bounds};
use crate::tls;
use crate::unwind::RuleCache;
use plimsoll_wire::clock_anchor::{stamp_now, ticks};
use plimsoll_wire::record::Record;
use plimsoll_wire::ring::Producer;
use plimsoll_wire::segment::{ThreadArea, ThreadState};

/// The doorbell rings when more than 1/4 of the thread areas are in use: the collector then frees
/// the areas of ended threads. Its own polls are rare.
const DOORBELL_DIVISOR: usize = 4;

/// No index of a thread area.
pub(super) const NO_AREA: usize = usize::MAX;

impl Observed {
    /// Starts the observation of the calling thread. `start_routine` is the address of the thread's
    /// start routine, 0 for the initial thread. Does nothing if the thread is already observed;
    /// counts the thread as unsampled if there is no room.
    pub fn attach_thread(&self, start_routine: u64, origin: ThreadOrigin) {
        if !tls::get().is_null() || self.stopped.load(Ordering::Relaxed) {
            return;
        }
        if self.try_attach(start_routine, origin).is_none() {
            self.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
            self.header().unseen_threads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_attach(&self, start_routine: u64, origin: ThreadOrigin) -> Option<()> {
        let block = self.free_blocks.take();
        if block.is_null() {
            return None;
        }
        let top = block as usize + BLOCK_BYTES;
        let bounds = stack_bounds();
        // The thread's own stack may be small: node has threads of 16 KiB.
        // SAFETY: the block is no other thread's.
        let done = unsafe {
            with_room_on(bounds, top & !15, || self.set_up(block, bounds, start_routine, origin))
        };
        if done.is_none() {
            // SAFETY: nothing refers to the block, and its stack is no longer in use.
            unsafe { self.free_blocks.put(block) };
        }
        done
    }

    /// Initialises a block that was just taken, and starts sampling the calling thread.
    fn set_up(
        &self,
        block: *mut ThreadBlock,
        stack_bounds: (u64, u64),
        start_routine: u64,
        origin: ThreadOrigin,
    ) -> Option<()> {
        let header = self.header();
        let guard = self.lock.lock();
        let (index, area) = self.claim_area()?;
        // SAFETY: the area was just mapped.
        let thread = unsafe { &(*area).thread };
        let now = stamp_now();
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        thread.tid.store(tid as u32, Ordering::Relaxed);
        thread.origin.store(origin.path.0, Ordering::Relaxed);
        thread.last_stamp.store(now, Ordering::Relaxed);
        thread.born.store(now, Ordering::Relaxed);
        // SAFETY: nothing else uses the block, which is zeroed as far as that matters. The parts of
        // the state that zeros do not initialise are written in place, since the state is too large
        // for the stack. The ring follows its area, and both stay mapped.
        let state = unsafe {
            (*block).handler_stack_top = block.cast::<u8>().add(BLOCK_BYTES) as usize & !15;
            let state = (*block).state.get().cast::<State>();
            (&raw mut (*state).area).write(area);
            (&raw mut (*state).index).write(index as u32);
            (&raw mut (*state).mark).write((*block).mark.get());
            (&raw mut (*state).tid).write(tid);
            (&raw mut (*state).stack_bounds).write(stack_bounds);
            let top = (*block).handler_stack_top as u64;
            (&raw mut (*state).handler_stack).write((top - HANDLER_STACK as u64 + 16, top));
            let ring = area.cast::<u8>().add(size_of::<ThreadArea>()).cast_mut();
            let ring = Producer::new(
                ring,
                self.segment.ring_bytes(),
                &raw const thread.head,
                &raw const thread.tail,
                &raw const header.bell,
            );
            (&raw mut (*state).stream).write(Stream::new(
                ring,
                thread,
                &raw const header.reader,
                now,
            ));
            (&raw mut (*state).cache).write(RuleCache::new_in());
            (&raw mut (*state).scratch).write(CfiScratch::default());
            (&raw mut (*state).off_cpu).write(OffCpuClock::new());
            (&raw mut (*state).counters).write(Counters::NONE);
            (&raw mut (*state).origin).write(origin);
            (&raw mut (*state).graft).write(origin.path);
            RegionTable::begin(&raw mut (*state).regions);
            StartedRequests::begin(&raw mut (*state).requests);
            &mut *state
        };
        self.blocks[index].store(block, Ordering::Release);
        drop(guard);
        if start_routine == 0 {
            // The initial thread may have begun long ago.
            state.off_cpu.read(&self.descriptors);
        } else {
            thread.start_routine.store(self.intern(state, start_routine), Ordering::Relaxed);
        }
        self.count_events(state);
        thread.generation.fetch_add(1, Ordering::Relaxed);
        thread.state.store(ThreadState::Live as u32, Ordering::Release);
        header.threads.fetch_max(index as u32 + 1, Ordering::Release);
        // SAFETY: the block is complete.
        unsafe { (*block).active.store(true, Ordering::Release) };
        tls::set(block);
        if self.may_sample() {
            // SAFETY: the block is this thread's, and mapped until `detach_thread`.
            let timer = unsafe { &(*block).timer };
            let clock = timer.start(self.clock, self.period_ns, tid, &self.descriptors);
            if clock != self.clock {
                self.note_fallback();
            }
        }
        Some(())
    }

    /// Claims a free thread area and maps it on first use. Returns its index and address; `None` if
    /// no area is free. The caller holds the lock.
    fn claim_area(&self) -> Option<(usize, *const ThreadArea)> {
        // Areas of ended threads become free all at the same time, in the collector's next round.
        // Until then the search continues behind the last claimed area: looking at all areas before
        // it again would take microseconds.
        let undrained = self.undrained_area.load(Ordering::Relaxed);
        let is_before_round =
            undrained != NO_AREA && self.area_state(undrained)? == ThreadState::Ended as u32;
        let begin = if is_before_round { self.next_area.load(Ordering::Relaxed) } else { 0 };
        if begin == 0 {
            self.undrained_area.store(NO_AREA, Ordering::Relaxed);
        }
        let areas = self.segment.areas();
        for index in (begin..areas).chain(0..begin) {
            if !self.blocks[index].load(Ordering::Acquire).is_null() {
                continue;
            }
            if self.area_state(index)? != ThreadState::Free as u32 {
                self.undrained_area.fetch_min(index, Ordering::Relaxed);
                continue;
            }
            self.next_area.store(index + 1, Ordering::Relaxed);
            if index >= areas / DOORBELL_DIVISOR {
                // The collector frees the areas of ended threads after draining their rings.
                self.header().bell.ring();
            }
            return Some((index, self.segment.area(index)?));
        }
        None
    }

    /// Returns the [`ThreadState`] of an area; `None` if the area cannot be mapped.
    fn area_state(&self, index: usize) -> Option<u32> {
        let area = self.segment.area(index)?;
        // SAFETY: areas stay mapped.
        Some(unsafe { (*area).thread.state.load(Ordering::Acquire) })
    }

    /// Ends the observation of the calling thread.
    pub fn detach_thread(&self) {
        let block = tls::get();
        // SAFETY: the block is the calling thread's, mapped until the end of this function.
        let Some(thread_block) = (unsafe { block.as_ref() }) else { return };
        thread_block.settle();
        if self.stop_timer().is_err() {
            self.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
        }
        let closed = thread_block.enter(|state| {
            if let Some(schedstat) = state.off_cpu.descriptor() {
                self.descriptors.release(schedstat.number(), schedstat.is_ours());
            }
            declared::settle(self, state);
            end_idle(self, state, ticks());
            flush_tallies(state);
            flush_partners(state);
            flush_openmp(state);
            release_teams(state);
            lie_in(state, state.graft);
            let now = stamp_now();
            counters::write(self, state, now, false);
            counters::close(state, &self.descriptors);
            let form = state.stream.stamp(now);
            let _ = state.stream.write(&Record::End { stamp: form });
            state.area().thread.state.store(ThreadState::Ended as u32, Ordering::Release);
            state.index
        });
        let Some(index) = closed else { return };
        thread_block.active.store(false, Ordering::Release);
        tls::set(null_mut());
        let _guard = self.lock.lock();
        self.blocks[index as usize].store(null_mut(), Ordering::Release);
        // SAFETY: the thread's handler and wrappers no longer run, and the block is unlisted.
        unsafe {
            let state = (*block).state.get().cast::<State>();
            core::ptr::drop_in_place(&raw mut (*state).cache);
            self.free_blocks.put(block);
        }
    }
}
