//! Runs that end with the first death on their node.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::subject::{BEGIN, STAMP_NS, Subject};
use super::{assert_partition, pairs, spool, times};
use crate::digest::{Digest, spools};
use crate::profile::PhaseProfile;
use crate::{Collector, Options};

/// Stamps of a run before it ends with a death.
const DEATH: u64 = 400;

/// A process that waits in a call, entered 50 stamps after its begin, far beyond the death of
/// another one.
fn waiting() -> Subject {
    let mut subject = Subject::new(1 << 12);
    let (main, barrier) = (subject.code(0x1000), subject.call("MPI_Barrier"));
    let mut w = subject.writer(0);
    w.slot(0, &[main, barrier]);
    w.sample(BEGIN + 40, &[main]);
    let thread = &subject.area(0).thread;
    thread.open_stamp.store(BEGIN + 50, Ordering::Relaxed);
    thread.open_slot.store(1, Ordering::Relaxed);
    subject
}

/// A process that announces that it ends before its time.
fn ending() -> Subject {
    let mut subject = Subject::new(1 << 12);
    let main = subject.code(0x2000);
    subject.writer(0).sample(BEGIN + 390, &[main]);
    subject.end_at(BEGIN + DEATH);
    subject.header().ending.store(9, Ordering::Release);
    subject
}

const WAITED: [(&str, u64); 2] = [("app+0x1000", 50), ("app+0x1000>MPI_Barrier", DEATH - 50)];

#[test]
fn waiting_for_the_dead_is_not_counted() {
    let (waiting, ending) = (waiting(), ending());
    let (mut child, start_time) = ending.hand_over();
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let waits = waiting.attach(&collector).unwrap();
    let ends = collector.attach(child.id(), 0, start_time).unwrap();
    let death = collector.end_at_first_death().expect("a process ends");
    assert_eq!((death.key, death.at_ns), (ends, DEATH * STAMP_NS));
    assert!(death.outlived_ns > 0);
    let profiles = [waits, ends].map(|key| collector.finish(key).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    for profile in &profiles {
        assert_partition(profile);
        assert_eq!(profile.elapsed_ns, DEATH * STAMP_NS);
    }
    assert_eq!(times(&profiles[0], &profiles[0].phases[0]), pairs(&WAITED));
    collector.end_spool().unwrap();
    let mut digest = Digest::open(&spools(spool.folder.path()).unwrap()[0]).unwrap();
    for (number, profile) in (0..).zip(&profiles) {
        assert_eq!(digest.profile(number, |_| {}).unwrap().as_ref(), Some(profile));
    }
}

#[test]
fn the_last_instances_before_a_death_are_phases_of_their_own() {
    let mut subject = Subject::new(1 << 14);
    let (main, barrier) = (subject.code(0x1000), subject.call("MPI_Barrier"));
    let mut w = subject.writer(0);
    w.slot(1, &[main, barrier]);
    // The last five lie after the death.
    (0..45).for_each(|i| w.exit(BEGIN + 9 + 10 * i, 1, 5, Some(i)));
    let ending = ending();
    let (mut child, start_time) = ending.hand_over();
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    collector.attach(child.id(), 0, start_time).unwrap();
    collector.end_at_first_death().expect("a process ends");
    let profile = collector.finish(key).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_partition(&profile);
    let shape = |it: &PhaseProfile| (it.ends_in.is_some(), it.first_index, it.instances);
    let phases: Vec<_> = profile.phases.iter().map(shape).collect();
    let last = (24..40).map(|index| (true, index, 1));
    let all = [(true, 0, 1), (true, 1, 23)].into_iter().chain(last).chain([(false, 40, 1)]);
    assert_eq!(phases, all.collect::<Vec<_>>());
    assert!(profile.rows.rows.iter().all(|row| {
        let phase = &profile.phases[row.phase as usize];
        (phase.first_index..=phase.last_index).contains(&row.index)
    }));
    collector.end_spool().unwrap();
    let mut digest = Digest::open(&spools(spool.folder.path()).unwrap()[0]).unwrap();
    digest.break_off();
    assert_eq!(digest.profile(0, |_| {}).unwrap(), Some(profile));
}

#[test]
fn without_a_death_a_run_goes_on() {
    let [one, other] = [waiting(), waiting()];
    let (mut child, start_time) = other.hand_over();
    let collector = Collector::new(Options::default());
    let key = one.attach(&collector).unwrap();
    collector.attach(child.id(), 0, start_time).unwrap();
    assert_eq!(collector.end_at_first_death(), None);
    // A regular end is no death.
    other.end_at(BEGIN + DEATH);
    assert_eq!(collector.end_at_first_death(), None);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(collector.end_at_first_death(), None);
    one.end_at(BEGIN + 2 * DEATH);
    assert_eq!(collector.finish(key).unwrap().elapsed_ns, 2 * DEATH * STAMP_NS);
}

#[test]
fn a_killed_process_is_dead_from_when_it_was_last_seen_alive() {
    let [one, other] = [waiting(), waiting()];
    let (mut child, start_time) = other.hand_over();
    let collector = Collector::new(Options::default());
    one.attach(&collector).unwrap();
    let key = collector.attach(child.id(), 0, start_time).unwrap();
    assert_eq!(collector.end_at_first_death(), None);
    child.kill().unwrap();
    // Nobody has waited for it yet.
    let death = loop {
        match collector.end_at_first_death() {
            None => std::thread::yield_now(),
            Some(death) => break death,
        }
    };
    child.wait().unwrap();
    assert_eq!(death.key, key);
}

#[test]
fn a_digest_ends_a_run_where_it_is_told_to() {
    let (waiting, ending) = (waiting(), ending());
    let (mut child, start_time) = ending.hand_over();
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    waiting.attach(&collector).unwrap();
    collector.attach(child.id(), 0, start_time).unwrap();
    // The collector finds the death, and is killed before it could report.
    collector.poll_once(Instant::now());
    collector.flush_spool(false);
    child.kill().unwrap();
    child.wait().unwrap();
    let path = &spools(spool.folder.path()).unwrap()[0];
    for by_stamp in [true, false] {
        let mut digest = Digest::open(path).unwrap();
        let [waits, ends] = digest.processes()[..] else { panic!("two processes") };
        assert!(!waits.died && !waits.ended && ends.died && !ends.ended);
        assert_eq!((ends.last.stamp, ends.last.at_ns), (BEGIN + DEATH, DEATH * STAMP_NS));
        match by_stamp {
            true => digest.end_at(waits.number, ends.last.stamp),
            false => digest.end_after(waits.number, ends.last.at_ns),
        }
        let profile = digest.profile(waits.number, |_| {}).unwrap().unwrap();
        assert_partition(&profile);
        assert_eq!(times(&profile, &profile.phases[0]), pairs(&WAITED));
        assert_eq!(
            digest.profile(ends.number, |_| {}).unwrap().unwrap().elapsed_ns,
            ends.last.at_ns
        );
    }
}
