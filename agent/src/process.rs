//! The observed process: its segment, its tables, its threads.
//!
//! Everything here runs outside the handler, at the start and end of the process and of its
//! threads and when libraries are loaded, and may allocate and lock.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::boxed::Box;
use std::vec::Vec;

use parking_lot::Mutex;

use crate::addresses::{Addresses, Published as PublishedAddresses};
use crate::cfi::CfiScratch;
use crate::clock::{Anchor, clock_ns, stamp, stamp_now, ticks_in};
use crate::descriptors::Descriptors;
use crate::mapping;
use crate::modules::{self, LoadedModule, Snapshot};
use crate::offcpu::OffCpuClock;
use crate::record::Record;
use crate::regions::{discard_tallies, flush_tallies};
use crate::ring::Producer;
use crate::segment::{
    ADDRESSES_OFFSET, Address, ClockKind, MAGIC, MAX_ADDRESSES, MAX_MODULES, MAX_PATH, MAX_THREADS,
    MODULES_OFFSET, ModuleEntry, Process, THREADS_OFFSET, Thread, ThreadArea, ThreadState,
    ring_bytes_for, segment_bytes, thread_area_bytes, thread_offset,
};
use crate::stream::Stream;
use crate::thread::{HANDLER_STACK, State, ThreadBlock, stack_bounds};
use crate::timer::Timer;
use crate::tls;
use crate::unwind::{RuleCache, Unwinding};

/// The C library's sigaction.
pub type Sigaction =
    unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// What to measure, and how.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sampling period in nanoseconds.
    pub period_ns: u64,
    /// What drives the samples, if it can be had.
    pub clock: ClockKind,
    /// The C library's sigaction: the application's may be ours.
    pub sigaction: Sigaction,
}

/// Why a process is not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The shared segment could not be created or mapped; errno.
    Segment(c_int),
    /// No descriptor is left for it.
    Descriptors,
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Segment(errno) => write!(
                f,
                "no shared memory for the measurement (errno {errno}); raise the limits on address space and memory"
            ),
            Self::Descriptors => {
                write!(f, "no file descriptor is left for the measurement; raise `ulimit -n`")
            }
        }
    }
}

impl core::error::Error for StartError {}

/// The observed process. Created once, never freed: a handler may always be running.
pub struct Observed {
    /// Sampling period in ticks of the time stamp counter.
    pub period_ticks: u64,
    /// An interval between two samples that is longer than this, in stamps, holds time off the CPU.
    pub late_stamps: u64,
    /// Part of an interval around a call that is worth a reading of the CPU clock, in stamps: a
    /// reading takes half a microsecond.
    pub part_stamps: u64,
    period_ns: u64,
    clock: ClockKind,
    segment: *mut u8,
    segment_descriptor: c_int,
    ring_bytes: usize,
    addresses: &'static Addresses,
    snapshots: modules::Published,
    blocks: [AtomicPtr<ThreadBlock>; MAX_THREADS],
    own_text: (u64, u64),
    descriptors: Descriptors,
    lock: Mutex<()>,
    stopped: AtomicBool,
}

// SAFETY: the raw pointer is to the segment, all of whose fields are atomic.
unsafe impl Sync for Observed {}
// SAFETY: as above.
unsafe impl Send for Observed {}

static CURRENT: AtomicPtr<Observed> = AtomicPtr::new(null_mut());

/// A page that is wiped in forked children: nonzero in the process that called [`start`].
static ALIVE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// The observed process, unless this is an unobserved one or a forked child of it.
#[inline]
pub fn current() -> Option<&'static Observed> {
    let alive = ALIVE.load(Ordering::Acquire);
    // SAFETY: the page is never unmapped.
    if alive.is_null() || unsafe { (*alive).load(Ordering::Relaxed) } == 0 {
        return None;
    }
    // SAFETY: set before `alive`, never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

fn errno() -> c_int {
    // SAFETY: errno's location is valid in every thread.
    unsafe { *libc::__errno_location() }
}

