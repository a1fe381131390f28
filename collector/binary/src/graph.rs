//! The control-flow graph of one function.

use serde::{Deserialize, Serialize};

/// Instructions that run one after the other: entered at the first, left after the last. A call
/// that returns does not end a block.
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
/// Code that no known way leads to (behind an indirect jump whose targets are unknown) is there, so
/// that addresses in it are found, but it is not [reached](Graph::is_reached).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    blocks: Vec<Block>,
    /// Successors of all blocks, one block's after the other's.
    edges: Vec<u32>,
    /// Where each block's successors end in `edges`; they begin where the block's before end.
    ends: Vec<u32>,
    entry: u32,
    reached: Vec<bool>,
}

/// A block as it was found, with the addresses where its successors begin.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) block: Block,
    pub(super) successors: Vec<u64>,
}

impl Graph {
    /// Puts blocks together, which come by ascending address; `None` if none begins at `entry`.
    ///
    /// Successors that are no block's start are left out, and so are edges from code that is not
    /// reached into code that is: what is not known to run must not make a second entry of a loop.
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

    /// All blocks, by ascending address.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The block that the function begins with.
    pub fn entry(&self) -> u32 {
        self.entry
    }

    /// The blocks that may run after a block.
    pub fn successors(&self, block: u32) -> &[u32] {
        let block = block as usize;
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        &self.edges[start as usize..self.ends[block] as usize]
    }

    /// Whether a known way leads from the entry to a block.
    pub fn is_reached(&self, block: u32) -> bool {
        self.reached[block as usize]
    }

    /// The block that holds an address.
    pub fn block_at(&self, address: u64) -> Option<u32> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        // Blocks overlap where a jump leads past an instruction's prefix: the block before may be
        // the longer one.
        (after.saturating_sub(2)..after)
            .rev()
            .find(|index| address < self.blocks[*index].end)
            .map(|index| index as u32)
    }

    /// The place of each block in a reverse postorder of the blocks that are reached: all its predecessors
    /// but those of back edges come before a block (Hecht and Ullman: in a reducible graph these are the
    /// back edges of every depth-first search).
    pub(super) fn places(&self) -> Vec<u32> {
        let mut places = vec![0; self.blocks.len()];
        let mut seen = vec![false; self.blocks.len()];
        let mut next = self.blocks.len() as u32;
        // Blocks on the way, each with the number of its successors that are done.
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

    /// Whether all indices lie within: what was read from a file may not.
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

    /// Memory in use, roughly.
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
