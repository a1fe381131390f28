//! What can follow what without going around: the control flow among the children of a loop, or of
//! the whole function, without the back edges of that loop (ICS18, Algorithm 1: `G'` and `successor`).

use std::collections::HashMap;

use super::graph::Graph;
use super::loops::Nest;

/// Most memory that the answers of one function take; beyond it they are forgotten and found again.
const MAX_BYTES: usize = 1 << 16;

/// A node of the flow within one loop (or the function): a block of it that lies in no inner loop, or
/// a whole inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Block(u32),
    Loop(u32),
}

/// Answers so far: what is reached from a node, by blocks. Of an inner loop its header stands for all.
#[derive(Debug, Default)]
pub(super) struct Reach {
    rows: HashMap<(Option<u32>, Node), Vec<u64>>,
    bytes: usize,
}

impl Reach {
    /// Memory in use, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.rows.capacity() * size_of::<((Option<u32>, Node), Vec<u64>)>()
    }

    /// Whether `to` can run after `from` has, without a back edge of `parent`; both are nodes of it.
    /// False if they are the same.
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

/// The node of `parent` that holds a block; `None` if the block lies outside.
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

/// All that is reached from a node.
fn row(graph: &Graph, nest: &Nest, parent: Option<u32>, from: Node) -> Vec<u64> {
    let blocks = graph.blocks().len();
    let header = parent.map(|parent| nest.cycles[parent as usize].header);
    let mut seen = vec![0u64; blocks.div_ceil(64)];
    let mut work: Vec<u32> = match from {
        Node::Block(block) => graph.successors(block).to_vec(),
        // Out of an inner loop leads whatever leaves any of its blocks.
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
        // Blocks of an inner loop are walked through one by one, along its own back edges, too: at
        // whichever it is entered, all of them are reached.
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
