//! The benchmark runs and prints the rows that it should. Its values are not judged here: a test
//! that judged times would fail on a busy machine.

use std::fs;
use std::process::Command;

use plimsoll_tests::scratch::Scratch;
use serde_json::Value;

#[test]
fn the_benchmark_prints_a_table_and_writes_it_as_json() {
    let scratch = Scratch::new("bench");
    let file = scratch.path().join("table.json");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll-bench"))
        .args(["--quick", "--json"])
        .arg(&file)
        .args([
            "handler-marked",
            "handler-unmarked",
            "handler-events",
            "handler-hardware",
            "collector-1",
            "node-4",
            "bytes",
            "reduction",
            "thread-profiles",
        ])
        .output()
        .expect("the benchmark was built with this test");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let table = String::from_utf8_lossy(&output.stdout);
    let rows: Value = serde_json::from_slice(&fs::read(&file).expect("the table is written"))
        .expect("the table is JSON");
    let rows = rows.as_array().expect("the table is a list of rows");
    assert!(rows.len() >= 28, "{rows:?}");
    for row in rows {
        let name = row["name"].as_str().expect("a row has a name");
        assert!(table.contains(name), "{name} is not in\n{table}");
        assert!(row["value"].is_number() && row["baseline"].is_number(), "{row}");
        assert!(row["target"].is_null() == row["reached"].is_null(), "{row}");
    }
}
