//! The `plimsoll` command in a shell.

mod commands;
#[path = "../../summary/tests/summaries/mod.rs"]
mod summaries;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use commands::harmless_library;
use plimsoll_report::{text, tree};
use plimsoll_summary::Summary;
use tempfile::TempDir;

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = commands::plimsoll(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    plimsoll(arguments).output().unwrap()
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn file_with(content: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.plimsoll.json");
    fs::write(&path, content).unwrap();
    (directory, path)
}

#[test]
fn a_program_runs_with_the_library_and_its_settings() {
    let script = "echo $PLIMSOLL_PERIOD $LD_PRELOAD $1; test $$ = $PLIMSOLL_ROOT_PID";
    let output = plimsoll(&["run", "--period", "1ms", "--", "sh", "-c", script, "sh", "--clock"])
        .env("LD_PRELOAD", harmless_library())
        // Suppresses the message that a shell is not measured.
        .env("PLIMSOLL_VERBOSE", "0")
        .output()
        .unwrap();
    let expected = format!("1ms {} --clock\n", harmless_library().display());
    assert_eq!(said(&output), (expected, String::new(), Some(0)));
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_command() {
    for (script, code, signal) in
        [("exit 0", Some(0), None), ("exit 3", Some(3), None), ("kill -9 $$", None, Some(9))]
    {
        let status = run(&["run", "--", "sh", "-c", script]).status;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
}

#[test]
fn what_a_script_or_a_container_leaves_out_is_said() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content, word) in [
        ("wrapper", "#!/usr/bin/env bash\nexit 3\n", "a script. bash is a shell"),
        ("podman", "#!/bin/cat\n", "podman starts a container"),
        ("table", "#!/bin/cat\n", ""),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let (_, message, _) = said(&run(&["run", "--", file.to_str().unwrap()]));
        assert!(message.contains(word) && message.is_empty() == word.is_empty(), "{message}");
    }
}

#[test]
fn a_program_that_cannot_start_ends_as_in_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("no-such-program");
    fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    let script = file.to_str().unwrap();
    let (_, message, status) = said(&run(&["run", "--", script]));
    assert_eq!(status, Some(126), "{message}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let (_, message, status) = said(&run(&["run", "--", script]));
    assert!(status == Some(127) && message.contains("its interpreter"), "{message}");

    let output =
        plimsoll(&["run", "--", "no-such-program"]).current_dir(directory.path()).output().unwrap();
    let expected =
        "plimsoll: no-such-program is not found. Did you mean ./no-such-program?\n".to_owned();
    assert_eq!(said(&output), (String::new(), expected, Some(127)));
}

#[test]
fn without_the_library_nothing_starts() {
    let output = plimsoll(&["run", "--", "echo", "started"])
        .env("PLIMSOLL_LIBRARY", "/no/such/library.so")
        .output()
        .unwrap();
    let (stdout, message, status) = said(&output);
    assert_eq!((stdout.as_str(), status), ("", Some(1)));
    assert!(message.contains("/no/such/library.so"), "{message}");
    // With Plimsoll disabled, the library is not needed.
    let output = plimsoll(&["run", "--disable", "1", "--", "sh", "-c", "echo -$LD_PRELOAD-"])
        .env("PLIMSOLL_LIBRARY", "/no/such/library.so")
        .output()
        .unwrap();
    assert_eq!(said(&output), ("--\n".into(), String::new(), Some(0)));
}

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [
        &["run"][..],
        &["run", "--period", "soon", "--", "true"],
        &["run", "--counters", "cycels", "--", "true"],
        &["run", "--no-such-option", "--", "true"],
        &["report"],
        &["report", "x", "--format", "pdf"],
        &["frobnicate"],
        &["diff", "a", "--b"],
        &["diff", "a", "b", "--expect", "linear"],
        &["diff", "a", "b", "--fail-above", "much"],
        &["diff", "a", "b", "--fail-above", "-3%"],
        &["diff", "a", "b", "--fail-above", "0.03"],
        &["doctor", "--no-such-option"],
        &["top", "--every", "now"],
    ] {
        let (stdout, message, status) = said(&run(arguments));
        assert_eq!((stdout.as_str(), status), ("", Some(2)), "{arguments:?}");
        assert!(!message.is_empty());
    }
}

#[test]
fn a_summary_is_printed_in_every_form() {
    let summary = summaries::imbalance();
    let (_directory, path) = file_with(&summary.to_json().unwrap());
    let path = path.to_str().unwrap();
    let printed = |more: &[&str]| {
        let (stdout, stderr, status) = said(&run(&[&["report", path], more].concat()));
        assert_eq!((stderr.as_str(), status), ("", Some(0)));
        stdout
    };
    assert_eq!(printed(&[]), text(&summary));
    assert_eq!(printed(&["--tree"]), tree(&summary));
    assert_eq!(Summary::from_json(printed(&["--format", "json"]).as_bytes()).unwrap(), summary);
}

