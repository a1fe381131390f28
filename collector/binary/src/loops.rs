//! Loops: which blocks form them, and how they nest.
//!
//! P. Havlak, *Nesting of Reducible and Irreducible Loops*, TOPLAS 19(4), 1997, after R. Tarjan's
//! interval finding. In reducible code these are the natural loops, those of one header joined; what a
//! jump enters past its header is a loop, too, and called irreducible.

use serde::{Deserialize, Serialize};

use super::graph::Graph;

/// Most steps that the search for loops takes; jumps into many nested loops make it quadratic.
const MAX_STEPS: usize = 20_000_000;

const NONE: u32 = u32::MAX;

/// A loop, by blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cycle {
    /// The block that its back edges lead to.
    pub(super) header: u32,
    /// The loop around it.
    pub(super) parent: Option<u32>,
    /// Whether it can be entered other than at its header.
    pub(super) irreducible: bool,
}

/// The loops of a function: outer ones before those inside them, else by header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nest {
    pub(super) cycles: Vec<Cycle>,
    /// The innermost loop of each block.
    innermost: Vec<Option<u32>>,
}

impl Nest {
    /// Finds the loops of a graph; `None` if that takes too long.
    pub(super) fn of(graph: &Graph) -> Option<Self> {
        let walk = Walk::of(graph);
        let mut search = Search::new(&walk);
        search.run()?;
        Some(search.nest(graph))
    }

    /// The innermost loop that holds a block; of a header, its own.
    pub(super) fn innermost(&self, block: u32) -> Option<u32> {
        self.innermost[block as usize]
    }

    /// A loop and those around it, outwards.
    pub(super) fn outwards(&self, from: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(from, |cycle| self.cycles[*cycle as usize].parent)
    }

    /// Whether all indices lie within and every parent comes before its children.
    pub(super) fn is_sound(&self, blocks: usize) -> bool {
        let cycles = self.cycles.len();
        self.innermost.len() == blocks
            && self.innermost.iter().flatten().all(|cycle| (*cycle as usize) < cycles)
            && self.cycles.iter().enumerate().all(|(index, cycle)| {
                (cycle.header as usize) < blocks
                    && cycle.parent.is_none_or(|parent| (parent as usize) < index)
            })
    }

    /// Memory in use, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.cycles.capacity() * size_of::<Cycle>()
            + self.innermost.capacity() * size_of::<Option<u32>>()
    }
}

/// Blocks in the order in which a depth-first search comes to them. Numbers from here on are that order.
struct Walk {
    blocks: Vec<u32>,
    /// The last number in the search's subtree below each.
    last: Vec<u32>,
    /// Where edges come from that go back to an ancestor, and others.
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
        // Code that is not reached may hold loops of its own.
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
    /// Union-find: bodies of loops that were found, each standing for itself by its header.
    union: Vec<u32>,
    /// The header of the innermost loop around each number, its own not counted.
    around: Vec<u32>,
    is_header: Vec<bool>,
    irreducible: Vec<bool>,
    /// Entries from outside a loop's subtree, found on the way: they count for the loops around, too.
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

    /// Numbers the loops by their nesting and their headers' places.
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
