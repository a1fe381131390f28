//! Threads of the process: each gets an area of the segment, a clock and a block of its own.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use super::{Observed, map_segment};
use crate::cfi::CfiScratch;
use crate::clock::stamp_now;
use crate::mapping;
use crate::offcpu::OffCpuClock;
use crate::record::Record;
use crate::regions::flush_tallies;
use crate::ring::Producer;
use crate::segment::{MAX_THREADS, ThreadArea, ThreadState, thread_area_bytes, thread_offset};
use crate::stream::Stream;
use crate::thread::{HANDLER_STACK, State, ThreadBlock, stack_bounds};
use crate::timer::Timer;
use crate::tls;
use crate::unwind::RuleCache;

/// From so many thread areas on, a collector is asked to free those of threads that have ended: it looks by
/// itself only now and then.
const MANY_THREADS: usize = MAX_THREADS / 4;

impl Observed {
    /// Begins to observe the calling thread. `start_routine`: where it began, 0 for the initial
    /// thread. Does nothing if it is observed already; counts it if there is no room.
    pub fn attach_thread(&self, start_routine: u64) {
        if !tls::get().is_null() || self.stopped.load(Ordering::Relaxed) {
            return;
        }
        if self.try_attach(start_routine).is_none() {
            self.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_attach(&self, start_routine: u64) -> Option<()> {
        let header = self.header();
        let block = mapping::private(size_of::<ThreadBlock>() + HANDLER_STACK);
        if block.is_null() {
            return None;
        }
        let block = block.cast::<ThreadBlock>();
        let guard = self.lock.lock();
        let Some((index, area)) = self.claim_area() else {
            drop(guard);
            // SAFETY: the mapping was just made and nobody knows it.
            unsafe { mapping::unmap(block.cast(), size_of::<ThreadBlock>() + HANDLER_STACK) };
            return None;
        };
        // SAFETY: the area was just mapped.
        let thread = unsafe { &(*area).thread };
        let now = stamp_now();
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        thread.tid.store(tid as u32, Ordering::Relaxed);
        thread.last_stamp.store(now, Ordering::Relaxed);
        // SAFETY: the block is ours alone and zeroed; the parts of the state that zeros do not
        // initialise are written in place, since it is too large for the stack. The ring follows
        // its area, and both stay mapped until `detach_thread`.
        let state = unsafe {
            mapping::advise(
                block.cast(),
                size_of::<ThreadBlock>() + HANDLER_STACK,
                libc::MADV_WIPEONFORK,
            );
            (*block).handler_stack_top =
                block.cast::<u8>().add(size_of::<ThreadBlock>() + HANDLER_STACK) as usize & !15;
            let state = (*block).state.get().cast::<State>();
            (&raw mut (*state).area).write(area);
            (&raw mut (*state).index).write(index as u32);
            (&raw mut (*state).mark).write((*block).mark.get());
            (&raw mut (*state).tid).write(tid);
            (&raw mut (*state).stack_bounds).write(stack_bounds());
            let ring = area.cast::<u8>().add(size_of::<ThreadArea>()).cast_mut();
            let ring = Producer::new(
                ring,
                self.ring_bytes,
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
            (&raw mut (*state).off_cpu).write(OffCpuClock::new(self.open_schedstat()));
            (&raw mut (*state).timer).write(Timer::None);
            &mut *state
        };
        self.blocks[index].store(block, Ordering::Release);
        drop(guard);
        if start_routine != 0 {
            thread.start_routine.store(self.intern(state, start_routine), Ordering::Relaxed);
        }
        thread.generation.fetch_add(1, Ordering::Relaxed);
        thread.state.store(ThreadState::Live as u32, Ordering::Release);
        header.threads.fetch_max(index as u32 + 1, Ordering::Release);
        // SAFETY: the block is complete.
        unsafe { (*block).active.store(true, Ordering::Release) };
        tls::set(block);
        let (timer, clock) = Timer::start(self.clock, self.period_ns, tid, &self.descriptors);
        if clock != self.clock {
            header.clock.store(clock as u32, Ordering::Relaxed);
        }
        // SAFETY: the block is this thread's. The handler does not use the timer.
        unsafe { (*block).enter(|state| state.timer = timer) };
        Some(())
    }

    /// Takes a free thread area and maps it. The lock is held.
    fn claim_area(&self) -> Option<(usize, *const ThreadArea)> {
        let bytes = thread_area_bytes(self.ring_bytes);
        for index in 0..MAX_THREADS {
            if !self.blocks[index].load(Ordering::Acquire).is_null() {
                continue;
            }
            let area =
                map_segment(self.segment_descriptor, thread_offset(index, self.ring_bytes), bytes)?;
            let area = area.cast::<ThreadArea>().cast_const();
            // SAFETY: just mapped.
            if unsafe { (*area).thread.state.load(Ordering::Acquire) } == ThreadState::Free as u32 {
                if index >= MANY_THREADS {
                    // Those of threads that have ended are free when the collector has read them.
                    self.header().bell.ring();
                }
                return Some((index, area));
            }
            // Still being read by the collector.
            // SAFETY: the mapping was just made and nobody knows it.
            unsafe { mapping::unmap(area.cast_mut().cast(), bytes) };
        }
        None
    }

    fn open_schedstat(&self) -> c_int {
        // SAFETY: a C string; the raw call, since the library's may be observed.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                c"/proc/thread-self/schedstat".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            )
        };
        self.descriptors.adopt(descriptor as c_int).unwrap_or(-1)
    }

    /// Ends the observation of the calling thread.
    pub fn detach_thread(&self) {
        let block = tls::get();
        // SAFETY: the block is the calling thread's, mapped until the end of this function.
        let Some(thread_block) = (unsafe { block.as_ref() }) else { return };
        thread_block.settle();
        let closed = thread_block.enter(|state| {
            state.timer.stop(&self.descriptors);
            self.descriptors.release(state.off_cpu.descriptor(), b"schedstat");
            flush_tallies(state);
            let form = state.stream.stamp(stamp_now());
            let _ = state.stream.write(&Record::End { stamp: form });
            state.area().thread.state.store(ThreadState::Ended as u32, Ordering::Release);
            (state.area, state.index)
        });
        let Some((area, index)) = closed else { return };
        thread_block.active.store(false, Ordering::Release);
        tls::set(null_mut());
        let _guard = self.lock.lock();
        self.blocks[index as usize].store(null_mut(), Ordering::Release);
        // SAFETY: the thread's handler and wrappers do not run any more, and the block is unlisted.
        unsafe {
            let state = (*block).state.get().cast::<State>();
            core::ptr::drop_in_place(&raw mut (*state).cache);
            mapping::unmap(area.cast_mut().cast(), thread_area_bytes(self.ring_bytes));
            mapping::unmap(block.cast(), size_of::<ThreadBlock>() + HANDLER_STACK);
        }
    }
}
