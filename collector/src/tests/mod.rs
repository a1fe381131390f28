//! Profiles of synthetic processes: what goes into the rings is known exactly, so what comes out
//! is, too.

mod attaching;
mod courses;
mod created_threads;
mod deaths;
mod kept;
mod partition;
mod paths;
mod phases;
mod regions;
mod series;
mod spool_corpus;
mod spooled;
mod streams;
mod subject;
mod threads;

use std::path::Path;

use crate::digest::{Digest, spools};
use crate::profile::{LocationKind, NodeValue, PhaseProfile, ProcessProfile, TimeBin, TimeSeries};
use crate::spooling::meta::Meta;
use crate::{Collector, Options};
use plimsoll_spool::{Kind, SpoolReader, Step};
use subject::{STAMP_NS, Subject};

/// Collects a subject from beginning to end: all of its run is in the profile, and a digest of its
/// spool says the same.
fn collect(subject: &Subject) -> ProcessProfile {
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    let profile = collector.finish(key).unwrap();
    assert_eq!(spool.digest(&collector), profile);
    assert_partition(&profile);
    profile
}

/// A spool in a folder that vanishes.
struct Spool {
    folder: tempfile::TempDir,
}

/// Begins one.
fn spool(collector: &Collector) -> Spool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank0");
    collector.spool(Box::new(|| Ok(path)), 1 << 30).unwrap();
    Spool { folder }
}

impl Spool {
    /// Ends it, and replays its only process.
    fn digest(&self, collector: &Collector) -> ProcessProfile {
        let outcome = collector.end_spool().unwrap();
        assert!(outcome.trouble.is_none() && outcome.lost == 0, "{outcome:?}");
        let paths = spools(self.folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(self.folder.path()).unwrap().count(), 1);
        let mut digest = Digest::open(&paths[0]).unwrap();
        digest.move_modules();
        assert_eq!(digest.bytes(), outcome.bytes);
        let profile = digest.profile(0, |_| {}).unwrap().unwrap();
        assert_eq!(digest.damages(), [""; 0]);
        profile
    }
}

/// Ids of the addresses with a name in a spool, in the order in which names were written.
pub(crate) fn ids_of_names(spool: &Path) -> Vec<u32> {
    let mut reader = SpoolReader::open(spool).unwrap();
    let (mut walk, mut ids) = (reader.walk(), Vec::new());
    while let Some(step) = walk.next().unwrap() {
        let Step::Frame(frame) = step else { panic!("{step:?}") };
        if frame.info.stream.kind == Kind::Meta
            && let Meta::Names(names) = frame.meta().unwrap()
        {
            ids.extend(names.iter().map(|name| name.id));
        }
    }
    ids
}

/// Functions from the outermost to the innermost frame.
fn path(profile: &ProcessProfile, node: u32) -> Vec<String> {
    let tree = &profile.tree;
    let function = |node| tree.frame_of(node).function.clone();
    let mut path: Vec<String> = tree.outwards(node).map(function).collect();
    path.reverse();
    path
}

/// The last two functions of a path, for short.
fn short(profile: &ProcessProfile, node: u32) -> String {
    let path = path(profile, node);
    path[path.len().saturating_sub(2)..].join(">")
}

/// A phase's exclusive times in stamps, by path.
fn times(profile: &ProcessProfile, phase: &PhaseProfile) -> Vec<(String, u64)> {
    let mut times: Vec<(String, u64)> = phase
        .values
        .iter()
        .filter(|(_, value)| value.exclusive_ns > 0)
        .map(|(node, value)| (path(profile, *node).join(">"), value.exclusive_ns / STAMP_NS))
        .collect();
    times.sort();
    times
}

/// The value of the context with this path in a phase.
fn value(profile: &ProcessProfile, phase: &PhaseProfile, wanted: &str) -> NodeValue {
    let mut sum = NodeValue::default();
    for (node, value) in &phase.values {
        if path(profile, *node).join(">") == wanted {
            sum.add(value);
        }
    }
    sum
}

fn pairs(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(path, time)| ((*path).to_owned(), *time)).collect()
}

/// Every stamp of the communicating thread's run is in exactly one context of one phase.
fn assert_partition(profile: &ProcessProfile) {
    let mut sum = 0;
    for phase in &profile.phases {
        let in_phase: u64 = phase.values.iter().map(|(_, value)| value.exclusive_ns).sum();
        assert_eq!(in_phase, phase.duration_ns);
        sum += in_phase;
        for (node, value) in &phase.values {
            assert!((*node as usize) < profile.tree.nodes.len());
            assert!(value.run_delay_ns <= value.exclusive_ns);
        }
    }
    assert_eq!(sum, profile.elapsed_ns);
    let range = time_in_bins(&profile.times);
    assert!(range.contains(&profile.elapsed_ns), "{range:?} ns in bins of {}", profile.elapsed_ns);
    for row in &profile.rows.rows {
        assert!((row.phase as usize) < profile.phases.len());
        assert!(row.values.iter().map(|(_, time)| time).sum::<u64>() <= row.duration_ns);
    }
    for (index, node) in profile.tree.nodes.iter().enumerate() {
        assert!(node.parent.is_none_or(|parent| (parent as usize) < index));
        assert!((node.frame as usize) < profile.tree.frames.len());
    }
}

/// Every stamp of a single thread's life is in exactly one bin.
fn assert_partition_of_threads(profile: &ProcessProfile) {
    for location in &profile.thread_locations.locations {
        let whole = location.values.iter().map(|(_, value)| value.exclusive_ns).sum::<u64>();
        // The values are rounded down to nanoseconds as well.
        let range = whole..=whole + location.values.len() as u64;
        let bins = time_in_bins(&location.times);
        let meet = bins.start() <= range.end() && range.start() <= bins.end();
        let is_single = !matches!(location.kind, LocationKind::Class | LocationKind::Rest);
        assert!(is_single || location.times.bins.is_empty(), "{location:?}");
        assert!(meet || !is_single, "{range:?} ns in bins of {bins:?}: {location:?}");
    }
}

/// The time in all bins, in nanoseconds; each part of a bin is rounded down.
fn time_in_bins(times: &TimeSeries) -> std::ops::RangeInclusive<u64> {
    let of_bin = |bin: &TimeBin| {
        let values = bin.values.iter().map(|(_, time)| time).sum::<u64>();
        values + bin.other_work_ns + bin.other_calls_ns
    };
    let in_bins: u64 = times.bins.iter().map(of_bin).sum();
    let parts: usize = times.bins.iter().map(|bin| bin.values.len() + 2).sum();
    in_bins..=in_bins + parts as u64
}
