//! Law of the collector: for any records of several threads, every stamp of a thread's run is
//! attributed once.

use proptest::prelude::*;

use super::subject::{BEGIN, STAMP_NS, Subject, Writer};
use super::{assert_partition, assert_partition_of_threads, path};
use crate::profile::{ProcessProfile, TimeBin};
use crate::{Collector, Options};

#[derive(Clone, Debug)]
enum Step {
    Sample { after: u64, stack: Vec<u8>, run_delay: Option<u64> },
    Tick { delay: i8, stack: Vec<u8> },
    Inside { after: u64, slot: u8, entered: u64 },
    Exit { after: u64, slot: u8, duration: u64, sync: bool },
    Tally { slot: u8, count: u64, sum: u64 },
    Announce { slot: u8, stack: Vec<u8> },
    Pause { after: u64, length: u64 },
    Lose { after: u64 },
    Round,
}

fn step() -> impl Strategy<Value = Step> {
    let stack = || prop::collection::vec(0u8..6, 0..5);
    let (after, slot) = (0u64..400, 0u8..3);
    prop_oneof![
        4 => (after.clone(), stack(), prop::option::of(0u64..600))
            .prop_map(|(after, stack, run_delay)| Step::Sample { after, stack, run_delay }),
        2 => (-1i8..5, stack()).prop_map(|(delay, stack)| Step::Tick { delay, stack }),
        2 => (after.clone(), slot.clone(), 0u64..500)
            .prop_map(|(after, slot, entered)| Step::Inside { after, slot, entered }),
        4 => (after.clone(), slot.clone(), 0u64..500, any::<bool>())
            .prop_map(|(after, slot, duration, sync)| Step::Exit { after, slot, duration, sync }),
        2 => (slot.clone(), 0u64..50, 0u64..500)
            .prop_map(|(slot, count, sum)| Step::Tally { slot, count, sum }),
        1 => (slot, stack()).prop_map(|(slot, stack)| Step::Announce { slot, stack }),
        1 => (after.clone(), 0u64..300).prop_map(|(after, length)| Step::Pause { after, length }),
        1 => after.prop_map(|after| Step::Lose { after }),
        1 => Just(Step::Round),
    ]
}

/// Records of one thread. The first frame of its stacks is its own.
struct Stream<'s> {
    writer: Writer<'s>,
    outermost: Vec<u32>,
    codes: &'s [u32],
    calls: &'s [u32],
    /// Stack around the call of each slot.
    slots: Vec<Vec<u8>>,
    now: u64,
    paused: Vec<(u64, u64)>,
    syncs: u64,
}

impl<'s> Stream<'s> {
    fn new(
        writer: Writer<'s>,
        outermost: Vec<u32>,
        (codes, calls): (&'s [u32], &'s [u32]),
        now: u64,
    ) -> Self {
        let (slots, paused) = (vec![vec![0], vec![0, 1], vec![2]], Vec::new());
        let mut stream = Self { writer, outermost, codes, calls, slots, now, paused, syncs: 0 };
        stream.announce_all();
        let outermost = stream.outermost.clone();
        stream.writer.sample(now, &outermost);
        stream
    }

    fn code(&self, stack: &[u8]) -> Vec<u32> {
        let codes = stack.iter().map(|it| self.codes[usize::from(*it)]);
        self.outermost.iter().copied().chain(codes).collect()
    }

    fn path(&self, slot: u8) -> Vec<u32> {
        let mut path = self.code(&self.slots[usize::from(slot)]);
        path.push(self.calls[usize::from(slot)]);
        path
    }

    fn announce_all(&mut self) {
        for slot in 0..self.slots.len() as u8 {
            self.writer.slot(slot.into(), &self.path(slot));
        }
    }

    /// Writes the records of a step.
    fn take(&mut self, step: &Step) {
        match step {
            Step::Sample { after, stack, run_delay } => {
                self.now += after;
                let off_cpu = run_delay.map(|stamps| plimsoll_wire::record::OffCpu {
                    cpu_ns: 0,
                    run_delay_ns: stamps * STAMP_NS,
                });
                self.writer.sample_as(self.now, &self.code(stack), None, off_cpu);
            }
            // A tick counts from the last record: nothing may have happened since.
            Step::Tick { delay, stack } if self.writer.last() == Some(self.now) => {
                self.writer.tick(*delay, &self.code(stack));
                self.now = self.writer.last().unwrap();
            }
            Step::Tick { .. } | Step::Round => {}
            Step::Inside { after, slot, entered } => {
                self.now += after;
                self.writer.sample_as(self.now, &self.path(*slot), Some(*entered), None);
            }
            Step::Exit { after, slot, duration, sync } => {
                self.now += after;
                let sync = sync.then(|| {
                    self.syncs += 1;
                    self.syncs - 1
                });
                self.writer.exit(self.now, u32::from(*slot), *duration, sync);
            }
            Step::Tally { slot, count, sum } => {
                self.writer.tally(u32::from(*slot), *count, *sum, 1);
            }
            Step::Announce { slot, stack } => {
                self.slots[usize::from(*slot)] = stack.clone();
                self.writer.slot(u32::from(*slot), &self.path(*slot));
            }
            Step::Pause { after, length } => {
                let begin = self.now + after;
                self.now = begin + length;
                self.writer.pause(begin);
                self.paused.push((begin, self.now));
                self.writer.resume(self.now);
            }
            Step::Lose { after } => {
                self.writer.mark_gap(3);
                self.now += after;
                self.announce_all();
                self.writer.sample(self.now, &self.code(&[0]));
            }
        }
    }
}

