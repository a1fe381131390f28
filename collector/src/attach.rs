//! The shared segment of one process, mapped: the only place that touches its memory.
//!
//! The content is hostile: whatever is read is a number to be checked, and nothing here trusts a
//! count, an index or a length. The file itself is not, once it is known to be the segment that its
//! header says: its size is checked once and its writers never shrink it.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use plimsoll_agent::partner_table;
use plimsoll_agent::process::{self, Observed};
use plimsoll_sys::mapping::{resident, shared_again};
use plimsoll_sys::own::{Identity, Own};
use plimsoll_wire::doorbell::Doorbell;
use plimsoll_wire::record::VERSION;
use plimsoll_wire::segment::{
    ADDRESSES_OFFSET, Address, MAGIC, MAX_ADDRESSES, MAX_MODULES, MAX_PARTNERS, MAX_PATH,
    MAX_SLOTS, MODULES_OFFSET, ModuleEntry, PartnerCounters, Process, SlotCounters, THREADS_OFFSET,
    Thread, ThreadArea, ThreadState, areas_in, thread_area_bytes, thread_offset,
};

use crate::tables::{ModuleInfo, Tables};

/// Largest ring that a segment may ask us to map, in bytes.
const MAX_RING_BYTES: usize = 1 << 30;

/// Why a process's segment was not attached.
#[derive(Debug)]
pub enum AttachError {
    /// The descriptor could not be opened, or its memory not mapped.
    Unreachable(io::Error),
    /// It is no memory file of ours, or one that is not ready: the process may have closed the
    /// descriptor and opened a file of its own.
    NotASegment,
    /// It was written by another version of the library.
    OtherVersion(u32),
    /// The process id or start time is another process's: the descriptor was reused.
    OtherProcess,
    /// Its sizes contradict each other.
    WrongSize,
    /// This collector already reads that process.
    AlreadyAttached,
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(error) => write!(
                f,
                "the process's samples cannot be reached ({error}); let each process collect itself"
            ),
            Self::NotASegment => write!(f, "the descriptor holds no samples of this library"),
            Self::OtherVersion(version) => write!(
                f,
                "the process carries format {version} of the library, this is format {VERSION}; \
                 preload the same library in all ranks"
            ),
            Self::OtherProcess => write!(f, "the samples belong to another process"),
            Self::WrongSize => {
                write!(f, "the sizes in the process's samples contradict each other")
            }
            Self::AlreadyAttached => write!(f, "the process is already collected here"),
        }
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(error) => Some(error),
            _ => None,
        }
    }
}

