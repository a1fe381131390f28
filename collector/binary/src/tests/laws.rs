//! Properties of loops in any graph: an outermost loop is a strongly connected component, and
//! within a loop the same holds without the edges back to its header.

use std::collections::BTreeSet;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use proptest::prelude::*;

use super::super::code_order::{Node, Reach, node_of};
use super::super::graph::{Block, Found, Graph};
use super::super::natural_loops::Nest;

/// Returns a graph of blocks of one byte each.
fn graph(count: usize, edges: &[(usize, usize)]) -> Graph {
    let found = (0..count).map(|block| {
        let start = block as u64;
        let leaves = edges.iter().filter(|(from, _)| from % count == block);
        Found {
            block: Block { start, end: start + 1, last: start },
            successors: leaves.map(|(_, to)| (to % count) as u64).collect(),
        }
    });
    Graph::new(found.collect(), 0).unwrap()
}

/// Returns the blocks of all loops, inner ones included, among `within`, without edges to `header`.
fn expected(
    graph: &Graph,
    within: &BTreeSet<u32>,
    header: Option<u32>,
    headers: &BTreeSet<u32>,
    found: &mut BTreeSet<BTreeSet<u32>>,
) {
    let mut nodes = DiGraph::<(), ()>::new();
    for _ in graph.blocks() {
        nodes.add_node(());
    }
    for from in within {
        for to in graph.successors(*from) {
            if within.contains(to) && Some(*to) != header {
                nodes.add_edge((*from).into(), (*to).into(), ());
            }
        }
    }
    for component in tarjan_scc(&nodes) {
        let blocks: BTreeSet<u32> = component.iter().map(|node| node.index() as u32).collect();
        let is_loop =
            blocks.len() > 1 || component.iter().any(|node| nodes.contains_edge(*node, *node));
        if !is_loop {
            continue;
        }
        // Which block is the header depends on the order of the search.
        assert!(blocks.iter().any(|block| headers.contains(block)), "{blocks:?} has no header");
        found.insert(blocks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn loops_are_what_is_strongly_connected(
        count in 1usize..14,
        edges in proptest::collection::vec((0usize..14, 0usize..14), 0..30),
    ) {
        let graph = graph(count, &edges);
        let nest = Nest::of(&graph).unwrap();
        let headers: BTreeSet<u32> = nest.cycles.iter().map(|cycle| cycle.header).collect();
        prop_assert_eq!(headers.len(), nest.cycles.len());
        let members = |cycle: u32| -> BTreeSet<u32> {
            (0..count as u32)
                .filter(|block| nest.outwards(nest.innermost(*block)).any(|each| each == cycle))
                .collect()
        };
        let children = |parent: Option<u32>| -> BTreeSet<BTreeSet<u32>> {
            (0..nest.cycles.len() as u32)
                .filter(|cycle| nest.cycles[*cycle as usize].parent == parent)
                .map(members)
                .collect()
        };
        let mut outermost = BTreeSet::new();
        let all: BTreeSet<u32> = (0..count as u32).collect();
        expected(&graph, &all, None, &headers, &mut outermost);
        prop_assert_eq!(children(None), outermost);
        for cycle in 0..nest.cycles.len() as u32 {
            let mut inner = BTreeSet::new();
            let header = nest.cycles[cycle as usize].header;
            prop_assert!(members(cycle).contains(&header));
            expected(&graph, &members(cycle), Some(header), &headers, &mut inner);
            prop_assert_eq!(children(Some(cycle)), inner);
        }
    }

    #[test]
    fn successors_are_reachable_without_back_edges(
        count in 1usize..12,
        edges in proptest::collection::vec((0usize..12, 0usize..12), 0..24),
    ) {
        let graph = graph(count, &edges);
        let nest = Nest::of(&graph).unwrap();
        let mut reach = Reach::default();
        let parents = (0..nest.cycles.len() as u32).map(Some).chain([None]);
        for parent in parents {
            let header = parent.map(|parent| nest.cycles[parent as usize].header);
            // Each node of the parent, by its blocks; edges among them, except those to the header.
            let node = |block: u32| node_of(&nest, parent, block);
            let mut nodes = DiGraph::<Option<Node>, ()>::new();
            let mut place = std::collections::HashMap::new();
            for block in 0..count as u32 {
                if let Some(found) = node(block) {
                    place.entry(found).or_insert_with(|| nodes.add_node(Some(found)));
                }
            }
            for from in 0..count as u32 {
                for to in graph.successors(from) {
                    if let (Some(a), Some(b)) = (node(from), node(*to))
                        && a != b
                        && Some(*to) != header
                    {
                        nodes.add_edge(place[&a], place[&b], ());
                    }
                }
            }
            prop_assert!(!petgraph::algo::is_cyclic_directed(&nodes));
            for (a, from) in &place {
                for (b, to) in &place {
                    let walks = a != b
                        && petgraph::algo::has_path_connecting(&nodes, *from, *to, None);
                    prop_assert_eq!(reach.reaches(&graph, &nest, parent, *a, *b), walks);
                }
            }
        }
    }
}
