//! Times of single ranks in a page: the table beside the summary, or, if that is
//! too large for a page, its columns that explain the losses and the biclusters.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};

use serde::Serialize;

use plimsoll_summary::Summary;
use plimsoll_summary::npz::NUMBER_BYTES;
use plimsoll_summary::per_rank_file::RankTable;

/// Maximum number of times in a page, of four bytes each.
const MAX_TIMES: usize = 1 << 20;

/// Times of single ranks.
pub struct RankRows {
    about: About,
    /// Times by context, quantity and rank.
    times: Vec<f32>,
}

/// First line of the block.
#[derive(Serialize)]
struct About {
    ranks: String,
    nodes: Vec<u32>,
    quantities: Vec<String>,
    /// Number of ranks.
    count: usize,
    /// Number of contexts in the file's table.
    of: usize,
}

/// Reads the part of a table that a page shows.
///
/// # Errors
/// Those of the file, and a sentence if it holds no such table.
pub fn read(file: File, summary: &Summary) -> io::Result<RankRows> {
    let table = RankTable::open(file).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => damaged(&error),
        _ => error,
    })?;
    let (quantities, ranks) = (table.quantities.len(), table.ranks.len());

    let chosen = chosen(&table, summary);
    let count = ranks as usize;
    let mut times = vec![0.0; chosen.len() * quantities * count];
    for quantity in 0..quantities {
        for rank in 0..ranks {
            let values = table.values(quantity, rank)?;
            for (place, column) in chosen.iter().enumerate() {
                times[(place * quantities + quantity) * count + rank as usize] = values[*column];
            }
        }
    }
    let about = About {
        ranks: table.ranks.to_string(),
        nodes: chosen.iter().map(|column| table.nodes[*column]).collect(),
        quantities: table.quantities,
        count,
        of: table.nodes.len(),
    };
    Ok(RankRows { about, times })
}

impl RankRows {
    /// Writes one line of JSON, then the times as planes ([`super::columns`]).
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *to, &self.about)?;
        to.write_all(b"\n")?;
        for byte in 0..NUMBER_BYTES {
            for time in &self.times {
                to.write_all(&[time.to_le_bytes()[byte]])?;
            }
        }
        Ok(())
    }
}

/// Chooses the columns of a table for a page: those of the losses and biclusters first, then those
/// with the largest differences between ranks.
fn chosen(table: &RankTable, summary: &Summary) -> Vec<usize> {
    let nodes = table.nodes.len();
    let room = MAX_TIMES / (table.ranks.len() as usize * table.quantities.len()).max(1);
    if nodes <= room {
        return (0..nodes).collect();
    }
    let of_losses = summary
        .losses
        .iter()
        .flat_map(|loss| loss.causes.iter().map(|cause| cause.node).chain([loss.symptom.node]));
    let of_biclusters = summary.biclusters.iter().flat_map(|it| it.nodes.iter().copied());
    let named: HashSet<u32> = of_losses.chain(of_biclusters).collect();
    let spread = |column: &usize| {
        let node = table.nodes[*column];
        let spread = summary.tree.nodes.get(node as usize).map_or(0.0, |node| {
            let both = [&node.inclusive, &node.exclusive].map(|metric| metric.max_s - metric.min_s);
            both[0].max(both[1])
        });
        (Reverse(named.contains(&node)), Reverse((spread * 1e9) as u64), *column)
    };
    let mut columns: Vec<usize> = (0..nodes).collect();
    columns.sort_by_cached_key(spread);
    columns.truncate(room);
    columns.sort_unstable();
    columns
}

fn damaged(how: &io::Error) -> io::Error {
    io::Error::other(format!("The file is damaged: {how}."))
}
