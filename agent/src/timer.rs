//! What interrupts a thread: a perf event on its CPU time, or a POSIX timer.
//!
//! perf's task-clock with `exclude_kernel` never interrupts a blocked call and keeps its rate; a
//! CLOCK_THREAD_CPUTIME_ID timer is the fallback where perf_event_open is refused (it never fires
//! faster than CONFIG_HZ); CLOCK_MONOTONIC is for those who ask for wall time.

use std::os::fd::IntoRawFd;

use perf_event::events::Software;

use crate::descriptors::Descriptors;
use crate::segment::ClockKind;

/// The sampling signal. A standard signal, since a queued real-time one turns into SIGIO when the
/// queue is full; the one standard signal that Linux never sends and programs do not use, so that
/// gprof and ITIMER_PROF (SIGPROF) work on beside us.
pub const SIGNAL: libc::c_int = libc::SIGSTKFLT;

/// The period that is set for an asked one: a little shorter, so that the samples do not keep step
/// with a program whose rhythm is a multiple of the asked period.
fn off_beat(period_ns: u64) -> u64 {
    period_ns - period_ns / 127
}

/// How /proc names a perf event's descriptor.
const PERF_DESCRIPTOR: &[u8] = b"perf_event";

/// A running timer.
#[derive(Debug)]
pub enum Timer {
    /// None: the thread is observed through its regions only.
    None,
    /// A perf event.
    Perf(libc::c_int),
    /// A POSIX timer of the kernel.
    Posix(libc::c_int),
}

impl Timer {
    /// Starts interrupting the calling thread (kernel id `tid`) every `period_ns`. `wanted` is
    /// tried first; what was started is returned too.
    pub fn start(
        wanted: ClockKind,
        period_ns: u64,
        tid: libc::pid_t,
        descriptors: &Descriptors,
    ) -> (Self, ClockKind) {
        let period_ns = off_beat(period_ns);
        if wanted == ClockKind::Cpu
            && let Some(descriptor) = perf_event(period_ns, tid, descriptors)
        {
            return (Self::Perf(descriptor), ClockKind::Cpu);
        }
        let (kind, clock) = match wanted {
            ClockKind::Wall => (ClockKind::Wall, libc::CLOCK_MONOTONIC),
            _ => (ClockKind::Timer, libc::CLOCK_THREAD_CPUTIME_ID),
        };
        (posix_timer(clock, period_ns, tid).map_or(Self::None, Self::Posix), kind)
    }

    /// Stops interrupting, for good. To be called by the thread itself.
    pub fn stop(&mut self, descriptors: &Descriptors) {
        match core::mem::replace(self, Self::None) {
            Self::None => {}
            Self::Perf(descriptor) => {
                enable(descriptor, false);
                descriptors.release(descriptor, PERF_DESCRIPTOR);
            }
            Self::Posix(timer) => {
                // SAFETY: the timer is ours.
                unsafe { libc::syscall(libc::SYS_timer_delete, timer) };
            }
        }
    }

    /// Holds the interruptions back, or lets them go on.
    pub fn enable(&self, on: bool, period_ns: u64) {
        match self {
            Self::None => {}
            Self::Perf(descriptor) => enable(*descriptor, on),
            Self::Posix(timer) => set_timer(*timer, if on { off_beat(period_ns) } else { 0 }),
        }
    }
}

fn enable(descriptor: libc::c_int, on: bool) {
    // PERF_EVENT_IOC_ENABLE and _DISABLE of perf_event_open(2).
    let request: libc::c_ulong = if on { 0x2400 } else { 0x2401 };
    // SAFETY: the request takes no pointer.
    unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, 0) };
}

/// `struct f_owner_ex` and its constants, of fcntl(2).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}
const F_OWNER_TID: libc::c_int = 0;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

fn perf_event(period_ns: u64, tid: libc::pid_t, descriptors: &Descriptors) -> Option<libc::c_int> {
    let mut builder = perf_event::Builder::new().kind(Software::TASK_CLOCK);
    builder.sample_period(period_ns).wakeup_events(1).exclude_kernel(true).exclude_hv(true);
    let low = builder.build().ok()?.into_raw_fd();
    let descriptor = descriptors.adopt(low)?;
    let owner = Owner { kind: F_OWNER_TID, id: tid };
    // SAFETY: fcntl on our descriptor; the owner outlives the call.
    let set_up = unsafe {
        libc::syscall(libc::SYS_fcntl, descriptor, F_SETOWN_EX, &raw const owner) == 0
            && libc::syscall(libc::SYS_fcntl, descriptor, F_SETSIG, SIGNAL) == 0
            && libc::syscall(libc::SYS_fcntl, descriptor, libc::F_SETFL, libc::O_ASYNC) == 0
    };
    if !set_up {
        descriptors.release(descriptor, PERF_DESCRIPTOR);
        return None;
    }
    enable(descriptor, true);
    Some(descriptor)
}

fn posix_timer(clock: libc::clockid_t, period_ns: u64, tid: libc::pid_t) -> Option<libc::c_int> {
    // SAFETY: all-zero is a valid sigevent.
    let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = SIGNAL;
    event.sigev_notify_thread_id = tid;
    let mut timer: libc::c_int = 0;
    // SAFETY: the kernel fills in the timer's id. The raw call, since glibc's would allocate.
    let result =
        unsafe { libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer) };
    if result != 0 {
        return None;
    }
    set_timer(timer, period_ns);
    Some(timer)
}

fn set_timer(timer: libc::c_int, period_ns: u64) {
    let period = libc::timespec {
        tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
    };
    let setting = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: the setting outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_timer_settime,
            timer,
            0,
            &raw const setting,
            core::ptr::null::<u8>(),
        )
    };
}
