//! Describes a job and runs it: which subject, under which MPI, how many ranks, watched or not.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::artifacts::{artifacts, target_dir};
use crate::mpi::Mpi;
use crate::outcome::Outcome;
use crate::scratch::Scratch;
use crate::subject::{Form, Program, program};
use crate::turn::{share_turn, wait_for_turn};
use crate::undisturbed::undisturbed;
use crate::{mpi, nodes, process};

/// How Plimsoll comes into the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Not at all: the subject as it is.
    Off,
    /// `plimsoll run -- ./subject` between launcher and program.
    Run,
    /// LD_PRELOAD, set by the launcher.
    Preload,
    /// LD_PRELOAD for this one of two ranks only, the other as it is.
    PreloadRank(u32),
    /// LD_PRELOAD for all ranks but this one.
    PreloadAllBut(u32),
}

/// A job to be run.
#[derive(Clone, Debug)]
pub struct Job {
    subject: String,
    form: Form,
    mpi: Option<(Mpi, u32)>,
    nodes: Option<u32>,
    /// Further programs of the same world, and their ranks.
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
    /// A subject without MPI.
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

    /// A subject in so many ranks.
    pub fn ranks(subject: &str, mpi: Mpi, ranks: u32) -> Self {
        Self { mpi: Some((mpi, ranks)), ..Self::alone(subject) }
    }

    /// Puts the ranks on so many made nodes, the same number on each ([`crate::nodes`]).
    #[must_use]
    pub const fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Says in which language the subject is written and how it comes to its MPI, if not in C and
    /// by a shared library.
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

    /// The subject's arguments, separated by blanks.
    #[must_use]
    pub fn arguments(mut self, arguments: &str) -> Self {
        self.arguments = arguments.split_whitespace().map(OsString::from).collect();
        self
    }

    /// Sets a variable in the environment of the launcher and, by it, of the ranks.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets after how long the job is ended by force; a minute otherwise.
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

    /// Options of env(1), separated by blanks: what a job without MPI inherits from its parent,
    /// such as blocked and ignored signals.
    #[must_use]
    pub fn inherits(mut self, options: &str) -> Self {
        self.inherited.extend(options.split_whitespace().map(OsString::from));
        self
    }

    /// Says how Plimsoll comes in.
    #[must_use]
    pub const fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Says that nothing is measured of it that others on the same cores would change: it runs beside others
    /// of which this is said.
    #[must_use]
    pub const fn shares_cores(mut self) -> Self {
        self.shares_cores = true;
        self
    }

    /// Whether it has ranks of an MPI.
    pub const fn has_ranks(&self) -> bool {
        self.mpi.is_some()
    }

    /// Runs it in a new directory and collects what came of it.
    ///
    /// # Panics
    /// If it cannot be built or started, or hangs.
    pub fn run(&self) -> Outcome {
        self.run_in(Scratch::new(self.subject.rsplit('/').next().unwrap_or_default()))
    }

    /// Runs it until the assertions hold of what was measured ([`undisturbed`]). That it succeeds, and that
    /// its summaries are sound ([`Outcome::summaries`]), must hold in every run.
    ///
    /// # Panics
    /// As [`Job::run`]; if a run fails or a summary is unsound; as the assertions do, of the last run.
    pub fn shows(&self, assertions: impl Fn(&Outcome)) -> Outcome {
        undisturbed(|| self.run().succeeded(), assertions)
    }

    /// Runs it in a directory where something lies already, say an earlier report.
    ///
    /// # Panics
    /// As [`Job::run`].
    pub fn run_in(&self, scratch: Scratch) -> Outcome {
        let _turn = if self.shares_cores { share_turn() } else { wait_for_turn() };
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
        // What is kept of programs for other jobs is not the tester's.
        command.env("XDG_CACHE_HOME", target_dir().join("cache"));
        // With the samples of all ranks, a digest can be held against the report.
        command.env("PLIMSOLL_TRACE", "all");
        command.envs(subject.variables.iter().map(|(name, value)| (name, value)));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let shown = format!("{command:?}");
        let finished = process::run(command, scratch.path(), self.limit);
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

    /// The launcher, up to where the numbers of ranks come; on made nodes these are in already.
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
        // Through env in every case, so that what the subject inherits is the same.
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

/// Becomes the program, preloaded in all ranks but one: that rank, the library, the program.
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

/// What the person who runs the tests has set for jobs of their own.
fn inherited_settings() -> impl Iterator<Item = OsString> {
    let ours = |name: &OsString| {
        name == "LD_PRELOAD" || name.to_str().is_some_and(|name| name.starts_with("PLIMSOLL_"))
    };
    std::env::vars_os().map(|(name, _)| name).filter(ours)
}

/// The distribution's MPIs, those that are available ([`Mpi::available`]).
pub fn each_mpi() -> impl Iterator<Item = Mpi> {
    [Mpi::Mpich, Mpi::OpenMpi].into_iter().filter(|mpi| mpi.available())
}

/// A command of the system that a test needs beside its job.
///
/// # Panics
/// If it is not installed: says what provides it.
pub fn required_command(name: &str, package: &str) -> PathBuf {
    mpi::find_command(name)
        .unwrap_or_else(|| panic!("{name} not found: install it with `apt-get install {package}`"))
}
