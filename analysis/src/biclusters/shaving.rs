//! Gene shaving (Hastie et al., *'Gene shaving' as a method for identifying distinct sets of genes
//! with similar expression patterns*, Genome Biology 1(2), 2000), as Fowler's slides apply it to
//! profiles: rows are contexts, columns are ranks.
//!
//! Rows are centred and scaled to unit variance, so that rows vary together independently of their
//! magnitude. A block is shaved: the tenth of the rows with the smallest part of the leading
//! principal component is removed, repeatedly, and the size with the largest gap to permuted rows
//! is kept. Differences from the paper:
//!
//! - The columns of a block are those on the smaller side of the best split of its profile, the
//!   median of its rows: the ranks that differ from the others. Rows and columns are then fitted to
//!   each other until they no longer change, since a row that belongs to two blocks has only a
//!   small part of either component.
//! - Only the rows of a block are made orthogonal to the block, so that another block with some of
//!   the same ranks stays unchanged. At the end each block's rows are chosen again, without the
//!   parts that the other blocks explain.
//! - The search ends when the leading eigenvalue is no larger than that of permuted rows.

use super::block_fit::{Fit, fit};
use crate::random::Random;

/// Maximum number of blocks.
const MAX_BLOCKS: usize = 8;
/// Minimum number of rows in which a block can be distinguished from chance.
pub const MIN_ROWS: usize = 4;
/// Minimum number of columns in which a block can be distinguished from chance.
pub const MIN_COLUMNS: usize = 6;
/// Minimum number of rows of a block: a single row varies together with no other row.
pub(super) const MIN_BLOCK_ROWS: usize = 2;
/// Fraction of the rows that is removed in each step.
const SHAVED_FRACTION: f64 = 0.1;
/// Number of permutations that the size of a block is compared with.
const GAP_PERMUTATIONS: usize = 5;
/// Number of permutations that the leading eigenvalue is compared with.
const NOISE_PERMUTATIONS: usize = 24;
/// Minimum distance of the leading eigenvalue above the mean of permuted rows, in standard
/// deviations.
const NOISE_DEVIATIONS: f64 = 4.0;
/// Minimum fraction of the variance of all rows that a block explains.
const MIN_VARIANCE_SHARE: f64 = 0.01;
/// Variances below this fraction of the largest are rounding errors.
const MIN_RELATIVE_VARIANCE: f64 = 1e-9;
/// Maximum number of steps of the power iteration, and the relative growth of the eigenvalue at
/// which the iteration ends.
const MAX_POWER_ITERATIONS: usize = 30;
const POWER_TOLERANCE: f64 = 1e-3;

/// Matrix, stored by rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    pub(super) columns: usize,
    pub(super) values: Vec<f64>,
}

/// Rows and columns that together differ from the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Indices of rows, ascending.
    pub rows: Vec<usize>,
    /// Indices of columns, ascending: at most half of all.
    pub columns: Vec<usize>,
    /// Whether the columns have larger values than the others in these rows; otherwise smaller.
    pub more: bool,
    /// Fraction of the variance of all rows that the block explains by itself, 0 to 1. Blocks with
    /// common rows explain partly the same variance.
    pub variance_share: f64,
}

impl Matrix {
    /// Returns the matrix with these rows, which must be of equal length.
    pub fn new(columns: usize, rows: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let values: Vec<f64> = rows.into_iter().flatten().collect();
        debug_assert!(columns > 0 && values.len().is_multiple_of(columns));
        Self { columns, values }
    }

    pub(super) fn rows(&self) -> std::slice::ChunksExact<'_, f64> {
        self.values.chunks_exact(self.columns.max(1))
    }

    fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f64> {
        self.values.chunks_exact_mut(self.columns.max(1))
    }

    /// Returns a row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Returns the number of columns.
    pub const fn width(&self) -> usize {
        self.columns
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    /// Returns the matrix with mean 0 and variance 1 in each row; rows without variance are 0.
    fn standardised(&self, least_variance: f64) -> Self {
        let mut matrix = self.clone();
        for row in matrix.rows_mut() {
            let (mean, variance) = moments(row);
            let scale = if variance > least_variance { variance.sqrt().recip() } else { 0.0 };
            row.iter_mut().for_each(|value| *value = (*value - mean) * scale);
        }
        matrix
    }

    /// Returns the matrix with the values of each row in random order.
    fn permuted(&self, random: &mut Random) -> Self {
        let mut matrix = self.clone();
        matrix.rows_mut().for_each(|row| random.shuffle(row));
        matrix
    }
}

