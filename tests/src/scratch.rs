//! Directory of one job: its working directory, its output, its reports.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process, thread};

use crate::artifacts::target_dir;

/// A new, empty directory. Removed when dropped, but kept for inspection if the test has failed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a directory with a name that begins with `name`.
    ///
    /// # Panics
    /// If the target directory cannot be written.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = target_dir().join("jobs").join(format!("{name}-{}-{number}", process::id()));
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        Self { path }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("what the job left is kept in {}", self.path.display());
        } else {
            // A directory that cannot be removed is no failure of the test.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
