//! Exports say what the summary says, in each format.

mod decoders;
mod generated;
#[path = "../../summary/tests/summaries/mod.rs"]
mod summaries;

use std::collections::BTreeMap;

use generated::{Run, Totals, expected, rank_bytes, rank_rows, run, timeline_json};
use plimsoll_export::{
    CallForest, ExportError, Format, LaneChoice, RankRows, TimelineCells, write, write_iterations,
};
use plimsoll_summary::{FrameKind, IterationCluster, IterationSlice, Iterations, Label, Loop};

/// The formats count in whole microseconds; 1000 contexts may be rounded.
const TOLERANCE: f64 = 1e-3;

fn bytes(
    format: Format,
    run: &Run,
    rows: Option<&RankRows>,
    timeline: Option<&TimelineCells>,
    choice: &LaneChoice,
) -> Vec<u8> {
    let forest = CallForest::new(&run.summary, rows, choice).unwrap();
    let mut bytes = Vec::new();
    write(format, &forest, timeline, &mut bytes).unwrap();
    bytes
}

/// The totals that each format holds, by the format's name.
fn decoded(run: &Run, rows: Option<&RankRows>, choice: &LaneChoice) -> BTreeMap<String, Totals> {
    let mut all = BTreeMap::new();
    for format in Format::ALL {
        let bytes = bytes(format, run, rows, None, choice);
        let of_process = |mut processes: BTreeMap<String, Totals>, word: &str| {
            let name = processes.keys().find(|name| name.contains(word)).cloned();
            name.and_then(|name| processes.remove(&name)).unwrap_or_default()
        };
        let totals = match format {
            Format::Collapsed => decoders::collapsed(&bytes),
            Format::Firefox => of_process(decoders::firefox(&bytes), "totals"),
            Format::Hatchet => decoders::hatchet(&bytes),
            Format::Perfetto => of_process(decoders::perfetto(&bytes), "totals"),
            Format::Pprof => decoders::pprof(&bytes),
            Format::Speedscope => decoders::speedscope(&bytes),
        };
        all.insert(format.name().to_owned(), totals);
    }
    all
}

#[track_caller]
fn assert_same(format: &str, found: &Totals, expected: &Totals) {
    for (key, time) in expected {
        let found = found.get(key).copied().unwrap_or(0.0);
        assert!(
            (found - time).abs() <= TOLERANCE * time + 1e-6,
            "{format}: {key:?}: {found}, {time}"
        );
    }
    for (key, time) in found {
        let known = expected.contains_key(key) || key.1 == "[waiting]" || *time < 1e-6;
        assert!(known, "{format}: {key:?} is {time} s");
    }
}

/// Names of the summary's frames in a format.
fn names(run: &Run, format: &str) -> Vec<String> {
    let forest = CallForest::new(&run.summary, None, &LaneChoice::Automatic).unwrap();
    let names = forest.frames.iter().map(|frame| frame.name.clone());
    names.map(|name| if format == "collapsed" { name.replace(';', ":") } else { name }).collect()
}

#[test]
fn each_format_holds_the_times_of_each_rank() {
    let run = run(4, 700);
    let rows = rank_rows(&run, |_| true);
    let lanes: Vec<(String, Vec<f64>)> =
        (0..4).map(|rank| (format!("rank {rank}"), run.inclusive_s[rank].clone())).collect();
    for (format, totals) in decoded(&run, Some(&rows), &LaneChoice::Automatic) {
        assert_same(&format, &totals, &expected(&run, &lanes, &names(&run, &format)));
        // The waiting is 3/4 of what the call takes on each rank.
        for rank in 0..4 {
            let wait_s = totals[&(format!("rank {rank}"), "[waiting]".into())];
            let call_s = run.inclusive_s[rank][299];
            let in_deep_call = 0.75 * call_s;
            assert!((wait_s - in_deep_call).abs() < 1e-3 * call_s + 1e-5, "{format}: {wait_s}");
        }
    }
}

