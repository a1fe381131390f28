//! Memory of the threads' blocks: each block with the handler's stack behind it.
//!
//! Mapping a block, faulting its pages in and unmapping it takes several times as long as creating
//! a thread. The blocks of ended threads are therefore kept for later threads, and their pages stay
//! in memory.

use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::channels::Channels;
use crate::started_requests::StartedRequests;
use crate::thread_state::{HANDLER_STACK, State, ThreadBlock};
use crate::unwind::Frames;
use plimsoll_sys::mapping;
use plimsoll_wire::record::MAX_DEPTH;

/// Size of a block with the handler's stack, in bytes.
pub const BLOCK_BYTES: usize = size_of::<ThreadBlock>() + HANDLER_STACK;

/// Maximum number of blocks kept: the threads that typically end and begin at the same time.
const MAX_FREE_BLOCKS: usize = 16;

/// Blocks of ended threads, zeroed as far as their next user relies on it.
pub struct FreeBlocks([AtomicPtr<ThreadBlock>; MAX_FREE_BLOCKS]);

impl FreeBlocks {
    /// Creates a store without blocks.
    pub fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; MAX_FREE_BLOCKS])
    }

    /// Returns the block of an ended thread, or else a new one; null if none can be mapped.
    pub fn take(&self) -> *mut ThreadBlock {
        let mut taken = self.0.iter().map(|place| place.swap(null_mut(), Ordering::AcqRel));
        taken.find(|block| !block.is_null()).unwrap_or_else(map)
    }

    /// Takes a block back, to keep or unmap it.
    ///
    /// # Safety
    /// The block comes from [`FreeBlocks::take`]. It is zeroed or holds a valid state, and nothing
    /// uses it any more.
    pub unsafe fn put(&self, block: *mut ThreadBlock) {
        // SAFETY: as the caller promises.
        if unsafe { zero(block) } {
            let (null, order) = (null_mut(), Ordering::AcqRel);
            let keep = |place: &AtomicPtr<ThreadBlock>| {
                place.compare_exchange(null, block, order, Ordering::Relaxed).is_ok()
            };
            if self.0.iter().any(keep) {
                return;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { mapping::unmap(block.cast(), BLOCK_BYTES) };
    }

    /// Returns the resident bytes of the blocks.
    pub fn resident_bytes(&self) -> u64 {
        let blocks = self.0.iter().map(|place| place.load(Ordering::Acquire));
        let blocks = blocks.filter(|block| !block.is_null());
        blocks.map(|block| mapping::resident(block.cast(), BLOCK_BYTES)).sum()
    }
}

/// Maps a zeroed block, which the kernel zeroes again in forked children.
fn map() -> *mut ThreadBlock {
    let block = mapping::private(BLOCK_BYTES);
    if !block.is_null() {
        // SAFETY: the block was just mapped.
        unsafe { mapping::advise(block, BLOCK_BYTES, libc::MADV_WIPEONFORK) };
    }
    block.cast()
}

/// Zeroes a block, apart from large buffers that the next thread reads only where it has written.
/// Returns false, and leaves the block as it is, if the thread has used much memory, which is to be
/// returned to the system.
///
/// # Safety
/// As [`FreeBlocks::put`].
unsafe fn zero(block: *mut ThreadBlock) -> bool {
    // SAFETY: zeros are valid for these fields, as the state of an ended thread is.
    let (regions, requests, channels) = unsafe {
        let state = (*block).state.get().cast::<State>();
        (&(*state).regions, &(*state).requests, &(*state).channels)
    };
    if regions.is_large() || requests.is_used() || channels.is_used() {
        return false;
    }
    let [paths, slots] = regions.unread();
    let mut unread = [
        (offset_of!(State, current), Frames::UNREAD),
        (offset_of!(State, found), Frames::UNREAD),
        (offset_of!(State, marked), Frames::UNREAD),
        (offset_of!(State, whole), Frames::UNREAD),
        (offset_of!(State, ids), 0..size_of::<[u32; MAX_DEPTH]>()),
        (offset_of!(State, regions), paths),
        (offset_of!(State, regions), slots),
        (offset_of!(State, requests), StartedRequests::UNREAD),
        (offset_of!(State, channels), Channels::UNREAD),
    ]
    .map(|(field, part)| {
        let field = offset_of!(ThreadBlock, state) + field;
        field + part.start..field + part.end
    });
    unread.sort_unstable_by_key(|part| part.start);
    let mut begin = 0;
    let last = size_of::<ThreadBlock>()..size_of::<ThreadBlock>();
    for part in unread.into_iter().chain([last]) {
        // SAFETY: the parts are parts of the block, in order and apart from each other.
        unsafe { block.cast::<u8>().add(begin).write_bytes(0, part.start - begin) };
        begin = part.end;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Frame;

    #[test]
    fn a_used_block_returns_as_zeros() {
        let blocks = FreeBlocks::new();
        let block = blocks.take();
        // SAFETY: a zeroed block is valid for these fields, and nothing else uses it.
        unsafe {
            (*block).busy.store(5, Ordering::Relaxed);
            let state = (*block).state.get().cast::<State>();
            for frames in [&raw mut (*state).current, &raw mut (*state).found] {
                assert!((*frames).push(Frame { address: 7, ..Frame::default() }));
            }
            (*state).common = 1;
            (*state).muted = true;
            (*state).call_times.mpi = 3;
            blocks.put(block);
        }
        assert!(blocks.resident_bytes() > 0);
        assert_eq!(blocks.take(), block);
        // SAFETY: as above.
        unsafe {
            let state = (*block).state.get().cast::<State>();
            assert_eq!((*block).busy.load(Ordering::Relaxed), 0);
            assert!((*state).current.as_slice().is_empty() && (*state).found.as_slice().is_empty());
            assert_eq!(((*state).common, (*state).muted, (*state).call_times.mpi), (0, false, 0));
            blocks.put(block);
        }
    }

    #[test]
    fn blocks_with_much_memory_and_more_than_a_few_are_unmapped() {
        let blocks = FreeBlocks::new();
        let kept = || blocks.0.iter().filter(|it| !it.load(Ordering::Relaxed).is_null()).count();
        let block = blocks.take();
        // SAFETY: as above.
        unsafe {
            let state = (*block).state.get().cast::<State>();
            (*state).requests.insert(1, Default::default());
            blocks.put(block);
        }
        assert_eq!(kept(), 0);
        let taken: Vec<_> = (0..MAX_FREE_BLOCKS + 3).map(|_| blocks.take()).collect();
        // SAFETY: as above.
        taken.into_iter().for_each(|block| unsafe { blocks.put(block) });
        assert_eq!(kept(), MAX_FREE_BLOCKS);
    }
}
