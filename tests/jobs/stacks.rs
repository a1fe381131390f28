//! Wrapped calls from stacks that may be small: coroutines', alternate ones of signal handlers.

use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};

/// Maximum number of bytes that a hook may use of such a stack: about a KiB.
const MAX_BYTES: u64 = 1152;

/// Sampling period beyond the CPU time of the subject, and below the duration of its `usleep`: the
/// kernel's signal frames of samples would lie on the same stacks, and are larger than a hook's.
const NO_SAMPLES: &str = "--period 200ms";

/// Returns the lines that the subject printed: the call and its origin, and a number.
fn lines(outcome: &Outcome) -> Vec<(String, u64)> {
    let line = |line: &str| {
        let (what, number) = line.rsplit_once(' ').expect("words and a number");
        (what.to_owned(), number.parse().expect("a number"))
    };
    outcome.stdout().lines().map(line).collect()
}

#[test]
fn wrapped_calls_need_little_of_a_small_stack_and_are_measured() {
    let job = Job::alone("small_stacks").arguments("burn 1 1").variable("LD_BIND_NOW", "1");
    let plain = job.clone().shares_cores().run().succeeded();
    let watched = job.watch(Watch::Run).options(NO_SAMPLES).shares_cores().run().succeeded();
    assert_eq!(watched.summary().number("/collection/samples"), 0.0, "{}", watched.transcript());
    let (plain, found) = (lines(&plain), lines(&watched));
    assert_eq!(plain.len(), found.len(), "{}", watched.transcript());
    for ((what, without), (same, with)) in plain.into_iter().zip(found) {
        assert_eq!(what, same);
        if what == "errno changed" {
            assert_eq!((without, with), (0, 0), "a call that succeeded changed errno");
            continue;
        }
        assert!(with <= without + MAX_BYTES, "{what}: {with} bytes, {without} without");
    }
    // 50 calls from the coroutine and 50 from the handler.
    assert_eq!(watched.summary().of_function("send").calls, 100.0);
}

#[test]
fn a_fatal_signal_needs_little_of_an_alternate_stack() {
    let frames = Job::alone("small_stacks").arguments("burn 1 1").variable("LD_BIND_NOW", "1");
    let frames = lines(&frames.shares_cores().run().succeeded());
    // Bytes for the kernel's frame and a handler that does nothing.
    let frame = frames.iter().find(|(what, _)| what == "handler nothing").expect("a frame").1;
    let job = Job::alone("small_stacks").arguments("burn 1 1 1 fatal").shares_cores();
    let job = job.variable("LD_BIND_NOW", "1");
    let (plain, watched) = (job.run(), job.watch(Watch::Run).options(NO_SAMPLES).run());
    assert_eq!(plain.status(), watched.status(), "{}", watched.transcript());
    let found = lines(&watched);
    assert_eq!((lines(&plain).len(), found.len()), (1, 1), "{}", watched.transcript());
    assert!(found[0].1 <= frame + MAX_BYTES, "{} bytes, {frame} are the kernel's", found[0].1);
}
