//! Compares tables with what the ranks did, and with the summary beside them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use plimsoll_collector::profile::{CountedEvent, CounterProfile, MAX_EVENTS};
use plimsoll_summary::npz::{self, Arrays};
use plimsoll_summary::per_rank_file::RankTable;
use proptest::prelude::*;

use super::*;
use crate::context_order::ordered;
use crate::diagnose::{diagnose, diagnose_into};
use crate::rank::Rank;
use crate::summary::Metric;
use crate::summary::Summary;
use crate::synthetic_run::{MS, Subject, doing, job};
use crate::thread_ranks::run;

const BARRIER: &str = "main/MPI_Barrier";

/// A table in memory of bounded size.
#[derive(Debug)]
struct Memory {
    kept: File,
    bytes: Vec<u8>,
    room: usize,
    discarded: bool,
}

impl Memory {
    fn new(room: usize) -> Self {
        Self { kept: tempfile::tempfile().unwrap(), bytes: Vec::new(), room, discarded: false }
    }

    fn has_room(&self, end: usize) -> Result<(), Error> {
        match end > self.room {
            true => {
                let source = io::ErrorKind::StorageFull.into();
                Err(Error::Write { path: "/scratch".into(), source })
            }
            false => Ok(()),
        }
    }
}

impl Table for Memory {
    fn keep_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.has_room(offset as usize + bytes.len())?;
        self.kept.write_all_at(bytes, offset).unwrap();
        Ok(())
    }

    fn write(&mut self, arrays: &[Array]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        npz::write(&mut bytes, arrays, Some(&self.kept)).unwrap();
        self.has_room(bytes.len())?;
        self.bytes = bytes;
        Ok(())
    }

    fn discard(&mut self) {
        self.discarded = true;
    }

    fn attach(&mut self, _: &str, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// A table as a program reads it.
struct Read {
    table: RankTable,
    /// Arrays of floats of the phases.
    phases: Arrays,
}

impl Read {
    fn new(bytes: &[u8]) -> Self {
        let [table, phases] = [(); 2].map(|()| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            file
        });
        Self { table: RankTable::open(table).unwrap(), phases: Arrays::open(phases).unwrap() }
    }

    /// Returns the values of all ranks of a quantity in the node of this column.
    fn column(&self, quantity: &str, column: usize) -> Vec<f64> {
        let quantity = self.table.quantities.iter().position(|it| it == quantity).unwrap();
        let value = |rank| f64::from(self.table.values(quantity, rank).unwrap()[column]);
        (0..self.table.ranks.len()).map(value).collect()
    }
}

/// Builds two functions that take longer on higher ranks, one that only odd ranks have, and another
/// thread.
fn subject(ranks: u32) -> Subject {
    let mut subject = Subject::new(ranks);
    subject.others = vec![doing("worker/main/help", 7 * MS)];
    for _ in 0..3 {
        subject.step(BARRIER, |rank| {
            let odd = doing("main/odd", u64::from(rank % 2) * 5 * MS);
            let even = doing("main/step", 10 * MS);
            let inner = doing("main/step/relax", u64::from(rank) * MS + 1);
            [even, inner].into_iter().chain((rank % 2 == 1).then_some(odd)).collect()
        });
    }
    subject
}

/// Returns the summary and the table made by several processes; `home` returns the process of a
/// rank.
fn made(
    subject: &Subject,
    processes: u32,
    room: usize,
    home: impl Fn(u32) -> u32 + Sync,
) -> (Summary, Memory) {
    let mut made = run(processes, |comm| {
        let here = |rank: &u32| home(*rank) % processes == comm.rank();
        let local = (0..subject.ranks).rev().filter(here).map(|rank| subject.input(rank));
        let mut table = Memory::new(room);
        let summary = diagnose_into(comm, local.collect(), &job(), Some(&mut table)).unwrap();
        assert_eq!(summary.is_some(), comm.rank() == 0);
        assert!(comm.rank() == 0 || table.kept.metadata().unwrap().len() == 0);
        summary.map(|summary| (summary, table))
    });
    made.swap_remove(0).unwrap()
}

fn assert_tells(column: &[f64], metric: &Metric) {
    let near = |one: f64, other: f64| (one - other).abs() <= other.abs() * 1e-6;
    let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
    assert!(near(column.iter().sum(), metric.sum_s), "{column:?} {metric:?}");
    assert!(near(column.iter().copied().fold(least, f64::min), metric.min_s), "{column:?}");
    assert!(near(column.iter().copied().fold(most, f64::max), metric.max_s), "{column:?}");
}

