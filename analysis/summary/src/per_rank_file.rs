//! Side file with the values of each rank by context, as arrays ([`crate::npz`]), and its entry in
//! the summary. `ranks` and `nodes` list the measured ranks and the contexts, and each quantity has
//! an array of contexts x ranks. `phases` lists phases, and each of their quantities has an array
//! of contexts x phases.

use std::fmt;
use std::fs::File;
use std::io;

use crate::Summary;
use crate::error::Error;
use crate::npz::{Array, Arrays, Kind, NUMBER_BYTES};
use crate::ranks::RankSet;

/// Last part of the name of the file.
pub const EXTENSION: &str = "npz";
/// Time of a rank in a context and in its callees, in seconds.
pub const INCLUSIVE: &str = "inclusive_s";
/// Time of a rank in a context alone, in seconds.
pub const EXCLUSIVE: &str = "exclusive_s";
/// Number of calls of a context by a rank; a lower bound unless the tree says that it is exact.
pub const CALLS: &str = "calls";
/// Array of the measured ranks.
pub const RANKS: &str = "ranks";
/// Array of the contexts, as ascending indices into the nodes of the summary's tree.
pub const NODES: &str = "nodes";
/// Array of the phases, as ids of the summary's phases.
pub const PHASES: &str = "phases";
/// Begin of the name of [`PHASES`] and of the arrays of phases' quantities.
const OF_PHASES: &str = "phase";

/// The values of single ranks in a file. They are read when they are asked for.
#[derive(Debug)]
pub struct RankTable {
    arrays: Arrays,
    /// The measured ranks.
    pub ranks: RankSet,
    /// Contexts, as ascending indices into the nodes of the summary's tree.
    pub nodes: Vec<u32>,
    /// Values of each rank in each context: [`INCLUSIVE`], [`EXCLUSIVE`], [`CALLS`], and two for
    /// each counted event: `page-faults.inclusive`, `page-faults.exclusive`. An event that the rank
    /// did not count is NaN.
    pub quantities: Vec<String>,
    /// Offset of the values of each quantity, in bytes.
    begins: Vec<u64>,
}

impl RankTable {
    /// Reads the lists of a file.
    ///
    /// # Errors
    /// Those of the file. A file that holds no such table is [`io::ErrorKind::InvalidData`], with
    /// the end of a sentence.
    pub fn open(file: File) -> io::Result<Self> {
        let arrays = Arrays::open(file)?;
        let (listed, nodes) = (arrays.integers(RANKS)?, arrays.integers(NODES)?);
        let ranks: RankSet = listed.iter().copied().collect();
        if !ranks.iter().eq(listed.iter().copied()) || !nodes.is_sorted() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its lists are not sorted"));
        }
        let is_quantity =
            |name: &&str| ![RANKS, NODES].contains(name) && !name.starts_with(OF_PHASES);
        let quantities: Vec<String> =
            arrays.names().filter(is_quantity).map(str::to_owned).collect();
        let shape = [nodes.len(), listed.len()];
        let begin = |name: &String| arrays.numbers(name, Kind::Float, &shape);
        let begins = quantities.iter().map(begin).collect::<io::Result<_>>()?;
        Ok(Self { arrays, ranks, nodes, quantities, begins })
    }

    /// Returns the values of a quantity in all contexts. The rank is the one at a position of
    /// [`Self::ranks`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn values(&self, quantity: usize, position: u32) -> io::Result<Vec<f32>> {
        let mut values = vec![0.0; self.nodes.len()];
        let row_bytes = (self.nodes.len() * NUMBER_BYTES) as u64;
        self.arrays.floats(self.begins[quantity] + u64::from(position) * row_bytes, &mut values)?;
        Ok(values)
    }
}

/// Storage of a table.
pub trait Table {
    /// Keeps numbers for the table at an offset, in bytes; those before it may follow later.
    fn keep_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Writes the table.
    fn write(&mut self, arrays: &[Array]) -> Result<(), Error>;
    /// Drops what was kept.
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
