//! Properties that hold for any bytes as code and as a module's file: the search for structure ends
//! and does not panic, and its results are consistent. The fuzz targets and the collector's own
//! tests (`binary/src/tests/corpus.rs`) share this file.

use std::ops::Range;
use std::path::Path;

use super::structure::{
    Address, Child, Code, Extent, Function, LandingPad, LoopId, Options, Step, Structures,
};

/// Number of bytes that encode the module's choices about its code.
const CHOICES: usize = 4;

/// Address of the code.
const BASE: u64 = 0x1000;

/// A module made of bytes: the first three quarters are a function, the rest is a part split off
/// from it.
struct Bytes<'b> {
    choices: &'b [u8],
    code: &'b [u8],
}

impl Bytes<'_> {
    fn function(&self) -> Range<u64> {
        BASE..BASE + (self.code.len() as u64 * 3).div_ceil(4)
    }

    fn part(&self) -> Range<u64> {
        self.function().end..BASE + self.code.len() as u64
    }
}

impl Code for Bytes<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let bytes = address
            .checked_sub(BASE)
            .and_then(|from| self.code.get(from as usize..)?.get(..into.len()));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn extent(&self, address: u64) -> Option<Extent> {
        [(self.function(), false), (self.part(), true)]
            .into_iter()
            .find(|(range, _)| range.contains(&address))
            .map(|(range, is_part)| Extent { range, is_part })
    }

    fn returns(&self, function: u64) -> bool {
        function % 8 != u64::from(self.choices[1])
    }

    fn slot_returns(&self, slot: u64) -> bool {
        slot % 8 != u64::from(self.choices[1])
    }

    fn landing_pads(&self, within: &Range<u64>) -> Vec<LandingPad> {
        let start = within.start + u64::from(self.choices[2]);
        let pad = within.start + u64::from(self.choices[3]);
        vec![LandingPad { calls: start..start + 16, pad }]
    }
}

/// Searches bytes for the structure of a function.
pub fn code(bytes: &[u8]) {
    let Some((choices, code)) = bytes.split_at_checked(CHOICES) else { return };
    if code.is_empty() {
        return;
    }
    let bytes = Bytes { choices, code };
    let range = bytes.function();
    let entry = range.start + u64::from(choices[0]) % (range.end - range.start);
    check(&Function::recover(&bytes, None, entry, &range));
}

/// Asserts that the properties of a function are consistent.
fn check(function: &Function) {
    let Some(graph) = function.graph() else {
        assert!(function.absent().is_some() && function.loops().is_empty());
        return;
    };
    let blocks = graph.blocks();
    assert_eq!(blocks[graph.entry() as usize].start, function.entry);
    assert!(blocks.is_sorted_by(|a, b| a.start < b.start));
    assert!(blocks.iter().all(|block| block.start <= block.last && block.last < block.end));
    assert!(function.calls().is_sorted_by(|a, b| a < b));
    for (index, each) in function.loops().iter().enumerate() {
        let id = LoopId(index as u32);
        assert!(each.parent.is_none_or(|parent| parent < id));
        let above = each.parent.map_or(0, |parent| function.loop_at(parent).depth + 1);
        assert_eq!(each.depth, above);
        let around: Vec<LoopId> = function.loops_around(each.header).collect();
        assert!(around.contains(&id), "a header lies in its loop");
        assert_eq!(function.common_loop(each.header, each.header), around.first().copied());
    }
    children(function);
}

/// Asserts that successors are not predecessors: without back edges there is no cycle.
fn children(function: &Function) {
    let starts = function.graph().into_iter().flat_map(|graph| graph.blocks());
    let addresses: Vec<u64> = starts.map(|block| block.start).step_by(3).take(24).collect();
    for parent in [None].into_iter().chain((0..4).map(|id| Some(LoopId(id)))) {
        if parent.is_some_and(|id| id.0 as usize >= function.loops().len()) {
            break;
        }
        let children: Vec<Child> =
            addresses.iter().filter_map(|address| function.child(parent, *address)).collect();
        for a in &children {
            assert_ne!(function.can_follow(parent, *a, *a), Some(true));
            for b in &children {
                let there = function.can_follow(parent, *a, *b);
                let back = function.can_follow(parent, *b, *a);
                assert!(
                    a == b || there != Some(true) || back != Some(true),
                    "{a:x?} and {b:x?} follow each other in {parent:?}"
                );
                assert_eq!(there.is_some(), back.is_some());
            }
        }
    }
}

/// Reads bytes as a module's file, which is written to `path`.
pub fn module(bytes: &[u8], path: &Path) {
    std::fs::write(path, bytes).expect("the folder can be written to");
    let options = Options { debug_folders: Vec::new(), cache: None };
    let mut structures = Structures::new(options);
    let module = structures.module(path.to_owned(), Vec::new());
    let entry = bytes
        .get(24..32)
        .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    let spread = (0..24).map(|step| entry.wrapping_add(step * 37));
    for address in spread.chain([0, 1, 0x1000, 0x1040, 0x2000, 0x401000, u64::MAX]) {
        let place = structures.place(module, Address::Leaf(address));
        let again = structures.place(module, Address::Return(address.wrapping_add(1)));
        assert_eq!(place.steps, again.steps);
        let Ok(function) = place.function else { continue };
        check(&function);
        let loops: Vec<LoopId> = place
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Loop(id) => Some(*id),
                Step::Inlined(_) => None,
            })
            .rev()
            .collect();
        assert_eq!(loops, function.loops_around(address).collect::<Vec<_>>());
    }
    structures.release();
}
