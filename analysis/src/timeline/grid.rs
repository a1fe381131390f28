//! Division of the run into equal time spans.

use serde::{Deserialize, Serialize};

use super::cells::Cell;

/// Equal time spans of the run, from its begin on the reference's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Length of each span, in nanoseconds; not 0.
    pub width_ns: u64,
    /// Number of spans.
    pub count: u64,
}

/// Maximum number of spans of a run: the number of bins of a rank.
const MAX_SPANS: u64 = 256;

impl Grid {
    /// Returns the grid of a run of `elapsed_ns` nanoseconds with bins of `bin_ns` nanoseconds.
    pub fn of_run(elapsed_ns: u64, bin_ns: u64) -> Self {
        let width_ns = bin_ns.max(elapsed_ns.div_ceil(MAX_SPANS)).max(1);
        Self { width_ns, count: elapsed_ns.div_ceil(width_ns) }
    }

    /// Returns a grid of at most `most` spans, each made of whole spans of this one.
    pub fn with_at_most(self, most: u64) -> Self {
        let each = self.count.div_ceil(most).max(1);
        Self { width_ns: self.width_ns * each, count: self.count.div_ceil(each) }
    }

    /// Returns a grid of at most `most` spans, each made of a power of two of whole spans of this
    /// one: the bins of two series are halves or doubles of each other.
    pub(super) fn halved_to(self, most: u64) -> Self {
        let each = self.count.div_ceil(most).max(1).next_power_of_two();
        Self { width_ns: self.width_ns * each, count: self.count.div_ceil(each) }
    }

    /// Returns the end of the last span, in nanoseconds.
    pub(super) fn end_ns(self) -> u64 {
        self.width_ns.saturating_mul(self.count)
    }

    /// Returns begin and end of a span in nanoseconds; the run ends at `end_ns`.
    pub fn window(self, at: u64, end_ns: u64) -> (u64, u64) {
        let end = |at: u64| self.width_ns.saturating_mul(at).min(end_ns);
        (end(at), end(at + 1))
    }

    /// Returns an empty row of cells.
    pub(super) fn row(self) -> Vec<Cell> {
        vec![Cell::default(); self.count as usize]
    }

    /// Spreads `ns` evenly over a span of time: calls `add` with each grid span and its share. The
    /// share before the first or after the last grid span is dropped.
    pub(super) fn spread(
        self,
        begin_ns: i64,
        end_ns: i64,
        ns: u64,
        mut add: impl FnMut(usize, u64),
    ) {
        let (first_ns, last_ns) = (begin_ns.max(0) as u64, end_ns.max(0) as u64);
        let last_ns = last_ns.min(self.end_ns());
        if ns == 0 || first_ns >= last_ns {
            return;
        }
        let length = end_ns.abs_diff(begin_ns);
        let mut at_ns = first_ns;
        while at_ns < last_ns {
            let at = at_ns / self.width_ns;
            let next_ns = ((at + 1) * self.width_ns).min(last_ns);
            let share = u128::from(ns) * u128::from(next_ns - at_ns);
            // Rounded, so that no time is lost systematically.
            add(at as usize, ((share + u128::from(length / 2)) / u128::from(length)) as u64);
            at_ns = next_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(grid: Grid, begin_ns: i64, end_ns: i64, ns: u64) -> Vec<(usize, u64)> {
        let mut parts = Vec::new();
        grid.spread(begin_ns, end_ns, ns, |at, ns| parts.push((at, ns)));
        parts
    }

    #[test]
    fn time_is_spread_by_overlap() {
        let grid = Grid { width_ns: 10, count: 4 };
        assert_eq!(spread(grid, 5, 25, 20), [(0, 5), (1, 10), (2, 5)]);
        assert_eq!(spread(grid, 12, 18, 3), [(1, 3)]);
        assert_eq!(spread(grid, -10, 10, 20), [(0, 10)], "what lies before the run is dropped");
        assert_eq!(spread(grid, 30, 60, 30), [(3, 10)], "and what lies behind it");
        assert_eq!(spread(grid, 50, 60, 10), []);
        assert_eq!(spread(grid, 10, 10, 5), []);
    }

    #[test]
    fn windows_are_whole_columns() {
        let grid = Grid { width_ns: 10, count: 255 };
        assert_eq!(grid.with_at_most(128), Grid { width_ns: 20, count: 128 });
        assert_eq!(grid.with_at_most(300), grid);
        assert_eq!(grid.with_at_most(128).window(127, 2545), (2540, 2545));
        assert_eq!(grid.halved_to(48), Grid { width_ns: 80, count: 32 });
        assert_eq!(Grid { width_ns: 10, count: 48 }.halved_to(48).count, 48);
    }
}
