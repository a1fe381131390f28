//! Spools and their digest: the same summary for every reader, and the spools that survive a death.

use std::collections::BTreeSet;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use plimsoll_spool::{FrameInfo, HEADER_BYTES, Kind, SpoolReader};
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::digests::{By, differences, digest, spools};
use plimsoll_tests::job_lock::lock_shared;
use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;

/// Returns the only folder of spools of a job.
#[track_caller]
fn folder(job: &Outcome) -> PathBuf {
    let spools = job.files_ending(".spool");
    let mut folders: Vec<_> = spools.iter().filter_map(|spool| spool.parent()).collect();
    folders.dedup();
    assert_eq!(folders.len(), 1, "not one folder: {}", job.transcript());
    folders[0].to_owned()
}

#[test]
#[ignore = "long: scripts/test --all"]
fn whoever_reads_it_says_the_same() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 20 10 3");
    let job = job.watch(Watch::Run).shares_cores().run().succeeded();
    let summary = job.summary();
    let by_ranks = [1, 2, 5].map(|ranks| By::Ranks(Mpi::OpenMpi, ranks));
    let all = [By::Threads(1), By::Threads(2), By::Threads(9)].into_iter().chain(by_ranks);
    for by in all {
        let differences = differences(summary, &digest(&folder(&job), by));
        assert!(differences.is_empty(), "{by:?}: {}", differences.join("\n"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn nodes_are_joined() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).nodes(2).arguments("sleep 20 10 3");
    let job = job.watch(Watch::Run).shares_cores().run().succeeded();
    let summary = job.summary();
    assert_eq!(spools(&folder(&job)), ["rank0.spool", "rank2.spool"], "{}", job.transcript());
    for by in [By::Threads(1), By::Threads(5), By::Ranks(Mpi::OpenMpi, 3)] {
        let differences = differences(summary, &digest(&folder(&job), by));
        assert!(differences.is_empty(), "{by:?}: {}", differences.join("\n"));
    }
}

/// Returns the ranks named in the summary: the representative of each cluster, the ranks that cause
/// a loss, one of those that wait, and the rank of each loop with described iterations.
fn representative_ranks(summary: &Summary) -> BTreeSet<u64> {
    let list = |pointer| summary.at(pointer).as_array().expect("a list").iter();
    let of_clusters = list("/clusters").filter_map(|cluster| cluster["representative"].as_u64());
    let of_losses = list("/losses").flat_map(|loss| {
        let listed = |key: &str| numbers(loss[key].as_str().expect("a rank list"));
        let waiting = listed("waiting_ranks").into_iter().take(1);
        listed("slow_ranks").into_iter().chain(waiting)
    });
    let of_loops = list("/loops").filter_map(|looped| {
        let clusters = looped["clusters"].as_array().expect("a list").iter();
        let slices = clusters.filter_map(|cluster| cluster["slices"].as_array());
        looped["rank"].as_u64().filter(|_| slices.into_iter().any(|slices| !slices.is_empty()))
    });
    of_clusters.chain(of_losses).chain(of_loops).collect()
}

#[test]
#[ignore = "long: scripts/test --all"]
fn of_a_run_with_its_report_the_ranks_stay_that_tell_of_it() {
    needs!(Mpi::OpenMpi);
    for nodes in [1, 4] {
        let job = Job::ranks("imbalance", Mpi::OpenMpi, 8).arguments("sleep 20 10 3");
        let job = if nodes > 1 { job.nodes(nodes) } else { job };
        let job = job.variable("PLIMSOLL_TRACE", "clusters").watch(Watch::Run).shares_cores();
        let job = job.run().succeeded();
        let (summary, kept) = (job.summary(), representative_ranks(job.summary()));
        assert!(kept.contains(&7) && kept.len() < 8, "{kept:?} of {}", job.text());
        // The collector of each node runs in the lowest of its ranks.
        let per_node = u64::from(8 / nodes);
        let holders: BTreeSet<u64> = kept.iter().map(|rank| rank - rank % per_node).collect();
        let files: Vec<String> = holders.iter().map(|rank| format!("rank{rank}.spool")).collect();
        assert_eq!(spools(&folder(&job)), files, "{nodes} nodes, {kept:?}");
        let digest = digest(&folder(&job), By::Threads(3));
        assert_eq!(digest.number("/run/ranks"), kept.len() as f64, "{}", job.text());
        assert_eq!(digest.at("/run/complete"), true);
        let notes = digest.at("/notes").to_string();
        assert!(notes.contains("Of 8 ranks, the samples of "), "{notes}");
        // Part of the work is missing, but the slow ranks' work is the longer part.
        let [all_s, kept_s] = [summary, &digest].map(|it| it.of_function("work_uneven").sum_s);
        let part = kept.len() as f64 / 8.0;
        assert!(kept_s > part * all_s && kept_s < all_s, "{kept_s} of {all_s} s");
    }
}

#[test]
fn where_each_rank_is_one_of_a_kind_all_stay() {
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, 2).arguments("sleep 20 10 3");
        let job = job.variable("PLIMSOLL_TRACE", "clusters").watch(Watch::Run).shares_cores();
        let job = job.run().succeeded();
        assert_eq!(representative_ranks(job.summary()), [0, 1].into(), "{}", job.text());
        let digest = digest(&folder(&job), By::Threads(1));
        let differences = differences(job.summary(), &digest);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Bytes after the last frame of a spool that was ended in order.
const TRAILER_BYTES: usize = 16;

/// Seconds after which the subject dies, and the seconds of those that may be lost.
const LIFE_S: f64 = 2.0;
const LOST_S: f64 = 1.0;

#[test]
#[ignore = "long: scripts/test --all"]
fn a_death_costs_a_second_at_most() {
    artifacts(); // built before anything is timed
    for mpi in each_mpi() {
        let deaths: &[(&str, &str)] = &[
            ("kill", "0"),
            ("fault", "1"),
            ("kill", "1"),
            ("kill", "all"),
            ("abort", "0"),
            ("terminate", "0"),
        ];
        // Each death costs seconds, and launchers differ little here.
        let (ranks, deaths) = if mpi == Mpi::Mpich { (2, &deaths[..2]) } else { (3, deaths) };
        for (how, who) in deaths.iter().copied() {
            let job = Job::ranks("dies", mpi, ranks).arguments(&format!("{how} {who} {LIFE_S}"));
            // Times are compared in seconds, most of them the launcher's.
            let job = job.shares_cores();
            let plain = job.run();
            let job = job.watch(Watch::Run);
            let run = || {
                let watched = job.run();
                let transcript = || format!("{mpi}, {how} {who}: {}", watched.transcript());
                watched.assert_fails_as(&plain, mpi);
                assert!(watched.left_behind().is_empty(), "{}", transcript());
                let joined = digest(&folder(&watched), By::Threads(2));
                assert_eq!(joined.at("/run/complete"), false, "{}", transcript());
                // No process remains that could report more of a leader that was killed. If all are
                // to be, the launcher may end the leader by SIGTERM before it kills itself.
                if how == "kill" && who != "1" {
                    let ended = joined.text("/run/ended");
                    let by_launcher = who == "all" && ended == "signal 15";
                    assert!(ended == "killed" || by_launcher, "{ended}: {}", transcript());
                }
                assert_eq!(joined.number("/run/ranks"), f64::from(ranks), "{}", transcript());
                // The digest agrees with the summaries that the job could still write.
                for summary in watched.summaries() {
                    assert_eq!(
                        summary.text("/run/ended"),
                        joined.text("/run/ended"),
                        "{}",
                        transcript()
                    );
                }
                (watched, joined)
            };
            retry_on_noise(run, |(watched, joined)| {
                let transcript = || format!("{mpi}, {how} {who}: {}", watched.transcript());
                // A launcher sometimes ends a broken job slowly, with and without the library.
                let took_s = watched.took_s();
                assert!(took_s < plain.took_s() + 3.0, "it took {took_s} s: {}", transcript());
                let elapsed_s = joined.number("/run/elapsed_s");
                assert!(elapsed_s > LIFE_S - LOST_S, "{elapsed_s} s: {}", transcript());
                // The work of every rank, since each worked until the death.
                let work = joined.of_function("work_before_death");
                let least_s = work.sum_s / f64::from(ranks);
                assert!(least_s > 0.6 * (LIFE_S - LOST_S), "{least_s} s of work: {}", transcript());
            });
        }
    }
}

#[test]
fn spools_that_do_not_belong_together_are_refused() {
    let run =
        || Job::alone("plain").arguments("burn 10 30 1").watch(Watch::Run).shares_cores().run();
    let spools = [run(), run()].map(|job| {
        let job = job.succeeded();
        fs::read(folder(&job).join("rank0.spool")).unwrap()
    });
    let mixed = Scratch::new("mixed");
    let path = mixed.path().join("x.plimsoll.d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a.spool"), &spools[0]).unwrap();
    let _job_lock = lock_shared();
    assert!(run_digest(&path).0);
    let refused = |words: &str| {
        let (status, said) = run_digest(&path);
        let names_both = said.contains("a.spool") && said.contains("b.spool");
        assert!(!status && names_both && said.contains(words), "{said}");
        fs::remove_file(path.join("b.spool")).unwrap();
    };
    fs::write(path.join("b.spool"), &spools[1]).unwrap();
    refused("spools of two runs");
    fs::write(path.join("b.spool"), &spools[0]).unwrap();
    refused("both hold rank 0");
    std::os::unix::fs::symlink("a.spool", path.join("b.spool")).unwrap();
    refused("both hold rank 0");
}

