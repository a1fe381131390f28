//! Reads the side file `plimsoll-ranks/1`: the inclusive times of single ranks.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use serde::Deserialize;

use crate::ExportError;
use plimsoll_summary::ranks::RankSet;

const SCHEMA: &str = "plimsoll-ranks/1";
const DTYPE: &str = "<f4";
const INCLUSIVE: &str = "inclusive_s";
const FLOAT_BYTES: u64 = size_of::<f32>() as u64;
/// Longest header that is read, in bytes: the indices of 16 million contexts.
const MAX_HEADER_BYTES: u64 = 256 << 20;

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

/// What the first line of the file says.
#[derive(Deserialize)]
struct Header {
    schema: String,
    ranks: String,
    nodes: Vec<u32>,
    quantities: Vec<String>,
    dtype: String,
    shape: [u64; 3],
}

impl RankRows {
    /// Reads the header of a side file. `contexts` is the number of nodes in the summary's tree.
    ///
    /// # Errors
    /// [`ExportError::RankRows`] if the file is damaged or does not fit the tree.
    pub fn open(file: File, contexts: usize) -> Result<Self, ExportError> {
        let mut line = Vec::new();
        let mut reader = BufReader::new(&file).take(MAX_HEADER_BYTES);
        reader.read_until(b'\n', &mut line).map_err(|error| unusable(&error.to_string()))?;
        let header: Header = serde_json::from_slice(&line)
            .map_err(|error| unusable(&format!("its first line is no header ({error})")))?;
        if header.schema != SCHEMA || header.dtype != DTYPE {
            return Err(unusable(&format!(
                "expected the schema \"{SCHEMA}\" with {DTYPE} numbers"
            )));
        }
        let ranks: RankSet = header.ranks.parse().map_err(|error| unusable(&format!("{error}")))?;
        let (width, quantities) = (header.nodes.len() as u64, header.quantities.len() as u64);
        if header.shape != [u64::from(ranks.len()), quantities, width] {
            return Err(unusable("the shape of its array contradicts its lists"));
        }
        if header.nodes.iter().any(|node| *node as usize >= contexts) {
            return Err(unusable("it names contexts that the summary does not have"));
        }
        let Some(quantity) = header.quantities.iter().position(|name| name == INCLUSIVE) else {
            return Err(unusable("it has no inclusive times"));
        };
        let stride = quantities * width * FLOAT_BYTES;
        let begin = line.len() as u64 + quantity as u64 * width * FLOAT_BYTES;
        let length = file.metadata().map_err(|error| unusable(&error.to_string()))?.len();
        if length < line.len() as u64 + u64::from(ranks.len()) * stride {
            return Err(unusable("it is shorter than its header says"));
        }
        Ok(Self { file, ranks, nodes: header.nodes, begin, stride })
    }

    /// The measured ranks.
    pub const fn ranks(&self) -> &RankSet {
        &self.ranks
    }

    /// The contexts whose times are known: indices into the summary's tree.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Inclusive seconds of a rank in each of [`Self::nodes`].
    ///
    /// # Errors
    /// [`ExportError::UnknownRank`] for a rank without times, [`ExportError::RankRows`] if they
    /// cannot be read.
    pub fn inclusive_s(&self, rank: u32) -> Result<Vec<f32>, ExportError> {
        let Some(row) = self.ranks.position(rank) else {
            return Err(ExportError::UnknownRank { rank, known: self.ranks.to_string() });
        };
        let mut bytes = vec![0; self.nodes.len() * FLOAT_BYTES as usize];
        self.file
            .read_exact_at(&mut bytes, self.begin + u64::from(row) * self.stride)
            .map_err(|error| unusable(&error.to_string()))?;
        let (words, _) = bytes.as_chunks::<{ FLOAT_BYTES as usize }>();
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
