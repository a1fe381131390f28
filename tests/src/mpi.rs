//! The MPI installations that jobs run under.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fmt, fs, io};

use crate::wheels;

/// Environment variable that, if set, allows packages of an MPI to be missing: the tests that do
/// not need that MPI run nevertheless.
pub const SKIP_VARIABLE: &str = "PLIMSOLL_TESTS_SKIP_MPI";

/// An MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mpi {
    /// Debian's and Ubuntu's MPICH. Its collectives spin, so that more ranks than cores take 10 to
    /// 100 ms each: 2 ranks.
    Mpich,
    /// Debian's and Ubuntu's Open MPI. Yields when there are more ranks than cores: any number of
    /// ranks that sleep.
    OpenMpi,
    /// The wheel `mpich`, in MPICH's own ABI.
    MpichWheel,
    /// The wheel `mpich`, in the standard ABI of MPI 5.
    MpichWheelStandard,
    /// The wheel `openmpi`.
    OpenMpiWheel,
    /// The wheel `impi-rt`: Intel MPI, in MPICH's ABI.
    Intel,
    /// The wheel `impi-rt`, in the standard ABI.
    IntelStandard,
}

/// Origin of an MPI.
enum Origin {
    /// Packages of the distribution, with commands that end in this suffix: the system's
    /// alternatives choose what plain `mpicc` is.
    Packages { suffix: &'static str, packages: &'static str },
    /// A virtual environment ([`wheels`]), and the environment with a compiler for it.
    Wheel { name: &'static str, compilers: &'static str, compiler_suffix: &'static str },
}

impl Mpi {
    /// All MPIs.
    pub const ALL: [Self; 7] = [
        Self::Mpich,
        Self::OpenMpi,
        Self::MpichWheel,
        Self::MpichWheelStandard,
        Self::OpenMpiWheel,
        Self::Intel,
        Self::IntelStandard,
    ];

    const fn origin(self) -> Origin {
        match self {
            Self::Mpich => Origin::Packages { suffix: "mpich", packages: "mpich libmpich-dev" },
            Self::OpenMpi => {
                Origin::Packages { suffix: "openmpi", packages: "openmpi-bin libopenmpi-dev" }
            }
            Self::MpichWheel => {
                Origin::Wheel { name: "mpich", compilers: "mpich", compiler_suffix: "" }
            }
            Self::MpichWheelStandard => {
                Origin::Wheel { name: "mpich", compilers: "mpich", compiler_suffix: "_abi" }
            }
            Self::OpenMpiWheel => {
                Origin::Wheel { name: "openmpi", compilers: "openmpi", compiler_suffix: "" }
            }
            // Intel's wheel has no compiler; a program compiled for an ABI runs with any MPI of
            // that ABI.
            Self::Intel => Origin::Wheel { name: "intel", compilers: "mpich", compiler_suffix: "" },
            Self::IntelStandard => {
                Origin::Wheel { name: "intel", compilers: "mpich", compiler_suffix: "_abi" }
            }
        }
    }

    /// Returns the name of the MPI's ABI in a summary.
    pub const fn abi(self) -> &'static str {
        match self {
            Self::Mpich | Self::MpichWheel | Self::Intel => "mpich",
            Self::OpenMpi | Self::OpenMpiWheel => "openmpi",
            Self::MpichWheelStandard | Self::IntelStandard => "standard",
        }
    }