/// Returns why a digest of these bytes is incomplete; `None` if it is complete.
fn incompleteness(bytes: &[u8]) -> Option<String> {
    let scratch = Scratch::new("complete");
    fs::write(scratch.path().join("rank0.spool"), bytes).unwrap();
    let summary = digest(scratch.path(), By::Threads(1));
    let reason = summary.at("/run/incomplete").as_str().map(str::to_owned);
    assert_eq!(*summary.at("/run/complete"), reason.is_none());
    assert_eq!(summary.text("/run/ended"), "exit");
    reason
}

#[test]
fn a_damaged_spool_is_not_complete() {
    let job = Job::alone("plain").arguments("burn 10 30 1").watch(Watch::Run).shares_cores();
    let job = job.run().succeeded();
    let bytes = fs::read(folder(&job).join("rank0.spool")).unwrap();
    assert_eq!(incompleteness(&bytes), None);
    let records = SpoolReader::new(Cursor::new(&bytes)).unwrap();
    let is_record = |frame: &&FrameInfo| frame.stream.kind == Kind::Records;
    let frame = *records.frames().iter().find(is_record).expect("samples were taken");
    let mut changed = bytes.clone();
    changed[frame.offset as usize + HEADER_BYTES] ^= 0x55;
    // The rest of the other spool is undamaged, but its end is missing.
    for damaged in [&changed[..], &bytes[..bytes.len() - TRAILER_BYTES]] {
        assert_eq!(incompleteness(damaged).as_deref(), Some("the spool of rank 0 is damaged"));
    }
}

