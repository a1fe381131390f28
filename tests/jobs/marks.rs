//! Return-address marks: programs that do unusual things with their stacks do not notice the marks,
//! stacks completed by marks equal complete unwinds, and marks distinguish one call from many.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch, required_command};

/// Subjects with unusual stacks.
const TRIALS: [(&str, Form); 8] = [
    ("marks/exceptions", Form::Cxx),
    ("marks/exceptions", Form::CxxStaticRuntime),
    ("marks/returns", Form::Cxx),
    ("marks/jumps", Form::C),
    ("marks/endings", Form::C),
    ("marks/plugins", Form::C),
    ("marks/panics", Form::Rust),
    ("marks/fortran", Form::Fortran),
];
/// CPU time of each part of a trial, in seconds.
const TRIAL_S: f64 = 0.05;

fn trial((subject, form): (&str, Form), seconds: f64) -> Job {
    let job =
        Job::alone(subject).form(form).variable("TRIAL_S", seconds.to_string()).shares_cores();
    if subject != "marks/plugins" {
        return job;
    }
    let plugin = {
        let _job_lock = lock_exclusively();
        executable("marks/own_plugin", Form::Library, None)
    };
    let other = plugin.with_file_name("other_plugin.so");
    fs::copy(&plugin, &other).expect("the folder of subjects can be written");
    job.arguments(&format!("{} {}", plugin.display(), other.display()))
}

fn plain(subject: (&str, Form)) -> Outcome {
    let plain = trial(subject, TRIAL_S).run().succeeded();
    assert!(!plain.stdout().contains("WRONG"), "{}", plain.transcript());
    plain
}

/// Returns a counter of a run's marks.
fn count(watched: &Outcome, what: &str) -> f64 {
    watched.summary().number(&format!("/collection/marks/{what}"))
}

#[test]
#[ignore = "long: scripts/test --all"]
fn trials_end_as_without_marks_at_every_rate() {
    for subject in TRIALS {
        let plain = plain(subject);
        for period in ["4ms", "1ms", "125us"] {
            let options = format!("--period {period}");
            let job = trial(subject, TRIAL_S).watch(Watch::Run).options(&options);
            let run = || {
                let watched = job.run();
                watched.assert_same_as(&plain);
                let reason = watched.summary().at("/collection/marks/off_reason").is_null();
                assert!(reason, "{}", watched.transcript());
                watched
            };
            retry_on_noise(run, |watched| {
                let samples = watched.summary().number("/collection/samples");
                let planted = count(watched, "planted");
                // Recorded calls are marked at their return, too: at most one mark per call.
                assert!(planted > 0.0 && samples > 0.0, "{}", watched.transcript());
                assert!(count(watched, "hit") > 0.0, "{}", watched.transcript());
            });
        }
        assert_verified(&plain, subject, TRIAL_S);
    }
}

#[test]
fn a_thread_that_jumps_out_of_our_code_is_sampled_on() {
    // Eleven parts; one of them spends its time in the kernel, where no sample falls.
    let parts = 10.0;
    let job = trial(("marks/jumps", Form::C), TRIAL_S).watch(Watch::Run);
    job.options("--period 1ms").run_until(|watched| {
        let samples = watched.summary().number("/collection/samples");
        assert!(
            samples > 0.6 * parts * TRIAL_S / 1e-3,
            "{samples} samples\n{}",
            watched.transcript()
        );
    });
}

/// Asserts that marks are set, and that the stacks that they shorten equal complete unwinds.
/// Returns the counters of that run.
fn assert_verified(plain: &Outcome, subject: (&str, Form), seconds: f64) -> [f64; 4] {
    let job = trial(subject, seconds).watch(Watch::Run);
    let job = job.options("--marks verify --period 125us");
    let run = || {
        let watched = job.run();
        watched.assert_same_as(plain);
        assert_eq!(count(&watched, "mismatched"), 0.0, "{}", watched.transcript());
        watched
    };
    let counters = ["planted", "hit", "stale", "verified"];
    let enough = |watched: &Outcome| {
        assert!(count(watched, "verified") > 50.0, "{}", watched.transcript());
    };
    let watched = retry_on_noise(run, enough);
    counters.map(|what| count(&watched, what))
}

#[test]
#[ignore = "takes minutes: scripts/soak"]
fn soak() {
    let minutes = std::env::var("SOAK_MINUTES").ok().and_then(|text| text.parse::<f64>().ok());
    let minutes = minutes.expect("SOAK_MINUTES is a number");
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let plain = TRIALS.map(plain);
    let mut totals = [0.0; 4];
    let mut rounds = 0;
    while Instant::now() < end {
        for (subject, plain) in TRIALS.into_iter().zip(&plain) {
            let counters = assert_verified(plain, subject, 1.0);
            for (total, counter) in totals.iter_mut().zip(counters) {
                *total += counter;
            }
        }
        rounds += 1;
        let [planted, hit, stale, verified] = totals;
        println!(
            "{rounds} rounds: {planted} marks planted, {hit} met, {stale} stale; {verified} stacks \
             verified, all right"
        );
    }
}

