//! Which code can follow which without a back edge, in programs with a known answer.

use super::super::{Address, Child, Function, Step};
use super::compiled::{Folder, Subject, compile, line_of, run};
use super::shapes::ways;

use crate::symbols::{Source, Table};

/// Returns the only call of a function on the line with a comment.
fn call(subject: &mut Subject, function: &Function, file: &str, comment: &str) -> u64 {
    let calls = subject.calls_on(function, line_of(file, &format!("call {comment}")));
    assert_eq!(calls.len(), 1, "{comment}: {calls:x?}");
    calls[0]
}

#[test]
fn children_of_a_loop_follow_each_other_as_in_the_source() {
    for (compiler, flags) in ways() {
        if flags.contains(&"-O3") {
            continue; // makes several calls of one
        }
        let folder = Folder::new();
        let path = compile(&folder, compiler, &flags, &["loops.c", "main.c"]);
        let mut subject = Subject::new(&path);

        let function = subject.function("nested");
        let calls = ["first", "second", "third", "fourth"]
            .map(|name| call(&mut subject, &function, "loops.c", &format!("nested.{name}")));
        let outer = function.innermost_loop(calls[0]);
        let inner = function.innermost_loop(calls[1]);
        assert!(outer.is_some() && inner.is_some() && outer != inner);
        assert_eq!(function.common_loop(calls[1], calls[2]), outer);
        assert_eq!(function.common_loop(calls[1], calls[3]), None);
        let order = [
            Child::Code(calls[0]),
            function.child(outer, calls[1]).unwrap(),
            Child::Code(calls[2]),
        ];
        assert_eq!(order[1], Child::Loop(inner.unwrap()));
        for (a, first) in order.iter().enumerate() {
            for (b, second) in order.iter().enumerate() {
                let what = format!("{compiler} {flags:?}: {first:x?} then {second:x?}");
                assert_eq!(function.can_follow(outer, *first, *second), Some(a < b), "{what}");
            }
        }
        let (all, last) = (function.child(None, calls[0]).unwrap(), Child::Code(calls[3]));
        assert_eq!(all, Child::Loop(outer.unwrap()));
        assert_eq!(function.can_follow(None, all, last), Some(true));
        assert_eq!(function.can_follow(None, last, all), Some(false));
        // A child of an inner loop has no answer.
        assert_eq!(function.can_follow(None, order[0], last), None);
        assert_eq!(function.can_follow(outer, Child::Code(calls[1]), order[2]), None);

        let function = subject.function("skipping");
        let [first, second] = ["first", "second"].map(|name| {
            Child::Code(call(&mut subject, &function, "loops.c", &format!("skipping.{name}")))
        });
        let around = Some(super::super::LoopId(0));
        assert_eq!(function.can_follow(around, first, second), Some(true));
        assert_eq!(function.can_follow(around, second, first), Some(false));
    }
}

#[test]
fn cases_of_a_switch_do_not_follow_each_other_unless_they_fall_through() {
    for compiler in ["gcc", "clang"] {
        let folder = Folder::new();
        let path = compile(&folder, compiler, &["-g", "-O0"], &["loops.c", "main.c"]);
        let mut subject = Subject::new(&path);
        let function = subject.function("switching");
        let [zero, one, two, nine, after] = ["zero", "one", "two", "nine", "after"].map(|name| {
            Child::Code(call(&mut subject, &function, "loops.c", &format!("switching.{name}")))
        });
        let around = Some(super::super::LoopId(0));
        for (a, b, follows) in [
            (zero, one, false),
            (one, two, true),
            (two, one, false),
            (two, nine, false),
            (nine, zero, false),
            (zero, after, true),
            (nine, after, true),
            (after, zero, false),
        ] {
            assert_eq!(function.can_follow(around, a, b), Some(follows), "{a:x?} then {b:x?}");
        }
    }
}

#[test]
fn a_split_off_handler_in_a_loop_is_in_the_loop() {
    for compiler in ["g++", "clang++"] {
        for optimised in ["-O0", "-O2"] {
            let folder = Folder::new();
            let flags = ["-g", optimised, "-shared", "-fPIC"];
            let path = compile(&folder, compiler, &flags, &["inlined.cpp"]);
            let mut subject = Subject::new(&path);
            let function = subject.function("_Z7carefuli");
            assert_eq!(function.name.as_deref(), Some("careful"));
            let caught = call(&mut subject, &function, "inlined.cpp", "caught");
            let inner = function.innermost_loop(caught).unwrap();
            let around = function.loop_at(inner);
            let source = function.source_of(inner).unwrap();
            let line = source.lines.location.as_ref().unwrap().line;
            assert_eq!(line, line_of("inlined.cpp", "loop careful"), "{compiler} {optimised}");
            assert!(!around.is_irreducible);
            if (compiler, optimised) == ("g++", "-O2") {
                assert!(function.parts.len() > 1, "gcc splits handlers off");
                let cold = function.parts.iter().find(|part| !part.contains(&function.entry));
                // A split-off part leads to its function also when looked up first.
                let mut again = Subject::new(&path);
                let at = Address::Leaf(cold.unwrap().start);
                let found = again.structures.function(again.module, at).unwrap();
                assert_eq!(found.entry, function.entry);
                let parts =
                    again.structures.functions_named(again.module, &mut |it| it == "careful");
                assert_eq!(parts.len(), function.parts.len());
                assert!(parts.iter().all(|part| part.entry == function.entry));
            }
        }
    }
}

