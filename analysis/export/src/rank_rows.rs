//! Reads the side file `plimsoll-ranks/1`: the inclusive times of single ranks.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;

use plimsoll_summary::per_rank_file::{FLOAT_BYTES, INCLUSIVE, RankTableHeader};
use plimsoll_summary::ranks::RankSet;

use crate::ExportError;

/// The times of single ranks in a file. Rows are read one at a time, when they are asked for.
#[derive(Debug)]
pub struct RankRows {
    file: File,
    ranks: RankSet,
    nodes: Vec<u32>,
    /// Offset of the first rank's inclusive times, in bytes.
    begin: u64,
    /// Bytes from one rank's times to the next one's.
    stride: u64,
}

impl RankRows {
    /// Reads the header of a side file. `contexts` is the number of nodes in the summary's tree.
    ///
    /// # Errors
    /// [`ExportError::RankRows`] if the file is damaged or does not fit the tree.
    pub fn open(file: File, contexts: usize) -> Result<Self, ExportError> {
        let read = || {
            let length = file.metadata()?.len();
            RankTableHeader::read(&mut BufReader::new(&file), length)
        };
        let (header, line_bytes) = read().map_err(|error| unusable(&error.to_string()))?;
        let ranks: RankSet = header.ranks.parse().map_err(|error| unusable(&format!("{error}")))?;
        if header.shape[0] != ranks.len() as usize {
            return Err(unusable("the shape of its array contradicts its lists"));
        }
        if header.nodes.iter().any(|node| *node as usize >= contexts) {
            return Err(unusable("it names contexts that the summary does not have"));
        }
        let Some(quantity) = header.quantities.iter().position(|name| name == INCLUSIVE) else {
            return Err(unusable("it has no inclusive times"));
        };
        let stride = header.row_bytes() as u64;
        let begin = line_bytes + (quantity * header.nodes.len() * FLOAT_BYTES) as u64;
        Ok(Self { file, ranks, nodes: header.nodes, begin, stride })
    }

    /// Returns the measured ranks.
    pub const fn ranks(&self) -> &RankSet {
        &self.ranks
    }

    /// Returns the contexts with known times, as indices into the summary's tree.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Returns the inclusive seconds of a rank in each of [`Self::nodes`].
    ///
    /// # Errors
    /// [`ExportError::UnknownRank`] for a rank without times, [`ExportError::RankRows`] if they
    /// cannot be read.
    pub fn inclusive_s(&self, rank: u32) -> Result<Vec<f32>, ExportError> {
        let Some(row) = self.ranks.position(rank) else {
            return Err(ExportError::UnknownRank { rank, known: self.ranks.to_string() });
        };
        let mut bytes = vec![0; self.nodes.len() * FLOAT_BYTES];
        self.file
            .read_exact_at(&mut bytes, self.begin + u64::from(row) * self.stride)
            .map_err(|error| unusable(&error.to_string()))?;
        let (words, _) = bytes.as_chunks::<FLOAT_BYTES>();
        let times: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        match times.iter().all(|time| time.is_finite() && *time >= 0.0) {
            true => Ok(times),
            false => Err(unusable(&format!("times of rank {rank} are no times"))),
        }
    }
}

fn unusable(reason: &str) -> ExportError {
    ExportError::RankRows(reason.into())
}
