//! Which code can follow which without a back edge: the control flow among the children of a loop,
//! or of the whole function, without the back edges of that loop (ICS18, Algorithm 1: `G'` and
//! `successor`).

use std::collections::HashMap;

use super::graph::Graph;
use super::natural_loops::Nest;

/// Maximum size in bytes of the stored results of one function; beyond it they are dropped and
/// computed again.
const MAX_BYTES: usize = 1 << 16;

/// Node of the control flow within one loop (or the function): a block in no inner loop, or a whole
/// inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Block(u32),
    Loop(u32),
}

/// Results so far: the blocks that each node reaches. The header of an inner loop stands for all of
/// that loop.
#[derive(Debug, Default)]
pub(super) struct Reach {
    rows: HashMap<(Option<u32>, Node), Vec<u64>>,
    bytes: usize,
}

impl Reach {
    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.rows.capacity() * size_of::<((Option<u32>, Node), Vec<u64>)>()
    }

    /// Returns whether `to` can run after `from` without a back edge of `parent`; both are nodes of
    /// `parent`. False if both are equal.
    pub(super) fn reaches(
        &mut self,
        graph: &Graph,
        nest: &Nest,
        parent: Option<u32>,
        from: Node,
        to: Node,
    ) -> bool {
        if from == to {
            return false;
        }
        let target = match to {
            Node::Block(block) => block,
            Node::Loop(inner) => nest.cycles[inner as usize].header,
        };
        if !self.rows.contains_key(&(parent, from)) {
            let row = row(graph, nest, parent, from);
            if self.bytes + 8 * row.len() > MAX_BYTES {
                self.rows.clear();
                self.bytes = 0;
            }
            self.bytes += 8 * row.len();
            self.rows.insert((parent, from), row);
        }
        let row = &self.rows[&(parent, from)];
        row[target as usize / 64] >> (target % 64) & 1 != 0
    }
}

/// Returns the node of `parent` that holds a block; `None` if the block lies outside.
pub(super) fn node_of(nest: &Nest, parent: Option<u32>, block: u32) -> Option<Node> {
    let mut inner = None;
    for around in nest.outwards(nest.innermost(block)) {
        if Some(around) == parent {
            return Some(inner.map_or(Node::Block(block), Node::Loop));
        }
        inner = Some(around);
    }
    parent.is_none().then(|| inner.map_or(Node::Block(block), Node::Loop))
}

/// Returns the blocks that a node reaches, as a bit set.
fn row(graph: &Graph, nest: &Nest, parent: Option<u32>, from: Node) -> Vec<u64> {
    let blocks = graph.blocks().len();
    let header = parent.map(|parent| nest.cycles[parent as usize].header);
    let mut seen = vec![0u64; blocks.div_ceil(64)];
    let mut work: Vec<u32> = match from {
        Node::Block(block) => graph.successors(block).to_vec(),
        // An inner loop is left by any edge out of any of its blocks.
        Node::Loop(inner) => (0..blocks as u32)
            .filter(|block| nest.outwards(nest.innermost(*block)).any(|around| around == inner))
            .flat_map(|block| graph.successors(block).iter().copied())
            .filter(|next| node_of(nest, parent, *next) != Some(from))
            .collect(),
    };
    let mut headers = Vec::new();
    while let Some(block) = work.pop() {
        // A back edge leads to the header.
        if Some(block) == header {
            continue;
        }
        let Some(node) = node_of(nest, parent, block) else { continue };
        let (word, bit) = (&mut seen[block as usize / 64], 1 << (block % 64));
        if *word & bit != 0 {
            continue;
        }
        *word |= bit;
        // Blocks of an inner loop are walked one by one, along the loop's own back edges, too: all
        // of them are reached wherever control enters.
        if let Node::Loop(inner) = node {
            headers.push(nest.cycles[inner as usize].header);
        }
        work.extend(graph.successors(block));
    }
    for header in headers {
        seen[header as usize / 64] |= 1 << (header % 64);
    }
    seen
}
