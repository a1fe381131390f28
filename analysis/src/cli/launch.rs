//! `plimsoll run`: sets the environment and becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ArgMatches;

use super::elf::{Obstacle, obstacle};
use super::options::PROGRAM;
use super::{Failure, USAGE, library};
use crate::settings::{LIBRARY, ROOT_PID, Settings, State, TABLE, parse_boolean};

/// Exit status of a shell for a program that is not there.
const NOT_FOUND: u8 = 127;
/// Exit status of a shell for a program that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status where Plimsoll itself is not complete.
const NO_LIBRARY: u8 = 1;

/// Becomes the program; returns only if that failed.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut words = matches.get_many::<OsString>(PROGRAM).into_iter().flatten();
    let Some(program) = words.next() else {
        return Err(Failure { message: "no program is given.".into(), status: USAGE });
    };
    let mut command = Command::new(program);
    command.args(words);
    let mut disabled = env::var("PLIMSOLL_DISABLE").is_ok_and(|value| is_true(&value));
    for variable in TABLE.iter().filter(|variable| variable.state != State::Internal) {
        if let Some(value) = matches.get_one::<OsString>(variable.name) {
            command.env(variable.name, value);
            if variable.name == "PLIMSOLL_DISABLE" {
                disabled = is_true(&value.to_string_lossy());
            }
        }
    }
    if !disabled {
        prepare(&mut command).map_err(|message| Failure { message, status: NO_LIBRARY })?;
        warn(program, matches);
    }
    let error = command.exec();
    Err(not_started(program, &error))
}

fn is_true(value: &str) -> bool {
    parse_boolean(value) == Some(true)
}

fn prepare(command: &mut Command) -> Result<(), String> {
    let own = env::current_exe().map_err(|error| {
        format!("the place of this command is unknown ({error}); set {LIBRARY} to libplimsoll.so.")
    })?;
    let library = library::find(&own, env::var_os(LIBRARY).as_deref())?;
    let preload = library::preload(&library, env::var_os("LD_PRELOAD").as_deref())?;
    // exec keeps the process id: the library knows by it that this process is meant, and not one
    // of its children, which inherit the environment.
    command.env("LD_PRELOAD", preload).env(ROOT_PID, std::process::id().to_string());
    Ok(())
}

/// Where launchers tell a process its rank: hydra and Slurm's PMI, Open MPI, Slurm, PALS.
const RANK: [&str; 5] =
    ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PALS_RANKID"];

/// Says why the library will not be in the program, unless silence was asked for. One rank's word
/// is enough.
fn warn(program: &OsStr, matches: &ArgMatches) {
    let given = matches.get_one::<OsString>("PLIMSOLL_VERBOSE").cloned();
    let verbose = given.or_else(|| env::var_os("PLIMSOLL_VERBOSE")).unwrap_or_default();
    let (settings, _) = Settings::from_env([("PLIMSOLL_VERBOSE".into(), verbose)]);
    let rank = RANK.iter().find_map(|name| env::var(name).ok());
    if settings.verbose == 0 || rank.is_some_and(|rank| rank != "0") {
        return;
    }
    let Some(path) = find(program) else { return };
    match obstacle(&path) {
        Some(Obstacle::Static) => eprintln!(
            "plimsoll: {} is statically linked: nothing can be preloaded into it, so nothing is \
             measured. Link it dynamically.",
            path.display()
        ),
        Some(Obstacle::Privileged) => eprintln!(
            "plimsoll: {} runs with another user's rights: nothing can be preloaded into it, so \
             nothing is measured.",
            path.display()
        ),
        None => {}
    }
}

/// The file that exec will take: as given, or the first executable of that name in PATH.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return Some(path.into());
    }
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|place| place.join(program)).find(executable)
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound if find(program).is_some_and(|path| path.exists()) => Failure {
            message: format!(
                "{name} cannot be started: its interpreter (the first line of a script, or the \
                 loader of a program) does not exist on this machine."
            ),
            status: NOT_FOUND,
        },
        io::ErrorKind::NotFound => {
            let hint = if !name.contains('/') && Path::new(".").join(program).exists() {
                format!(" Did you mean ./{name}?")
            } else {
                String::new()
            };
            Failure { message: format!("{name} is not found.{hint}"), status: NOT_FOUND }
        }
        _ => Failure {
            message: format!("{name} cannot be executed: {error}."),
            status: NOT_EXECUTABLE,
        },
    }
}
