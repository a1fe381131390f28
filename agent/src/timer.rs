//! Sampling timer of a thread: a perf event on its CPU time, or a POSIX timer.
//!
//! perf's task-clock with `exclude_kernel` never interrupts a blocked call and keeps its rate. A
//! CLOCK_THREAD_CPUTIME_ID timer is the fallback if perf_event_open is refused; it never fires
//! faster than CONFIG_HZ. CLOCK_MONOTONIC is used if the user asks for wall time; its signals would
//! interrupt blocked calls, so that [`Timer::suspend`] stops the timer during them.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::os::fd::IntoRawFd;

use perf_event::events::Software;

use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::syscalls::{keep_errno, syscall};
use plimsoll_wire::segment::ClockKind;

use crate::stack_memory::StackMemory;

/// Sampling signal. A standard signal, since a queued real-time signal turns into SIGIO when the
/// queue is full. SIGSTKFLT is the one standard signal that Linux never sends and programs do not
/// use, so that gprof and ITIMER_PROF (SIGPROF) keep working.
pub const SIGNAL: libc::c_int = libc::SIGSTKFLT;

/// Returns the timer period for a requested one: a little shorter, so that samples do not
/// synchronise with a program that repeats at a multiple of the requested period.
fn detuned_period(period_ns: u64) -> u64 {
    period_ns - period_ns / 127
}

/// Returns the time between two kernel ticks in nanoseconds; 0 if unknown. CPU-time timers fire
/// only at ticks (run_posix_cpu_timers is called from the tick).
pub fn tick_ns() -> u64 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. The coarse clock moves with the tick.
    let status = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    if status == 0 { tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64 } else { 0 }
}

/// A thread's sampling timer: a perf event, a POSIX timer, or none; without a timer the thread is
/// observed through its regions only. The thread itself starts and stops the timer. Any thread may
/// silence the timer for good, or replace an event that the application has closed. All zeros: no
/// timer.
#[derive(Debug)]
pub struct Timer {
    /// Number of the descriptor or timer in the low 32 bits, kind from bit 32 on, [`FLAGS`] on top.
    what: AtomicU64,
    /// Kernel id of the thread.
    tid: AtomicI32,
    /// Address of the [`Suspension`] that has stopped the timer; 0: none has.
    suspension: AtomicU64,
    /// Time in nanoseconds that was left of the period when the timer was suspended.
    left_ns: AtomicU64,
}

/// Mark in the stack frame of a wrapped call that the thread's timer is stopped during the call.
#[derive(Debug)]
#[repr(transparent)]
pub struct Suspension(AtomicU64);

/// Value of a [`Suspension`] in effect.
const SUSPENDS: u64 = 0x91a7_5e6d_03c8_f24b;

impl Suspension {
    fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

/// The application has closed the thread's perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTimer;

const PERF: u64 = 1 << 32;
const POSIX: u64 = 2 << 32;
/// Flag: the timer is disabled for now.
const HELD: u64 = 1 << 62;
/// Flag: the timer is disabled for good.
const SILENT: u64 = 1 << 63;
const FLAGS: u64 = HELD | SILENT;

fn kind(timer: u64) -> u64 {
    timer & !FLAGS & !u64::from(u32::MAX)
}

impl Timer {
    /// Starts interrupting the calling thread (kernel id `tid`) every `period_ns`. Tries `wanted`
    /// first and returns the kind that was started.
    pub fn start(
        &self,
        wanted: ClockKind,
        period_ns: u64,
        tid: libc::pid_t,
        descriptors: &Descriptors,
    ) -> ClockKind {
        let period_ns = detuned_period(period_ns);
        self.tid.store(tid, Ordering::Relaxed);
        self.suspension.store(0, Ordering::Relaxed);
        if wanted == ClockKind::Cpu
            && let Some(descriptor) = perf_event(period_ns, tid, descriptors)
        {
            self.set(PERF | descriptor as u64, descriptors);
            return ClockKind::Cpu;
        }
        let (kind, clock) = match wanted {
            ClockKind::Wall => (ClockKind::Wall, libc::CLOCK_MONOTONIC),
            _ => (ClockKind::Timer, libc::CLOCK_THREAD_CPUTIME_ID),
        };
        if let Some(timer) = posix_timer(clock, tid) {
            set_timer(timer, period_ns, period_ns);
            self.set(POSIX | timer as u64, descriptors);
        }
        kind
    }

