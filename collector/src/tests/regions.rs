//! Parallel regions: their totals, and where the work of the threads of a team hangs.

use std::sync::atomic::Ordering;

use plimsoll_wire::lengths::{LengthCount, LengthOf, bucket_of};
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::record::{Record, STAMP_SHIFT};
use plimsoll_wire::teams::{PathKey, RegionTotals, ShareTotals, TaskTotals};

use super::subject::{BEGIN, STAMP_NS, Subject};
use super::{collect, path, spool};
use crate::{Collector, Options};

const PATH: PathKey = PathKey(0x1234_5678_9abc);

/// Addresses of a subject with a region.
struct Code {
    main: u32,
    call: u32,
    stub: u32,
    runtime: u32,
    share: u32,
    outlined: u32,
    work: u32,
    start: u32,
}

fn code(subject: &mut Subject) -> Code {
    let own = subject.module("/nowhere/libplimsoll.so", 0, &[]);
    let gomp = subject.module("/nowhere/libgomp.so.1", 0, &[]);
    Code {
        main: subject.code(0x1000),
        call: subject.call("GOMP_parallel"),
        stub: subject.address(0x7500, own, 0),
        runtime: subject.address(0x8600, gomp, 0),
        share: subject.address(0x7700, own, 0),
        outlined: subject.code(0x2000),
        work: subject.code(0x3000),
        start: subject.address(0x8700, gomp, 0),
    }
}

fn totals(function: u32) -> RegionTotals {
    RegionTotals {
        path: PATH,
        function,
        level: 0,
        threads: 2,
        instances: 5,
        elapsed: 100,
        thread_time: 200,
        mean_work: 70,
        max_work: 90,
        max_thread_work: 180,
    }
}

/// Writes what the thread that makes the region records.
fn write_primary(subject: &Subject, code: &Code) {
    let Code { main, call, stub, runtime, share, outlined, work, .. } = *code;
    let mut w = subject.writer(0);
    w.slot(3, &[main, call]);
    w.sample(BEGIN + 100, &[main, stub, runtime, share, outlined, work]);
    w.exit(BEGIN + 150, 3, 20, None);
    w.put(&Record::Region { slot: 3, totals: totals(outlined) });
    let share = ShareTotals { count: 5, work: 90, barrier: 1, lock: 2, mpi: 3 };
    w.put(&Record::Share { slot: 3, number: 0, totals: share });
    let share = ShareTotals { count: 5, work: 50, barrier: 10, lock: 20, mpi: 0 };
    w.put(&Record::Share { slot: 3, number: 1, totals: share });
    let task = TaskTotals { function: work, count: 7, work: 21, longest: 5 };
    w.put(&Record::Task { totals: task });
    let long = bucket_of(40 << STAMP_SHIFT);
    for (of, bucket, count) in [
        (LengthOf::Task(work), bucket_of(3 << STAMP_SHIFT), 4),
        (LengthOf::Task(work), long, 3),
        (LengthOf::Region(3), long, 5),
    ] {
        let length = LengthCount { bucket: bucket as u32, count };
        w.put(&Record::Length { of, length });
    }
}

/// Writes what a thread of the pool records: a share, and the wait for the next one.
fn write_worker(subject: &mut Subject, code: &Code) {
    let Code { share, outlined, work, start, .. } = *code;
    let idle = subject.call("OpenMP_idle");
    subject.begin_thread(1, start);
    let mut w = subject.writer(1);
    w.put(&Record::Graft { path: PATH });
    w.sample(BEGIN, &[start, share, outlined, work]);
    w.sample(BEGIN + 40, &[start, share, outlined, work]);
    w.put(&Record::Graft { path: PathKey::NONE });
    w.slot(1, &[start, idle]);
    w.exit(BEGIN + 100, 1, 60, None);
    w.end(BEGIN + 100);
}

