//! Overhead of sampling for a program that computes: the same work without samples, with the same
//! timer and an empty handler, and with Plimsoll's handler.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::Observed;

use crate::row::Row;
use crate::statistics::{median, percentile};
use crate::watched::{self, cpu_ns, depth, interrupt};

const SUBJECT: &str = "recursion, 25 deep";

/// Work between two changes of the handler, in nanoseconds of CPU time.
const STRETCH_NS: u64 = 40_000_000;

/// Measures the CPU added at this sampling period; and Plimsoll's own CPU and bytes per sample
/// under the timer.
pub fn rows(period_ns: u64, rounds: usize) -> Vec<Row> {
    let observed = watched::start(period_ns, Marks::On);
    interrupt();
    let calls = 25usize.saturating_sub(depth(observed));
    let period = format!("{} ms", period_ns / 1_000_000);
    let mut rows = added(observed, calls, &period, rounds);
    rows.extend(under_the_timer(observed, calls, &period, rounds));
    observed.stop();
    rows
}

fn added(observed: &'static Observed, calls: usize, period: &str, rounds: usize) -> Vec<Row> {
    observed.pause(true);
    let work = calibrate(calls);
    let thread = watched::thread(observed);
    let (mut none, mut empty, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        observed.pause(true);
        none.push(stretch(calls, work));
        observed.pause(false);
        let handler = watched::install_nothing();
        empty.push(stretch(calls, work));
        // SAFETY: the handler that stood there before.
        unsafe { watched::install(&handler) };
        ours.push(stretch(calls, work));
        thread.tail.store(thread.head.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let per_second = |of: &[f64], over: &[f64]| {
        let mut differences: Vec<f64> =
            of.iter().zip(over).zip(&none).map(|((of, over), none)| (of - over) / none).collect();
        median(&mut differences) * 1e6
    };
    let (over_empty, of_timer) = (per_second(&ours, &empty), per_second(&empty, &none));
    let name = format!("CPU added over an empty handler, {period}");
    vec![Row::new(&name, SUBJECT, over_empty, "us/s", of_timer)]
}

/// Measures the handler's CPU per sample as the program meets it, and the bytes of a sample in the
/// ring.
fn under_the_timer(
    observed: &'static Observed,
    calls: usize,
    period: &str,
    rounds: usize,
) -> Vec<Row> {
    let thread = watched::thread(observed);
    let tick_ns = watched::ns_per_tick(observed);
    let (head, samples) =
        (thread.head.load(Ordering::Relaxed), thread.samples.load(Ordering::Relaxed));
    let work = calibrate(calls);
    let mut found = Vec::new();
    let mut unwound = Vec::new();
    for _ in 0..rounds {
        let rises = watched::burn(calls, work, &thread.handler_ticks, Vec::with_capacity(1000));
        found.extend(rises.into_iter().map(|ticks| ticks as f64 * tick_ns));
        unwound.push(watched::unwound(observed) as f64);
    }
    let taken = (thread.samples.load(Ordering::Relaxed) - samples).max(1);
    let bytes = (thread.head.load(Ordering::Relaxed) - head) as f64 / taken as f64;
    let frames = median(&mut unwound);
    let name = |what: &str| format!("own CPU per sample under the {period} timer, {what}");
    let (p50, p99) = (percentile(&mut found, 50), percentile(&mut found, 99));
    vec![
        Row::new(&name("p50"), SUBJECT, p50, "ns", 0.0),
        Row::new(&name("p99"), SUBJECT, p99, "ns", 0.0),
        Row::new(&format!("frames unwound per sample, {period}"), SUBJECT, frames, "frames", 25.0),
        Row::new(&format!("bytes per sample in the ring, {period}"), SUBJECT, bytes, "bytes", 0.0)
            .target(4.0),
    ]
}

fn stretch(calls: usize, work: u64) -> f64 {
    let nothing = AtomicU64::new(0);
    let begin = cpu_ns();
    watched::burn(calls, work, &nothing, Vec::new());
    (cpu_ns() - begin) as f64
}

/// Returns the number of rounds of work that take [`STRETCH_NS`].
fn calibrate(calls: usize) -> u64 {
    let work = 20_000;
    let shortest = (0..5).map(|_| stretch(calls, work)).fold(f64::INFINITY, f64::min);
    (work as f64 * STRETCH_NS as f64 / shortest.max(1.0)) as u64
}
