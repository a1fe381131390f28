// Loops that Rust makes of iterators.
#![crate_type = "cdylib"]
use std::hint::black_box;

#[inline(never)]
fn work(what: usize) {
    black_box(what);
}

#[unsafe(no_mangle)]
pub fn pairs(values: &[u64]) -> u64 {
    let mut sum = 0;
    for a in values { // loop pairs.outer
        for b in values { // loop pairs.inner
            sum += a * b;
            work(sum as usize);
        }
        work(1);
    }
    sum
}

#[unsafe(no_mangle)]
pub fn chained(values: &[u64]) -> u64 {
    let even = values.iter().filter(|value| *value % 2 == 0);
    even.map(|value| value.wrapping_mul(3)).map(|value| { work(1); value }).sum()
}

#[unsafe(no_mangle)]
pub fn checked(values: &mut [u64], n: usize) {
    for i in 0..n { // loop checked
        values[i] += 1;
        if values[i] > 100 {
            work(values[i + 1] as usize);
        }
    }
}
