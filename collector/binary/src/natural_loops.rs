//! Loops: the blocks that form them, and their nesting.
//!
//! P. Havlak, *Nesting of Reducible and Irreducible Loops*, TOPLAS 19(4), 1997, after R. Tarjan's
//! interval finding. In reducible code these are the natural loops, with those of one header
//! merged; a cycle that a jump enters past its header is an irreducible loop.

use serde::{Deserialize, Serialize};

use super::graph::Graph;

/// Maximum number of steps of the search for loops; jumps into many nested loops make it quadratic.
const MAX_STEPS: usize = 20_000_000;

const NONE: u32 = u32::MAX;

/// A loop, in terms of block indices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cycle {
    /// Block to which the back edges lead.
    pub(super) header: u32,
    /// Loop directly around this one; `None` for an outermost loop.
    pub(super) parent: Option<u32>,
    /// Whether control can also enter the loop other than at its header.
    pub(super) irreducible: bool,
}

/// The loops of a function: outer ones before those inside them, otherwise by header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nest {
    pub(super) cycles: Vec<Cycle>,
    /// Innermost loop of each block; `None` outside all loops.
    innermost: Vec<Option<u32>>,
}

impl Nest {
    /// Finds the loops of a graph; `None` if that takes more than [`MAX_STEPS`].
    pub(super) fn of(graph: &Graph) -> Option<Self> {
        let walk = Walk::of(graph);
        let mut search = Search::new(&walk);
        search.run()?;
        Some(search.nest(graph))
    }

    /// Returns the innermost loop that holds a block; for a header, the loop of that header.
    pub(super) fn innermost(&self, block: u32) -> Option<u32> {
        self.innermost[block as usize]
    }

    /// Returns a loop and the loops around it, from the inside outwards.
    pub(super) fn outwards(&self, from: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(from, |cycle| self.cycles[*cycle as usize].parent)
    }

    /// Returns whether all indices are in range and every parent comes before its children.
    pub(super) fn is_sound(&self, blocks: usize) -> bool {
        let cycles = self.cycles.len();
        self.innermost.len() == blocks
            && self.innermost.iter().flatten().all(|cycle| (*cycle as usize) < cycles)
            && self.cycles.iter().enumerate().all(|(index, cycle)| {
                (cycle.header as usize) < blocks
                    && cycle.parent.is_none_or(|parent| (parent as usize) < index)
            })
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.cycles.capacity() * size_of::<Cycle>()
            + self.innermost.capacity() * size_of::<Option<u32>>()
    }
}

/// Blocks in the order of a depth-first search. From here on, numbers are positions in that order.
struct Walk {
    blocks: Vec<u32>,
    /// Last number in the search's subtree below each block.
    last: Vec<u32>,
    /// Sources of the edges into each block: back edges to an ancestor, and other edges.
    back: Vec<Vec<u32>>,
    other: Vec<Vec<u32>>,
}

impl Walk {
    fn of(graph: &Graph) -> Self {
        let count = graph.blocks().len();
        let mut number = vec![NONE; count];
        let mut walk =
            Self { blocks: Vec::with_capacity(count), last: vec![], back: vec![], other: vec![] };
        let mut path: Vec<(u32, usize)> = Vec::new();
        // Unreached code may hold loops of its own.
        let roots = std::iter::once(graph.entry()).chain(0..count as u32);
        for root in roots {
            if number[root as usize] == NONE {
                walk.enter(root, &mut number);
                path.push((root, 0));
            }
            while let Some((block, next)) = path.last_mut() {
                let Some(to) = graph.successors(*block).get(*next) else {
                    walk.last[number[*block as usize] as usize] = walk.blocks.len() as u32 - 1;
                    path.pop();
                    continue;
                };
                *next += 1;
                if number[*to as usize] == NONE {
                    walk.enter(*to, &mut number);
                    path.push((*to, 0));
                }
            }
        }
        for from in 0..count as u32 {
            for to in graph.successors(walk.blocks[from as usize]) {
                let to = number[*to as usize];
                let list =
                    if walk.is_ancestor(to, from) { &mut walk.back } else { &mut walk.other };
                list[to as usize].push(from);
            }
        }
        walk
    }

