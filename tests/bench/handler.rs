//! Cost of the signal handler itself: from its own first to its own last instruction, without the
//! kernel's delivery, which an empty handler pays as well.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plimsoll_agent::counters::Event;
use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::Observed;
use plimsoll_wire::clock_anchor::ticks;

use crate::row::Row;
use crate::statistics::{least, percentile};
use crate::watched::{self, depth, inside, interrupt, interrupt_in_leaf};

const SUBJECT: &str = "recursion";

/// Measures the handler's CPU per sample at two depths, with warm and with cold caches.
pub fn rows(samples: usize, marks: Marks) -> Vec<Row> {
    // Only requested samples: the timer's period is an hour.
    let observed = watched::start(3_600_000_000_000, marks);
    let delivery_ns = delivery_ns(samples);
    let mut rows = Vec::new();
    let how = if marks == Marks::On { "marked" } else { "unmarked" };
    for frames in [25, 100] {
        let mut warm = samples_ns(observed, frames, samples, &mut || {});
        let name = |kind: &str| format!("own CPU per sample, {how}, depth {frames}, {kind}");
        let p50 = percentile(&mut warm, 50);
        let row = Row::new(&name("warm, p50"), SUBJECT, p50, "ns", delivery_ns);
        rows.push(match (marks, frames) {
            (Marks::On, _) => row.target(300.0),
            (_, 25) => row.target(1000.0),
            _ => row,
        });
        let p99 = percentile(&mut warm, 99);
        rows.push(Row::new(&name("warm, p99"), SUBJECT, p99, "ns", delivery_ns));
        let mut other_data = vec![1u8; 8 << 20];
        let mut chill = || {
            for at in (0..other_data.len()).step_by(64) {
                other_data[at] = other_data[at].wrapping_add(1);
            }
            black_box(&other_data);
        };
        let mut cold = samples_ns(observed, frames, samples / 20 + 1, &mut chill);
        let p50 = percentile(&mut cold, 50);
        rows.push(Row::new(&name("cold, p50"), SUBJECT, p50, "ns", delivery_ns));
    }
    if marks == Marks::On {
        rows.push(pass_row(observed, samples / 20 + 1));
    }
    observed.stop();
    rows
}

/// Measures the handler's CPU per sample at depth 25 while it reads these perf events, of one kind
/// (PERF_TYPE_* of perf_event_open(2)). Returns no rows if the kernel refuses an event.
pub fn counting_rows(samples: usize, events: Vec<Event>) -> Vec<Row> {
    let names: Vec<String> = events.iter().map(|event| event.name.clone()).collect();
    let names = names.join(", ");
    let observed = watched::start_counting(3_600_000_000_000, Marks::On, events);
    let refused: Vec<(String, u32)> = observed
        .header()
        .events
        .iter()
        .filter_map(|event| event.get())
        .filter(|(_, error)| *error != 0)
        .collect();
    if let Some((name, error)) = refused.first() {
        let error = std::io::Error::from_raw_os_error(error.cast_signed());
        eprintln!("SKIPPED: cost of counting {names}: {name} is refused: {error}");
        observed.stop();
        return Vec::new();
    }
    let delivery_ns = delivery_ns(samples);
    let mut warm = samples_ns(observed, 25, samples, &mut || {});
    let name =
        |kind: &str| format!("own CPU per sample, marked, depth 25, counting {names}, {kind}");
    let rows = [50, 99].map(|percent| {
        let value = percentile(&mut warm, percent);
        Row::new(&name(&format!("warm, p{percent}")), SUBJECT, value, "ns", delivery_ns)
    });
    observed.stop();
    rows.into()
}

/// Returns two events of one kind, for [`counting_rows`].
pub fn events(kind: u32, names: [(&str, u64); 2]) -> Vec<Event> {
    let event = |(name, config): (&str, u64)| Event { name: name.to_owned(), kind, config };
    names.map(event).into()
}

/// Measures how much longer a return through a mark takes than a return without one.
fn pass_row(observed: &'static Observed, rounds: usize) -> Row {
    const CALLS: usize = 100;
    let tick_ns = watched::ns_per_tick(observed);
    let passes = || observed.with_thread(|state| state.live().passes).unwrap_or(0);
    let returning = |mark: bool| {
        let mut begin = 0;
        inside(CALLS, &mut || {
            if mark {
                interrupt();
            }
            begin = ticks();
        });
        (ticks() - begin) as f64 * tick_ns
    };
    returning(true);
    let mut passed = 0;
    let (mut marked, mut plain) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        plain = plain.min(returning(false));
        let before = passes();
        marked = marked.min(returning(true));
        passed = passes() - before;
    }
    let each_ns = (marked - plain) / passed.max(1) as f64;
    Row::new("a return through a mark", SUBJECT, each_ns, "ns", plain / CALLS as f64).target(15.0)
}

/// Returns the time to send and handle the signal with a handler that does nothing.
fn delivery_ns(repetitions: usize) -> f64 {
    let ours = watched::install_nothing();
    let rounds = (0..repetitions / 50 + 1).map(|_| {
        let begin = Instant::now();
        for _ in 0..50 {
            interrupt();
        }
        begin.elapsed().as_nanos() as f64 / 50.0
    });
    let shortest = least(rounds);
    // SAFETY: the handler that stood there before.
    unsafe { watched::install(&ours) };
    shortest
}

/// Returns the nanoseconds of each sample, `frames` deep. `between` runs before each.
fn samples_ns(
    observed: &'static Observed,
    frames: usize,
    samples: usize,
    between: &mut dyn FnMut(),
) -> Vec<f64> {
    let tick_ns = watched::ns_per_tick(observed);
    let thread = watched::thread(observed);
    let mut sample_many = |calls: usize, samples: usize| {
        let mut found = Vec::with_capacity(samples);
        inside(calls, &mut || {
            for sample in 0..samples {
                between();
                let before = thread.handler_ticks.load(Ordering::Relaxed);
                // The innermost frames change from sample to sample, as they do in programs.
                interrupt_in_leaf(sample);
                let ticks = thread.handler_ticks.load(Ordering::Relaxed) - before;
                found.push(ticks as f64 * tick_ns);
                // Drains the ring in place of the collector, so that it never fills.
                thread.tail.store(thread.head.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        found
    };
    sample_many(0, 1);
    let calls = frames.saturating_sub(depth(observed));
    sample_many(calls, 100);
    assert_eq!(depth(observed), frames, "the stack is as deep as said");
    sample_many(calls, samples)
}
