//! The control-flow graph of one function.

use serde::{Deserialize, Serialize};

/// Basic block: instructions that run in sequence, entered at the first and left after the last. A
/// call that returns does not end a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Address after the last instruction.
    pub end: u64,
    /// Address of the last instruction.
    pub last: u64,
}

/// Blocks by ascending address, and the edges among them.
///
/// Code that no known path reaches (behind an indirect jump with unknown targets) is in the graph,
/// so that its addresses have blocks, but is not [reached](Graph::is_reached).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    blocks: Vec<Block>,
    /// Successors of all blocks, block after block.
    edges: Vec<u32>,
    /// End of each block's successors in `edges`; they begin at the end of the block before.
    ends: Vec<u32>,
    entry: u32,
    reached: Vec<bool>,
}

/// A decoded block, with the start addresses of its successors.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) block: Block,
    pub(super) successors: Vec<u64>,
}

impl Graph {
    /// Builds the graph from blocks in ascending order of address; `None` if none begins at
    /// `entry`.
    ///
    /// Successors that are not the start of a block are left out, and so are edges from unreached
    /// code into reached code: code that may never run must not make a second entry of a loop.
    pub(super) fn new(found: Vec<Found>, entry: u64) -> Option<Self> {
        let index = |start: u64| found.binary_search_by_key(&start, |f| f.block.start).ok();
        let entry = index(entry)?;
        let lists: Vec<Vec<u32>> = found
            .iter()
            .map(|f| {
                let mut next: Vec<u32> =
                    f.successors.iter().filter_map(|start| Some(index(*start)? as u32)).collect();
                next.sort_unstable();
                next.dedup();
                next
            })
            .collect();
        let reached = reach(&lists, entry);
        let mut graph = Self { entry: entry as u32, ..Self::default() };
        for (from, next) in lists.into_iter().enumerate() {
            graph.edges.extend(next.iter().filter(|to| reached[from] || !reached[**to as usize]));
            graph.ends.push(graph.edges.len() as u32);
        }
        graph.blocks = found.into_iter().map(|f| f.block).collect();
        graph.reached = reached;
        Some(graph)
    }

    /// Returns all blocks, by ascending address.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the index of the block at the function's entry.
    pub fn entry(&self) -> u32 {
        self.entry
    }

    /// Returns the indices of the blocks that may run directly after a block.
    pub fn successors(&self, block: u32) -> &[u32] {
        let block = block as usize;
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        &self.edges[start as usize..self.ends[block] as usize]
    }

    /// Returns whether a known path leads from the entry to a block.
    pub fn is_reached(&self, block: u32) -> bool {
        self.reached[block as usize]
    }

    /// Returns the index of the block that holds an address.
    pub fn block_at(&self, address: u64) -> Option<u32> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        // Blocks overlap where a jump leads past an instruction's prefix: the earlier block may be
        // the longer one.
        (after.saturating_sub(2)..after)
            .rev()
            .find(|index| address < self.blocks[*index].end)
            .map(|index| index as u32)
    }

    /// Returns the position of each block in a reverse postorder of the reached blocks: all its
    /// predecessors, except through back edges, come before a block (Hecht and Ullman: in a
    /// reducible graph these are the back edges of every depth-first search).
    pub(super) fn places(&self) -> Vec<u32> {
        let mut places = vec![0; self.blocks.len()];
        let mut seen = vec![false; self.blocks.len()];
        let mut next = self.blocks.len() as u32;
        // Blocks on the current path, each with the number of successors already visited.
        let mut way = vec![(self.entry, 0)];
        seen[self.entry as usize] = true;
        while let Some((block, done)) = way.last_mut() {
            match self.successors(*block).get(*done) {
                Some(inner) => {
                    *done += 1;
                    if !std::mem::replace(&mut seen[*inner as usize], true) {
                        way.push((*inner, 0));
                    }
                }
                None => {
                    next -= 1;
                    places[*block as usize] = next;
                    way.pop();
                }
            }
        }
        places
    }

    /// Returns whether all indices are in range; damaged input may break that.
    pub(super) fn is_sound(&self) -> bool {
        let blocks = self.blocks.len();
        self.ends.len() == blocks
            && self.reached.len() == blocks
            && (self.entry as usize) < blocks
            && self.ends.is_sorted()
            && self.ends.last().is_some_and(|end| *end as usize == self.edges.len())
            && self.edges.iter().all(|to| (*to as usize) < blocks)
            && self.blocks.is_sorted_by_key(|block| block.start)
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + 4 * (self.edges.capacity() + self.ends.capacity())
            + self.reached.capacity()
    }
}

fn reach(lists: &[Vec<u32>], entry: usize) -> Vec<bool> {
    let mut reached = vec![false; lists.len()];
    reached[entry] = true;
    let mut work = vec![entry];
    while let Some(block) = work.pop() {
        for next in &lists[block] {
            if !std::mem::replace(&mut reached[*next as usize], true) {
                work.push(*next as usize);
            }
        }
    }
    reached
}
