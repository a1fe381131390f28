//! Programs in many languages, and suites that others wrote, behave as without Plimsoll: the short
//! selection of `scripts/harmless`.

use std::process::Command;

#[test]
fn programs_and_foreign_suites_behave_as_without_plimsoll() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll-harmless"))
        .arg("--short")
        .output()
        .expect("the command was built with this test");
    let table = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{messages}");
    assert!(table.contains("0 differences, 0 suites skipped"), "{table}{messages}");
}