fn assert_profile(subject: &Subject) {
    let profile = collect(subject);
    let [region] = &profile.openmp.regions[..] else { panic!("{:#?}", profile.openmp) };
    let function = |offset: &str| format!("app+{offset}");
    let maker = function("0x1000");
    assert_eq!(path(&profile, region.node), [maker.as_str(), "GOMP_parallel"]);
    let outlined = region.function.expect("it was sampled");
    assert_eq!(path(&profile, outlined), [maker.clone(), function("0x2000")]);
    assert!(region.is_main);
    let stamps = |ns: u64| ns / STAMP_NS;
    assert_eq!((region.instances, region.threads, stamps(region.elapsed_ns)), (5, 2, 100));
    assert_eq!(stamps(region.imbalance_ns()), 20);
    assert_eq!([region.work_ns, region.idle_ns()].map(stamps), [140, 60]);
    assert_eq!([region.barrier_ns, region.lock_ns, region.mpi_ns].map(stamps), [11, 22, 3]);
    assert_eq!(region.shares.iter().map(|it| stamps(it.work_ns)).collect::<Vec<_>>(), [90, 50]);
    let [task] = &profile.openmp.tasks[..] else { panic!("{:#?}", profile.openmp) };
    assert_eq!((task.count, stamps(task.work_ns), stamps(task.longest_ns)), (7, 21, 5));

    let assert_near = |median_ns: Option<u64>, stamps: u64| {
        let median = median_ns.expect("there are durations") as f64 / STAMP_NS as f64;
        assert!((median / stamps as f64 - 1.0).abs() < 0.15, "{median} stamps, not {stamps}");
    };
    assert_near(task.lengths.median_ns(), 3);
    assert_near(region.lengths.median_ns(), 40);

    // Both threads work in the outlined function, below the caller of the region.
    let inside = [maker, function("0x2000"), function("0x3000")];
    let [phase] = &profile.phases[..] else { panic!("{:#?}", profile.phases) };
    let work = |values: &[(u32, crate::profile::NodeValue)]| {
        let at = values.iter().find(|(node, _)| path(&profile, *node) == inside);
        at.map(|(_, value)| stamps(value.exclusive_ns))
    };
    assert_eq!(work(&phase.values), Some(130));
    assert_eq!(work(&profile.other_threads), Some(40));
    let idle = profile
        .other_threads
        .iter()
        .find(|(node, _)| path(&profile, *node).last().is_some_and(|name| name == "OpenMP_idle"));
    assert_eq!(idle.map(|(_, value)| stamps(value.exclusive_ns)), Some(60));
}

#[test]
fn threads_of_a_team_work_below_the_call_that_makes_their_region() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    write_primary(&subject, &code);
    write_worker(&mut subject, &code);
    subject.end_at(BEGIN + 150);
    assert_profile(&subject);
}

#[test]
fn regions_that_are_in_no_record_yet_are_read_from_the_table() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    let mut w = subject.writer(0);
    w.slot(3, &[code.main, code.call]);
    w.sample(BEGIN + 100, &[code.main]);
    let area = subject.area(0);
    let ticks = |stamps: u64| stamps << plimsoll_wire::record::STAMP_SHIFT;
    area.regions[0].begin(3, PATH, code.outlined, 1);
    area.regions[0].add(2, ticks(50), ticks(60), ticks(40));
    let share = ShareTotals { count: 1, work: ticks(40), ..ShareTotals::default() };
    area.regions[0].add_share(0, &share);
    area.thread.regions.store(1, Ordering::Release);
    area.thread.unmeasured_regions.store(2, Ordering::Release);
    subject.end_at(BEGIN + 150);
    let openmp = collect(&subject).openmp;
    let [region] = &openmp.regions[..] else { panic!("{openmp:#?}") };
    assert_eq!((region.instances, region.level, openmp.unmeasured), (1, 1, 2));
    assert_eq!(region.imbalance_ns() / STAMP_NS, 10);
    assert_eq!(region.shares[0].work_ns / STAMP_NS, 40);
    let median = region.lengths.median_ns().expect("there is one instance") / STAMP_NS;
    assert!((43..=57).contains(&median), "{median} stamps, not 50");
}

