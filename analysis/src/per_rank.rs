//! Times of single ranks and single phases by context, which the totals do not hold, as a table in
//! a file beside the summary: for scatter plots and scripts.
//!
//! Rows travel to process 0 in bounded pieces, on its request, and process 0 writes each at once to
//! its place in the table: no process ever holds the rows of all ranks, and equal runs give equal
//! tables regardless of the placement of ranks on nodes.
//!
//! The file format is `plimsoll-ranks/1`: one line of JSON, padded with blanks to a multiple of 64
//! bytes, that describes the arrays, followed by numbers only. First array: for each rank of
//! `ranks`, in ascending order, for each of `quantities` (times, calls, counted events), one number
//! for each of `nodes`; all little-endian floats of four bytes, in row-major order, as given by
//! `dtype` and `shape`. Second array, of `phase_shape`: for each of `phases`, for each of
//! `phase_quantities`, one number for each of `nodes`, or NaN if unknown.

mod event_rows;
mod phase_columns;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use plimsoll_collector::profile::{NodeId, NodeValue};
use plimsoll_summary::per_rank_file::{
    CALLS, DTYPE, EXCLUSIVE, FLOAT_BYTES, INCLUSIVE, RankTableHeader, RanksVersion,
};
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalTree, Threads};
use crate::communicator::{Communicator, CommunicatorError};
use crate::error::Error;
use crate::imbalance::PhaseImbalance;
use crate::input::RankInput;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::ranks::RankSet;
use crate::summary_tree::places;
use crate::times::Times;
use crate::totals::Totals;

use event_rows::EventRows;
use phase_columns::PhaseRows;
pub use plimsoll_summary::per_rank_file::{Table, note};

/// Maximum size of the numbers in a table, in bytes. A larger job keeps the contexts in which its
/// ranks differ most. Phases take at most a quarter of this size.
pub const MAX_BYTES: u64 = 64 << 20;

/// Values of a rank in each context, before those of its events.
const QUANTITIES: [&str; 3] = [INCLUSIVE, EXCLUSIVE, CALLS];
/// Alignment of the numbers, in bytes, as in numpy's own files.
const ALIGNMENT: usize = 64;
/// Maximum size of a piece of rows, in bytes. Small for tests, so that their rows take several
/// pieces.
const PIECE_BYTES: usize = if cfg!(test) { 200 } else { 1 << 20 };

/// Columns of the first array, which has one row per rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// Ids of the contexts in the totals.
    contexts: Vec<NodeId>,
    /// Events that some rank counted.
    events: Vec<String>,
}

impl Columns {
    /// Returns how many values a rank has in each context.
    fn quantities(&self) -> usize {
        QUANTITIES.len() + event_rows::QUANTITIES.len() * self.events.len()
    }
}

/// Content of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    ranks: RankSet,
    /// Indices in the summary's tree, ascending.
    nodes: Vec<u32>,
    /// The contexts in `nodes`, and the events.
    columns: Columns,
    phases: PhaseRows,
}

impl Sheet {
    /// Builds a sheet of all contexts in the summary, or, if their numbers exceed `most_bytes`, of
    /// those in which ranks differ most. Returns `None` with less than two ranks or without
    /// contexts.
    pub fn of(
        totals: &Totals,
        imbalances: &BTreeMap<u64, PhaseImbalance>,
        most_bytes: u64,
    ) -> Option<Self> {
        let ranks = totals.job.ranks.clone();
        let count = ranks.len();
        if count < 2 {
            return None;
        }
        let places = places(totals);
        let mut shown: Vec<(NodeId, u32)> =
            (0..).zip(&places).filter_map(|(id, place)| Some((id, (*place)?))).collect();
        let events = totals.counters.counted_events();
        let mut columns = Columns { contexts: Vec::new(), events };
        let most = most_bytes / (u64::from(count) * (columns.quantities() * FLOAT_BYTES) as u64);
        if shown.len() as u64 > most {
            let spread = |time: &Accumulator| time.max - time.min(count);
            shown.sort_by_key(|(id, _)| {
                let node = &totals.nodes[*id as usize];
                (Reverse(spread(&node.inclusive).max(spread(&node.exclusive))), *id)
            });
            shown.truncate(most as usize);
            shown.sort_unstable();
        }
        let (contexts, nodes): (Vec<_>, Vec<_>) = shown.into_iter().unzip();
        columns.contexts = contexts;
        if nodes.is_empty() {
            return None;
        }
        let phases = PhaseRows::of(totals, imbalances, &columns.contexts, most_bytes / 4);
        Some(Self { ranks, nodes, columns, phases })
    }

