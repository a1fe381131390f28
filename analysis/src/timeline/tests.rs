//! Compares timelines and windows with what the ranks did.

use plimsoll_collector::profile::{LocationKind, ThreadLocation, ThreadProfile};
use plimsoll_summary::npz::Array;
use plimsoll_summary::timeline_file::{ThreadGrid, ThreadKind, ThreadRow};

use super::*;
use crate::diagnose::{diagnose, diagnose_into};
use crate::error::Error;
use crate::per_rank::Table;
use crate::summary::Summary;
use crate::synthetic_run::{Contexts, MS, Subject, doing, job};
use crate::thread_ranks::run;

const BARRIER: &str = "main/MPI_Barrier";

/// Table that keeps the timeline.
#[derive(Default)]
struct Beside {
    timeline: Option<Timeline>,
}

impl Table for Beside {
    fn keep_at(&mut self, _: u64, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn write(&mut self, _: &[Array]) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&mut self) {}

    fn attach(&mut self, extension: &str, content: &[u8]) -> Result<(), Error> {
        assert_eq!(extension, "timeline");
        self.timeline = Some(serde_json::from_slice(content).unwrap());
        Ok(())
    }
}

/// Returns the summary and the timeline made by `processes` processes.
fn diagnosed(subject: &Subject, processes: u32) -> (Summary, Timeline) {
    let inputs = subject.inputs();
    let outcomes = run(processes, |comm: &dyn Communicator| {
        let ours = inputs.iter().filter(|input| input.rank % processes == comm.rank());
        let mut beside = Beside::default();
        let summary = diagnose_into(comm, ours.cloned().collect(), &job(), Some(&mut beside));
        Some((summary.unwrap()?, beside.timeline.unwrap()))
    });
    outcomes.into_iter().flatten().next().unwrap()
}

fn shown(summary: &Summary, timeline: &Timeline, cell: i32) -> String {
    let node = usize::try_from(cell).map(|cell| timeline.nodes[cell]);
    let path = node.map(|node| summary.tree.path(node));
    let names = |path: Vec<crate::summary::Frame>| {
        path.iter().map(|frame| frame.function.clone()).collect::<Vec<_>>().join("/")
    };
    path.map_or("?".to_owned(), names)
}

/// The last quarter of the ranks works twice as long, in the second half of 40 steps of 100 ms.
fn half_uneven(ranks: u32) -> Subject {
    let mut subject = Subject::new(ranks);
    for step in 0..40 {
        let is_slow = move |rank| step >= 20 && rank >= ranks - ranks / 4;
        subject.step(BARRIER, move |rank| {
            let assemble = if is_slow(rank) { 80 } else { 40 };
            vec![
                doing("main/step/solve/kernel", 20 * MS),
                doing("main/step/assemble/kernel", assemble * MS),
            ]
        });
    }
    subject
}