/// When the run begins and ends, in stamps.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Stamp of the first record of each thread.
    first: u64,
    /// Number of the step before which a later begin becomes known, and its distance from then.
    later_begin: Option<(usize, u64)>,
    end: Option<u64>,
}

fn limits() -> impl Strategy<Value = Limits> {
    let later_begin = prop::option::of((0usize..80, 1u64..2000));
    (0u64..2 * BEGIN, later_begin, prop::option::of(0u64..20_000))
        .prop_map(|(first, later_begin, end)| Limits { first, later_begin, end })
}

/// Collects threads with these steps, each with the number of its thread, and checks the partition.
/// Returns the profile, and that of a successor that reads all rings at once.
fn collect(threads: usize, steps: &[(usize, Step)], limits: Limits) -> [ProcessProfile; 2] {
    let mut subject = Subject::new(1 << 16);
    let codes: Vec<u32> = (1..=6).map(|i| subject.code(i << 12)).collect();
    let calls = ["MPI_Barrier", "MPI_Send", "read"].map(|name| subject.call(name));
    let routine = subject.code(7 << 12);
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    let stream = |index: usize| {
        // The contexts of all threads that do not communicate are the same.
        let outermost = if index == 0 { vec![] } else { vec![routine] };
        Stream::new(subject.writer(index), outermost, (&codes, &calls), limits.first)
    };
    (1..threads).for_each(|index| subject.begin_thread(index, routine));
    let mut streams: Vec<Stream<'_>> = (0..threads).map(stream).collect();
    let (mut begin, mut read) = (BEGIN, 0);
    for (number, (thread, step)) in steps.iter().enumerate() {
        let latest = streams.iter().map(|it| it.now).max().unwrap();
        let stream = &mut streams[*thread];
        if let Some((when, stamp)) = limits.later_begin
            && when == number
        {
            // The process says it as it happens: no record of a later time is written yet.
            begin = BEGIN.max(latest) + stamp;
            stream.now = begin;
            subject.header().begin_stamp.store(begin, std::sync::atomic::Ordering::Release);
        }
        stream.take(step);
        if matches!(step, Step::Round) {
            collector.round();
            read = latest.max(stream.now);
        }
    }
    // A run does not end before what has been read of it.
    let Stream { now, paused, .. } = &streams[0];
    let end = begin.max(read).max(limits.end.unwrap_or(*now));
    subject.end_at(end);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_partition_of_threads(&profile);
    let clip = |stamp: u64| stamp.clamp(begin, end);
    let excluded: u64 = paused.iter().map(|(from, to)| clip(*to) - clip(*from)).sum();
    assert_eq!(profile.elapsed_ns, (end - begin - excluded) * STAMP_NS);
    assert_eq!(profile.collection.paused_ns, excluded * STAMP_NS);
    assert_eq!(profile.collection.lost, 0);
    let successor = Collector::new(Options::default());
    let key = subject.attach(&successor).unwrap();
    [profile, successor.finish(key).unwrap()]
}

/// Time in a bin by path, sorted.
type TimesByPath = Vec<(String, u64)>;

/// Returns the time of the threads that do not communicate by bins and paths: numbers of contexts
/// depend on the order in which the records of two threads are read.
fn over_time(profile: &ProcessProfile) -> Vec<(Option<u32>, Vec<TimesByPath>)> {
    let of_bin = |bin: &TimeBin| {
        let others = [("work", bin.other_work_ns), ("calls", bin.other_calls_ns)];
        let mut times: Vec<(String, u64)> = bin
            .values
            .iter()
            .map(|(node, time)| (path(profile, *node).join(">"), *time))
            .chain(others.map(|(name, time)| (name.to_owned(), time)))
            .collect();
        times.sort();
        times
    };
    let locations = profile.thread_locations.locations.iter();
    locations.map(|it| (it.number, it.times.bins.iter().map(of_bin).collect())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_stamp_is_booked_once(
        steps in prop::collection::vec((Just(0), step()), 0..80),
        limits in limits(),
    ) {
        // When the rings were read decides nothing: a successor that reads all at once agrees.
        let [profile, of_successor] = collect(1, &steps, limits);
        prop_assert_eq!(of_successor, profile);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_stamp_of_each_thread_is_booked_once(
        steps in prop::collection::vec((0usize..4, step()), 0..120),
        limits in limits(),
    ) {
        let [profile, of_successor] = collect(4, &steps, limits);
        prop_assert_eq!(over_time(&of_successor), over_time(&profile));
    }
}