#[test]
fn without_symbols_frames_identify_split_off_parts() {
    let folder = Folder::new();
    let path = compile(&folder, "g++", &["-O2", "-shared", "-fPIC"], &["inlined.cpp"]);
    let stripped = folder.0.join("stripped");
    run(std::process::Command::new("strip").arg("-o").arg(&stripped).arg(&path));
    let (mut with, mut without) = (Subject::new(&path), Subject::new(&stripped));
    let whole = with.function("_Z7carefuli");
    assert!(whole.parts.len() > 1);
    for part in &whole.parts {
        let at = Address::Leaf(part.start);
        let found = without.structures.function(without.module, at).unwrap();
        assert_eq!(found.entry, whole.entry, "{part:x?}");
        assert_eq!(found.parts, whole.parts);
        assert_eq!(found.loops(), whole.loops());
        assert_eq!(found.name.as_deref(), Some("careful"), "it is exported");
    }
}

#[test]
fn an_address_without_symbol_has_no_name() {
    let folder = Folder::new();
    let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
    let path = compile(&folder, "gcc", &flags, &["loops.c"]);
    let range = Subject::new(&path).range("nested");
    run(std::process::Command::new("strip").arg(&path));
    let mut subject = Subject::new(&path);
    let at = Address::Return(range.end - 1);
    let found = subject.structures.function(subject.module, at).unwrap();
    assert_eq!((found.name.as_deref(), found.entry), (None, range.start));
    assert_eq!(found.parts, [range]);
    assert_eq!(found.loops().len(), 2);
    let outside = subject.structures.place(subject.module, Address::Leaf(1));
    assert_eq!(outside.function.err(), Some(super::super::Absent::Function));
    let missing = subject.structures.module("/nonexistent/lib.so".into(), Vec::new());
    let outside = subject.structures.place(missing, Address::Leaf(1));
    assert_eq!(outside.function.err(), Some(super::super::Absent::Module));
    let other = subject.structures.module(path, vec![0xaa; 20]);
    let function = subject.structures.function(other, at);
    assert_eq!(function.err(), Some(super::super::Absent::Module), "another build");
}

#[test]
fn the_function_main_of_a_stripped_program_has_its_name() {
    for kind in ["-pie", "-no-pie"] {
        let folder = Folder::new();
        let path = compile(&folder, "gcc", &["-O2", kind], &["main.c"]);
        let range = Subject::new(&path).range("main");
        run(std::process::Command::new("strip").arg(&path));
        let mut subject = Subject::new(&path);
        assert_eq!(subject.range("main"), range, "{kind}");
        let at = Address::Return(range.end);
        let found = subject.structures.function(subject.module, at).unwrap();
        assert_eq!((found.name.as_deref(), found.entry), (Some("main"), range.start), "{kind}");
        let behind = subject.structures.function(subject.module, Address::Leaf(range.end));
        assert_ne!(behind.ok().and_then(|it| it.name.clone()).as_deref(), Some("main"), "{kind}");
    }
}

#[test]
fn the_kernels_code_has_structure_without_a_file() {
    let mut structures = super::super::Structures::default();
    let module = structures.module("[vdso]".into(), Vec::new());
    let table = Table::read(&Source::open(std::path::Path::new("[vdso]")).unwrap(), &[]).unwrap();
    let (range, _) =
        table.named_functions().find(|(_, name)| name.ends_with("clock_gettime")).unwrap();
    let found = structures.function(module, Address::Leaf(range.start)).unwrap();
    assert!(found.graph().unwrap().blocks().len() > 3);
    assert!(found.is_complete());
}

#[test]
fn loops_and_inlined_calls_stand_within_each_other_as_in_the_source() {
    for optimised in ["-O1", "-O3"] {
        let folder = Folder::new();
        let flags = ["-g", optimised, "-shared", "-fPIC"];
        let path = compile(&folder, "g++", &flags, &["inlined.cpp"]);
        let mut subject = Subject::new(&path);
        let function = subject.function("_Z5stepsRN4grid5FieldIdEEi");
        let line = |name: &str| line_of("inlined.cpp", name);
        let wanted = line("line scale");
        let mut seen = 0;
        for part in function.parts.clone() {
            for address in part {
                let place = subject.structures.place(subject.module, Address::Leaf(address));
                let Some(location) = place.location.clone() else { continue };
                if location.line != wanted || place.innermost_loop().is_none() {
                    continue;
                }
                let steps: Vec<String> = place
                    .steps
                    .iter()
                    .map(|step| match step {
                        Step::Loop(id) => {
                            let source = function.source_of(*id).unwrap();
                            let location = source.lines.location.as_ref().unwrap();
                            format!("loop {}", location.line)
                        }
                        Step::Inlined(inlined) => {
                            format!("{} {}", inlined.function, inlined.call.as_ref().unwrap().line)
                        }
                    })
                    .collect();
                let scale = format!("grid::Field<double>::scale {}", line("call scale"));
                let whole = [
                    format!("loop {}", line("loop steps")),
                    scale,
                    format!("loop {}", line("loop scale")),
                ];
                // Instructions of the line may have been moved out of its loop.
                if steps.len() == 3 {
                    assert_eq!(steps, whole, "{optimised} {address:#x}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 0, "{optimised}");
    }
}
