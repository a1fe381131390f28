//! Checks of the machine, its limits and the environment.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use plimsoll_binary::default_cache_folder;
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::{LIBRARY, Settings, Warning};

use super::check::Check;
use super::{own_command, trial};
use crate::preload_library;

/// Minimum free space for spools and reports, in bytes.
const MIN_FREE_BYTES: u64 = 64 << 20;
/// Limit on sizes and on address space below which parts of the measurement are switched off, in
/// bytes.
const MIN_LIMIT_BYTES: u64 = 1 << 30;
/// Limit on processes below which the library's two threads per process may not start.
const MIN_PROCESSES: u64 = 64;

/// Runs all checks of the machine, the most important first.
pub fn checks(settings: &Settings, warnings: &[Warning]) -> Vec<Check> {
    let mut checks = vec![platform()];
    match own_command() {
        Some(command) => match preload_library::find(&command, env::var_os(LIBRARY).as_deref()) {
            Ok(path) => {
                checks.push(Check::ok("library", shown(&path).to_string()));
                checks.extend(trial::checks(&command));
            }
            // The second sentence says what to do.
            Err(message) => {
                let (found, remedy) =
                    message.split_once(". ").unwrap_or((&message, "Correct or unset it."));
                checks.push(Check::failed("library", found, remedy));
            }
        },
        None => checks.push(Check::failed(
            "library",
            "the place of this command is unknown",
            format!("Set {LIBRARY} to the path of libplimsoll.so."),
        )),
    }
    checks.push(cores());
    checks.extend(limits());
    checks.push(settings_check(settings, warnings));
    checks.push(directory("output", &output_directory(settings)));
    checks.push(cache());
    checks
}

fn platform() -> Check {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let found = format!("{} {} {}", env::consts::OS, kernel.trim(), env::consts::ARCH);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        Check::ok("platform", found)
    } else {
        Check::failed("platform", found, "Plimsoll measures on x86-64 Linux only.")
    }
}

fn cores() -> Check {
    match thread::available_parallelism() {
        Ok(cores) => Check::ok("cores", format!("{cores} allowed to this process")),
        Err(error) => Check::limited(
            "cores",
            format!("unknown: {error}"),
            "Reports cannot separate waiting for a core from other waiting.",
        ),
    }
}

/// Returns checks of the shell's limits, as far as they are small enough to matter.
fn limits() -> Vec<Check> {
    let soft = |resource| getrlimit(resource).map_or(RLIM_INFINITY, |(soft, _)| soft);
    let mut checks = Vec::new();
    for (resource, what, option) in [
        (Resource::RLIMIT_FSIZE, "the size of files", "-f"),
        (Resource::RLIMIT_AS, "address space", "-v"),
    ] {
        let limit = soft(resource);
        if limit < MIN_LIMIT_BYTES {
            checks.push(Check::limited(
                "limits",
                format!("{what} is limited to {} KiB", limit >> 10),
                format!("Raise it (`ulimit {option} unlimited`), or fewer threads are sampled."),
            ));
        }
    }
    let processes = soft(Resource::RLIMIT_NPROC);
    if processes < MIN_PROCESSES {
        checks.push(Check::limited(
            "limits",
            format!("processes of this user are limited to {processes}"),
            "Raise it (`ulimit -u`): the library needs two threads in each process.",
        ));
    }
    if checks.is_empty() {
        checks.push(Check::ok("limits", "none that is small enough to matter"));
    }
    checks
}

fn settings_check(settings: &Settings, warnings: &[Warning]) -> Check {
    if settings.disable {
        let found = "PLIMSOLL_DISABLE is set: nothing is measured";
        Check::failed("settings", found, "Unset it.")
    } else if warnings.is_empty() {
        Check::ok("settings", "all PLIMSOLL_ variables are understood")
    } else {
        let found: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let remedy = "Correct or unset them; until then the defaults are used.";
        Check::limited("settings", found.join(" "), remedy)
    }
}