/// Returns the blocks of a matrix, largest explained variance first.
pub fn blocks(matrix: &Matrix) -> Vec<Block> {
    if matrix.height() < MIN_ROWS || matrix.columns < MIN_COLUMNS {
        return Vec::new();
    }
    let variances: Vec<f64> = matrix.rows().map(|row| moments(row).1).collect();
    let least = variances.iter().copied().fold(0.0, f64::max) * MIN_RELATIVE_VARIANCE;
    let mut rest = matrix.clone();
    let mut random = Random::new(1);
    let mut fits: Vec<Fit> = Vec::new();
    while fits.len() < MAX_BLOCKS {
        let standard = rest.standardised(least);
        if !stands_out(&standard, &mut random) {
            break;
        }
        let shaved = shave(&standard, &mut random);
        let Some(mut found) = fit(&standard, shaved) else { break };
        found.take_from(&mut rest);
        fits.push(found);
    }
    // A row of two blocks shows the second block only after the first is subtracted.
    for fit in &mut fits {
        fit.give_back(&mut rest);
        let within = (0..rest.height()).filter(|row| fit.includes(rest.row(*row)));
        fit.rows = within.map(|row| (row, 0.0)).collect();
        fit.take_from(&mut rest);
    }
    let whole: f64 = variances.iter().sum();
    let halves =
        fits.iter().flat_map(|fit| [true, false].map(|more| fit.block(more, matrix, whole)));
    let mut blocks: Vec<Block> = halves
        .filter(|block| block.rows.len() >= MIN_BLOCK_ROWS)
        .filter(|block| block.variance_share >= MIN_VARIANCE_SHARE)
        .collect();
    blocks.sort_by(|a, b| b.variance_share.total_cmp(&a.variance_share));
    blocks
}

/// Returns whether the leading eigenvalue is larger than those of unrelated rows.
fn stands_out(standard: &Matrix, random: &mut Random) -> bool {
    let all: Vec<usize> = (0..standard.height()).collect();
    let value = |matrix: &Matrix| component(matrix, &all).iter().map(|it| it * it).sum::<f64>();
    let found = value(standard);
    let chance: Vec<f64> =
        (0..NOISE_PERMUTATIONS).map(|_| value(&standard.permuted(random))).collect();
    let (mean, variance) = moments(&chance);
    let most = chance.iter().copied().fold(0.0, f64::max);
    found > most && found > mean + NOISE_DEVIATIONS * variance.sqrt()
}

/// Returns the loading of each row on the rows' leading principal component, by power iteration.
fn component(matrix: &Matrix, rows: &[usize]) -> Vec<f64> {
    let mut loadings = vec![0.0; rows.len()];
    // Start with the row of the largest norm, slightly perturbed, so that no row is orthogonal to
    // the start by construction.
    let mut direction: Vec<f64> = matrix.row(rows[0]).to_vec();
    let start = rows.iter().map(|row| (squares(matrix.row(*row)), *row));
    if let Some((_, row)) = start.max_by(|a, b| a.0.total_cmp(&b.0)) {
        direction.copy_from_slice(matrix.row(row));
    }
    for (column, value) in direction.iter_mut().enumerate() {
        *value += 1e-3 * if column % 2 == 0 { 1.0 } else { -0.7 };
    }
    let mut last = 0.0;
    for _ in 0..MAX_POWER_ITERATIONS {
        let length = squares(&direction).sqrt();
        if length == 0.0 {
            break;
        }
        direction.iter_mut().for_each(|value| *value /= length);
        for (loading, row) in loadings.iter_mut().zip(rows) {
            *loading = matrix.row(*row).iter().zip(&direction).map(|(a, b)| a * b).sum();
        }
        let eigenvalue = squares(&loadings);
        if eigenvalue - last <= POWER_TOLERANCE * eigenvalue {
            break;
        }
        last = eigenvalue;
        direction.fill(0.0);
        for (loading, row) in loadings.iter().zip(rows) {
            let row = matrix.row(*row);
            direction.iter_mut().zip(row).for_each(|(sum, value)| *sum += loading * value);
        }
    }
    loadings
}

