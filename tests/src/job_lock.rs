//! One job at a time: tests of one binary run in threads, and test binaries may run side by side,
//! but two jobs on the same cores would distort each other's measurements. Jobs that measure
//! nothing share the lock.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::artifacts::target_dir;

/// The right to run a job, until dropped.
#[derive(Debug)]
pub struct JobLock {
    // The kernel gives the lock back when the last descriptor of the open file is closed.
    _file: File,
}

/// Waits until no other job of this target directory runs.
///
/// # Panics
/// If the lock file cannot be created: no measurement would be valid then.
pub fn lock_exclusively() -> JobLock {
    lock(libc::LOCK_EX)
}

/// Waits until no other job of this target directory runs, except those that share the lock, too.
///
/// # Panics
/// If the lock file cannot be created, as in [`lock_exclusively`].
pub fn lock_shared() -> JobLock {
    lock(libc::LOCK_SH)
}

fn lock(how: libc::c_int) -> JobLock {
    let path = target_dir().join("job-tests.lock");
    let file = File::create(&path)
        .unwrap_or_else(|error| panic!("cannot make the lock file {}: {error}", path.display()));
    loop {
        // SAFETY: flock takes no pointers, and the descriptor is open as long as `file` lives.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return JobLock { _file: file };
        }
        let error = io::Error::last_os_error();
        assert!(
            error.kind() == io::ErrorKind::Interrupted,
            "cannot lock {}: {error}",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn turns_do_not_overlap() {
        let (inside, overlaps) = (AtomicU32::new(0), AtomicU32::new(0));
        let stay = |least: u32| {
            if inside.fetch_add(1, Ordering::SeqCst) > least {
                overlaps.fetch_add(1, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(10));
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _job_lock = lock_exclusively();
                    stay(0);
                });
                scope.spawn(|| {
                    let _job_lock = lock_shared();
                    stay(3);
                });
            }
        });
        assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn shared_turns_overlap() {
        let _one = lock_shared();
        // This panics if it would have to wait.
        let _other = lock(libc::LOCK_SH | libc::LOCK_NB);
    }
}
