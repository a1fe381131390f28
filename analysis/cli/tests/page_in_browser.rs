//! The pages of `plimsoll report` and `plimsoll diff` in Chromium, and the built page against its
//! sources.
//!
//! Needs node, npm and chromium, which `scripts/test` installs; npm installs the tools in the lock
//! file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// Returns the folder of the page's sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/page")
}

/// Runs a program in the folder of the sources; a failure prints its output.
fn succeeds(program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(sources());
    command.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.output().unwrap_or_else(|error| {
        panic!("{program} cannot be run ({error}): scripts/install-missing {program}={program}")
    });
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}:\n{stdout}\n{stderr}");
}

/// Installs the tools, once, if they are missing or older than the lock file.
fn tools() {
    static BROUGHT: Once = Once::new();
    BROUGHT.call_once(|| {
        let modified = |file| sources().join(file).metadata().and_then(|it| it.modified()).ok();
        if modified("node_modules/.package-lock.json") < modified("package-lock.json") {
            succeeds("npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        }
    });
}

#[test]
fn the_page_shows_the_summary_and_leads_through_it() {
    tools();
    succeeds("node", &["--test", "--test-reporter=spec", "test/page.test.mjs"]);
}

#[test]
fn the_numbers_of_the_page_are_those_of_the_text() {
    tools();
    succeeds("node", &["--test", "--test-reporter=spec", "test/numbers.test.mjs"]);
}

#[test]
fn the_timeline_of_the_page_shows_threads() {
    tools();
    succeeds("node", &["--test", "--test-reporter=spec", "test/threads.test.mjs"]);
}

#[test]
fn the_page_shows_biclusters_and_sampled_ranks() {
    tools();
    succeeds("node", &["--test", "--test-reporter=spec", "test/patterns.test.mjs"]);
}

#[test]
fn the_page_of_a_comparison_shows_it() {
    tools();
    succeeds("node", &["--test", "--test-reporter=spec", "test/diff.test.mjs"]);
}

#[test]
fn the_program_of_the_page_is_built_from_its_sources() {
    tools();
    let directory = tempfile::tempdir().unwrap();
    succeeds("node", &["types.mjs"]);
    succeeds("node", &["node_modules/typescript/bin/tsc", "--noEmit"]);
    succeeds("node", &["build.mjs", directory.path().to_str().unwrap()]);
    for page in ["page.html", "diff.html"] {
        let built = std::fs::read(directory.path().join(page)).unwrap();
        let kept = std::fs::read(sources().join("dist").join(page)).unwrap();
        assert!(built == kept, "dist/{page} is not what its sources make: run `npm run build`");
    }
}
