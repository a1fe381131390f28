//! Runs a command to its end, or kills it with all processes that it started.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable of every process of a job, with a value of its own for each job: launchers
/// put ranks into sessions and process groups of their own, but the environment is inherited.
const MARKER: &str = "SUBJECT_JOB";

/// Outcome of a command.
#[derive(Debug)]
pub struct Finished {
    /// Status of the command itself.
    pub status: ExitStatus,
    /// Duration of the command.
    pub took: Duration,
    /// Stdout of the command and its children.
    pub stdout: String,
    /// Stderr of the command and its children.
    pub stderr: String,
    /// Processes still running two seconds after the command's end, by id and name.
    pub left_behind: Vec<String>,
}

/// Runs a command in `directory`, for at most `limit`. Its output goes through files there, not
/// through pipes, which a process that outlives it could keep open.
///
/// # Panics
/// If it cannot be started or takes longer than `limit`; then all its processes are killed, and
/// the message shows what they printed.
pub fn run(mut command: Command, directory: &Path, limit: Duration) -> Finished {
    try_run(&mut command, directory, limit).unwrap_or_else(|hang| panic!("{hang}"))
}

/// As [`run`]. Returns the message about a command that takes longer than `limit`.
///
/// # Panics
/// If it cannot be started.
pub fn try_run(
    command: &mut Command,
    directory: &Path,
    limit: Duration,
) -> Result<Finished, String> {
    let (stdout_path, stderr_path) = (directory.join("stdout"), directory.join("stderr"));
    let create = |path: &Path| File::create(path).expect("the job's directory can be written");
    let mark = directory.display().to_string();
    command
        .current_dir(directory)
        .env(MARKER, &mark)
        .stdin(Stdio::null())
        .stdout(create(&stdout_path))
        .stderr(create(&stderr_path))
        .process_group(0);
    let begin = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = wait(&mut child, limit);
    let took = begin.elapsed();
    note_time(took);
    let left_behind = match status {
        Some(_) => wait_for_others(&mark),
        None => processes_of(&mark).into_iter().map(|process| process.to_string()).collect(),
    };
    for process in processes_of(&mark) {
        process.kill();
    }
    // A killed process is there for a moment more.
    wait_for_others(&mark);
    let read =
        |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let (stdout, stderr) = (read(&stdout_path), read(&stderr_path));
    let Some(status) = status else {
        // The job's processes are killed anyway; errors here do not matter.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!(
            "{command:?} hangs: not at its end after {limit:?}; processes: {left_behind:?}\n\
             stdout:\n{stdout}\nstderr:\n{stderr}"
        ));
    };
    Ok(Finished { status, took, stdout, stderr, left_behind })
}

/// Adds a line with the seconds that a command took, and the name of its test, to the file named by
/// `TESTED_TIMES`; does nothing without that variable. `scripts/test` prints the largest.
fn note_time(took: Duration) {
    let Some(path) = env::var_os("TESTED_TIMES") else { return };
    let test = thread::current().name().unwrap_or_default().to_owned();
    let line = format!("{:.1} {test}\n", took.as_secs_f64());
    let file = File::options().append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("TESTED_TIMES={}: {error}", path.display()));
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until no process of the job is left, and returns those that do not end soon. Launchers'
/// own daemons may end a little after the launcher.
fn wait_for_others(mark: &str) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let others = processes_of(mark);
        if others.is_empty() || Instant::now() >= deadline {
            return others.iter().map(ToString::to_string).collect();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

struct Process {
    id: i32,
    name: String,
}

impl Process {
    fn kill(&self) {
        // SAFETY: kill takes no pointers. The process was seen a moment ago; should its id have
        // been given to another one since, that one carries the job's mark or ids have wrapped.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.id, self.name)
    }
}

/// Returns all processes that inherited the mark. Zombies have no environment and do not count.
fn processes_of(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARKER}={mark}").into_bytes();
    let marked = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let id = path.file_name()?.to_str()?.parse().ok()?;
        // A process may end while it is read, or belong to another user.
        let environment = fs::read(path.join("environ")).ok()?;
        if !environment.split(|&byte| byte == 0).any(|entry| entry == wanted) {
            return None;
        }
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        Some(Process { id, name: name.trim_end().to_owned() })
    };
    fs::read_dir("/proc").into_iter().flatten().filter_map(marked).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::scratch::Scratch;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_the_commands_own() {
        let scratch = Scratch::new("process");
        let script = "echo out; echo err >&2; exit 3";
        let finished = run(shell(script), scratch.path(), Duration::from_secs(10));
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
        assert!(finished.left_behind.is_empty(), "{:?}", finished.left_behind);
    }

    #[test]
    fn processes_that_outlive_their_parent_are_ended() {
        let scratch = Scratch::new("process");
        let script = "setsid sleep 1000 & sleep 0.2";
        let finished = run(shell(script), scratch.path(), Duration::from_secs(10));
        assert!(finished.left_behind.iter().any(|name| name.contains("sleep")), "{finished:?}");
        thread::sleep(Duration::from_millis(100));
        assert!(processes_of(&scratch.path().display().to_string()).is_empty());
    }

    #[test]
    fn a_hang_is_ended_and_shown() {
        let scratch = Scratch::new("process");
        let started = Instant::now();
        let hang = AssertUnwindSafe(|| {
            run(shell("echo before; sleep 1000"), scratch.path(), Duration::from_millis(300))
        });
        let message = *catch_unwind(hang).unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("hangs") && message.contains("before"), "{message}");
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(processes_of(&scratch.path().display().to_string()).is_empty());
    }
}
