//! Cells of single threads other than the communicating ones, finished at their rank.

use std::cmp::Reverse;

use plimsoll_collector::profile::{LocationKind, ThreadLocation};
use plimsoll_summary::label::Label;
use plimsoll_summary::timeline_file::{MAX_THREAD_CELLS, ThreadGrid, ThreadKind, ThreadRow};
use serde::{Deserialize, Serialize};

use super::cells::{Cell, Part};
use super::{Grid, Known, Plan, aligned_bins};
use crate::canonical::{CanonicalTree, Threads};
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::rank::Rank;

/// Index of no call path. Indices of chosen call paths are smaller.
const NO_PATH: u16 = u16::MAX;

/// Rows of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadRows {
    /// At most [`MAX_THREAD_CELLS`] cells.
    rows: Vec<FinishedRow>,
    /// Number of threads that were left out.
    unlisted: u64,
}

/// Row of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FinishedRow {
    thread: ThreadRow,
    /// Work of the thread, in nanoseconds.
    work_ns: u64,
    /// Index of the call path with the most time among the chosen ones, or [`NO_PATH`], by column.
    paths: Vec<u16>,
    /// Fraction of waiting in units of 1/255, by column.
    wait: Vec<u8>,
}

impl ThreadRows {
    /// Returns the rows of one rank; `tree` holds the contexts that the plan names.
    pub(super) fn of_rank(rank: &Rank<'_>, tree: &mut CanonicalTree, plan: &Plan) -> Self {
        let Some(columns) = plan.thread_columns else { return Self::default() };
        let locations = &rank.input.profile.thread_locations.locations;
        let threads: Vec<(ThreadRow, &ThreadLocation)> = locations
            .iter()
            .filter(|location| !location.times.bins.is_empty())
            .filter_map(|location| Some((thread_of(rank.input.rank, location)?, location)))
            .collect();
        if threads.is_empty() {
            return Self::default();
        }
        let bins = threads.iter().flat_map(|(_, location)| &location.times.bins);
        let is_wait = rank.context_classes.iter().map(|it| waits(*it)).collect();
        let known = Known::of(rank, tree, plan, Threads::Other, bins, is_wait);
        let row = |(thread, location): &(ThreadRow, &ThreadLocation)| {
            let mut cells = columns.row();
            for (bin, [begin_ns, end_ns]) in aligned_bins(rank, &location.times, &plan.alignment) {
                for part in known.parts(bin) {
                    let add = |at: usize, ns| cells[at].add(Part { ns, ..part });
                    columns.spread(begin_ns, end_ns, part.ns, add);
                }
            }
            FinishedRow {
                thread: *thread,
                work_ns: location.work_ns,
                paths: cells.iter().map(|cell| cell.most().unwrap_or(NO_PATH)).collect(),
                wait: cells.iter().map(Cell::wait).collect(),
            }
        };
        let mut rows = Self { rows: threads.iter().map(row).collect(), unlisted: 0 };
        rows.limit();
        rows
    }

    /// Adds the rows of other ranks.
    pub(super) fn combine(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.unlisted += other.unlisted;
        self.limit();
    }

    /// Leaves out the last rows beyond [`MAX_THREAD_CELLS`], in an order that does not depend on
    /// the distribution of the ranks.
    fn limit(&mut self) {
        let columns = self.rows.first().map_or(1, |row| row.paths.len().max(1));
        let most = MAX_THREAD_CELLS / columns;
        if self.rows.len() > most {
            self.rows.sort_unstable_by_key(|FinishedRow { thread, work_ns, .. }| {
                (thread.kind, Reverse(*work_ns), thread.rank, thread.number)
            });
            self.unlisted += (self.rows.len() - most) as u64;
            self.rows.truncate(most);
        }
    }

    /// Returns the grid of all rows; `None` if there are none. `indices` holds the index of each
    /// chosen call path in the nodes of the file.
    pub(super) fn grid(&self, columns: Grid, indices: &[i32]) -> Option<ThreadGrid> {
        let mut rows: Vec<&FinishedRow> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|FinishedRow { thread: it, .. }| (it.rank, it.kind, it.number));
        let index = |path: &u16| indices.get(usize::from(*path)).copied().unwrap_or(-1);
        (!rows.is_empty()).then(|| ThreadGrid {
            end_s: columns.end_ns() as f64 / NS_PER_S,
            columns: columns.count as u32,
            rows: rows.iter().map(|row| row.thread).collect(),
            cells: rows.iter().flat_map(|row| &row.paths).map(index).collect(),
            wait: rows.iter().flat_map(|row| row.wait.iter().copied()).collect(),
            unlisted: self.unlisted,
        })
    }
}

/// Returns the thread of a location; `None` if the location holds several.
fn thread_of(rank: u32, location: &ThreadLocation) -> Option<ThreadRow> {
    let kind = match location.kind {
        LocationKind::Slowest => ThreadKind::Slowest,
        LocationKind::Fastest => ThreadKind::Fastest,
        LocationKind::Thread => ThreadKind::Thread,
        LocationKind::Class | LocationKind::Rest => return None,
    };
    Some(ThreadRow { rank, kind, number: location.number? })
}

/// Returns whether a thread waits or communicates in a context. A thread without work waits for
/// another one.
fn waits(class: ContextClass) -> bool {
    !class.is_work() || class.label.is_a(Label::Wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: usize = 48;

    fn rows(ranks: std::ops::Range<u32>, kind: ThreadKind) -> ThreadRows {
        let row = |rank| FinishedRow {
            thread: ThreadRow { rank, kind, number: 1 },
            work_ns: u64::from(rank * 7919 % 6000),
            paths: vec![NO_PATH; COLUMNS],
            wait: vec![0; COLUMNS],
        };
        ThreadRows { rows: ranks.map(row).collect(), unlisted: 0 }
    }

    #[test]
    fn the_slowest_threads_are_kept_in_a_bounded_number_of_cells() {
        let most = MAX_THREAD_CELLS / COLUMNS;
        let parts = [
            rows(0..2000, ThreadKind::Slowest),
            rows(2000..5000, ThreadKind::Fastest),
            rows(5000..6000, ThreadKind::Fastest),
            rows(2000..3000, ThreadKind::Slowest),
        ];
        let united = |order: [usize; 4]| {
            let mut all = ThreadRows::default();
            order.into_iter().for_each(|at| all.combine(parts[at].clone()));
            all
        };
        let columns = Grid { width_ns: 1, count: COLUMNS as u64 };
        let grid = united([0, 1, 2, 3]).grid(columns, &[]).unwrap();
        assert_eq!(grid.rows.len(), most);
        assert_eq!(grid.cells.len(), most * COLUMNS);
        assert_eq!(grid.unlisted, 7000 - most as u64);
        let slowest = grid.rows.iter().filter(|row| row.kind == ThreadKind::Slowest);
        assert_eq!(slowest.count(), 3000);
        let work = |row: &&ThreadRow| row.rank * 7919 % 6000;
        let fastest = || grid.rows.iter().filter(|row| row.kind == ThreadKind::Fastest);
        let least = fastest().map(|row| work(&row)).min().unwrap();
        let above = (2000..6000).filter(|rank| rank * 7919 % 6000 > least).count();
        assert_eq!(above + 1, most - 3000, "those with the least work are left out");
        assert_eq!(united([3, 2, 1, 0]).grid(columns, &[]), Some(grid));
    }
}
