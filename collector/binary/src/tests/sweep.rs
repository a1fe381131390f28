//! Every function of real binaries: the loops found are the natural loops according to petgraph's
//! dominators.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::super::binary::Binary;
use super::super::headers::Headers;
use super::super::{Child, Function, Graph, Loop};
use crate::symbols::{Source, Table};

/// Counts of a sweep over a binary.
#[derive(Debug, Default)]
struct Counts {
    functions: usize,
    loops: usize,
    functions_irreducible: usize,
    incomplete: usize,
    absent: usize,
}

pub(super) fn open(path: &Path) -> Binary {
    let source = Source::open(path).unwrap();
    let table = Arc::new(Table::read(&source, &[]).unwrap());
    let cache = source.cache();
    Binary::new(&Headers::parse(&cache).unwrap(), source.clone(), table, Default::default())
}

/// Returns the blocks of each natural loop by its header, and whether every retreating edge is a
/// back edge.
fn natural_loops(graph: &Graph) -> (BTreeMap<u32, BTreeSet<u32>>, bool) {
    let mut nodes = DiGraph::<(), ()>::new();
    for _ in graph.blocks() {
        nodes.add_node(());
    }
    for from in 0..graph.blocks().len() as u32 {
        for to in graph.successors(from) {
            nodes.add_edge(from.into(), (*to).into(), ());
        }
    }
    let entry = NodeIndex::from(graph.entry());
    let dominators = simple_fast(&nodes, entry);
    let mut loops: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut forward = nodes.clone();
    forward.clear_edges();
    for edge in nodes.edge_references() {
        let (from, to) = (edge.source(), edge.target());
        if !graph.is_reached(from.index() as u32) {
            continue;
        }
        if !dominates(&dominators, to, from) {
            forward.add_edge(from, to, ());
            continue;
        }
        let header = to.index() as u32;
        let body = loops.entry(header).or_insert_with(|| BTreeSet::from([header]));
        let mut work = vec![from.index() as u32];
        while let Some(block) = work.pop() {
            if body.insert(block) {
                work.extend(
                    nodes
                        .neighbors_directed(block.into(), petgraph::Incoming)
                        .map(|n| n.index() as u32),
                );
            }
        }
    }
    // Reducible: without back edges no cycle is left.
    let reducible = !petgraph::algo::is_cyclic_directed(&forward);
    (loops, reducible)
}

fn dominates(dominators: &Dominators<NodeIndex>, a: NodeIndex, b: NodeIndex) -> bool {
    dominators.dominators(b).is_some_and(|mut all| all.any(|each| each == a))
}

fn our_loops(function: &Function) -> BTreeMap<u32, BTreeSet<u32>> {
    let graph = function.graph().unwrap();
    let mut loops: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (index, block) in graph.blocks().iter().enumerate() {
        if !graph.is_reached(index as u32) {
            continue;
        }
        for around in function.loops_around(block.start) {
            let header = graph.block_at(function.loop_at(around).header).unwrap();
            loops.entry(header).or_default().insert(index as u32);
        }
    }
    loops
}

/// Asserts that code that runs later without a back edge has a higher position.
fn positions_grow(function: &Function, natural: &BTreeMap<u32, BTreeSet<u32>>, what: &str) {
    let graph = function.graph().unwrap();
    let position =
        |block: u32| function.position(Child::Code(graph.blocks()[block as usize].start));
    for from in (0..graph.blocks().len() as u32).filter(|block| graph.is_reached(*block)) {
        // Blocks that overlap have one address.
        let is_itself =
            |block: u32| graph.block_at(graph.blocks()[block as usize].start) == Some(block);
        for to in graph.successors(from).iter().filter(|to| is_itself(from) && is_itself(**to)) {
            let is_back = natural.get(to).is_some_and(|body| body.contains(&from));
            let (one, other) = (position(from), position(*to));
            assert!(is_back || one < other, "{what}: {from} to {to}, {one:x?} {other:x?}");
        }
    }
}

/// Recovers every `every`th function of a binary.
fn sweep(path: &Path, every: usize) -> Counts {
    let binary = open(path);
    let mut counts = Counts::default();
    for (range, symbol) in binary.functions().step_by(every) {
        let function = Function::recover(&binary, None, range.start, &range);
        counts.functions += 1;
        let Some(graph) = function.graph() else {
            counts.absent += 1;
            continue;
        };
        counts.loops += function.loops().len();
        counts.incomplete += usize::from(!function.is_complete());
        // Loops in unreached code have no dominators.
        let is_reached = |each: &Loop| graph.is_reached(graph.block_at(each.header).unwrap());
        let reached: Vec<&Loop> = function.loops().iter().filter(|each| is_reached(each)).collect();
        let irreducible = reached.iter().filter(|each| each.is_irreducible).count();
        let (natural, is_reducible) = natural_loops(graph);
        let what = format!("{}: {symbol} at {:#x}", path.display(), range.start);
        if is_reducible {
            let ours = our_loops(&function);
            assert_eq!(ours, natural, "{what}");
            assert_eq!(ours.len(), reached.len(), "{what}");
            assert_eq!(irreducible, 0, "{what}");
            positions_grow(&function, &natural, &what);
        } else {
            counts.functions_irreducible += 1;
            assert!(irreducible > 0, "{what}");
        }
    }
    counts
}

pub(super) fn library(name: &str) -> PathBuf {
    let folders = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
    paths.find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is not installed"))
}

#[test]
fn loops_are_the_natural_loops_that_petgraph_finds() {
    for (path, every, at_least) in [
        (library("libc.so.6"), 2, 300),
        (library("libgfortran.so.5"), 4, 500),
        (library("libmpi.so.40"), 4, 200),
        (std::env::current_exe().unwrap(), 16, 50),
    ] {
        let counts = sweep(&path, every);
        println!("{} {counts:?}", path.display());
        assert!(counts.loops >= at_least, "{}: {counts:?}", path.display());
        // Real irreducible loops are rare, and so are jumps that cannot be resolved.
        assert!(counts.functions_irreducible * 4 < counts.functions, "{counts:?}");
        assert!(counts.incomplete * 100 <= counts.functions, "{counts:?}");
        assert_eq!(counts.absent, 0);
    }
}