#[test]
fn regions_before_the_run_are_in_no_profile() {
    // The rings are read before the begin of the run is known, or after it.
    for is_read_before in [true, false] {
        let mut subject = Subject::new(1 << 14);
        let code = code(&mut subject);
        let collector = Collector::new(Options::default());
        let spool = spool(&collector);
        let key = subject.attach(&collector).unwrap();
        let mut w = subject.writer(0);
        w.slot(3, &[code.main, code.call]);
        let task = TaskTotals { function: code.work, count: 7, work: 21, longest: 5 };
        for now in [BEGIN + 100, BEGIN + 300] {
            w.put(&Record::Region { slot: 3, totals: totals(code.outlined) });
            w.put(&Record::Task { totals: task });
            w.sample(now, &[code.main]);
            if is_read_before && now < BEGIN + 200 {
                collector.round();
            }
            subject.header().begin_stamp.store(BEGIN + 200, Ordering::Release);
        }
        subject.end_at(BEGIN + 400);
        let profile = collector.finish(key).unwrap();
        assert_eq!(spool.digest(&collector), profile);
        let [region] = &profile.openmp.regions[..] else { panic!("{:#?}", profile.openmp) };
        let [task] = &profile.openmp.tasks[..] else { panic!("{:#?}", profile.openmp) };
        assert_eq!((region.instances, task.count), (5, 7));
    }
}

#[test]
fn a_call_path_that_lies_in_itself_ends() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    let mut w = subject.writer(0);
    w.put(&Record::Graft { path: PATH });
    w.slot(3, &[code.main, code.call]);
    w.sample(BEGIN + 100, &[code.main, code.work]);
    w.put(&Record::Region { slot: 3, totals: totals(code.outlined) });
    subject.end_at(BEGIN + 150);
    assert_eq!(collect(&subject).elapsed_ns, 150 * STAMP_NS);
}

#[test]
fn waits_for_a_lock_know_the_context_of_the_call_that_has_it() {
    let mut subject = Subject::new(1 << 14);
    let code = code(&mut subject);
    let lock = subject.call("GOMP_critical_start");
    let path = |graft: PathKey, ids: &[u32]| ids.iter().fold(graft, |at, id| at.then((*id).into()));
    let own = path(PathKey::NONE, &[code.main, lock]);
    let in_region = path(PATH, &[code.start, code.share, code.outlined, lock]);
    let mut w = subject.writer(0);
    w.slot(4, &[code.main, lock]);
    for (holder, waited) in [(in_region, 40), (PathKey(17), 5), (own, 7), (in_region, 2)] {
        let totals = LockWaitTotals { holder, count: 1, waited };
        w.put(&Record::LockWait { slot: 4, totals });
    }
    write_primary(&subject, &code);
    subject.begin_thread(1, code.start);
    let mut w = subject.writer(1);
    w.put(&Record::Graft { path: PATH });
    w.slot(1, &[code.start, code.share, code.outlined, lock]);
    w.sample(BEGIN, &[code.start, code.share, code.outlined, code.work]);
    w.exit(BEGIN + 60, 1, 60, None);
    let area = subject.area(1);
    assert!(area.lock_waits[3].add(1, own, 30 << plimsoll_wire::record::STAMP_SHIFT));
    area.thread.lock_waits.store(1, Ordering::Release);
    subject.end_at(BEGIN + 150);
    let profile = collect(&subject);
    let mut waits: Vec<_> = profile
        .openmp
        .lock_waits
        .iter()
        .map(|it| {
            let path = |node| super::path(&profile, node).join("/");
            (it.is_main, path(it.node), it.holder.map(path), it.count, it.waited_ns / STAMP_NS)
        })
        .collect();
    waits.sort();
    let main = "app+0x1000/GOMP_critical_start".to_owned();
    let inside = "app+0x1000/app+0x2000/GOMP_critical_start".to_owned();
    assert_eq!(
        waits,
        [
            (false, inside.clone(), Some(main.clone()), 1, 30),
            (true, main.clone(), None, 1, 5),
            (true, main.clone(), Some(main.clone()), 1, 7),
            (true, main, Some(inside), 2, 42),
        ]
    );
}
