//! perf events and the metrics derived from them, against hand arithmetic.

use plimsoll_collector::profile::{CountedEvent, CounterProfile, MAX_EVENTS};

use super::*;
use crate::summary::{WorkDifference, WorkDifferenceKind};
use crate::synthetic_run::Contexts;

/// Returns the summary of three ranks: rank r has 100 (r + 1) instructions and 50 cycles in
/// `solve`, 10 and 0 in `main` itself; rank 2 does not count the event `page-faults`.
fn counted(definitions: Option<&str>) -> Summary {
    let subject = ten_steps(3, |_| vec![doing("main/solve", 2 * MS), doing("main", MS)]);
    let mut inputs = subject.inputs();
    for (input, rank) in inputs.iter_mut().zip(1..) {
        let mut contexts = Contexts { tree: input.profile.tree.clone() };
        let (main, solve) = (contexts.node("main"), contexts.node("main/solve"));
        let increments = |values: [u64; 3]| {
            let mut all = [0; MAX_EVENTS];
            all[..3].copy_from_slice(&values);
            all
        };
        let event = |name: &str, refused| CountedEvent { name: name.to_owned(), refused };
        let counters = &mut input.profile.counters;
        counters.events = vec![
            event("instructions", None),
            event("cycles", None),
            event("page-faults", (rank == 3).then_some(2)),
        ];
        let faults = if rank == 3 { 0 } else { 7 };
        counters.main =
            vec![(main, increments([10, 0, 0])), (solve, increments([100 * rank, 50, faults]))];
    }
    let mut job = job();
    if let Some(definitions) = definitions {
        job.settings.insert("PLIMSOLL_METRICS".into(), definitions.into());
    }
    diagnose_alone(inputs, &job).unwrap()
}

