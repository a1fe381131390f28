//! The library's own heap, in mappings of its own.
//!
//! Rust's default would be the application's malloc: it may be replaced, instrumented, locked by a
//! thread that just crashed, or not yet initialised.
//!
//! Each block ends with a byte that names its kind, behind what its owner asked for: so the heap knows at
//! any time how many bytes each kind has, and which had how many when the heap was largest. Each kind has
//! mappings of its own: what is read for a moment would lie among what stays, and keep its memory from
//! going back to the system. Large blocks have a mapping each.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlmalloc::{Allocator, Dlmalloc};
use plimsoll_sys::mapping;
use plimsoll_sys::memory_kind::{self, HEAP_BYTES, MEMORY_KINDS};

/// Blocks of at least this many bytes have a mapping of their own.
const LARGE: usize = 128 << 10;

const PAGE: usize = 4096;

/// Address space that is kept for when there is no other: enough for what our hooks need on the
/// application's threads, until all of ours has stepped back.
const RESERVE: usize = 8 << 20;

/// Address space that must be free where much is about to be allocated.
const ROOM: usize = 8 << 20;

/// The reserve, and how much of it is left. The latter is only written with the heap's lock.
static RESERVE_AT: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static RESERVE_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Memory has run out.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Sets the reserve aside.
pub fn keep_reserve() {
    let at = mapping::private(RESERVE);
    if !at.is_null() && RESERVE_AT.swap(at, Ordering::Relaxed).is_null() {
        RESERVE_LEFT.store(RESERVE, Ordering::Release);
    }
}

/// Takes from the reserve: null if it does not hold as much. The heap is locked.
fn from_reserve(size: usize) -> *mut u8 {
    EXHAUSTED.store(true, Ordering::Relaxed);
    let left = RESERVE_LEFT.load(Ordering::Acquire);
    if size > left {
        return null_mut();
    }
    RESERVE_LEFT.store(left - size, Ordering::Release);
    // SAFETY: what is left ends within the reserve.
    unsafe { RESERVE_AT.load(Ordering::Relaxed).add(left - size) }
}

/// Whether memory has run out: what needs some must not be begun.
pub fn is_exhausted() -> bool {
    EXHAUSTED.load(Ordering::Relaxed)
}

/// Whether there is memory for something larger. Once there is not, there never is.
pub fn has_room() -> bool {
    if is_exhausted() {
        return false;
    }
    let probe = mapping::private(ROOM);
    if probe.is_null() {
        EXHAUSTED.store(true, Ordering::Relaxed);
        return false;
    }
    // SAFETY: the mapping was just made.
    unsafe { mapping::unmap(probe, ROOM) }
}

/// What an allocation that fails comes to. On threads of ours it does not return: those who wait for the
/// thread find that it has ended.
#[cold]
fn refuse() -> *mut u8 {
    EXHAUSTED.store(true, Ordering::Relaxed);
    crate::threads::perish();
    null_mut()
}

/// The memory, if there is some.
#[inline]
fn granted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() { refuse() } else { memory }
}

/// Where the heap's memory comes from.
struct Mappings;

// SAFETY: hands out fresh mappings, and gives back those that it handed out.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut at = mapping::private(size);
        if at.is_null() {
            at = from_reserve(size);
        }
        if !at.is_null() {
            resized(0, size);
        }
        (at, size, 0)
    }

    fn remap(&self, at: *mut u8, old_size: usize, new_size: usize, can_move: bool) -> *mut u8 {
        // SAFETY: dlmalloc passes a mapping that it got from here.
        let at = unsafe { mapping::resize(at, old_size, new_size, can_move) };
        if !at.is_null() {
            resized(old_size, new_size);
        }
        at
    }

    fn free_part(&self, at: *mut u8, old_size: usize, new_size: usize) -> bool {
        // SAFETY: as above.
        let done = !unsafe { mapping::resize(at, old_size, new_size, false) }.is_null();
        if done {
            resized(old_size, new_size);
        }
        done
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: as above.
        let done = unsafe { mapping::unmap(at, size) };
        if done {
            resized(size, 0);
        }
        done
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// A mapping of the heap has another size now. The heap's lock is held.
fn resized(old_size: usize, new_size: usize) {
    let before = HEAP_BYTES.load(Ordering::Relaxed);
    HEAP_BYTES.store(before + new_size as u64 - old_size as u64, Ordering::Relaxed);
}

/// What the heap holds, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Bytes asked for and not given back, by kind.
    pub kinds: [u64; MEMORY_KINDS],
    /// All that is mapped: the kinds, and what is free, rounded up or for the heap itself.
    pub mapped: u64,
}

impl Holdings {
    const NOTHING: Self = Self { kinds: [0; MEMORY_KINDS], mapped: 0 };
}

/// Whether a block has a mapping of its own.
fn is_large(size: usize, align: usize) -> bool {
    size >= LARGE && align <= PAGE
}

/// Bytes of the mapping of a large block, with its last byte.
fn mapping_bytes(size: usize) -> usize {
    (size + 1).next_multiple_of(PAGE)
}

/// dlmalloc for each kind, and what is in all of them.
struct Counted {
    heaps: [Dlmalloc<Mappings>; MEMORY_KINDS],
    /// Now; `mapped` is not kept up to date here.
    now: Holdings,
    /// When it was largest.
    largest: Holdings,
}