#[test]
fn a_table_holds_what_each_rank_did() {
    let (summary, table) = made(&subject(5), 2, usize::MAX, |rank| rank);
    assert!(!table.discarded);
    assert!(summary.notes.is_empty(), "{:?}", summary.notes);
    let read = Read::new(&table.bytes);
    assert_eq!(read.table.ranks.to_string(), "0-4");
    let nodes = &read.table.nodes;
    assert!(nodes.iter().copied().eq(0..summary.tree.nodes.len() as u32));
    for (column, node) in summary.tree.nodes.iter().enumerate() {
        assert_tells(&read.column(INCLUSIVE, column), &node.inclusive);
        assert_tells(&read.column(EXCLUSIVE, column), &node.exclusive);
        assert_eq!(read.column(CALLS, column).iter().sum::<f64>(), node.calls as f64);
    }
    let of = |path: &[&str], quantity: &str| {
        let names = |node: u32| -> Vec<String> {
            summary.tree.path(node).into_iter().map(|frame| frame.function).collect()
        };
        let at = (0..nodes.len()).find(|at| names(*at as u32) == path).unwrap();
        read.column(quantity, at)
    };
    assert_eq!(
        of(&["main", "odd"], INCLUSIVE),
        [0.0, 0.015, 0.0, 0.015, 0.0].map(|s| f64::from(s as f32))
    );
    let relax = [0u32, 1, 2, 3, 4].map(|rank| f64::from((f64::from(rank) * 0.003 + 3e-9) as f32));
    assert_eq!(of(&["main", "step", "relax"], EXCLUSIVE), relax);
    let step =
        [0u32, 1, 2, 3, 4].map(|rank| f64::from((f64::from(rank) * 0.003 + 0.030_000_003) as f32));
    assert_eq!(of(&["main", "step"], INCLUSIVE), step);
    assert_eq!(of(&["main", "step"], EXCLUSIVE), [f64::from(0.03f32); 5]);
    // A context of another thread differs from the main thread's context of the same name.
    assert_eq!(of(&["worker", "main", "help"], EXCLUSIVE), [f64::from(0.007f32); 5]);
}

#[test]
fn a_table_holds_the_events_of_each_rank() {
    let mut subject = subject(3);
    subject.counters = Box::new(|rank, contexts| {
        let [step, relax] = ["main/step", "main/step/relax"].map(|path| contexts.node(path));
        let values = |faults: u64, instructions: u64| {
            let mut all = [0; MAX_EVENTS];
            all[..2].copy_from_slice(&[faults, instructions]);
            all
        };
        let event = |name: &str, refused| CountedEvent { name: name.to_owned(), refused };
        CounterProfile {
            events: vec![
                event("page-faults", None),
                event("instructions", (rank == 1).then_some(2)),
                event("cycles", Some(2)),
            ],
            main: vec![(step, values(5, 0)), (relax, values(10 * u64::from(rank), 1 << 40))],
            ..CounterProfile::default()
        }
    });
    let (summary, table) = made(&subject, 2, usize::MAX, |rank| rank);
    let read = Read::new(&table.bytes);
    // No rank counted cycles.
    let names = [
        "inclusive_s",
        "exclusive_s",
        "calls",
        "instructions.inclusive",
        "instructions.exclusive",
        "page-faults.inclusive",
        "page-faults.exclusive",
    ];
    assert_eq!(read.table.quantities, names);
    let of = |function: &str, quantity: &str| {
        let is_it =
            |node: &u32| summary.tree.path(*node).last().is_some_and(|it| it.function == function);
        read.column(quantity, read.table.nodes.iter().position(is_it).unwrap())
    };
    assert_eq!(of("relax", "page-faults.inclusive"), [0.0, 10.0, 20.0]);
    assert_eq!(of("step", "page-faults.inclusive"), [5.0, 15.0, 25.0]);
    assert_eq!(of("step", "page-faults.exclusive"), [5.0; 3]);
    let instructions = of("main", "instructions.inclusive");
    assert_eq!([instructions[0], instructions[2]], [(1u64 << 40) as f64; 2]);
    assert!(instructions[1].is_nan(), "rank 1 did not count it");
}

