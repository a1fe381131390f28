//! Compiles the subjects: the programs with a known truth in `tests/programs/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::artifacts::{target_dir, workspace_dir};
use crate::mpi::Mpi;

const FLAGS: &[&str] = &["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];

/// The executable of a subject, compiled for an MPI or, with `None`, without any. Compiled anew
/// when a source in `tests/programs/` is younger. To be called in one's turn ([`crate::turn`]), so
/// that no other test compiles into the same file.
///
/// # Panics
/// If it does not compile without warnings.
pub fn executable(name: &str, mpi: Option<Mpi>) -> PathBuf {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let folder = mpi.map_or("alone", Mpi::abi);
    let executable = target_dir().join("subjects").join(folder).join(name);
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !built.contains(&executable) {
        if !is_current(&executable) {
            compile(name, mpi, &executable);
        }
        built.push(executable.clone());
    }
    executable
}

fn programs_dir() -> PathBuf {
    workspace_dir().join("tests/programs")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Whether the executable is younger than all sources, shared headers among them, and than the
/// flags in this file.
fn is_current(executable: &Path) -> bool {
    let Some(compiled) = modified(executable) else { return false };
    let sources = fs::read_dir(programs_dir()).into_iter().flatten().flatten();
    let mut sources: Vec<_> = sources.map(|entry| entry.path()).collect();
    sources.push(workspace_dir().join("tests/src/subject.rs"));
    sources.iter().all(|source| modified(source).is_some_and(|changed| changed < compiled))
}

fn compile(name: &str, mpi: Option<Mpi>, executable: &Path) {
    let source = programs_dir().join(name).with_extension("c");
    let folder = executable.parent().expect("subjects lie in a folder");
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    // Compiled beside and renamed: an interrupted compiler leaves nothing that looks current.
    let unfinished = executable.with_extension("part");
    let compiler = mpi.map_or_else(|| "gcc".to_owned(), Mpi::compiler);
    let mut command = Command::new(&compiler);
    command.args(FLAGS).arg(&source).arg("-o").arg(&unfinished);
    if mpi.is_none() {
        command.arg("-DSUBJECT_NO_MPI");
    }
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{compiler} does not run ({error}): install gcc"));
    assert!(
        output.status.success(),
        "{} does not compile with {compiler}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&unfinished, executable)
        .unwrap_or_else(|error| panic!("{}: {error}", executable.display()));
}
