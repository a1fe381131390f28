//! Programs under a sanitizer or valgrind run as without Plimsoll, which reports that it does not
//! measure them.

use std::process::{Command, Stdio};

use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch};

/// Compilers with their sanitizers. Both runtimes of GCC are shared libraries, Clang's are linked
/// into the program.
const SANITIZED: [(&str, &[&str], &str); 7] = [
    ("gcc", &["-fsanitize=address"], "AddressSanitizer"),
    ("gcc", &["-fsanitize=thread"], "ThreadSanitizer"),
    ("gcc", &["-fsanitize=leak"], "LeakSanitizer"),
    ("clang", &["-fsanitize=address"], "AddressSanitizer"),
    ("clang", &["-fsanitize=thread"], "ThreadSanitizer"),
    ("clang", &["-fsanitize=memory"], "MemorySanitizer"),
    ("clang", &["-fsanitize=leak"], "LeakSanitizer"),
];

/// Returns whether a compiler has the runtime of a sanitizer.
fn links(compiler: &str, flags: &[&str]) -> bool {
    let script = format!(
        "echo 'int main(void){{return 0;}}' | {compiler} {} -x c - -o /dev/null",
        flags.join(" ")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns a job's lines on stderr, except Plimsoll's and those of valgrind's reader of unwind
/// tables.
fn lines(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.other_lines();
    lines.iter().map(ToString::to_string).filter(|line| !line.contains("CFI reader")).collect()
}

#[track_caller]
fn assert_left_alone(job: &Job, tool: &str) {
    let job = job.clone().shares_cores();
    let plain = job.run().succeeded();
    for watch in [Watch::Preload, Watch::Run] {
        let watched = job.clone().watch(watch).run();
        watched.assert_same_as(&plain);
        assert_eq!(lines(&plain), lines(&watched), "{}", watched.transcript());
        let printed = watched.plimsoll_lines();
        assert!(printed.len() == 1 && printed[0].contains(tool), "{}", watched.transcript());
        assert!(watched.files().is_empty(), "{:?}", watched.files());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn sanitized_programs_run_as_without() {
    for (compiler, flags, tool) in SANITIZED {
        if !links(compiler, flags) {
            println!("SKIPPED: {compiler} {flags:?}: its runtime is not installed");
            continue;
        }
        let job = Job::alone("threads").form(Form::By(compiler, flags)).arguments("burn 5 10");
        assert_left_alone(&job, tool);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_program_under_valgrind_runs_as_without() {
    let subject = {
        let _job_lock = lock_exclusively();
        executable("plain", Form::C, None)
    };
    let job = Job::alone("valgrind").form(Form::Installed);
    assert_left_alone(&job.arguments(&format!("-q {} burn 2 10", subject.display())), "valgrind");
}
