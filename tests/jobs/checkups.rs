//! `plimsoll doctor` on this machine and on programs, with the library as a user has it.

use std::process::Command;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_shared;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::subject::{Form, executable};
use serde_json::Value;

/// Returns the checks of `plimsoll doctor` with these arguments, and its exit status.
fn checks(arguments: &[&str], environment: &[(&str, &str)]) -> (Vec<Value>, Option<i32>) {
    let _job_lock = lock_shared();
    let output = Command::new(&artifacts().command)
        .args(["doctor", "--json"])
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .expect("the command starts");
    let said: Value = serde_json::from_slice(&output.stdout).expect("the doctor prints JSON");
    assert_eq!(said["schema"], "plimsoll-doctor/1");
    (said["checks"].as_array().expect("a list of checks").clone(), output.status.code())
}

fn state<'a>(checks: &'a [Value], name: &str) -> Option<&'a str> {
    checks.iter().find(|check| check["name"] == name)?["state"].as_str()
}

#[test]
fn a_machine_that_runs_the_tests_is_found_fit() {
    let (checks, status) = checks(&[], &[]);
    for name in ["platform", "library", "measurement", "stack marks", "settings", "output"] {
        assert_eq!(state(&checks, name), Some("ok"), "{name}: {checks:#?}");
    }
    assert_eq!(status, Some(0));
    for check in checks {
        assert_eq!(check["remedy"].is_null(), check["state"] == "ok", "{check:#}");
    }
}

#[test]
fn a_missing_library_and_a_wrong_setting_are_found() {
    let (checks, status) =
        checks(&[], &[("PLIMSOLL_LIBRARY", "/no/such/library.so"), ("PLIMSOLL_PERIOD", "soon")]);
    assert_eq!((state(&checks, "library"), status), (Some("failed"), Some(1)));
    assert_eq!(state(&checks, "settings"), Some("limited"));
    assert_eq!(state(&checks, "measurement"), None, "{checks:#?}");
}

#[test]
fn the_mpi_of_a_program_is_named() {
    for (mpi, name) in [(Mpi::OpenMpi, "Open MPI"), (Mpi::Mpich, "MPICH")]
        .into_iter()
        .filter(|(mpi, _)| mpi.available())
    {
        let program = executable("imbalance", Form::C, Some(mpi));
        let (checks, status) = checks(&[program.to_str().expect("a path in UTF-8")], &[]);
        let check = checks.iter().find(|check| check["name"] == "MPI").expect("it is looked at");
        assert!(check["found"].as_str().is_some_and(|found| found.starts_with(name)), "{check:#}");
        assert_eq!((state(&checks, "source lines"), status), (Some("ok"), Some(0)), "{checks:#?}");
    }
}

#[test]
fn a_static_program_fails_with_its_remedy() {
    let program = executable("plain", Form::By("gcc", &["-static"]), None);
    let (checks, status) = checks(&[program.to_str().expect("a path in UTF-8")], &[]);
    assert_eq!((state(&checks, "program"), status), (Some("failed"), Some(1)), "{checks:#?}");
}
