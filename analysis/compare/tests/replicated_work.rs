//! LAMMPS on 1, 2, 4 and 8 ranks, recorded on two cores: `lammps/surface.in`, one sample per
//! millisecond. The fixtures hold only the keys that a comparison reads.
//!
//! The liquid is a cube with open boundaries, and each rank computes all its pairs itself (`newton
//! off`). Both ranks search and compute the pairs across their border: neighbour lists are
//! replicated work, which grows with the surface between ranks.

use std::fs;
use std::path::PathBuf;

use plimsoll_compare::comparison::{Comparison, ExpectationKind, TimeClass};
use plimsoll_compare::{Experiment, Options, compare};

const NEIGHBOUR_LISTS: &str = "LAMMPS_NS::NPairHalfBinNewtoff::build";

fn compared(ranks: &[u32]) -> Comparison {
    let run = |ranks: &u32| {
        let name = format!("tests/lammps/{ranks}.plimsoll.json");
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&name);
        let json = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        Experiment::from_json(&name, 0, &json).expect("recorded summaries can be compared")
    };
    let runs: Vec<Experiment> = ranks.iter().map(run).collect();
    compare(&runs, &Options::default()).expect("set-ups")
}

#[test]
fn neighbour_lists_are_replicated_work_from_the_first_border_on() {
    let comparison = compared(&[1, 2]);
    assert_eq!(comparison.expectation.kind, ExpectationKind::Strong);
    let first = &comparison.findings[0];
    let context = &comparison.contexts[first.context as usize];
    assert_eq!((context.name.as_str(), first.class), (NEIGHBOUR_LISTS, TimeClass::Work));
    // 0.70 s on one rank, 0.75 s on two together.
    assert!((0.04..0.08).contains(&first.seconds), "{}", first.seconds);
}

#[test]
fn replicated_work_and_communication_show_where_ranks_share_cores() {
    let comparison = compared(&[1, 2, 4, 8]);
    let name = |context: u32| comparison.contexts[context as usize].name.as_str();
    let mut findings = comparison.findings.iter();
    let lists = findings.find(|finding| name(finding.context) == NEIGHBOUR_LISTS);
    let lists = lists.expect("neighbour lists are a finding");
    let total_s = &comparison.contexts[lists.context as usize].total_s;
    assert!(total_s.is_sorted(), "{total_s:?}");
    assert!(lists.class == TimeClass::Work, "{lists:?}");
    assert!(lists.sentence.contains("computes 1.4 times as much in all"), "{}", lists.sentence);

    let largest = &comparison.findings[0];
    assert_eq!(largest.class, TimeClass::Communication);
    assert_eq!(name(largest.context), "MPI_Send in LAMMPS_NS::CommBrick::forward_comm");
    let crowded = "more ranks than cores (up to 8 ranks on 2 cores of node1)";
    assert!(comparison.notes.iter().any(|note| note.contains(crowded)), "{:?}", comparison.notes);
}
