//! Calls that a signal would end early take as long as without Plimsoll.

use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

#[test]
fn samples_by_wall_clock_end_no_call_early() {
    let plain = Job::alone("uninterrupted").run().succeeded();
    let lines = plain.stdout();
    assert!(!lines.contains("too short") && lines.lines().count() > 40, "{lines}");
    let job = Job::alone("uninterrupted").options("--clock wall --period 1ms").watch(Watch::Run);
    job.run_until(|job| {
        job.assert_same_as(&plain);
        let found_s = job.summary().of_function("work").mean_s;
        assert_within("work between the calls", found_s, job.truth().number("worked_s"), 0.10);
    });
}
