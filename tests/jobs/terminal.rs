//! Output with names and values from elsewhere: without anything that a terminal interprets, and
//! without a line that only seems to be Plimsoll's.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use plimsoll_summary::settings::TABLE;
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_shared;
use plimsoll_tests::outcome::PREFIX;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Hostile bytes: terminal commands, line ends, an eight-bit CSI, right-to-left text, and bytes
/// that are not text.
const HOSTILE: &[u8] = b"\x1b]0;title\x07\x1b[31m\r\nplimsoll: forged\n\xc2\x9b2J\xe2\x80\xae\xff";

/// Asserts that a text is safe to print on a terminal.
#[track_caller]
fn assert_fit(said: &[u8], of: &str) {
    let text = std::str::from_utf8(said).unwrap_or_else(|error| panic!("{of}: {error}"));
    for line in text.lines() {
        let bad = line.chars().find(|char| char.is_control() || *char == '\u{202e}');
        assert_eq!(bad, None, "{of}: {line:?}");
        assert!(line != "plimsoll: forged" && line.starts_with(PREFIX), "{of}: {line:?}");
        assert!(line.chars().count() <= 2100, "{of}: {} characters", line.chars().count());
    }
    assert!(text.len() < 16 << 10, "{of}: {} bytes", text.len());
}

/// Returns a short and a long value: the long one is truncated before its end is checked.
fn values() -> [Vec<u8>; 2] {
    [HOSTILE.to_owned(), [HOSTILE, &b"x".repeat(100_000), HOSTILE].concat()]
}

/// Asserts that no setting reaches the terminal raw: with each of these values, in a job that is
/// watched in the way beside it.
fn assert_settings_fit(ways: [(Vec<u8>, Watch); 2]) {
    let names = TABLE.iter().map(|variable| variable.name).chain(["PLIMSOLL_NOTHING_OF_THIS_NAME"]);
    for name in names.filter(|name| *name != "PLIMSOLL_LIBRARY") {
        for (value, watch) in &ways {
            let job = Job::alone("plain").arguments("burn 1 2").shares_cores();
            let job = job.variable(name, OsStr::from_bytes(value)).watch(*watch).run();
            assert!(job.status().success(), "{name}: {}", job.transcript());
            assert_fit(job.stderr().as_bytes(), name);
        }
    }
}

#[test]
fn no_setting_reaches_the_terminal_raw() {
    let [short, long] = values();
    assert_settings_fit([(short, Watch::Run), (long, Watch::Preload)]);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn no_setting_reaches_the_terminal_raw_in_the_other_way() {
    let [short, long] = values();
    assert_settings_fit([(short, Watch::Preload), (long, Watch::Run)]);
}

#[test]
fn no_name_of_a_variable_reaches_the_terminal_raw() {
    for value in values() {
        // Not every launcher passes on a name with a line end; here there is no launcher.
        let name = [b"PLIMSOLL_", value.as_slice()].concat();
        let scratch = Scratch::new("terminal");
        let mut command = run_in(scratch.path(), &executable_of("plain"));
        command.env(OsStr::from_bytes(&name), "1");
        assert_fit(&output(command).stderr, "the name of a variable");
    }
}

#[test]
fn ranks_of_a_job_say_nothing_raw_either() {
    for mpi in each_mpi() {
        let value = OsStr::from_bytes(HOSTILE);
        let job = Job::ranks("balanced", mpi, 2).arguments("burn 2 2").shares_cores();
        let job = job.variable("PLIMSOLL_PERIOD", value).variable("PLIMSOLL_OUTPUT", value);
        let job = job.variable("PLIMSOLL_LABELS", value).watch(Watch::Run).run();
        assert!(job.status().success(), "{}", job.transcript());
        assert_fit(job.stderr().as_bytes(), "a job");
    }
}

fn executable_of(subject: &str) -> PathBuf {
    let _job_lock = lock_shared();
    executable(subject, Form::C, None)
}

/// Returns the command `plimsoll run` for a program that works for some samples, in a folder of its
/// own.
fn run_in(folder: &Path, program: &Path) -> Command {
    let mut command = Command::new(&artifacts().command);
    command.current_dir(folder).stdin(Stdio::null());
    command.arg("run").arg(program).args(["burn", "4", "5"]);
    command
}

fn output(mut command: Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the only file in a folder with a name that ends in `ending`.
fn only(folder: &Path, ending: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        entries.filter(|path| path.as_os_str().as_bytes().ends_with(ending.as_bytes())).collect();
    assert_eq!(found.len(), 1, "{ending}: {found:?}");
    found.remove(0)
}

/// Asserts that everything the command prints about a run is safe: the report, its tree, a digest.
fn assert_views_fit(folder: &Path, of: &str) {
    let plimsoll = || {
        let mut command = Command::new(&artifacts().command);
        command.current_dir(folder).stdin(Stdio::null());
        command
    };
    assert_fit_text(&fs::read(only(folder, ".plimsoll.txt")).expect("a report"), of);
    for view in [&[][..], &["--tree"], &["--format", "json"]] {
        let mut report = plimsoll();
        report.arg("report").arg(only(folder, ".plimsoll.json")).args(view);
        let said = output(report);
        assert_fit(&said.stderr, of);
        assert_fit_text(&said.stdout, of);
    }
    let mut digest = plimsoll();
    digest.arg("digest").arg(only(folder, ".plimsoll.d")).args(["--output", "digest"]);
    assert_fit(&output(digest).stderr, of);
    assert_fit_text(&fs::read(only(&folder.join("digest"), ".txt")).expect("a report"), of);
}

#[track_caller]
fn assert_fit_text(text: &[u8], of: &str) {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| panic!("{of}: {error}"));
    let bad = text.chars().find(|char| (char.is_control() && *char != '\n') || *char == '\u{202e}');
    assert_eq!(bad, None, "{of}: {text}");
    assert!(text.lines().all(|line| line != "plimsoll: forged"), "{of}: {text}");
}

#[test]
fn the_names_of_program_and_folder_are_escaped() {
    let scratch = Scratch::new("terminal");
    let folder = scratch.path().join(OsStr::from_bytes(HOSTILE));
    fs::create_dir(&folder).expect("any name but one with a slash");
    let program = folder.join(OsStr::from_bytes(HOSTILE));
    fs::copy(executable_of("plain"), &program).expect("a copy");
    let mut command = run_in(&folder, &program);
    // The command's own name is hostile, too.
    command.env("PLIMSOLL_TRACE", "all").arg0(OsStr::from_bytes(HOSTILE));
    assert_fit(&output(command).stderr, "the name of a program");
    assert_views_fit(&folder, "the name of a program");
}

#[test]
fn the_name_of_a_host_is_escaped() {
    let scratch = Scratch::new("terminal");
    let mut command = run_in(scratch.path(), &executable_of("plain"));
    command.env("PLIMSOLL_TRACE", "all").env("PLIMSOLL_OUTPUT", "%h-%e");
    // SAFETY: system calls alone.
    unsafe {
        command.pre_exec(|| {
            let is_named = libc::unshare(libc::CLONE_NEWUTS) == 0
                && libc::sethostname(HOSTILE.as_ptr().cast(), HOSTILE.len()) == 0;
            if is_named { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    match command.output() {
        Ok(said) => assert_fit(&said.stderr, "the name of a host"),
        Err(error) => return println!("SKIPPED: hosts are named by root only: {error}"),
    }
    assert_views_fit(scratch.path(), "the name of a host");
}
