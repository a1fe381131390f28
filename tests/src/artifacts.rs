//! Build products: the workspace's target directory, `libplimsoll.so`, `plimsoll`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::bindings;
use crate::job_lock::lock_exclusively;
use crate::mpi::Mpi;

/// The library and the command under test.
#[derive(Debug)]
pub struct Artifacts {
    /// Path of `libplimsoll.so`.
    pub library: PathBuf,
    /// Path of `plimsoll`.
    pub command: PathBuf,
}

/// Returns the root of the workspace.
pub fn workspace_dir() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// Returns the target directory that this executable was built into: tests lie in
/// `<target>/<profile>/deps`, commands in `<target>/<profile>`.
///
/// # Panics
/// If the executable lies in the root of the file system.
pub fn target_dir() -> &'static Path {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    TARGET.get_or_init(|| {
        let executable = env::current_exe().expect("an executable knows its own path");
        let depth = if executable.parent().is_some_and(|p| p.ends_with("deps")) { 3 } else { 2 };
        executable
            .ancestors()
            .nth(depth)
            .unwrap_or_else(|| panic!("{} is in no target directory", executable.display()))
            .to_owned()
    })
}

/// Builds the library and the command, once per test binary, and returns their paths. The release
/// build is tested, as users run that, or the profile that `TESTED_PROFILE` names; cargo's
/// own lock keeps test binaries apart.
///
/// # Panics
/// If the build fails or does not yield both.
pub fn artifacts() -> &'static Artifacts {
    static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
    ARTIFACTS.get_or_init(|| {
        let profile = env::var("TESTED_PROFILE").unwrap_or_else(|_| String::from("release"));
        let messages = build(&["--profile", &profile, "-p", "plimsoll-preload", "-p", "plimsoll"]);
        let folder = target_dir().join(&profile);
        let found =
            Artifacts { library: folder.join("libplimsoll.so"), command: folder.join("plimsoll") };
        for path in [&found.library, &found.command] {
            assert!(path.exists(), "the build yields no {}:\n{messages}", path.display());
        }
        found
    })
}

/// Builds parts of the workspace into the target directory. Returns cargo's messages.
///
/// # Panics
/// If the build fails.
pub fn build(arguments: &[&str]) -> String {
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .arg("build")
        .args(arguments)
        .arg("--target-dir")
        .arg(target_dir())
        .current_dir(workspace_dir())
        .output()
        .expect("cargo ran this test, so it runs");
    let messages = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "{arguments:?} does not build:\n{messages}");
    messages
}

/// Builds the command as a program of an MPI, once per test binary, and returns its path. Built
/// without optimisation: performance is measured elsewhere.
///
/// # Panics
/// If the build fails.
pub fn command_with_mpi(mpi: Mpi) -> PathBuf {
    static COMMANDS: Mutex<Vec<(Mpi, PathBuf)>> = Mutex::new(Vec::new());
    let mut commands = COMMANDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, command)) = commands.iter().find(|(of, _)| *of == mpi) {
        return command.clone();
    }
    let _job_lock = lock_exclusively();
    let arguments = ["-p", "plimsoll", "--bin", "plimsoll", "--features", "mpi"];
    let command = target_dir().join(format!("plimsoll-{}", mpi.folder()));
    bindings::build(mpi, &arguments, "plimsoll", &command);
    commands.push((mpi, command.clone()));
    command
}
