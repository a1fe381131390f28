use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown};

use super::*;

const TIMEOUT: Duration = MAX_TIMEOUT;
const QUICK: Duration = Duration::from_millis(300);

fn group(rank: u32, present: u32) -> GroupCount {
    GroupCount { rank, present, expected: present }
}

/// Runs the rendezvous of a job of `size` ranks with one thread per node group. Drops no mailbox
/// before all node groups have the verdict, like a job that meets afterwards.
fn run_all(directory: &Path, size: u32, groups: &[GroupCount], timeout: Duration) -> Vec<bool> {
    let calls: Vec<Rendezvous> = thread::scope(|scope| {
        let held: Vec<_> = groups
            .iter()
            .map(|ours| scope.spawn(move || run(directory, "job 1", *ours, size, timeout, None)))
            .collect();
        held.into_iter().map(|held| held.join().unwrap().unwrap()).collect()
    });
    calls.iter().map(|call| call.together).collect()
}

fn names(directory: &Path) -> BTreeSet<String> {
    list(directory).unwrap().into_iter().collect()
}

#[test]
fn companies_that_are_complete_come_together() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("not/there/yet");
    for groups in [vec![group(0, 4), group(4, 4)], (0..9).map(|c| group(c, 1)).collect()] {
        let size = groups.iter().map(|group| group.present).sum();
        let together = run_all(&place, size, &groups, TIMEOUT);
        assert!(together.iter().all(|together| *together), "{together:?}");
        assert!(names(&place).is_empty(), "{:?}", names(&place));
    }
}

#[test]
fn a_missing_rank_keeps_all_apart() {
    let directory = tempfile::tempdir().unwrap();
    // Missing ranks: one rank of the second node; the whole second node; rank 0, and with it the
    // call.
    for groups in [
        vec![group(0, 4), GroupCount { rank: 4, present: 3, expected: 4 }, group(8, 4)],
        vec![group(0, 4), group(8, 4)],
        vec![GroupCount { rank: 1, present: 3, expected: 4 }, group(4, 4), group(8, 4)],
    ] {
        let together = run_all(directory.path(), 12, &groups, QUICK);
        assert!(together.iter().all(|together| !together), "{together:?}");
        assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
    }
}

#[test]
fn complete_answers_end_the_wait() {
    let directory = tempfile::tempdir().unwrap();
    let short = GroupCount { rank: 4, present: 3, expected: 4 };
    let begin = Instant::now();
    let together = run_all(directory.path(), 8, &[group(0, 4), short], Duration::from_secs(60));
    assert_eq!(together, [false, false]);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn directories_that_are_not_shared_keep_all_apart() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = run(one.path(), "job 1", group(0, 4), 8, QUICK, None).unwrap();
    let second = run(other.path(), "job 1", group(4, 4), 8, QUICK, None).unwrap();
    assert!(!first.together && !second.together && !second.lower_seen);
    assert_eq!((first.present, second.present), (4, 4));
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    run(&file.join("x"), "job 1", group(0, 1), 2, QUICK, None).unwrap_err();
}

#[test]
fn the_lowest_company_speaks_where_rank_0_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let lower_seen = thread::scope(|scope| {
        let held = [1, 4].map(|rank| {
            let place = directory.path();
            scope.spawn(move || {
                run(place, "job 1", group(rank, 3), 8, QUICK, None).unwrap().lower_seen
            })
        });
        held.map(|held| held.join().unwrap())
    });
    assert_eq!(lower_seen, [false, true]);
}

/// Leaves the files of a run that was killed between its answers and its verdict, or between its
/// verdict and the removal of its mailboxes.
fn abandoned(directory: &Path, verdict: Option<&str>) -> PathBuf {
    let prefix = format!(".plimsoll-{:016x}-8-", fingerprint("job 1"));
    let mailbox = Mailbox::make(directory, &prefix, 0).unwrap();
    let path = mailbox.path.clone();
    std::mem::forget(mailbox);
    File::create_new(path.join("here-4-4-4-0123456789abcdef")).unwrap();
    if let Some(verdict) = verdict {
        symlink(verdict, path.join(VERDICT)).unwrap();
    }
    path
}

#[test]
fn a_killed_earlier_run_counts_as_no_answer() {
    for verdict in [None, Some(TOGETHER), Some(APART)] {
        let directory = tempfile::tempdir().unwrap();
        abandoned(directory.path(), verdict);
        let alone = run_all(directory.path(), 8, &[group(0, 4)], QUICK);
        assert_eq!(alone, [false], "rank 0 counts a dead node: {verdict:?}");
        let alone = run_all(directory.path(), 8, &[group(4, 4)], QUICK);
        assert_eq!(alone, [false], "a node believes a dead call: {verdict:?}");
    }
}