#[test]
fn metrics_are_derived_from_sums_over_ranks() {
    let summary = counted(Some("ipc = instructions / cycles; rate = page_faults / seconds"));
    let counters = &summary.counters;
    let totals: Vec<_> =
        ["instructions", "cycles", "page-faults"].map(|it| counters.total(it)).into();
    assert_eq!(totals, [Some(630.0), Some(150.0), Some(14.0)]);
    let of = |function: &str| {
        let is_it = |node: u32| {
            summary.tree.path(node).last().is_some_and(|frame| frame.function == function)
        };
        counters.contexts.iter().find(|it| is_it(it.node)).expect("it has events")
    };
    let (main, solve) = (of("main"), of("solve"));
    let instructions = solve.events["instructions"].exclusive;
    assert_eq!((instructions.sum, instructions.mean, instructions.min), (600.0, 200.0, 100.0));
    assert_eq!((instructions.max, instructions.ranks), (300.0, 3));
    assert!((instructions.stddev - (20_000.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    assert_eq!(main.events["instructions"].inclusive.sum, 630.0);
    assert_eq!(main.events["instructions"].exclusive.sum, 30.0);
    // A mean of the ranks' ratios would be 4 as well in `solve`, but not in `main`.
    assert_eq!(solve.metrics["ipc"].exclusive, Some(4.0));
    assert_eq!(main.metrics["ipc"].inclusive, Some(4.2));
    assert_eq!(main.metrics["ipc"].exclusive, None, "no cycles: a division by zero");
    assert_eq!(counters.metrics[0].value, Some(4.2));
    let rate = solve.metrics["rate"].exclusive.unwrap();
    assert!((rate - 14.0 / 0.060).abs() < 1e-6, "{rate}");
    let node = &summary.tree.nodes[solve.node as usize];
    assert_eq!(node.counters["instructions"], 600.0);
}

#[test]
fn a_refusal_is_told_and_ipc_is_derived_by_default() {
    let summary = counted(None);
    let faults = summary.counters.events.iter().find(|it| it.name == "page-faults").unwrap();
    assert_eq!(faults.ranks, "0-1");
    assert!(faults.refused.as_ref().is_some_and(|reason| reason.ends_with("(rank 2)")));
    let note = "page-faults is not counted on rank 2: this machine has no such hardware counter.";
    assert!(summary.notes.iter().any(|it| it == note), "{:?}", summary.notes);
    assert_eq!(summary.counters.metrics.len(), 1);
    assert_eq!(summary.counters.metrics[0].value, Some(4.2));
    let without = counted(Some("x = l1_dcache_loads"));
    let note = "The metric x has no value: PLIMSOLL_COUNTERS has no counted event l1_dcache_loads.";
    assert!(without.notes.iter().any(|it| it == note), "{:?}", without.notes);
    assert_eq!(without.counters.metrics[0].value, None);
}

/// Builds four ranks; rank 3 takes twice the time of the others in `kernel`. `values` returns
/// instructions and cycles of a rank there. Waiting ranks execute many more instructions.
fn uneven(events: [&'static str; 2], values: fn(u32) -> [u64; 2]) -> Subject {
    let mut subject = ten_steps(4, |rank| {
        vec![doing("main/solve/kernel", (if rank == 3 { 20 } else { 10 }) * MS), doing("main", MS)]
    });
    subject.counters = Box::new(move |rank, contexts| {
        let mut increments = [[0; MAX_EVENTS]; 2];
        increments[0][..2].copy_from_slice(&values(rank));
        increments[1][..2].copy_from_slice(&[u64::from(4 - rank) << 40; 2]);
        let [kernel, wait] =
            ["main/solve/kernel", "main/MPI_Barrier"].map(|path| contexts.node(path));
        let event = |name: &'static str| CountedEvent {
            name: name.replace("refused on rank 2", "cycles"),
            refused: (name.starts_with("refused") && rank == 2).then_some(2),
        };
        CounterProfile {
            events: events.map(event).into(),
            main: vec![(kernel, increments[0]), (wait, increments[1])],
            ..CounterProfile::default()
        }
    });
    subject
}

/// Returns the difference in the first cause of the only loss, found by three processes.
fn difference(subject: &Subject) -> Option<WorkDifference> {
    let summary = diagnose_on(3, &subject.inputs(), &job());
    let cause = &only_loss(&summary).causes[0];
    assert_eq!(cause.path.last().unwrap().function, "kernel");
    // One process finds the same, in the form of the schema.
    assert_eq!(only_loss(&verdict(subject)).causes[0], *cause);
    cause.difference.clone()
}

const HARDWARE: [&str; 2] = ["instructions", "cycles"];

#[test]
fn a_slow_rank_has_more_work_or_slower_work() {
    // 2 GHz: 100 ms are 200 million cycles.
    fn cycles(rank: u32) -> u64 {
        if rank == 3 { 400_000_000 } else { 200_000_000 }
    }
    let more = difference(&uneven(HARDWARE, |rank| [2 * cycles(rank), cycles(rank)])).unwrap();
    assert_eq!(more.kind, WorkDifferenceKind::MoreWork);
    assert_eq!((&*more.ranks, more.ipc, more.ipc_of_others), ("3", 2.0, 2.0));
    assert_eq!((more.time_factor, more.instructions_factor, more.share), (2.0, 2.0, 1.0));
    let slower = difference(&uneven(HARDWARE, |rank| [400_000_000, cycles(rank)])).unwrap();
    assert_eq!(slower.kind, WorkDifferenceKind::SlowerWork);
    assert_eq!((slower.ipc, slower.ipc_of_others), (1.0, 2.0));
    assert_eq!((slower.instructions_factor, slower.share), (1.0, 1.0));
    // Twice the time in equal instructions and cycles: neither.
    let others = difference(&uneven(HARDWARE, |_| [400_000_000, 200_000_000]));
    assert_eq!(others, None);
}

#[test]
fn events_that_do_not_tell_work_say_nothing_of_it() {
    let values = |rank: u32| [100 * u64::from(rank + 1), 100 * u64::from(rank + 1)];
    assert_eq!(difference(&uneven(["page-faults", "task-clock"], values)), None);
    assert_eq!(difference(&uneven(["instructions", "task-clock"], values)), None);
    assert_eq!(difference(&uneven(["instructions", "refused on rank 2"], values)), None);
}