    fn enter(&mut self, block: u32, number: &mut [u32]) {
        number[block as usize] = self.blocks.len() as u32;
        self.blocks.push(block);
        self.last.push(0);
        self.back.push(Vec::new());
        self.other.push(Vec::new());
    }

    fn is_ancestor(&self, outer: u32, inner: u32) -> bool {
        outer <= inner && inner <= self.last[outer as usize]
    }
}

/// Havlak's search, from the innermost headers outwards.
struct Search<'w> {
    walk: &'w Walk,
    /// Union-find: the bodies of loops found so far, each represented by its header.
    union: Vec<u32>,
    /// Header of the innermost loop around each number, not counting the loop of the number itself.
    around: Vec<u32>,
    is_header: Vec<bool>,
    irreducible: Vec<bool>,
    /// Entries from outside a loop's subtree: they count for the loops around, too.
    entries: Vec<Vec<u32>>,
    steps: usize,
}

impl<'w> Search<'w> {
    fn new(walk: &'w Walk) -> Self {
        let count = walk.blocks.len();
        Self {
            walk,
            union: (0..count as u32).collect(),
            around: vec![NONE; count],
            is_header: vec![false; count],
            irreducible: vec![false; count],
            entries: vec![Vec::new(); count],
            steps: 0,
        }
    }

    fn run(&mut self) -> Option<()> {
        let mut member = vec![NONE; self.walk.blocks.len()];
        for header in (0..self.walk.blocks.len() as u32).rev() {
            let mut body = Vec::new();
            for from in &self.walk.back[header as usize] {
                self.is_header[header as usize] = true;
                let from = self.find(*from);
                if from != header && member[from as usize] != header {
                    member[from as usize] = header;
                    body.push(from);
                }
            }
            let mut next = 0;
            while let Some(inner) = body.get(next).copied() {
                next += 1;
                let added = std::mem::take(&mut self.entries[inner as usize]);
                for from in self.walk.other[inner as usize].iter().copied().chain(added) {
                    self.steps += 1;
                    let from = self.find(from);
                    if !self.walk.is_ancestor(header, from) {
                        self.irreducible[header as usize] = true;
                        self.entries[header as usize].push(from);
                    } else if from != header && member[from as usize] != header {
                        member[from as usize] = header;
                        body.push(from);
                    }
                }
                if self.steps > MAX_STEPS {
                    return None;
                }
            }
            for inner in body {
                self.around[inner as usize] = header;
                self.union[inner as usize] = header;
            }
        }
        Some(())
    }

    fn find(&mut self, of: u32) -> u32 {
        let mut root = of;
        while self.union[root as usize] != root {
            root = self.union[root as usize];
            self.steps += 1;
        }
        let mut each = of;
        while self.union[each as usize] != root {
            each = std::mem::replace(&mut self.union[each as usize], root);
        }
        root
    }

    /// Numbers the loops by nesting depth, and at equal depth by the position of their headers.
    fn nest(&self, graph: &Graph) -> Nest {
        let count = self.walk.blocks.len();
        // Parents have smaller numbers than their children, so depths are known in this order.
        let mut depth = vec![0u32; count];
        for number in 0..count {
            if let Some(outer) = self.around.get(number).filter(|outer| **outer != NONE) {
                depth[number] = depth[*outer as usize] + 1;
            }
        }
        let mut headers: Vec<u32> =
            (0..count as u32).filter(|number| self.is_header[*number as usize]).collect();
        headers.sort_by_key(|number| (depth[*number as usize], self.walk.blocks[*number as usize]));
        let mut id = vec![None; count];
        for (index, header) in headers.iter().enumerate() {
            id[*header as usize] = Some(index as u32);
        }
        let loop_of = |number: u32| if number == NONE { None } else { id[number as usize] };
        let cycles = headers
            .iter()
            .map(|header| Cycle {
                header: self.walk.blocks[*header as usize],
                parent: loop_of(self.around[*header as usize]),
                irreducible: self.irreducible[*header as usize],
            })
            .collect();
        let mut innermost = vec![None; graph.blocks().len()];
        for number in 0..count as u32 {
            let own = loop_of(number).or_else(|| loop_of(self.around[number as usize]));
            innermost[self.walk.blocks[number as usize] as usize] = own;
        }
        Nest { cycles, innermost }
    }
}
