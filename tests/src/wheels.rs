//! The MPIs that come as Python wheels, and mpi4py: virtual environments that
//! `scripts/install-mpis` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::artifacts::{target_dir, workspace_dir};

/// Name of the environment without an MPI of its own: mpi4py for the MPIs of the distribution.
pub const SYSTEM: &str = "system";

/// Returns the path of an environment, whether or not it exists.
pub fn environment(name: &str) -> PathBuf {
    directory().join(name)
}

/// Returns why an environment could not be made; `None` if it exists.
pub fn unavailable(name: &str) -> Option<String> {
    if environment(name).join("requirements").exists() {
        return None;
    }
    let reason = fs::read_to_string(directory().join(format!("{name}.unavailable")));
    Some(reason.map_or_else(
        |_| format!("scripts/install-mpis has made no environment {name}"),
        |reason| format!("the environment {name} cannot be made ({})", reason.trim()),
    ))
}

/// Runs the script, once per test binary; the script does nothing if everything is installed.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = target_dir().join("mpis");
        let made = Command::new(workspace_dir().join("scripts/install-mpis"))
            .arg(&directory)
            .output()
            .expect("the script is in the tree, and bash is what it wants");
        let messages = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "scripts/install-mpis fails:\n{messages}");
        directory
    })
}