#[test]
fn calls_of_mpi_are_told_apart_by_their_lines_in_each_format() {
    let mut run = run(2, 700);
    let is_call = |frame: &&mut plimsoll_summary::Frame| frame.kind == FrameKind::Mpi;
    let call = run.summary.tree.frames.iter_mut().find(is_call).expect("a call of MPI");
    (call.file, call.line) = (Some("/src/solver.c".into()), Some(210));
    let name = call.function.clone();
    for (format, totals) in decoded(&run, None, &LaneChoice::Automatic) {
        let has_lines = ["hatchet", "pprof", "speedscope"].contains(&&*format);
        let expected = if has_lines { name.clone() } else { format!("{name} at solver.c:210") };
        let found = totals.keys().any(|(_, name)| *name == expected);
        assert!(found, "{format}: no {expected} in {:?}", totals.keys());
    }
}

/// Inclusive times are sums over the threads of a rank; idleness, imbalance and wait are those of
/// the mean thread.
#[test]
fn calls_of_several_threads_wait_as_long_as_their_mean_thread() {
    let mut run = run(4, 400);
    let call = &mut run.summary.tree.nodes[299];
    let mean_s = call.inclusive.mean_s / 8.0;
    call.idle_s = Some(0.75 * mean_s);
    for (label, imb_s, wait_s) in [
        (Label::CollectiveSynchronisation, 0.4 * mean_s, 0.6 * mean_s),
        (Label::Communication, 0.4 * mean_s, mean_s),
    ] {
        let call = &mut run.summary.tree.nodes[299];
        (call.label, call.imb_s, call.wait_s) = (label, Some(imb_s), Some(wait_s));
        let forest = CallForest::new(&run.summary, None, &LaneChoice::Automatic).unwrap();
        let own_s = forest.own_s(&forest.lanes[0]).unwrap();
        let waits = forest.nodes.iter().zip(&own_s).filter(|(node, _)| node.waits);
        let waits_s: f64 = waits.map(|(_, time_s)| time_s).sum();
        assert!((waits_s - 6.0 * mean_s).abs() < 1e-9, "{label:?}: {waits_s} of {}", 8.0 * mean_s);
    }
}

#[test]
fn without_the_side_file_each_format_holds_the_mean() {
    let run = run(4, 700);
    let mean: Vec<f64> = run.summary.tree.nodes.iter().map(|node| node.inclusive.mean_s).collect();
    for (format, totals) in decoded(&run, None, &LaneChoice::Automatic) {
        let lane = if format == "hatchet" { "mean" } else { "mean of ranks 0-3" };
        let lanes = [(lane.to_owned(), mean.clone())];
        assert_same(&format, &totals, &expected(&run, &lanes, &names(&run, &format)));
    }
}

#[test]
fn what_the_side_file_leaves_out_is_filled_up_and_roots_stay_exact() {
    let run = run(4, 700);
    let rows = rank_rows(&run, |node| node == 0 || node == 5 || node % 3 == 0);
    let forest = CallForest::new(&run.summary, Some(&rows), &LaneChoice::Automatic).unwrap();
    for (lane, times) in forest.lanes.iter().zip(&run.inclusive_s) {
        let own_s = forest.own_s(lane).unwrap();
        assert!(own_s.iter().all(|time| *time >= 0.0));
        let inclusive_s = forest.inclusive_s(&own_s);
        for root in [0, 5] {
            assert!((inclusive_s[root] - times[root]).abs() < 1e-5 * times[root]);
        }
    }
}

#[test]
fn a_single_rank_is_one_in_the_title() {
    let mut run = run(4, 400);
    for (ranks, end) in [(4, ", 4 ranks"), (1, ", 1 rank")] {
        run.summary.run.ranks = ranks;
        let forest = CallForest::new(&run.summary, None, &LaneChoice::Automatic).unwrap();
        assert!(forest.title().ends_with(end), "{}", forest.title());
    }
}

#[test]
fn many_ranks_are_shown_by_their_representatives() {
    let run = run(100, 400);
    let rows = rank_rows(&run, |_| true);
    let names = |choice: &LaneChoice| -> Vec<String> {
        let forest = CallForest::new(&run.summary, Some(&rows), choice).unwrap();
        forest.lanes.iter().map(|lane| lane.name.clone()).collect()
    };
    let few = names(&LaneChoice::Automatic);
    assert_eq!(few, ["rank 2 (stands for ranks 0-98:2)", "rank 3 (stands for ranks 1-99:2)"]);
    assert_eq!(names(&LaneChoice::Ranks("7,99".parse().unwrap())), ["rank 7", "rank 99"]);
    assert_eq!(names(&LaneChoice::All).len(), 100);
    let choice = LaneChoice::Ranks("99-100".parse().unwrap());
    let error = CallForest::new(&run.summary, Some(&rows), &choice).unwrap_err();
    assert!(error.to_string().contains("rank 100 was not measured"), "{error}");
    let error = CallForest::new(&run.summary, None, &LaneChoice::All).unwrap_err();
    assert!(matches!(error, ExportError::NoRankRows));
}

