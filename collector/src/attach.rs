//! Mapping of the shared segment of one process; the only module that accesses its memory.
//!
//! The content is hostile: every value read from it is a number to be checked; no count, index or
//! length is trusted. The file itself is trusted once it is known to be the segment that its header
//! describes: its size is checked once, and its writers never shrink it.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::partner_table;
use plimsoll_sys::mapping::{resident, shared_again};
use plimsoll_sys::own::{Identity, Own};
use plimsoll_wire::doorbell::Doorbell;
use plimsoll_wire::lock_waits::{LockWaitCounters, MAX_LOCK_WAITS};
use plimsoll_wire::record::VERSION;
use plimsoll_wire::segment::{
    ADDRESSES_OFFSET, Address, MAGIC, MAX_ADDRESSES, MAX_MODULES, MAX_PARTNERS, MAX_PATH,
    MAX_SCRIPT_FUNCTIONS, MAX_SLOTS, MODULES_OFFSET, ModuleEntry, PartnerCounters, Process,
    SCRIPTS_OFFSET, ScriptFunction, SlotCounters, THREADS_OFFSET, Thread, ThreadArea, ThreadState,
    areas_in, thread_area_bytes, thread_offset,
};
use plimsoll_wire::teams::{MAX_REGIONS, MAX_TASKS, RegionCounters, TaskCounters};

use crate::tables::{ModuleInfo, ScriptInfo, Tables};

/// Largest ring that is mapped, in bytes.
const MAX_RING_BYTES: usize = 1 << 30;
/// Bytes of a ring that stay in memory for the next thread.
const KEPT_RING_BYTES: usize = 4096;

/// Reason for which a process's segment was not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The descriptor could not be opened, or its memory could not be mapped.
    #[error("the process's samples cannot be reached ({0}); let each process collect itself")]
    Unreachable(#[source] io::Error),
    /// The file is not a segment of this library, or is not ready: the process may have closed the
    /// descriptor and opened a file of its own.
    #[error("the descriptor holds no samples of this library")]
    NotASegment,
    /// The segment was written by another version of the library.
    #[error(
        "the process carries format {0} of the library, this is format {VERSION}; preload the same \
         library in all ranks"
    )]
    OtherVersion(u32),
    /// The process id or start time belongs to another process: the descriptor was reused.
    #[error("the samples belong to another process")]
    OtherProcess,
    /// The sizes in the segment contradict each other.
    #[error("the sizes in the process's samples contradict each other")]
    WrongSize,
    /// This collector already reads the process.
    #[error("the process is already collected here")]
    AlreadyAttached,
}