/// Begins to observe this process and the calling thread, its main thread.
pub fn start(config: &Config) -> Result<&'static Observed, StartError> {
    let anchor = Anchor::now();
    let realtime_ns = clock_ns(libc::CLOCK_REALTIME);
    let descriptors = Descriptors::new();
    let ring_bytes = ring_bytes_for(config.period_ns);
    // SAFETY: a C string; the calls check their arguments.
    let descriptor = unsafe {
        let low = libc::memfd_create(c"plimsoll".as_ptr(), libc::MFD_CLOEXEC);
        if low < 0 {
            return Err(StartError::Segment(errno()));
        }
        let high = descriptors.adopt(low).ok_or(StartError::Descriptors)?;
        if libc::ftruncate(high, segment_bytes(ring_bytes) as libc::off_t) != 0 {
            return Err(StartError::Segment(errno()));
        }
        high
    };
    let segment =
        map_segment(descriptor, 0, THREADS_OFFSET).ok_or_else(|| StartError::Segment(errno()))?;
    let addresses = mapping::private(size_of::<Addresses>());
    let alive = mapping::private(4096);
    if addresses.is_null() || alive.is_null() {
        return Err(StartError::Segment(errno()));
    }
    // SAFETY: the page was just mapped.
    unsafe { mapping::advise(alive, 4096, libc::MADV_WIPEONFORK) };
    let rate = Anchor::rate_since(anchor);
    let observed = Box::leak(Box::new(Observed {
        period_ticks: ticks_in(config.period_ns, rate),
        late_stamps: stamp(ticks_in(config.period_ns + config.period_ns / 8, rate)),
        part_stamps: stamp(ticks_in(config.period_ns / 4, rate)),
        period_ns: config.period_ns,
        clock: config.clock,
        segment,
        segment_descriptor: descriptor,
        ring_bytes,
        // SAFETY: zeroed memory is an empty table.
        addresses: unsafe { &*addresses.cast::<Addresses>() },
        snapshots: modules::Published::none(),
        blocks: [const { AtomicPtr::new(null_mut()) }; MAX_THREADS],
        own_text: (0, 0),
        descriptors,
        lock: Mutex::new(()),
        stopped: AtomicBool::new(false),
    }));
    let here = start as *const () as u64;
    if let Some(own) =
        modules::loaded().iter().find(|module| here >= module.start && here < module.end)
    {
        observed.own_text = (own.start, own.end);
    }
    let observed: &'static Observed = observed;
    let header = observed.header();
    header.version.store(crate::record::VERSION, Ordering::Relaxed);
    header.pid.store(std::process::id(), Ordering::Relaxed);
    header.start_time.store(start_time(), Ordering::Relaxed);
    header.period_ns.store(config.period_ns, Ordering::Relaxed);
    header.clock.store(config.clock as u32, Ordering::Relaxed);
    header.ring_bytes.store(ring_bytes as u32, Ordering::Relaxed);
    header.anchor_ticks.store(anchor.ticks, Ordering::Relaxed);
    header.anchor_ns.store(anchor.ns, Ordering::Relaxed);
    header.anchor_realtime_ns.store(realtime_ns, Ordering::Relaxed);
    header.ns_per_ticks_q32.store(rate, Ordering::Relaxed);
    header.begin_stamp.store(stamp(anchor.ticks), Ordering::Relaxed);
    header.addresses.store(1, Ordering::Relaxed);
    observed.refresh_modules();
    header.magic.store(MAGIC, Ordering::Release);
    CURRENT.store(std::ptr::from_ref(observed).cast_mut(), Ordering::Release);
    // SAFETY: the page was just mapped.
    unsafe { (*alive.cast::<AtomicU64>()).store(1, Ordering::Relaxed) };
    ALIVE.store(alive.cast(), Ordering::Release);
    crate::sampler::install(config.sigaction);
    observed.attach_thread(0);
    Ok(observed)
}