#[test]
fn a_missing_rank_makes_a_digest_incomplete() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).nodes(2).arguments("sleep 5 10 3");
    let job = job.watch(Watch::Run).shares_cores().run().succeeded();
    let folder = folder(&job);
    assert_eq!(digest(&folder, By::Threads(1)).at("/run/complete"), true);
    fs::remove_file(folder.join("rank2.spool")).unwrap();
    let rest = digest(&folder, By::Threads(1));
    assert_eq!(rest.at("/run/complete"), false, "{}", job.transcript());
    assert_eq!(rest.text("/run/incomplete"), "the spool of ranks 2-3 is missing");
    assert_eq!(rest.text("/run/ended"), "finalize");
    let notes = rest.at("/notes").to_string();
    assert!(notes.contains("Of 4 ranks, these have left a spool: 0-1."), "{notes}");
}

fn run_digest(folder: &Path) -> (bool, String) {
    let output = std::process::Command::new(&artifacts().command)
        .arg("digest")
        .arg(folder)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn files_that_are_no_spools_are_named() {
    let empty = Scratch::new("empty");
    let (status, said) = run_digest(empty.path());
    assert!(!status && said.contains("holds no spool"), "{said}");
    let (status, said) = run_digest(&empty.path().join("nowhere"));
    assert!(!status && said.contains("nowhere cannot be read"), "{said}");
    fs::write(empty.path().join("text.spool"), "This is no spool.").unwrap();
    let (status, said) = run_digest(empty.path());
    assert!(!status && said.starts_with("plimsoll: nothing could be read."), "{said}");
    assert!(said.contains("text.spool"), "{said}");
}

#[test]
fn without_a_trace_there_is_none() {
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, 2).arguments("sleep 5 5 2").options("--trace off");
        let job = job.watch(Watch::Run).shares_cores().run().succeeded();
        assert!(job.files_ending(".spool").is_empty(), "{}", job.transcript());
        assert_eq!(job.summary().number("/collection/spool_bytes"), 0.0);
        let warned = job.plimsoll_lines().iter().any(|line| line.contains("kill -9"));
        assert!(warned, "{}", job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_full_disk_stops_the_spool_and_not_the_run() {
    let full = Scratch::new("full");
    let place = full.path().join("small");
    fs::create_dir(&place).unwrap();
    if !mount(&place) {
        eprintln!("no file system can be mounted here: not tested");
        return;
    }
    let filler = fs::write(place.join("filler"), vec![0; 900 << 10]);
    let job = Job::alone("plain").arguments("burn 10 200 1");
    let job = job.variable("PLIMSOLL_OUTPUT", &place).options("--period 100us");
    let watched = job.watch(Watch::Run).run();
    let entries = fs::read_dir(&place).into_iter().flatten().flatten();
    // Names only: an open entry would keep the file system busy.
    let left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    let shown = format!("{left:?} {}", watched.transcript());
    unmount(&place);
    filler.unwrap();
    assert!(watched.status().success(), "{shown}");
    let says = |words: &str| watched.plimsoll_messages().iter().any(|line| line.contains(words));
    assert!(says("report: ") && says("the disk is nearly full"), "{shown}");
}

fn mount(place: &Path) -> bool {
    let size = ["-t", "tmpfs", "-o", "size=1m", "none"];
    std::process::Command::new("mount").args(size).arg(place).status().is_ok_and(|s| s.success())
}

fn unmount(place: &Path) {
    let unmounted = std::process::Command::new("umount").arg(place).status();
    assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", place.display());
}
