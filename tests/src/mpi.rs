//! The MPI installations that jobs run under.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::{env, fmt, fs, io};

/// Names an installation that may be missing; set to run the rest nevertheless.
pub const SKIP_VARIABLE: &str = "PLIMSOLL_TESTS_SKIP_MPI";

/// An MPI library, as Debian and Ubuntu package it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mpi {
    /// MPICH. Its collectives spin, so that more ranks than cores take 10 to 100 ms each: 2 ranks.
    Mpich,
    /// Open MPI. Yields when there are more ranks than cores: any number of ranks that sleep.
    OpenMpi,
}

impl Mpi {
    /// Suffix of its commands: plain `mpicc` is whichever the system's alternatives chose.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
        }
    }

    const fn packages(self) -> &'static str {
        match self {
            Self::Mpich => "mpich libmpich-dev",
            Self::OpenMpi => "openmpi-bin libopenmpi-dev",
        }
    }

    /// The name of its ABI in a summary.
    pub const fn abi(self) -> &'static str {
        self.suffix()
    }

    /// Its compiler wrapper for C.
    pub fn compiler(self) -> String {
        format!("mpicc.{}", self.suffix())
    }

    /// Its launcher.
    pub fn launcher(self) -> String {
        format!("mpiexec.{}", self.suffix())
    }

    /// Whether jobs can run under it. If not, and the user said so by [`SKIP_VARIABLE`], says on
    /// stderr what is skipped and returns false: the test then ends.
    ///
    /// # Panics
    /// If it is not installed and the user did not say that this is fine.
    pub fn available(self) -> bool {
        let missing: Vec<_> = [self.compiler(), self.launcher()]
            .into_iter()
            .filter(|command| find_command(command).is_none())
            .collect();
        if missing.is_empty() {
            return true;
        }
        let missing = missing.join(" and ");
        assert!(
            env::var_os(SKIP_VARIABLE).is_some(),
            "{missing} not found: install it with `apt-get install {}`, or set {SKIP_VARIABLE}=1 \
             to run the tests that need no {self}",
            self.packages()
        );
        skip(&format!("{missing} not found: a test that needs {self}"));
        false
    }

    /// Arguments of the launcher that come before the numbers of ranks.
    pub(crate) fn launcher_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Mpich => &[],
            Self::OpenMpi => &["--oversubscribe"],
        }
    }

    /// Arguments of the launcher that set a variable in the ranks, but not in the launcher itself.
    pub(crate) fn set_variable(self, name: &str, value: OsString) -> Vec<OsString> {
        match self {
            Self::Mpich => vec!["-genv".into(), name.into(), value],
            Self::OpenMpi => {
                let mut both = OsString::from(format!("{name}="));
                both.push(value);
                vec!["-x".into(), both]
            }
        }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// Says on stderr that something was left out. Written around the test runner, which shows what
/// passing tests print to nobody.
pub fn skip(what: &str) {
    // If stderr is closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "SKIPPED: {what}");
}

/// The first executable of that name on the PATH.
pub fn find_command(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;

    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_on_the_path_only() {
        assert!(find_command("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_command("plimsoll-no-such-command"), None);
    }
}
