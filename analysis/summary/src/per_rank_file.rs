//! Side file with the values of each rank by context, `plimsoll-ranks/1`: its first line, the
//! layout of its bytes, and its entry in the summary.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};

use crate::Summary;
use crate::error::Error;

/// Last part of the name of the file.
pub const EXTENSION: &str = "ranks";
/// Type of the numbers: little-endian floats of four bytes.
pub const DTYPE: &str = "<f4";
/// Size of a number, in bytes.
pub const FLOAT_BYTES: usize = size_of::<f32>();
/// Time of a rank in a context and in its callees, in seconds.
pub const INCLUSIVE: &str = "inclusive_s";
/// Time of a rank in a context alone, in seconds.
pub const EXCLUSIVE: &str = "exclusive_s";
/// Number of calls of a context by a rank; a lower bound unless the tree says that it is exact.
pub const CALLS: &str = "calls";
/// Maximum length of the first line that is read, in bytes: the indices of 16 million contexts.
const MAX_HEADER_BYTES: u64 = 256 << 20;

/// Version of the file's form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanksVersion {
    /// `plimsoll-ranks/1`.
    #[default]
    #[serde(rename = "plimsoll-ranks/1")]
    V1,
}

/// The first line of the file, which describes the two arrays of numbers behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTableHeader {
    /// Version of this form.
    pub schema: RanksVersion,
    /// Rank list of the measured ranks.
    pub ranks: String,
    /// Contexts, as ascending indices into the nodes of the summary's tree.
    pub nodes: Vec<u32>,
    /// Values of each rank in each context: [`INCLUSIVE`], [`EXCLUSIVE`], [`CALLS`], and two for
    /// each counted event: `page-faults.inclusive`, `page-faults.exclusive`. An event that the rank
    /// did not count is NaN.
    pub quantities: Vec<String>,
    /// Type of all numbers, [`DTYPE`].
    pub dtype: String,
    /// Sizes of the first array: ranks, quantities, contexts.
    pub shape: [usize; 3],
    /// Phases of the second array, as ids of the summary's phases.
    #[serde(default)]
    pub phases: Vec<u32>,
    /// Values of each context in each phase.
    #[serde(default)]
    pub phase_quantities: Vec<String>,
    /// Sizes of the second array: phases, their quantities, contexts.
    #[serde(default)]
    pub phase_shape: [usize; 3],
}

impl RankTableHeader {
    /// Reads the first line of a file of `file_bytes` bytes. Returns the header and the length of
    /// its line: the first array is whole, and begins there.
    ///
    /// # Errors
    /// Those of the file. A file that holds no such table is [`io::ErrorKind::InvalidData`], with
    /// the end of a sentence.
    pub fn read(file: &mut impl BufRead, file_bytes: u64) -> io::Result<(Self, u64)> {
        let mut line = Vec::new();
        file.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut line)?;
        let header: Self = serde_json::from_slice(&line)
            .map_err(|error| damaged(format!("its first line is no header ({error})")))?;
        let [_, quantities, nodes] = header.shape;
        let agrees = header.quantities.len() == quantities && header.nodes.len() == nodes;
        let agrees = agrees && quantities > 0 && nodes > 0;
        if header.dtype != DTYPE || !agrees {
            return Err(damaged("its first line contradicts itself".to_owned()));
        }
        let begin = line.len() as u64;
        let [ranks, quantities, nodes] = header.shape.map(|size| size as u64);
        let whole = ranks
            .checked_mul(quantities)
            .and_then(|all| all.checked_mul(nodes)?.checked_mul(FLOAT_BYTES as u64))
            .and_then(|bytes| bytes.checked_add(begin));
        match whole.is_some_and(|whole| whole <= file_bytes) {
            true => Ok((header, begin)),
            false => Err(damaged("it is shorter than its first line says".to_owned())),
        }
    }

    /// Returns the size of the numbers of one rank, in bytes.
    pub const fn row_bytes(&self) -> usize {
        self.shape[1] * self.shape[2] * FLOAT_BYTES
    }
}

fn damaged(how: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, how)
}

/// Storage of a table.
pub trait Table {
    /// Writes bytes at an offset; bytes before it may follow later.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Ends the table: all bytes are written.
    fn finish(&mut self) -> Result<(), Error>;
    /// Drops the table: some bytes will never be written.
    fn discard(&mut self);
    /// Writes a whole further file beside the table, with this extension in place of the table's.
    fn attach(&mut self, extension: &str, content: &[u8]) -> Result<(), Error>;
}

/// Returns the summary's note about a missing table.
pub fn note(reason: &dyn fmt::Display) -> String {
    format!("The times of single ranks were not written. {reason}")
}

/// Takes the name of the table from the names of all side files, or the reason for their absence.
pub fn name_in(summary: &mut Summary, files: Result<&[String], &Error>) {
    let is_table = |name: &&String| name.ends_with(&format!(".{EXTENSION}"));
    summary.per_rank.file = files.ok().and_then(|files| files.iter().find(is_table).cloned());
    if let Err(reason) = files {
        summary.notes.push(note(reason));
    }
}
