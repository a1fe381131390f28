//! Contexts of different builds match as a programmer would match them.

use plimsoll_compare::comparison::{Comparison, Context};
use plimsoll_compare::experiment::{ExperimentFrame, ExperimentLoss, ExperimentNode};
use plimsoll_compare::{Expect, Experiment, Options, compare};
use plimsoll_summary::{FrameKind, LossKind};

/// Call path with its time on all ranks. Frames are separated by blanks: `loop:solve:12` is a loop
/// of solve at line 12, `loop:solve:+48` one without lines, `inlined:dot` inlined, `libm.so.6:exp`
/// in a library, `MPI_Barrier` or, at line 12, `MPI_Barrier@12` a call of MPI.
type PathTime<'a> = (&'a str, f64);

fn frame(word: &str, program: &str) -> ExperimentFrame {
    let mut frame = ExperimentFrame {
        kind: FrameKind::Function,
        function: word.into(),
        file: None,
        line: None,
        offset: None,
        module: program.into(),
    };
    match word.split(':').collect::<Vec<_>>().as_slice() {
        ["loop", function, place] => {
            frame.kind = FrameKind::Loop;
            frame.function = (*function).into();
            match place.strip_prefix('+') {
                Some(offset) => frame.offset = offset.parse().ok(),
                None => frame.line = place.parse().ok(),
            }
        }
        ["inlined", function] => {
            frame.kind = FrameKind::Inlined;
            frame.function = (*function).into();
            frame.line = Some(1);
        }
        [module, function] => {
            frame.module = (*module).into();
            frame.function = (*function).into();
        }
        _ if word.starts_with("MPI_") => {
            if let Some((call, line)) = word.split_once('@') {
                (frame.function, frame.file) = (call.into(), Some("solver.c".into()));
                frame.line = line.parse().ok();
            }
            frame.kind = FrameKind::Mpi;
            frame.module = "libmpi.so.40".into();
        }
        _ => {}
    }
    frame
}

fn build(program: &str, ranks: u32, paths: &[PathTime]) -> Experiment {
    let mut frames: Vec<ExperimentFrame> = Vec::new();
    let mut nodes: Vec<ExperimentNode> = Vec::new();
    for (path, own_s) in paths {
        let mut parent = None;
        for word in path.split_whitespace() {
            let frame = frame(word, program);
            let index = frames.iter().position(|known| *known == frame).unwrap_or_else(|| {
                frames.push(frame);
                frames.len() - 1
            }) as u32;
            let known = nodes.iter().position(|it| it.parent == parent && it.frame == index);
            parent = Some(known.unwrap_or_else(|| {
                nodes.push(ExperimentNode { parent, frame: index, calls: 1, own_s: [0.0; 4] });
                nodes.len() - 1
            }) as u32);
        }
        nodes[parent.expect("a path has frames") as usize].own_s[0] += own_s;
    }
    let total_s: f64 = paths.iter().map(|(_, own_s)| own_s).sum();
    Experiment {
        source: format!("{program}-{ranks}"),
        argument: ranks as usize,
        executable: format!("/home/ada/{program}"),
        elapsed_s: total_s / f64::from(ranks),
        ranks,
        measured_ranks: ranks,
        threads: ranks,
        nodes: 1,
        complete: true,
        period_s: 0.004,
        frames,
        nodes_of_tree: nodes,
        ..Experiment::default()
    }
}

fn compared(one: Experiment, other: Experiment) -> Comparison {
    let options = Options { expect: Some(Expect::Strong), fail_above: None };
    compare(&[one, other], &options).expect("two set-ups")
}

/// Asserts that one context has these times in both builds.
#[track_caller]
fn assert_matched(comparison: &Comparison, end: &str, times_s: [f64; 2]) {
    let ends = |it: &&Context| it.path.last().is_some_and(|frame| frame.function == end);
    let found: Vec<&Context> = comparison.contexts.iter().filter(ends).collect();
    let near = |it: &&&Context| {
        it.total_s.iter().zip(times_s).all(|(found, wanted)| (found - wanted).abs() < 1e-9)
    };
    assert!(found.iter().any(|it| near(&it)), "{end}: {times_s:?} not among {found:#?}");
}

