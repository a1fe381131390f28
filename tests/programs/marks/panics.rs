//! Panics that unwind through frames above a mark, are caught, resumed, and end threads.
//!
//! Runs each trial for TRIAL_S seconds of CPU time, as the trials in C do.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

thread_local! {
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

/// Counts drops.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.set(dropped.get() + 1));
        black_box(toil(3));
    }
}

#[inline(never)]
fn toil(mut seed: u32) -> u32 {
    for _ in 0..2000 {
        seed = black_box(seed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }
    seed
}

/// Descends `depth` frames with destructors, and panics there.
#[inline(never)]
fn fall(depth: u32, seed: u32) -> u32 {
    let guard = Guard;
    let found = if depth == 0 {
        black_box(toil(seed));
        panic::resume_unwind(Box::new(seed))
    } else {
        fall(depth - 1, toil(seed))
    };
    drop(guard);
    found.wrapping_add(1)
}

fn dropped_by(work: impl FnOnce()) -> u32 {
    let before = DROPPED.with(Cell::get);
    work();
    DROPPED.with(Cell::get) - before
}

/// Returns the seed in the panic of [`fall`], which begins with `seed`.
fn carried(depth: u32, seed: u32) -> u32 {
    (0..depth).fold(seed, |seed, _| toil(seed))
}

fn caught(round: u32) -> bool {
    let depth = round % 12;
    let mut good = false;
    let dropped = dropped_by(|| {
        let result = panic::catch_unwind(|| fall(depth, round));
        good = result.is_err_and(|what| what.downcast_ref() == Some(&carried(depth, round)));
    });
    good && dropped == depth + 1
}

/// Catches and resumes the panic, again and again on the way up.
#[inline(never)]
fn relay(depth: u32, seed: u32) -> u32 {
    let _guard = Guard;
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        if depth == 0 { fall(3, seed) } else { relay(depth - 1, seed) }
    }));
    match result {
        Ok(found) => found,
        Err(what) => {
            black_box(toil(seed));
            panic::resume_unwind(what)
        }
    }
}

fn resumed(round: u32) -> bool {
    let depth = round % 5;
    let mut good = false;
    let dropped = dropped_by(|| {
        let result = panic::catch_unwind(|| relay(depth, round));
        good = result.is_err_and(|what| what.downcast_ref() == Some(&carried(3, round)));
    });
    good && dropped == depth + 1 + 4
}

fn end_of_a_thread(round: u32) -> bool {
    let result = thread::spawn(move || fall(round % 7, round)).join();
    result.is_err_and(|what| what.downcast_ref() == Some(&carried(round % 7, round)))
}

fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat.split_ascii_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    ns.unwrap_or(f64::MAX) * 1e-9
}

fn attempt(name: &str, trial: fn(u32) -> bool) -> bool {
    let wanted = std::env::var("TRIAL_S").ok().and_then(|text| text.parse::<f64>().ok());
    let end_s = cpu_s() + wanted.unwrap_or(0.3);
    let mut good = true;
    let mut round = 0;
    while round < 4 || cpu_s() < end_s {
        good &= trial(round);
        round += 1;
    }
    println!("{name}: {}", if good { "right" } else { "WRONG" });
    good
}

fn main() {
    let trials: [(&str, fn(u32) -> bool); 3] = [
        ("caught panics", caught),
        ("resumed panics", resumed),
        ("panics that end threads", end_of_a_thread),
    ];
    let failures = trials.iter().filter(|(name, trial)| !attempt(name, *trial)).count();
    std::process::exit(i32::from(failures != 0));
}
