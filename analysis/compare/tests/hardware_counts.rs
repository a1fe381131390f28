//! POP's factors of computation scaling: recorded runs with made numbers of hardware events,
//! checked by hand arithmetic.

use std::fs;
use std::path::PathBuf;

use plimsoll_compare::comparison::Comparison;
use plimsoll_compare::{Expect, Experiment, Options, compare, text, to_json};
use serde_json::{Value, json};

/// Events of a function itself.
struct Made {
    function: &'static str,
    instructions: f64,
    cycles: f64,
}

fn made(function: &'static str, instructions: f64, cycles: f64) -> Made {
    Made { function, instructions, cycles }
}

/// Returns the recorded run on this many ranks with these events, counted on `counted` ranks.
fn run(ranks: u32, counted: &str, made: &[Made]) -> Experiment {
    let name = format!("strong-{ranks}.plimsoll.json");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/growth").join(&name);
    let mut summary: Value =
        serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON");
    let nodes = summary["tree"]["nodes"].as_array().expect("a list");
    let mut sums = vec![[0.0; 2]; nodes.len()];
    for made in made {
        let is_it = |node: &Value| {
            let frame = node["frame"].as_u64().expect("an index") as usize;
            summary["tree"]["frames"][frame]["function"] == made.function
        };
        let mut at =
            Some(nodes.iter().position(is_it).expect("the function is in the tree") as u64);
        while let Some(node) = at {
            sums[node as usize][0] += made.instructions;
            sums[node as usize][1] += made.cycles;
            at = nodes[node as usize]["parent"].as_u64();
        }
    }
    let contexts: Vec<Value> = (0..)
        .zip(&sums)
        .map(|(node, [instructions, cycles]): (u32, _)| {
            json!({"node": node, "events": {
                "instructions": {"inclusive": {"sum": instructions}},
                "cycles": {"inclusive": {"sum": cycles}},
            }})
        })
        .collect();
    let event = |name: &str| json!({"name": name, "total": 1.0, "ranks": counted, "refused": null});
    summary["counters"] =
        json!({"events": [event("cycles"), event("instructions")], "contexts": contexts});
    let bytes = serde_json::to_vec(&summary).expect("JSON");
    Experiment::from_json(&name, 0, &bytes).expect("a summary")
}

fn compared(expect: Expect, counted: &str) -> Comparison {
    let runs = [
        run(1, "0", &[made("perfect", 9e9, 4e9), made("serial", 1e9, 1e9)]),
        // Instructions of a wait are none of the computation.
        run(
            4,
            counted,
            &[
                made("perfect", 9e9, 6e9),
                made("replicated", 3.5e9, 4e9),
                made("MPI_Barrier", 7e12, 2e12),
            ],
        ),
    ];
    compare(&runs, &Options { expect: Some(expect), fail_above: None }).expect("two set-ups")
}

fn assert_close(found: Option<f64>, expected: f64) {
    let found = found.expect("the events are counted");
    assert!((found - expected).abs() < 1e-9 * expected, "{found} instead of {expected}");
}

#[test]
fn computation_scaling_is_the_product_of_its_factors() {
    let comparison = compared(Expect::Strong, "0-3");
    let [first, row] = &comparison.scaling[..] else { panic!("two set-ups") };
    for factor in [first.instruction_scaling, first.ipc_scaling, first.frequency_scaling] {
        assert_close(factor, 1.0);
    }
    // 10 instructions in 5 cycles, then 12.5 in 10.
    assert_close(first.ipc, 2.0);
    assert_close(row.ipc, 1.25);
    assert_close(row.instruction_scaling, 0.8);
    assert_close(row.ipc_scaling, 0.625);
    let [useful_1, useful_4] =
        [first, row].map(|row| row.parallel.expect("MPI") * row.elapsed_s * f64::from(row.ranks));
    assert_close(row.frequency_scaling, (10e9 / useful_4) / (5e9 / useful_1));
    let product = [row.instruction_scaling, row.ipc_scaling, row.frequency_scaling]
        .into_iter()
        .map(|factor| factor.expect("counted"))
        .product();
    assert_close(row.computation_scaling, product);
    let text = text(&comparison);
    println!("{text}");
    let line = text.lines().find(|line| line.contains("62 %")).expect("a line of factors");
    assert!(line.contains("80 %") && line.ends_with("1.25"), "{line}");
    let json: Value = serde_json::from_str(&to_json(&comparison).expect("JSON")).expect("JSON");
    assert_eq!(json["scaling"][1]["ipc_scaling"], 0.625);
}

#[test]
fn weak_scaling_expects_more_instructions() {
    let comparison = compared(Expect::Weak, "0-3");
    assert_close(comparison.scaling[1].instruction_scaling, 4.0 * 0.8);
    assert_close(comparison.scaling[1].ipc_scaling, 0.625);
}

#[test]
fn events_that_a_rank_did_not_count_give_no_factors() {
    let comparison = compared(Expect::Strong, "0-2");
    let row = &comparison.scaling[1];
    assert_eq!((row.instruction_scaling, row.ipc_scaling, row.ipc), (None, None, None));
    assert_eq!(row.frequency_scaling, None);
    assert!(comparison.scaling[0].ipc.is_some());
    let json: Value = serde_json::from_str(&to_json(&comparison).expect("JSON")).expect("JSON");
    assert!(json["scaling"][1]["ipc_scaling"].is_null());
}
