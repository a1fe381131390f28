//! Spools after a crash of their collector, or with damaged bytes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::subject::{BEGIN, PERIOD, Subject, Writer};
use super::{Spool, ids_of_names, path, spool, times};
use crate::digest::{Digest, spools};
use crate::profile::ProcessProfile;
use crate::{Collector, Options};
use plimsoll_spool::{Kind, SpoolReader};

/// A process that works in turns, collected and spooled.
struct Run<'s> {
    w: Writer<'s>,
    collector: Collector,
    spool: Spool,
    stacks: [[u32; 2]; 2],
    now: u64,
}

/// Samples of a turn: half of them in each of two functions.
const TURN: u64 = 10;

/// The process, and the stacks of its two functions.
fn subject() -> (Subject, [[u32; 2]; 2]) {
    let mut subject = Subject::new(1 << 14);
    let main = subject.code(0x1000);
    let stacks = [0x2000, 0x3000].map(|function| [main, subject.code(function)]);
    (subject, stacks)
}

impl<'s> Run<'s> {
    fn new((subject, stacks): &'s (Subject, [[u32; 2]; 2])) -> Self {
        let collector = Collector::new(Options::default());
        let spool = spool(&collector);
        subject.attach(&collector).unwrap();
        Self { w: subject.writer(0), collector, spool, stacks: *stacks, now: BEGIN }
    }

    /// The process takes a turn, and is read.
    fn poll_once(&mut self) {
        self.turn_unread();
        self.collector.round();
    }

    /// The process takes a turn.
    fn turn_unread(&mut self) {
        for index in 0..TURN {
            self.now += PERIOD;
            self.w.sample(self.now, &self.stacks[usize::from(index >= TURN / 2)]);
        }
    }

    /// Returns the digest of the files in their present state.
    fn digest(&self) -> (ProcessProfile, Vec<String>) {
        digest(self.spool.folder.path())
    }
}

fn digest(folder: &Path) -> (ProcessProfile, Vec<String>) {
    let mut digest = Digest::open(&spools(folder).unwrap()[0]).unwrap();
    let profile = digest.profile(0, |_| {}).unwrap().unwrap();
    (profile, digest.damages().to_vec())
}

/// Stamps in each of the two functions.
fn work(profile: &ProcessProfile) -> [u64; 2] {
    let all = times(profile, &profile.phases[0]);
    ["app+0x1000>app+0x2000", "app+0x1000>app+0x3000"]
        .map(|path| all.iter().filter(|(of, _)| of == path).map(|(_, time)| time).sum())
}

#[test]
fn whatever_was_flushed_is_there_after_a_death() {
    let subject = subject();
    let mut run = Run::new(&subject);
    let mut turns = 0;
    // Into the journal, then into the spool, and on in a new journal; each state is what a death
    // would leave.
    for settled in [false, false, true, false, true, true, false, false] {
        run.poll_once();
        turns += 1;
        run.collector.flush_spool(settled);
        let (profile, damages) = run.digest();
        assert_eq!(damages, [""; 0]);
        let [one, other] = work(&profile);
        // Neighbouring samples share the time between them. The run continues after the last sample
        // until the last drain.
        let half = turns * TURN / 2 * PERIOD;
        assert_eq!(one, half + PERIOD / 2);
        assert!(other >= half - PERIOD / 2, "{other}");
        assert_eq!(profile.collection.lost, 0);
    }
}

#[test]
fn the_journal_is_less_than_a_second_behind_at_any_age_of_the_run() {
    let subject = Subject::new(1 << 12);
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    subject.attach(&collector).unwrap();
    let journal = spool.folder.path().join("rank0.journal");
    let begin = Instant::now();
    let (mut now, mut flushed, mut bytes) = (begin, begin, 0);
    while now < begin + Duration::from_secs(20) {
        let pause = collector.poll_once(now);
        let length = fs::metadata(&journal).map_or(0, |file| file.len());
        if length > bytes {
            (flushed, bytes) = (now, length);
        }
        now += pause;
        assert!(now - flushed < Duration::from_secs(1), "after {:?}", now - begin);
    }
}

/// Action after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    Read,
    Journal,
    Flush,
    Settle,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn it_is_all_the_same_when_rings_are_read(
        steps in prop::collection::vec(
            prop_oneof![
                Just(Then::Nothing), Just(Then::Read), Just(Then::Journal), Just(Then::Flush),
                Just(Then::Settle),
            ],
            1..12,
        ),
    ) {
        let subject = subject();
        let mut run = Run::new(&subject);
        // Threads are known from the first reading on.
        run.poll_once();
        for then in &steps {
            run.turn_unread();
            match then {
                Then::Nothing => {}
                Then::Read => {
                    run.collector.round();
                }
                Then::Journal => run.collector.flush_unread(),
                Then::Flush | Then::Settle => {
                    run.collector.round();
                    run.collector.flush_spool(*then == Then::Settle);
                }
            }
        }
        run.collector.flush_unread();
        let (profile, damages) = run.digest();
        prop_assert_eq!(damages, [""; 0]);
        let half = (steps.len() as u64 + 1) * TURN / 2 * PERIOD;
        let [one, other] = work(&profile);
        prop_assert_eq!(one, half + PERIOD / 2);
        prop_assert!(other >= half - PERIOD / 2, "{}", other);
        prop_assert_eq!(profile.collection.lost, 0);
    }
}

