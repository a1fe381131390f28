//! CPU time and memory of a node's collector by the number of threads of its ranks: processes of
//! this program with threads that take samples of themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::start_time;
use plimsoll_agent::regions::thread_creations::ThreadOrigin;
use plimsoll_collector::{Collector, Options};

use crate::rings::{Stage, wander};
use crate::row::Row;
use crate::watched;

/// Pause of a thread between two samples: all threads together are to leave the cores idle.
const PAUSE: Duration = Duration::from_millis(400);
/// Byte that makes a rank's threads take samples.
const SAMPLE: u8 = b's';

/// Measures the collector of `ranks` processes of `threads` threads each over `duration`, after
/// function names were looked up. The baseline of its CPU time is that without samples.
pub fn rows(ranks: usize, threads: usize, duration: Duration) -> Vec<Row> {
    let mut running: Vec<Rank> = (0..ranks).map(|_| Rank::start(threads)).collect();
    let collector = Collector::new(Options::default());
    let attach = |rank: &Rank| {
        let key = collector.attach(rank.child.id(), rank.descriptor, rank.start_time);
        key.unwrap_or_else(|error| panic!("{error}"))
    };
    let keys: Vec<_> = running.iter().map(attach).collect();
    let (idle_ns, busy_ns, bytes) = thread::scope(|scope| {
        scope.spawn(|| collector.run(|_| {}));
        let run = |time: Duration| {
            let begin = collector.cpu_ns();
            thread::sleep(time);
            collector.cpu_ns() - begin
        };
        let idle_ns = run(duration);
        running.iter_mut().for_each(Rank::sample);
        // Names are looked up at a pace that leaves the cores to the job.
        run(duration);
        let busy_ns = run(duration);
        let bytes = [collector.memory_bytes(), collector.segment_bytes()];
        running.into_iter().for_each(Rank::end);
        collector.stop();
        (idle_ns, busy_ns, bytes)
    });
    let profiles = keys.into_iter().map(|key| collector.finish(key).expect("it was attached"));
    let (samples, lost) = profiles.fold((0, 0), |(samples, lost), profile| {
        (samples + profile.collection.samples, lost + profile.collection.lost)
    });
    assert!(samples > 0 && lost == 0, "{samples} samples, {lost} lost");
    let all = (ranks * threads) as f64;
    let subject = format!("{ranks} ranks of {threads} threads");
    let taken = all * duration.as_secs_f64() / PAUSE.as_secs_f64();
    let row = |name: &str, [value, baseline]: [f64; 2], unit: &str| {
        Row::new(&format!("collector {name}"), &subject, value, unit, baseline)
    };
    let each = |ns: u64, number: f64| ns as f64 / 1e3 / number;
    let per_second = all * duration.as_secs_f64();
    let [contexts, segments] = bytes.map(|bytes| [bytes as f64 / 1024.0 / all, 0.0]);
    vec![
        row("CPU per sample", [busy_ns, idle_ns].map(|ns| each(ns, taken)), "us").target(2.0),
        row("CPU per thread and second", [busy_ns, idle_ns].map(|ns| each(ns, per_second)), "us"),
        row("memory per thread", contexts, "KiB"),
        row("shared memory per thread", segments, "KiB"),
    ]
}

/// A process with observed threads.
struct Rank {
    child: Child,
    commands: ChildStdin,
    descriptor: i32,
    start_time: u64,
}

impl Rank {
    fn start(threads: usize) -> Self {
        let me = std::env::current_exe().expect("the program runs");
        let mut command = Command::new(me);
        command.args(["--observe", &threads.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{error}"));
        let commands = child.stdin.take().expect("it is a pipe");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is a pipe"))
            .read_line(&mut line)
            .unwrap_or_else(|error| panic!("{error}"));
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(descriptor)), Some(Ok(start_time))) = (numbers.next(), numbers.next()) else {
            panic!("a rank did not start: {line}");
        };
        Self { child, commands, descriptor: descriptor as i32, start_time }
    }

    fn sample(&mut self) {
        self.commands.write_all(&[SAMPLE]).unwrap_or_else(|error| panic!("{error}"));
    }

    fn end(self) {
        let Self { mut child, commands, .. } = self;
        drop(commands);
        let status = child.wait().unwrap_or_else(|error| panic!("{error}"));
        assert!(status.success(), "a rank ended with {status}");
    }
}

/// Runs this process as a rank with observed threads until its input ends. The threads take samples
/// from the first [`SAMPLE`] on.
pub fn observe(threads: usize) {
    let observed = watched::start(3_600_000_000_000, Marks::On);
    let stage = Stage::default();
    thread::scope(|scope| {
        for seed in 0..threads {
            let stage = &stage;
            scope.spawn(move || {
                observed.attach_thread(0, ThreadOrigin::default());
                wander(seed as u64 + 1000 * u64::from(process::id()), stage, PAUSE);
                observed.detach_thread();
            });
        }
        println!("{} {}", observed.descriptor(), start_time());
        let mut command = [0];
        while matches!(std::io::stdin().read(&mut command), Ok(1)) {
            stage.set_sampling(command[0] == SAMPLE);
        }
        stage.end();
    });
}
