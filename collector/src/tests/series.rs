//! Series of samples: kept if calls are not measured.

use std::sync::atomic::Ordering;

use super::collect;
use super::subject::{BEGIN, PERIOD, STAMP_NS, Subject};
use crate::profile::{ProcessProfile, Series};

/// A process without measured calls.
fn unmeasured() -> Subject {
    let subject = Subject::new(1 << 14);
    subject.header().only_samples.store(1, Ordering::Relaxed);
    subject
}

/// Returns the innermost function of each entry, with the begin of its time and its first and last
/// sample, in stamps since the begin.
fn sights(profile: &ProcessProfile) -> Vec<(String, [u64; 4])> {
    let series = profile.series.as_ref().expect("the samples were kept");
    let tree = &profile.tree;
    let name = |node: u32| tree.frames[tree.nodes[node as usize].frame as usize].function.clone();
    let stamps = |ns: u64| ns / STAMP_NS;
    let times = |it: &crate::profile::Sight| {
        [it.earliest_ns, it.at_ns, it.latest_ns, it.last_ns].map(stamps)
    };
    series.sights.iter().map(|it| (name(it.node), times(it))).collect()
}

fn seen(name: &str, times: [u64; 4]) -> (String, [u64; 4]) {
    (name.to_owned(), times)
}

#[test]
fn time_between_two_samples_is_shared_and_what_goes_on_is_one_sight() {
    let mut subject = unmeasured();
    let [main, work, more] = [0x1000, 0x2000, 0x3000].map(|at| subject.code(at));
    let mut w = subject.writer(0);
    w.sample(BEGIN + PERIOD, &[main, work]);
    w.tick(0, &[main, work]);
    w.tick(0, &[main, work]);
    w.tick(0, &[main, more]);
    subject.end_at(BEGIN + 5 * PERIOD);
    let profile = collect(&subject);
    let work = seen("app+0x2000", [0, 0, 100, 300]);
    assert_eq!(sights(&profile), [work, seen("app+0x3000", [300, 350, 400, 400])]);
    let series = profile.series.unwrap();
    assert!(series.is_whole && series.sites.is_empty());
    assert_eq!(series.sights.iter().map(|it| it.samples).collect::<Vec<_>>(), [3, 1]);
    // A new call of another function; the one before it is not known to have begun in the run.
    assert_eq!(series.sights[1].begun.len(), 0);
}

#[test]
fn missing_records_are_no_end_and_a_pause_ends_all() {
    let mut subject = unmeasured();
    let [main, work] = [0x1000, 0x2000].map(|at| subject.code(at));
    let mut w = subject.writer(0);
    w.sample(BEGIN + PERIOD, &[main, work]);
    w.mark_gap(3);
    w.sample(BEGIN + 5 * PERIOD, &[main, work]);
    // Of what has lost its outer part nothing is known, nor of what builds upon it.
    w.truncated(BEGIN + 6 * PERIOD, &[work]);
    w.sample(BEGIN + 7 * PERIOD, &[work, main]);
    subject.end_at(BEGIN + 8 * PERIOD);
    assert_eq!(sights(&collect(&subject)), [seen("app+0x2000", [0, 0, 100, 500])]);

    let mut subject = unmeasured();
    let main = subject.code(0x1000);
    let mut w = subject.writer(0);
    w.sample(BEGIN + PERIOD, &[main]);
    w.pause(BEGIN + 2 * PERIOD);
    w.resume(BEGIN + 3 * PERIOD);
    w.sample(BEGIN + 4 * PERIOD, &[main]);
    subject.end_at(BEGIN + 5 * PERIOD);
    assert_eq!(collect(&subject).series, Some(Series { stride: 1, ..Series::default() }));
}

#[test]
fn where_calls_are_measured_samples_are_not_kept() {
    let mut subject = Subject::new(1 << 14);
    let main = subject.code(0x1000);
    subject.writer(0).sample(BEGIN + PERIOD, &[main]);
    subject.end_at(BEGIN + 2 * PERIOD);
    assert_eq!(collect(&subject).series, None);
}