    fn tid(&self) -> libc::pid_t {
        self.tid.load(Ordering::Relaxed)
    }

    /// Stores the started timer, or closes it if the thread has been silenced meanwhile.
    fn set(&self, timer: u64, descriptors: &Descriptors) {
        if self.what.compare_exchange(0, timer, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let _ = close(timer, self.tid(), descriptors);
        }
    }

    /// Stops the timer for good. Only the thread itself may call this, while no other thread
    /// silences or replaces the timer.
    pub fn stop(&self, descriptors: &Descriptors) -> Result<(), LostTimer> {
        close(self.what.swap(0, Ordering::AcqRel), self.tid(), descriptors)
    }

    /// Disables the timer for good. Any thread may call this.
    pub fn silence(&self) {
        switch(self.what.fetch_or(SILENT, Ordering::AcqRel), self.tid(), 0);
    }

    /// Enables the timer, or disables it for now. Only the thread itself may call this.
    pub fn enable(&self, on: bool, period_ns: u64) {
        let timer = match on {
            true => self.what.fetch_and(!HELD, Ordering::AcqRel),
            false => self.what.fetch_or(HELD, Ordering::AcqRel),
        };
        if timer & SILENT == 0 {
            switch(timer, self.tid(), if on { detuned_period(period_ns) } else { 0 });
            if self.what.load(Ordering::Acquire) & SILENT != 0 {
                switch(timer, self.tid(), 0);
            }
        }
    }

    /// Stops a timer of wall time until [`Self::resume`]: a signal would end the call that the
    /// thread is about to make with EINTR, in spite of SA_RESTART (signal(7), "Interruption of
    /// system calls"). A call that a signal handler of the application makes inside such a call
    /// leaves the timer stopped, since the outer call may not have begun to wait.
    ///
    /// Only the thread itself may call this, with a suspension in the stack frame of the call.
    pub fn suspend(&self, suspension: &Suspension) {
        let timer = self.what.load(Ordering::Acquire);
        if kind(timer) != POSIX || timer & FLAGS != 0 {
            return;
        }
        // First the note, then the timer: a signal handler may run between the two.
        if !self.is_suspended_outside(suspension.address()) {
            suspension.0.store(SUSPENDS, Ordering::Relaxed);
            self.suspension.store(suspension.address(), Ordering::Relaxed);
        }
        match set_timer(timer as libc::c_int, 0, 0) {
            0 => {}
            left_ns => self.left_ns.store(left_ns, Ordering::Relaxed),
        }
    }

    /// Returns whether a call further out than the stack address `here` has suspended the timer. A
    /// jump out of a signal handler or a cancellation leaves a call without [`Self::resume`]; then
    /// later calls overwrite its suspension.
    fn is_suspended_outside(&self, here: u64) -> bool {
        let outer = self.suspension.load(Ordering::Relaxed);
        outer > here && StackMemory::at(outer, (0, 0)).read(outer) == Ok(SUSPENDS)
    }

    /// Continues the period of a timer that this suspension has stopped: time in the call does not
    /// count. Only the thread itself may call this.
    pub fn resume(&self, suspension: &Suspension, period_ns: u64) {
        if self.suspension.load(Ordering::Relaxed) != suspension.address() {
            return;
        }
        suspension.0.store(0, Ordering::Relaxed);
        self.suspension.store(0, Ordering::Relaxed);
        let timer = self.what.load(Ordering::Acquire);
        if kind(timer) == POSIX && timer & FLAGS == 0 {
            let period_ns = detuned_period(period_ns);
            let left_ns = self.left_ns.load(Ordering::Relaxed).clamp(1, period_ns);
            set_timer(timer as libc::c_int, left_ns, period_ns);
            if self.what.load(Ordering::Acquire) & FLAGS != 0 {
                set_timer(timer as libc::c_int, 0, 0);
            }
        }
    }

