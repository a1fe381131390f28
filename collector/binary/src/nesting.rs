//! Nesting of a function's loops and the inlined calls around an address.

use std::collections::HashMap;

use super::function::{Function, Inlined, Lines, Location, Loop, LoopId, LoopSource};
use super::graph::Block;

/// Maximum number of blocks of a loop at which inlined calls are compared, apart from its ends.
const MAX_SAMPLES: usize = 16;

/// Maximum number of blocks of all loops of a function, each block counted in each loop around it.
/// The loops of a function with more have no lines.
const MAX_MEMBERS: usize = 1 << 22;

/// One step from a function inwards to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into a loop of the function.
    Loop(LoopId),
    /// Into a call that was inlined.
    Inlined(Inlined),
}

/// Returns the steps from the function inwards to an address. A loop stands inside the inlined
/// calls around it and outside the inlined calls that its body makes.
pub(super) fn steps(function: &Function, address: u64, lines: &Lines) -> Vec<Step> {
    let mut loops: Vec<LoopId> = function.loops_around(address).collect();
    loops.reverse();
    let mut steps = Vec::with_capacity(loops.len() + lines.inlined.len());
    let mut inside = 0;
    for id in loops {
        // The compiler may move code out of an inlined call into its loop: common calls only.
        let around = function.source_of(id).map_or(&[][..], |source| &source.lines.inlined);
        let depth = common(around, &lines.inlined);
        while inside < depth {
            steps.push(Step::Inlined(lines.inlined[inside].clone()));
            inside += 1;
        }
        steps.push(Step::Loop(id));
    }
    steps.extend(lines.inlined[inside..].iter().cloned().map(Step::Inlined));
    steps
}

/// Returns the number of inlined calls common to two chains, counted from the outermost.
fn common(a: &[Inlined], b: &[Inlined]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the source position of each loop of a function, and the loop that each is a copy of.
pub(super) fn locate_loops(
    function: &Function,
    mut lines: impl FnMut(u64) -> Lines,
) -> Vec<LoopSource> {
    let Ok(body) = &function.body else { return Vec::new() };
    let blocks = body.graph.blocks();
    let count = body.loops.len();
    let mut sources: Vec<LoopSource> = (0..count as u32)
        .map(|index| LoopSource { lines: Lines::default(), original: LoopId(index) })
        .collect();
    let innermost = (0..blocks.len() as u32).filter_map(|block| body.nest.innermost(block));
    let depth = |around: u32| body.loops[around as usize].depth as usize + 1;
    if innermost.map(depth).sum::<usize>() > MAX_MEMBERS {
        return sources;
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
    for block in 0..blocks.len() as u32 {
        for around in body.nest.outwards(body.nest.innermost(block)) {
            members[around as usize].push(block);
        }
    }
    let begin = lines(function.entry);
    for (index, members) in members.iter().enumerate() {
        let header = body.nest.cycles[index].header;
        // A loop's line is taken from its header, its back edges and its exits: compilers move the
        // test that the line stands for to any of them.
        let is_inside = |block: u32| members.binary_search(&block).is_ok();
        let turns = members.iter().filter(|block| {
            let next = body.graph.successors(**block);
            next.contains(&header) || next.iter().any(|next| !is_inside(*next))
        });
        let ends: Vec<u64> = std::iter::once(blocks[header as usize].start)
            .chain(turns.flat_map(|block| tail(&blocks[*block as usize])))
            .take(4 * MAX_SAMPLES)
            .collect();
        let step = members.len().div_ceil(MAX_SAMPLES).max(1);
        let others = members.iter().step_by(step).flat_map(|block| {
            let block = &blocks[*block as usize];
            [block.start, block.start.midpoint(block.end), block.last]
        });
        let found: Vec<Lines> = ends.iter().map(|address| lines(*address)).collect();
        let Some(first) = found.first() else { continue };
        let mut depth = first.inlined.len();
        for other in found[1..].iter().cloned().chain(others.map(&mut lines)) {
            // Code without debug information does not count.
            if other.location.is_some() || !other.inlined.is_empty() {
                depth = depth.min(common(&first.inlined, &other.inlined));
            }
        }
        let inlined = first.inlined[..depth].to_vec();
        // Code that the compiler has moved into the header may come from the function's begin.
        let of_header = at_depth(first, depth).filter(|_| depth == 0);
        let is_moved = of_header.is_some() && of_header == at_depth(&begin, 0);
        let located: Vec<&Location> =
            found.iter().filter_map(|lines| at_depth(lines, depth)).collect();
        let located = match is_moved && located.len() > 1 {
            true => &located[1..],
            false => &located[..],
        };
        let location = located.first().map(|first| {
            let others = located.iter().filter(|other| other.file == first.file);
            others.fold(*first, |a, b| a.min(b)).clone()
        });
        sources[index].lines = Lines { inlined, location };
    }
    find_copies(&body.loops, &mut sources);
    sources
}

/// Sets `original` of each loop to its first copy. Outer loops come before inner ones.
fn find_copies(loops: &[Loop], sources: &mut [LoopSource]) {
    let mut first: HashMap<(Option<LoopId>, Lines), LoopId> = HashMap::new();
    for index in 0..sources.len() {
        let this = &sources[index];
        if this.lines.location.is_none() {
            continue;
        }
        let parent = loops[index].parent;
        let around = parent.map(|parent| sources[parent.0 as usize].original);
        let key = (around, this.lines.clone());
        sources[index].original = *first.entry(key).or_insert(LoopId(index as u32));
    }
}

/// Returns addresses within the last few instructions of a block.
fn tail(block: &Block) -> impl Iterator<Item = u64> + use<> {
    let Block { start, last, .. } = *block;
    [0, 1, 4, 7, 10]
        .into_iter()
        .filter_map(move |back| last.checked_sub(back))
        .filter(move |address| *address >= start)
}

/// Returns the line of an address in the function `depth` inlined calls inwards.
fn at_depth(lines: &Lines, depth: usize) -> Option<&Location> {
    match lines.inlined.get(depth) {
        Some(inner) => inner.call.as_ref(),
        None => lines.location.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::function::{Body, loops};
    use super::super::graph::{Found, Graph};
    use super::super::natural_loops::Nest;
    use super::*;

    /// Returns a function of loops within each other, and nothing else: their headers, then the
    /// jumps back.
    fn nested(depth: u64) -> Function {
        let found = (0..2 * depth).map(|start| {
            let back = (start >= depth).then(|| 2 * depth - 1 - start);
            let block = Block { start, end: start + 1, last: start };
            Found { block, successors: back.into_iter().chain([start + 1]).collect() }
        });
        let graph = Graph::new(found.collect(), 0).unwrap();
        let nest = Nest::of(&graph).unwrap();
        let loops = loops(&graph, &nest);
        let body = Body { graph, nest, loops, calls: Vec::new(), is_complete: true };
        Function::new(None, 0, Vec::new(), Ok(body))
    }

    #[test]
    fn loops_nested_without_end_have_no_lines() {
        for (depth, has_lines) in [(20, true), (2050, false)] {
            let mut lookups = 0;
            let sources = locate_loops(&nested(depth), |_| {
                lookups += 1;
                Lines::default()
            });
            assert_eq!((sources.len(), lookups > 0), (depth as usize, has_lines));
        }
    }
}
