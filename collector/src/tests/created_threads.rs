//! Threads hang below the call path that created them.

use std::sync::atomic::Ordering;

use plimsoll_wire::record::Record;
use plimsoll_wire::segment::ADDRESS_IS_LEAF;
use plimsoll_wire::teams::PathKey;

use super::subject::{BEGIN, STAMP_NS, Subject};
use super::{collect, path, spool};
use crate::profile::{Aggregation, ContextTree, Frame, FrameKind, Node, NodeId, ProcessProfile};
use crate::{Collector, Options};

/// Addresses of a subject that creates threads.
struct Code {
    main: u32,
    spawn: u32,
    create: u32,
    /// Frame of the library, outside of the start routine.
    start: u32,
    routine: u32,
    work: u32,
}

const SPAWN: &str = "app+0x1000/app+0x2000";

fn code(subject: &mut Subject) -> Code {
    let own = subject.module("/nowhere/libplimsoll.so", 0, &[]);
    Code {
        main: subject.code(0x1000),
        spawn: subject.code(0x2000),
        create: subject.call("pthread_create"),
        start: subject.address(0x7500, own, 0),
        routine: subject.code(0x3000),
        work: subject.code(0x4000),
    }
}

fn name(outer: PathKey, ids: &[u32]) -> PathKey {
    ids.iter().fold(outer, |path, id| path.then((*id).into()))
}

/// Writes what the initial thread records when it creates threads, and returns the path.
fn write_creator(subject: &Subject, code: &Code, threads: u64) -> PathKey {
    let stack = [code.main, code.spawn, code.create];
    let mut w = subject.writer(0);
    w.slot(2, &stack);
    w.tally(2, threads, 0, 0);
    w.sample(BEGIN + 100, &[code.main, code.spawn]);
    name(PathKey::NONE, &stack)
}

/// Writes a thread that works for 90 stamps, 30 of them outside of its start routine.
fn write_worker(subject: &Subject, code: &Code, index: usize, origin: PathKey) {
    subject.begin_thread(index, code.routine);
    let mut w = subject.writer(index);
    w.put(&Record::Graft { path: origin });
    w.sample(BEGIN, &[code.start, code.routine, code.work]);
    w.sample(BEGIN + 60, &[code.start, code.routine, code.work]);
    w.sample(BEGIN + 90, &[code.start]);
    w.end(BEGIN + 90);
}

/// Stamps of the threads beside the communicating one, by call path.
fn others(profile: &ProcessProfile) -> Vec<(String, u64)> {
    let mut values: Vec<_> = profile
        .other_threads
        .iter()
        .map(|(node, value)| (path(profile, *node).join("/"), value.exclusive_ns / STAMP_NS))
        .collect();
    values.sort();
    values
}

fn truth(values: &[(&str, &str, u64)]) -> Vec<(String, u64)> {
    let join = |(outer, inner, stamps): &(&str, &str, u64)| (format!("{outer}{inner}"), *stamps);
    values.iter().map(join).collect()
}

#[test]
fn a_thread_works_below_the_call_path_that_created_it() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    let origin = write_creator(&subject, &code, 2);
    write_worker(&subject, &code, 1, origin);
    // A thread without a record, which still runs at the end: its 40 stamps are shared out in the
    // proportion of the sampled ones.
    let thread = &subject.area(2).thread;
    thread.origin.store(origin.0, Ordering::Relaxed);
    thread.born.store(BEGIN + 110, Ordering::Relaxed);
    subject.begin_thread(2, code.routine);
    subject.end_at(BEGIN + 150);
    let profile = collect(&subject);
    let routine = [(SPAWN, "/app+0x3000", 15 + 6), (SPAWN, "/app+0x3000/app+0x4000", 75 + 34)];
    assert_eq!(others(&profile), truth(&routine));
    let calls = profile.phases[0]
        .values
        .iter()
        .find(|(node, _)| path(&profile, *node).join("/") == format!("{SPAWN}/pthread_create"));
    let (_, value) = calls.expect("creations are counted");
    assert_eq!((value.calls, value.exclusive_ns), (2, 0));
}

#[test]
fn a_thread_of_a_thread_lies_below_both_creators() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    // The records of the innermost thread arrive first.
    let first = name(PathKey::NONE, &[code.main, code.spawn, code.create]);
    let stack = [code.start, code.routine, code.create];
    write_worker(&subject, &code, 2, name(first, &stack));
    write_worker(&subject, &code, 1, first);
    subject.begin_thread(3, code.routine);
    let mut w = subject.writer(3);
    w.put(&Record::Graft { path: first });
    w.slot(7, &stack);
    w.end(BEGIN);
    write_creator(&subject, &code, 1);
    subject.end_at(BEGIN + 150);
    assert_eq!(
        others(&collect(&subject)),
        truth(&[
            (SPAWN, "/app+0x3000", 15),
            (SPAWN, "/app+0x3000/app+0x3000", 15),
            (SPAWN, "/app+0x3000/app+0x3000/app+0x4000", 75),
            (SPAWN, "/app+0x3000/app+0x4000", 75),
        ])
    );
}

#[test]
fn without_the_record_of_its_creator_a_thread_is_a_root() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    subject.writer(0).sample(BEGIN + 100, &[code.main, code.spawn]);
    write_worker(&subject, &code, 1, name(PathKey::NONE, &[code.main, code.create]));
    subject.end_at(BEGIN + 150);
    assert_eq!(
        others(&collect(&subject)),
        truth(&[("", "app+0x3000", 15), ("", "app+0x3000/app+0x4000", 75)])
    );
}