#[test]
fn marks_can_be_switched_off() {
    let subject = TRIALS[2];
    let plain = plain(subject);
    let job = trial(subject, TRIAL_S).watch(Watch::Run).options("--marks off --period 1ms");
    let watched = job.run();
    watched.assert_same_as(&plain);
    let summary = watched.summary();
    assert_eq!(summary.number("/collection/marks/planted"), 0.0);
    assert_eq!(summary.text("/collection/marks/off_reason"), "PLIMSOLL_MARKS is off");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn nothing_is_marked_before_a_foreign_unwinder() {
    for form in [Form::CxxForeignUnwinder, Form::CxxLlvmUnwinder] {
        let subject = ("marks/exceptions", form);
        let plain = plain(subject);
        let watched = trial(subject, TRIAL_S).watch(Watch::Run).options("--period 125us").run();
        watched.assert_same_as(&plain);
        let summary = watched.summary();
        assert_eq!(summary.number("/collection/marks/planted"), 0.0, "{}", watched.transcript());
        let reason = summary.text("/collection/marks/off_reason");
        assert!(reason.contains("exceptions are unwound by a library"), "{reason}");
    }
}

#[test]
fn an_unwinder_that_nobody_knew_of_is_let_pass() {
    // The frames that the exception passes need no cleanup: an exception already in flight in the
    // program's own code is not recognised when the first mark is set.
    let subject = ("marks/passed", Form::CxxUnknownUnwinder);
    let plain = plain(subject);
    for period in ["1ms", "125us"] {
        let options = format!("--period {period}");
        let watched = trial(subject, TRIAL_S).watch(Watch::Run).options(&options).run();
        watched.assert_same_as(&plain);
        let summary = watched.summary();
        assert!(summary.number("/collection/marks/planted") > 0.0, "{}", watched.transcript());
        let reason = summary.text("/collection/marks/off_reason");
        assert_eq!(reason, "exceptions are unwound by code that is not understood");
    }
}

/// Returns the calls of `f` in runs of the subject: with many short calls, and with a long one.
fn calls_of_f(marks: &str) -> [f64; 2] {
    ["calls 200 20", "stay 200 20"].map(|arguments| {
        let job = Job::alone("marks/instances").arguments(arguments).watch(Watch::Run);
        let job = job.options(&format!("--marks {marks}")).run().succeeded();
        job.summary().of_function("f").calls
    })
}

#[test]
#[ignore = "long: scripts/test --all"]
fn one_long_call_is_told_from_many_short_ones() {
    retry_on_noise(
        || calls_of_f("on"),
        |[many, one]| {
            assert!((many - 200.0).abs() <= 2.0, "{many} of 200 calls");
            assert_eq!(*one, 1.0);
        },
    );
    // Without marks, the stacks are the same.
    retry_on_noise(|| calls_of_f("off"), |[many, one]| assert_eq!(many, one));
}

#[test]
fn a_debugger_sees_through_a_mark() {
    let debugger = required_command("gdb", "gdb");
    artifacts();
    let _job_lock = lock_exclusively();
    let scratch = Scratch::new("gdb");
    let subject = executable("marks/instances", Form::C, None);
    let mut child = Command::new(&subject)
        .arg("alone")
        .current_dir(scratch.path())
        .env("LD_PRELOAD", &artifacts().library)
        .env("PLIMSOLL_PERIOD", "1ms")
        .stderr(Stdio::null())
        .spawn()
        .expect("the subject runs");
    thread::sleep(Duration::from_millis(500));
    let debugged = Command::new(debugger)
        .args(["-batch", "-ex", "thread 1", "-ex", "backtrace", "-p", &child.id().to_string()])
        .env_remove("DEBUGINFOD_URLS")
        .output()
        .expect("the debugger runs");
    let _ = child.kill();
    let _ = child.wait();
    let shown = String::from_utf8_lossy(&debugged.stdout);
    let transcript = format!("{shown}\n{}", String::from_utf8_lossy(&debugged.stderr));
    let frames: Vec<&str> = shown.lines().filter(|line| line.starts_with('#')).collect();
    let [.., alone, mark, main] = frames.as_slice() else { panic!("{transcript}") };
    assert!(alone.contains(" alone (") && alone.contains("instances.c"), "{transcript}");
    assert!(mark.contains("plimsoll_mark"), "{transcript}");
    assert!(main.contains(" main (") && main.contains("instances.c"), "{transcript}");
}