/// Maps a part of the segment; not inherited by forked children.
fn map_segment(descriptor: c_int, offset: usize, bytes: usize) -> Option<*mut u8> {
    let memory = mapping::shared(descriptor, offset, bytes);
    if memory.is_null() {
        return None;
    }
    // SAFETY: the mapping was just made.
    unsafe { mapping::advise(memory, bytes, libc::MADV_DONTFORK) };
    Some(memory)
}

/// Start of this process in clock ticks since boot; 0 if it cannot be read.
pub fn start_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses that may itself hold spaces and parentheses.
    text.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .unwrap_or(0)
}

impl Observed {
    /// The header of the segment.
    pub fn header(&self) -> &Process {
        // SAFETY: the mapping is at least as long as the header and never unmapped.
        unsafe { &*self.segment.cast::<Process>() }
    }

    /// Takes a descriptor out of the application's sight; -1 if that is not possible.
    pub fn adopt_descriptor(&self, descriptor: c_int) -> c_int {
        self.descriptors.adopt(descriptor).unwrap_or(-1)
    }

    /// The process is about to end in a way that a code of the application of this crate names
    /// (never 0): asks its collector to report.
    pub fn announce_ending(&self, how: u32) {
        self.header().ending.store(how, Ordering::Release);
    }

    /// Whether the collector has reported since.
    pub fn is_reported(&self) -> bool {
        self.header().reported.load(Ordering::Acquire) != 0
    }

    /// The descriptor of the segment, for a collector in another process.
    pub fn descriptor(&self) -> c_int {
        self.segment_descriptor
    }

    /// Whether code at `address` is this library's.
    #[inline]
    pub fn is_own(&self, address: u64) -> bool {
        address >= self.own_text.0 && address < self.own_text.1
    }

