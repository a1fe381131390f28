//! The measurements survive every way to end a job: the short selection of `scripts/unsinkable`.

use crate::selection::short_selection;

#[test]
#[ignore = "long: scripts/test --all"]
fn no_end_of_a_job_loses_what_was_measured() {
    short_selection(env!("CARGO_BIN_EXE_plimsoll-unsinkable"));
}