#[test]
fn cells_show_what_the_ranks_did() {
    let (summary, timeline) = diagnosed(&half_uneven(8), 3);
    assert_eq!(summary.losses.len(), 1);
    assert_eq!(timeline.schema, TimelineVersion::V1);
    let rows: Vec<&str> = timeline.rows.iter().map(|row| row.ranks.as_str()).collect();
    assert_eq!(rows, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    // 20 steps of 60 ms, 20 of 100 ms, in bins of 16 ms.
    assert_eq!((timeline.columns, timeline.begin_s, timeline.end_s), (200, 0.0, 3.2));
    assert_eq!(timeline.cells.len(), 8 * 200);
    assert_eq!(timeline.wait.len(), 8 * 200);
    let cell = |rank: usize, ms: usize| rank * 200 + ms / 16;
    let at = |rank, ms| shown(&summary, &timeline, timeline.cells[cell(rank, ms)]);
    let waits = |rank, ms| timeline.wait[cell(rank, ms)];
    // The cause is shown, and nothing below it; of another function the innermost context is shown.
    for rank in [0, 7] {
        assert_eq!(at(rank, 600 + 8), "main/step/solve/kernel");
        assert_eq!(at(rank, 600 + 40), "main/step/assemble");
        assert_eq!(at(rank, 1200 + 1600 + 8), "main/step/solve/kernel");
    }
    assert_eq!(at(0, 2800 + 80), BARRIER);
    assert_eq!(at(7, 2800 + 80), "main/step/assemble");
    assert_eq!((waits(0, 2800 + 80), waits(7, 2800 + 80)), (255, 0));
    // Three of ten columns cover the wait of a fast rank.
    let sum = |rank: usize| {
        let row = &timeline.wait[rank * 200..][..200];
        row.iter().map(|wait| f64::from(*wait) / 255.0).sum::<f64>() * 0.016
    };
    assert!((sum(0) - 0.8).abs() < 0.01 && sum(7) < 0.01, "{} {}", sum(0), sum(7));
}

#[test]
fn symptoms_and_causes_are_always_shown() {
    let subject = half_uneven(8);
    let (summary, timeline) = diagnosed(&subject, 1);
    let loss = &summary.losses[0];
    for node in loss.causes.iter().map(|cause| cause.node).chain([loss.symptom.node]) {
        assert!(timeline.nodes.contains(&node), "{node} is not in {:?}", timeline.nodes);
    }
    assert_eq!(diagnosed(&subject, 5), (summary, timeline), "for any distribution of the ranks");
}

#[test]
fn rows_of_many_ranks_share_cells() {
    let (summary, timeline) = diagnosed(&half_uneven(1024), 4);
    assert_eq!(timeline.rows.len(), 512);
    assert_eq!(timeline.rows[0].ranks, "0-1");
    assert_eq!(timeline.rows[511].ranks, "1022-1023");
    let at =
        |row: usize, ms: usize| shown(&summary, &timeline, timeline.cells[row * 200 + ms / 16]);
    assert_eq!((at(0, 2880), at(511, 2880)), (BARRIER.into(), "main/step/assemble".into()));
    assert!(timeline.cells.len() <= MAX_CELLS);
}

#[test]
fn windows_add_up_to_the_efficiencies_of_the_run() {
    let (summary, _) = diagnosed(&half_uneven(8), 2);
    let efficiency = &summary.efficiency;
    let windows = &efficiency.windows;
    assert_eq!(windows.len(), 100);
    assert_eq!((windows[0].begin_s, windows[99].end_s), (0.0, summary.run.elapsed_s));
    assert!(windows.windows(2).all(|pair| pair[0].end_s == pair[1].begin_s));
    let sum: f64 = windows.iter().map(|it| it.parallel.unwrap() * (it.end_s - it.begin_s)).sum();
    let mean = sum / summary.run.elapsed_s;
    assert!((mean - efficiency.parallel.unwrap()).abs() < 1e-6, "{mean} {efficiency:?}");
    // All are busy at first; then two of eight are for 100 ms, the others for 60.
    let mean = |of: fn(&Window) -> Option<f64>, at: std::ops::Range<usize>| {
        let length = at.len() as f64;
        windows[at].iter().map(|it| of(it).unwrap_or(0.0)).sum::<f64>() / length
    };
    assert!(mean(|it| it.parallel, 0..37) > 0.999);
    assert!((mean(|it| it.parallel, 38..100) - 0.7).abs() < 0.01);
    assert!(mean(|it| it.communication, 38..100) > 0.99);
}

#[test]
fn clocks_that_are_ahead_and_drift_do_not_shift_cells() {
    let mut subject = half_uneven(8);
    let straight = diagnosed(&subject, 1);
    for rank in 4..8 {
        let clock = &mut subject.clocks[rank];
        clock.known.id = "two".to_owned();
        (clock.ahead_ns, clock.drift_ppm) = (-3_000_000_000, 40.0);
    }
    let shifted = diagnosed(&subject, 1);
    assert!(shifted.0.clocks.offsets_us[7] < -2.9e6, "{:?}", shifted.0.clocks);
    let differ = |one: &[i32], other: &[i32]| one.iter().zip(other).filter(|(a, b)| a != b).count();
    // A cell that two call paths share equally may go to either.
    let different = differ(&straight.1.cells, &shifted.1.cells);
    assert!(different < straight.1.cells.len() / 50, "{different} cells differ");
}

#[test]
fn a_pause_is_part_of_the_axis_and_has_no_efficiencies() {
    let mut inputs = half_uneven(8).inputs();
    for profile in inputs.iter_mut().map(|input| &mut input.profile) {
        // A pause as long as the measured part, before that.
        let paused = profile.times.bins.len();
        profile.times.bins.splice(0..0, vec![TimeBin::default(); paused]);
        profile.collection.paused_ns = paused as u64 * profile.times.width_ns;
    }
    let summary = run(1, |comm: &dyn Communicator| diagnose(comm, inputs.clone(), &job()).unwrap());
    let summary = summary.into_iter().flatten().next().unwrap();
    let windows = &summary.efficiency.windows;
    let last = windows.last().unwrap();
    assert!((last.end_s - 2.0 * summary.run.elapsed_s).abs() < 0.02, "{last:?}");
    let (paused, measured) = windows.split_at(windows.len() / 2);
    assert!(paused.iter().all(|it| it.parallel.is_none() && it.communication.is_none()));
    let mean = measured.iter().map(|it| it.parallel.unwrap()).sum::<f64>() / measured.len() as f64;
    assert!((mean - summary.efficiency.parallel.unwrap()).abs() < 0.01, "{mean}");
    let when = summary.losses[0].when.as_ref().unwrap();
    // The ranks differ from 1.2 s after the pause on.
    assert!((when.from_s - 4.4).abs() < 0.1 && (when.to_s - 6.4).abs() < 0.1, "{when:?}");
}

#[test]
fn without_bins_there_are_windows_without_time() {
    let mut inputs = half_uneven(2).inputs();
    inputs.iter_mut().for_each(|input| input.profile.times = Default::default());
    let summary = run(1, |comm: &dyn Communicator| diagnose(comm, inputs.clone(), &job()).unwrap());
    let summary = summary.into_iter().flatten().next().unwrap();
    assert!(
        summary
            .efficiency
            .windows
            .iter()
            .all(|it| it.parallel.is_none() && it.load_balance.is_none())
    );
}

const KERNEL: &str = "worker/solve/kernel";
const WAIT: &str = "worker/pthread_cond_wait";

/// A thread that computes until a time and then waits for work, from 0.64 s to 2.56 s.
fn thread(
    kind: LocationKind,
    number: u32,
    until_ms: u64,
    contexts: &mut Contexts,
) -> ThreadLocation {
    let mut times = TimeSeries { width_ns: 128 * MS, bins: Vec::new() };
    times.add(contexts.node(KERNEL), 640 * MS, until_ms * MS);
    times.add(contexts.node(WAIT), until_ms * MS, 2560 * MS);
    let (number, work_ns) = (Some(number), (until_ms - 640) * MS);
    ThreadLocation { kind, number, threads: 1, work_ns, values: Vec::new(), times }
}

/// Locations of the threads of a rank: the slowest computes longer on later ranks.
fn key_threads(rank: u32, contexts: &mut Contexts) -> ThreadProfile {
    let locations = vec![
        thread(LocationKind::Slowest, 3, 1408 + 128 * u64::from(rank), contexts),
        thread(LocationKind::Fastest, 1, 768, contexts),
        ThreadLocation {
            number: None,
            threads: 5,
            times: TimeSeries::default(),
            ..thread(LocationKind::Rest, 0, 1000, contexts)
        },
    ];
    ThreadProfile { locations, ..ThreadProfile::default() }
}

fn with_threads(ranks: u32) -> Subject {
    let mut subject = half_uneven(ranks);
    subject.threads = 3;
    subject.others = vec![doing(KERNEL, 1000 * MS), doing(WAIT, 1000 * MS)];
    subject.thread_locations = key_threads;
    subject
}

#[test]
fn threads_have_rows_of_coarser_cells() {
    let subject = with_threads(4);
    let (summary, timeline) = diagnosed(&subject, 3);
    let ThreadGrid { end_s, columns, rows, cells, wait, unlisted } =
        timeline.threads.as_ref().unwrap();
    // The run has 200 columns of 16 ms.
    assert_eq!((*columns, *end_s, *unlisted), (25, 3.2, 0));
    let row = |rank, kind, number| ThreadRow { rank, kind, number };
    let of_rank = |rank| [row(rank, ThreadKind::Slowest, 3), row(rank, ThreadKind::Fastest, 1)];
    assert_eq!(*rows, [0, 1, 2, 3].map(of_rank).concat());
    let (of_cells, of_wait) = (cells.chunks(25), wait.chunks(25));
    assert_eq!((of_cells.len(), of_wait.len()), (8, 8));
    for ((cells, wait), row) in of_cells.zip(of_wait).zip(rows) {
        let path = |at: usize| shown(&summary, &timeline, cells[at]);
        let working = match row.kind {
            ThreadKind::Slowest => 5..11 + row.rank as usize,
            _ => 5..6,
        };
        for (at, wait) in wait.iter().enumerate() {
            let truth = match at {
                0..5 | 20.. => ("?", 0),
                _ if working.contains(&at) => (KERNEL, 0),
                _ => (WAIT, 255),
            };
            assert_eq!((path(at).as_str(), *wait), truth, "{row:?}, column {at}");
        }
    }
    assert_eq!(diagnosed(&subject, 1), (summary, timeline), "for any distribution of the ranks");
}

#[test]
fn ranks_that_share_a_row_have_no_threads() {
    let (_, timeline) = diagnosed(&with_threads(513), 2);
    assert_eq!((timeline.rows.len(), timeline.threads), (512, None));
    assert_eq!(diagnosed(&half_uneven(4), 1).1.threads, None, "and ranks without threads");
}

#[test]
fn a_file_of_an_earlier_version_can_be_read() {
    let (_, timeline) = diagnosed(&with_threads(2), 1);
    let mut json = serde_json::to_value(&timeline).unwrap();
    assert!(json.as_object_mut().unwrap().remove("threads").is_some());
    let earlier: Timeline = serde_json::from_value(json).unwrap();
    assert_eq!(earlier, Timeline { threads: None, ..timeline });
}