    fn address_table(&self) -> PublishedAddresses<'_> {
        // SAFETY: the mapping holds the whole table.
        let table = unsafe {
            core::slice::from_raw_parts(
                self.segment.add(ADDRESSES_OFFSET).cast::<Address>(),
                MAX_ADDRESSES,
            )
        };
        PublishedAddresses { table, used: &self.header().addresses }
    }

    /// Runs `work` with what unwinding needs. `None` before the first module map is published.
    #[inline]
    pub(crate) fn with_unwinding<R>(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut Unwinding<'_>, &mut Walk<'_>) -> R,
    ) -> Option<R> {
        let block = self.blocks[state.index as usize].load(Ordering::Relaxed);
        // SAFETY: the block of the calling thread, which is attached.
        let hazard = unsafe { &(*block).hazard };
        let snapshot = self.snapshots.protect(hazard)?;
        let mut unwinding = Unwinding {
            snapshot,
            addresses: self.addresses,
            published: self.address_table(),
            cache: &mut state.cache,
            scratch: &mut state.scratch,
        };
        let mut walk = Walk { taken: &mut state.taken, inner: &mut state.inner, area: state.area };
        let result = work(&mut unwinding, &mut walk);
        hazard.store(null_mut(), Ordering::Release);
        Some(result)
    }

    /// Interns an address from outside the handler; 0 if that is not possible.
    fn intern(&self, state: &mut State, value: u64) -> u32 {
        self.with_unwinding(state, |unwinding, _| {
            unwinding
                .addresses
                .intern(value, true, &unwinding.published, unwinding.snapshot, unwinding.scratch)
                .map_or(0, |interned| interned.id)
        })
        .unwrap_or(0)
    }

    /// Publishes the map of what is loaded now.
    pub fn refresh_modules(&self) {
        let _guard = self.lock.lock();
        let mut loaded = modules::loaded();
        self.list_modules(&mut loaded);
        self.publish(Snapshot::new(loaded));
    }

    /// Runs `unload`, which may unmap libraries, while handlers see only the modules that it
    /// cannot take away: the ones that were loaded with the program.
    pub fn around_unload<R>(&self, unload: impl FnOnce() -> R) -> R {
        {
            let _guard = self.lock.lock();
            let mut stay = modules::loaded();
            self.list_modules(&mut stay);
            stay.truncate(PERMANENT.load(Ordering::Relaxed) as usize);
            self.publish(Snapshot::new(stay));
        }
        let result = unload();
        self.refresh_modules();
        result
    }

    fn publish(&self, snapshot: Snapshot) {
        self.snapshots.replace(snapshot, |old| {
            self.blocks.iter().any(|block| {
                let block = block.load(Ordering::Acquire);
                // SAFETY: blocks are unlisted under the lock, which the caller holds, before they
                // are unmapped.
                !block.is_null() && unsafe { (*block).hazard.load(Ordering::SeqCst) } == old
            })
        });
    }

    /// Gives each module its index in the segment's table, and marks those that are gone.
    fn list_modules(&self, loaded: &mut [LoadedModule]) {
        let header = self.header();
        // SAFETY: the mapping holds the whole table.
        let table = unsafe {
            core::slice::from_raw_parts(
                self.segment.add(MODULES_OFFSET).cast::<ModuleEntry>(),
                MAX_MODULES,
            )
        };
        let mut used = (header.modules.load(Ordering::Relaxed) as usize).min(MAX_MODULES);
        PERMANENT
            .compare_exchange(0, loaded.len() as u64, Ordering::Relaxed, Ordering::Relaxed)
            .ok();
        let mut listed = Vec::new();
        for module in loaded.iter_mut() {
            let known = table[..used].iter().position(|entry| {
                entry.unloaded.load(Ordering::Relaxed) == 0
                    && entry.start.load(Ordering::Relaxed) == module.start
                    && entry.end.load(Ordering::Relaxed) == module.end
                    && entry.build_id_bytes.load(Ordering::Relaxed) as usize
                        == module.build_id.len().min(20)
                    && entry
                        .build_id
                        .iter()
                        .zip(&module.build_id)
                        .all(|(a, b)| a.load(Ordering::Relaxed) == *b)
            });
            let index = match known {
                Some(index) => index,
                None if used < MAX_MODULES => {
                    write_entry(&table[used], module);
                    used += 1;
                    used - 1
                }
                None => MAX_MODULES - 1,
            };
            module.index = index as u32;
            listed.push(index);
        }
        for (index, entry) in table[..used].iter().enumerate() {
            if entry.unloaded.load(Ordering::Relaxed) == 0 && !listed.contains(&index) {
                entry.unloaded.store(1, Ordering::Relaxed);
                let (start, end) =
                    (entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
                self.addresses.forget(start, end, &self.address_table());
            }
        }
        header.modules.store(used as u32, Ordering::Release);
    }

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
            (&raw mut (*state).tid).write(tid);
            (&raw mut (*state).stack_bounds).write(stack_bounds());
            let ring = area.cast::<u8>().add(size_of::<ThreadArea>()).cast_mut();
            let ring = Producer::new(
                ring,
                self.ring_bytes,
                &raw const thread.head,
                &raw const thread.tail,
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

    /// The observed run begins now, on the calling thread: MPI_Init has returned. The reader may be
    /// another one than before.
    pub fn begin(&self) {
        self.header().reader.fetch_add(1, Ordering::Release);
        self.header().begin_stamp.store(stamp_now(), Ordering::Release);
        self.with_thread(|state| {
            self.header().main_thread.store(state.index, Ordering::Release);
            discard_tallies(state);
            let Thread { syncs, samples, lost, truncated, calls, mpi_calls, handler_ticks, .. } =
                &state.area().thread;
            for counter in [syncs, samples, lost, truncated, calls, mpi_calls, handler_ticks] {
                counter.store(0, Ordering::Relaxed);
            }
        });
    }

    /// The observed run ends now: writes what the calling thread has not yet written, and measures
    /// it no more.
    ///
    /// `at_last_record`: the run ended with the calling thread's last record, and nothing is to be
    /// said of what followed it.
    pub fn end(&self, at_last_record: bool) {
        let last = self.with_thread(|state| {
            if !at_last_record {
                flush_tallies(state);
            }
            state.muted = true;
            state.stream.last_stamp()
        });
        let end = last.filter(|_| at_last_record).unwrap_or_else(stamp_now);
        self.header().end_stamp.store(end, Ordering::Release);
    }

    /// Stops sampling the calling thread and lets no further thread be attached: the run is over.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.with_thread(|state| state.timer.stop(&self.descriptors));
    }

    /// Pauses or resumes the measurement of the calling thread.
    pub fn pause(&self, pause: bool) {
        self.with_thread(|state| {
            if state.paused == pause {
                return;
            }
            flush_tallies(state);
            state.paused = pause;
            state.timer.enable(!pause, self.period_ns);
            let stamp = state.stream.stamp(stamp_now());
            let fitted = state.stream.write(&if pause {
                Record::Pause { stamp }
            } else {
                Record::Resume { stamp }
            });
            state.written(fitted);
        });
    }

    /// Holds this thread's interruptions back around an exec, or lets them go on after one that
    /// failed: a pending signal would kill the new program.
    pub fn hold(&self, hold: bool) {
        self.with_thread(|state| state.timer.enable(!hold && !state.paused, self.period_ns));
    }

    /// The application uses the sampling signal itself: sample no more.
    pub fn step_aside(&self) {
        self.header().stepped_aside.store(1, Ordering::Relaxed);
        self.with_thread(|state| state.timer.stop(&self.descriptors));
    }

    /// Runs `work` on the calling thread's state with the handler held off.
    pub fn with_thread<R>(&self, work: impl FnOnce(&mut State) -> R) -> Option<R> {
        // SAFETY: the block is the calling thread's.
        unsafe { tls::get().as_ref() }?.enter(work)
    }

    /// Whether the calling process is the observed one, and not a vforked child that borrows its
    /// memory.
    pub fn is_own_process(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::syscall(libc::SYS_getpid) } as u32;
        self.header().pid.load(Ordering::Relaxed) == pid
    }

    /// Whether the calling thread is the one that was attached to its block, and not a vforked
    /// child that borrows it.
    pub fn is_own_thread(&self) -> bool {
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        self.with_thread(|state| state.tid == tid).unwrap_or(false)
    }
}

