//! Jobs beside a hostile user of the machine: they end as without the attack, at most a second
//! later, with their report, and no file of their user is touched.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_tests::job_lock::lock_shared;
use plimsoll_tests::mpi::print_line;
use plimsoll_tests::nodes;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use serde_json::Value;

/// User id of the attacker.
const NOBODY: u32 = 65534;
/// Maximum delay by the attack, in seconds.
const LATER_S: f64 = 1.0;
const PRECIOUS: &str = "precious\n";

/// A directory that every user can reach, with a folder that is writable for all, and the attacker.
struct Place {
    path: PathBuf,
    attacker: Option<Child>,
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        let place = Self { path, attacker: None };
        for (folder, mode) in [("", 0o755), ("shared", 0o1777), ("private", 0o700)] {
            let folder = place.path.join(folder);
            fs::create_dir(&folder).expect("temporary folders can be made");
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        fs::write(place.victim(), PRECIOUS).expect("the folder is ours");
        let job_lock = lock_shared();
        let program = executable("attacks", Form::C, None);
        drop(job_lock);
        // By a process of its own: a child that another test forks meanwhile would hold the file
        // open for writing, and it could not be executed.
        let copied = Command::new("cp").arg(program).arg(place.path.join("attacks")).status();
        assert!(copied.expect("cp runs").success());
        place
    }

    fn shared(&self) -> PathBuf {
        self.path.join("shared")
    }

    fn victim(&self) -> PathBuf {
        self.path.join("private/precious")
    }

    /// Starts the attacker.
    fn attacked(mut self) -> Self {
        let mut attacker = Command::new(self.path.join("attacks"));
        attacker.arg(self.shared()).arg(self.victim()).uid(NOBODY).gid(NOBODY);
        attacker.stdin(Stdio::null()).stdout(Stdio::piped()).current_dir("/");
        let mut attacker = attacker.spawn().expect("root can act as another user");
        let mut said = BufReader::new(attacker.stdout.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says that it has begun");
        assert_eq!(line, "ready\n");
        self.attacker = Some(attacker);
        self
    }

    /// Returns the files in the shared folder that belong to this user.
    fn own_files(&self) -> Vec<PathBuf> {
        // SAFETY: no preconditions.
        let us = unsafe { libc::geteuid() };
        let entries = fs::read_dir(self.shared()).into_iter().flatten().flatten();
        let own = entries.map(|entry| entry.path()).filter(|path| {
            path.symlink_metadata().is_ok_and(|file| file.uid() == us && file.is_file())
        });
        own.collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(attacker) = &mut self.attacker {
            let _ = attacker.kill();
            let _ = attacker.wait();
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn is_root() -> bool {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() == 0 };
    if !is_root {
        print_line("SKIPPED: only root can act as another user");
    }
    is_root
}

fn summary(path: &Path) -> Value {
    let json = fs::read(path).expect("the report is ours");
    serde_json::from_slice(&json).expect("a report is JSON")
}

/// Asserts that the job's report of all ranks exists, and that the user's files are unchanged.
fn assert_unharmed(place: &Place, plain: &Outcome, watched: &Outcome, ranks: u32) {
    watched.assert_same_as(plain);
    let victim = fs::read_to_string(place.victim()).expect("it is there");
    assert_eq!(victim, PRECIOUS, "{}", watched.transcript());
    let of_kind = |ending: &str| {
        let own = place.own_files().into_iter();
        let mut found: Vec<_> =
            own.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        assert_eq!(found.len(), 1, "{ending}: {found:?}: {}", watched.transcript());
        found.remove(0)
    };
    of_kind(".plimsoll.txt");
    let report = summary(&of_kind(".plimsoll.json"));
    assert_eq!(report["run"]["ranks"], ranks, "{}", watched.transcript());
    assert_eq!(report["run"]["complete"], true, "{}", watched.transcript());
    let attacker = place.path.join("attacks");
    assert!(attacker.is_file());
}

fn assert_withstands(name: &str, job: &Job, ranks: u32) {
    let run = || {
        let plain = job.run().succeeded();
        let place = Place::new(name).attacked();
        let watched = job.clone().watch(Watch::Run);
        let watched = watched.variable("PLIMSOLL_OUTPUT", place.shared()).run().succeeded();
        assert_unharmed(&place, &plain, &watched, ranks);
        (plain, watched)
    };
    retry_on_noise(run, |(plain, watched)| {
        let later_s = watched.took_s() - plain.took_s();
        assert!(later_s <= LATER_S, "{later_s:.2} s later: {}", watched.transcript());
    });
}

#[test]
fn a_job_withstands_another_user() {
    if !is_root() {
        return;
    }
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, mpi.ranks()).arguments("sleep 20 10 3");
        assert_withstands("attacked", &job, mpi.ranks());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_job_on_two_nodes_withstands_another_user() {
    if !is_root() {
        return;
    }
    for mpi in each_mpi().filter(|_| nodes::available()) {
        let ranks = if mpi.ranks() > 2 { 4 } else { 2 };
        let job = Job::ranks("imbalance", mpi, ranks).arguments("sleep 20 10 3").nodes(2);
        assert_withstands("attacked-nodes", &job, ranks);
    }
}
