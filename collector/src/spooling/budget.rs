//! Budget of a spool: the user's limit, and the free space on the disk.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Divisor of a file system's size for the part that is never used, and its maximum in bytes.
const RESERVED_SHARE: u64 = 50;
const MAX_RESERVED_BYTES: u64 = 1 << 30;
/// Room that stays for the end of a spool: its last states and its index.
const END_BYTES: u64 = 1 << 20;

/// The room that a spool has.
pub(super) struct Budget {
    limit_bytes: u64,
    folder: Option<CString>,
}

impl Budget {
    /// Creates a budget of at most `limit_bytes`.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes: limit_bytes.min(file_size_limit()), folder: None }
    }

    /// Sets the spool's file: the free space of its file system counts, too.
    pub(super) fn measure(&mut self, path: &Path) {
        let folder = path.parent().unwrap_or(path);
        self.folder = CString::new(folder.as_os_str().as_bytes()).ok();
    }

    /// Returns the binary logarithm of the number of samples per kept one after `written` bytes: 0
    /// in the first half of the budget, one more in each half of the rest. `None` if no room is
    /// left.
    pub(super) fn level(&self, written: u64) -> Option<u32> {
        let left = self.limit_bytes.saturating_sub(written);
        let left = left.min(self.free_bytes().unwrap_or(u64::MAX));
        if left <= END_BYTES {
            return None;
        }
        let room = left.saturating_add(written);
        Some((room / left).ilog2())
    }

    /// Returns the message about an exhausted budget, as a sentence.
    pub(super) fn exhausted(&self) -> String {
        match self.free_bytes() {
            Some(free) if free <= END_BYTES => {
                "the disk is nearly full; free some space, or set PLIMSOLL_OUTPUT to another disk"
                    .to_owned()
            }
            _ => "its bound is reached; raise PLIMSOLL_MEMORY, or lengthen PLIMSOLL_PERIOD"
                .to_owned(),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let folder = self.folder.as_ref()?;
        // SAFETY: a zeroed structure of integers, filled by the call; the path ends in a zero.
        let (outcome, stat) = unsafe {
            let mut stat: libc::statvfs = std::mem::zeroed();
            (libc::statvfs(folder.as_ptr(), &mut stat), stat)
        };
        if outcome != 0 {
            return None;
        }
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Some(free.saturating_sub((total / RESERVED_SHARE).min(MAX_RESERVED_BYTES)))
    }
}

/// Returns the limit on file sizes (RLIMIT_FSIZE): a larger write would kill the application.
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_of_the_rest_takes_half_as_many() {
        let budget = Budget { limit_bytes: 64 << 20, folder: None };
        let level = |mebibytes: u64| budget.level(mebibytes << 20);
        assert_eq!([level(0), level(31), level(33)], [Some(0), Some(0), Some(1)]);
        assert_eq!([level(47), level(49), level(62)], [Some(1), Some(2), Some(5)]);
        assert_eq!([level(63), level(64), level(100)], [None, None, None]);
    }

    #[test]
    fn the_disk_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut budget = Budget { limit_bytes: u64::MAX, folder: None };
        assert!(budget.free_bytes().is_none());
        budget.measure(&folder.path().join("rank0"));
        let free = budget.free_bytes().unwrap();
        assert!(free < u64::MAX / 2);
        // As much again as is left: half of the room.
        let level = budget.level(2 * free + (1 << 30));
        assert!(free <= END_BYTES || matches!(level, Some(1 | 2)), "{free} {level:?}");
    }
}
