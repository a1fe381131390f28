use std::fs;
use std::fs::File;

use super::*;
use crate::html_page::tests::summary;
use plimsoll_summary::FrameKind;

/// A summary with one loop at each of these positions, the first one with the longest time.
fn with_loops(places: &[(&Path, u32)]) -> Summary {
    let names: Vec<&str> = places.iter().map(|_| "program").collect();
    let mut summary = summary(&names);
    for (index, (file, line)) in places.iter().enumerate() {
        let frame = &mut summary.tree.frames[index];
        (frame.kind, frame.line) = (FrameKind::Loop, Some(*line));
        frame.file = Some(file.to_str().unwrap().to_owned());
        summary.tree.nodes[index].inclusive.mean_s = 9.0 - index as f64;
    }
    summary
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|number| format!("line {number}\n")).collect()
}

#[test]
fn lines_around_a_place_are_read_and_neighbours_joined() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.c");
    fs::write(&path, numbered(100)).unwrap();
    let found = read(&with_loops(&[(&path, 50), (&path, 57), (&path, 2), (&path, 99)]));
    let spans: Vec<_> = found[0].excerpts.iter().map(|it| (it.first, it.lines.len())).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(spans, [(1, 6), (46, 16), (95, 6)]);
    assert_eq!(found[0].excerpts[1].lines[4], "line 50");
}

#[test]
fn a_file_newer_than_the_program_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (path, program) = (directory.path().join("x.F90"), directory.path().join("program"));
    fs::write(&path, numbered(3)).unwrap();
    let mut summary = with_loops(&[(&path, 2)]);
    assert_eq!(read(&summary)[0].newer, None);
    summary.run.executable = program.to_str().unwrap().to_owned();
    let minute = Duration::from_secs(60);
    let of_source = fs::metadata(&path).unwrap().modified().unwrap();
    for (built, newer) in [(of_source - minute, true), (of_source + minute, false)] {
        File::create(&program).unwrap().set_modified(built).unwrap();
        assert_eq!(read(&summary)[0].newer, Some(newer));
    }
    // The age of a library is unknown.
    summary.tree.frames[0].module = "libother.so".into();
    assert_eq!(read(&summary)[0].newer, None);
}

#[test]
fn the_line_of_a_call_is_one_of_its_caller() {
    let directory = tempfile::tempdir().unwrap();
    let (path, program) = (directory.path().join("x.c"), directory.path().join("program"));
    fs::write(&path, numbered(3)).unwrap();
    File::create(&program).unwrap();
    let mut summary = with_loops(&[(&path, 2), (&path, 3)]);
    summary.run.executable = program.to_str().unwrap().to_owned();
    let [caller, call] = &mut summary.tree.frames[..2] else { panic!("two frames") };
    (caller.file, caller.line) = (None, None);
    (call.kind, call.module) = (FrameKind::Mpi, "libmpi.so.40".into());
    summary.tree.nodes[1].parent = Some(0);
    assert!(read(&summary)[0].newer.is_some());
}

#[test]
fn only_source_files_are_read_and_only_a_part_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (secret, long, pipe) = (at("secret"), at("long.c"), at("pipe.c"));
    fs::write(&secret, numbered(9)).unwrap();
    fs::write(&long, format!("{}\n\u{ff}\n", "x".repeat(100_000))).unwrap();
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name is a string that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let absent = at("absent.c");
    let relative = Path::new("src/lib.rs");
    let places = [(&*secret, 3), (&*pipe, 1), (&*absent, 1), (relative, 3), (&*long, 1)];
    let found = read(&with_loops(&places));
    assert_eq!(found.len(), 1, "{found:?}");
    let lines = &found[0].excerpts[0].lines;
    assert_eq!((lines[0].len(), &*lines[1]), (MAX_LINE, "\u{ff}"));
}

#[test]
fn the_number_of_lines_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.rs");
    fs::write(&path, numbered(20_000)).unwrap();
    let places: Vec<_> = (1..2000).map(|index| (&*path, index * 10)).collect();
    let found = read(&with_loops(&places));
    let lines: usize = found[0].excerpts.iter().map(|it| it.lines.len()).sum();
    assert_eq!(lines, MAX_PLACES * (2 * AROUND as usize + 1));
    // Positions with the longest times are kept.
    assert_eq!(found[0].excerpts[0].first, 6);
}
