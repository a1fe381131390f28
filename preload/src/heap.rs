//! The library's own heap, in mappings of its own.
//!
//! Rust's default would be the application's malloc: it may be replaced, instrumented, locked by a
//! thread that just crashed, or not yet initialised.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dlmalloc::{Allocator, Dlmalloc};
use plimsoll_agent::mapping;

/// After a block of this many bytes is given back, whole free mappings go back to the system: a
/// symbol table that was read is large, and not read again.
const LARGE: usize = 256 << 10;

/// Where the heap's memory comes from.
struct Mappings;

// SAFETY: hands out fresh mappings, and gives back those that it handed out.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (mapping::private(size), size, 0)
    }

    fn remap(&self, at: *mut u8, old_size: usize, new_size: usize, can_move: bool) -> *mut u8 {
        // SAFETY: dlmalloc passes a mapping that it got from here.
        unsafe { mapping::resize(at, old_size, new_size, can_move) }
    }

    fn free_part(&self, at: *mut u8, old_size: usize, new_size: usize) -> bool {
        // SAFETY: as above.
        !unsafe { mapping::resize(at, old_size, new_size, false) }.is_null()
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: as above.
        unsafe { mapping::unmap(at, size) }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

/// A heap behind a lock that allocates nothing itself.
pub struct Heap {
    locked: AtomicBool,
    heap: UnsafeCell<Dlmalloc<Mappings>>,
}

// SAFETY: the heap is only touched with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    locked: AtomicBool::new(false),
    heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Mappings)),
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

    fn with<R>(&self, work: impl FnOnce(&mut Dlmalloc<Mappings>) -> R) -> R {
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
        // SAFETY: the caller promises a layout of nonzero size.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that the pointer came from here with this layout.
        self.with(|heap| unsafe {
            heap.free(pointer, layout.size(), layout.align());
            if layout.size() >= LARGE {
                heap.trim(0);
            }
        });
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.realloc(pointer, layout.size(), layout.align(), new_size) })
    }
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
