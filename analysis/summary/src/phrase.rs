//! Phrases: numbers, ranks, frames and paths in words.

use std::borrow::Borrow;

use crate::ranks::RankSet;
use crate::{Frame, FrameKind, NodeOfRun};

/// Space between a number and its unit, at which no line is broken.
pub const TIED: char = '\u{a0}';

/// Formats a time with three or four digits: `120.4 s`, `3.2 ms`.
pub fn seconds(time_s: f64) -> String {
    let (number, unit) = match time_s.abs() {
        time if time >= 1000.0 => (format!("{time_s:.0}"), "s"),
        time if time >= 10.0 => (format!("{time_s:.1}"), "s"),
        time if time >= 0.1 => (format!("{time_s:.2}"), "s"),
        time if time >= 1e-4 => (format!("{:.1}", time_s * 1e3), "ms"),
        0.0 => ("0".into(), "s"),
        time if time >= 1e-7 => (format!("{:.1}", time_s * 1e6), "us"),
        _ => (format!("{:.0}", (time_s * 1e9).abs().max(1.0).copysign(time_s)), "ns"),
    };
    format!("{number}{TIED}{unit}")
}

/// Formats a fraction in percent: `25 %`, `4.2 %`.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    format!("{percent:.digits$}{TIED}%")
}

/// Formats a count with its digits in groups of three: `24,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a noun with its number: `1 rank`, `2 ranks`, `2 losses`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", count(number))
}

/// Formats bytes in the largest binary unit with a number above one: `375.0 MiB`.
pub fn bytes(number: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| number >> shift > 0);
    match unit {
        Some((name, shift)) => format!("{:.1}{TIED}{name}", number as f64 / (1u64 << shift) as f64),
        None => counted(number, "byte"),
    }
}

/// Maximum length of a rank list in full, in characters.
const MAX_LIST_CHARS: usize = 30;

/// Formats a rank list as people write it: `1, 3, 5-7`, without the strides of the JSON. A list
/// longer than `max_chars` is truncated to its first ranks and `...`; an invalid list stays
/// unchanged.
pub fn rank_list(list: &str, max_chars: usize) -> String {
    let Ok(set) = list.parse::<RankSet>() else { return list.to_owned() };
    let mut written = String::new();
    let sorted = set.to_string();
    let mut ranges = sorted.split_terminator(',').flat_map(neighbours).peekable();
    while let Some((first, mut last)) = ranges.next() {
        while let Some((_, next)) = ranges.next_if(|(next, _)| *next == last + 1) {
            last = next;
        }
        let run = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let separator = if written.is_empty() { "" } else { ", " };
        let is_too_long = written.len() + separator.len() + run.len() > max_chars;
        if is_too_long && !written.is_empty() {
            return format!("{written}, ...");
        }
        written.push_str(separator);
        written.push_str(&run);
    }
    written
}

/// Returns the ranges of neighbouring ranks in one part of a rank list: a range without a step is
/// one, however long.
fn neighbours(part: &str) -> impl Iterator<Item = (u32, u32)> {
    let (range, step) = part.split_once(':').unwrap_or((part, ""));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let [first, last] = [first, last].map(|rank| rank.parse::<u32>().unwrap_or_default());
    let (step, others) = step.parse().map_or((usize::MAX, last - first), |step| (step, 0));
    (first..=last).step_by(step).map(move |rank| (rank, rank + others))
}

/// Formats ranks as the subject of a sentence: `rank 0`, `ranks 0-3, 8`, `all ranks`.
pub fn ranks(list: &str, of: u32) -> String {
    if rank_count(list) >= u64::from(of) && of > 1 {
        return "all ranks".into();
    }
    if list.is_empty() {
        return "some ranks".into();
    }
    let noun = if rank_count(list) == 1 { "rank" } else { "ranks" };
    let shown = rank_list(list, MAX_LIST_CHARS);
    if shown.ends_with("...") {
        return format!("{} ranks ({shown})", count(rank_count(list)));
    }
    format!("{noun} {shown}")
}

/// Formats waiting ranks: `rank 0 waits`, `ranks 0-3, 8 wait`.
pub fn waiting(list: &str, of: u32) -> String {
    let verb = if rank_count(list) == 1 { "waits" } else { "wait" };
    format!("{} {verb}", ranks(list, of))
}