/// Modules that were loaded with the program: their number, since the loader lists them first.
static PERMANENT: AtomicU64 = AtomicU64::new(0);

/// Parts of the thread's state that a walk fills.
pub(crate) struct Walk<'s> {
    /// Room for the stack that is being taken.
    pub taken: &'s mut crate::unwind::Frames,
    /// Room for the part of it inside a wrapped call.
    pub inner: &'s mut crate::unwind::Frames,
    area: *const ThreadArea,
}

impl Walk<'_> {
    /// The thread's area in the segment.
    pub fn area(&self) -> &ThreadArea {
        // SAFETY: as `State::area`.
        unsafe { &*self.area }
    }
}

/// In a forked child: it is not observed, and the parent's memory is not its own.
pub fn forget_in_child() {
    tls::set(null_mut());
    ALIVE.store(null_mut(), Ordering::Release);
    CURRENT.store(null_mut(), Ordering::Release);
    PERMANENT.store(0, Ordering::Relaxed);
}

fn write_entry(entry: &ModuleEntry, module: &LoadedModule) {
    let resolved;
    let path: &[u8] = if module.name.is_empty() {
        use std::os::unix::ffi::OsStrExt;
        resolved = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        resolved.as_os_str().as_bytes()
    } else {
        &module.name
    };
    let path = if path.len() > MAX_PATH { &[] } else { path };
    entry.bias.store(module.bias, Ordering::Relaxed);
    entry.start.store(module.start, Ordering::Relaxed);
    entry.end.store(module.end, Ordering::Relaxed);
    for (place, byte) in entry.path.iter().zip(path) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.path_bytes.store(path.len() as u32, Ordering::Relaxed);
    for (place, byte) in entry.build_id.iter().zip(&module.build_id) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.build_id_bytes.store(module.build_id.len().min(20) as u32, Ordering::Relaxed);
}
