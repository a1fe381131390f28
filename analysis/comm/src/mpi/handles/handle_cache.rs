//! Cache of values by handle.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mpi::Handle;

/// Number of handles cached per kind.
const PLACES: usize = 64;

/// Number of slots in which a handle may be stored. With a single slot, two handles that share it
/// would be looked up again in turn, and a lookup takes long for communicators with many ranks.
const NEIGHBOURS: usize = 4;

/// Values by handle: the value in the upper 32 bits, the handle folded to 32 bits below. Integer
/// handles fold to themselves; for pointers, the low bits distinguish the objects of one heap.
pub(super) struct Memory([AtomicU64; PLACES]);

impl Memory {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES])
    }

    #[inline(always)]
    pub(super) fn get(&self, handle: Handle, ask: impl FnOnce() -> u32) -> u32 {
        match self.at_first(handle) {
            Some(value) => value,
            None => self.search(handle, ask),
        }
    }

    /// Returns the value of a handle that is at its first place; `None` if it is not there.
    #[inline(always)]
    pub(super) fn at_first(&self, handle: Handle) -> Option<u32> {
        let (folded, first) = folded(handle);
        let known = self.0[first].load(Ordering::Relaxed);
        (known & 0xffff_ffff == folded && known != 0).then_some((known >> 32) as u32)
    }

    /// Finds or stores the value of a handle that is not at its first place.
    #[inline(never)]
    fn search(&self, handle: Handle, ask: impl FnOnce() -> u32) -> u32 {
        let (folded, first) = folded(handle);
        let places = || (first..first + NEIGHBOURS).map(|place| &self.0[place % PLACES]);
        let mut empty = None;
        for place in places() {
            let known = place.load(Ordering::Relaxed);
            if known == 0 {
                empty = Some(place);
                break;
            }
            if known & 0xffff_ffff == folded {
                return (known >> 32) as u32;
            }
        }
        let value = ask();
        let place = empty.unwrap_or(&self.0[first % PLACES]);
        place.store(u64::from(value) << 32 | folded, Ordering::Relaxed);
        value
    }

    pub(super) fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns a handle folded to 32 bits, and its first place.
#[inline(always)]
fn folded(handle: Handle) -> (u64, usize) {
    let folded = handle as u64 & 0xffff_ffff ^ handle as u64 >> 32;
    (folded, (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_asked_about_once_until_forgotten() {
        let memory = Memory::new();
        let asked = std::cell::Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            asked.get()
        };
        assert_eq!(memory.get(0x4400_0000, ask), 1);
        assert_eq!(memory.get(0x4400_0000, ask), 1);
        assert_eq!(memory.get(0x4c00_010d, ask), 2);
        memory.clear();
        assert_eq!(memory.get(0x4400_0000, ask), 3);
    }

    #[test]
    fn handles_side_by_side_are_asked_about_once_each() {
        let memory = Memory::new();
        let asked = std::cell::Cell::new(0);
        let get = |handle: Handle| {
            memory.get(handle, || {
                asked.set(asked.get() + 1);
                handle as u32
            })
        };
        // Handles at addresses as a heap allocates them, and numbered as by MPICH.
        let handles: Vec<Handle> = (0..8)
            .map(|at| 0x55d0_1234_5680 + at * 0x170)
            .chain(0x8400_0000..0x8400_0008)
            .collect();
        for _ in 0..3 {
            assert!(handles.iter().all(|handle| get(*handle) == *handle as u32));
        }
        assert_eq!(asked.get(), handles.len());
    }

    #[test]
    fn more_handles_than_places_are_distinguished() {
        let memory = Memory::new();
        for _ in 0..2 {
            assert!((1..1000).all(|handle| memory.get(handle, || handle as u32) == handle as u32));
        }
    }
}
