//! The last quarter of the ranks works `factor` times longer in `work_uneven`; the others wait for
//! them in MPI_Allreduce at the end of each iteration. Like tests/programs/imbalance.c, by
//! sleeping.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use mpi::collective::SystemOperation;
use mpi::traits::*;

/// Work of one rank in one iteration that is equal on all ranks.
#[inline(never)]
fn work_even(ms: f64) {
    thread::sleep(Duration::from_secs_f64(ms * 1e-3));
    black_box(());
}

#[inline(never)]
fn work_uneven(ms: f64) {
    thread::sleep(Duration::from_secs_f64(ms * 1e-3));
    // Differs from the body of work_even, so that the two are not merged.
    black_box(ms);
}

fn argument(at: usize, default: f64) -> f64 {
    env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the sum over iterations of the longest rank's work less the mean.
fn imbalance_s(all_s: &[f64], ranks: usize, iterations: usize) -> f64 {
    let of_iteration = |i: usize| {
        let works_s = || (0..ranks).map(|rank| all_s[rank * iterations + i]);
        works_s().fold(0.0, f64::max) - works_s().sum::<f64>() / ranks as f64
    };
    (0..iterations).map(of_iteration).sum()
}

fn write_truth(all_s: &[f64], ranks: usize, iterations: usize, slow: usize, elapsed_s: f64) {
    let Some(path) = env::var_os("SUBJECT_TRUTH") else { return };
    let mut text = String::from("{\"subject\": \"rust-imbalance\"");
    let slow = if slow + 1 == ranks { slow.to_string() } else { format!("{slow}-{}", ranks - 1) };
    let works_s: Vec<f64> = all_s.chunks(iterations).map(|rank| rank.iter().sum()).collect();
    let _ = write!(
        text,
        ", \"ranks\": {ranks}, \"iterations\": {iterations}, \"elapsed_s\": {elapsed_s}, \
         \"expected_loss_s\": {}, \"cause\": \"rust_imbalance::work_uneven\", \
         \"symptom\": \"MPI_Allreduce\", \"slow_ranks\": \"{slow}\", \"work_s\": {works_s:?}}}",
        imbalance_s(all_s, ranks, iterations)
    );
    if let Err(error) = fs::write(path, text) {
        eprintln!("rust-imbalance: no truth: {error}");
    }
}

fn main() {
    let (iterations, ms, factor) =
        (argument(2, 20.0) as usize, argument(3, 10.0), argument(4, 3.0));
    let Some(universe) = mpi::initialize() else { return };
    let begin = Instant::now();
    let world = universe.world();
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let first_slow = ranks - (ranks / 4).max(1);
    let mut work_s = vec![0.0; iterations];
    let mut checksum = 0;
    for (i, work_s) in work_s.iter_mut().enumerate() {
        let start = Instant::now();
        work_even(ms);
        work_uneven(if rank >= first_slow { ms * factor } else { ms });
        *work_s = start.elapsed().as_secs_f64();
        let (part, mut sum) = (((rank + 1) * (i + 1)) as i64, 0i64);
        world.all_reduce_into(&part, &mut sum, SystemOperation::sum());
        checksum += sum;
    }
    let root = world.process_at_rank(0);
    if rank == 0 {
        let mut all_s = vec![0.0; ranks * iterations];
        root.gather_into_root(&work_s[..], &mut all_s[..]);
        write_truth(&all_s, ranks, iterations, first_slow, begin.elapsed().as_secs_f64());
        println!("imbalance: {ranks} ranks, {iterations} iterations, checksum {checksum}");
    } else {
        root.gather_into(&work_s[..]);
    }
}