#[test]
fn a_table_holds_what_each_phase_took() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![doing("main/first", 10 * MS)]);
    for step in 0..4 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == step { 50 } else { 10 };
            vec![doing("main/step/relax", slow_ms * MS)]
        });
    }
    let (summary, table) = made(&subject, 2, usize::MAX, |rank| rank);
    let read = Read::new(&table.bytes);
    assert_eq!(read.phases.integers(PHASES).unwrap(), [0, 1]);
    let width = read.table.nodes.len();
    let of = |phase: usize, path: &[&str]| {
        let names = |node: u32| -> Vec<String> {
            summary.tree.path(node).into_iter().map(|frame| frame.function).collect()
        };
        let at = (0..width).find(|at| names(*at as u32) == path).unwrap();
        phase_columns::QUANTITIES.map(|name| {
            let begin = read.phases.numbers(name, Kind::Float, &[width, 2]).unwrap();
            let mut numbers = vec![0.0; 2 * width];
            read.phases.floats(begin, &mut numbers).unwrap();
            numbers[width * phase + at]
        })
    };
    // Each rank is slow once: 80 ms on each, and 50 ms in each of the four instances.
    assert_eq!(of(1, &["main", "step", "relax"]), [0.08, 0.08, 0.08, 0.2]);
    assert_eq!(of(0, &["main", "step", "relax"]), [0.0; 4]);
    assert_eq!(of(0, &["main", "first"]), [0.01; 4]);
    let barrier = of(1, &["main", "MPI_Barrier"]);
    assert_eq!(barrier[..3], [0.12; 3]);
    assert!(barrier[3].is_nan(), "{barrier:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn tables_do_not_depend_on_where_ranks_are(
        homes in prop::collection::vec(0u32..9, 2..40),
        processes in 1u32..9,
    ) {
        let subject = subject(homes.len() as u32);
        let truth = made(&subject, 1, usize::MAX, |_| 0);
        let other = made(&subject, processes, usize::MAX, |rank| homes[rank as usize]);
        prop_assert_eq!(truth.0, other.0);
        prop_assert_eq!(truth.1.bytes, other.1.bytes);
    }

    #[test]
    fn a_full_disk_costs_the_table_only(room in 0usize..6000, processes in 1u32..6) {
        let subject = subject(12);
        let (truth, whole) = made(&subject, 1, usize::MAX, |_| 0);
        let (mut summary, table) = made(&subject, processes, room, |rank| rank / 2);
        if room >= whole.bytes.len() {
            prop_assert_eq!(whole.bytes, table.bytes);
        } else {
            prop_assert!(table.discarded && table.bytes.is_empty());
            let note = summary.notes.pop().unwrap();
            let reason = "/scratch cannot be written: the disk is full.";
            prop_assert!(note.ends_with(reason), "{}", note);
        }
        prop_assert_eq!(summary, truth);
    }
}

#[test]
fn without_other_ranks_there_is_none() {
    let (summary, table) = made(&subject(1), 3, usize::MAX, |_| 2);
    assert!(table.bytes.is_empty() && !table.discarded);
    assert!(summary.notes.is_empty());
    // No table is made if none is requested.
    let two = subject(2);
    let summaries = run(2, |comm| diagnose(comm, vec![two.input(comm.rank())], &job()).unwrap());
    assert!(summaries[0].as_ref().is_some_and(|summary| summary.notes.is_empty()));
}

#[test]
fn rows_that_cannot_be_read_cost_the_table_only() {
    for piece in [&[][..], &[LAST, 1, 2], &[LAST, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let outcomes = run(3, |comm| {
            let sheet = Sheet {
                ranks: RankSet::from_iter([0, 1]),
                nodes: vec![0],
                columns: Columns { contexts: vec![0], events: Vec::new() },
                phases: PhaseRows::default(),
            };
            let mut tree = CanonicalTree::default();
            let columns = Columns { contexts: vec![0], events: Vec::new() };
            let columns = (&mut tree, &columns);
            if comm.rank() == 1 {
                while comm.receive(0).unwrap() == NEXT_ROWS {
                    comm.send(0, piece).unwrap();
                }
                return false;
            }
            let mut table = Memory::new(usize::MAX);
            let wanted = (comm.rank() == 0).then_some((&sheet, &mut table as &mut dyn Table));
            let collected = collect(comm, &[], columns, wanted);
            assert_eq!(collected.is_err(), comm.rank() == 0);
            table.discarded
        });
        assert_eq!(outcomes, [true, false, false], "{piece:?}");
    }
}

#[test]
fn a_bounded_table_keeps_what_differs_most() {
    let subject = subject(8);
    let agreed = crate::agreement::Agreed {
        matching: crate::agreement::Matching::Phases,
        level: 0,
        subgroup_level: 0,
        ranks: 8,
        rules: crate::rules::Rules::default(),
        by_samples: false,
    };
    let mut totals = Totals::default();
    let add = |input| totals.add_rank(&Rank::new(input, &agreed), &agreed);
    subject.inputs().iter().for_each(add);
    let totals = ordered(totals);
    let imbalances = crate::imbalance::imbalances(
        &totals.sums,
        totals.job.ranks.len(),
        totals.job.kept_period_ns,
    );
    let names = |sheet: &Sheet| -> Vec<String> {
        let name = |id: &NodeId| {
            let contexts = &totals.tree.contexts;
            contexts.frames[contexts.nodes[*id as usize].frame as usize].function.clone()
        };
        sheet.columns.contexts.iter().map(name).collect()
    };
    let whole = Sheet::of(&totals, &imbalances, MAX_BYTES).unwrap();
    assert_eq!(whole.nodes.len(), 8, "{:?}", names(&whole));
    // Work differs by 21 ms, wait time by 36 ms: 7 x 3 and an odd function of 15.
    let some = Sheet::of(&totals, &imbalances, 3 * 8 * 12).unwrap();
    assert_eq!(names(&some), ["step", "relax", "MPI_Barrier"]);
    assert!(some.nodes.is_sorted() && some.columns.contexts.is_sorted());
    assert_eq!(Sheet::of(&totals, &imbalances, 8 * 12 - 1), None);
}