#[test]
fn renamed_programs_moved_libraries_and_clones_are_the_same() {
    let one = build("app", 1, &[("main solve libm-2.31.so:exp", 4.0), ("main pack", 2.0)]);
    let other = build(
        "app_v2",
        2,
        &[("main solve.constprop.0 libm.so.6:exp", 5.0), ("main pack.isra.0", 4.0)],
    );
    let comparison = compared(one, other);
    assert_matched(&comparison, "solve.constprop.0", [4.0, 5.0]);
    assert_matched(&comparison, "pack.isra.0", [2.0, 4.0]);
    assert!(comparison.notes.iter().any(|note| note.contains("different names")));
}

#[test]
fn loops_of_moved_lines_are_the_same() {
    let one = build("app", 1, &[("main loop:main:10", 4.0), ("main loop:main:30", 2.0)]);
    let other = build("app", 2, &[("main loop:main:17", 5.0), ("main loop:main:37", 4.0)]);
    let comparison = compared(one, other);
    assert_matched(&comparison, "main", [4.0, 5.0]);
    assert_matched(&comparison, "main", [2.0, 4.0]);
}

/// Returns the names of the contexts that are compared, with the lines of the last build.
fn assert_calls(builds: [&[PathTime]; 2], expected: &[(Option<u32>, [f64; 2])]) -> Comparison {
    let comparison = compared(build("app", 1, builds[0]), build("app", 2, builds[1]));
    let is_call = |it: &&Context| it.path.last().unwrap().kind == FrameKind::Mpi;
    let mut found: Vec<_> = comparison
        .contexts
        .iter()
        .filter(is_call)
        .map(|it| (it.path.last().unwrap().line, [it.total_s[0], it.total_s[1]]))
        .collect();
    found.sort_by_key(|(line, _)| *line);
    assert_eq!(found, expected);
    comparison
}

#[test]
fn calls_of_moved_lines_are_the_same() {
    let one = [("main MPI_Barrier@10", 4.0), ("main", 2.0)];
    let other = [("main MPI_Barrier@90", 5.0), ("main", 2.0)];
    let comparison = assert_calls([&one, &other], &[(Some(90), [4.0, 5.0])]);
    assert!(comparison.contexts.iter().any(|it| it.name == "MPI_Barrier in main"));
    // A build without lines shows all calls as one.
    let several = [("main MPI_Barrier@10", 4.0), ("main MPI_Barrier@14", 3.0), ("main", 2.0)];
    let without = [("main MPI_Barrier", 5.0), ("main", 2.0)];
    assert_calls([&several, &without], &[(None, [7.0, 5.0])]);
}

#[test]
fn several_calls_of_a_function_match_by_their_lines() {
    let one = [("main MPI_Barrier@10 poll", 4.0), ("main MPI_Barrier@14", 3.0), ("main", 2.0)];
    let other = [("main MPI_Barrier@21 poll", 9.0), ("main MPI_Barrier@25", 4.0), ("main", 2.0)];
    let expected = [(Some(21), [4.0, 9.0]), (Some(25), [3.0, 4.0])];
    let comparison = assert_calls([&one, &other], &expected);
    let name = "MPI_Barrier at solver.c:21 in main";
    assert!(comparison.contexts.iter().any(|it| it.name == name), "{comparison:#?}");
    // A call that only one build has.
    let more = [("main MPI_Barrier@10", 4.0), ("main MPI_Barrier@12", 6.0), one[1], one[2]];
    let expected = [(Some(12), [0.0, 6.0]), (Some(14), [3.0, 3.0])];
    assert_calls([&one[1..], &more[1..]], &expected);
}

/// Whichever build shows more loops: without lines in both, they cannot be matched.
#[test]
fn loops_that_cannot_be_matched_count_to_their_function_in_all_builds() {
    let lines = [("main solve loop:solve:12", 2.0), ("main solve loop:solve:20", 2.0)];
    let offset = [("main solve loop:solve:+48", 4.0)];
    for (one, other) in [(&lines[..], &offset[..]), (&offset[..], &lines[..])] {
        let comparison = compared(build("app", 1, one), build("app", 2, other));
        assert_matched(&comparison, "solve", [4.0, 4.0]);
        let is_loop = |it: &Context| it.path.iter().any(|frame| frame.kind == FrameKind::Loop);
        assert!(!comparison.contexts.iter().any(is_loop), "{:#?}", comparison.contexts);
    }
}

