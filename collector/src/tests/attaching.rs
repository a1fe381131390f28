//! Segments that are attached, taken over, refused, or left by a process that has died.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use plimsoll_wire::segment::{REPORT_BEGUN, REPORT_ENDED};

use super::subject::{BEGIN, STAMP_NS, Subject};
use super::{assert_partition, collect, pairs, times};
use crate::{AttachError, Collector, Options};

#[test]
fn another_collector_takes_over_and_sees_the_whole_run() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let send = subject.call("MPI_Send");
    let first = Collector::new(Options::default());
    let key = subject.attach(&first).unwrap();
    assert!(matches!(subject.attach(&first), Err(AttachError::AlreadyAttached)));
    let mut w = subject.writer(0);
    w.slot(0, &[main, send]);
    w.sample(BEGIN + 100, &[main, work]);
    first.round();
    first.detach(key);
    assert!(first.finish(key).is_none());
    w.exit(BEGIN + 300, 0, 150, None);
    subject.end_at(BEGIN + 300);
    let profile = collect(&subject);
    assert_eq!(profile.collection.lost, 0);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>MPI_Send", 150), ("app+0x1000>app+0x2000", 150)])
    );
}

#[test]
fn a_late_successor_waits_for_a_whole_stack() {
    let mut subject = Subject::new(1 << 12);
    let (main, work, other) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let first = Collector::new(Options::default());
    let key = subject.attach(&first).unwrap();
    let mut w = subject.writer(0);
    for i in 1..=2000u64 {
        w.sample(BEGIN + i, &[main, if i % 2 == 0 { work } else { other }]);
        if i % 100 == 0 {
            first.round();
        }
    }
    first.detach(key);
    w.sample(BEGIN + 3000, &[main, other]); // relative to a stack that nobody knows
    w.mark_gap(1);
    w.sample(BEGIN + 4000, &[main, work]);
    w.sample(BEGIN + 5000, &[main, work]);
    subject.end_at(BEGIN + 5000);
    let profile = collect(&subject);
    assert_eq!(
        times(&profile, &profile.phases[0]),
        pairs(&[("app+0x1000>app+0x2000", 5000)]),
        "the unknown time goes to what was sampled"
    );
    assert_eq!(profile.phases[0].values.iter().map(|(_, value)| value.samples).sum::<u64>(), 2);
}

#[test]
fn only_a_segment_of_the_named_process_is_attached() {
    let subject = Subject::new(1 << 12);
    let collector = Collector::new(Options::default());
    let pid = std::process::id();
    assert!(matches!(collector.attach(pid, 999_999, 0), Err(AttachError::Unreachable(_))));
    assert!(collector.attach(pid, 0, 0).is_err());
    let refused = |subject: &Subject| subject.attach(&collector).unwrap_err();
    subject.header().start_time.fetch_add(1, Ordering::Relaxed);
    assert!(matches!(refused(&subject), AttachError::OtherProcess));
    subject.header().start_time.fetch_sub(1, Ordering::Relaxed);
    subject.header().version.store(99, Ordering::Relaxed);
    assert!(matches!(refused(&subject), AttachError::OtherVersion(99)));
    subject.header().version.store(plimsoll_wire::record::VERSION, Ordering::Relaxed);
    for ring_bytes in [0, 1, 4097, 1 << 29, 1 << 31] {
        subject.header().ring_bytes.store(ring_bytes, Ordering::Relaxed);
        assert!(matches!(refused(&subject), AttachError::WrongSize), "{ring_bytes}");
    }
    subject.header().magic.store(0, Ordering::Relaxed);
    assert!(matches!(refused(&subject), AttachError::NotASegment));
}

#[test]
fn a_file_of_the_application_is_not_attached_whatever_it_holds() {
    let subject = Subject::new(1 << 12);
    let collector = Collector::new(Options::default());
    let copy = subject.copy();
    let start_time = subject.header().start_time.load(Ordering::Relaxed);
    let attached = collector.attach(std::process::id(), copy.as_raw_fd(), start_time);
    assert!(matches!(attached, Err(AttachError::NotASegment)), "{attached:?}");
}

#[test]
fn only_the_thread_areas_that_the_file_holds_are_read() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    subject.shrink(1);
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    // More than there can be.
    subject.header().threads.store(7, Ordering::Release);
    subject.writer(0).sample(BEGIN + 100, &[main, work]);
    subject.end_at(BEGIN + 100);
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_eq!(profile.collection.unsampled_threads, 6);
    assert_eq!(profile.collection.unseen_threads, 6);
}

#[test]
fn areas_are_read_when_the_application_has_closed_the_descriptor() {
    let mut subject = Subject::new(1 << 12);
    let (main, work) = (subject.code(0x1000), subject.code(0x2000));
    let segment = subject.segment().unwrap();
    let number = segment.number().unwrap();
    let theirs = tempfile::tempfile().unwrap();
    theirs.set_len(1 << 30).unwrap();
    // SAFETY: the descriptors are open; what was open under the number is closed.
    assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
    subject.writer(0).sample(BEGIN + 100, &[main, work]);
    let head = subject.area(0).thread.head.load(Ordering::Relaxed);
    assert!(head > 0);
    assert_eq!(segment.area(0).unwrap().thread().head.load(Ordering::Relaxed), head);
    drop(segment);
    // SAFETY: it is still open, for it was not ours to close.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

#[test]
fn a_process_that_dies_leaves_its_run_up_to_its_last_sign_of_life() {
    let mut subject = Subject::new(1 << 12);
    let (main, send) = (subject.code(0x1000), subject.call("MPI_Send"));
    let (mut child, start_time) = subject.hand_over();
    let collector = Collector::new(Options::default());
    let key = collector.attach(child.id(), 0, start_time).unwrap();
    let mut w = subject.writer(0);
    w.slot(0, &[main, send]);
    w.sample(BEGIN + 100, &[main]);
    let thread = &subject.area(0).thread;
    thread.open_slot.store(1, Ordering::Relaxed);
    thread.open_stamp.store(BEGIN + 150, Ordering::Relaxed);
    collector.round();
    child.kill().unwrap();
    child.wait().unwrap();
    let profile = collector.finish(key).unwrap();
    assert_partition(&profile);
    assert_eq!(profile.elapsed_ns, 150 * STAMP_NS);
    assert_eq!(times(&profile, &profile.phases[0]), pairs(&[("app+0x1000", 150)]));
}

#[test]
fn processes_know_when_their_report_is_begun_and_when_it_is_made() {
    let subject = Subject::new(1 << 12);
    let reported = || subject.header().reported.load(Ordering::Acquire);
    let collector = Collector::new(Options::default());
    let key = subject.attach(&collector).unwrap();
    assert_eq!(reported(), 0);
    collector.begin_report();
    assert_eq!(reported(), REPORT_BEGUN);
    collector.finish(key).unwrap();
    collector.acknowledge();
    assert_eq!(reported(), REPORT_BEGUN | REPORT_ENDED);
}
