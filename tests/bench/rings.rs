//! What the collector takes for a sample, by the number of threads that it reads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{process, thread};

use plimsoll_agent::process::{Observed, start_time};
use plimsoll_collector::{Collector, Options};

use crate::row::Row;
use crate::watched::{self, inside, interrupt};

const SUBJECT: &str = "threads that call and return";

/// Collector CPU per sample of so many threads, sampled about every 4 ms, over `duration`. The
/// baseline is the same collector while no thread is sampled, spread over as many samples.
pub fn rows(rings: usize, duration: Duration) -> Vec<Row> {
    let observed = watched::start(3_600_000_000_000);
    let collector = Collector::new(Options::default());
    let key = collector
        .attach(process::id(), observed.descriptor(), start_time())
        .unwrap_or_else(|error| panic!("{error}"));
    let (sampling, ending) = (AtomicBool::new(false), AtomicBool::new(false));
    let (samples, idle_ns, busy_ns) = thread::scope(|scope| {
        let threads: Vec<_> = (1..rings)
            .map(|seed| {
                let (sampling, ending) = (&sampling, &ending);
                scope.spawn(move || {
                    observed.attach_thread(0);
                    let samples = wander(observed, seed as u64, sampling, ending);
                    observed.detach_thread();
                    samples
                })
            })
            .collect();
        scope.spawn(|| collector.run(|_| {}));
        let control = scope.spawn(|| {
            thread::sleep(duration / 4);
            let begin = collector.cpu_ns();
            thread::sleep(duration);
            let middle = collector.cpu_ns();
            sampling.store(true, Ordering::Relaxed);
            thread::sleep(duration);
            ending.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(250));
            (middle - begin, collector.cpu_ns() - middle)
        });
        let mut samples = wander(observed, 0, &sampling, &ending);
        for thread in threads {
            samples += thread.join().expect("a thread that wanders comes back");
        }
        let (idle_ns, busy_ns) = control.join().expect("the control only sleeps");
        collector.stop();
        (samples, idle_ns, busy_ns)
    });
    let profile = collector.finish(key).expect("it was attached");
    assert_eq!(profile.collection.lost, 0, "no record was lost");
    let each = |ns: u64| ns as f64 / 1000.0 / samples.max(1) as f64;
    let plural = if rings == 1 { "ring" } else { "rings" };
    let name = format!("collector CPU per sample, {rings} {plural}");
    vec![Row::new(&name, SUBJECT, each(busy_ns), "us", each(idle_ns)).target(2.0)]
}

/// Is sampled every 4 ms in some stack of a tree of calls; returns how often.
fn wander(observed: &Observed, seed: u64, sampling: &AtomicBool, ending: &AtomicBool) -> u64 {
    let mut state = seed * 2 + 1;
    let before = watched::thread(observed).samples.load(Ordering::Relaxed);
    inside(15, &mut || {
        while !ending.load(Ordering::Relaxed) {
            if sampling.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                branch(3, state >> 40);
            }
            thread::sleep(Duration::from_millis(4));
        }
    });
    watched::thread(observed).samples.load(Ordering::Relaxed) - before
}

/// A small tree of calls, `levels` deep, with three ways on at each level.
#[inline(never)]
fn branch(levels: u64, way: u64) {
    if levels == 0 {
        interrupt();
    } else {
        match way % 3 {
            0 => left(levels, way / 3),
            1 => right(levels, way / 3),
            _ => branch(levels - 1, way / 3),
        }
    }
    black_box(());
}

#[inline(never)]
fn left(levels: u64, way: u64) {
    branch(levels - 1, way);
    black_box(());
}

#[inline(never)]
fn right(levels: u64, way: u64) {
    branch(levels - 1, way);
    black_box(());
}
