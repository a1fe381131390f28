//! Cost for programs that do nothing: until main begins, over a whole life, per thread, and per
//! context switch.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::{Form, executable};

use crate::row::Row;
use crate::statistics::least;

/// Durations of one process, in milliseconds.
struct Life {
    wall_to_main: f64,
    cpu_to_main: f64,
    wall: f64,
    cpu: f64,
}

/// Measures the time added at the start and over the life of the subject `nothing`.
pub fn rows(runs: usize) -> Vec<Row> {
    let _job_lock = lock_exclusively();
    let program = executable("nothing", Form::C, None);
    let scratch = Scratch::new("bench-life");
    let mut bare = Vec::new();
    let mut watched = Vec::new();
    for _ in 0..runs {
        let mut command = Command::new(&program);
        bare.push(live(command.current_dir(scratch.path())));
        let mut command = Command::new(&program);
        command.current_dir(scratch.path()).env("LD_PRELOAD", &artifacts().library);
        watched.push(live(command.env("PLIMSOLL_VERBOSE", "0")));
    }
    type Of = fn(&Life) -> f64;
    let rows: [(&str, Of, Option<f64>); 4] = [
        ("CPU added until main begins", |life| life.cpu_to_main, Some(10.0)),
        ("time added until main begins", |life| life.wall_to_main, Some(10.0)),
        ("CPU added to a whole life, report written", |life| life.cpu, None),
        ("time added to a whole life, report written", |life| life.wall, None),
    ];
    rows.into_iter()
        .map(|(name, of, target)| {
            let shortest = least(bare.iter().map(of));
            let row =
                Row::new(name, "nothing", least(watched.iter().map(of)) - shortest, "ms", shortest);
            target.map_or(row.clone(), |most| row.target(most))
        })
        .collect()
}

/// Measures the CPU time added per thread that is created, ends, and is collected.
pub fn thread_rows(threads: u32, runs: usize) -> Vec<Row> {
    let (added, bare) = cpu_added_us("creates", threads, "4ms", runs);
    let name = "CPU added per thread that is created and ends";
    vec![Row::new(name, "creates", added, "us", bare).target(60.0)]
}

/// Measures the CPU time added per context switch of two threads that leave a core to each other,
/// as threads in a barrier do on too few cores.
pub fn switch_rows(switches: u32, runs: usize) -> Vec<Row> {
    let row = |period: &str| {
        let (added, bare) = cpu_added_us("yields", switches, period, runs);
        let name = format!("CPU added per context switch, period {period}");
        Row::new(&name, "yields", added * 1e3, "ns", bare * 1e3)
    };
    ["4ms", "200us"].map(row).into()
}

/// Returns the CPU time that the library adds to each of the `number` things that a subject does,
/// and that of the subject alone, in microseconds: the difference between the least of `runs`.
fn cpu_added_us(subject: &str, number: u32, period: &str, runs: usize) -> (f64, f64) {
    let _job_lock = lock_exclusively();
    let program = executable(subject, Form::C, None);
    let scratch = Scratch::new(&format!("bench-{subject}"));
    let run = |is_watched: bool| {
        let mut command = Command::new(&program);
        command.arg(number.to_string()).current_dir(scratch.path());
        if is_watched {
            command.env("LD_PRELOAD", &artifacts().library).env("PLIMSOLL_VERBOSE", "0");
            command.env("PLIMSOLL_PERIOD", period);
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        wait(&mut child) * 1e3 / f64::from(number)
    };
    let (bare, watched): (Vec<_>, Vec<_>) = (0..runs).map(|_| (run(false), run(true))).unzip();
    let shortest = least(bare);
    (least(watched) - shortest, shortest)
}

fn live(command: &mut Command) -> Life {
    let begin = clock_ns(libc::CLOCK_MONOTONIC);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("stdout is a pipe");
    stdout.read_to_string(&mut text).expect("the subject prints text");
    let cpu = wait(&mut child);
    let wall = (clock_ns(libc::CLOCK_MONOTONIC) - begin) as f64 / 1e6;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [main_ns, cpu_ns] = numbers[..] else { panic!("the subject printed {text:?}") };
    Life { wall_to_main: main_ns / 1e6 - begin as f64 / 1e6, cpu_to_main: cpu_ns / 1e6, wall, cpu }
}

/// Waits for the child's end; returns its CPU time in milliseconds.
fn wait(child: &mut Child) -> f64 {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage; wait4 fills in what it is given. The child is not waited
    // for elsewhere.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage) > 0);
        usage
    };
    let status = std::process::ExitStatus::from_raw(status);
    assert!(status.success(), "the subject ended with {status}");
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}
