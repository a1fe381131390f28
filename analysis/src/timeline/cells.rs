//! Cells of a timeline: the call path with the most time in a time span, on some ranks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of call paths in a cell of several ranks; time in other paths is assigned to
/// none.
const CELL_PATHS: usize = 4;

/// Time in one call path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Index among the chosen call paths; `None` if no chosen one is known.
    pub(super) shown: Option<u16>,
    pub(super) ns: u64,
    /// Whether the time is communication or waiting.
    pub(super) is_wait: bool,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    /// Time by chosen call path, without duplicates.
    paths: Vec<(u16, u64)>,
    total_ns: u64,
    wait_ns: u64,
}

impl Cell {
    pub(super) fn add(&mut self, part: Part) {
        self.total_ns += part.ns;
        self.wait_ns += if part.is_wait { part.ns } else { 0 };
        if let Some(shown) = part.shown {
            self.add_path(shown, part.ns);
        }
    }

    fn add_path(&mut self, shown: u16, ns: u64) {
        match self.paths.iter_mut().find(|(known, _)| *known == shown) {
            Some((_, sum)) => *sum += ns,
            None => self.paths.push((shown, ns)),
        }
    }

    fn combine(&mut self, other: Self) {
        self.total_ns += other.total_ns;
        self.wait_ns += other.wait_ns;
        other.paths.into_iter().for_each(|(shown, ns)| self.add_path(shown, ns));
        self.keep(CELL_PATHS);
    }

    /// Keeps the paths with the most time.
    fn keep(&mut self, most: usize) {
        self.paths.sort_unstable_by_key(|(shown, ns)| (std::cmp::Reverse(*ns), *shown));
        self.paths.truncate(most);
    }

    /// Returns the call path with the most time.
    pub(super) fn most(&self) -> Option<u16> {
        let most = self.paths.iter().max_by_key(|(shown, ns)| (*ns, std::cmp::Reverse(*shown)));
        most.map(|(shown, _)| *shown)
    }

    /// Returns the fraction of communication and waiting, in units of 1/255.
    pub(super) fn wait(&self) -> u8 {
        let (wait, total) = (u128::from(self.wait_ns), u128::from(self.total_ns.max(1)));
        ((wait * 255 + total / 2) / total) as u8
    }
}

/// Rows of cells of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cells {
    rows: BTreeMap<u32, Vec<Cell>>,
}

impl Cells {
    /// Builds the cells of one rank in its row.
    pub(super) fn of_row(row: Option<(u32, Vec<Cell>)>) -> Self {
        let mut rows = BTreeMap::from_iter(row);
        rows.values_mut().flatten().for_each(|cell| cell.keep(CELL_PATHS));
        Self { rows }
    }

    /// Adds the cells of other ranks.
    pub(super) fn combine(&mut self, other: Self) {
        for (row, theirs) in other.rows {
            match self.rows.get_mut(&row) {
                Some(ours) => {
                    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| ours.combine(theirs));
                }
                None => {
                    self.rows.insert(row, theirs);
                }
            }
        }
    }

    /// Returns the cells of a row with `columns` columns.
    pub(super) fn row(&self, row: u32, columns: usize) -> impl Iterator<Item = Cell> {
        let cells = self.rows.get(&row).map(Vec::as_slice).unwrap_or_default();
        (0..columns).map(|at| cells.get(at).cloned().unwrap_or_default())
    }
}
