//! Times of single ranks and single phases by context, which the totals do not hold, as a table in
//! a file beside the summary: for scatter plots and scripts.
//!
//! Rows travel to process 0 in bounded pieces, on its request, and process 0 writes each at once to
//! its place in the table: no process ever holds the rows of all ranks, and equal runs give equal
//! tables regardless of the placement of ranks on nodes.
//!
//! The file ([`plimsoll_summary::per_rank_file`]) has an array of contexts x ranks for each
//! quantity (times, calls, counted events), and one of contexts x phases for each quantity of
//! phases. A value that is not known is NaN.

mod event_rows;
mod phase_columns;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, NodeValue};
use plimsoll_summary::npz::{Array, Kind, NUMBER_BYTES, Numbers};
use plimsoll_summary::per_rank_file::{CALLS, EXCLUSIVE, INCLUSIVE, NODES, PHASES, RANKS};
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
        let most = most_bytes / (u64::from(count) * (columns.quantities() * NUMBER_BYTES) as u64);
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

    /// Returns the size of the numbers of one rank in one quantity, in bytes.
    fn row_bytes(&self) -> usize {
        self.nodes.len() * NUMBER_BYTES
    }

    /// Returns the size of one quantity, in bytes.
    fn quantity_bytes(&self) -> u64 {
        u64::from(self.ranks.len()) * self.row_bytes() as u64
    }

    /// Returns the arrays of the file. The numbers of each quantity were kept one after the other.
    fn arrays(&self) -> Vec<Array> {
        let events = event_rows::names(&self.columns.events);
        let names = QUANTITIES.into_iter().chain(events.iter().map(String::as_str));
        let shape = [self.nodes.len(), self.ranks.len() as usize];
        let quantity = |(index, name)| {
            let kept = Numbers::Kept(index * self.quantity_bytes());
            Array::new(name, Kind::Float, &shape, kept)
        };
        let lists = [
            Array::integers(RANKS, self.ranks.iter()),
            Array::integers(NODES, self.nodes.iter().copied()),
        ];
        let mut arrays: Vec<Array> =
            lists.into_iter().chain((0..).zip(names).map(quantity)).collect();
        arrays.push(Array::integers(PHASES, self.phases.phases.iter().copied()));
        let shape = [self.nodes.len(), self.phases.phases.len()];
        let of_phases = phase_columns::QUANTITIES.iter().zip(&self.phases.numbers);
        arrays.extend(of_phases.map(|(name, numbers)| Array::floats(name, &shape, numbers)));
        arrays
    }
}

/// Reason why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The table cannot be written.
    #[error("{0}")]
    Table(#[from] Error),
    /// Rows could not be received.
    #[error("{0}.")]
    Exchange(#[from] CommunicatorError),
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
    let mut filling = Filling { sheet, table };
    let mut outcome = filling.take_all(0, || Ok(rows.piece()));
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
    let outcome = outcome.and_then(|()| Ok(filling.table.write(&sheet.arrays())?));
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
}

impl Filling<'_> {
    /// Keeps the pieces of a process until its last one.
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
            let (row_bytes, quantities) = (self.sheet.row_bytes(), self.sheet.columns.quantities());
            let mut rows = rows.chunks_exact(size_of::<u32>() + quantities * row_bytes);
            // Rows of consecutive ranks are kept together, apart for each quantity.
            let (mut blocks, mut begin) = (vec![Vec::new(); quantities], 0);
            for row in &mut rows {
                let (rank, numbers) = row.split_first_chunk().ok_or_else(|| strange("no rank"))?;
                let position = self.sheet.ranks.position(u32::from_le_bytes(*rank));
                let position = position.ok_or_else(|| strange("an unknown rank"))?;
                let offset = u64::from(position) * row_bytes as u64;
                if offset != begin + blocks[0].len() as u64 {
                    self.keep(begin, &mut blocks)?;
                    begin = offset;
                }
                for (block, numbers) in blocks.iter_mut().zip(numbers.chunks_exact(row_bytes)) {
                    block.extend_from_slice(numbers);
                }
            }
            self.keep(begin, &mut blocks)?;
            if !rows.remainder().is_empty() {
                return Err(strange("a part of a row").into());
            }
            if *first == LAST {
                return Ok(());
            }
        }
    }

    /// Keeps rows at an offset in each quantity, and empties the blocks.
    fn keep(&mut self, begin: u64, blocks: &mut [Vec<u8>]) -> Result<(), Error> {
        for (quantity, block) in (0..).zip(blocks) {
            if !block.is_empty() {
                self.table.keep_at(quantity * self.sheet.quantity_bytes() + begin, block)?;
                block.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