/// Returns the number of ranks in a rank list; invalid parts count as 0.
pub fn rank_count(list: &str) -> u64 {
    let part = |part: &str| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let step = step.parse::<u64>().ok().filter(|step| *step > 0)?;
        Some((last.checked_sub(first)? / step).saturating_add(1))
    };
    list.split(',').filter_map(part).fold(0, u64::saturating_add)
}

/// Formats the hosts of a job, the first few by name.
pub fn hosts(nodes: &[NodeOfRun]) -> String {
    const NAMED: usize = 4;
    let names: Vec<&str> = nodes.iter().take(NAMED).map(|node| node.host.as_str()).collect();
    let more = if nodes.len() > NAMED { ", ..." } else { "" };
    match nodes {
        [] => "an unknown node".into(),
        [node] => node.host.clone(),
        _ => format!("{} ({}{more})", counted(nodes.len() as u64, "node"), names.join(", ")),
    }
}

/// Formats file name and line of a frame: `stencil.c:12`.
fn place(frame: &Frame) -> Option<String> {
    let file = frame.file.as_deref()?.rsplit('/').next()?;
    Some(frame.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}")))
}

/// Formats a frame as part of a path: its name, a loop by its line, an MPI call with its line.
pub fn frame(frame: &Frame) -> String {
    let name = shortened(&frame.function);
    match (frame.kind, place(frame)) {
        (FrameKind::Loop, Some(place)) => format!("loop at {place}"),
        (FrameKind::Loop, None) => match frame.offset {
            Some(offset) => format!("loop at {name}+{offset:#x}"),
            None => format!("loop in {name}"),
        },
        (FrameKind::Line, Some(place)) => place,
        (FrameKind::Line, None) => format!("line in {name}"),
        (FrameKind::Inlined, _) => format!("{name} (inlined)"),
        (FrameKind::Mpi, Some(place)) => format!("{name} at {place}"),
        (FrameKind::Function | FrameKind::Mpi, _) => name,
    }
}

/// Formats a frame as the subject of a sentence: its name and line.
pub fn frame_with_place(it: &Frame) -> String {
    match (it.kind, place(it)) {
        (FrameKind::Function | FrameKind::Inlined, Some(place)) => {
            format!("{} ({place})", frame(it))
        }
        (FrameKind::Loop, Some(place)) => {
            format!("the loop at {place} in {}", shortened(&it.function))
        }
        (FrameKind::Loop, None) => format!("the {}", frame(it)),
        _ => frame(it),
    }
}

/// Formats the innermost frame of a path as the subject of a sentence, with the function that it
/// was inlined into. The place of a call by the C++ library is that of the program's call of it. A
/// function without a name, as in a stripped library, has the one that called it beside it.
pub fn end_of(path: &[Frame]) -> String {
    let Some((end, outer)) = path.split_last() else { return "an unknown place".into() };
    let is_function = |frame: &&Frame| frame.kind == FrameKind::Function;
    let mut callers = outer.iter().rev().filter(is_function).skip_while(|it| it.is_unnamed());
    let place = end_with_holder(end, outer);
    match callers.next() {
        Some(caller) if end.is_unnamed() => {
            format!("{place} (below {})", shortened(&caller.function))
        }
        _ => place,
    }
}

/// Formats the innermost frame of a path, with the function that it was inlined into.
fn end_with_holder(end: &Frame, outer: &[Frame]) -> String {
    let is_whole = |frame: &&Frame| !matches!(frame.kind, FrameKind::Loop | FrameKind::Line);
    let mut around = outer.iter().rev().filter(is_whole);
    let holder = match end.kind {
        FrameKind::Inlined => around.next(),
        FrameKind::Loop => match around.next() {
            Some(it) if it.kind == FrameKind::Inlined && it.function == end.function => {
                around.next()
            }
            _ => None,
        },
        _ => None,
    };
    let is_inlined = |frame: &&Frame| frame.kind == FrameKind::Inlined;
    let library = outer.iter().rev().filter(is_whole);
    let library = library.take_while(|it| is_inlined(it) && it.function.starts_with("std::"));
    match (holder, end.kind, library.last().map_or_else(|| place(end), place)) {
        (None, ..) => frame_with_place(end),
        (Some(holder), FrameKind::Inlined, Some(place)) => {
            let name = shortened(&end.function);
            format!("{name} (inlined in {} at {place})", shortened(&holder.function))
        }
        (Some(holder), FrameKind::Inlined, None) => {
            format!("{} (inlined in {})", shortened(&end.function), shortened(&holder.function))
        }
        (Some(holder), ..) => {
            format!("{} (inlined in {})", frame_with_place(end), shortened(&holder.function))
        }
    }
}

