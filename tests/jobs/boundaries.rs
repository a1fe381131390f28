//! Contexts and ranks that vary together in a real job.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::subject_job::{Job, Watch};
use serde_json::Value;

const LEAKAGE: [&str; 4] = ["leak_west", "leak_east", "reflect", "tally_currents"];

/// As on Fowler's slides: the ranks at the boundary of the domain compute longer in the leakage
/// loops.
#[test]
#[ignore = "long: scripts/test --all"]
fn boundary_ranks_of_a_sweep_and_their_four_loops_are_a_bicluster() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("sweep", Mpi::OpenMpi, 12).watch(Watch::Run).shares_cores();
    job.run_until(|job| {
        let summary = job.summary();
        let found = summary.at("/biclusters").as_array().expect("a list");
        let more = found.iter().find(|it| it["sign"] == 1);
        let more = more.unwrap_or_else(|| panic!("{found:#?}\n{}", job.text()));
        assert_eq!(more["ranks"], "0,5-6,11", "{more:#}");
        let nodes = more["nodes"].as_array().expect("a list");
        let within = |function: &str| {
            let is_within = |node: &u64| summary.path_to(*node as usize).contains(&function);
            nodes.iter().filter_map(Value::as_u64).filter(is_within).count()
        };
        for function in LEAKAGE {
            assert!(within(function) > 0, "{function}: {more:#}");
        }
        let leakage: usize = LEAKAGE.iter().map(|function| within(function)).sum();
        assert_eq!(leakage, nodes.len(), "no other loop varies: {more:#}");
        assert!(more["variance_share"].as_f64().is_some_and(|it| it > 0.8), "{more:#}");
    });
}
