//! Contexts and ranks that vary together.

use plimsoll_collector::profile::{CountedEvent, CounterProfile, MAX_EVENTS};

use super::*;
use crate::ranks::RankSet;
use crate::synthetic_run::Doing;

const SWEEPS: [&str; 4] =
    ["main/sweep/east", "main/sweep/west", "main/sweep/leak", "main/sweep/flux"];
const FILTERS: [&str; 5] = [
    "main/filter/fft",
    "main/filter/damp",
    "main/filter/smooth",
    "main/filter/polar",
    "main/sweep/leak",
];
const OTHERS: [&str; 3] = ["main/sweep/inner", "main/source", "main/filter/norm"];
/// Boundary of a grid of 6 x 4 ranks, and the ranks that filter.
const BOUNDARY: &str = "0-6,11-12,17-23";
const FILTERING: &str = "2,5,8,15,18,21";

/// Pseudo-random numbers from 0 to 99, by rank and context.
fn noise(rank: u32, context: usize) -> u64 {
    let mixed = u64::from(rank * 97 + context as u32 * 31 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) % 100
}

/// 24 ranks: boundary ranks sweep for longer, some ranks filter for longer; noise of 1 ms.
fn grid() -> Subject {
    let lists = [BOUNDARY, FILTERING].map(|list| list.parse::<RankSet>().unwrap());
    let mut contexts: Vec<&'static str> = [&SWEEPS[..], &FILTERS, &OTHERS].concat();
    contexts.sort_unstable();
    contexts.dedup();
    let mut subject = ten_steps(24, move |rank| {
        let part = |(index, path): (usize, &&'static str)| -> Doing {
            let extra = |paths: &[&str], list: &RankSet| {
                u64::from(paths.contains(path) && list.contains(rank))
            };
            let extra = extra(&SWEEPS, &lists[0]) * 10 + extra(&FILTERS, &lists[1]) * 9;
            doing(path, 20 * MS + extra * MS + noise(rank, index) * MS / 100)
        };
        contexts.iter().enumerate().map(part).collect()
    });
    subject.step("main/MPI_Finalize", |_| vec![]);
    subject
}

#[test]
fn boundary_ranks_and_their_functions_are_a_bicluster() {
    let summary = verdict(&grid());
    let mut found: Vec<(Vec<String>, RankSet, i8)> = Vec::new();
    for bicluster in &summary.biclusters {
        let names = bicluster.nodes.iter().map(|node| path(&summary.tree.path(*node)));
        found.push((names.collect(), bicluster.ranks.parse().unwrap(), bicluster.sign));
        assert!((0.05..=1.0).contains(&bicluster.variance_share));
    }
    found.iter_mut().for_each(|(names, ..)| names.sort());
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    // The interior has fewer ranks than the boundary, so the interior is the side that differs,
    // with less work.
    let list = |list: &str| list.parse::<RankSet>().unwrap();
    assert!(found.contains(&(sorted(&SWEEPS), list("7-10,13-16"), -1)), "{found:#?}");
    assert!(found.contains(&(sorted(&FILTERS), list(FILTERING), 1)), "{found:#?}");
    assert_eq!(found.len(), 2, "{found:#?}");
}

/// The ranks that filter have more cache misses there, and the time of all ranks is the same.
#[test]
fn ranks_with_more_events_in_some_contexts_are_a_bicluster() {
    let all = [&SWEEPS[..3], &FILTERS, &OTHERS].concat();
    let paths = all.clone();
    let mut subject = ten_steps(24, move |_| all.iter().map(|it| doing(it, 20 * MS)).collect());
    subject.counters = Box::new(move |rank, contexts| {
        let filtering: RankSet = FILTERING.parse().unwrap();
        let counts = paths.iter().enumerate().map(|(index, path)| {
            let more = u64::from(filtering.contains(rank) && FILTERS.contains(path)) * 900;
            let mut increments = [0; MAX_EVENTS];
            increments[0] = 10_000 + more + noise(rank, index);
            (contexts.node(path), increments)
        });
        CounterProfile {
            main: counts.collect(),
            events: vec![CountedEvent { name: "cache-misses".to_owned(), refused: None }],
            ..CounterProfile::default()
        }
    });
    let summary = verdict(&subject);
    let [found] = &summary.biclusters[..] else { panic!("{:#?}", summary.biclusters) };
    assert_eq!(found.event.as_deref(), Some("cache-misses"));
    let list = |list: &str| list.parse::<RankSet>().unwrap();
    assert_eq!((list(&found.ranks), found.sign), (list(FILTERING), 1));
    let mut names: Vec<String> =
        found.nodes.iter().map(|node| path(&summary.tree.path(*node))).collect();
    names.sort();
    let mut truth = FILTERS.map(str::to_owned);
    truth.sort();
    assert_eq!(names, truth);
}

#[test]
fn however_ranks_lie_on_nodes_the_biclusters_are_the_same() {
    let subject = grid();
    let alone = diagnose_alone(subject.inputs(), &job()).unwrap();
    let together = diagnose_on(5, &subject.inputs(), &job());
    assert_eq!(together.biclusters, alone.biclusters);
}

#[test]
fn ranks_that_do_the_same_have_none() {
    let summary = verdict(&ten_steps(24, |_| OTHERS.map(|path| doing(path, 30 * MS)).into()));
    assert_eq!(summary.biclusters, []);
}
