//! `plimsoll diff` in a shell: exit status, outputs, wrong input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn diff(arguments: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output: Output =
        command.arg("diff").args(arguments).stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../compare/tests/growth").join(name)
}

fn summary(name: &str) -> Value {
    serde_json::from_slice(&fs::read(recorded(name)).expect(name)).expect("JSON")
}

/// Creates folders with these files.
fn folders(files: &[(&str, &Value)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, value) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, value.to_string()).expect("a file");
    }
    folder
}

/// Returns the run with its times multiplied by a factor.
fn slower(summary: &Value, factor: f64) -> Value {
    fn scale(value: &mut Value, factor: f64) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    match field.as_f64() {
                        Some(time_s) if key.ends_with("_s") => *field = (time_s * factor).into(),
                        _ => scale(field, factor),
                    }
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(|it| scale(it, factor)),
            _ => {}
        }
    }
    let mut slower = summary.clone();
    scale(&mut slower, factor);
    slower
}

#[test]
fn a_series_is_compared_from_its_folder_in_both_forms() {
    let names = [1, 2, 4, 8, 16].map(|ranks| format!("strong-{ranks}.plimsoll.json"));
    let summaries = names.each_ref().map(|name| summary(name));
    let files: Vec<(&str, &Value)> = names.iter().map(String::as_str).zip(&summaries).collect();
    let folder = folders(&files);
    let path = folder.path().to_str().expect("UTF-8");
    let (stdout, stderr, status) = diff(&[path]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    assert!(stdout.contains("excess work") && stdout.contains("caused by serial"), "{stdout}");
    let (stdout, stderr, status) = diff(&["--format", "json", path]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        (&value["schema"], &value["expectation"]["kind"]),
        (&"plimsoll-diff/1".into(), &"strong".into())
    );
    let (_, stderr, status) = diff(&["--fail-above", "50%", path]);
    assert_eq!(status, Some(1));
    assert!(stderr.starts_with("plimsoll: above the limit: 75 % of the run"), "{stderr}");
    assert_eq!(diff(&["--fail-above", "90%", path]).2, Some(0));
}

#[test]
fn a_slower_version_fails_above_the_limit_and_not_below() {
    let run = summary("strong-2.plimsoll.json");
    let later: Vec<Value> = [1.0, 1.001, 0.999].map(|factor| slower(&run, factor)).to_vec();
    let after: Vec<Value> = [1.08, 1.081, 1.079].map(|factor| slower(&run, factor)).to_vec();
    let folder = folders(&[
        ("before/1.plimsoll.json", &later[0]),
        ("before/2.plimsoll.json", &later[1]),
        ("before/3.plimsoll.json", &later[2]),
        ("after/1.plimsoll.json", &after[0]),
        ("after/2.plimsoll.json", &after[1]),
        ("after/3.plimsoll.json", &after[2]),
    ]);
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (before, after) = (path("before"), path("after"));
    let (stdout, stderr, status) = diff(&[&before, &after, "--fail-above", "3%"]);
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("8.0 % slower") && stderr.contains("above the limit"), "{stdout}");
    assert_eq!(diff(&[&before, &after, "--fail-above", "9%"]).2, Some(0));
    assert_eq!(diff(&[&after, &before, "--fail-above", "3%"]).2, Some(0), "faster is no failure");
    let (stdout, _, status) = diff(&[&before, &before, "--fail-above", "0%"]);
    assert_eq!(status, Some(0));
    assert!(stdout.contains("No difference beyond the noise"), "{stdout}");
}

/// Every hostile input ends with status 2 and one line that says what is wrong.
#[test]
fn incomparable_input_gives_one_line_and_status_two() {
    let good = summary("strong-2.plimsoll.json");
    let mut newer = good.clone();
    newer["schema"] = "plimsoll-summary/9".into();
    let mut cyclic = good.clone();
    cyclic["tree"]["nodes"][0]["parent"] = 3.into();
    let mut empty = good.clone();
    empty["tree"]["nodes"] = Value::Array(Vec::new());
    empty["losses"] = Value::Array(Vec::new());
    let mut timeless = good.clone();
    timeless["run"]["elapsed_s"] = 0.into();
    let mut huge = good.clone();
    huge["run"]["elapsed_s"] = 1e308.into();
    let folder = folders(&[
        ("good.plimsoll.json", &good),
        ("newer.plimsoll.json", &newer),
        ("cyclic.plimsoll.json", &cyclic),
        ("empty.plimsoll.json", &empty),
        ("timeless.plimsoll.json", &timeless),
        ("nothing/x.txt", &Value::Null),
        ("list.json", &Value::Array(Vec::new())),
        ("huge.plimsoll.json", &huge),
    ]);
    fs::write(folder.path().join("cut.json"), &good.to_string()[..1000]).expect("a file");
    fs::write(folder.path().join("bytes.json"), [0xff, 0xfe, 0]).expect("a file");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let reference = path("good.plimsoll.json");
    for (name, reason) in [
        ("newer.plimsoll.json", "plimsoll-summary/9"),
        ("cyclic.plimsoll.json", "does not come after its parent"),
        ("empty.plimsoll.json", "nothing to compare"),
        ("timeless.plimsoll.json", "nothing to compare"),
        ("nothing", "holds no *.plimsoll.json files"),
        ("missing.json", "does not exist"),
        ("list.json", "not a summary"),
        ("cut.json", "not a summary"),
        ("bytes.json", "not a summary"),
        ("bad\u{1b}[31mname", "does not exist"),
    ] {
        let (stdout, stderr, status) = diff(&[&reference, &path(name)]);
        assert_eq!((stdout.as_str(), status), ("", Some(2)), "{name}: {stderr}");
        assert!(stderr.contains(reason), "{name}: {stderr}");
        assert!(stderr.starts_with("plimsoll: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
    }
    let (stdout, stderr, status) = diff(&[&reference]);
    assert_eq!((stdout.as_str(), status), ("", Some(2)), "{stderr}");
    assert!(stderr.contains("at least two"), "{stderr}");
    assert_ne!(diff(&[&reference, &path("huge.plimsoll.json")]).2, Some(101), "no panic");
    let (_, stderr, status) = diff(&[&reference, "/dev/zero"]);
    assert_eq!(status, Some(2), "{stderr}");
}