#[test]
fn work_of_all_threads_is_a_part_of_the_time_of_all_threads() {
    let mut one = build("app", 1, &[("main", 10.0), ("worker solve", 70.0)]);
    let mut other = build("app", 4, &[("main", 16.0), ("worker solve", 112.0)]);
    (one.elapsed_s, other.elapsed_s) = (10.0, 4.0);
    let comparison = compared(one, other);
    assert!((comparison.excess.fraction - 48.0 / 128.0).abs() < 1e-9, "{:?}", comparison.excess);
    let headline = &comparison.verdict.headline;
    let expected = "128.0 s of core time, where strong scaling from 1 rank expects 80.0 s.";
    assert!(headline.contains(expected), "{headline}");
}

#[test]
fn work_that_shrinks_does_not_grow() {
    let runs: Vec<Experiment> = [(1, 10.0), (2, 9.5), (4, 9.0), (8, 8.5), (16, 8.0)]
        .map(|(ranks, total_s)| build("app", ranks, &[("main work", total_s)]))
        .into();
    let options = Options { expect: Some(Expect::Strong), fail_above: None };
    let comparison = compare(&runs, &options).expect("five set-ups");
    let growth = comparison.contexts[0].growth.as_ref().expect("five sizes");
    assert!(growth.decided && growth.c1_s < 0.0, "{growth:?}");
    let sentences = comparison.verdict.sentences.join(" ");
    assert!(sentences.contains("Gained back") && !sentences.contains("grows"), "{sentences}");
}

/// The barrier's own loss has a part of its own: waiting in the rest of main has another cause.
#[test]
fn causes_are_those_of_losses_in_the_part() {
    let made = |ranks, waiting_s: f64| {
        let mut run = build(
            "app",
            ranks,
            &[("main work", 10.0), ("main MPI_Barrier", 0.0), ("main MPI_Reduce", 0.0)],
        );
        (run.nodes_of_tree[0].own_s[1], run.nodes_of_tree[2].own_s[1]) = (waiting_s, waiting_s);
        run.elapsed_s = (10.0 + 2.0 * waiting_s) / f64::from(ranks);
        run.losses = vec![ExperimentLoss {
            kind: LossKind::LoadImbalance,
            severity: 0.1,
            seconds: 1.0,
            symptom: 2,
            cause: Some(1),
            slow_ranks: "0".into(),
        }];
        run
    };
    let comparison = compared(made(1, 0.0), made(2, 2.0));
    let causes: Vec<(&str, bool)> = comparison
        .findings
        .iter()
        .map(|it| (&*comparison.contexts[it.context as usize].name, it.caused_by.is_some()))
        .collect();
    assert_eq!(causes, [("main", false), ("MPI_Barrier in main", true)]);
}

#[test]
fn inlining_that_differs_is_seen_through() {
    let one = build("app", 1, &[("main solve inlined:dot", 4.0), ("main loop:main:3 pack", 2.0)]);
    let other = build("app", 2, &[("main solve dot", 5.0), ("main loop:main:3 pack", 4.0)]);
    assert_matched(&compared(one, other), "dot", [4.0, 5.0]);
}

#[test]
fn builds_with_and_without_debug_information_meet_at_functions() {
    let one = build(
        "app",
        1,
        &[
            ("main loop:main:9 solve inlined:dot loop:dot:4 axpy", 4.0),
            ("main loop:main:9 solve loop:solve:12", 1.0),
            ("main pack", 2.0),
        ],
    );
    let other = build(
        "app",
        2,
        &[
            ("main loop:main:+64 solve axpy", 5.0),
            ("main loop:main:+64 solve", 1.5),
            ("main pack", 4.0),
        ],
    );
    let comparison = compared(one, other);
    assert_matched(&comparison, "axpy", [4.0, 5.0]);
    assert_matched(&comparison, "pack", [2.0, 4.0]);
}

#[test]
fn time_inside_an_mpi_library_belongs_to_the_call() {
    let one =
        build("app", 1, &[("main MPI_Allreduce libmpi.so.40:progress", 1.0), ("main f", 3.0)]);
    let other =
        build("app", 2, &[("main MPI_Allreduce libmpich.so.12:poll", 2.0), ("main f", 3.0)]);
    assert_matched(&compared(one, other), "MPI_Allreduce", [1.0, 2.0]);
}

#[test]
fn recursion_and_deep_stacks_are_compared() {
    let deep = format!("main {} leaf", "step ".repeat(5000));
    let one = build("app", 1, &[(&deep, 1.0), ("main other", 1.0)]);
    let other = build("app", 2, &[(&deep, 3.0), ("main other", 1.0)]);
    assert_matched(&compared(one, other), "leaf", [1.0, 3.0]);
}
