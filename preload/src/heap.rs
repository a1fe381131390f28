//! The library's own heap, which takes its memory from mappings of its own.
//!
//! Rust's default is the application's malloc, which may be replaced, instrumented, locked by a
//! thread that just crashed, or not yet initialised.
//!
//! Each block ends with a byte that names its kind, after the bytes that were requested. The heap
//! thus knows at any time the bytes of each kind, and those at its maximum. Each kind has mappings
//! of its own, since short-lived blocks among long-lived ones would keep their memory from being
//! returned to the system. Each large block has a mapping of its own.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use dlmalloc::{Allocator, Dlmalloc};
use plimsoll_sys::fork_lock::ForkLock;
use plimsoll_sys::mapping;
use plimsoll_sys::memory_kind::{self, HEAP_BYTES, MEMORY_KINDS};

/// Minimum size in bytes of a block that has a mapping of its own.
const LARGE: usize = 128 << 10;

const PAGE: usize = 4096;

/// Bytes of address space reserved for when no other is left: enough for what the hooks need on the
/// application's threads until all of Plimsoll has withdrawn.
const RESERVE: usize = 8 << 20;

/// Bytes of address space that must be free before a large allocation.
const ROOM: usize = 8 << 20;

/// Address of the reserve, and bytes left in it. The latter is written only with the heap's lock
/// held.
static RESERVE_AT: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static RESERVE_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether memory has run out.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Maps the reserve.
pub fn keep_reserve() {
    let at = mapping::private(RESERVE);
    if !at.is_null() && RESERVE_AT.swap(at, Ordering::Relaxed).is_null() {
        RESERVE_LEFT.store(RESERVE, Ordering::Release);
    }
}

/// Takes `size` bytes from the reserve; null if fewer are left. The heap's lock is held.
fn from_reserve(size: usize) -> *mut u8 {
    EXHAUSTED.store(true, Ordering::Relaxed);
    let left = RESERVE_LEFT.load(Ordering::Acquire);
    if size > left {
        return null_mut();
    }
    RESERVE_LEFT.store(left - size, Ordering::Release);
    // SAFETY: the bytes left end within the reserve.
    unsafe { RESERVE_AT.load(Ordering::Relaxed).add(left - size) }
}

/// Returns whether memory has run out: no work that allocates must be started.
pub fn is_exhausted() -> bool {
    EXHAUSTED.load(Ordering::Relaxed)
}

/// Returns whether [`ROOM`] bytes of address space are free. After the first `false` the result
/// stays `false`.
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

/// Handles a failed allocation. Does not return on threads of Plimsoll: a thread that joins this
/// one finds that it has ended.
#[cold]
fn refuse() -> *mut u8 {
    EXHAUSTED.store(true, Ordering::Relaxed);
    crate::own_threads::perish();
    null_mut()
}

/// Returns the memory; a null pointer goes to [`refuse`].
#[inline]
fn granted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() { refuse() } else { memory }
}

/// Source of the heap's memory: mappings of its own.
struct Mappings;

// SAFETY: returns fresh mappings, and unmaps only mappings that it returned.
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

/// Adds the change of a mapping's size to the bytes of the heap. The heap's lock is held.
fn resized(old_size: usize, new_size: usize) {
    let before = HEAP_BYTES.load(Ordering::Relaxed);
    HEAP_BYTES.store(before + new_size as u64 - old_size as u64, Ordering::Relaxed);
}

/// Contents of the heap, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Bytes allocated and not freed, by kind.
    pub kinds: [u64; MEMORY_KINDS],
    /// Bytes of all mappings: the kinds, free blocks, rounding, and the heap's own data.
    pub mapped: u64,
}

impl Holdings {
    const NOTHING: Self = Self { kinds: [0; MEMORY_KINDS], mapped: 0 };
}

/// Returns whether a block has a mapping of its own.
fn is_large(size: usize, align: usize) -> bool {
    size >= LARGE && align <= PAGE
}

/// Returns the size in bytes of the mapping of a large block, including the byte for its kind.
fn mapping_bytes(size: usize) -> usize {
    (size + 1).next_multiple_of(PAGE)
}

/// One dlmalloc heap for each kind, and the bytes in all of them.
struct Counted {
    heaps: [Dlmalloc<Mappings>; MEMORY_KINDS],
    /// Current contents; `mapped` is not maintained here.
    now: Holdings,
    /// Contents when the heap was at its maximum.
    largest: Holdings,
}

impl Counted {
    /// Allocates a block of `size` bytes and one more for its kind; null if there is no memory.
    /// With `is_zeroed` the whole block is zero.
    ///
    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    unsafe fn allocate(&mut self, layout: Layout, kind: usize, is_zeroed: bool) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as the caller promises; the size is below `isize::MAX`, so one more byte does not
        // overflow.
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

    /// Frees a block.
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

    /// Returns free mappings to the system.
    fn trim(&mut self) {
        for heap in &mut self.heaps {
            // SAFETY: the heap is consistent.
            unsafe { heap.trim(0) };
        }
    }

    /// Records that a block of `size` bytes and its last byte has been allocated as `kind`.
    ///
    /// # Safety
    /// `block` is null, or has a byte beyond `size` bytes that belongs to it.
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

    /// Records that a block of `size` bytes is freed, and returns its kind.
    ///
    /// # Safety
    /// `block` was passed to [`Counted::add`] with this size.
    unsafe fn remove(&mut self, block: *mut u8, size: usize) -> usize {
        // SAFETY: as the caller promises.
        let kind = usize::from(unsafe { block.add(size).read() }) % MEMORY_KINDS;
        self.now.kinds[kind] = self.now.kinds[kind].wrapping_sub(size as u64);
        kind
    }
}

/// A heap behind a lock that allocates nothing itself.
pub struct Heap {
    lock: ForkLock,
    heap: UnsafeCell<Counted>,
}

// SAFETY: the heap is only touched with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    lock: ForkLock::new(),
    heap: UnsafeCell::new(Counted {
        heaps: [const { Dlmalloc::new_with_allocator(Mappings) }; MEMORY_KINDS],
        now: Holdings::NOTHING,
        largest: Holdings::NOTHING,
    }),
};

impl Heap {
    fn with<R>(&self, work: impl FnOnce(&mut Counted) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.heap.get() });
        self.lock.unlock();
        result
    }
}

// SAFETY: passes every request to dlmalloc, one caller at a time.
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
        // SAFETY: as above. If there is no memory, the old block stays unchanged. The new size is
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

/// Returns free mappings to the system.
pub fn trim() {
    HEAP.with(Counted::trim);
}

/// Returns the contents of the heap at its maximum.
pub fn largest() -> Holdings {
    HEAP.with(|counted| counted.largest)
}

/// Locks the heap for a fork, so that the child finds it consistent.
pub fn before_fork() {
    HEAP.lock.before_fork();
}

/// Unlocks the heap after a fork, in the parent.
pub fn after_fork() {
    HEAP.lock.after_fork();
}

/// Unlocks the heap after a fork, in the child.
pub fn in_child() {
    HEAP.lock.in_child();
}
