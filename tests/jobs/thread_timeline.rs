//! Threads in the timeline of a hybrid job.

use std::fs;
use std::ops::Range;

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime, team};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

const RANKS: usize = 2;
/// The slow thread works for this multiple of the time of the others.
const FACTOR: f64 = 4.0;
const TOLERANCE: f64 = 0.15;

/// Cells of one thread.
struct ThreadCells<'t> {
    /// Functions of the cell's call path, by column.
    paths: Vec<Vec<&'t str>>,
    /// Fraction of waiting by column, 0 to 1.
    waits: Vec<f64>,
    width_s: f64,
}

impl<'t> ThreadCells<'t> {
    /// Returns the cells of a kind of thread of a rank; the thread must be the only one.
    fn of(job: &'t Outcome, timeline: &Value, rank: usize, kind: &str) -> Self {
        let threads = &timeline["threads"];
        let rows = threads["rows"].as_array().expect("threads have rows");
        let is_it = |row: &Value| row["rank"] == rank && row["kind"] == kind;
        let found: Vec<usize> = (0..rows.len()).filter(|at| is_it(&rows[*at])).collect();
        let [row] = found[..] else { panic!("{kind} of rank {rank}: {rows:?}") };
        let columns = threads["columns"].as_u64().expect("a number") as usize;
        let cells: Range<usize> = row * columns..(row + 1) * columns;
        let of = |key: &str| &threads[key].as_array().expect("a list")[cells.clone()];
        let path = |cell: &Value| {
            let node = cell.as_u64().and_then(|at| timeline["nodes"][at as usize].as_u64());
            node.map_or_else(Vec::new, |node| job.summary().path_to(node as usize))
        };
        let wait = |wait: &Value| wait.as_f64().expect("a number") / 255.0;
        let time = |value: &Value| value.as_f64().expect("a time");
        Self {
            paths: of("cells").iter().map(path).collect(),
            waits: of("wait").iter().map(wait).collect(),
            width_s: (time(&threads["end_s"]) - time(&timeline["begin_s"])) / columns as f64,
        }
    }

    /// Returns the time of waiting, in seconds.
    fn wait_s(&self) -> f64 {
        self.waits.iter().sum::<f64>() * self.width_s
    }

    /// Returns the time of the cells in which most is no waiting and a function is shown.
    fn working_in_s(&self, function: &str) -> f64 {
        let cells = self.paths.iter().zip(&self.waits);
        let works = |(path, wait): &(&Vec<&str>, &f64)| **wait < 0.5 && path.contains(&function);
        cells.filter(works).count() as f64 * self.width_s
    }
}

#[test]
fn the_slowest_thread_works_in_the_timeline_while_the_fastest_one_waits() {
    needs!(Mpi::OpenMpi);
    let form = Form::OpenMp(Language::C, OpenMpRuntime::Gomp);
    let job = Job::ranks("openmp_ranks", Mpi::OpenMpi, RANKS as u32).form(form);
    let (work_s, iterations) = (0.1, 6.0);
    let job = team(job.arguments("sleep 100 6 4 uneven"), 3);
    job.watch(Watch::Run).run_until(|job| {
        let file = job.files_ending(".plimsoll.timeline").remove(0);
        let timeline: Value =
            serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
        assert_eq!(timeline["threads"]["rows"].as_array().map(Vec::len), Some(2 * RANKS));
        assert_eq!(timeline["threads"]["unlisted"], 0);
        // The last thread of the last rank is slow.
        let of = |rank, kind| ThreadCells::of(job, &timeline, rank, kind);
        let [slowest, fastest] = [of(1, "slowest"), of(1, "fastest")];
        let slow_s = FACTOR * work_s * iterations;
        // Below the cause of the loss, its loop in the outlined function, nothing is shown.
        let working_s = slowest.working_in_s("uneven._omp_fn.0");
        assert_within("slow work", working_s, slow_s, TOLERANCE);
        assert!(slowest.wait_s() < TOLERANCE * slow_s, "{} s", slowest.wait_s());
        for cells in [fastest, of(0, "slowest"), of(0, "fastest")] {
            let truth_s = slow_s - work_s * iterations;
            assert_within("waiting", cells.wait_s(), truth_s, TOLERANCE);
        }
    });
}
