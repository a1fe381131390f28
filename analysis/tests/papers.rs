//! docs/papers.md names files and tests that exist.

use std::fs;
use std::path::Path;

/// Statuses of a row.
const STATUSES: [&str; 2] = ["same", "other"];

/// Returns the texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_file_and_every_test_that_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = read(&root.join("docs/papers.md"));
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| section");
    let mut rows = 0;
    for line in page.lines().filter(is_row) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", _, _, status, how, files, tests, ""] = cells[..] else { panic!("{cells:?}") };
        assert!(STATUSES.contains(&status), "{line}");
        assert!(status != "other" || !how.is_empty(), "why? {line}");
        assert!(!files.is_empty(), "where? {line}");
        assert!(!tests.is_empty(), "which test? {line}");
        for file in quoted(files) {
            assert!(root.join(file).is_file(), "no {file}");
        }
        let mut source = None;
        for name in quoted(tests) {
            if name.ends_with(".rs") {
                source = Some((name, read(&root.join(name))));
                continue;
            }
            let (file, text) = source.as_ref().expect("a file before its tests");
            assert!(text.contains(&format!("fn {name}(")), "no {name} in {file}");
        }
        rows += 1;
    }
    assert!(rows > 100, "{rows} rows");
}
