//! Recorded streams of jobs, kept in `tests/streams`: structure and diagnosis are replayed without
//! a job.
//!
//! `PLIMSOLL_TESTS_RECORD=1 cargo test -p plimsoll-tests --test jobs streams` records them anew.
//! Values that name the machine that ran them are removed.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use plimsoll_spool::{Kind, SpoolReader, SpoolWriter, Step};
use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::digests::{By, differences, digest, folder_of};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;
use serde_json::Value;

/// A recorded job, and its worst loss: kind, slow ranks, a function on the cause's path.
struct Recorded {
    name: &'static str,
    job: fn() -> Job,
    loss: Option<(&'static str, &'static str, &'static str)>,
}

const RECORDED: [Recorded; 5] = [
    Recorded {
        name: "imbalance",
        job: || Job::ranks("imbalance", Mpi::OpenMpi, 8).arguments("sleep 20 10 3"),
        loss: Some(("load_imbalance", "6-7", "work_uneven")),
    },
    Recorded {
        name: "alternating",
        job: || Job::ranks("alternating", Mpi::OpenMpi, 4).arguments("sleep 24 10 3"),
        loss: Some(("load_imbalance", "", "work_uneven")),
    },
    Recorded {
        name: "serial",
        job: || Job::ranks("serial", Mpi::OpenMpi, 8).arguments("sleep 20 10 3"),
        loss: Some(("serialization", "0", "work_serial")),
    },
    Recorded {
        name: "balanced",
        job: || Job::ranks("balanced", Mpi::OpenMpi, 8).arguments("sleep 20 10"),
        loss: None,
    },
    Recorded {
        name: "droplet",
        job: || {
            let input = workspace_dir().join("tests/lammps/droplet.in");
            Job::ranks("lmp", Mpi::OpenMpi, 8)
                .form(Form::Installed)
                .arguments(&format!("-in {} -log none -var steps 40", input.display()))
                .variable("OMP_NUM_THREADS", "1")
        },
        loss: Some(("load_imbalance", "0", "LAMMPS_NS::PairLJCut::compute")),
    },
];

fn folder(recorded: &Recorded) -> PathBuf {
    workspace_dir().join("tests/streams").join(recorded.name)
}

fn is_recording() -> bool {
    env::var_os("PLIMSOLL_TESTS_RECORD").is_some()
}

#[test]
fn recorded_jobs_are_diagnosed_as_what_they_are() {
    for recorded in &RECORDED {
        if is_recording() {
            record(recorded);
        }
        let summary = digest(&folder(recorded), By::Threads(2));
        assert_eq!(summary.at("/run/complete"), true, "{}", recorded.name);
        assert_diagnosed(recorded, &summary);
    }
}

fn assert_diagnosed(recorded: &Recorded, summary: &Summary) {
    let worst = summary.losses().into_iter().find(|loss| loss.kind() != "oversubscription");
    let found = worst.map(|loss| {
        let cause = loss.cause_path().join(" ");
        (loss.kind().to_owned(), loss.field("slow_ranks").as_str().map(str::to_owned), cause)
    });
    match (found, recorded.loss) {
        (None, None) => {}
        (Some((kind, slow, cause)), Some((true_kind, true_slow, true_cause))) => {
            assert_eq!(kind, true_kind, "{}", recorded.name);
            assert!(cause.contains(true_cause), "{}: {cause}", recorded.name);
            if !true_slow.is_empty() {
                assert_eq!(slow.as_deref(), Some(true_slow), "{}", recorded.name);
            }
        }
        (found, truth) => panic!("{}: {found:?} instead of {truth:?}", recorded.name),
    }
}

/// Runs the job and keeps its spool.
fn record(recorded: &Recorded) {
    let outcome = (recorded.job)()
        .watch(Watch::Run)
        .run_until(|job| assert_diagnosed(recorded, job.summary()));
    let report = outcome.files_ending(".plimsoll.json").remove(0);
    let spools = folder_of(&report).unwrap_or_else(|| panic!("no spool: {}", outcome.transcript()));
    let folder = folder(recorded);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    for entry in fs::read_dir(&spools).expect("there are spools").flatten() {
        strip(&entry.path(), &folder.join(entry.file_name()));
    }
    // The removed values are no part of the run's results.
    let own_words = ["/run/executable", "/run/arguments", "/run/job", "/run/nodes/0/host"];
    let differences = differences(&Summary::read(&report), &digest(&folder, By::Threads(1)));
    let strange: Vec<_> = differences
        .iter()
        .filter(|difference| !own_words.iter().any(|own| difference.starts_with(own)))
        .filter(|difference| !difference.starts_with("/collection/spool_bytes"))
        // Iterations need the program's code, which is not available any more.
        .filter(|difference| !difference.starts_with("/loops"))
        // Advice contains the node's name.
        .filter(|difference| !difference.contains("/advice: "))
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

/// Copies a spool without the values that name this machine.
fn strip(from: &Path, to: &Path) {
    let mut reader = SpoolReader::open(from).expect("a spool of ours");
    let mut writer = SpoolWriter::new(File::create(to).expect("a new file")).expect("memory");
    let mut walk = reader.walk();
    while let Some(step) = walk.next().expect("a whole file") {
        let Step::Frame(frame) = step else { panic!("{step:?}") };
        if frame.info.stream.kind != Kind::Meta {
            writer.copy(&frame).expect("a frame of ours");
            continue;
        }
        let mut value: Value = frame.meta().expect("a value of ours");
        for module in list(value.get_mut("modules")) {
            shorten(module.get_mut("path"));
        }
        if let Some(note) = value.get_mut("note") {
            note["host"] = "node".into();
            list(note.get_mut("ranks")).for_each(|rank| rank["clock"]["id"] = "1".into());
            note["job"]["job"] = "1".into();
            shorten(note["job"].get_mut("executable"));
            list(note["job"].get_mut("arguments")).for_each(|argument| shorten(Some(argument)));
        }
        writer.meta(frame.info.stream.number, &value).expect("it was small before");
    }
    writer.finish().expect("the file can be written");
}

fn list(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Reduces a path to its last component.
fn shorten(path: Option<&mut Value>) {
    if let Some(path) = path
        && let Some(name) = path.as_str().and_then(|text| text.rsplit('/').next())
    {
        *path = name.to_owned().into();
    }
}
