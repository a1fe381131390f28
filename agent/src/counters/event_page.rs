//! The page of a hardware event that the kernel shares with the process, and the processor's
//! counter behind it: read without a system call (perf_event_open(2), "MMAP layout";
//! `struct perf_event_mmap_page` in linux/perf_event.h).
//!
//! The kernel changes the page whenever it moves the event to a counter or away, and increments
//! `lock` before and after. A reader takes the fields between two equal values of `lock`, and adds
//! the processor's counter to `offset`. Only the counted thread reads its page, and the kernel
//! writes it on that thread's core, so that compiler fences order the accesses.

use core::arch::{asm, x86_64::_rdtsc};
use core::sync::atomic::{Ordering, compiler_fence};
use std::ffi::c_int;
use std::ptr::NonNull;

use perf_event_open_sys::bindings::perf_event_mmap_page as Page;

use plimsoll_sys::mapping;
use plimsoll_sys::syscalls::syscall;

/// Size of the mapping: the page itself, without a buffer of samples behind it.
const PAGE_BYTES: usize = 4096;

/// Maximum number of attempts at a page that changes. The kernel changes the page at most a few
/// times in a row; a page that never settles is read by read(2) instead.
const MAX_ATTEMPTS: u32 = 16;

/// Bits of `capabilities` (linux/perf_event.h).
const BIT_0_IS_DEPRECATED: u64 = 1 << 1;
const USER_RDPMC: u64 = 1 << 2;
const USER_TIME: u64 = 1 << 3;
const USER_TIME_SHORT: u64 = 1 << 5;

/// The mapped page of an event.
#[derive(Clone, Copy)]
pub(super) struct EventPage(NonNull<Page>);

/// State of an event, as the page and the processor's counter tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageReading {
    /// Number of events.
    pub(super) value: u64,
    /// Time that the event was enabled, in nanoseconds.
    pub(super) enabled_ns: u64,
    /// Time that the event had a counter, in nanoseconds.
    pub(super) running_ns: u64,
}

impl EventPage {
    /// Maps the page of an open event; `None` if the kernel refuses, for example because the user's
    /// share of locked memory is used up.
    pub(super) fn map(number: c_int) -> Option<Self> {
        let (anywhere, offset) = (0usize, 0usize);
        // SAFETY: a fresh mapping, which is only read.
        let mapped = unsafe {
            syscall!(
                libc::SYS_mmap,
                anywhere,
                PAGE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                number,
                offset,
            )
        };
        NonNull::new(mapped.ok()? as *mut Page).map(Self)
    }

    /// Unmaps the page, which must not be read any more.
    pub(super) fn unmap(self) {
        // SAFETY: the mapping of `map`; its owner has stopped reading.
        unsafe { mapping::unmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }

    /// Reads the event of the calling thread; `None` if read(2) is needed: the kernel does not
    /// allow rdpmc, the event has no counter now, or the times of multiplexing are not in the page.
    /// Async-signal-safe.
    #[inline]
    pub(super) fn read(self) -> Option<PageReading> {
        // SAFETY: the page is mapped. The page allows rdpmc when `rdpmc` is called.
        unsafe { read_from(self.0.as_ptr(), |counter| rdpmc(counter), || _rdtsc()) }
    }
}

/// Reads a counter of the processor.
///
/// # Safety
/// The kernel allows user code to read this counter (cap_user_rdpmc).
#[inline]
unsafe fn rdpmc(counter: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes only the two registers; allowed as the caller promises.
    unsafe {
        asm!(
            "rdpmc",
            in("ecx") counter,
            out("eax") low,
            out("edx") high,
            options(nomem, nostack, preserves_flags),
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Reads an event from its page, its counter by `rdpmc` and the time stamp counter by `rdtsc`.
///
/// # Safety
/// `page` is readable. Only the kernel, or a function passed, changes it meanwhile.
unsafe fn read_from(
    page: *const Page,
    mut rdpmc: impl FnMut(u32) -> u64,
    mut rdtsc: impl FnMut() -> u64,
) -> Option<PageReading> {
    /// Reads a field that the kernel may be changing.
    macro_rules! field {
        ($($name:ident).+) => {
            // SAFETY: the page is readable, as the caller promises.
            unsafe { (&raw const (*page).$($name).+).read_volatile() }
        };
    }
    for _ in 0..MAX_ATTEMPTS {
        let lock = field!(lock);
        compiler_fence(Ordering::SeqCst);
        let capabilities = field!(__bindgen_anon_1.capabilities);
        let (mut enabled_ns, mut running_ns) = (field!(time_enabled), field!(time_running));
        let has_time = capabilities & USER_TIME != 0;
        let clock = PageClock {
            shift: field!(time_shift),
            mult: field!(time_mult),
            offset: field!(time_offset),
            cycles: field!(time_cycles),
            mask: if capabilities & USER_TIME_SHORT != 0 { field!(time_mask) } else { u64::MAX },
        };
        let stamp = if has_time { rdtsc() } else { 0 };
        let (index, offset, width) = (field!(index), field!(offset), field!(pmc_width));
        let readable = capabilities & BIT_0_IS_DEPRECATED != 0
            && capabilities & USER_RDPMC != 0
            && (1..=64).contains(&width);
        let counter = index.checked_sub(1).filter(|_| readable).map(&mut rdpmc);
        compiler_fence(Ordering::SeqCst);
        if field!(lock) != lock || lock & 1 != 0 {
            continue;
        }
        let counter = counter?;
        // The counter is `width` bits wide and signed.
        let unused = 64 - u32::from(width);
        let counter = (counter << unused).cast_signed() >> unused;
        if has_time {
            let since_ns = clock.since_update_ns(stamp)?;
            enabled_ns = enabled_ns.wrapping_add(since_ns);
            running_ns = running_ns.wrapping_add(since_ns);
        } else if enabled_ns != running_ns {
            return None;
        }
        let value = offset.wrapping_add(counter).cast_unsigned();
        return Some(PageReading { value, enabled_ns, running_ns });
    }
    None
}

/// Conversion of time stamps to the time since the page's last change.
#[derive(Clone, Copy, Debug)]
struct PageClock {
    shift: u16,
    mult: u32,
    offset: u64,
    cycles: u64,
    mask: u64,
}

impl PageClock {
    /// Returns the time since the last change of the page in nanoseconds, from a time stamp;
    /// `None` if the page's shift is no shift of 64 bits.
    fn since_update_ns(&self, stamp: u64) -> Option<u64> {
        let cycles = self.cycles.wrapping_add(stamp.wrapping_sub(self.cycles) & self.mask);
        let whole = cycles.checked_shr(self.shift.into())?;
        let rest = cycles & !(u64::MAX << self.shift);
        let mult = u64::from(self.mult);
        let rest_ns = rest.wrapping_mul(mult) >> self.shift;
        Some(self.offset.wrapping_add(whole.wrapping_mul(mult)).wrapping_add(rest_ns))
    }
}

#[cfg(test)]
mod tests;
