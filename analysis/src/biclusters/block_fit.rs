//! Fits columns to rows and rows to columns: the ranks that differ from the others, and the
//! contexts in which they do.

use super::shaving::{Block, MIN_BLOCK_ROWS, Matrix, Signed, moments};

/// Minimum t statistic of a block's row: the difference between the block's columns and the others.
const MIN_T: f64 = 4.5;
/// Minimum fraction of a row's variance that its block explains.
const MIN_EXPLAINED: f64 = 0.25;
const REFINEMENTS: usize = 10;

/// Columns, and the rows in which they differ from the other columns; each row with the difference
/// or its sign.
pub(super) struct Fit {
    inside: Vec<bool>,
    pub(super) rows: Signed,
}

impl Fit {
    fn columns(&self) -> Vec<usize> {
        (0..self.inside.len()).filter(|column| self.inside[*column]).collect()
    }

    /// Returns the mean of a row in the fit's columns minus its mean in the others.
    fn difference(&self, row: &[f64]) -> f64 {
        let (inside, outside) = self.halves(row);
        moments(&inside).0 - moments(&outside).0
    }

    fn halves(&self, row: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let both = row.iter().zip(&self.inside);
        let (inside, outside): (Vec<_>, Vec<_>) = both.partition(|(_, inside)| **inside);
        let values = |part: Vec<(&f64, &bool)>| part.into_iter().map(|(value, _)| *value).collect();
        (values(inside), values(outside))
    }

    /// Returns the part of a row's variance that a difference explains.
    fn explained(&self, difference: f64) -> f64 {
        let part = self.columns().len() as f64 / self.inside.len() as f64;
        difference.powi(2) * part * (1.0 - part)
    }

    /// Subtracts the columns' difference from each row, and stores it.
    pub(super) fn take_from(&mut self, matrix: &mut Matrix) {
        let differences: Vec<f64> =
            self.rows.iter().map(|(row, _)| self.difference(matrix.row(*row))).collect();
        for ((_, difference), found) in self.rows.iter_mut().zip(differences) {
            *difference = found;
        }
        self.add(matrix, -1.0);
    }

    /// Adds the stored differences back to the rows.
    pub(super) fn give_back(&self, matrix: &mut Matrix) {
        self.add(matrix, 1.0);
    }

    fn add(&self, matrix: &mut Matrix, times: f64) {
        for (row, difference) in &self.rows {
            let values = &mut matrix.values[row * matrix.columns..][..matrix.columns];
            let inside = values.iter_mut().zip(&self.inside).filter(|(_, inside)| **inside);
            inside.for_each(|(value, _)| *value += times * difference);
        }
    }

    /// Returns the rows in which the columns have larger values, or smaller ones. `whole` is the
    /// variance of all rows of the matrix.
    pub(super) fn block(&self, more: bool, matrix: &Matrix, whole: f64) -> Block {
        let rows: Vec<usize> = self
            .rows
            .iter()
            .filter(|(_, difference)| (*difference > 0.0) == more)
            .map(|(row, _)| *row)
            .collect();
        // Not the stored differences: other blocks that overlap with this one were subtracted from
        // those, which can exceed the rows' own variance.
        let explained: f64 =
            rows.iter().map(|row| self.explained(self.difference(matrix.row(*row)))).sum();
        Block {
            rows,
            columns: self.columns(),
            more,
            variance_share: if whole > 0.0 { (explained / whole).min(1.0) } else { 0.0 },
        }
    }

    /// Returns whether a row differs by more than chance.
    pub(super) fn includes(&self, row: &[f64]) -> bool {
        let (inside, outside) = self.halves(row);
        let (n, m) = (inside.len() as f64, outside.len() as f64);
        let scatter = n * moments(&inside).1 + m * moments(&outside).1;
        let variance = scatter / (n + m - 2.0) * (n.recip() + m.recip());
        let t = self.difference(row).abs() / variance.sqrt().max(f64::MIN_POSITIVE);
        t >= MIN_T && self.explained(self.difference(row)) >= MIN_EXPLAINED * moments(row).1
    }
}

/// Fits columns to rows and rows to columns until neither changes; `None` if none remain.
pub(super) fn fit(standard: &Matrix, mut rows: Signed) -> Option<Fit> {
    let mut last = None;
    for _ in 0..REFINEMENTS {
        let mut inside = split(&profile(standard, &rows));
        let within = inside.iter().filter(|inside| **inside).count();
        if within == 0 || within == inside.len() {
            return None;
        }
        if 2 * within > inside.len() {
            inside.iter_mut().for_each(|inside| *inside = !*inside);
        }
        let mut fit = Fit { inside, rows: Vec::new() };
        for (index, row) in standard.rows().enumerate() {
            if fit.includes(row) {
                fit.rows.push((index, fit.difference(row).signum()));
            }
        }
        if fit.rows.is_empty() {
            return None;
        }
        rows.clone_from(&fit.rows);
        let is_stable = last
            .as_ref()
            .is_some_and(|last: &Fit| last.inside == fit.inside && last.rows == fit.rows);
        last = Some(fit);
        if is_stable {
            break;
        }
    }
    last.filter(|fit| fit.rows.len() >= MIN_BLOCK_ROWS)
}

/// Returns the median of signed rows in each column.
fn profile(standard: &Matrix, rows: &Signed) -> Vec<f64> {
    let mut values = Vec::with_capacity(rows.len());
    (0..standard.columns)
        .map(|column| {
            values.clear();
            values.extend(rows.iter().map(|(row, sign)| sign * standard.row(*row)[column]));
            values.sort_by(f64::total_cmp);
            let middle = values.len() / 2;
            match values.len() % 2 {
                0 => (values[middle - 1] + values[middle]) / 2.0,
                _ => values[middle],
            }
        })
        .collect()
}

/// Splits numbers into two parts with minimum variance within the parts (Otsu); returns for each
/// number whether it is in the upper part.
fn split(numbers: &[f64]) -> Vec<bool> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (sum, count) = (sorted.iter().sum::<f64>(), sorted.len() as f64);
    let mut below = 0.0;
    let mut best = (0.0, f64::INFINITY);
    for (index, pair) in sorted.windows(2).enumerate() {
        below += pair[0];
        let (n, m) = (index as f64 + 1.0, count - index as f64 - 1.0);
        let between = n * m * (below / n - (sum - below) / m).powi(2);
        if pair[0] < pair[1] && between > best.0 {
            best = (between, pair[1]);
        }
    }
    numbers.iter().map(|number| *number >= best.1).collect()
}
