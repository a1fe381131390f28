//! One job at a time: tests of one binary run in threads, and test binaries may run side by side,
//! but two jobs on the same cores would distort each other's measurements. Jobs that measure
//! nothing share their turn.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::artifacts::target_dir;

/// The right to run a job, until dropped.
#[derive(Debug)]
pub struct Turn {
    // The kernel gives the lock back when the last descriptor of the open file is closed.
    _file: File,
}

/// Waits until no other job of this target directory runs.
///
/// # Panics
/// If the lock file cannot be created: no measurement would be valid then.
pub fn wait_for_turn() -> Turn {
    lock(libc::LOCK_EX)
}

/// Waits until no other job of this target directory runs, except those that share their turn, too.
///
/// # Panics
/// If the lock file cannot be created, as in [`wait_for_turn`].
pub fn share_turn() -> Turn {
    lock(libc::LOCK_SH)
}

fn lock(how: libc::c_int) -> Turn {
    let path = target_dir().join("job-tests.lock");
    let file = File::create(&path)
        .unwrap_or_else(|error| panic!("cannot make the lock file {}: {error}", path.display()));
    loop {
        // SAFETY: flock takes no pointers, and the descriptor is open as long as `file` lives.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Turn { _file: file };
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
                    let _turn = wait_for_turn();
                    stay(0);
                });
                scope.spawn(|| {
                    let _turn = share_turn();
                    stay(3);
                });
            }
        });
        assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn shared_turns_overlap() {
        let _one = share_turn();
        // This panics if it would have to wait.
        let _other = lock(libc::LOCK_SH | libc::LOCK_NB);
    }
}
