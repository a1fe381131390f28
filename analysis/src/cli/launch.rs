//! `plimsoll run`: sets the environment and becomes the program.

use std::collections::BTreeMap;
use std::env;
use std::ffi::CString;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use nix::unistd::execvpe;

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

/// Environment of the program.
type Environment = BTreeMap<OsString, OsString>;

/// Becomes the program; returns only if that failed.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let words: Vec<&OsString> =
        matches.get_many::<OsString>(PROGRAM).into_iter().flatten().collect();
    let Some(program) = words.first() else {
        return Err(Failure { message: "no program is given.".into(), status: USAGE });
    };
    let mut environment: Environment = env::vars_os().collect();
    for variable in TABLE.iter().filter(|variable| variable.state != State::Internal) {
        if let Some(value) = matches.get_one::<OsString>(variable.name) {
            environment.insert(variable.name.into(), value.clone());
        }
    }
    let disabled = environment
        .get(OsStr::new("PLIMSOLL_DISABLE"))
        .is_some_and(|value| parse_boolean(&value.to_string_lossy()) == Some(true));
    if !disabled {
        prepare(&mut environment).map_err(|message| Failure { message, status: NO_LIBRARY })?;
        warn(program, matches);
    }
    Err(not_started(program, &become_program(&words, &environment)))
}

/// Replaces this process by the program. The bare system interface, because std's would reset the
/// signal mask and SIGPIPE's disposition, which the program inherits from its launcher.
fn become_program(words: &[&OsString], environment: &Environment) -> io::Error {
    let string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let words: Result<Vec<CString>, _> = words.iter().map(|word| string(word.as_bytes())).collect();
    let pairs = environment.iter().map(|(name, value)| {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        string(&pair.into_vec())
    });
    match (words, pairs.collect::<Result<Vec<CString>, _>>()) {
        (Ok(words), Ok(pairs)) => match execvpe(&words[0], &words, &pairs) {
            Err(errno) => errno.into(),
            Ok(never) => match never {},
        },
        (Err(error), _) | (_, Err(error)) => error,
    }
}

fn prepare(environment: &mut Environment) -> Result<(), String> {
    let own = env::current_exe().map_err(|error| {
        format!("the place of this command is unknown ({error}); set {LIBRARY} to libplimsoll.so.")
    })?;
    let library = library::find(&own, env::var_os(LIBRARY).as_deref())?;
    let preload = library::preload(&library, env::var_os("LD_PRELOAD").as_deref())?;
    // exec keeps the process id: the library knows by it that this process is meant, and not one
    // of its children, which inherit the environment.
    environment.insert("LD_PRELOAD".into(), preload);
    environment.insert(ROOT_PID.into(), std::process::id().to_string().into());
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