/// Returns the directory in PLIMSOLL_OUTPUT, up to the first component with a placeholder.
fn output_directory(settings: &Settings) -> PathBuf {
    let output = Path::new(&settings.output);
    let fixed = output.ancestors().find(|part| !part.to_string_lossy().contains('%'));
    fixed.filter(|part| !part.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn cache() -> Check {
    match default_cache_folder() {
        Some(folder) => directory("cache", &folder),
        None => Check::limited(
            "cache",
            "neither XDG_CACHE_HOME nor HOME is an absolute path",
            "Set one: loops and lines of programs are then looked up only once.",
        ),
    }
}

/// Checks that files can be created in a directory, or in its nearest existing parent.
fn directory(name: &'static str, wanted: &Path) -> Check {
    let whole = std::path::absolute(wanted).unwrap_or_else(|_| wanted.to_owned());
    let Some(place) = whole.ancestors().find(|place| place.exists()) else {
        return Check::limited(
            name,
            format!("{} cannot be made", shown(&whole)),
            "Choose another.",
        );
    };
    if let Err(error) = tempfile::Builder::new().prefix(".plimsoll-doctor-").tempfile_in(place) {
        return Check::limited(
            name,
            format!("nothing can be written in {}: {error}", shown(place)),
            if name == "output" {
                "Set PLIMSOLL_OUTPUT to a directory that you may write in."
            } else {
                "Set XDG_CACHE_HOME to a directory that you may write in."
            },
        );
    }
    let free = statvfs(place).map(|system| system.blocks_available() * system.fragment_size());
    match free {
        Ok(free) if free < MIN_FREE_BYTES => Check::limited(
            name,
            format!("{} has {} MiB left", shown(&whole), free >> 20),
            "Make room: spools give samples up where a disk is nearly full.",
        ),
        _ => Check::ok(name, shown(&whole).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    #[test]
    fn a_directory_is_judged_by_writing_in_it() {
        let root = tempfile::tempdir().unwrap();
        let check = directory("output", &root.path().join("a/b/c"));
        assert_eq!(check.state, State::Ok, "{check:?}");
        assert!(!root.path().join("a").exists());
        // A file occupies the name of the directory.
        std::fs::write(root.path().join("file"), "").unwrap();
        let check = directory("output", &root.path().join("file/b"));
        assert_eq!(check.state, State::Limited, "{check:?}");
        assert!(check.remedy.unwrap().contains("PLIMSOLL_OUTPUT"));
    }

    #[test]
    fn placeholders_name_no_directory() {
        let of = |output: &str| {
            let variable = ("PLIMSOLL_OUTPUT".into(), output.into());
            output_directory(&Settings::from_env([variable]).0)
        };
        assert!(of("/scratch/%j/%e").ends_with("scratch"));
        assert!(of("reports").ends_with("reports"));
    }

    #[test]
    fn settings_that_are_not_understood_or_switch_all_off_are_named() {
        let check = |name: &str, value: &str| {
            let (settings, warnings) = Settings::from_env([(name.into(), value.into())]);
            settings_check(&settings, &warnings)
        };
        let unreadable = check("PLIMSOLL_PERIOD", "fast");
        assert_eq!(unreadable.state, State::Limited);
        assert!(unreadable.found.contains("PLIMSOLL_PERIOD=fast"));
        let variables = [("PLIMSOLL_PERIOD", "fast"), ("PLIMSOLL_FROBNICATE", "1")];
        let (settings, warnings) =
            Settings::from_env(variables.map(|(name, value)| (name.into(), value.into())));
        let found = settings_check(&settings, &warnings).found;
        assert!(found.contains("is used. PLIMSOLL_FROBNICATE is unknown"), "{found}");
        assert_eq!(check("PLIMSOLL_DISABLE", "0").state, State::Ok);
        let off = check("PLIMSOLL_DISABLE", "yes");
        assert_eq!(off.state, State::Failed);
        assert!(off.found.contains("PLIMSOLL_DISABLE"));
    }
}