/// Maximum length of a name in full: two of them fit on a line.
const NAME_LENGTH: usize = 44;

/// Shortens a long name: to one without the arguments of its templates or, if that is too long as
/// well, to the end of that, without its namespaces.
pub fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_LENGTH {
        return name.into();
    }
    let name = without_arguments(&without_python_tag(name));
    let length = name.chars().count();
    if length <= NAME_LENGTH {
        return name;
    }
    let end: String = name.chars().skip(length - (NAME_LENGTH - 3)).collect();
    // Begins at a whole part of the name, if there is one.
    let part = end.find("::").map_or(end.as_str(), |at| &end[at..]);
    format!("...{part}")
}

/// Returns the name of code in an extension module of Python without the tag of its ABI (PEP 3149):
/// `_solver.so+0x1234` for `_solver.cpython-311-x86_64-linux-gnu.so+0x1234`.
fn without_python_tag(name: &str) -> String {
    let tag = name.find(".cpython-").and_then(|at| Some(at..at + name[at..].find(".so")?));
    match tag {
        Some(tag) => [&name[..tag.start], &name[tag.end..]].concat(),
        None => name.to_owned(),
    }
}

/// Returns a name with `<...>` in place of the arguments of each template. They begin behind an
/// identifier, unlike `<lambda(int)>` and Rust's `<Type as Trait>`.
fn without_arguments(name: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0;
    let mut before = ' ';
    for it in name.chars() {
        let begins = before.is_alphanumeric() || before == '_';
        match it {
            '<' if depth > 0 => depth += 1,
            '<' if begins && !kept.ends_with("operator") => {
                depth = 1;
                kept.push_str("<...>");
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => kept.push(it),
            _ => {}
        }
        before = it;
    }
    kept
}

/// Separates the frames of a path.
const ARROW: &str = " > ";

/// Formats a path on one line. Until it fits, loops are left out, then inlined functions and those
/// without a name, then other frames, each time the outermost first; `...` stands for what is left
/// out. The first and the last frame always stay.
pub fn path(path: &[Frame], width: usize) -> String {
    let names: Vec<String> = path.iter().map(frame).collect();
    let mut middle: Vec<usize> = (1..path.len().saturating_sub(1)).collect();
    middle.sort_by_key(|at| match path[*at].kind {
        FrameKind::Loop | FrameKind::Line => 0,
        FrameKind::Inlined => 1,
        FrameKind::Function if path[*at].is_unnamed() => 1,
        _ => 2,
    });
    shortened_path(&names, &middle, width)
}

/// Joins the names of a path on one line. Until it fits, names in the middle are left out: the
/// first gives the place, the inner ones the work.
pub fn fitted<Name: Borrow<str>>(names: &[Name], width: usize) -> String {
    let middle: Vec<usize> = (1..names.len().saturating_sub(1)).collect();
    shortened_path(names, &middle, width)
}

/// Joins the names of a path on one line. Until it fits, the next one of `optional`, indices of
/// names, is left out; `...` stands for names that are left out side by side.
fn shortened_path<Name: Borrow<str>>(names: &[Name], optional: &[usize], width: usize) -> String {
    let mut shown: Vec<Option<&str>> = names.iter().map(|name| Some(name.borrow())).collect();
    let mut optional = optional.iter();
    loop {
        let parts = shown.chunk_by(|one, other| one.is_none() && other.is_none());
        let parts: Vec<&str> = parts.map(|part| part[0].unwrap_or("...")).collect();
        let line = parts.join(ARROW);
        if line.len() <= width {
            return line;
        }
        match optional.next() {
            Some(at) => shown[*at] = None,
            None => return line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> Frame {
        Frame::new(FrameKind::Function, name, "a.out")
    }

    #[test]
    fn numbers_are_short() {
        let times = [0.0, 1e-12, 4.2e-8, 2.5e-6, 0.0032, 0.25, 12.345, 120.43, 7200.4].map(seconds);
        let times = times.map(|time| time.replace(TIED, " "));
        assert_eq!(
            times,
            ["0 s", "1 ns", "42 ns", "2.5 us", "3.2 ms", "0.25 s", "12.3 s", "120.4 s", "7200 s"]
        );
        let parts = [0.0042, 0.0996, 0.251].map(|part| percent(part).replace(TIED, " "));
        assert_eq!(parts, ["0.4 %", "10 %", "25 %"]);
        assert_eq!([7, 1000, 1_234_567].map(count), ["7", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "loss"), counted(2, "loss")], ["1 loss", "2 losses"]);
        let sizes = [1, 2048, 375 << 20].map(|size| bytes(size).replace(TIED, " "));
        assert_eq!(sizes, ["1 byte", "2.0 KiB", "375.0 MiB"]);
    }

    fn part(kind: FrameKind, name: &str, line: Option<u32>) -> Frame {
        let file = line.map(|_| "src/eos.cc".into());
        Frame { kind, file, line, offset: Some(0x40).filter(|_| line.is_none()), ..function(name) }
    }

    #[test]
    fn a_frame_is_named_with_its_line_and_an_inlined_function_with_its_caller() {
        let main = function("main");
        let inlined = part(FrameKind::Inlined, "EvalEos", Some(7));
        let nested = part(FrameKind::Inlined, "pressure", None);
        let in_main = part(FrameKind::Loop, "main", Some(9));
        let looping = part(FrameKind::Loop, "EvalEos", Some(12));
        let nameless = part(FrameKind::Loop, "main", None);
        let reduce = part(FrameKind::Mpi, "MPI_Allreduce", Some(210));
        let unknown = Frame::new(FrameKind::Mpi, "MPI_Allreduce", "libmpi.so.40");
        for (path, name) in [
            (vec![&main, &in_main, &inlined], "EvalEos (inlined in main at eos.cc:7)"),
            (vec![&main, &inlined, &looping, &nested], "pressure (inlined in EvalEos)"),
            (vec![&main, &inlined, &looping], "the loop at eos.cc:12 in EvalEos (inlined in main)"),
            (vec![&main, &in_main], "the loop at eos.cc:9 in main"),
            (vec![&main, &nameless], "the loop at main+0x40"),
            (vec![&main], "main"),
            (vec![&main, &in_main, &reduce], "MPI_Allreduce at eos.cc:210"),
            (vec![&main, &unknown], "MPI_Allreduce"),
        ] {
            let path: Vec<Frame> = path.into_iter().cloned().collect();
            assert_eq!(end_of(&path), name);
        }
    }

    #[test]
    fn a_function_without_a_name_is_described_by_its_caller() {
        let unnamed = |kind, offset: &str| {
            let name = format!("libsolve.so.3+{offset}");
            Frame { module: "libsolve.so.3".into(), offset: Some(0x8e8), ..part(kind, &name, None) }
        };
        let inner = unnamed(FrameKind::Function, "0xe94d60");
        let path = [
            function("main"),
            function("PreconditionedSolve"),
            unnamed(FrameKind::Function, "0xe90000"),
            inner.clone(),
            unnamed(FrameKind::Loop, "0xe94d60"),
        ];
        let below = "libsolve.so.3+0xe94d60 (below PreconditionedSolve)";
        assert_eq!(end_of(&path[..4]), below);
        let below = "the loop at libsolve.so.3+0xe94d60+0x8e8 (below PreconditionedSolve)";
        assert_eq!(end_of(&path), below);
        assert_eq!(end_of(&[inner]), "libsolve.so.3+0xe94d60", "nothing is known");
        let line = "main > PreconditionedSolve > ... > loop at libsolve.so.3+0xe94d60+0x8e8";
        assert_eq!(super::path(&path, 80), line);
    }

    #[test]
    fn a_module_of_python_keeps_its_name() {
        let name = "_multiarray_umath.cpython-311-x86_64-linux-gnu.so+0x2cd31f";
        assert_eq!(shortened(name), "_multiarray_umath.so+0x2cd31f");
    }

    #[test]
    fn a_long_path_keeps_functions_longest() {
        let frames = [
            function("main"),
            part(FrameKind::Loop, "main", Some(9)),
            function("solve"),
            part(FrameKind::Inlined, "sweep", Some(20)),
            part(FrameKind::Loop, "sweep", Some(33)),
        ];
        for (width, line) in [
            (80, "main > loop at eos.cc:9 > solve > sweep (inlined) > loop at eos.cc:33"),
            (60, "main > ... > solve > sweep (inlined) > loop at eos.cc:33"),
            (50, "main > ... > solve > ... > loop at eos.cc:33"),
            (40, "main > ... > loop at eos.cc:33"),
        ] {
            assert_eq!(path(&frames, width), line);
        }
    }

    #[test]
    fn a_path_keeps_its_inner_loops_longest_and_marks_each_gap() {
        let frames = [
            function("main"),
            part(FrameKind::Loop, "main", Some(7)),
            function("checkpoint"),
            part(FrameKind::Loop, "checkpoint", Some(6)),
            function("zz"),
        ];
        for (width, line) in [
            (50, "main > ... > checkpoint > loop at eos.cc:6 > zz"),
            (40, "main > ... > checkpoint > ... > zz"),
        ] {
            assert_eq!(path(&frames, width), line);
        }
    }

    #[test]
    fn ranks_are_named_or_counted() {
        assert_eq!(ranks("0", 4), "rank 0");
        assert_eq!(ranks("0-2", 4), "ranks 0-2");
        assert_eq!(ranks("0-3", 4), "all ranks");
        assert_eq!(ranks("", 4), "some ranks");
        let odd = "1,3,5,8,9,11,13,15,17,19,21,23,25,27";
        assert_eq!(ranks(odd, 64), "14 ranks (1, 3, 5, 8-9, 11, 13, 15, 17, ...)");
        assert_eq!(ranks("0,16-20:2", 64), "ranks 0, 16, 18, 20");
        assert_eq!(ranks("0-4:2,5-6", 64), "ranks 0, 2, 4-6");
        let huge = "0-4294967295";
        assert_eq!(rank_list(huge, 30), huge);
        assert_eq!(rank_list("0-4294967294:2", 9), "0, 2, 4, ...");
        assert_eq!(waiting("0", 4), "rank 0 waits");
        assert_eq!(waiting("0,2", 4), "ranks 0, 2 wait");
        assert_eq!(rank_count("0-3,8,16-30:2"), 13);
        assert_eq!(rank_count("3-1,x,,4:0"), 0);
        assert_eq!(rank_count("0-18446744073709551615,7"), u64::MAX);
    }

    #[test]
    fn names_keep_their_end() {
        let name = "a_namespace::with_a_name::and_another::of_some::class_of_it::a_method";
        assert_eq!(frame(&function(name)), "...::of_some::class_of_it::a_method");
    }

    #[test]
    fn a_lambda_is_where_the_program_calls_the_library() {
        let inlined = |name: &str, file: &str, line: u32| Frame {
            kind: FrameKind::Inlined,
            file: Some(file.into()),
            line: Some(line),
            ..function(name)
        };
        let mut frames = vec![
            function("main"),
            inlined("std::sort<T>", "solve.cpp", 8),
            inlined("std::__sort<T>", "stl_algo.h", 1900),
            inlined("operator()", "stl_algo.h", 1950),
        ];
        assert_eq!(end_of(&frames), "operator() (inlined in std::__sort<T> at solve.cpp:8)");
        frames[1].function = "sorted".into();
        assert_eq!(end_of(&frames), "operator() (inlined in std::__sort<T> at stl_algo.h:1900)");
        frames[2].function = "by_key".into();
        assert_eq!(end_of(&frames), "operator() (inlined in by_key at stl_algo.h:1950)");
    }

    #[test]
    fn long_names_lose_the_arguments_of_templates() {
        for (name, short) in [
            ("std::thread::thread<void (&)(int, int), int, int, void>", "std::thread::thread<...>"),
            (
                "std::tuple<a::vector<double>, b::array<int, 3> >::get<1, a::b>",
                "std::tuple<...>::get<...>",
            ),
            (
                "fem::Mesh<double (*)(fem::Point<3> const&)>::operator->",
                "fem::Mesh<...>::operator->",
            ),
            (
                "<solver::Mesh<f64, solver::Block> as Iterator>::next::step",
                "<solver::Mesh<...> as Iterator>::next::step",
            ),
            ("std::vector<double>::push_back", "std::vector<double>::push_back"),
        ] {
            assert_eq!(frame(&function(name)), short);
        }
    }

    #[test]
    fn paths_keep_their_ends() {
        let long: Vec<Frame> = (0..9).map(|level| function(&format!("level_{level}"))).collect();
        assert_eq!(path(&long, 40), "level_0 > ... > level_7 > level_8");
        assert_eq!(path(&long[..2], 5), "level_0 > level_1");
        assert_eq!(path(&[], 5), "");
        assert_eq!(path(&long, 3), "level_0 > ... > level_8");
    }
}