    /// Returns whether the application has closed the thread's perf event.
    pub fn is_lost(&self) -> bool {
        let timer = self.what.load(Ordering::Acquire);
        kind(timer) == PERF && !is_event_of(timer as libc::c_int, self.tid())
    }

    /// Replaces a lost perf event by a timer without a descriptor and returns whether that
    /// succeeded. Any thread may call this while the thread itself does not stop the timer.
    pub fn replace(&self, period_ns: u64) -> bool {
        let Some(number) = posix_timer(cpu_clock_of(self.tid()), self.tid()) else { return false };
        let timer = POSIX | number as u64;
        let in_place = |old: u64| (kind(old) == PERF).then_some(old & FLAGS | timer);
        if self.what.fetch_update(Ordering::AcqRel, Ordering::Acquire, in_place).is_err() {
            delete_timer(number);
            return false;
        }
        if self.what.load(Ordering::Acquire) & FLAGS == 0 {
            let period_ns = detuned_period(period_ns);
            set_timer(number, period_ns, period_ns);
            if self.what.load(Ordering::Acquire) & FLAGS != 0 {
                set_timer(number, 0, 0);
            }
        }
        true
    }
}

/// Sets a timer of the thread to `period_ns`, or disables the timer if that is 0.
fn switch(timer: u64, tid: libc::pid_t, period_ns: u64) {
    match kind(timer) {
        PERF => _ = enable(timer as libc::c_int, tid, period_ns != 0),
        POSIX => _ = set_timer(timer as libc::c_int, period_ns, period_ns),
        _ => {}
    }
}

fn close(timer: u64, tid: libc::pid_t, descriptors: &Descriptors) -> Result<(), LostTimer> {
    let number = timer as libc::c_int;
    match kind(timer) {
        PERF => {
            let is_ours = enable(number, tid, false);
            descriptors.release(number, is_ours);
            return if is_ours { Ok(()) } else { Err(LostTimer) };
        }
        POSIX => delete_timer(number),
        _ => {}
    }
    Ok(())
}

/// Enables or disables the event of a thread. Returns false if its number stands for something else
/// now.
fn enable(descriptor: libc::c_int, tid: libc::pid_t, on: bool) -> bool {
    if !is_event_of(descriptor, tid) {
        return false;
    }
    turn(descriptor, on);
    true
}

/// Enables or disables a perf event.
fn turn(descriptor: libc::c_int, on: bool) {
    // PERF_EVENT_IOC_ENABLE and _DISABLE of perf_event_open(2).
    let request: libc::c_ulong = if on { 0x2400 } else { 0x2401 };
    // SAFETY: the request takes no pointer.
    let _ = unsafe { syscall!(libc::SYS_ioctl, descriptor, request, 0) };
}

/// Returns whether a descriptor is the perf event of a thread of ours. All perf events have one
/// inode in common, but no other file sends our signal to that thread.
fn is_event_of(descriptor: libc::c_int, tid: libc::pid_t) -> bool {
    let mut owner = Owner { kind: -1, id: 0 };
    // SAFETY: fcntl(2) on any descriptor; the owner is valid for the call.
    unsafe {
        syscall!(libc::SYS_fcntl, descriptor, F_GETSIG) == Ok(SIGNAL as usize)
            && syscall!(libc::SYS_fcntl, descriptor, F_GETOWN_EX, &raw mut owner).is_ok()
            && owner.kind == F_OWNER_TID
            && owner.id == tid
    }
}

/// Returns the CPU clock of a thread (linux/posix-timers_types.h, CPUCLOCK_SCHED of one thread).
fn cpu_clock_of(tid: libc::pid_t) -> libc::clockid_t {
    !tid << 3 | 6
}

/// `struct f_owner_ex` and its constants, of fcntl(2).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}
const F_OWNER_TID: libc::c_int = 0;
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;

/// Opens an event that interrupts the calling thread, and enables it.
fn perf_event(period_ns: u64, tid: libc::pid_t, descriptors: &Descriptors) -> Option<libc::c_int> {
    let mut builder = perf_event::Builder::new().kind(Software::TASK_CLOCK);
    builder.sample_period(period_ns).wakeup_events(1).exclude_kernel(true).exclude_hv(true);
    // A refusal would leave EACCES in errno.
    let low = keep_errno(|| builder.build()).ok()?.into_raw_fd();
    let descriptor = descriptors.adopt(low)?;
    let owner = Owner { kind: F_OWNER_TID, id: tid };
    // SAFETY: fcntl on our descriptor; the owner outlives the call.
    let set_up = unsafe {
        syscall!(libc::SYS_fcntl, descriptor, F_SETOWN_EX, &raw const owner).is_ok()
            && syscall!(libc::SYS_fcntl, descriptor, F_SETSIG, SIGNAL).is_ok()
            && syscall!(libc::SYS_fcntl, descriptor, libc::F_SETFL, libc::O_ASYNC).is_ok()
    };
    if !set_up {
        descriptors.release(descriptor, true);
        return None;
    }
    turn(descriptor, true);
    Some(descriptor)
}

/// Creates an unarmed timer that sends the sampling signal to a thread.
fn posix_timer(clock: libc::clockid_t, tid: libc::pid_t) -> Option<libc::c_int> {
    // SAFETY: all-zero is a valid sigevent.
    let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = SIGNAL;
    event.sigev_notify_thread_id = tid;
    let mut timer: libc::c_int = 0;
    // SAFETY: the kernel fills in the timer's id. The raw call, since glibc's would allocate.
    let result = unsafe { syscall!(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer) };
    result.ok().map(|_| timer)
}

fn delete_timer(timer: libc::c_int) {
    // SAFETY: the timer is ours.
    let _ = unsafe { syscall!(libc::SYS_timer_delete, timer) };
}

/// Sets a timer to expire after `first_ns` and then every `period_ns`, or stops the timer if
/// `first_ns` is 0. Returns the time in nanoseconds that was left until the timer's next expiry; 0
/// if the timer was stopped, or is none of this process.
fn set_timer(timer: libc::c_int, first_ns: u64, period_ns: u64) -> u64 {
    let in_parts = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    let setting =
        libc::itimerspec { it_interval: in_parts(period_ns), it_value: in_parts(first_ns) };
    let mut before = libc::itimerspec { it_interval: in_parts(0), it_value: in_parts(0) };
    // SAFETY: both settings outlive the call.
    let result =
        unsafe { syscall!(libc::SYS_timer_settime, timer, 0, &raw const setting, &raw mut before) };
    let left = before.it_value;
    result.map_or(0, |_| left.tv_sec as u64 * 1_000_000_000 + left.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than the test: an interruption would end it.
    const PERIOD_NS: u64 = 100_000_000_000;

    fn no_timer() -> Timer {
        // SAFETY: all zeros: no timer.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn an_event_with_a_reused_number_is_replaced_and_left_alone() {
        let descriptors = Descriptors::new();
        let timer = no_timer();
        // SAFETY: no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        if timer.start(ClockKind::Cpu, PERIOD_NS, tid, &descriptors) != ClockKind::Cpu {
            println!("SKIPPED: perf events are refused here");
            return assert_eq!(timer.stop(&descriptors), Ok(()));
        }
        let number = timer.what.load(Ordering::Relaxed) as libc::c_int;
        assert!(!timer.is_lost());
        // The event of another thread is not this one's.
        assert!(!is_event_of(number, tid + 1));
        // SAFETY: a C string; what is open under the number is closed.
        unsafe {
            let file = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            assert_eq!(libc::dup2(file, number), number);
            libc::close(file);
        }
        assert!(timer.is_lost());
        timer.enable(false, PERIOD_NS);
        assert!(timer.replace(PERIOD_NS));
        assert!(!timer.is_lost());
        // The thread holds its interruptions back: the timer is not armed.
        assert_eq!(left_s(&timer), 0);
        timer.enable(true, PERIOD_NS);
        assert!(left_s(&timer) > 0);
        assert_eq!(timer.stop(&descriptors), Ok(()));
        // SAFETY: closes what this function has opened.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was not ours to close");
    }

    /// Returns the time until the timer's next expiry in seconds.
    fn left_s(timer: &Timer) -> i64 {
        let number = timer.what.load(Ordering::Relaxed) as libc::c_int;
        // SAFETY: zeros are a setting; the pointer is valid for the call.
        unsafe {
            let mut now: libc::itimerspec = core::mem::zeroed();
            assert_eq!(libc::syscall(libc::SYS_timer_gettime, number, &raw mut now), 0);
            now.it_value.tv_sec
        }
    }

    #[test]
    fn wall_time_stands_still_in_a_call_and_in_calls_of_handlers_inside() {
        let (descriptors, timer) = (Descriptors::new(), no_timer());
        // SAFETY: no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        assert_eq!(timer.start(ClockKind::Wall, PERIOD_NS, tid, &descriptors), ClockKind::Wall);
        // Stacks grow downwards: the last is the outermost call.
        let [inner, call, outer] = &[const { Suspension(AtomicU64::new(0)) }; 3];
        timer.suspend(call);
        timer.suspend(inner);
        assert_eq!(left_s(&timer), 0);
        timer.resume(inner, PERIOD_NS);
        assert_eq!(left_s(&timer), 0, "the outer call may not have begun to wait");
        timer.resume(call, PERIOD_NS);
        let left_before_s = left_s(&timer);
        assert!(left_before_s > 90, "what was left of the period goes on: {left_before_s} s");

        // The call is left by a jump: the next one further out is no part of it.
        timer.suspend(call);
        timer.suspend(outer);
        timer.resume(outer, PERIOD_NS);
        assert!(left_s(&timer) > 0);
        // Or its frame is overwritten.
        timer.suspend(call);
        call.0.store(0, Ordering::Relaxed);
        timer.suspend(inner);
        timer.resume(inner, PERIOD_NS);
        assert!(left_s(&timer) > 0);

        // A timer that is held back or silent stays so.
        timer.suspend(call);
        timer.silence();
        timer.resume(call, PERIOD_NS);
        assert_eq!(left_s(&timer), 0);
        assert_eq!(timer.stop(&descriptors), Ok(()));
    }

    #[test]
    fn a_refused_event_leaves_errno_alone() {
        let refused = || {
            refuse_perf_events();
            let timer = no_timer();
            // SAFETY: no preconditions; errno's location is valid.
            let tid = unsafe {
                *libc::__errno_location() = 4711;
                libc::syscall(libc::SYS_gettid) as libc::pid_t
            };
            let descriptors = Descriptors::new();
            let clock = timer.start(ClockKind::Cpu, PERIOD_NS, tid, &descriptors);
            // SAFETY: as above.
            let errno = unsafe { *libc::__errno_location() };
            assert_eq!(timer.stop(&descriptors), Ok(()));
            (clock, errno)
        };
        let thread = std::thread::spawn(refused);
        assert_eq!(thread.join().expect("it does not panic"), (ClockKind::Timer, 4711));
    }

    /// Sets a filter of the calling thread's system calls (seccomp(2)).
    fn refuse_perf_events() {
        let instruction = |code, value, jump_else| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: jump_else,
            k: value,
        };
        let mut filter = [
            // The number of the system call is the first word of `struct seccomp_data`.
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            instruction(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_perf_event_open as u32,
                1,
            ),
            instruction(
                libc::BPF_RET | libc::BPF_K,
                libc::SECCOMP_RET_ERRNO | libc::EACCES as u32,
                0,
            ),
            instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program is valid for the call.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    #[test]
    fn a_tick_is_that_of_the_kernel() {
        // CONFIG_HZ is between 100 and 1000.
        let tick_ns = tick_ns();
        assert!((1_000_000..=10_000_000).contains(&tick_ns), "{tick_ns} ns");
    }
}