/// Rows with their signs.
pub(super) type Signed = Vec<(usize, f64)>;

/// Returns the remaining rows after each shaving step, from all rows down to one.
fn nested(standard: &Matrix) -> Vec<Signed> {
    let mut rows: Vec<usize> = (0..standard.height()).collect();
    let mut sets = Vec::new();
    loop {
        let loadings = component(standard, &rows);
        let mut ordered: Vec<(usize, f64)> = rows.iter().copied().zip(loadings).collect();
        sets.push(ordered.iter().map(|(row, loading)| (*row, loading.signum())).collect());
        if rows.len() == 1 {
            return sets;
        }
        ordered.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let shaved = ((rows.len() as f64 * SHAVED_FRACTION) as usize).max(1);
        ordered.truncate(rows.len() - shaved);
        rows = ordered.into_iter().map(|(row, _)| row).collect();
    }
}

/// Returns the fraction of the variance of signed rows that their mean explains.
fn agreement(standard: &Matrix, rows: &Signed) -> f64 {
    let count = rows.len() as f64;
    let mut mean = vec![0.0; standard.columns];
    for (row, sign) in rows {
        let values = standard.row(*row).iter();
        mean.iter_mut().zip(values).for_each(|(sum, value)| *sum += sign * value / count);
    }
    let between = squares(&mean) / standard.columns as f64;
    let within: f64 = rows
        .iter()
        .flat_map(|(row, sign)| standard.row(*row).iter().map(move |value| sign * value).zip(&mean))
        .map(|(value, mean)| (value - mean).powi(2))
        .sum();
    let within = within / (count * standard.columns as f64);
    if between + within > 0.0 { between / (between + within) } else { 0.0 }
}

/// Shaves rows off; returns the rows of the size with the largest gap.
fn shave(standard: &Matrix, random: &mut Random) -> Signed {
    let mut sets = nested(standard);
    let mut gaps: Vec<f64> = sets.iter().map(|set| agreement(standard, set)).collect();
    for _ in 0..GAP_PERMUTATIONS {
        let permuted = standard.permuted(random);
        for (gap, set) in gaps.iter_mut().zip(nested(&permuted)) {
            *gap -= agreement(&permuted, &set) / GAP_PERMUTATIONS as f64;
        }
    }
    let best = (0..sets.len()).max_by(|a, b| gaps[*a].total_cmp(&gaps[*b])).unwrap_or(0);
    sets.swap_remove(best)
}

/// Returns mean and variance; 0 for an empty slice.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}