impl Counted {
    /// A block of `size` bytes and one more for its kind; null if there is no memory. `is_zeroed`: all of
    /// the block is zero.
    ///
    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    unsafe fn allocate(&mut self, layout: Layout, kind: usize, is_zeroed: bool) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as the caller promises: the size is below `isize::MAX`, so that there can be one more.
        unsafe {
            let block = if is_large(size, align) {
                Mappings.alloc(mapping_bytes(size)).0
            } else if is_zeroed {
                self.heaps[kind].calloc(size + 1, align)
            } else {
                self.heaps[kind].malloc(size + 1, align)
            };
            self.add(block, size, kind);
            block
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// As [`GlobalAlloc::dealloc`].
    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as the caller promises.
        unsafe {
            let kind = self.remove(block, size);
            if is_large(size, align) {
                Mappings.free(block, mapping_bytes(size));
            } else {
                self.heaps[kind].free(block, size + 1, align);
            }
        }
    }

    /// Gives free mappings back to the system.
    fn trim(&mut self) {
        for heap in &mut self.heaps {
            // SAFETY: the heap is whole.
            unsafe { heap.trim(0) };
        }
    }

    /// Notes that a block of `size` bytes and its last byte has been allocated, as `kind`.
    ///
    /// # Safety
    /// `block` is null, or has a byte beyond `size` bytes that is ours.
    unsafe fn add(&mut self, block: *mut u8, size: usize, kind: usize) {
        if block.is_null() {
            return;
        }
        // SAFETY: as the caller promises.
        unsafe { block.add(size).write(kind as u8) };
        self.now.kinds[kind] += size as u64;
        let mapped = HEAP_BYTES.load(Ordering::Relaxed);
        if mapped > self.largest.mapped {
            self.largest = Holdings { mapped, ..self.now };
        }
    }

    /// Notes that a block of `size` bytes is given back, and returns its kind.
    ///
    /// # Safety
    /// `block` was told to [`Counted::add`] with this size.
    unsafe fn remove(&mut self, block: *mut u8, size: usize) -> usize {
        // SAFETY: as the caller promises.
        let kind = usize::from(unsafe { block.add(size).read() }) % MEMORY_KINDS;
        self.now.kinds[kind] = self.now.kinds[kind].wrapping_sub(size as u64);
        kind
    }
}

/// A heap behind a lock that allocates nothing itself.
pub struct Heap {
    locked: AtomicBool,
    heap: UnsafeCell<Counted>,
}

// SAFETY: the heap is only touched with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    locked: AtomicBool::new(false),
    heap: UnsafeCell::new(Counted {
        heaps: [const { Dlmalloc::new_with_allocator(Mappings) }; MEMORY_KINDS],
        now: Holdings::NOTHING,
        largest: Holdings::NOTHING,
    }),
};

/// How long a fork waits for the heap.
const FORK_PATIENCE: Duration = Duration::from_millis(100);

/// The heap is locked by a fork that runs. Only read by who has it.
static IS_LOCKED_BY_FORK: AtomicBool = AtomicBool::new(false);

impl Heap {
    fn try_lock(&self) -> bool {
        self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn lock(&self) {
        while !self.try_lock() {
            // SAFETY: no preconditions. The holder may be off its core.
            unsafe { libc::sched_yield() };
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn with<R>(&self, work: impl FnOnce(&mut Counted) -> R) -> R {
        self.lock();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.heap.get() });
        self.unlock();
        result
    }
}

// SAFETY: hands everything to dlmalloc, one caller at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let kind = memory_kind::current();
        // SAFETY: the caller promises a layout of nonzero size.
        granted(self.with(|counted| unsafe { counted.allocate(layout, kind, false) }))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let kind = memory_kind::current();
        // SAFETY: as above.
        granted(self.with(|counted| unsafe { counted.allocate(layout, kind, true) }))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that the block came from here with this layout.
        self.with(|counted| unsafe {
            counted.free(block, layout);
            if memory_kind::take_trim_request() {
                counted.trim();
            }
        });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as above. Where there is no memory, the old block stays as it was. The new size is
        // below `isize::MAX`, and the alignment stays.
        granted(self.with(|counted| unsafe {
            let kind = counted.remove(block, size);
            let moved = match (is_large(size, align), is_large(new_size, align)) {
                (false, false) => counted.heaps[kind].realloc(block, size + 1, align, new_size + 1),
                (true, true) => {
                    Mappings.remap(block, mapping_bytes(size), mapping_bytes(new_size), true)
                }
                _ => {
                    counted.add(block, size, kind);
                    let new = Layout::from_size_align_unchecked(new_size, align);
                    let moved = counted.allocate(new, kind, false);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, size.min(new_size));
                        counted.free(block, layout);
                    }
                    return moved;
                }
            };
            match moved.is_null() {
                true => counted.add(block, size, kind),
                false => counted.add(moved, new_size, kind),
            }
            moved
        }))
    }
}

/// Gives free mappings back to the system.
pub fn trim() {
    HEAP.with(Counted::trim);
}

/// What the heap held when it was largest.
pub fn largest() -> Holdings {
    HEAP.with(|counted| counted.largest)
}

/// Locks the heap for a fork, so that the child finds it consistent. After [`FORK_PATIENCE`] the fork
/// goes on without the lock: a signal handler that forks may have interrupted the lock's owner.
pub fn before_fork() {
    let begin = Instant::now();
    let mut is_ours = HEAP.try_lock();
    while !is_ours && begin.elapsed() < FORK_PATIENCE {
        // SAFETY: no preconditions. The holder may be off its core.
        unsafe { libc::sched_yield() };
        is_ours = HEAP.try_lock();
    }
    IS_LOCKED_BY_FORK.store(is_ours, Ordering::Relaxed);
}

/// The fork is over, in the parent and in the child.
pub fn after_fork() {
    if IS_LOCKED_BY_FORK.swap(false, Ordering::Relaxed) {
        HEAP.unlock();
    }
}