#[test]
fn spans_nest_and_fill_the_time_of_their_parents() {
    let run = run(2, 1000);
    let rows = rank_rows(&run, |_| true);
    let forest = CallForest::new(&run.summary, Some(&rows), &LaneChoice::All).unwrap();
    for lane in &forest.lanes {
        let spans = forest.spans(&forest.own_s(lane).unwrap());
        let of_node: BTreeMap<u32, _> = spans.iter().map(|span| (span.node, *span)).collect();
        let mut own_ns: BTreeMap<u32, u64> =
            spans.iter().map(|span| (span.node, span.inclusive_ns)).collect();
        for (at, span) in spans.iter().enumerate() {
            let Some(parent) = forest.nodes[span.node as usize].parent else { continue };
            let outer = of_node[&parent];
            assert!(spans[..at].contains(&outer), "a parent comes after its child");
            assert!(span.begin_ns >= outer.begin_ns);
            let limit_ns = outer.begin_ns + outer.inclusive_ns - outer.own_ns;
            assert!(span.begin_ns + span.inclusive_ns <= limit_ns);
            *own_ns.get_mut(&parent).unwrap() -= span.inclusive_ns;
        }
        assert!(spans.iter().all(|span| own_ns[&span.node] == span.own_ns));
    }
}

#[test]
fn the_timeline_is_a_process_of_its_own() {
    let run = run(4, 400);
    let rows = rank_rows(&run, |_| true);
    let cells = TimelineCells::from_json(&timeline_json(), 400).unwrap();
    for format in [Format::Firefox, Format::Perfetto] {
        let bytes = bytes(format, &run, Some(&rows), Some(&cells), &LaneChoice::Automatic);
        let processes = match format {
            Format::Firefox => decoders::firefox(&bytes),
            _ => decoders::perfetto(&bytes),
        };
        let (_, totals) =
            processes.iter().find(|(name, _)| name.contains("in the order of time")).unwrap();
        for lane in ["rank 0", "ranks 1-3"] {
            let time_s =
                |name: &str| totals.get(&(lane.into(), name.into())).copied().unwrap_or(0.0);
            for (name, expected_s) in [("worker", 7.0), ("MPI_Allreduce", 4.0), ("[waiting]", 4.0)]
            {
                let found_s = time_s(name);
                assert!((found_s - expected_s).abs() < 1e-3, "{format:?} {lane} {name}: {found_s}");
            }
        }
    }
}

#[test]
fn damaged_side_files_are_refused() {
    let run = run(4, 400);
    let good = rank_bytes(&run, |_| true);
    let open = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        generated::open(file, &run)
    };
    let rows = open(&good).unwrap();
    assert_eq!(rows.inclusive_s(3).unwrap().len(), 400);
    let with = |from: &[u8], to: &[u8]| {
        let mut changed = good.clone();
        let places = (0..good.len()).filter(|at| good[*at..].starts_with(from));
        places.for_each(|at| changed[at..at + to.len()].copy_from_slice(to));
        assert_ne!(changed, good);
        changed
    };
    let integers = |all: [u32; 4]| all.map(u32::to_le_bytes).concat();
    for bytes in [
        Vec::new(),
        b"text\n".to_vec(),
        good[..good.len() - 1].to_vec(),
        good[100..].to_vec(),
        with(b"<f4", b"<f8"),
        with(b"<u4", b"<i4"),
        with(b"(400, 4,)", b"(400, 5,)"),
        with(b"(400,)", b"(40, )"),
        with(b"inclusive_s", b"inclusive_m"),
        with(b"nodes", b"knots"),
        with(&integers([0, 1, 2, 3]), &integers([0, 2, 1, 3])),
        with(&integers([396, 397, 398, 399]), &integers([396, 397, 398, 400])),
    ] {
        assert!(matches!(open(&bytes), Err(ExportError::RankRows(_))));
    }
    let mut negative = good.clone();
    // The last number stands before 16 bytes that describe its array, and the directory.
    let directory = good.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    negative[directory - 20..directory - 16].copy_from_slice(&(-1.0f32).to_le_bytes());
    assert!(open(&negative).unwrap().inclusive_s(3).is_err());
    let good = String::from_utf8(timeline_json()).unwrap();
    for (from, to) in [
        ("plimsoll-timeline/1", "plimsoll-timeline/2"),
        ("\"columns\":100", "\"columns\":99"),
        ("[298,299]", "[298,400]"),
        ("[298,299]", "[298]"),
        ("\"end_s\":10.0", "\"end_s\":-1.0"),
        ("}", ""),
    ] {
        assert!(good.contains(from), "{from}");
        let json = good.replacen(from, to, 1);
        let read = TimelineCells::from_json(json.as_bytes(), 400);
        assert!(matches!(read, Err(ExportError::Timeline(_))), "{to}");
    }
}