    /// Returns the begin of the MPI's name in a summary.
    pub const fn library(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH 4.",
            Self::OpenMpi => "Open MPI v4.",
            Self::MpichWheel | Self::MpichWheelStandard => "MPICH 5.",
            Self::OpenMpiWheel => "Open MPI v5.",
            Self::Intel | Self::IntelStandard => "Intel(R) MPI Library 20",
        }
    }

    /// Returns the name of the folder of subjects compiled for the MPI.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
            Self::MpichWheel => "mpich-wheel",
            Self::MpichWheelStandard => "mpich-wheel-standard",
            Self::OpenMpiWheel => "openmpi-wheel",
            Self::Intel => "intel",
            Self::IntelStandard => "intel-standard",
        }
    }

    /// Returns the number of sleeping ranks that do not disturb each other on two cores.
    pub const fn ranks(self) -> u32 {
        match self {
            Self::Mpich | Self::MpichWheel | Self::MpichWheelStandard => 2,
            _ => 4,
        }
    }

    /// Returns the path of a compiler wrapper: `mpicc`, `mpicxx` or `mpifort`.
    pub fn compiler(self, name: &str) -> PathBuf {
        match self.origin() {
            Origin::Packages { suffix, .. } => format!("{name}.{suffix}").into(),
            Origin::Wheel { compilers, compiler_suffix, .. } => {
                wheels::environment(compilers).join("bin").join(format!("{name}{compiler_suffix}"))
            }
        }
    }

    /// Returns the path of the launcher.
    pub fn launcher(self) -> PathBuf {
        match self.origin() {
            Origin::Packages { suffix, .. } => format!("mpiexec.{suffix}").into(),
            Origin::Wheel { name, .. } => wheels::environment(name).join("bin/mpiexec"),
        }
    }

    /// Returns the path of the Python that has mpi4py for the MPI.
    pub fn python(self) -> PathBuf {
        let name = match self.origin() {
            Origin::Packages { .. } => wheels::SYSTEM,
            Origin::Wheel { name, .. } => name,
        };
        wheels::environment(name).join("bin/python3")
    }

    /// Returns whether jobs can run under the MPI. If not, reports the skip on stderr, and the test
    /// ends. A wheel may be missing only if it is not available for the machine, a package only if
    /// the user allows that by [`SKIP_VARIABLE`].
    ///
    /// # Panics
    /// If a package is missing and not allowed to be.
    pub fn available(self) -> bool {
        match self.why_unavailable() {
            None => true,
            Some(reason) => {
                skip(&format!("{reason}: a test that needs {self}"));
                false
            }
        }
    }

    /// Returns why no job can run under the MPI; `None` if jobs can run.
    ///
    /// # Panics
    /// As [`Mpi::available`].
    pub fn why_unavailable(self) -> Option<String> {
        let packages = match self.origin() {
            Origin::Packages { packages, .. } => packages,
            Origin::Wheel { name, compilers, .. } => {
                return wheels::unavailable(name).or_else(|| wheels::unavailable(compilers));
            }
        };
        let missing: Vec<_> = [self.compiler("mpicc"), self.launcher()]
            .into_iter()
            .map(|command| command.display().to_string())
            .filter(|command| find_command(command).is_none())
            .collect();
        if missing.is_empty() {
            return None;
        }
        let missing = missing.join(" and ");
        assert!(
            env::var_os(SKIP_VARIABLE).is_some(),
            "{missing} not found: install it with `apt-get install {packages}`, or set \
             {SKIP_VARIABLE}=1 to run the tests that need no {self}"
        );
        Some(format!("{missing} not found"))
    }

    /// Returns why mpi4py is missing for the MPI; `None` if it is there. The wheels' environments
    /// hold both.
    pub fn why_no_python(self) -> Option<String> {
        match self.origin() {
            Origin::Packages { .. } => wheels::unavailable(wheels::SYSTEM),
            Origin::Wheel { .. } => None,
        }
    }

    /// Returns the variables that the launcher and the ranks need.
    pub fn variables(self) -> Vec<(&'static str, OsString)> {
        let mut variables: Vec<(&'static str, OsString)> = Vec::new();
        if self.abi() == "openmpi" {
            // Open MPI starts as root, the rule in a container, only with both variables.
            for name in [
                "OMPI_ALLOW_RUN_AS_ROOT",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                "PRTE_ALLOW_RUN_AS_ROOT",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
            ] {
                variables.push((name, "1".into()));
            }
        }
        if let Origin::Wheel { name, .. } = self.origin() {
            variables.push(("LD_LIBRARY_PATH", wheels::environment(name).join("lib").into()));
        }
        variables
    }

    /// Returns the launcher with its arguments up to the program. The environment still needs
    /// [`Mpi::variables`].
    pub fn launch(self, ranks: u32) -> Command {
        let mut command = Command::new(self.launcher());
        command.args(self.launcher_arguments()).args(["-n", &ranks.to_string()]);
        command
    }

    /// Returns the variables by which mpi4py finds the MPI, beyond [`Mpi::variables`].
    pub fn python_variables(self) -> Vec<(&'static str, OsString)> {
        match self {
            Self::Mpich => vec![
                ("MPI4PY_MPIABI", "mpich".into()),
                ("LD_LIBRARY_PATH", wheels::environment(wheels::SYSTEM).join("mpich").into()),
            ],
            Self::OpenMpi => vec![("MPI4PY_MPIABI", "openmpi".into())],
            _ => Vec::new(),
        }
    }

    /// Returns the launcher's arguments before the number of ranks.
    pub(crate) fn launcher_arguments(self) -> &'static [&'static str] {
        if self.abi() == "openmpi" { &["--oversubscribe"] } else { &[] }
    }

    /// Returns the launcher's arguments that set a variable in the ranks, but not in the launcher.
    pub(crate) fn set_variable(self, name: &str, value: OsString) -> Vec<OsString> {
        if self.abi() == "openmpi" {
            let mut both = OsString::from(format!("{name}="));
            both.push(value);
            vec!["-x".into(), both]
        } else {
            vec!["-genv".into(), name.into(), value]
        }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Mpich => "MPICH 4",
            Self::OpenMpi => "Open MPI 4",
            Self::MpichWheel => "MPICH 5",
            Self::MpichWheelStandard => "MPICH 5, standard ABI",
            Self::OpenMpiWheel => "Open MPI 5",
            Self::Intel => "Intel MPI",
            Self::IntelStandard => "Intel MPI, standard ABI",
        })
    }
}

/// Ends the test if an MPI or an OpenMP runtime is not available, which reports the skip on stderr.
#[macro_export]
macro_rules! needs {
    ($what:expr) => {
        if !$what.available() {
            return;
        }
    };
}
pub use needs;

/// Reports on stderr that something was skipped.
pub fn skip(what: &str) {
    print_line(&format!("SKIPPED: {what}"));
}

/// Writes a line to stderr, around the test runner, which hides the output of tests that pass.
pub fn print_line(what: &str) {
    // A closed stderr is no error.
    let _ = writeln!(io::stderr(), "{what}");
}

/// Returns the first executable of this name on the PATH.
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
