//! Made nodes: `tests/nodes/mpiexec` runs a job as if on several computers.

use std::path::PathBuf;
use std::process::Command;

use crate::artifacts::workspace_dir;
use crate::mpi::skip;

/// The directory that each node has for itself, in the job's working directory, if it is named in
/// [`PRIVATE_VARIABLE`]; the others are shared.
pub const PRIVATE: &str = "private";
/// Names it to the nodes.
pub const PRIVATE_VARIABLE: &str = "MADE_NODES_PRIVATE";

/// Says by how many seconds each node's clock is to be ahead, in the order of the nodes; else each is
/// ahead by another quarter of an hour.
pub const AHEAD_VARIABLE: &str = "MADE_NODES_AHEAD";

/// The launcher of jobs on made nodes.
pub fn launcher() -> PathBuf {
    workspace_dir().join("tests/nodes/mpiexec")
}

/// The name of a node, from 1.
pub fn host(node: u32) -> String {
    format!("plimsoll-node{node}")
}

/// Whether nodes can be made on this machine, by this user. If not, says on stderr why, and that a
/// test is skipped.
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
