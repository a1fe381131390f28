//! Segment of the observed process: created at its start, mapped part by part.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::StartError;
use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::mapping;
use plimsoll_sys::own::Known;
use plimsoll_sys::quiet::quietly;
use plimsoll_sys::syscalls::syscall;
use plimsoll_wire::segment::{
    MAX_THREADS, Process, THREADS_OFFSET, ThreadArea, areas_in, ring_bytes_for, thread_area_bytes,
    thread_offset,
};

/// Memory file of this process. Header and tables stay mapped until the process ends.
pub(super) struct Shared {
    start: *mut u8,
    /// Descriptor of the file. If the application closes it, [`mapping::shared_again`] maps without
    /// it.
    descriptor: Known,
    ring_bytes: usize,
    areas: usize,
    /// Thread areas that were used: they stay mapped, since mapping one takes longer than creating
    /// a thread does.
    mapped: [AtomicPtr<ThreadArea>; MAX_THREADS],
}

impl Shared {
    /// Creates a segment with the thread areas that fit the limit on the size of files: a larger
    /// file would raise SIGXFSZ.
    pub(super) fn new(period_ns: u64, descriptors: &Descriptors) -> Result<Self, StartError> {
        check_address_space()?;
        let ring_bytes = ring_bytes_for(period_ns);
        let areas = areas_in(limit(libc::RLIMIT_FSIZE), ring_bytes);
        if areas == 0 {
            return Err(StartError::FileSize(thread_offset(1, ring_bytes)));
        }
        let size = thread_offset(areas, ring_bytes);
        // SAFETY: a C string; the calls check their arguments.
        let descriptor = unsafe {
            let name = c"plimsoll".as_ptr();
            let low = syscall!(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC);
            let low = low.map_err(StartError::Segment)?;
            let high = descriptors.adopt(low as c_int).ok_or(StartError::Descriptors)?;
            // Another thread may lower the limit meanwhile; that must raise no signal either.
            quietly(|| syscall!(libc::SYS_ftruncate, high, size)).map_err(StartError::Segment)?;
            Known::new(high).ok_or(StartError::Descriptors)?
        };
        let start = mapping::shared(descriptor.number(), 0, THREADS_OFFSET);
        if start.is_null() {
            return Err(StartError::Segment(super::errno()));
        }
        keep_private(start, THREADS_OFFSET);
        let mapped = [const { AtomicPtr::new(null_mut()) }; MAX_THREADS];
        let shared = Self { start, descriptor, ring_bytes, areas, mapped };
        let header = shared.header();
        header.device.store(descriptor.identity().device, Ordering::Relaxed);
        header.inode.store(descriptor.identity().inode, Ordering::Relaxed);
        Ok(shared)
    }

    /// Returns the header.
    pub(super) fn header(&self) -> &Process {
        // SAFETY: the mapping is at least as long as the header and never unmapped; all fields are
        // atomics.
        unsafe { &*self.start.cast::<Process>() }
    }

    /// Returns the start of header and tables, [`THREADS_OFFSET`] bytes.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the number of the segment's file descriptor.
    pub(super) fn number(&self) -> c_int {
        self.descriptor.number()
    }

    /// Returns the size of each thread's ring in bytes.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Returns the number of thread areas.
    pub(super) fn areas(&self) -> usize {
        self.areas
    }

    /// Returns the size of the segment in bytes.
    pub(super) fn size(&self) -> usize {
        thread_offset(self.areas, self.ring_bytes)
    }

    /// Maps a range of the segment once more; `None` on failure.
    pub(super) fn map(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let memory = match self.descriptor.get() {
            Some(descriptor) => mapping::shared(descriptor, offset, bytes),
            // SAFETY: the mapping begins where the file does, and parts begin with a page.
            None => unsafe { mapping::shared_again(self.start, offset, bytes) },
        };
        if memory.is_null() {
            return None;
        }
        keep_private(memory, bytes);
        Some(memory)
    }

    /// Returns a thread area, mapped on first use. Callers must serialise their calls.
    pub(super) fn area(&self, index: usize) -> Option<*const ThreadArea> {
        let mapped = self.mapped[index].load(Ordering::Acquire);
        if !mapped.is_null() {
            return Some(mapped);
        }
        let offset = thread_offset(index, self.ring_bytes);
        let memory = self.map(offset, thread_area_bytes(self.ring_bytes))?.cast::<ThreadArea>();
        self.mapped[index].store(memory, Ordering::Release);
        Some(memory)
    }
}

/// Keeps forked children from inheriting the mapping, and core files from containing it: all of a
/// sparse file would become resident for them.
fn keep_private(memory: *mut u8, bytes: usize) {
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: the mapping was just made.
        unsafe { mapping::advise(memory, bytes, advice) };
    }
}

/// Address space, in bytes, that must be left where it is limited. The measurement takes about a
/// third of it in a small program. A small program takes the rest: up to 200 MiB in MPI_Init, and
/// without memory neither it nor the measurement could go on.
const MIN_ADDRESS_SPACE: u64 = 320 << 20;

/// Refuses to observe where the limit on the address space (RLIMIT_AS) leaves too little of it.
fn check_address_space() -> Result<(), StartError> {
    let limit = limit(libc::RLIMIT_AS);
    if limit == libc::RLIM_INFINITY {
        return Ok(());
    }
    let needed = size_of_process().saturating_add(MIN_ADDRESS_SPACE);
    if limit < needed { Err(StartError::AddressSpace(needed)) } else { Ok(()) }
}

/// Returns the bytes of address space in use (proc_pid_statm(5)); 0 if that cannot be read.
fn size_of_process() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Returns the soft resource limit of this kind.
fn limit(kind: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrlimit(kind, &mut limit) };
    limit.rlim_cur
}
