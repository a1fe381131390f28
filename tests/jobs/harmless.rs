//! Programs in many languages, and third-party test suites, behave as without Plimsoll: the short
//! selection of `scripts/harmless`.

use crate::selection::short_selection;

#[test]
#[ignore = "long: scripts/test --all"]
fn programs_and_foreign_suites_behave_as_without_plimsoll() {
    let table = short_selection(env!("CARGO_BIN_EXE_plimsoll-harmless"));
    assert!(table.contains("0 differences, 0 suites skipped"), "{table}");
}
