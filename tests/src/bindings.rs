//! Programs that call MPI through its Rust bindings, built for one MPI after the other.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::artifacts::{target_dir, workspace_dir};
use crate::mpi::Mpi;

/// Builds a program for an MPI with the arguments of `cargo build`, in the profile `dev`, and
/// copies it. The target directory is that of the tests, so that common dependencies and the
/// bindings' generator are compiled once. The caller must hold the job lock ([`crate::job_lock`]):
/// the next MPI's program has the same name.
///
/// # Panics
/// If the build fails.
pub(crate) fn build(mpi: Mpi, arguments: &[&str], program: &str, copy: &Path) {
    let target = target_dir();
    let cargo = || {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(workspace_dir());
        command
    };
    let run = |mut command: Command| {
        let ended = command.arg("--target-dir").arg(target).output();
        let ended = ended.expect("cargo ran this test, so it runs");
        let messages = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{command:?}, for {mpi}:\n{messages}");
    };
    // The build script of `mpi-sys` runs the compiler in MPICC, and does not tell cargo so.
    let note = target.join("bindings-of");
    if fs::read_to_string(&note).ok().as_deref() != Some(mpi.folder()) {
        let mut clean = cargo();
        clean.args(["clean", "--package", "mpi-sys"]);
        run(clean);
    }
    fs::write(&note, mpi.folder()).unwrap_or_else(|error| panic!("{}: {error}", note.display()));
    let mut build = cargo();
    build.arg("build").args(arguments).env("MPICC", mpi.compiler("mpicc"));
    run(build);
    let built = target.join("debug").join(program);
    fs::copy(&built, copy).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
}
