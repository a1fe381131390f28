//! Two threads of std::thread, created by a function. Each creates another thread. Arguments as of
//! the subjects in C; all threads sleep to work.

use std::hint::black_box;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

#[inline(never)]
fn timed_work(ms: f64) -> f64 {
    let begin = Instant::now();
    sleep(Duration::from_secs_f64(ms / 1e3));
    black_box(begin.elapsed().as_secs_f64())
}

#[inline(never)]
fn work_inside(ms: f64) -> f64 {
    black_box(timed_work(ms))
}

#[inline(never)]
fn work_outside(ms: f64) -> (f64, f64) {
    let inner = spawn(move || work_inside(ms));
    let work_s = timed_work(2.0 * ms);
    (work_s, inner.join().expect("it does not panic"))
}

#[inline(never)]
fn start_team(ms: f64) -> Vec<JoinHandle<(f64, f64)>> {
    black_box((0..2).map(|_| spawn(move || work_outside(ms))).collect())
}

fn main() {
    let ms = std::env::args().nth(3).map_or(10.0, |it| it.parse().expect("a number"));
    let (mut work_s, mut inner_s) = (0.0, 0.0);
    for thread in start_team(ms) {
        let times = thread.join().expect("it does not panic");
        work_s += times.0;
        inner_s += times.1;
    }
    if let Ok(path) = std::env::var("SUBJECT_TRUTH") {
        let truth = format!(
            "{{\"subject\": \"std_threads\", \"work_s\": {work_s}, \"inner_s\": {inner_s}}}\n"
        );
        std::fs::write(path, truth).expect("the folder is there");
    }
    println!("std_threads: 2 threads and one of each");
}