/// A shared mapping, unmapped when dropped.
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
        Ok(Self { start: start.cast(), length })
    }

    /// Another part of the file of which this is the beginning.
    fn part(&self, offset: usize, length: usize) -> io::Result<Self> {
        // SAFETY: as promised; parts begin with a page.
        let start = unsafe { shared_again(self.start, offset, length) };
        if start.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, length })
    }

    /// Bytes of it that are in memory.
    fn resident_bytes(&self) -> u64 {
        resident(self.start, self.length)
    }

    /// The header of a segment, which begins here.
    fn process(&self) -> &Process {
        // SAFETY: the mapping is page aligned, longer than the header, and lives as long as
        // `self`; all fields are atomics, for which any bytes are valid.
        unsafe { &*self.start.cast::<Process>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours alone, and whoever holds references into it holds `self`.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// One process's segment: header and tables.
pub(crate) struct Segment {
    /// None for this process's own. The application may close it: then the tables' mapping does.
    file: Option<Own<File>>,
    tables: Arc<Mapping>,
    ring_bytes: usize,
    /// Thread areas that the file has room for.
    areas: usize,
}

impl Segment {
    /// Opens descriptor `fd` of process `pid`, which started at `start_time` (field 22 of
    /// /proc/pid/stat). This process's own segment is found also where the descriptor is closed.
    pub(crate) fn open(pid: u32, fd: i32, start_time: u64) -> Result<Self, AttachError> {
        match Self::own(pid, fd, start_time) {
            Some(own) => Ok(own),
            None => Self::of_descriptor(pid, fd, start_time),
        }
    }

    fn of_descriptor(pid: u32, fd: i32, start_time: u64) -> Result<Self, AttachError> {
        let path = format!("/proc/{pid}/fd/{fd}");
        // Looked at before it is opened: opening a device or a pipe of the program's may do anything.
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

    /// The segment of the process that this is, through its own mapping.
    fn own(pid: u32, fd: i32, start_time: u64) -> Option<Self> {
        let is_it =
            |observed: &&'static Observed| pid == std::process::id() && observed.descriptor() == fd;
        let observed = process::current().filter(is_it)?;
        let start = observed.map_segment(0, THREADS_OFFSET)?;
        let tables = Arc::new(Mapping { start, length: THREADS_OFFSET });
        let segment = Self { file: None, tables, ring_bytes: 0, areas: 0 };
        segment.checked(pid, start_time, observed.segment_bytes() as u64).ok()
    }

    /// The segment, if its header says that it is that of the process, ready and of this version.
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

    /// The header.
    pub(crate) fn process(&self) -> &Process {
        self.tables.process()
    }

    /// Bytes of header and tables that are in memory.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.resident_bytes()
    }

    /// The number of our descriptor.
    #[cfg(test)]
    pub(crate) fn number(&self) -> Option<i32> {
        Some(self.file.as_ref()?.get().ok()?.as_raw_fd())
    }

    /// What the process rings.
    pub(crate) fn bell(&self) -> Bell {
        Bell { tables: self.tables.clone() }
    }

    /// Maps a thread's area.
    pub(crate) fn area(&self, index: usize) -> io::Result<Area> {
        // Touching what is beyond the file's end would be a SIGBUS.
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

/// Whether the header in a file says that this file is a segment, and not one that has only the content of
/// a segment. Nothing of the program's is mapped.
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

/// The bell of a process, also after its segment was let go of.
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
        let read = |bytes: &[std::sync::atomic::AtomicU8]| {
            bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect::<Vec<u8>>()
        };
        Some(ModuleInfo {
            bias: entry.bias.load(Ordering::Relaxed),
            build_id: read(&entry.build_id[..build_id_bytes]),
            path: read(&entry.path[..path_bytes]),
        })
    }
}

/// One thread's area, mapped.
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

    /// Bytes of counters and ring that are in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.mapping.resident_bytes()
    }

    /// Its counters and state.
    pub(crate) fn thread(&self) -> &Thread {
        &self.layout().thread
    }

    /// Its region table's counters.
    pub(crate) fn slots(&self) -> &[SlotCounters; MAX_SLOTS] {
        &self.layout().slots
    }

    /// The partner table.
    pub(crate) fn partners(&self) -> &[PartnerCounters; MAX_PARTNERS] {
        &self.layout().partners
    }

    /// Bytes of its ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring_bytes as u64
    }

    /// Which part of the ring so many bytes take, in percent.
    pub(crate) fn percent(&self, bytes: u64) -> u64 {
        bytes.min(self.ring_bytes()) * 100 / self.ring_bytes()
    }

    /// Replaces `into` by the ring's bytes from position `from` on, `length` of them (at most the
    /// ring's size). They must lie between tail and head.
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

    /// Gives an ended thread's area back: its ring's memory to the system, the area to the process.
    pub(crate) fn free(&self) {
        // SAFETY: the ring is page aligned within the mapping. Its thread has ended, so nobody
        // writes; punched pages read as zeros. Failure only costs memory.
        unsafe {
            let ring = self.mapping.start.add(size_of::<ThreadArea>());
            libc::madvise(ring.cast(), self.ring_bytes, libc::MADV_REMOVE);
        }
        // Our reader has added these up: the area's next thread starts from zero.
        let thread = self.thread();
        thread.clear_counters();
        partner_table::clear_all(self.partners(), &thread.partners);
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