/// Shared mapping, unmapped when dropped.
struct Mapping {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping is shared memory; everything in it that another thread or process changes is
// accessed through atomics, and ring bytes only between the published head and our own tail.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, offset: usize, length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), length }.undumped())
    }

    /// Keeps core files from containing the mapping: all of a sparse file would become resident.
    fn undumped(self) -> Self {
        // SAFETY: the mapping is our own, and its content does not change.
        unsafe { libc::madvise(self.start.cast(), self.length, libc::MADV_DONTDUMP) };
        self
    }

    /// Maps another range of the file; `self` must be a mapping of its beginning.
    fn part(&self, offset: usize, length: usize) -> io::Result<Self> {
        // SAFETY: `self` maps the file from its beginning, see above; `offset` is page aligned.
        let start = unsafe { shared_again(self.start, offset, length) };
        if start.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, length }.undumped())
    }

    /// Returns the number of bytes of the mapping that are resident in memory.
    fn resident_bytes(&self) -> u64 {
        resident(self.start, self.length)
    }

    /// Returns the header of a segment; the mapping must begin at it.
    fn process(&self) -> &Process {
        // SAFETY: the mapping is page aligned, longer than the header, and lives as long as
        // `self`; all fields are atomics, for which any bytes are valid.
        unsafe { &*self.start.cast::<Process>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range belongs to `self` alone, and every reference into it borrows `self`.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Header and tables of one process's segment.
pub(crate) struct Segment {
    /// Segment file; `None` for this process's own segment. If the application closes the
    /// descriptor, areas are mapped through `tables`.
    file: Option<Own<File>>,
    tables: Arc<Mapping>,
    ring_bytes: usize,
    /// Number of thread areas that fit into the file.
    areas: usize,
}

impl Segment {
    /// Opens descriptor `fd` of process `pid`, which started at `start_time` (field 22 of
    /// /proc/pid/stat). The segment of this process itself is found even if the descriptor is
    /// closed.
    pub(crate) fn open(pid: u32, fd: i32, start_time: u64) -> Result<Self, AttachError> {
        match Self::own(pid, fd, start_time) {
            Some(own) => Ok(own),
            None => Self::of_descriptor(pid, fd, start_time),
        }
    }

    fn of_descriptor(pid: u32, fd: i32, start_time: u64) -> Result<Self, AttachError> {
        let path = format!("/proc/{pid}/fd/{fd}");
        // The file is checked before it is opened: opening a device or a pipe of the program may
        // have side effects.
        let seen = std::fs::metadata(&path).map_err(AttachError::Unreachable)?;
        if !seen.is_file() || seen.size() < THREADS_OFFSET as u64 {
            return Err(AttachError::NotASegment);
        }
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(AttachError::Unreachable)?;
        let file = Own::hidden(file).map_err(AttachError::Unreachable)?;
        if !is_segment(&file) {
            return Err(AttachError::NotASegment);
        }
        let (size, tables) = file
            .get()
            .and_then(|file| Ok((file.metadata()?.size(), Mapping::new(file, 0, THREADS_OFFSET)?)))
            .map_err(AttachError::Unreachable)?;
        let segment = Self { file: Some(file), tables: Arc::new(tables), ring_bytes: 0, areas: 0 };
        segment.checked(pid, start_time, size)
    }

    /// Returns the segment of this process, through its own mapping; `None` if `pid` and `fd` are
    /// not this process's.
    fn own(pid: u32, fd: i32, start_time: u64) -> Option<Self> {
        let is_it =
            |observed: &&'static Observed| pid == std::process::id() && observed.descriptor() == fd;
        let observed = observed_process::current().filter(is_it)?;
        let start = observed.map_segment(0, THREADS_OFFSET)?;
        let tables = Arc::new(Mapping { start, length: THREADS_OFFSET });
        let segment = Self { file: None, tables, ring_bytes: 0, areas: 0 };
        segment.checked(pid, start_time, observed.segment_bytes() as u64).ok()
    }

    /// Returns the segment if its header identifies the process, is complete and has this version.
    fn checked(mut self, pid: u32, start_time: u64, size: u64) -> Result<Self, AttachError> {
        let header = self.process();
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(AttachError::NotASegment);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(AttachError::OtherVersion(version));
        }
        if header.pid.load(Ordering::Relaxed) != pid
            || header.start_time.load(Ordering::Relaxed) != start_time
        {
            return Err(AttachError::OtherProcess);
        }
        let ring_bytes = header.ring_bytes.load(Ordering::Relaxed) as usize;
        if !ring_bytes.is_power_of_two() || !(4096..=MAX_RING_BYTES).contains(&ring_bytes) {
            return Err(AttachError::WrongSize);
        }
        self.ring_bytes = ring_bytes;
        self.areas = areas_in(size, ring_bytes);
        if self.areas == 0 { Err(AttachError::WrongSize) } else { Ok(self) }
    }

    /// Returns the header.
    pub(crate) fn process(&self) -> &Process {
        self.tables.process()
    }

    /// Returns the number of bytes of header and tables that are resident in memory.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.resident_bytes()
    }

    /// Returns the number of the collector's own descriptor of the segment.
    #[cfg(test)]
    pub(crate) fn number(&self) -> Option<i32> {
        Some(self.file.as_ref()?.get().ok()?.as_raw_fd())
    }

    /// Returns the doorbell of the process.
    pub(crate) fn bell(&self) -> Bell {
        Bell { tables: self.tables.clone() }
    }

    /// Maps the area of thread `index`.
    pub(crate) fn area(&self, index: usize) -> io::Result<Area> {
        // Accessing memory beyond the end of the file would raise SIGBUS.
        if index >= self.areas {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let offset = thread_offset(index, self.ring_bytes);
        let length = thread_area_bytes(self.ring_bytes);
        let file = self.file.as_ref().and_then(|file| file.get().ok());
        let mapping = match file {
            Some(file) => Mapping::new(file, offset, length)?,
            None => self.tables.part(offset, length)?,
        };
        Ok(Area { mapping: Arc::new(mapping), ring_bytes: self.ring_bytes })
    }
}

/// Returns whether the header of a file names this very file (device and inode), so that the file
/// is a segment and not a copy of one. Uses reads only, so that no file of the program is mapped.
fn is_segment(file: &Own<File>) -> bool {
    let number = |offset: usize| {
        let mut bytes = [0; 8];
        file.get()?.read_exact_at(&mut bytes, offset as u64)?;
        io::Result::Ok(u64::from_ne_bytes(bytes))
    };
    let says = [offset_of!(Process, device), offset_of!(Process, inode)].map(number);
    let Identity { device, inode, .. } = file.identity();
    matches!(says, [Ok(said), Ok(also)] if (said, also) == (device, inode))
}

/// Doorbell of a process; remains valid after its segment was released.
pub(crate) struct Bell {
    tables: Arc<Mapping>,
}

impl std::ops::Deref for Bell {
    type Target = Doorbell;

    fn deref(&self) -> &Doorbell {
        &self.tables.process().bell
    }
}

impl Tables for Segment {
    fn address(&self, id: u32) -> Option<(u64, u32, u32)> {
        let index = id as usize;
        if index == 0 || index >= MAX_ADDRESSES {
            return None;
        }
        // SAFETY: the table of MAX_ADDRESSES atomics lies within the mapping, aligned by its
        // offset; the index was checked.
        let entry =
            unsafe { &*self.tables.start.add(ADDRESSES_OFFSET).cast::<Address>().add(index) };
        let value = entry.value.load(Ordering::Acquire);
        (value != 0).then(|| {
            (value, entry.module.load(Ordering::Relaxed), entry.flags.load(Ordering::Relaxed))
        })
    }

    fn modules(&self) -> usize {
        (self.process().modules.load(Ordering::Acquire) as usize).min(MAX_MODULES)
    }

    fn module(&self, index: usize) -> Option<ModuleInfo> {
        if index >= MAX_MODULES {
            return None;
        }
        // SAFETY: the table of MAX_MODULES entries of atomics lies within the mapping, aligned by
        // its offset; the index was checked.
        let entry =
            unsafe { &*self.tables.start.add(MODULES_OFFSET).cast::<ModuleEntry>().add(index) };
        let path_bytes = (entry.path_bytes.load(Ordering::Acquire) as usize).min(MAX_PATH);
        let build_id_bytes = (entry.build_id_bytes.load(Ordering::Acquire) as usize).min(20);
        Some(ModuleInfo {
            bias: entry.bias.load(Ordering::Relaxed),
            build_id: copied(&entry.build_id[..build_id_bytes]),
            path: copied(&entry.path[..path_bytes]),
        })
    }

    fn script_function(&self, index: usize) -> Option<ScriptInfo> {
        if index >= MAX_SCRIPT_FUNCTIONS {
            return None;
        }
        // SAFETY: the table of MAX_SCRIPT_FUNCTIONS entries of atomics lies within the mapping,
        // aligned by its offset; the index was checked.
        let entry =
            unsafe { &*self.tables.start.add(SCRIPTS_OFFSET).cast::<ScriptFunction>().add(index) };
        let text = |room: &[AtomicU8], bytes: &AtomicU32| {
            let bytes = (bytes.load(Ordering::Acquire) as usize).min(room.len());
            String::from_utf8_lossy(&copied(&room[..bytes])).into_owned()
        };
        Some(ScriptInfo {
            file: text(&entry.file, &entry.file_bytes),
            name: text(&entry.name, &entry.name_bytes),
            line: entry.line.load(Ordering::Relaxed),
        })
    }
}

fn copied(bytes: &[AtomicU8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Mapped area of one thread.
#[derive(Clone)]
pub(crate) struct Area {
    mapping: Arc<Mapping>,
    ring_bytes: usize,
}

impl Area {
    fn layout(&self) -> &ThreadArea {
        // SAFETY: the mapping is page aligned, holds a ThreadArea and the ring behind it, and
        // lives as long as `self`; all fields are atomics, for which any bytes are valid.
        unsafe { &*self.mapping.start.cast::<ThreadArea>() }
    }

    /// Returns the number of bytes of counters and ring that are resident in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.mapping.resident_bytes()
    }

    /// Returns the counters and state of the thread.
    pub(crate) fn thread(&self) -> &Thread {
        &self.layout().thread
    }

    /// Returns the counters of the region table.
    pub(crate) fn slots(&self) -> &[SlotCounters; MAX_SLOTS] {
        &self.layout().slots
    }

    /// Returns the partner table.
    pub(crate) fn partners(&self) -> &[PartnerCounters; MAX_PARTNERS] {
        &self.layout().partners
    }

    /// Returns the table of parallel regions.
    pub(crate) fn regions(&self) -> &[RegionCounters; MAX_REGIONS] {
        &self.layout().regions
    }

    /// Returns the table of tasks.
    pub(crate) fn tasks(&self) -> &[TaskCounters; MAX_TASKS] {
        &self.layout().tasks
    }

    /// Returns the table of waits for locks; `None` while it is not in use.
    pub(crate) fn lock_waits(&self) -> Option<&[LockWaitCounters; MAX_LOCK_WAITS]> {
        let is_used = self.thread().lock_waits.load(Ordering::Acquire) != 0;
        is_used.then(|| &self.layout().lock_waits)
    }

    /// Returns the size of the ring in bytes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring_bytes as u64
    }

    /// Returns the fraction of the ring that `bytes` occupy, in percent, at most 100.
    pub(crate) fn percent(&self, bytes: u64) -> u64 {
        bytes.min(self.ring_bytes()) * 100 / self.ring_bytes()
    }

    /// Replaces `into` by `length` bytes of the ring from position `from` on; `length` is limited
    /// to the size of the ring. The range must lie between tail and head.
    pub(crate) fn copy(&self, from: u64, length: usize, into: &mut Vec<u8>) {
        into.clear();
        let length = length.min(self.ring_bytes);
        let start = (from & (self.ring_bytes as u64 - 1)) as usize;
        let first = length.min(self.ring_bytes - start);
        // SAFETY: the ring lies within the mapping behind the ThreadArea. The producer writes
        // atomically, too: what it overwrites meanwhile is garbage, which the decoder expects.
        let ring = unsafe {
            let start = self.mapping.start.add(size_of::<ThreadArea>());
            std::slice::from_raw_parts(start.cast::<AtomicU8>().cast_const(), self.ring_bytes)
        };
        let parts = ring[start..start + first].iter().chain(&ring[..length - first]);
        into.extend(parts.map(|byte| byte.load(Ordering::Relaxed)));
    }

    /// Frees the area of an ended thread: returns the ring's memory to the system, apart from its
    /// first page, and the area to the process.
    pub(crate) fn free(&self) {
        // The collector has added these counters up: the next thread in the area starts from zero.
        let thread = self.thread();
        // The next thread also begins its ring anew, so that short threads always use the same
        // page. Allocating and freeing a page takes longer than all else that such a thread costs.
        let written = thread.head.swap(0, Ordering::Relaxed);
        thread.tail.store(0, Ordering::Relaxed);
        if written > KEPT_RING_BYTES as u64 {
            // SAFETY: the ring is page aligned within the mapping, and no shorter than a page. Its
            // thread has ended, so nothing writes; punched pages read as zeros. Failure only costs
            // memory.
            unsafe {
                let ring = self.mapping.start.add(size_of::<ThreadArea>() + KEPT_RING_BYTES);
                libc::madvise(ring.cast(), self.ring_bytes - KEPT_RING_BYTES, libc::MADV_REMOVE);
            }
        }
        thread.clear_counters();
        partner_table::clear_all(self.partners(), &thread.partners);
        let used = thread.regions.swap(0, Ordering::Relaxed) as usize;
        self.regions()[..used.min(MAX_REGIONS)].iter().for_each(RegionCounters::clear);
        let used = thread.tasks.swap(0, Ordering::Relaxed) as usize;
        self.tasks()[..used.min(MAX_TASKS)].iter().for_each(TaskCounters::clear);
        self.lock_waits().into_iter().flatten().for_each(LockWaitCounters::clear);
        thread.lock_waits.store(0, Ordering::Relaxed);
        for slot in self.slots() {
            let each: [&AtomicU64; 3] = [&slot.count, &slot.sum, &slot.bytes];
            for counter in each {
                if counter.load(Ordering::Relaxed) != 0 {
                    counter.store(0, Ordering::Relaxed);
                }
            }
        }
        thread.state.store(ThreadState::Free as u32, Ordering::Release);
    }
}