#[test]
fn threads_that_create_each_other_end() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    subject.writer(0).sample(BEGIN + 100, &[code.main]);
    subject.begin_thread(1, code.routine);
    let mut w = subject.writer(1);
    let inside = PathKey(99);
    w.put(&Record::Graft { path: inside });
    w.slot(1, &[code.routine, code.create]);
    w.put(&Record::Graft { path: name(inside, &[code.routine, code.create]) });
    w.sample(BEGIN + 60, &[code.routine, code.work]);
    w.end(BEGIN + 90);
    subject.end_at(BEGIN + 150);
    let whole: u64 = others(&collect(&subject)).iter().map(|(_, stamps)| stamps).sum();
    assert_eq!(whole, 30);
}

#[test]
fn threads_from_one_call_site_share_their_contexts() {
    let contexts = |aggregation, threads: usize| {
        let mut subject = Subject::new(1 << 12);
        let code = code(&mut subject);
        let origin = write_creator(&subject, &code, threads as u64);
        (1..=threads).for_each(|index| write_worker(&subject, &code, index, origin));
        subject.end_at(BEGIN + 150);
        let collector = Collector::new(Options { aggregation, ..Options::default() });
        let spool = spool(&collector);
        let key = subject.attach(&collector).unwrap();
        let profile = collector.finish(key).unwrap();
        assert_eq!(spool.digest(&collector), profile);
        assert_eq!(others(&profile)[1].1, 75 * threads as u64);
        (profile.tree.nodes.len(), profile.thread_locations.locations.len())
    };
    for aggregation in [Aggregation::Key, Aggregation::Sum, Aggregation::Set] {
        assert_eq!(contexts(aggregation, 4), contexts(aggregation, 50), "{aggregation:?}");
    }
}

/// Routine, threads, stamps of the slowest one and of all, for each place.
fn siblings(profile: &ProcessProfile) -> Vec<(String, u64, u64, u64)> {
    let stamps = |times: &[(NodeId, u64)]| times.iter().map(|(_, ns)| ns).sum::<u64>() / STAMP_NS;
    let siblings = profile.thread_locations.siblings.iter();
    siblings
        .map(|it| {
            let routine = path(profile, it.routine).join("/");
            (routine, it.threads, stamps(&it.slowest), stamps(&it.sum))
        })
        .collect()
}

#[test]
fn the_path_in_the_program_has_no_parts_of_functions_and_no_code_of_the_language() {
    let frame = |kind, function: &str| Frame::new(kind, function, "app");
    let frames = vec![
        frame(FrameKind::Function, "main"),
        frame(FrameKind::Loop, "main"),
        frame(FrameKind::Inlined, "emplace_back"),
        frame(FrameKind::Function, "std::thread::run"),
        frame(FrameKind::Inlined, "serve"),
    ];
    let node = |parent, frame| Node { parent, frame, site: 0 };
    let nodes = vec![
        node(None, 0),
        node(Some(0), 1),
        node(Some(1), 2),
        node(Some(2), 3),
        node(Some(3), 4),
        node(Some(0), 3),
        node(Some(5), 4),
    ];
    let tree = ContextTree { frames, nodes };
    assert_eq!(tree.program_path(4), [4, 0]);
    assert_eq!(tree.program_path(6), [4, 0], "outside of the loop");
}

/// Two threads are created by one path of the language, and a third by another; a fourth has
/// another function of the program. The workers of OpenMP are compared by region.
#[test]
fn threads_of_one_function_and_path_of_the_program_are_siblings() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    let language = subject.module("/nowhere/libstdc++.so.6", 0, &[]);
    let [grow, construct, run] =
        [0x7100, 0x7200, 0x7300].map(|offset| subject.address(offset, language, ADDRESS_IS_LEAF));
    let helper = subject.code(0x5000);
    let openmp = subject.module("/nowhere/libgomp.so.1", 0, &[]);
    let worker = subject.address(0x7400, openmp, ADDRESS_IS_LEAF);
    let creator = |inner| [code.main, code.spawn, inner, code.create];
    let mut w = subject.writer(0);
    for (slot, inner) in [(2, grow), (3, construct)] {
        w.slot(slot, &creator(inner));
        w.tally(slot, 2, 0, 0);
    }
    w.sample(BEGIN + 100, &[code.main, code.spawn]);
    for (index, inner, routine, stamps) in [
        (1, grow, code.routine, 60),
        (2, grow, code.routine, 90),
        (3, construct, code.routine, 30),
        (4, grow, helper, 10),
    ] {
        subject.begin_thread(index, run);
        let mut w = subject.writer(index);
        w.put(&Record::Graft { path: name(PathKey::NONE, &creator(inner)) });
        w.sample(BEGIN, &[code.start, run, routine, code.work]);
        w.sample(BEGIN + stamps, &[code.start, run, routine, code.work]);
        w.end(BEGIN + stamps);
    }
    for index in [5, 6] {
        subject.begin_thread(index, worker);
        let mut w = subject.writer(index);
        w.sample(BEGIN, &[worker, code.work]);
        w.end(BEGIN + 90);
    }
    subject.end_at(BEGIN + 150);
    let outer = format!("{SPAWN}/libstdc++.so.6+0x7100/libstdc++.so.6+0x7300");
    assert_eq!(
        siblings(&collect(&subject)),
        [(format!("{outer}/app+0x3000"), 3, 90, 180), (format!("{outer}/app+0x5000"), 1, 10, 10)]
    );
}
