//! Source excerpts: lines around the contexts with the most time, if their files are readable when
//! the page is made.
//!
//! A page is passed on, and a summary may come from elsewhere: only files with the extension of a
//! programming language are read, and only a few lines around the positions in the tree.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use plimsoll_summary::{FrameKind, Summary, TreeNode};

/// Number of lines before and after a position.
const AROUND: u32 = 4;
/// Maximum number of positions.
const MAX_PLACES: usize = 400;
/// Maximum number of files.
const MAX_FILES: usize = 64;
/// Maximum length of a line, in characters; the rest is cut off.
const MAX_LINE: usize = 160;
/// Maximum number of bytes read of one file.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum number of bytes read of all files.
const MAX_BYTES: u64 = 8 << 20;
/// Time after which no further file is opened: ranks may wait for the page in MPI_Finalize.
const MAX_TIME: Duration = Duration::from_millis(100);
/// Extensions of programming languages, in lower case.
const EXTENSIONS: [&str; 33] = [
    "c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "h++", "inl", "inc", "ipp", "tcc",
    "tpp", "f", "for", "ftn", "f77", "f90", "f95", "f03", "f08", "f18", "cu", "cuh", "hip", "rs",
    "go", "jl", "py", "m", "d",
];

/// Lines of one file.
#[derive(Debug, PartialEq, Serialize)]
pub struct SourceFile {
    /// Path, as the frames of the tree have it.
    file: String,
    /// Whether the file is newer than the program, so that its lines may have changed; `None` if
    /// the program's time is unknown.
    newer: Option<bool>,
    excerpts: Vec<Excerpt>,
}

/// Consecutive lines.
#[derive(Debug, PartialEq, Serialize)]
struct Excerpt {
    /// Number of the first line; lines count from 1.
    first: u32,
    lines: Vec<String>,
}

/// Reads the lines around the most important positions. Unreadable files are left out.
pub fn read(summary: &Summary) -> Vec<SourceFile> {
    let built = modified(Path::new(&summary.run.executable));
    let places = places(summary);
    let begin = Instant::now();
    let mut left = MAX_BYTES;
    let mut files = Vec::new();
    for (place, lines) in places {
        if files.len() == MAX_FILES || left == 0 || begin.elapsed() > MAX_TIME {
            break;
        }
        let Ok((excerpts, bytes)) = excerpts(Path::new(place.file), &lines, left) else { continue };
        left = left.saturating_sub(bytes);
        if excerpts.is_empty() {
            continue;
        }
        let built = built.filter(|_| place.is_of_program);
        let newer = modified(Path::new(place.file)).zip(built).map(|(file, built)| file > built);
        files.push(SourceFile { file: place.file.to_owned(), newer, excerpts });
    }
    files
}

/// File of the tree's frames.
#[derive(Clone, Copy)]
struct Place<'s> {
    file: &'s str,
    /// Whether the code is in the executable rather than in a library.
    is_of_program: bool,
}

/// Returns the most important positions by file, the file with the most important one first: those
/// of losses, then those with the longest inclusive time.
fn places(summary: &Summary) -> Vec<(Place<'_>, BTreeSet<u32>)> {
    let program = Path::new(&summary.run.executable).file_name();
    let tree = &summary.tree;
    let of_losses = summary
        .losses
        .iter()
        .flat_map(|loss| loss.causes.iter().map(|cause| cause.node).chain([loss.symptom.node]));
    let mut in_losses = HashSet::new();
    for node in of_losses {
        let mut at = Some(node);
        while let Some(node) = at.filter(|node| in_losses.insert(*node)) {
            at = tree.nodes.get(node as usize).and_then(|node| node.parent);
        }
    }
    let frame_of = |node: &TreeNode| tree.frames.get(node.frame as usize);
    let mut weights: HashMap<(u32, u32), (bool, u64)> = HashMap::new();
    let mut of_program: HashSet<u32> = HashSet::new();
    for (index, node) in (0..).zip(&tree.nodes) {
        let Some(frame) = frame_of(node) else { continue };
        let Some(line) = frame.line.filter(|line| *line > 0) else { continue };
        let weight = (in_losses.contains(&index), (node.inclusive.mean_s * 1e9) as u64);
        let known = weights.entry((node.frame, line)).or_default();
        *known = weight.max(*known);
        // The line of a call lies in the caller.
        let is_call = frame.kind == FrameKind::Mpi;
        let caller = node.parent.filter(|_| is_call).and_then(|it| tree.nodes.get(it as usize));
        let holder = caller.and_then(frame_of).unwrap_or(frame);
        if program.is_some_and(|program| program == &*holder.module) {
            of_program.insert(node.frame);
        }
    }
    let mut order: Vec<_> = weights.into_iter().collect();
    order.sort_unstable_by_key(|((frame, line), weight)| (Reverse(*weight), *frame, *line));
    order.truncate(MAX_PLACES);
    let mut files: Vec<(Place<'_>, BTreeSet<u32>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for ((index, line), _) in order {
        let frame = &tree.frames[index as usize];
        let Some(file) = frame.file.as_deref().filter(|file| is_source(file)) else { continue };
        let at = *known.entry(file).or_insert_with(|| {
            let is_of_program = of_program.contains(&index);
            files.push((Place { file, is_of_program }, BTreeSet::new()));
            files.len() - 1
        });
        files[at].1.insert(line);
    }
    files
}

fn is_source(file: &str) -> bool {
    let path = Path::new(file);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    path.is_absolute() && EXTENSIONS.contains(&&*extension.to_ascii_lowercase())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.is_absolute().then(|| path.metadata().ok()?.modified().ok()).flatten()
}

/// Reads the lines around some lines of a file. Returns them with the number of bytes read.
fn excerpts(path: &Path, wanted: &BTreeSet<u32>, most: u64) -> io::Result<(Vec<Excerpt>, u64)> {
    let file = super::open_regular(path)?;
    let mut reader = BufReader::new(file.take(most.min(MAX_FILE_BYTES)));
    let mut kept: BTreeMap<u32, String> = BTreeMap::new();
    let (mut line, mut bytes, mut number) = (Vec::new(), 0, 0);
    let last = wanted.last().map_or(0, |line| line.saturating_add(AROUND));
    while number < last && reader.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        bytes += line.len() as u64;
        let near = number.saturating_sub(AROUND)..=number.saturating_add(AROUND);
        if wanted.range(near).next().is_some() {
            kept.insert(number, shown(&line));
        }
        line.clear();
    }
    let mut excerpts: Vec<Excerpt> = Vec::new();
    for (number, line) in kept {
        match excerpts.last_mut() {
            Some(last) if last.first + last.lines.len() as u32 == number => last.lines.push(line),
            _ => excerpts.push(Excerpt { first: number, lines: vec![line] }),
        }
    }
    Ok((excerpts, bytes))
}

/// Returns a line without its end, truncated to a bounded length.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().chars().take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests;
