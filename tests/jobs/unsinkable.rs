//! Whatever ends a job, what was measured is there: the short selection of `scripts/unsinkable`.

use std::process::Command;

#[test]
fn no_end_of_a_job_loses_what_was_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll-unsinkable"))
        .arg("--short")
        .output()
        .expect("the command was built with this test");
    let table = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{messages}");
}