fn squares(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of normal values with mean 10 and variance 1.
    fn noise(rows: usize, columns: usize, random: &mut Random) -> Vec<Vec<f64>> {
        (0..rows).map(|_| (0..columns).map(|_| 10.0 + random.normal()).collect()).collect()
    }

    fn add(matrix: &mut [Vec<f64>], rows: &[usize], columns: &[usize], effect: f64) {
        for row in rows {
            columns.iter().for_each(|column| matrix[*row][*column] += effect);
        }
    }

    /// Scales each row differently: contexts take from microseconds to seconds.
    fn scaled(mut matrix: Vec<Vec<f64>>, columns: usize) -> Matrix {
        for (index, row) in matrix.iter_mut().enumerate() {
            let size = [1.0, 3.0, 0.5][index % 3];
            row.iter_mut().for_each(|value| *value *= size);
        }
        Matrix::new(columns, matrix)
    }

    /// Returns precision and recall: the cells that a block shares with the planted block, as
    /// fractions of the found and of the planted cells.
    fn overlap(block: &Block, rows: &[usize], columns: &[usize]) -> (f64, f64) {
        let shared = |found: &[usize], truth: &[usize]| {
            found.iter().filter(|it| truth.contains(it)).count() as f64
        };
        let cells = shared(&block.rows, rows) * shared(&block.columns, columns);
        let found = (block.rows.len() * block.columns.len()) as f64;
        (cells / found, cells / (rows.len() * columns.len()) as f64)
    }

    #[test]
    fn overlapping_blocks_are_found() {
        let range = |first: usize, end: usize| (first..end).collect::<Vec<_>>();
        let planted =
            [(range(0, 12), range(0, 16)), (range(9, 20), [range(12, 24), range(40, 48)].concat())];
        let (mut precision, mut recall, mut others) = (0.0, 0.0, 0);
        const TRIES: u64 = 20;
        for seed in 0..TRIES {
            let mut random = Random::new(seed);
            let mut matrix = noise(40, 64, &mut random);
            for ((rows, columns), effect) in planted.iter().zip([5.0, 4.0]) {
                add(&mut matrix, rows, columns, effect);
            }
            let found = blocks(&scaled(matrix, 64));
            for (rows, columns) in &planted {
                let overlaps = found.iter().map(|block| overlap(block, rows, columns));
                let best = overlaps.max_by(|a, b| (a.0 * a.1).total_cmp(&(b.0 * b.1)));
                let (one, other) = best.unwrap_or_default();
                precision += one / (2 * TRIES) as f64;
                recall += other / (2 * TRIES) as f64;
            }
            others += found.len().saturating_sub(2);
            assert!(found.iter().all(|block| block.more));
        }
        assert!(precision >= 0.95 && recall >= 0.95, "{precision} {recall}");
        assert!(others <= 2, "{others} more blocks");
    }

    #[test]
    fn there_are_none_in_noise() {
        for (rows, columns) in [(40, 64), (10, 8), (64, 16)] {
            let found = (0..100).filter(|seed| {
                let mut random = Random::new(1000 + seed);
                !blocks(&scaled(noise(rows, columns, &mut random), columns)).is_empty()
            });
            assert_eq!(found.count(), 0, "{rows} x {columns}");
        }
    }

    #[test]
    fn what_is_more_in_some_rows_and_less_in_others_is_two_blocks() {
        let mut random = Random::new(7);
        let mut matrix = noise(20, 16, &mut random);
        add(&mut matrix, &[1, 3, 5], &[0, 4, 15], 6.0);
        add(&mut matrix, &[2, 4], &[0, 4, 15], -6.0);
        let found = blocks(&Matrix::new(16, matrix));
        let [more, less] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (&more.rows[..], &more.columns[..], more.more),
            (&[1, 3, 5][..], &[0, 4, 15][..], true)
        );
        assert_eq!(
            (&less.rows[..], &less.columns[..], less.more),
            (&[2, 4][..], &[0, 4, 15][..], false)
        );
        assert!(more.variance_share + less.variance_share <= 1.0 && less.variance_share > 0.05);
    }

    #[test]
    fn overlapping_blocks_explain_no_more_than_the_whole_variance() {
        let mut random = Random::new(257);
        let mut matrix = noise(8, 8, &mut random);
        let rows: Vec<usize> = (0..8).collect();
        add(&mut matrix, &rows, &[0, 4], -10.0);
        add(&mut matrix, &rows, &[0, 1], 30.0);
        let found = blocks(&Matrix::new(8, matrix));
        let block = found.iter().find(|block| block.columns == [0, 1] && block.more);
        let share = block.unwrap_or_else(|| panic!("{found:?}")).variance_share;
        assert!((0.8..=1.0).contains(&share), "{found:?}");
    }

    #[test]
    fn one_slow_rank_of_eight_is_found() {
        let mut random = Random::new(9);
        let mut matrix = noise(10, 8, &mut random);
        add(&mut matrix, &[0, 1, 2, 3, 4, 5], &[3], 30.0);
        let found = blocks(&Matrix::new(8, matrix));
        let [block] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&block.rows[..], &block.columns[..]), (&[0, 1, 2, 3, 4, 5][..], &[3][..]));
    }

    #[test]
    fn small_and_constant_matrices_have_none() {
        for (rows, columns) in [(0, 8), (3, 8), (10, 3), (10, 8)] {
            assert_eq!(blocks(&Matrix::new(columns, vec![vec![2.5; columns]; rows])), []);
        }
    }
}
