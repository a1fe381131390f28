//! Spools reduced to some processes after the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::json;

use super::paths::two_places;
use super::subject::{BEGIN, PERIOD, Subject};
use super::{Spool, spool};
use crate::digest::{Digest, spools};
use crate::profile::ProcessProfile;
use crate::spooling::meta::Meta;
use crate::{Collector, Options, SpoolSelection, keep};
use plimsoll_spool::{Kind, SpoolError, SpoolReader, Step};

/// Processes of one collector, with their ids and what it has seen of them.
struct Run {
    spool: Spool,
    path: PathBuf,
    processes: Vec<(u32, ProcessProfile)>,
}

/// Three processes: each works longer than the previous one, and runs a function common to all and
/// one of its own.
fn run() -> Run {
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    collector.note(json!("of three"));
    let mut running: Vec<(Child, Subject, _)> = Vec::new();
    for index in 1..=3u64 {
        let mut subject = Subject::new(1 << 14);
        let (one, other) = two_places(&mut subject);
        let stack = [one, other, subject.code(0x1000 * (1 + index))];
        let (child, start_time) = subject.hand_over();
        let key = collector.attach(child.id(), 0, start_time).unwrap();
        let mut w = subject.writer(0);
        for sample in 1..=10 * index {
            w.sample(BEGIN + sample * PERIOD, &stack);
        }
        subject.end_at(BEGIN + 40 * PERIOD);
        running.push((child, subject, key));
    }
    collector.round();
    let each = running.into_iter().map(|(mut child, _subject, key)| {
        let profile = collector.finish(key).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        (child.id(), profile)
    });
    let processes = each.collect();
    let path = collector.end_spool().unwrap().path.unwrap();
    Run { spool, path, processes }
}

#[test]
fn what_stays_is_as_it_was() {
    let Run { spool, path, processes } = run();
    let [file] = &spools(spool.folder.path()).unwrap()[..] else { panic!("one spool") };
    let before = fs::metadata(file).unwrap().len();
    let (pid, profile) = &processes[1];
    keep(&path, |note| {
        assert_eq!(note, json!("of three"));
        Ok(SpoolSelection { pids: [*pid].into(), note: json!("of one") })
    })
    .unwrap();
    let mut digest = Digest::open(file).unwrap();
    let [of] = digest.processes()[..] else { panic!("{:?}", digest.processes()) };
    assert_eq!((of.pid, of.ended), (*pid, true));
    assert_eq!(digest.note(), Some(&json!("of one")));
    digest.move_modules();
    assert_eq!(digest.profile(of.number, |_| {}).unwrap().as_ref(), Some(profile));
    assert_eq!(digest.damages(), [""; 0]);
    assert!(digest.bytes() < before, "{} of {before} bytes", digest.bytes());
    assert_eq!(fs::read_dir(spool.folder.path()).unwrap().count(), 1);
}

/// Returns the number of functions in a spool, and how many of them have their module there.
pub(super) fn functions(file: &Path) -> (usize, usize) {
    let mut reader = SpoolReader::open(file).unwrap();
    let (mut functions, mut modules) = (Vec::new(), BTreeSet::new());
    let mut walk = reader.walk();
    while let Some(step) = walk.next().unwrap() {
        let Step::Frame(frame) = step else { panic!("{step:?}") };
        if frame.info.stream.kind != Kind::Meta {
            continue;
        }
        match frame.meta().unwrap() {
            Meta::Functions(given) => functions.extend(given),
            // Addresses count them from 1 on.
            Meta::Modules(given) => {
                modules.extend(given.iter().map(|it| (it.process, it.index + 1)))
            }
            _ => {}
        }
    }
    let known = functions.iter().filter(|it| modules.contains(&(it.process, it.module))).count();
    (functions.len(), known)
}

#[test]
fn functions_stay_whichever_process_came_through_them_first() {
    let Run { spool, path, processes } = run();
    let file = &spools(spool.folder.path()).unwrap()[0];
    let (given, known) = functions(file);
    assert!(given > 0 && known == given, "{known} of {given}");
    keep(&path, |note| Ok(SpoolSelection { pids: [processes[2].0].into(), note })).unwrap();
    assert_eq!(functions(file), (given, given));
}

#[test]
fn without_a_process_nothing_stays() {
    let Run { spool, path, .. } = run();
    keep(&path, |note| Ok(SpoolSelection { pids: [1].into(), note })).unwrap();
    assert_eq!(fs::read_dir(spool.folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_read_stays_as_a_whole() {
    let Run { spool, path, processes } = run();
    let file = &spools(spool.folder.path()).unwrap()[0];
    let whole = fs::read(file).unwrap();
    let some = |note| Ok(SpoolSelection { pids: [processes[0].0].into(), note });
    let mut refused = 0;
    for place in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x20;
        fs::write(file, &damaged).unwrap();
        if keep(&path, some).is_err() {
            assert_eq!(fs::read(file).unwrap(), damaged, "byte {place}");
            refused += 1;
        } else {
            // It was another process's, or the index's.
            let mut digest = Digest::open(file).unwrap();
            digest.move_modules();
            let profile = digest.profile(0, |_| {}).unwrap();
            assert_eq!(profile.as_ref(), Some(&processes[0].1), "byte {place}");
        }
        assert_eq!(fs::read_dir(spool.folder.path()).unwrap().count(), 1, "byte {place}");
    }
    assert!(refused > whole.len() / 7 / 4, "{refused} times of {} bytes", whole.len());
    fs::write(file, &whole).unwrap();
    let outcome = keep(&path, |_| Err(SpoolError::NotASpool));
    assert!(matches!(outcome, Err(SpoolError::NotASpool)), "{outcome:?}");
    assert_eq!(fs::read(file).unwrap(), whole);
}

#[test]
fn a_link_that_was_planted_where_the_new_spool_goes_is_not_followed() {
    let Run { spool, path, processes } = run();
    let victim = spool.folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, path.with_extension("kept")).unwrap();
    let [file] = &spools(spool.folder.path()).unwrap()[..] else { panic!("one spool") };
    let before = fs::read(file).unwrap();
    let kept = keep(&path, |_| {
        Ok(SpoolSelection { pids: [processes[1].0].into(), note: json!("of one") })
    });
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(matches!(kept, Err(SpoolError::Io(_))), "{kept:?}");
    assert_eq!(fs::read(file).unwrap(), before);
}
