//! Producer's end of a thread's ring.
//!
//! A ring is a byte queue with a single producer and a single consumer. The producer is the owning
//! thread, in its handler or its wrappers, never both at once
//! (`plimsoll_agent::thread_state::ThreadBlock::busy`). A record is written whole or not at all: a
//! record that does not fit is lost and counted, and the next record that fits is preceded by the
//! count and resynchronises the stream.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::doorbell::Doorbell;

/// Writing end of a ring.
pub struct Producer {
    bytes: *mut u8,
    mask: u64,
    head: *const AtomicU64,
    tail: *const AtomicU64,
    /// Rung when the ring has become half full.
    bell: *const Doorbell,
}

impl Producer {
    /// Creates a producer over `size` bytes (a power of two) at `bytes`.
    ///
    /// # Safety
    /// All pointers stay valid, and no other producer writes, as long as this one lives.
    pub unsafe fn new(
        bytes: *mut u8,
        size: usize,
        head: *const AtomicU64,
        tail: *const AtomicU64,
        bell: *const Doorbell,
    ) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { bytes, mask: size as u64 - 1, head, tail, bell }
    }

    /// Writes `record` and publishes it. Returns false, and writes nothing, if the record does not
    /// fit.
    pub fn push(&mut self, record: &[u8]) -> bool {
        // SAFETY: `new` promises that the counters live as long as this producer.
        let (head, tail) = unsafe { (&*self.head, &*self.tail) };
        let at = head.load(Ordering::Relaxed);
        // The consumer may be a hostile or dying process: a tail beyond the head reads as full.
        let used = at.wrapping_sub(tail.load(Ordering::Acquire));
        let size = self.mask + 1;
        if used > size || record.len() as u64 > size - used {
            return false;
        }
        let start = (at & self.mask) as usize;
        let first = record.len().min(size as usize - start);
        // SAFETY: the ring has `size` bytes, and the consumer reads them atomically, too: a
        // consumer that takes over may read bytes that this overwrites.
        let ring = unsafe {
            core::slice::from_raw_parts(self.bytes.cast::<AtomicU8>().cast_const(), size as usize)
        };
        let (until_end, from_begin) = record.split_at(first);
        for (place, byte) in ring[start..].iter().zip(until_end) {
            place.store(*byte, Ordering::Relaxed);
        }
        for (place, byte) in ring.iter().zip(from_begin) {
            place.store(*byte, Ordering::Relaxed);
        }
        head.store(at + record.len() as u64, Ordering::Release);
        let half = size / 2;
        if used < half && used + record.len() as u64 >= half {
            // SAFETY: as for the counters.
            unsafe { (*self.bell).ring() };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_wrap_and_a_full_ring_refuses() {
        let mut bytes = [0u8; 16];
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        let bell = Doorbell::new();
        // SAFETY: the locals outlive the producer and nothing else writes them.
        let mut ring = unsafe { Producer::new(bytes.as_mut_ptr(), 16, &head, &tail, &bell) };
        assert!(ring.push(&[1; 7]));
        assert_eq!(bell.rings(), 0);
        assert!(ring.push(&[1; 3]));
        assert_eq!(bell.rings(), 1, "it is half full now");
        assert!(!ring.push(&[2; 7]), "only six bytes are free");
        assert!(ring.push(&[3; 6]));
        assert_eq!(bell.rings(), 1, "it has been for a while");
        tail.store(10, Ordering::Release);
        assert!(ring.push(&[4; 10]), "the consumer freed ten");
        assert_eq!(bell.rings(), 2);
        assert_eq!(head.load(Ordering::Acquire), 26);
        tail.store(1000, Ordering::Release);
        assert!(!ring.push(&[5]), "an impossible tail must not let us overwrite");
        assert_eq!(bytes, [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3]);
    }
}
