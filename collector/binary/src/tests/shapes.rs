//! Loops of programs with known loops, compiled in every way.

use std::collections::BTreeSet;

use super::super::{Function, LoopId};
use super::compiled::{Folder, Subject, compile, line_of};

/// Returns the loops of a function, each as the lines from the outermost loop to it; copies count
/// once.
fn nests(function: &Function) -> BTreeSet<Vec<u32>> {
    let location = |id: LoopId| function.source_of(id).unwrap().lines.location.as_ref();
    let line = |id: LoopId| location(id).map_or(0, |location| location.line);
    (0..function.loops().len() as u32)
        .map(|index| {
            let mut chain: Vec<u32> =
                std::iter::successors(Some(LoopId(index)), |id| function.loop_at(*id).parent)
                    .map(line)
                    .collect();
            chain.reverse();
            // Jumps that skip a test make two nested cycles of one loop in the source.
            chain.dedup();
            chain
        })
        .collect()
}

fn expected(subject: &str, nests: &[&[&str]]) -> BTreeSet<Vec<u32>> {
    let line = |name: &&str| line_of(subject, &format!("loop {name}"));
    nests.iter().map(|nest| nest.iter().map(line).collect()).collect()
}

const C_NESTS: [(&str, &[&[&str]]); 11] = [
    ("nested", &[&["nested.outer"], &["nested.outer", "nested.inner"]]),
    (
        "triangular",
        &[
            &["triangular.outer"],
            &["triangular.outer", "triangular.middle"],
            &["triangular.outer", "triangular.middle", "triangular.inner"],
        ],
    ),
    ("skipping", &[&["skipping"]]),
    ("leaving", &[&["leaving"]]),
    ("conditional", &[&["conditional"]]),
    ("switching", &[&["switching"]]),
    ("inlining", &[&["inlining"], &["inlining", "each"]]),
    ("vectorised", &[&["vectorised"], &["summed"]]),
    ("straight", &[]),
    ("main", &[]),
    ("work", &[]),
];

/// Asserts that the loops found are those of the source. Compilers that vectorise make more loops
/// and drop some lines; the outermost loops remain, and the nest is as deep.
fn agree(found: &BTreeSet<Vec<u32>>, expected: &BTreeSet<Vec<u32>>, flags: &[&str], what: &str) {
    if !flags.iter().any(|flag| ["-O3", "-Ofast"].contains(flag)) {
        return assert_eq!(found, expected, "{what}");
    }
    let outermost = |nests: &BTreeSet<Vec<u32>>| -> BTreeSet<u32> {
        nests.iter().map(|nest| nest[0]).collect()
    };
    let depth = |nests: &BTreeSet<Vec<u32>>| nests.iter().map(Vec::len).max();
    assert_eq!(outermost(found), outermost(expected), "{what}");
    assert!(depth(found) >= depth(expected), "{what}");
}

/// Returns every way in which the tests compile C: compiler, optimisation, position-independent or
/// not.
pub(super) fn ways() -> Vec<(&'static str, Vec<&'static str>)> {
    let optimised = ["-O0", "-O1", "-O2", "-O3 -march=native"];
    let linked = ["-fno-pic -no-pie", "-fPIE -pie"];
    let flags = optimised.iter().flat_map(|optimised| {
        linked.iter().map(|linked| {
            ["-g"].into_iter().chain(optimised.split(' ')).chain(linked.split(' ')).collect()
        })
    });
    flags.flat_map(|flags: Vec<_>| [("gcc", flags.clone()), ("clang", flags)]).collect()
}

#[test]
fn loops_of_c_are_those_of_its_source() {
    for (compiler, flags) in ways() {
        let folder = Folder::new();
        let path = compile(&folder, compiler, &flags, &["loops.c", "main.c"]);
        let mut subject = Subject::new(&path);
        for (name, loops) in C_NESTS {
            let function = subject.function(name);
            let what = format!("{compiler} {flags:?} {name}: {:?}", function.loops());
            assert!(function.is_complete(), "{what}");
            // All cases of a switch must be reached, too; otherwise they would be found as gaps.
            let graph = function.graph().unwrap();
            let count = graph.blocks().len() as u32;
            assert!((0..count).all(|block| graph.is_reached(block)), "{what}");
            agree(&nests(&function), &expected("loops.c", loops), &flags, &what);
            assert!(function.loops().iter().all(|each| !each.is_irreducible), "{what}");
        }
        let function = subject.function("irreducible");
        assert!(function.loops().iter().all(|each| each.is_irreducible), "{flags:?}");
        assert_eq!(nests(&function).len(), 1, "{flags:?}: {:?}", function.loops());
        let function = subject.function("recursive");
        assert!(nests(&function).contains(&vec![line_of("loops.c", "loop recursive")]));
    }
}

#[test]
fn loops_of_fortran_are_those_of_its_source() {
    for optimised in ["-O0", "-O2", "-O3", "-Ofast"] {
        let folder = Folder::new();
        let flags = ["-g", optimised, "-march=native", "-shared", "-fPIC"];
        let path = compile(&folder, "gfortran", &flags, &["nests.f90"]);
        let mut subject = Subject::new(&path);
        for (name, loops) in [
            (
                "multiply",
                &[
                    &["multiply.outer"][..],
                    &["multiply.outer", "multiply.middle"],
                    &["multiply.outer", "multiply.middle", "multiply.inner"],
                ][..],
            ),
            ("relax", &[&["relax.outer"], &["relax.outer", "relax.inner"]]),
            ("first", &[&["first"]]),
        ] {
            let function = subject.function(&format!("__nests_MOD_{name}"));
            assert_eq!(function.name.as_deref(), Some(&*format!("nests::{name}")));
            let what = format!("{optimised} {name}: {:?}", function.loops());
            agree(&nests(&function), &expected("nests.f90", loops), &flags, &what);
        }
    }
}

#[test]
fn loops_of_rust_lie_in_the_function_and_not_in_its_iterators() {
    for optimised in ["0", "1", "3"] {
        let folder = Folder::new();
        let optimise = format!("opt-level={optimised}");
        let flags = ["--edition=2024", "-Cdebuginfo=2", "-C", &optimise];
        let path = compile(&folder, "rustc", &flags, &["iterators.rs"]);
        let mut subject = Subject::new(&path);
        for (name, loops) in [
            ("pairs", &[&["pairs.outer"][..], &["pairs.outer", "pairs.inner"]][..]),
            ("checked", &[&["checked"]]),
        ] {
            let function = subject.function(name);
            let what = format!("{optimised} {name}: {:?}", function.loops());
            assert_eq!(nests(&function), expected("iterators.rs", loops), "{what}");
            let sources = function.sources().unwrap();
            assert!(sources.iter().all(|each| each.lines.inlined.is_empty()), "{what}");
        }
    }
}
