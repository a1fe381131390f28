//! perf events counted per thread: names in the segment's header, increments in the records.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Maximum number of events that a thread counts.
pub const MAX_EVENTS: usize = 8;

/// Maximum length of an event's name in bytes.
pub const MAX_NAME: usize = 56;

/// Increments of a thread's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Increment of each event, in the order of [`crate::segment::Process::events`]; task-clock and
    /// cpu-clock in nanoseconds. Scaled up where the kernel shared the hardware counters among more
    /// events than there are counters (multiplexing).
    pub values: [u64; MAX_EVENTS],
    /// Time in which the hardware events had no counter, in nanoseconds: their increments are an
    /// estimate for this time.
    pub uncounted_ns: u64,
}

impl Counts {
    /// No increments.
    pub const NONE: Self = Self { values: [0; MAX_EVENTS], uncounted_ns: 0 };

    /// Adds later increments of the same events, saturating.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.values.iter_mut().zip(other.values) {
            *sum = sum.saturating_add(value);
        }
        self.uncounted_ns = self.uncounted_ns.saturating_add(other.uncounted_ns);
    }

    /// Returns whether nothing was counted.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// An event that the process was asked to count.
#[repr(C)]
pub struct EventEntry {
    /// Bytes used in `name`; 0: the entry is unused.
    name_bytes: AtomicU32,
    /// Error number of the kernel's refusal to count the event; 0 if it is counted.
    refused: AtomicU32,
    name: [AtomicU8; MAX_NAME],
}

impl EventEntry {
    /// Writes the name, truncated to [`MAX_NAME`] bytes, and the error number of a refusal.
    pub fn set(&self, name: &str, refused: u32) {
        let bytes = name.as_bytes().iter().take(MAX_NAME);
        let length = bytes.len() as u32;
        for (place, byte) in self.name.iter().zip(bytes) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.refused.store(refused, Ordering::Relaxed);
        self.name_bytes.store(length, Ordering::Release);
    }

    /// Returns the name and the error number of a refusal, 0 if the event is counted; `None` if the
    /// entry is unused.
    pub fn get(&self) -> Option<(String, u32)> {
        let length = (self.name_bytes.load(Ordering::Acquire) as usize).min(MAX_NAME);
        let name: Vec<u8> =
            self.name[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        (length > 0).then(|| {
            (String::from_utf8_lossy(&name).into_owned(), self.refused.load(Ordering::Relaxed))
        })
    }
}