    /// Returns what each rank contributes.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    fn header(&self) -> Vec<u8> {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let header = RankTableHeader {
            schema: RanksVersion::V1,
            ranks: self.ranks.to_string(),
            nodes: self.nodes.clone(),
            quantities: [names(&QUANTITIES), event_rows::names(&self.columns.events)].concat(),
            dtype: DTYPE.to_owned(),
            shape: [self.ranks.len() as usize, self.columns.quantities(), self.nodes.len()],
            phases: self.phases.phases.clone(),
            phase_quantities: names(&phase_columns::QUANTITIES),
            phase_shape: [
                self.phases.phases.len(),
                phase_columns::QUANTITIES.len(),
                self.nodes.len(),
            ],
        };
        // A structure of texts and numbers always has a JSON form.
        let mut line = serde_json::to_vec(&header).unwrap_or_default();
        let length = (line.len() + 1).next_multiple_of(ALIGNMENT);
        line.resize(length - 1, b' ');
        line.push(b'\n');
        line
    }
}

/// Reason why there is no table.
#[derive(Debug)]
pub enum Trouble {
    /// The table cannot be written.
    Table(Error),
    /// Rows could not be received.
    Exchange(CommunicatorError),
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(error) => error.fmt(formatter),
            Self::Exchange(error) => write!(formatter, "{error}."),
        }
    }
}

impl std::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Table(error) => Some(error),
            Self::Exchange(error) => Some(error),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Table(error)
    }
}

impl From<CommunicatorError> for Trouble {
    fn from(error: CommunicatorError) -> Self {
        Self::Exchange(error)
    }
}

/// Fills a table with the rows of all ranks. The contexts of `columns` are those of `tree`, which
/// must be equal in all processes except for nodes added later. Process 0 passes the sheet
/// and the table in `wanted`; without them, or if a row cannot be written, process 0 tells the
/// others to stop. Collective.
pub fn collect(
    comm: &dyn Communicator,
    local: &[RankInput],
    (tree, columns): (&mut CanonicalTree, &Columns),
    wanted: Option<(&Sheet, &mut dyn Table)>,
) -> Result<(), Trouble> {
    let mut rows = Rows::new(local, tree, columns);
    if comm.rank() != 0 {
        return Ok(serve(comm, &mut rows)?);
    }
    let Some((sheet, table)) = wanted else {
        return (1..comm.size()).try_for_each(|peer| Ok(comm.send(peer, END_OF_ROWS)?));
    };
    let mut filling = Filling::new(sheet, table);
    let mut outcome = filling.begin().and_then(|()| filling.take_all(0, || Ok(rows.piece())));
    for peer in 1..comm.size() {
        outcome = outcome.and_then(|()| {
            filling.take_all(peer, || {
                comm.send(peer, NEXT_ROWS)?;
                comm.receive(peer)
            })
        });
        let dismissed = comm.send(peer, END_OF_ROWS).map_err(Trouble::from);
        outcome = outcome.and(dismissed);
    }
    let outcome = outcome.and_then(|()| Ok(filling.table.finish()?));
    if outcome.is_err() {
        filling.table.discard();
    }
    outcome
}

/// Requests of process 0 to the processes with rows.
const NEXT_ROWS: &[u8] = &[1];
const END_OF_ROWS: &[u8] = &[0];
/// First byte of a piece.
const TO_BE_CONTINUED: u8 = 0;
const LAST: u8 = 1;

fn serve(comm: &dyn Communicator, rows: &mut Rows<'_>) -> Result<(), CommunicatorError> {
    while comm.receive(0)? == NEXT_ROWS {
        comm.send(0, &rows.piece())?;
    }
    Ok(())
}

/// Rows of some ranks, built on request.
struct Rows<'a> {
    inputs: std::vec::IntoIter<&'a RankInput>,
    tree: &'a mut CanonicalTree,
    /// Column of each context; `None` if the context is not in the table.
    columns: Vec<Option<usize>>,
    width: usize,
    events: &'a [String],
}

impl<'a> Rows<'a> {
    fn new(local: &'a [RankInput], tree: &'a mut CanonicalTree, chosen: &'a Columns) -> Self {
        let Columns { contexts: chosen, events } = chosen;
        let mut inputs: Vec<&RankInput> = local.iter().collect();
        inputs.sort_by_key(|input| input.rank);
        let mut columns = vec![None; tree.contexts.nodes.len()];
        for (column, context) in chosen.iter().enumerate() {
            if let Some(place) = columns.get_mut(*context as usize) {
                *place = Some(column);
            }
        }
        Self { inputs: inputs.into_iter(), tree, columns, width: chosen.len(), events }
    }

