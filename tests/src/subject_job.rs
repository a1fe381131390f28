//! Description and execution of a job: the subject, the MPI, the number of ranks, watched or not.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::artifacts::{artifacts, target_dir};
use crate::job_lock::{lock_exclusively, lock_shared};
use crate::mpi::Mpi;
use crate::outcome::Outcome;
use crate::retry_on_noise::{print_of_test, retry_on_noise};
use crate::scratch::Scratch;
use crate::subject::{Form, Program, program};
use crate::{mpi, nodes, process};

/// Way in which Plimsoll is loaded into the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Not loaded: the subject as it is.
    Off,
    /// `plimsoll run -- ./subject` between launcher and program.
    Run,
    /// LD_PRELOAD, set by the launcher.
    Preload,
    /// LD_PRELOAD for this one of two ranks only.
    PreloadRank(u32),
    /// LD_PRELOAD for all ranks but this one.
    PreloadAllBut(u32),
}

/// A job to run.
#[derive(Clone, Debug)]
pub struct Job {
    subject: String,
    form: Form,
    mpi: Option<(Mpi, u32)>,
    nodes: Option<u32>,
    /// Further programs of the same world, and their numbers of ranks.
    partners: Vec<(String, u32)>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    inherited: Vec<OsString>,
    watch: Watch,
    shares_cores: bool,
    limit: Duration,
}

impl Job {
    /// Creates a job of a subject without MPI.
    pub fn alone(subject: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            form: Form::C,
            mpi: None,
            nodes: None,
            partners: Vec::new(),
            arguments: Vec::new(),
            variables: Vec::new(),
            options: Vec::new(),
            inherited: Vec::new(),
            watch: Watch::Off,
            shares_cores: false,
            limit: Duration::from_secs(60),
        }
    }

    /// Creates a job of a subject in `ranks` ranks.
    pub fn ranks(subject: &str, mpi: Mpi, ranks: u32) -> Self {
        Self { mpi: Some((mpi, ranks)), ..Self::alone(subject) }
    }

    /// Distributes the ranks evenly over this many emulated nodes ([`crate::nodes`]).
    #[must_use]
    pub const fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Sets the subject's language and how it links to its MPI; by default C and a shared library.
    #[must_use]
    pub const fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Adds ranks that run another subject, with the same arguments, in the same world.
    #[must_use]
    pub fn and(mut self, subject: &str, ranks: u32) -> Self {
        self.partners.push((subject.to_owned(), ranks));
        self
    }

    /// Sets the subject's arguments, separated by blanks.
    #[must_use]
    pub fn arguments(mut self, arguments: &str) -> Self {
        self.arguments = arguments.split_whitespace().map(OsString::from).collect();
        self
    }

    /// Sets a variable in the environment of the launcher and, through it, of the ranks.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets the time after which the job is killed; by default one minute.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds options of `plimsoll run`, separated by blanks.
    #[must_use]
    pub fn options(mut self, options: &str) -> Self {
        self.options.extend(options.split_whitespace().map(OsString::from));
        self
    }

    /// Sets options of env(1), separated by blanks: what a job without MPI inherits from its
    /// parent, such as blocked and ignored signals.
    #[must_use]
    pub fn inherits(mut self, options: &str) -> Self {
        self.inherited.extend(options.split_whitespace().map(OsString::from));
        self
    }

    /// Sets how Plimsoll is loaded.
    #[must_use]
    pub const fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Declares that the job measures nothing that other jobs on the same cores would change: it
    /// runs beside other such jobs.
    #[must_use]
    pub const fn shares_cores(mut self) -> Self {
        self.shares_cores = true;
        self
    }

    /// Returns whether the job has ranks of an MPI.
    pub const fn has_ranks(&self) -> bool {
        self.mpi.is_some()
    }

    /// Runs the job in a new directory and collects its outcome.
    ///
    /// # Panics
    /// If the job cannot be built or started, or hangs.
    pub fn run(&self) -> Outcome {
        self.run_in(Scratch::new(self.subject.rsplit('/').next().unwrap_or_default()))
    }

    /// Runs the job until the assertions on its measurements hold ([`retry_on_noise`]). In every
    /// run, it must succeed and its summaries must be sound ([`Outcome::summaries`]).
    ///
    /// # Panics
    /// As [`Job::run`]; if a run fails or a summary is unsound; if the assertions fail for the last
    /// run.
    pub fn run_until(&self, assertions: impl Fn(&Outcome)) -> Outcome {
        retry_on_noise(|| self.run().succeeded(), assertions)
    }

    /// Runs the job in a directory with existing files, such as an earlier report.
    ///
    /// # Panics
    /// As [`Job::run`].
    pub fn run_in(&self, scratch: Scratch) -> Outcome {
        let _job_lock = if self.shares_cores { lock_shared() } else { lock_exclusively() };
        let made = |subject: &str| program(subject, self.form, self.mpi.map(|(mpi, _)| mpi));
        let subject = made(&self.subject);
        let partners: Vec<_> =
            self.partners.iter().map(|(subject, ranks)| (made(subject), *ranks)).collect();
        let truth = scratch.path().join("truth.json");
        let mut command = self.command(&subject, &partners);
        for name in inherited_settings() {
            command.env_remove(name);
        }
        command.env("SUBJECT_TRUTH", &truth);
        // The on-disk cache must not be that of the user who runs the tests.
        command.env("XDG_CACHE_HOME", target_dir().join("cache"));
        // With the samples of all ranks, a digest can be compared with the report.
        command.env("PLIMSOLL_TRACE", "all");
        command.envs(subject.variables.iter().map(|(name, value)| (name, value)));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let shown = format!("{command:?}");
        let mut run = || process::try_run(&mut command, scratch.path(), self.limit);
        let mut finished = run();
        // Launchers may hang after a rank has aborted the job, for reasons of their own.
        if let (Err(hang), Watch::Off) = (&finished, self.watch) {
            print_of_test("AGAIN", "without Plimsoll", hang);
            finished = run();
        }
        let finished = finished.unwrap_or_else(|hang| panic!("{hang}"));
        Outcome::new(shown, finished, scratch)
    }

    fn command(&self, subject: &Program, partners: &[(Program, u32)]) -> Command {
        let Some((mpi, ranks)) = self.mpi else { return self.command_alone(subject) };
        if self.watch != Watch::Off && self.nodes.is_some() {
            assert_ne!(self.watch, Watch::Preload, "on made nodes the launcher sets no variables");
        }
        let mut command = self.launch(mpi, ranks);
        if let Watch::PreloadRank(preloaded) = self.watch {
            assert_eq!(ranks, 2, "a partly preloaded job has two ranks");
            for rank in 0..ranks {
                if rank > 0 {
                    command.arg(":");
                }
                command.args(["-n", "1"]);
                if rank == preloaded {
                    command.arg("env").arg(preload_setting());
                }
                command.args(&subject.command).args(&self.arguments);
            }
            return command;
        }
        self.add_ranks(&mut command, mpi, subject, ranks);
        for (partner, ranks) in partners {
            command.arg(":");
            self.add_ranks(&mut command, mpi, partner, *ranks);
        }
        command
    }

    /// Returns the launcher with its arguments up to the number of ranks; on emulated nodes, the
    /// number of ranks is set already.
    fn launch(&self, mpi: Mpi, ranks: u32) -> Command {
        let Some(nodes) = self.nodes else {
            let mut command = Command::new(mpi.launcher());
            command.args(mpi.launcher_arguments());
            return command;
        };
        assert!(
            ranks.is_multiple_of(nodes),
            "{ranks} ranks are not as many on each of {nodes} nodes"
        );
        let mut command = Command::new(nodes::launcher());
        command.arg(mpi.abi()).args([nodes, ranks / nodes].map(|number| number.to_string()));
        command
    }

    fn add_ranks(&self, command: &mut Command, mpi: Mpi, subject: &Program, ranks: u32) {
        if self.watch == Watch::Preload {
            command.args(mpi.set_variable("LD_PRELOAD", artifacts().library.clone().into()));
        }
        if self.nodes.is_none() {
            command.args(["-n", &ranks.to_string()]);
        }
        self.add_program(command, subject);
    }

    fn command_alone(&self, subject: &Program) -> Command {
        assert!(
            !matches!(self.watch, Watch::PreloadRank(_)),
            "only a job with ranks can be preloaded in part"
        );
        // Always through env, so that the subject inherits the same.
        let mut command = Command::new("env");
        command.args(&self.inherited);
        if self.watch == Watch::Preload {
            command.arg(preload_setting());
        }
        self.add_program(&mut command, subject);
        command
    }

    fn add_program(&self, command: &mut Command, subject: &Program) {
        if self.watch == Watch::Run {
            command.arg(&artifacts().command).arg("run").args(&self.options).arg("--");
        }
        if let Watch::PreloadAllBut(rank) = self.watch {
            command.args(["sh", "-c", ALL_BUT_ONE, "sh"]).arg(rank.to_string());
            command.arg(&artifacts().library);
        }
        command.args(&subject.command).args(&self.arguments);
    }
}

