//! Compilation of subjects for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::{Address, Function, ModuleId, Options, Structures};
use crate::symbols::{Source, Table};
use std::sync::Arc;

/// Folder of one test, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-structure-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of a subject's source.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/subjects").join(name)
}

/// Runs a tool to its end.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles sources to a program or library; the compiler runs in the folder.
pub(crate) fn compile(
    folder: &Folder,
    compiler: &str,
    flags: &[&str],
    sources: &[&str],
) -> PathBuf {
    let output = folder.0.join("subject");
    let mut command = Command::new(compiler);
    command.current_dir(&folder.0).args(flags).arg("-o").arg(&output);
    command.args(sources.iter().map(|name| source(name)));
    run(&mut command);
    output
}

/// Returns the line of a subject's source that has a comment.
pub(crate) fn line_of(subject: &str, comment: &str) -> u32 {
    let text = std::fs::read_to_string(source(subject)).unwrap();
    let carries = |line: &str| {
        line.split_once(comment)
            .is_some_and(|(_, rest)| rest.trim_end_matches("*/").trim().is_empty())
    };
    let line = text.lines().position(carries);
    line.unwrap_or_else(|| panic!("{subject} has no line with {comment:?}")) as u32 + 1
}

/// A compiled subject with its structure.
pub(crate) struct Subject {
    pub(crate) structures: Structures,
    pub(crate) module: ModuleId,
    pub(crate) path: PathBuf,
}

impl Subject {
    pub(crate) fn new(path: &Path) -> Self {
        Self::with_debug_folders(path, &[])
    }

    pub(crate) fn with_debug_folders(path: &Path, folders: &[PathBuf]) -> Self {
        let mut structures =
            Structures::new(Options { debug_folders: folders.to_vec(), cache: None });
        let module = structures.module(path.to_owned(), Vec::new());
        Self { structures, module, path: path.to_owned() }
    }

    /// Returns the extent of the function with a symbol.
    pub(crate) fn range(&self, symbol: &str) -> std::ops::Range<u64> {
        let table = Table::read(&Source::open(&self.path).unwrap(), &[]).unwrap();
        let found = table.named(symbol).next();
        found.unwrap_or_else(|| panic!("no {symbol} in {}", self.path.display())).range()
    }

    /// Returns the addresses of a function's calls on a line, without those of inlined functions.
    pub(crate) fn calls_on(&mut self, function: &Function, line: u32) -> Vec<u64> {
        let mut found = Vec::new();
        for call in function.calls() {
            let place = self.structures.place(self.module, Address::Leaf(*call));
            if place.location.is_some_and(|location| location.line == line) {
                found.push(*call);
            }
        }
        found
    }

    pub(crate) fn function(&mut self, symbol: &str) -> Arc<Function> {
        let start = self.range(symbol).start;
        self.structures.place(self.module, Address::Leaf(start)).function.unwrap()
    }
}