/// Threads are alike but for one sample, each in a function of its own, and call more often than
/// calls are kept in order: their cluster is a set of both functions.
#[test]
fn it_is_all_the_same_which_thread_is_read_first() {
    const CALLS: u64 = 150;
    let mut subject = Subject::new(1 << 14);
    let codes = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000].map(|offset| subject.code(offset));
    let [first, second, common, idle, work] = codes;
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    (1..3).for_each(|index| subject.begin_thread(index, 0));
    for (index, own) in [(2, second), (1, first)] {
        let mut w = subject.writer(index);
        let functions = std::iter::once(own).chain(std::iter::repeat_n(common, CALLS as usize));
        for (turn, function) in (0..).zip(functions) {
            let at = BEGIN + 2 * turn * PERIOD;
            w.sample(at + PERIOD, &[function, work]);
            w.sample(at + 2 * PERIOD, &[idle]);
        }
        collector.round();
    }
    subject.end_at(BEGIN + (2 * CALLS + 3) * PERIOD);
    let profile = collector.finish(key).unwrap();
    let clusters = &profile.workers.clusters;
    assert_eq!(clusters.iter().map(|it| it.tree.count()).collect::<Vec<_>>(), [2]);
    let contexts = |profile: &ProcessProfile| -> Vec<Vec<String>> {
        let nodes = profile.workers.keys.iter().filter_map(|key| key.node);
        let mut paths: Vec<_> = nodes.map(|node| path(profile, node)).collect();
        paths.sort();
        paths
    };
    assert_eq!(contexts(&spool.digest(&collector)), contexts(&profile));
}

#[test]
fn a_journal_says_where_its_threads_stand() {
    let subject = subject();
    let mut run = Run::new(&subject);
    run.poll_once();
    run.collector.flush_spool(true);
    run.poll_once();
    run.collector.flush_spool(true);
    let path = run.spool.folder.path().join("rank0.spool");
    run.turn_unread();
    run.collector.flush_unread();
    let [all, _] = work(&run.digest().0);
    // The last records before the journal are damaged: those in it count all the same.
    let mut damaged = fs::read(&path).unwrap();
    let frames = SpoolReader::open(&path).unwrap().frames().to_vec();
    let last = frames.iter().rfind(|frame| frame.stream.kind == Kind::Records).unwrap();
    damaged[last.offset as usize + 40] ^= 1;
    fs::write(&path, damaged).unwrap();
    let [one, _] = work(&run.digest().0);
    let turn = TURN / 2 * PERIOD;
    assert!((turn - PERIOD..=turn + PERIOD).contains(&(all - one)), "{one} of {all}");
}

#[test]
fn a_journal_of_a_round_that_is_in_the_spool_is_passed_over() {
    let subject = subject();
    let mut run = Run::new(&subject);
    run.poll_once();
    run.collector.flush_spool(false);
    let journal = run.spool.folder.path().join("rank0.journal");
    let old = fs::read(&journal).unwrap();
    run.collector.flush_spool(true);
    let new = fs::read(&journal).unwrap();
    let before = work(&run.digest().0);
    // Death between the two: the spool has it all, and the journal still, too.
    fs::write(&journal, old).unwrap();
    assert_eq!(work(&run.digest().0), before);
    // Death while the journal began anew.
    for length in [0, 7, new.len() / 2] {
        fs::write(&journal, &new[..length]).unwrap();
        assert_eq!(work(&run.digest().0), before);
    }
}

#[test]
fn a_damaged_frame_costs_no_more_than_itself() {
    let subject = subject();
    let mut run = Run::new(&subject);
    for _ in 0..6 {
        run.poll_once();
        run.collector.flush_spool(true);
    }
    run.poll_once();
    run.collector.flush_spool(false);
    let path = run.spool.folder.path().join("rank0.spool");
    let whole = fs::read(&path).unwrap();
    let [all, _] = work(&run.digest().0);
    let frames = SpoolReader::open(&path).unwrap().frames().to_vec();
    let frames: Vec<_> = frames.iter().filter(|f| f.stream.kind == Kind::Records).collect();
    assert_eq!(frames.len(), 6);
    for frame in frames {
        let mut damaged = whole.clone();
        damaged[frame.offset as usize + 40] ^= 1;
        fs::write(&path, damaged).unwrap();
        let (profile, damages) = run.digest();
        assert!(damages.iter().any(|damage| damage.contains("payload")), "{damages:?}");
        let [one, _] = work(&profile);
        let lost = all - one;
        // A turn's half, and the interval that is open at either end.
        let turn = TURN / 2 * PERIOD;
        assert!((turn - PERIOD..=turn + PERIOD).contains(&lost), "{lost} of {all}");
        assert!(profile.collection.lost > 0);
    }
}

#[test]
fn each_name_is_written_once() {
    let subject = subject();
    let mut run = Run::new(&subject);
    run.poll_once();
    // Looks up the symbols of all addresses first, and then their structure.
    run.collector.conclude();
    (0..3).for_each(|_| run.collector.flush_spool(true));
    let mut ids = ids_of_names(&run.spool.folder.path().join("rank0.spool"));
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn names_do_not_need_the_files_that_they_came_from() {
    let subject = subject();
    let mut run = Run::new(&subject);
    run.poll_once();
    run.collector.flush_spool(true);
    let mut digest = Digest::open(&spools(run.spool.folder.path()).unwrap()[0]).unwrap();
    digest.move_modules();
    let profile = digest.profile(0, |_| {}).unwrap().unwrap();
    assert!(work(&profile)[0] > 0, "{:?}", profile.tree.frames);
}
