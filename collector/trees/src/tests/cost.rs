//! Cost of clustering: `cargo test --release -p plimsoll-trees cost -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::machine::{Code, Machine, busy, repeat};
use super::*;
use crate::{StreamingClusterer, difference, merged, most_clusters};

/// An iteration of about `nodes` nodes: calls that each make five calls.
fn wide(nodes: u64, factor: u64) -> Node {
    let calls = (0..nodes / 6).map(|at| {
        let inner =
            (1..6).map(|inner| call(10 * inner, factor * 100 * u64::from(inner) + at)).collect();
        Part::Child(regular(10 * at as u32 + 10, Kind::Call, inner))
    });
    regular(1, Kind::Iteration, calls.collect())
}

#[test]
#[ignore = "prints numbers"]
fn cost_of_an_iteration() {
    println!(
        "{:>8} {:>14} {:>10} {:>12} {:>8} {:>8}",
        "nodes", "behaviours", "ns each", "bytes", "sets", "K"
    );
    for (nodes, count) in [(6, 200_000u64), (60, 20_000), (600, 2_000)] {
        for (name, kinds) in
            [("alike", 1u64), ("alternating", 2), ("five, random", 5), ("all different", 97)]
        {
            let trees: Vec<Node> = (0..kinds).map(|kind| wide(nodes, 1 + kind * kind)).collect();
            let mut clusterer = StreamingClusterer::default();
            let kind = |at: u64| match kinds {
                97 => at * at % 97,
                5 => u64::from(crate::tests::irregular_level(at).min(4)),
                _ => at % kinds,
            };
            let mut spent = std::time::Duration::ZERO;
            for at in 0..count {
                let tree = trees[kind(at) as usize].clone();
                let begin = Instant::now();
                clusterer.push(at, tree, &Decades);
                spent += begin.elapsed();
            }
            let (bytes, sets) = (clusterer.bytes(), clusterer.trees().count());
            let clusters = clusterer.finish(&Decades);
            println!(
                "{:>8} {name:>14} {:>10} {bytes:>12} {sets:>8} {:>8}",
                trees[0].nodes(),
                spent.as_nanos() / u128::from(count),
                clusters.len(),
            );
        }
    }
}

#[test]
#[ignore = "prints numbers"]
fn cost_of_the_operations() {
    println!("{:>8} {:>12} {:>12} {:>12}", "nodes", "diff ns", "merge ns", "heap bytes");
    for nodes in [6, 60, 600, 6_000] {
        let (one, other) = (wide(nodes, 1), wide(nodes, 2));
        let rounds = 600_000 / nodes;
        let begin = Instant::now();
        for _ in 0..rounds {
            black_box(difference(black_box(&one), black_box(&other), &Decades));
        }
        let diff = begin.elapsed().as_nanos() / u128::from(rounds);
        let mut pairs: Vec<_> = (0..rounds).map(|_| (one.clone(), other.clone())).collect();
        let begin = Instant::now();
        for (one, other) in pairs.drain(..) {
            black_box(merged(one, other, &Decades));
        }
        let merge = begin.elapsed().as_nanos() / u128::from(rounds);
        println!("{:>8} {diff:>12} {merge:>12} {:>12}", one.nodes(), one.bytes());
    }
    println!("K of a million: {}", most_clusters(1_000_000));
}

#[test]
#[ignore = "prints numbers"]
fn cost_of_a_sampled_program() {
    let inner = |_| vec![busy(50, 7_000), busy(60, 2_000)];
    let step =
        |at: u64| vec![busy(10, 6_000), repeat(20, 5, inner), busy(80, 3_000 + at % 3 * 4_000)];
    let steps = 20_000;
    let code = [Code::Call(9, vec![repeat(1, steps, step)])];
    let mut machine = Machine::new(100_000);
    let begin = Instant::now();
    machine.run(&code);
    let spent = begin.elapsed();
    let bytes = machine.builder.bytes();
    let seen = machine.finish();
    let samples = seen.end / super::machine::PERIOD;
    println!(
        "{} ns a sample (the simulated program included), {} ns an iteration of 5 inner ones, \
         {bytes} bytes",
        spent.as_nanos() / u128::from(samples),
        spent.as_nanos() / u128::from(steps),
    );
}
