//! `plimsoll run`: sets the environment and becomes the program.

use std::collections::BTreeMap;
use std::env;
use std::ffi::CString;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use nix::unistd::execvpe;

use crate::elf::{Obstacle, obstacle};
use crate::options::PROGRAM;
use crate::{Failure, USAGE, preload_library, say};
use plimsoll_comm::mpi::launcher::launcher_rank;
use plimsoll_summary::error::reason;
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::{LIBRARY, ROOT_PID, Settings, State, TABLE, parse_boolean};
use plimsoll_sys::own_files::open_regular;

/// Exit status of a shell for a missing program.
const NOT_FOUND: u8 = 127;
/// Exit status of a shell for a program that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status if Plimsoll's own library is missing.
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
    if !disabled && is_valgrind(program) {
        // valgrind reads the unwind tables of every library, fails at those of marks, and
        // reports that at length.
        if speaks(matches) {
            say(NOT_BESIDE_VALGRIND);
        }
    } else if !disabled {
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
    let own = own_place(env::current_exe(), env::args_os().next());
    let own = own.ok_or_else(|| {
        format!("the place of this command is unknown; set {LIBRARY} to libplimsoll.so.")
    })?;
    let library = preload_library::find(&own, env::var_os(LIBRARY).as_deref())?;
    let preload = preload_library::preload(&library, env::var_os("LD_PRELOAD").as_deref())?;
    // exec keeps the process id: the library knows by it that this process is meant, and not one
    // of its children, which inherit the environment.
    environment.insert("LD_PRELOAD".into(), preload);
    environment.insert(ROOT_PID.into(), std::process::id().to_string().into());
    Ok(())
}

/// Returns the path of this command, which the library lies beside: from the kernel or, without
/// /proc, from the name in the call.
pub fn own_place(from_kernel: io::Result<PathBuf>, name: Option<OsString>) -> Option<PathBuf> {
    let called = || std::path::absolute(find(&name?)?).ok();
    from_kernel.ok().or_else(called)
}

const NOT_BESIDE_VALGRIND: &str = "the program runs under valgrind: nothing is measured beside it";

/// Returns whether the program is valgrind, which starts another program inside itself.
fn is_valgrind(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "valgrind" || name == "valgrind.bin")
}

/// Returns whether to print messages: unless silenced, and on one rank only.
fn speaks(matches: &ArgMatches) -> bool {
    let given = matches.get_one::<OsString>("PLIMSOLL_VERBOSE").cloned();
    let verbose = given.or_else(|| env::var_os("PLIMSOLL_VERBOSE")).unwrap_or_default();
    let (settings, _) = Settings::from_env([("PLIMSOLL_VERBOSE".into(), verbose)]);
    settings.verbose != 0 && launcher_rank().is_none_or(|rank| rank == 0)
}

/// Shells. Of the programs started by a shell, only MPI programs are measured.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "zsh", "fish"];

/// Programs that start others in containers.
const CONTAINERS: [&str; 4] = ["apptainer", "singularity", "docker", "podman"];

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn of_shell(shell: &str) -> String {
    format!(
        "{shell} is a shell: of the programs that it starts, those with MPI are measured, and the \
         one that replaces it by exec. For another one without MPI, start the shell by itself and \
         that program by `plimsoll run`."
    )
}

/// Returns the name of the shell that executes a file; `None` if none does.
fn shell_of_script(path: &Path) -> Option<String> {
    let mut first = [0; 256];
    let length = open_regular(path).and_then(|mut file| file.read(&mut first)).ok()?;
    let command = first[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let interpreter = interpreter(String::from_utf8_lossy(command).trim())?;
    is_shell(&interpreter).then(|| file_name(&interpreter).to_owned())
}

/// Returns whether a program is a shell, by its name.
pub fn is_shell(program: &Path) -> bool {
    SHELLS.contains(&file_name(program))
}

/// Returns the path of the program that executes a script, from the command in its first line;
/// `None` if PATH does not have the name that env(1) looks up there.
pub fn interpreter(command: &str) -> Option<PathBuf> {
    let mut words = command.split_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first.into());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    find(OsStr::new(name))
}

/// Warns if the library will not be loaded into the program, or only into parts of it.
fn warn(program: &OsStr, matches: &ArgMatches) {
    if !speaks(matches) {
        return;
    }
    let name = file_name(Path::new(program));
    if is_shell(Path::new(program)) {
        return say(&of_shell(name));
    }
    if CONTAINERS.contains(&name) {
        return say(&format!(
            "{name} starts a container: put `plimsoll run` inside, before the program. Otherwise \
             nothing may be measured."
        ));
    }
    let Some(path) = find(program) else { return };
    // A launcher starts programs with MPI, also by scripts.
    if let (None, Some(shell)) = (launcher_rank(), shell_of_script(&path)) {
        return say(&format!("{} is a script. {}", shown(&path), of_shell(&shell)));
    }
    match obstacle(&path) {
        Some(Obstacle::Static) => say(&format!(
            "{} is statically linked: nothing can be preloaded into it, so nothing is measured. \
             Link it dynamically.",
            shown(&path)
        )),
        Some(Obstacle::Privileged) => say(&format!(
            "{} runs with rights that its user does not have (set-user-id or capabilities): \
             nothing can be preloaded into it, so nothing is measured.",
            shown(&path)
        )),
        None => {}
    }
}

/// Returns the file that exec executes: as given, or the first executable of that name in PATH.
pub fn find(program: &OsStr) -> Option<PathBuf> {
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
    let name = shown(Path::new(program)).to_string();
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
            message: format!("{name} cannot be executed: {}.", reason(error)),
            status: NOT_EXECUTABLE,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_proc_the_name_in_the_call_gives_the_path() {
        let unknown = || Err(io::ErrorKind::NotFound.into());
        let place = |name: &str| own_place(unknown(), Some(name.into()));
        assert_eq!(place("/opt/bin/plimsoll"), Some("/opt/bin/plimsoll".into()));
        let here = env::current_dir().unwrap();
        assert_eq!(place("bin/plimsoll"), Some(here.join("bin/plimsoll")));
        assert!(place("sh").is_some_and(|path| path.is_absolute() && path.ends_with("sh")));
        assert_eq!(own_place(unknown(), None), None);
        assert_eq!(own_place(Ok("/x".into()), None), Some("/x".into()));
    }
}