#[test]
fn a_killed_earlier_run_does_not_block_the_rendezvous() {
    for verdict in [None, Some(TOGETHER), Some(APART)] {
        let directory = tempfile::tempdir().unwrap();
        let old = abandoned(directory.path(), verdict);
        let groups = [group(0, 4), group(4, 4)];
        assert_eq!(run_all(directory.path(), 8, &groups, TIMEOUT), [true, true]);
        // The old run might still be running; only later its mailbox is known to be old.
        assert!(old.exists());
        let long_ago = SystemTime::now() - 2 * MAX_AGE;
        File::open(&old).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(run_all(directory.path(), 8, &groups, TIMEOUT), [true, true]);
        assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
    }
}

#[test]
fn jobs_side_by_side_do_not_mix() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let together = thread::scope(|scope| {
        let parts = [("job 1", 0), ("job 1", 1), ("job 2", 0), ("job 2", 1)].map(|(job, rank)| {
            scope.spawn(move || run(place, job, group(rank, 1), 2, TIMEOUT, None).unwrap())
        });
        parts.map(|part| part.join().unwrap()).map(|call| call.together)
    });
    assert_eq!(together, [true; 4]);
}

#[test]
fn the_first_verdict_is_everyones() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..100 {
        let call = Mailbox::make(directory.path(), ".plimsoll-race-", round).unwrap();
        let verdicts: BTreeSet<&str> = thread::scope(|scope| {
            let racers = [TOGETHER, APART, APART, APART].map(|wanted| {
                let call = &call;
                scope.spawn(move || settle(&call.path, call.number, wanted))
            });
            racers.map(|racer| racer.join().unwrap()).into_iter().collect()
        });
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    }
}

#[test]
fn calls_that_others_made_or_may_change_are_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let forged = directory.path().join(format!(".plimsoll-{:016x}-8-0-0", fingerprint("job 1")));
    fs::create_dir(&forged).unwrap();
    fs::set_permissions(&forged, fs::Permissions::from_mode(0o777)).unwrap();
    let is_foreign = chown(&forged, Some(65534), Some(65534)).is_ok();
    if !is_foreign {
        println!("SKIPPED: folders are given to another user by root only");
    }
    let call = run(directory.path(), "job 1", group(4, 4), 8, QUICK, None).unwrap();
    assert!(!call.together && !call.lower_seen);
    assert!(names(&forged).is_empty(), "it is not answered: {:?}", names(&forged));
    assert_eq!(fs::metadata(&call.mailbox.path).unwrap().mode() & 0o777, 0o700);
    drop(call);
    let groups = [group(0, 4), group(4, 4)];
    assert_eq!(run_all(directory.path(), 8, &groups, TIMEOUT), [true, true]);
}

/// Gives up the first rank of a node group, which may have answered before it fell silent.
fn give_up(directory: &Path, mailbox: &Mailbox) -> bool {
    super::give_up(directory, "job 1", 8, mailbox.number)
}

#[test]
fn a_group_with_a_silent_first_rank_reaches_the_common_decision() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let prefix = prefix("job 1", 8);
    let made = |rank| Mailbox::make(place, &prefix, rank).unwrap();
    let answer = |call: &Mailbox, mailbox: &Mailbox| {
        File::create_new(call.path.join(group(4, 4).name(mailbox.number))).unwrap();
    };
    // Before the answer: no node group counts on this one.
    let (call, mailbox) = (made(0), made(4));
    assert!(!give_up(place, &mailbox));
    assert_eq!(settle(&call.path, call.number, TOGETHER), APART);
    drop(call);
    // After the answer, but before the verdict.
    let call = made(0);
    answer(&call, &mailbox);
    assert!(!give_up(place, &mailbox));
    assert_eq!(settle(&call.path, call.number, TOGETHER), APART);
    drop(call);
    // After the verdict; also for rank 0's own node group, but for no other one.
    let call = made(0);
    answer(&call, &mailbox);
    assert_eq!(settle(&call.path, call.number, TOGETHER), TOGETHER);
    assert!(give_up(place, &mailbox) && give_up(place, &call) && !give_up(place, &made(4)));
}

#[test]
fn patience_grows_with_mpi_init() {
    let times = [0, 100, 2000, 60_000].map(|ms| timeout(Duration::from_millis(ms)).as_millis());
    assert_eq!(times, [1000, 1100, 3000, 5000]);
}
