//! The `plimsoll` command with hostile names, values and files: it ends at once and prints nothing
//! that a terminal interprets.

mod commands;
#[path = "../../summary/tests/summaries/mod.rs"]
mod summaries;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_summary::Summary;
use plimsoll_summary::settings::{State, TABLE};
use serde_json::Value;

/// Terminal commands, line ends, an eight-bit CSI, and right-to-left text.
const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[31m\r\nplimsoll: forged\n\u{9b}2J\u{202e}\u{7f}";
/// User id of another user.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Returns the command in a directory where every user may run it.
fn plimsoll(directory: &Path) -> Command {
    let path = directory.join("plimsoll");
    if !path.exists() {
        // In a process of its own: a child that another test forks meanwhile would hold the file
        // open for writing, and exec would fail.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_plimsoll")).arg(&path).status();
        assert!(copied.unwrap().success());
    }
    let mut command = commands::plimsoll(path);
    command.current_dir(directory);
    command
}

fn directory_for_all() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Asserts that output is fit for a terminal: lines of bounded length.
#[track_caller]
fn assert_fit_for_a_terminal(output: &[u8], of: &str) {
    let text = std::str::from_utf8(output).unwrap();
    for line in text.lines() {
        let bad = line.chars().find(|char| char.is_control() || *char == '\u{202e}');
        assert_eq!(bad, None, "{of}: {line:?}");
        assert_ne!(line, "plimsoll: forged", "{of}");
        assert!(line.chars().count() <= 2100, "{of}: {} characters", line.len());
    }
    assert!(text.len() < 64 << 10, "{of}: {} bytes", text.len());
}

#[track_caller]
fn assert_fit(output: &Output, of: &str) {
    assert_fit_for_a_terminal(&output.stderr, of);
    assert_fit_for_a_terminal(&output.stdout, of);
}

#[test]
fn no_option_reaches_the_terminal_raw() {
    let directory = directory_for_all();
    let run = |arguments: &[&OsStr], of: &str| {
        let output = plimsoll(directory.path()).args(arguments).output().unwrap();
        assert_fit(&output, of);
        output
    };
    let long = "x".repeat(100_000);
    let values = [HOSTILE.to_owned(), format!("{HOSTILE}{long}")];
    for value in values.iter().map(OsStr::new) {
        for variable in TABLE.iter().filter(|variable| variable.state != State::Internal) {
            let option = OsString::from(format!("--{}", variable.option()));
            let joined: OsString = [&option, OsStr::new("="), value].into_iter().collect();
            run(&["run".as_ref(), &option, value, "--".as_ref(), "true".as_ref()], variable.name);
            run(&["run".as_ref(), &joined, "--".as_ref(), "true".as_ref()], variable.name);
        }
        for command in ["run", "report", "digest", "diff"] {
            let ended = run(&[command.as_ref(), value], command);
            assert!(!ended.stderr.is_empty(), "{command}");
            let unknown: OsString = [OsStr::new("--"), value].into_iter().collect();
            run(&[command.as_ref(), &unknown], command);
        }
        run(&[value], "a command");
        run(&["digest".as_ref(), value, "--threads".as_ref(), value], "threads");
        run(&["digest".as_ref(), ".".as_ref(), "--labels".as_ref(), value], "labels");
        run(&["report".as_ref(), "x".as_ref(), "--format".as_ref(), value], "format");
    }
    for variable in &TABLE {
        let mut command = plimsoll(directory.path());
        command.env(variable.name, &values[1]).args(["run", "--", "true"]);
        assert_fit(&command.output().unwrap(), variable.name);
    }
}

#[test]
fn no_name_of_a_file_reaches_the_terminal_raw() {
    let directory = directory_for_all();
    let folder = directory.path().join(OsStr::from_bytes(b"\x1b[31m\r\nplimsoll: forged\n\xff"));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("\u{1b}c\u{9b}x.plimsoll.json");
    for content in ["{}", "\u{1b}[31m", "#!/no/such/\u{1b}[31m\n"] {
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        // Executable text is run by the shell, which prints its own messages.
        let commands = if content.starts_with("#!") {
            &["run", "report", "digest"][..]
        } else {
            &["report", "digest"]
        };
        for command in commands {
            for path in [&file, &folder, &folder.join("missing")] {
                let output = plimsoll(directory.path()).arg(command).arg(path).output().unwrap();
                assert!(!output.status.success(), "{command}");
                assert_fit(&output, command);
            }
        }
    }
}

/// Inserts `with` before the string at `pointer`.
fn spoil(summary: &mut Value, pointer: &str, with: &str) {
    if let Some(Value::String(text)) = summary.pointer_mut(pointer) {
        text.insert_str(0, with);
    }
}

#[test]
fn no_name_in_a_summary_reaches_the_terminal_raw() {
    let directory = directory_for_all();
    let path = directory.path().join("x.plimsoll.json");
    let good: Value = serde_json::from_slice(&summaries::imbalance().to_json().unwrap()).unwrap();
    // One string at a time, so that a refused one hides no other.
    let report_is_fit = |pointer: &str, with: &str| {
        let mut summary = good.clone();
        spoil(&mut summary, pointer, with);
        fs::write(&path, serde_json::to_vec(&summary).unwrap()).unwrap();
        for view in [&[][..], &["--tree"]] {
            let mut command = plimsoll(directory.path());
            command.arg("report").arg(&path).args(view);
            assert_fit(&command.output().unwrap(), pointer);
        }
    };
    let pointers = strings(&good, String::new());
    pointers.iter().for_each(|pointer| report_is_fit(pointer, HOSTILE));
    // A long string of each kind: refused, in the head, in a sentence, in the tree.
    let long = format!("{HOSTILE}{}", "x".repeat(100_000));
    for pointer in ["/schema", "/run/executable", "/losses/0/advice", "/tree/frames/0/function"] {
        assert!(pointers.iter().any(|it| it == pointer), "{pointer}");
        report_is_fit(pointer, &long);
    }
    // All strings at once that may have any content.
    let mut summary = good.clone();
    for pointer in &pointers {
        let before = summary.clone();
        spoil(&mut summary, pointer, HOSTILE);
        if Summary::from_json(&serde_json::to_vec(&summary).unwrap()).is_err() {
            summary = before;
        }
    }
    assert!(summary.pointer("/run/executable").unwrap().as_str().unwrap().starts_with(HOSTILE));
    fs::write(&path, serde_json::to_vec(&summary).unwrap()).unwrap();
    let printed = |format: &str| {
        let mut command = plimsoll(directory.path());
        let output = command.arg("report").arg(&path).args(["--format", format]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_fit_for_a_terminal(&printed("text"), "text");
    let json = printed("json");
    let is_fit = |char: char| !char.is_control() && char != '\u{202e}';
    assert!(std::str::from_utf8(&json).unwrap().trim_end().chars().all(is_fit));
    let read: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(read, summary, "what is escaped is read back");
}

/// Returns the pointers of all strings; of each list only its first two entries.
fn strings(value: &Value, at: String) -> Vec<String> {
    match value {
        Value::String(_) => vec![at],
        Value::Array(all) => {
            let first = all.iter().enumerate().take(2);
            first.flat_map(|(index, one)| strings(one, format!("{at}/{index}"))).collect()
        }
        Value::Object(all) => {
            all.iter().flat_map(|(name, one)| strings(one, format!("{at}/{name}"))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns unreadable and malformed files with the allowed words of their messages.
fn odd_files(directory: &Path) -> Vec<(&'static str, PathBuf)> {
    let at = |name: &str| directory.join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    fs::create_dir(at("folder")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("pipe", at("link-to-pipe")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    drop(socket);
    for (name, mode) in [("secret", 0o000), ("of-another", 0o600)] {
        fs::write(at(name), "{}").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/file"), "{}").unwrap();
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let mut files = vec![
        ("a pipe", at("pipe")),
        ("a folder", at("folder")),
        ("a link to itself", at("loop")),
        ("a link to nothing", at("dangling")),
        ("a link to a pipe", at("link-to-pipe")),
        ("a socket", at("socket")),
        ("a device", "/dev/zero".into()),
        ("a terminal", "/dev/tty".into()),
        ("a file of no permission", at("secret")),
        ("a file in a closed folder", at("closed/file")),
    ];
    if is_root() {
        files.push(("a file of another user", at("of-another")));
    } else {
        println!("SKIPPED: only root can act as another user");
    }
    files
}

/// Asserts that the command ends within a second, by itself, with a message.
#[track_caller]
fn assert_refused(mut command: Command, of: &str) {
    if is_root() {
        // Root may read every file.
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().unwrap();
    // A second of CPU time, and more wall time on a busy machine.
    while child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = begin.elapsed();
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some_and(|code| code != 0), "{of}: {took:?}: {message}");
    assert!(message.starts_with("plimsoll: ") && message.lines().count() == 1, "{of}: {message}");
    assert!(!message.contains("os error"), "{of}: {message}");
    assert!(output.stdout.is_empty(), "{of}");
    assert_fit(&output, of);
}

#[test]
fn an_unreadable_file_ends_the_command_at_once() {
    let directory = directory_for_all();
    for (of, path) in odd_files(directory.path()) {
        for command in ["report", "digest", "run"] {
            let of = format!("{command} {of}");
            // The folder of a digest, but empty.
            let mut given = plimsoll(directory.path());
            given.arg(command).arg(&path);
            assert_refused(given, &of);
        }
        let mut labels = plimsoll(directory.path());
        let folder = directory.path().join("spools");
        let _ = fs::create_dir(&folder);
        fs::write(folder.join("rank0.spool"), "").unwrap();
        labels.args(["digest", "spools", "--labels"]).arg(&path);
        assert_refused(labels, &format!("labels in {of}"));
        let mut library = plimsoll(directory.path());
        library.env("PLIMSOLL_LIBRARY", &path).args(["run", "--", "true"]);
        assert_refused(library, &format!("the library is {of}"));
    }
}

#[test]
fn other_files_in_a_folder_do_not_block_a_digest() {
    let directory = directory_for_all();
    for (of, path) in odd_files(directory.path()) {
        let folder = directory.path().join("spools");
        fs::create_dir(&folder).unwrap();
        symlink(&path, folder.join("rank0.spool")).unwrap();
        let mut digest = plimsoll(directory.path());
        digest.args(["digest", "spools"]);
        assert_refused(digest, &format!("a spool that is {of}"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