#[test]
fn runs_without_contexts_or_with_one_rank_are_exported() {
    let mut empty = run(4, 400);
    empty.summary = summaries::minimal();
    for format in Format::ALL {
        let bytes = bytes(format, &empty, None, None, &LaneChoice::Automatic);
        assert!(format == Format::Collapsed || !bytes.is_empty());
    }
    let totals = decoded(&empty, None, &LaneChoice::Automatic);
    assert!(totals.values().all(|totals| totals.values().all(|time| *time == 0.0)));
}

#[test]
fn representative_iterations_are_lanes_of_their_own() {
    let mut run = run(2, 300);
    let slice = |node, begin_s, duration_s| IterationSlice { node, begin_s, duration_s };
    let cluster = |mean_s, weight, slices| IterationCluster {
        iterations: "0-90:10".into(),
        mean_s,
        representative: Some(40),
        weight: Some(weight),
        period: None,
        distinction: None,
        slices,
        instance: None,
    };
    run.summary.loops = vec![Loop {
        path: Vec::new(),
        node: 1,
        ranks: "0-1".into(),
        executions: 1,
        mean_duration_s: 100.0,
        longest_s: None,
        fraction: 0.9,
        iterations: Iterations { accepted: 100, rejected: 0, calls_seen: None, exact: false },
        durations_s: Vec::new(),
        first_iterations: String::new(),
        stride: None,
        begins_s: Vec::new(),
        clusters: vec![
            cluster(1.0, 90, vec![slice(2, 0.25, 0.5), slice(3, 0.25, 0.125)]),
            cluster(4.0, 10, vec![slice(2, 1.0, 2.0)]),
        ],
        rank: Some(0),
    }];
    let forest = CallForest::new(&run.summary, None, &LaneChoice::Automatic).unwrap();
    let written = |format| {
        let mut bytes = Vec::new();
        write_iterations(format, &forest, &mut bytes).map(|()| bytes)
    };
    let firefox = decoders::firefox(&written(Format::Firefox).unwrap());
    let perfetto = decoders::perfetto(&written(Format::Perfetto).unwrap());
    for processes in [firefox, perfetto] {
        let [(name, totals)] = Vec::from_iter(&processes)[..] else { panic!("{processes:?}") };
        assert!(name.contains("representative iterations of"), "{name}");
        // The frames of the generated tree repeat: each lane's longest is the iteration.
        let mut longest: BTreeMap<&str, f64> = BTreeMap::new();
        for ((lane, _), time_s) in totals {
            let known = longest.entry(lane).or_default();
            *known = known.max(*time_s);
        }
        let lanes: Vec<(&str, f64)> = longest.into_iter().collect();
        let expected = [
            ("iteration 40, stands for 10 of 100 iterations", 4.0),
            ("iteration 40, stands for 90 of 100 iterations", 1.0),
        ];
        for ((lane, time_s), (name, truth_s)) in lanes.iter().zip(expected) {
            assert!(lane.ends_with(name) && (time_s - truth_s).abs() < 1e-6, "{lane}: {time_s}");
        }
        assert_eq!(lanes.len(), 2);
    }
    assert!(matches!(written(Format::Pprof), Err(ExportError::NoTimeAxis)));
    run.summary.loops.clear();
    let forest = CallForest::new(&run.summary, None, &LaneChoice::Automatic).unwrap();
    let error = write_iterations(Format::Perfetto, &forest, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no loop has representative iterations"), "{error}");
}