/// Script that replaces itself by the program, with the library preloaded in all ranks but one.
/// Arguments: that rank, the library, the program.
const ALL_BUT_ONE: &str = r#"
one=$1 library=$2
shift 2
if [ "${PMIX_RANK:-$PMI_RANK}" != "$one" ]; then
    export LD_PRELOAD="$library"
fi
exec "$@"
"#;

fn preload_setting() -> OsString {
    let mut setting = OsString::from("LD_PRELOAD=");
    setting.push(&artifacts().library);
    setting
}

/// Returns the settings that the user who runs the tests has made for jobs of their own.
fn inherited_settings() -> impl Iterator<Item = OsString> {
    let ours = |name: &OsString| {
        name == "LD_PRELOAD" || name.to_str().is_some_and(|name| name.starts_with("PLIMSOLL_"))
    };
    std::env::vars_os().map(|(name, _)| name).filter(ours)
}

/// Returns the available MPIs of the distribution ([`Mpi::available`]).
pub fn each_mpi() -> impl Iterator<Item = Mpi> {
    [Mpi::Mpich, Mpi::OpenMpi].into_iter().filter(|mpi| mpi.available())
}

/// Returns a system command that a test needs beside its job.
///
/// # Panics
/// If it is not installed; the message names the package that provides it.
pub fn required_command(name: &str, package: &str) -> PathBuf {
    mpi::find_command(name)
        .unwrap_or_else(|| panic!("{name} not found: install it with `apt-get install {package}`"))
}