#[test]
fn a_summary_is_exported_in_every_format() {
    let (directory, path) = file_with(&summaries::imbalance().to_json().unwrap());
    let path = path.to_str().unwrap();
    for format in ["collapsed", "firefox", "hatchet", "perfetto", "pprof", "speedscope"] {
        let printed = run(&["report", path, "--format", format]);
        assert_eq!((printed.status.code(), printed.stderr.len()), (Some(0), 0), "{format}");
        let file = directory.path().join(format);
        fs::write(&file, "an older export").unwrap();
        let output = ["report", path, "--format", format, "--output", file.to_str().unwrap()];
        assert_eq!(said(&run(&output)), (String::new(), String::new(), Some(0)));
        assert!(fs::read(&file).unwrap() == printed.stdout && !printed.stdout.is_empty());
    }
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 7, "files of unfinished exports stay");
    let text = directory.path().join("report.txt");
    let output = ["report", path, "--output", text.to_str().unwrap()];
    assert_eq!(said(&run(&output)), (String::new(), String::new(), Some(0)));
    assert_eq!(fs::read_to_string(&text).unwrap(), said(&run(&["report", path])).0);
}

#[test]
fn a_failed_export_gives_a_reason_and_writes_nothing() {
    let mut summary = summaries::imbalance();
    summary.per_rank.file = Some("x.plimsoll.npz".into());
    let (directory, path) = file_with(&summary.to_json().unwrap());
    let path = path.to_str().unwrap();
    let output = directory.path().join("out");
    let export = |more: &[&str]| {
        let output = ["--output", output.to_str().unwrap()];
        said(&run(&[&["report", path], more, &output].concat()))
    };
    // Without the side file the mean is exported, with a message.
    let (_, message, status) = export(&["--format", "collapsed"]);
    assert!(message.contains("x.plimsoll.npz is missing. The mean over"), "{message}");
    assert_eq!(status, Some(0));
    assert!(fs::read_to_string(&output).unwrap().starts_with("mean of ranks 0-15;main"));
    fs::remove_file(&output).unwrap();
    for (arguments, reason, expected) in [
        (&["--format", "pprof", "--ranks", "3"][..], "must lie beside the summary", 1),
        (&["--format", "pprof", "--ranks", "x"], "is not a list of ranks", 2),
        (&["--format", "json", "--ranks", "3"], "--ranks is for exports", 2),
        (&["--format", "flames"], "possible values", 2),
    ] {
        let (_, message, status) = export(arguments);
        assert!(message.contains(reason), "{message}");
        assert_eq!(status, Some(expected), "{message}");
    }
    fs::write(directory.path().join("x.plimsoll.npz"), "no numbers").unwrap();
    let (_, message, status) = export(&["--format", "speedscope"]);
    assert!(message.contains("it is no archive"), "{message}");
    assert_eq!((status, output.exists()), (Some(1), false));
    let to_device = ["report", path, "--output", "/dev/null"];
    assert_eq!(said(&run(&to_device)), (String::new(), String::new(), Some(0)));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_file_without_a_summary_is_refused() {
    let good = summaries::imbalance().to_json().unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let far_node = text.replace("\"node\":3", "\"node\":3000");
    let circle = text.replace("\"parent\":null", "\"parent\":1");
    let newer = text.replace("summary/1", "summary/2");
    for (content, reason) in [
        (&good[..good.len() / 2], "damaged"),
        (b"\xff\xfe".as_slice(), "damaged"),
        (far_node.as_bytes(), "losses[0] names a node that does not exist"),
        (circle.as_bytes(), "tree.nodes[0] does not come after its parent"),
        (newer.as_bytes(), "\"plimsoll-summary/2\""),
    ] {
        let (_directory, path) = file_with(content);
        let (stdout, message, status) = said(&run(&["report", path.to_str().unwrap()]));
        assert_eq!((stdout.as_str(), status), ("", Some(1)));
        assert!(message.contains(reason), "{message}");
    }
    let (_, message, status) = said(&run(&["report", "/no/such/file"]));
    assert!(status == Some(1) && message.starts_with("plimsoll: /no/such/file cannot be read"));
}

/// The text would take the place of the only copy of the measurement.
#[test]
fn a_summary_is_not_replaced_by_its_report() {
    let json = summaries::imbalance().to_json().unwrap();
    let (directory, path) = file_with(&json);
    let other = directory.path().join("link.txt");
    std::os::unix::fs::symlink(&path, &other).unwrap();
    for output in [&path, &other] {
        let arguments = ["report", path.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let (_, message, status) = said(&run(&arguments));
        assert_eq!(status, Some(2), "{message}");
        assert!(message.contains("is the summary itself: name another file"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), json);
        assert!(other.is_symlink());
    }
}

#[test]
fn a_pipe_as_summary_is_refused_with_another_way() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (_, message, status) = said(&run(&["report", pipe.to_str().unwrap()]));
    assert_eq!(status, Some(1));
    assert!(message.contains("`-` reads standard input"), "{message}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let (_directory, path) = file_with(&summaries::imbalance().to_json().unwrap());
    let mut child = plimsoll(&["report", path.to_str().unwrap(), "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!((child.wait().unwrap().code(), message), (Some(0), String::new()));
}

#[test]
fn a_full_disk_is_an_error_on_stdout_and_none_on_stderr() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let (_directory, path) = file_with(&summaries::imbalance().to_json().unwrap());
    for arguments in [
        &["report", path.to_str().unwrap()][..],
        &["doctor", "--json"],
        &["--help"],
        &["run", "-h"],
        &["--version"],
    ] {
        let (_, message, status) = said(&plimsoll(arguments).stdout(full()).output().unwrap());
        assert_eq!(status, Some(1), "{arguments:?}");
        assert!(message.starts_with("plimsoll: standard output cannot be written"), "{message}");
    }
    let directory = tempfile::tempdir().unwrap();
    let valgrind = directory.path().join("valgrind");
    fs::write(&valgrind, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&valgrind, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = plimsoll(&["run", "--", valgrind.to_str().unwrap()]);
    assert_eq!(run.stderr(full()).status().unwrap().code(), Some(3));
    let folder = recorded_job(directory.path());
    let mut digest = plimsoll(&["digest", folder.to_str().unwrap()]);
    assert_eq!(digest.stderr(full()).status().unwrap().code(), Some(0));
    assert!(directory.path().join("app_17_1p_digest.plimsoll.txt").exists());
}

#[test]
fn a_job_that_left_no_report_is_shown_once() {
    let directory = tempfile::tempdir().unwrap();
    let folder = recorded_job(directory.path());
    let spool = fs::File::open(folder.join("rank0.spool")).unwrap();
    spool.set_modified(SystemTime::now() - Duration::from_secs(86_400)).unwrap();
    let folder = folder.to_str().unwrap();
    for options in [&["--once"][..], &["--once", "--json"], &[]] {
        let output = run(&[&["top", folder], options].concat());
        let (shown, message, status) = said(&output);
        assert!(!shown.is_empty() && !shown.to_lowercase().contains("running"), "{shown}");
        assert!(message.contains(&format!("`plimsoll digest {folder}`")), "{message}");
        assert_eq!(status, Some(1));
    }
}

/// Makes a folder with a recorded spool.
fn recorded_job(directory: &Path) -> PathBuf {
    let folder = directory.join("app_17_1p.plimsoll.d");
    fs::create_dir(&folder).unwrap();
    let streams = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/streams");
    fs::copy(streams.join("imbalance/rank0.spool"), folder.join("rank0.spool")).unwrap();
    folder
}

#[test]
fn a_static_program_is_warned_of_once() {
    let directory = tempfile::tempdir().unwrap();
    let program = static_program(directory.path());
    let program = program.to_str().unwrap();
    let (_, message, _) = said(&run(&["run", "--", program]));
    assert!(message.contains("is statically linked"), "{message}");
    assert_eq!(message.lines().filter(|line| line.starts_with("plimsoll:")).count(), 1);
    let output = plimsoll(&["run", "--", program]).env("PMI_RANK", "1").output().unwrap();
    assert!(!said(&output).1.contains("statically"));
}

/// Returns a 64-bit ELF executable that only calls exit(0), without a loader.
fn static_program(directory: &Path) -> PathBuf {
    let mut elf = vec![0u8; 120];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let base = 0x40_0000u64;
    for (at, value) in [(16, 2u64), (18, 62), (20, 1), (24, base + 120), (32, 64), (52, 64)] {
        let width = if (24..48).contains(&at) { 8 } else { 2 };
        elf[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    (elf[54], elf[56]) = (56, 1);
    // One PT_LOAD, readable and executable: the whole file.
    (elf[64], elf[68]) = (1, 5);
    elf[80..88].copy_from_slice(&base.to_le_bytes());
    let code = b"\x31\xff\xb8\x3c\x00\x00\x00\x0f\x05"; // exit(0)
    (elf[96], elf[104]) = (120 + code.len() as u8, 120 + code.len() as u8);
    elf.extend_from_slice(code);
    let path = directory.join("static");
    fs::write(&path, elf).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_digest_without_the_rules_that_were_asked_for_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rank0.spool"), "").unwrap();
    let folder = directory.path().to_str().unwrap();
    let (stdout, stderr, status) = said(&run(&["digest", folder, "--labels", "nowhere"]));
    assert_eq!((&*stdout, status), ("", Some(1)));
    let message = "plimsoll: --labels nowhere: the file cannot be read (it does not exist).\n";
    assert_eq!(stderr, message);
}
