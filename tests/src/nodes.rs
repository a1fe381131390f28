//! Emulated nodes: `tests/nodes/mpiexec` runs a job as if on several computers.

use std::path::PathBuf;
use std::process::Command;

use crate::artifacts::workspace_dir;
use crate::mpi::skip;

/// Directory in the job's working directory that is private to each node, if [`PRIVATE_VARIABLE`]
/// names it; all others are shared.
pub const PRIVATE: &str = "private";
/// Variable that names the private directory to the nodes.
pub const PRIVATE_VARIABLE: &str = "MADE_NODES_PRIVATE";

/// Variable with the seconds by which each node's clock is ahead, in the order of the nodes; by
/// default each clock is another quarter of an hour ahead.
pub const AHEAD_VARIABLE: &str = "MADE_NODES_AHEAD";

/// Returns the launcher of jobs on emulated nodes.
pub fn launcher() -> PathBuf {
    workspace_dir().join("tests/nodes/mpiexec")
}

/// Returns the host name of a node, counted from 1.
pub fn host(node: u32) -> String {
    format!("plimsoll-node{node}")
}

/// Returns whether this user can emulate nodes on this machine. If not, reports the reason and the
/// skipped test on stderr.
///
/// # Panics
/// If the launcher does not run at all.
pub fn available() -> bool {
    let check = Command::new(launcher()).arg("check").output().expect("bash runs scripts");
    if !check.status.success() {
        let why = String::from_utf8_lossy(&check.stderr);
        skip(&format!("a test on several nodes: {}", why.trim_end()));
    }
    check.status.success()
}
