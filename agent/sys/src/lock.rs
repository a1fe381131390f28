//! A mutual-exclusion lock that may be taken while any lock of the loader is held.

use std::sync::{self, MutexGuard, PoisonError, TryLockError};

/// The standard library's mutex, without poisoning.
///
/// A thread that waits for it uses no thread-local value with a destructor. The first use of such a
/// value in a thread registers the destructor under the loader's lock (glibc,
/// `__cxa_thread_atexit_impl`), and the application may hold that lock: a constructor in a library
/// that is being loaded may wait for threads. parking_lot's locks use such a value.
#[derive(Debug, Default)]
pub struct Lock<T>(sync::Mutex<T>);

impl<T> Lock<T> {
    /// Creates an unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until no other thread holds the lock, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock unless a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_lock_usable() {
        let lock = Lock::new(1);
        let panics = || {
            let mut value = lock.lock();
            *value = 2;
            assert!(lock.try_lock().is_none());
            panic!("while the lock is held");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(*lock.lock(), 2);
        assert_eq!(lock.try_lock().map(|value| *value), Some(2));
    }
}
