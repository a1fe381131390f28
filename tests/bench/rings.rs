//! CPU time of the collector per sample, by the number of threads that it reads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{process, thread};

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::start_time;
use plimsoll_agent::regions::thread_creations::ThreadOrigin;
use plimsoll_collector::{Collector, Options};
use plimsoll_tests::scratch::Scratch;

use crate::row::Row;
use crate::watched::{self, inside, interrupt};

/// Pause of a thread between two samples.
const PAUSE: Duration = Duration::from_millis(4);
const SUBJECT: &str = "threads that call and return";

/// Measures the collector CPU per sample of `rings` threads, sampled about every 4 ms, over
/// `duration`, after function names were looked up. The baseline is the same collector while no
/// thread is sampled, divided by the same number of samples. `spooled`: all records read go to
/// disk, too.
pub fn rows(rings: usize, duration: Duration, spooled: bool) -> Vec<Row> {
    let observed = watched::start(3_600_000_000_000, Marks::On);
    let collector = Collector::new(Options::default());
    let scratch = Scratch::new("rings");
    if spooled {
        let path = scratch.path().join("rank0");
        collector.spool(Box::new(|| Ok(path)), 1 << 30).expect("there is memory for a spool");
    }
    let key = collector
        .attach(process::id(), observed.descriptor(), start_time())
        .unwrap_or_else(|error| panic!("{error}"));
    let stage = Stage::default();
    let (naming_ns, idle_ns, busy_ns, samples) = thread::scope(|scope| {
        for seed in 1..rings {
            let stage = &stage;
            scope.spawn(move || {
                observed.attach_thread(0, ThreadOrigin::default());
                wander(seed as u64, stage, PAUSE);
                observed.detach_thread();
            });
        }
        scope.spawn(|| collector.run(|_| {}));
        let control = scope.spawn(|| {
            let run = |sampling: bool, time: Duration| {
                let begin = collector.cpu_ns();
                stage.set_sampling(sampling);
                thread::sleep(time);
                collector.cpu_ns() - begin
            };
            // Long enough for the collector to finish the work of one part before the next begins.
            let rest = Duration::from_millis(250);
            // Names are looked up at a pace that leaves the cores to the job.
            let naming_ns = run(true, duration / 2) + run(false, duration);
            let idle_ns = run(false, duration);
            let before = stage.samples.load(Ordering::Relaxed);
            let busy_ns = run(true, duration) + run(false, rest);
            let samples = stage.samples.load(Ordering::Relaxed) - before;
            stage.end();
            collector.stop();
            (naming_ns, idle_ns, busy_ns, samples)
        });
        wander(0, &stage, PAUSE);
        control.join().expect("the control only sleeps")
    });
    let profile = collector.finish(key).expect("it was attached");
    assert_eq!(profile.collection.lost, 0, "no record was lost");
    if let Some(spool) = collector.end_spool() {
        assert!(spool.trouble.is_none() && spool.bytes > 0, "{spool:?}");
    }
    let each = |ns: u64| ns as f64 / 1000.0 / samples.max(1) as f64;
    let plural = if rings == 1 { "ring" } else { "rings" };
    let plural = if spooled { format!("{plural}, spooled") } else { plural.to_owned() };
    let name = |what: &str| format!("collector CPU {what}, {rings} {plural}");
    let idle = each(idle_ns);
    let naming = Row::new(&name("to name it all"), SUBJECT, naming_ns as f64 / 1e6, "ms", 0.0);
    vec![Row::new(&name("per sample"), SUBJECT, each(busy_ns), "us", idle).target(2.0), naming]
}

/// Control of the threads, and the number of their samples.
#[derive(Default)]
pub struct Stage {
    sampling: AtomicBool,
    over: AtomicBool,
    samples: AtomicU64,
}

impl Stage {
    /// Lets the threads take samples, or rest.
    pub fn set_sampling(&self, sampling: bool) {
        self.sampling.store(sampling, Ordering::Relaxed);
    }

    /// Lets the threads end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Takes samples with a `pause` after each, each in some stack of a tree of calls.
pub fn wander(seed: u64, stage: &Stage, pause: Duration) {
    let mut state = seed * 2 + 1;
    inside(15, &mut || {
        while !stage.over.load(Ordering::Relaxed) {
            if stage.sampling.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                branch(3, state >> 40);
                stage.samples.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(pause);
        }
    });
}

/// Descends a small tree of calls, `levels` deep, with three branches at each level.
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
