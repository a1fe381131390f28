//! The MPI installations that jobs run under.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fmt, fs, io};

use crate::wheels;

/// Names an installation that may be missing; set to run the rest nevertheless.
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

/// Where an MPI comes from.
enum Origin {
    /// Packages of the distribution, whose commands end in this suffix: plain `mpicc` is whichever
    /// the system's alternatives chose.
    Packages { suffix: &'static str, packages: &'static str },
    /// A virtual environment ([`wheels`]), and the one that has a compiler for it.
    Wheel { name: &'static str, compilers: &'static str, compiler_suffix: &'static str },
}

impl Mpi {
    /// All of them.
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
            // Intel's wheel is for running only; what is compiled for an ABI runs with any MPI of it.
            Self::Intel => Origin::Wheel { name: "intel", compilers: "mpich", compiler_suffix: "" },
            Self::IntelStandard => {
                Origin::Wheel { name: "intel", compilers: "mpich", compiler_suffix: "_abi" }
            }
        }
    }

    /// The name of its ABI in a summary.
    pub const fn abi(self) -> &'static str {
        match self {
            Self::Mpich | Self::MpichWheel | Self::Intel => "mpich",
            Self::OpenMpi | Self::OpenMpiWheel => "openmpi",
            Self::MpichWheelStandard | Self::IntelStandard => "standard",
        }
    }

    /// How its name begins in a summary.
    pub const fn library(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH 4.",
            Self::OpenMpi => "Open MPI v4.",
            Self::MpichWheel | Self::MpichWheelStandard => "MPICH 5.",
            Self::OpenMpiWheel => "Open MPI v5.",
            Self::Intel | Self::IntelStandard => "Intel(R) MPI Library 20",
        }
    }

    /// Name of the folder of the subjects that are compiled for it.
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

    /// So many ranks that sleep do not disturb each other on two cores.
    pub const fn ranks(self) -> u32 {
        match self {
            Self::Mpich | Self::MpichWheel | Self::MpichWheelStandard => 2,
            _ => 4,
        }
    }

    /// Its compiler wrapper of that name: `mpicc`, `mpicxx` or `mpifort`.
    pub fn compiler(self, name: &str) -> PathBuf {
        match self.origin() {
            Origin::Packages { suffix, .. } => format!("{name}.{suffix}").into(),
            Origin::Wheel { compilers, compiler_suffix, .. } => {
                wheels::environment(compilers).join("bin").join(format!("{name}{compiler_suffix}"))
            }
        }
    }

    /// Its launcher.
    pub fn launcher(self) -> PathBuf {
        match self.origin() {
            Origin::Packages { suffix, .. } => format!("mpiexec.{suffix}").into(),
            Origin::Wheel { name, .. } => wheels::environment(name).join("bin/mpiexec"),
        }
    }

    /// The Python that has mpi4py for it.
    pub fn python(self) -> PathBuf {
        let name = match self.origin() {
            Origin::Packages { .. } => wheels::SYSTEM,
            Origin::Wheel { name, .. } => name,
        };
        wheels::environment(name).join("bin/python3")
    }

    /// Whether jobs can run under it. If not, says on stderr what is skipped and returns false: the
    /// test then ends. A wheel may be missing only if it cannot be had, a package only if the user
    /// said so by [`SKIP_VARIABLE`].
    ///
    /// # Panics
    /// If a package is not installed and the user did not say that this is fine.
    pub fn available(self) -> bool {
        match self.why_unavailable() {
            None => true,
            Some(reason) => {
                skip(&format!("{reason}: a test that needs {self}"));
                false
            }
        }
    }

    /// Why no job can run under it, unless it can.
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

    /// Why mpi4py is not there for it, unless it is. The wheels' environments hold both.
    pub fn why_no_python(self) -> Option<String> {
        match self.origin() {
            Origin::Packages { .. } => wheels::unavailable(wheels::SYSTEM),
            Origin::Wheel { .. } => None,
        }
    }

    /// Variables that its launcher and its ranks need.
    pub fn variables(self) -> Vec<(&'static str, OsString)> {
        let mut variables: Vec<(&'static str, OsString)> = Vec::new();
        if self.abi() == "openmpi" {
            // It refuses to start as root unless told twice; in a container that is the rule.
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

    /// The launcher with its arguments, up to where those of the program begin. The environment
    /// still needs [`Mpi::variables`].
    pub fn launch(self, ranks: u32) -> Command {
        let mut command = Command::new(self.launcher());
        command.args(self.launcher_arguments()).args(["-n", &ranks.to_string()]);
        command
    }

    /// Variables by which mpi4py finds it, beyond [`Mpi::variables`].
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

    /// Arguments of the launcher that come before the numbers of ranks.
    pub(crate) fn launcher_arguments(self) -> &'static [&'static str] {
        if self.abi() == "openmpi" { &["--oversubscribe"] } else { &[] }
    }

    /// Arguments of the launcher that set a variable in the ranks, but not in the launcher itself.
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

/// Says on stderr that something was left out.
pub fn skip(what: &str) {
    tell(&format!("SKIPPED: {what}"));
}

/// Says something on stderr. Written around the test runner, which shows what passing tests print
/// to nobody.
pub fn tell(what: &str) {
    // If stderr is closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "{what}");
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
