//! Short selections of commands that compare programs with and without Plimsoll.

use std::process::Command;

/// Runs the short selection of a command and returns the table that it prints.
///
/// # Panics
/// If a row of the table is red.
pub fn short_selection(command: &str) -> String {
    let output = Command::new(command)
        .arg("--short")
        .output()
        .expect("the command was built with this test");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{messages}");
    table
}
