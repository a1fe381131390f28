//! Calls that a signal would end early take as long as without Plimsoll, and those that take
//! signals take only the program's.

use plimsoll_tests::subject_job::{Job, Watch};

#[test]
fn a_program_that_waits_for_all_signals_takes_no_samples() {
    let job = Job::alone("awaits_signals").shares_cores();
    let plain = job.run().succeeded();
    for options in ["--regions off", "--clock wall", "--period 200us"] {
        job.clone().options(options).watch(Watch::Run).run().assert_same_as(&plain);
    }
}

#[test]
fn samples_by_wall_clock_end_no_call_early() {
    const PERIOD_S: f64 = 1e-3;
    let plain = Job::alone("uninterrupted").run().succeeded();
    let lines = plain.stdout();
    let calls = lines.lines().count();
    assert!(!lines.contains("too short") && calls > 40, "{lines}");
    let job = Job::alone("uninterrupted").options("--clock wall --period 1ms").watch(Watch::Run);
    job.run_until(|job| {
        job.assert_same_as(&plain);
        let found_s = job.summary().of_function("work").mean_s;
        let error_s = found_s - job.truth().number("worked_s");
        // No sample tells where the work begins and ends before a call: a period at either end.
        let most_s = 2.0 * PERIOD_S * calls as f64;
        assert!(error_s.abs() <= most_s, "work between the calls: {error_s} s off: {}", job.text());
    });
}
