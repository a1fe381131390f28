//! Laws over all programs: no time is lost and no iteration is invented.

use proptest::prelude::*;

use super::machine::{Code, Machine, iterations, time};
use super::*;
use crate::difference;

/// Code without keys.
#[derive(Clone, Debug)]
enum Sketch {
    Work(u64),
    Call(Vec<Sketch>),
    Wrapped(u64),
    /// A loop: number of iterations, pattern of the parts that each iteration runs, body.
    Loop(u64, u64, Vec<Sketch>),
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let part = prop_oneof![
        (0u64..9_000).prop_map(Sketch::Work),
        (0u64..3_000).prop_map(Sketch::Wrapped),
        (0u64..9_000).prop_map(|time| Sketch::Call(vec![Sketch::Work(time)])),
    ];
    part.prop_recursive(4, 24, 4, |inner| {
        let body = prop::collection::vec(inner, 1..5);
        prop_oneof![
            body.clone().prop_map(Sketch::Call),
            (0u64..9, any::<u64>(), body)
                .prop_map(|(times, pattern, body)| Sketch::Loop(times, pattern, body)),
        ]
    })
}

/// Assigns keys in the order of the source, a decade each.
fn code(sketches: &[Sketch], next: &mut u32) -> Vec<Code> {
    let code = sketches.iter().map(|sketch| {
        *next += 10;
        let key = *next;
        match sketch {
            Sketch::Work(time) => Code::Work(*time),
            Sketch::Wrapped(time) => Code::Wrapped(key, *time),
            Sketch::Call(body) => Code::Call(key, code(body, next)),
            Sketch::Loop(times, pattern, body) => {
                let first = *next;
                let body = |at: u64| {
                    *next = first;
                    let parts = code(body, next).into_iter().enumerate();
                    let runs = |part: usize| pattern >> ((at * 5 + part as u64) % 64) & 1 == 1;
                    parts.filter(|(part, _)| runs(*part)).map(|(_, code)| code).collect()
                };
                Code::Loop(key, (0..*times).map(body).collect())
            }
        }
    });
    code.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_time_is_lost_and_no_iteration_invented(
        program in prop::collection::vec(sketch(), 1..5),
        marks in prop::bool::weighted(0.8),
        nodes in prop_oneof![Just(100_000usize), 20usize..200],
    ) {
        let program = [Code::Call(9, code(&program, &mut 10))];
        let mut machine = Machine::new(nodes);
        machine.marks = marks;
        machine.run(&program);
        let seen = machine.finish();
        prop_assert!(seen.tree.is_partitioned());
        prop_assert_eq!(seen.tree.duration(), seen.end);
        for (key, truth) in &seen.iterations {
            let (accepted, rejected, _) = iterations(&seen.tree, *key);
            prop_assert!(
                accepted + rejected <= *truth,
                "loop {key}: {accepted} and {rejected} of {truth}"
            );
        }
        prop_assert_eq!(difference(&seen.tree, &seen.tree, &Decades), 0.0);
    }

    /// One program on several ranks: one cluster that keeps all of their time.
    #[test]
    fn ranks_that_do_the_same_are_one_cluster(program in prop::collection::vec(sketch(), 1..5)) {
        let program = [Code::Call(9, code(&program, &mut 10))];
        let tree = |_| {
            let mut machine = Machine::new(100_000);
            machine.run(&program);
            machine.finish().tree
        };
        let ranks: Vec<Cluster> = (0..6).map(|rank| Cluster::one(rank, tree(rank))).collect();
        let one = ranks[0].tree.clone();
        let clusters = clustered(ranks);
        prop_assert_eq!(members(&clusters), ["0-5"]);
        prop_assert_eq!(clusters[0].tree.duration(), 6 * one.duration());
        prop_assert_eq!(time(&clusters[0].tree, 9), 6 * time(&one, 9));
    }
}