    /// Returns the next rows: one byte that says whether they are the last; for each row its rank
    /// and its numbers.
    fn piece(&mut self) -> Vec<u8> {
        let mut piece = vec![TO_BE_CONTINUED];
        while piece.len() < PIECE_BYTES {
            let Some(input) = self.inputs.next() else { break };
            piece.extend(input.rank.to_le_bytes());
            piece.extend(self.row(input).into_iter().flat_map(f32::to_le_bytes));
        }
        if self.inputs.len() == 0 {
            piece[0] = LAST;
        }
        piece
    }

    fn row(&mut self, input: &RankInput) -> Vec<f32> {
        let mut sums = vec![0; QUANTITIES.len() * self.width];
        let (times_ns, calls) = sums.split_at_mut(2 * self.width);
        let (inclusive_ns, exclusive_ns) = times_ns.split_at_mut(self.width);
        let profile = &input.profile;
        let main: Vec<&(NodeId, NodeValue)> =
            profile.phases.iter().flat_map(|phase| &phase.values).collect();
        let others: Vec<_> = profile.other_threads.iter().collect();
        let mut counted = EventRows::new(&profile.counters, self.events, self.width);
        for (threads, values) in [(Threads::Main, main), (Threads::Other, others)] {
            let times = Times::new(&profile.tree, values.iter().copied());
            let present = |node: NodeId| times.present[node as usize];
            let places = self.tree.adopt(&profile.tree, threads, present);
            let column =
                |node: usize| *self.columns.get(places.get(node).copied().flatten()? as usize)?;
            for node in 0..places.len() {
                if let Some(column) = column(node) {
                    inclusive_ns[column] += times.inclusive_ns[node];
                    exclusive_ns[column] += times.exclusive_ns[node];
                }
            }
            for (node, value) in values {
                if let Some(column) = column(*node as usize) {
                    calls[column] += value.calls;
                }
            }
            counted.add(&profile.tree, threads, column);
        }
        let seconds = |ns: &u64| (*ns as f64 / NS_PER_S) as f32;
        let calls = calls.iter().map(|number| *number as f32);
        times_ns.iter().map(seconds).chain(calls).chain(counted.numbers()).collect()
    }
}

/// A table being filled with rows.
struct Filling<'a> {
    sheet: &'a Sheet,
    table: &'a mut dyn Table,
    begin: u64,
    row_bytes: usize,
}

impl<'a> Filling<'a> {
    fn new(sheet: &'a Sheet, table: &'a mut dyn Table) -> Self {
        let row_bytes = sheet.columns.quantities() * FLOAT_BYTES * sheet.nodes.len();
        Self { sheet, table, begin: 0, row_bytes }
    }

    fn begin(&mut self) -> Result<(), Trouble> {
        let header = self.sheet.header();
        self.begin = header.len() as u64;
        self.table.write_at(0, &header)?;
        let numbers: Vec<u8> =
            self.sheet.phases.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let behind = self.begin + u64::from(self.sheet.ranks.len()) * self.row_bytes as u64;
        Ok(self.table.write_at(behind, &numbers)?)
    }

    /// Writes the pieces of a process until its last one.
    fn take_all(
        &mut self,
        peer: u32,
        mut next: impl FnMut() -> Result<Vec<u8>, CommunicatorError>,
    ) -> Result<(), Trouble> {
        loop {
            let piece = next()?;
            let strange = |what: &str| {
                let reason = format!("{what} in {} bytes of rows", piece.len());
                CommunicatorError::Decode { peer, reason }
            };
            let (first, rows) = piece.split_first().ok_or_else(|| strange("nothing"))?;
            let mut rows = rows.chunks_exact(size_of::<u32>() + self.row_bytes);
            // Rows of consecutive ranks are written together.
            let (mut block, mut block_begin) = (Vec::new(), 0);
            for row in &mut rows {
                let (rank, numbers) = row.split_first_chunk().ok_or_else(|| strange("no rank"))?;
                let position = self.sheet.ranks.position(u32::from_le_bytes(*rank));
                let position = position.ok_or_else(|| strange("an unknown rank"))?;
                let offset = self.begin + u64::from(position) * self.row_bytes as u64;
                if offset != block_begin + block.len() as u64 {
                    self.put(block_begin, &mut block)?;
                    block_begin = offset;
                }
                block.extend_from_slice(numbers);
            }
            self.put(block_begin, &mut block)?;
            if !rows.remainder().is_empty() {
                return Err(strange("a part of a row").into());
            }
            if *first == LAST {
                return Ok(());
            }
        }
    }

    fn put(&mut self, offset: u64, block: &mut Vec<u8>) -> Result<(), Error> {
        if !block.is_empty() {
            self.table.write_at(offset, block)?;
            block.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
