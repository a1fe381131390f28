//! Teams of threads (OpenMP): uneven threads, work outside of regions, short regions, and their
//! part in the efficiencies.

use plimsoll_collector::profile::{
    LocationKind, LockWaitProfile, OpenMpProfile, RegionProfile, ShareProfile, TaskProfile,
    ThreadProfile, TimeOutsideMain,
};

use super::*;
use crate::summary::Window;
use crate::synthetic_run::{Contexts, Doing, calling, location};

const REGION: &str = "main/solve/GOMP_parallel";
const KERNEL: &str = "main/solve/solve._omp_fn.0/loop";

/// A region of four threads in `main/solve`: elapsed time, mean and largest work of a thread, in
/// milliseconds, over `instances` instances.
fn region(
    instances: u64,
    [elapsed_ms, mean_ms, max_ms]: [u64; 3],
    contexts: &mut Contexts,
) -> OpenMpProfile {
    let region = RegionProfile {
        node: contexts.node(REGION),
        function: Some(contexts.node("main/solve/solve._omp_fn.0")),
        is_main: true,
        instances,
        threads: 4,
        elapsed_ns: elapsed_ms * MS,
        thread_ns: 4 * elapsed_ms * MS,
        work_ns: 4 * mean_ms * MS,
        mean_work_ns: mean_ms * MS,
        max_work_ns: max_ms * MS,
        max_thread_ns: 4 * max_ms * MS,
        ..RegionProfile::default()
    };
    let runtime = Some("libgomp.so.1".to_owned());
    OpenMpProfile { runtime, regions: vec![region], ..OpenMpProfile::default() }
}

type OpenMp = fn(u32, &mut Contexts) -> OpenMpProfile;

fn with_teams(ranks: u32, openmp: OpenMp, part: impl Fn(u32) -> Vec<Doing>) -> Summary {
    let mut subject = Subject::new(ranks);
    subject.threads = 4;
    subject.openmp = openmp;
    subject.step(BARRIER, part);
    verdict(&subject)
}

fn losses(summary: &Summary) -> Vec<(LossKind, f64)> {
    summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect()
}

fn of_kind(summary: &Summary, kind: LossKind) -> Option<&Loss> {
    summary.losses.iter().find(|loss| loss.kind == kind)
}

/// The communicating thread takes part in the region for 900 ms and waits 100 ms for its end.
fn in_region() -> [Doing; 2] {
    [doing(KERNEL, 900 * MS), doing(REGION, 100 * MS)]
}

#[test]
fn uneven_threads_and_serial_work_are_losses_of_their_own() {
    let openmp: OpenMp = |_, contexts| region(100, [1000, 700, 1000], contexts);
    for ranks in [1, 2] {
        let summary = with_teams(ranks, openmp, |_| {
            [&in_region()[..], &[doing("main/prepare", 500 * MS)]].concat()
        });
        let truth = [(LossKind::SerialSection, 0.375), (LossKind::ThreadImbalance, 0.3)];
        assert_eq!(losses(&summary), truth);
        assert_eq!(rounded(summary.projection.elapsed_s), 0.825);
        let uneven = of_kind(&summary, LossKind::ThreadImbalance).unwrap();
        assert_eq!(
            (path(&uneven.symptom.path), uneven.symptom.calls),
            (REGION.into(), 100 * u64::from(ranks))
        );
        assert_eq!(rounded(uneven.symptom.mean_s), 0.3, "idle time of a thread");
        assert_eq!(causes(uneven), [(KERNEL.to_owned(), 0.3)]);
        assert_eq!(uneven.waiting_ranks, if ranks == 1 { "0" } else { "0-1" });
        for words in [
            "1.00 s and a thread 0.70 s",
            "4 threads",
            "schedule is static, give it schedule(dynamic)",
        ] {
            assert!(uneven.advice.contains(words), "{words}: {}", uneven.advice);
        }
        let serial = of_kind(&summary, LossKind::SerialSection).unwrap();
        assert_eq!(causes(serial), [("main/prepare".to_owned(), 0.375)]);
        assert!(serial.advice.contains("3 others wait"), "{}", serial.advice);
    }
}

/// The start of a process, 170 ms before `main`, is no work that a team could do.
#[test]
fn the_start_of_a_process_is_no_serial_work() {
    for (prepare_ms, lost_s) in [(0, None), (40, Some(0.03))] {
        let mut subject = Subject::new(2);
        subject.threads = 4;
        subject.openmp = |_, contexts| region(100, [1000, 1000, 1000], contexts);
        // What has no stack is apportioned among the samples, here those in the region.
        subject.step(BARRIER, |_| {
            let start = [
                doing("call_init/fill_tables", 20 * MS),
                doing("main", 100 * MS),
                doing(KERNEL, 50 * MS),
            ];
            let run = [doing(KERNEL, 1000 * MS), doing("main/prepare", prepare_ms * MS)];
            [&start[..], &run].concat()
        });
        let mut inputs = subject.inputs();
        for profile in inputs.iter_mut().map(|input| &mut input.profile) {
            profile.outside_main = Some(TimeOutsideMain {
                node: 0,
                with_stack_ns: 100 * MS,
                without_stack_ns: 50 * MS,
            });
        }
        let summary = diagnose_alone(inputs, &job()).unwrap();
        let serial = of_kind(&summary, LossKind::SerialSection);
        assert_eq!(serial.map(|loss| rounded(loss.seconds)), lost_s);
        if let Some(serial) = serial {
            assert_eq!(causes(serial), [("main/prepare".to_owned(), 0.03)]);
        }
    }
}

/// No second is in two losses: threads that wait for their team wait for cores, too.
#[test]
fn losses_in_teams_that_lack_cores_leave_their_work() {
    let mut subject = Subject::new(4);
    (subject.threads, subject.cores) = (4, vec![0, 1]);
    subject.openmp = |_, contexts| region(100, [1000, 700, 1000], contexts);
    subject.step(BARRIER, |_| {
        let delayed =
            |path, ms, delay_ms| Doing { run_delay_ns: delay_ms * MS, ..doing(path, ms * MS) };
        vec![delayed(KERNEL, 600, 500), delayed(REGION, 400, 350)]
    });
    let summary = verdict(&subject);
    let truth = [(LossKind::Oversubscription, 0.595), (LossKind::ThreadImbalance, 0.3)];
    assert_eq!(losses(&summary), truth);
    // 150 ms of work on a core, without the 30 % that uneven threads lose.
    assert_eq!(rounded(summary.projection.elapsed_s), 0.105);
}

/// Adds a region of one thread, such as one with a false `if` clause.
fn with_one_thread(
    mut openmp: OpenMpProfile,
    elapsed_ms: u64,
    contexts: &mut Contexts,
) -> OpenMpProfile {
    openmp.regions.push(RegionProfile {
        node: contexts.node("main/small/GOMP_parallel"),
        function: Some(contexts.node("main/small/small._omp_fn.1")),
        threads: 1,
        elapsed_ns: elapsed_ms * MS,
        thread_ns: elapsed_ms * MS,
        work_ns: elapsed_ms * MS,
        mean_work_ns: elapsed_ms * MS,
        max_work_ns: elapsed_ms * MS,
        max_thread_ns: elapsed_ms * MS,
        ..openmp.regions[0].clone()
    });
    openmp
}

#[test]
fn the_work_of_regions_with_one_thread_is_serial() {
    let openmp: OpenMp =
        |_, contexts| with_one_thread(region(100, [1000, 1000, 1000], contexts), 500, contexts);
    let small = doing("main/small/small._omp_fn.1", 500 * MS);
    let summary = with_teams(2, openmp, |_| vec![doing(KERNEL, 1000 * MS), small]);
    assert_eq!(losses(&summary), [(LossKind::SerialSection, 0.375)]);
    assert_eq!(causes(&summary.losses[0]), [("main/small/small._omp_fn.1".to_owned(), 0.375)]);
    // 3 x 500 ms are lost of 4 x 1500 ms.
    assert_eq!(rounded(summary.efficiency.openmp.unwrap().parallel), 0.75);
}

#[test]
fn a_team_inside_of_a_region_with_one_thread_works_in_parallel() {
    let openmp: OpenMp = |_, contexts| {
        let mut openmp = with_one_thread(region(100, [1000, 1000, 1000], contexts), 1000, contexts);
        openmp.regions[0].node = contexts.node("main/small/small._omp_fn.1/GOMP_parallel");
        openmp.regions[0].function = Some(contexts.node("main/small/small._omp_fn.1/inner"));
        openmp.regions[0].level = 1;
        openmp
    };
    let inner = doing("main/small/small._omp_fn.1/inner", 1000 * MS);
    let summary = with_teams(2, openmp, |_| vec![inner]);
    assert_eq!(losses(&summary), []);
    assert_eq!(rounded(summary.efficiency.openmp.unwrap().parallel), 1.0);
}

#[test]
fn the_time_of_serial_work_includes_libraries_and_no_loops_with_work_of_their_own() {
    let openmp: OpenMp = |_, contexts| region(100, [1000, 1000, 1000], contexts);
    let summary = with_teams(2, openmp, |_| {
        let serial = [
            doing("main/prepare", 100 * MS),
            doing("main/prepare/libm.so.6!exp", 200 * MS),
            doing("main/prepare/loop", 250 * MS),
        ];
        [&[doing(KERNEL, 1000 * MS)], &serial[..]].concat()
    });
    let loss = of_kind(&summary, LossKind::SerialSection).unwrap();
    let found = loss.causes.iter().map(|it| (path(&it.path), rounded(it.mean_s), it.max_s));
    let found: Vec<_> = found.collect();
    let truth = [("main/prepare", 0.3), ("main/prepare/loop", 0.25)];
    assert_eq!(found, truth.map(|(path, s)| (path.to_owned(), s, s)));
    assert!(loss.advice.contains("most of the time in prepare (0.30 s on average)"), "{loss:?}");
}

#[test]
fn efficiencies_of_teams_follow_talp() {
    let openmp: OpenMp = |_, contexts| region(100, [1000, 700, 900], contexts);
    let summary = with_teams(2, openmp, |_| {
        let mpi = doing("main/exchange/MPI_Recv", 500 * MS);
        [&in_region()[..], &[doing("main/prepare", 500 * MS), mpi]].concat()
    });
    // Thread time without MPI: 4 x 1000 ms in regions, 4 x 500 ms outside. Lost: 4 x 200 ms by
    // uneven threads, 4 x 100 ms without work, 3 x 500 ms by serial work.
    let openmp = summary.efficiency.openmp.unwrap();
    assert_eq!(rounded(openmp.parallel), 0.55);
    assert_eq!(rounded(openmp.load_balance), rounded(5200.0 / 6000.0));
    assert_eq!(rounded(openmp.scheduling), rounded(4800.0 / 5200.0));
    assert_eq!(rounded(openmp.serialisation), 0.6875);
    let product = openmp.load_balance * openmp.scheduling * openmp.serialisation;
    assert!((product - openmp.parallel).abs() < 1e-9);
    // The wait for the region's end is no communication.
    assert_eq!(summary.efficiency.communication, Some(0.75));
    assert_eq!(summary.efficiency.load_balance, Some(1.0));
    assert_eq!(summary.efficiency.parallel.map(rounded), Some(0.4125));
    let without = with_teams(2, |_, _| OpenMpProfile::default(), |_| vec![doing("main", MS)]);
    assert_eq!(without.efficiency.openmp, None);
}

#[test]
fn ranks_without_teams_count_as_one_thread() {
    let openmp: OpenMp = |rank, contexts| match rank {
        0 => region(100, [1000, 1000, 1000], contexts),
        _ => OpenMpProfile::default(),
    };
    let summary = with_teams(2, openmp, |rank| match rank {
        0 => vec![doing(KERNEL, 1000 * MS), doing("main/prepare", 500 * MS)],
        _ => vec![doing("main/prepare", 1500 * MS)],
    });
    // 3 x 500 ms are lost of 4 x 1500 ms on one rank and 1500 ms on the other.
    let openmp = summary.efficiency.openmp.unwrap();
    assert_eq!(rounded(openmp.parallel), 0.8);
    assert_eq!(openmp.parallel, openmp.serialisation);
    assert_eq!(summary.efficiency.parallel.map(rounded), Some(0.8));
}

/// A library with threads of its own, in a program that otherwise has none.
#[test]
fn threads_that_are_hardly_used_do_not_lower_the_efficiency() {
    let openmp: OpenMp = |_, contexts| region(10, [20, 20, 20], contexts);
    let summary =
        with_teams(2, openmp, |_| vec![doing(KERNEL, 20 * MS), doing("main/solve", 980 * MS)]);
    assert_eq!((summary.efficiency.parallel, summary.efficiency.openmp), (Some(1.0), None));
    assert!(!summary.computes_little());
}

#[test]
fn a_rank_that_is_slow_because_its_threads_are_uneven_says_so() {
    // Rank 1's region takes 400 ms longer, because one of its threads works that much longer.
    let openmp: OpenMp = |rank, contexts| {
        let more = 400 * u64::from(rank);
        region(100, [1000 + more, 1000, 1000 + more], contexts)
    };
    let uneven = |rank| vec![doing(KERNEL, (1000 + 400 * u64::from(rank)) * MS)];
    let summary = with_teams(2, openmp, uneven);
    let truth = [(LossKind::LoadImbalance, 0.2), (LossKind::ThreadImbalance, 0.2)];
    let mut found = losses(&summary);
    found.sort_by_key(|(kind, _)| *kind);
    assert_eq!(found, truth, "together the 400 ms that even threads would save");
    let between = of_kind(&summary, LossKind::LoadImbalance).unwrap();
    let words = "The slowest rank loses 0.20 s more than the average rank by uneven threads in";
    assert!(between.advice.contains(words), "{}", between.advice);
    let waiting = &of_kind(&summary, LossKind::ThreadImbalance).unwrap().waiting_ranks;
    assert_eq!(waiting, "1");
    // Uneven ranks with even threads.
    let even: OpenMp = |rank, contexts| {
        let ms = 1000 + 400 * u64::from(rank);
        region(100, [ms, ms, ms], contexts)
    };
    let summary = with_teams(2, even, uneven);
    assert_eq!(losses(&summary), [(LossKind::LoadImbalance, 0.2)]);
    assert!(summary.losses[0].advice.ends_with("Distribute its work more evenly."));
}

/// Three ranks execute a region: rank 0 for `slow_ms`, the others for
/// 500 ms with four threads. No thread waits.
fn with_one_small_team(openmp: OpenMp, slow_ms: u64) -> Summary {
    with_teams(3, openmp, |rank| {
        let ms = if rank == 0 { slow_ms } else { 500 };
        vec![doing(KERNEL, (ms - 1) * MS), doing(REGION, MS)]
    })
}

fn team_of(threads: u32, ms: u64, contexts: &mut Contexts) -> OpenMpProfile {
    let mut openmp = region(100, [ms, ms, ms], contexts);
    let region = &mut openmp.regions[0];
    region.threads = threads;
    for ns in [&mut region.thread_ns, &mut region.work_ns, &mut region.max_thread_ns] {
        *ns = u64::from(threads) * ms * MS;
    }
    openmp
}

#[test]
fn a_rank_that_is_slow_because_its_team_is_small_says_so() {
    // Each rank has 2 s of work.
    let openmp: OpenMp = |rank, contexts| match rank {
        0 => team_of(1, 2000, contexts),
        _ => team_of(4, 500, contexts),
    };
    let summary = with_one_small_team(openmp, 2000);
    assert_eq!(losses(&summary), [(LossKind::LoadImbalance, 1.0)]);
    let words = "rank 0 has teams of 1 thread, other ranks of up to 4: give all ranks teams";
    assert!(summary.losses[0].advice.contains(words), "{}", summary.losses[0].advice);
    let text = plimsoll_report::text(&summary);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains("with 2.0 threads on average, 4 at most"), "{text}");
    // Rank 0 has 12 s of work for three threads: with four, most of the excess would remain.
    let openmp: OpenMp = |rank, contexts| match rank {
        0 => team_of(3, 4000, contexts),
        _ => team_of(4, 500, contexts),
    };
    let advice = &with_one_small_team(openmp, 4000).losses[0].advice;
    assert!(advice.ends_with("Distribute its work more evenly."), "{advice}");
}

#[test]
fn threads_that_wait_for_mpi_inside_of_a_region_are_not_uneven() {
    // The communicating thread of rank 0 is in MPI for 600 ms, and another thread works as long.
    let openmp: OpenMp = |_, contexts| {
        let mut openmp = region(100, [1000, 550, 1000], contexts);
        let share =
            |number, mpi_ms| ShareProfile { number, mpi_ns: mpi_ms * MS, ..Default::default() };
        openmp.regions[0].mpi_ns = 600 * MS;
        openmp.regions[0].shares = vec![share(0, 600), share(1, 0)];
        openmp
    };
    let summary = with_teams(2, openmp, |_| in_region().to_vec());
    // Of 1000 - 550 ms, one of four threads is in MPI for 600 ms.
    assert_eq!(losses(&summary), []);
    let openmp = summary.efficiency.openmp.unwrap();
    assert_eq!(rounded(openmp.load_balance), 1.0, "{openmp:?}");
}

/// A region of four threads that work and wait in barriers for these times, in milliseconds, and
/// are in MPI for as long each; `own_ms` is the work of the communicating thread outside of MPI.
fn with_mpi_of_all(
    [elapsed_ms, own_ms, others_ms]: [u64; 3],
    mpi_ms: u64,
    contexts: &mut Contexts,
) -> OpenMpProfile {
    let mean_ms = (own_ms + 3 * others_ms) / 4 + mpi_ms;
    let mut openmp = region(10, [elapsed_ms, mean_ms, own_ms + mpi_ms], contexts);
    let share = |number: u32| {
        let work_ms = mpi_ms + if number == 0 { own_ms } else { others_ms };
        ShareProfile {
            number,
            work_ns: work_ms * MS,
            barrier_ns: (elapsed_ms - work_ms) * MS,
            mpi_ns: mpi_ms * MS,
            ..ShareProfile::default()
        }
    };
    let region = &mut openmp.regions[0];
    region.shares = (0..4).map(share).collect();
    region.mpi_ns = 4 * mpi_ms * MS;
    region.barrier_ns = region.shares.iter().map(|share| share.barrier_ns).sum();
    openmp
}

#[test]
fn threads_that_wait_for_mpi_calls_of_one_another_are_not_uneven() {
    // In turn, each of four threads is in MPI for 150 ms (single), while the others wait.
    let in_turn: OpenMp = |_, contexts| with_mpi_of_all([1000, 400, 400], 150, contexts);
    let receive = doing("main/solve/solve._omp_fn.0/MPI_Recv", 150 * MS);
    let summary = with_teams(2, in_turn, |_| {
        vec![doing(KERNEL, 400 * MS), receive, doing(IN_BARRIER, 450 * MS)]
    });
    assert!(of_kind(&summary, LossKind::ThreadImbalance).is_none(), "{:?}", losses(&summary));
    let openmp = summary.efficiency.openmp.unwrap();
    assert_eq!([openmp.load_balance, openmp.scheduling].map(rounded), [1.0, 1.0]);
    assert_eq!(rounded(summary.efficiency.parallel.unwrap()), 0.4);
    let windows = &summary.efficiency.windows;
    let mean = |of: fn(&Window) -> Option<f64>| {
        let sum: f64 = windows.iter().map(|it| of(it).unwrap() * (it.end_s - it.begin_s)).sum();
        sum / summary.run.elapsed_s
    };
    assert!((mean(|it| it.parallel) - 0.4).abs() < 1e-6, "{windows:?}");
    assert!((mean(|it| it.communication) - 0.4).abs() < 1e-6, "{windows:?}");
    // All threads are in MPI for 600 ms at the same time (MPI_THREAD_MULTIPLE). One of them has
    // 200 ms more work than the others.
    let at_once: OpenMp = |_, contexts| with_mpi_of_all([1200, 600, 400], 600, contexts);
    let receive = doing("main/solve/solve._omp_fn.0/MPI_Recv", 600 * MS);
    let summary = with_teams(2, at_once, |_| vec![doing(KERNEL, 600 * MS), receive]);
    let uneven = of_kind(&summary, LossKind::ThreadImbalance).expect("a loss");
    assert_eq!(rounded(uneven.seconds), 0.15);
    // Of 4 x 600 ms without MPI, 3 x 200 ms.
    let openmp = summary.efficiency.openmp.unwrap();
    assert_eq!([openmp.load_balance, openmp.scheduling].map(rounded), [0.75, 1.0]);
    assert_eq!(rounded(summary.efficiency.load_balance.unwrap()), 1.0);
}

const IN_BARRIER: &str = "main/solve/solve._omp_fn.0/GOMP_barrier";

/// Adds waits in barriers, summed over threads, to the first region.
fn in_barriers(mut openmp: OpenMpProfile, barrier_ms: u64) -> OpenMpProfile {
    openmp.regions[0].barrier_ns = barrier_ms * MS;
    openmp
}

#[test]
fn threads_that_are_uneven_between_barriers_lose_the_wait_of_a_thread() {
    let seconds = |openmp: OpenMp| {
        let part = [doing(KERNEL, 400 * MS), doing(IN_BARRIER, 600 * MS)];
        let summary = with_teams(2, openmp, |_| part.to_vec());
        let loss = of_kind(&summary, LossKind::ThreadImbalance).expect("a loss");
        assert_eq!(loss.waiting_ranks, "0-1");
        (rounded(loss.seconds), loss.advice.clone())
    };
    // The slow thread changes from step to step: all threads work for 400 ms.
    let (s, advice) =
        seconds(|_, contexts| in_barriers(region(1, [1000, 400, 400], contexts), 2400));
    assert_eq!(s, 0.6);
    for words in ["a thread waits 0.60 s on average in GOMP_barrier", "same work in each part"] {
        assert!(advice.contains(words), "{words}: {advice}");
    }
    // The thread with most work works for 760 ms and waits for 240 ms.
    let (s, _) = seconds(|_, contexts| in_barriers(region(1, [1000, 400, 760], contexts), 2400));
    assert_eq!(s, 0.6);
    // In an instance of 1300 ms, the communicating thread is in MPI for 600 ms while the others
    // wait, and then waits for them: without MPI, threads with 100 and 700 ms of work remain.
    let (s, _) = seconds(|_, contexts| {
        let mut openmp = in_barriers(region(1, [1300, 700, 700], contexts), 2400);
        let mpi_ns = 600 * MS;
        openmp.regions[0].mpi_ns = mpi_ns;
        openmp.regions[0].shares = vec![ShareProfile { mpi_ns, ..ShareProfile::default() }];
        openmp
    });
    assert_eq!(s, 0.15);
    // 900 of 3000 ms are a wait for a lock.
    let (s, _) =
        seconds(|_, contexts| in_barriers(locked(region(1, [1000, 250, 250], contexts)), 2100));
    assert_eq!(s, 0.525);
}

#[test]
fn the_cause_of_uneven_threads_is_where_they_work_and_not_where_they_wait() {
    const COMPUTE: &str = "main/solve/solve._omp_fn.0/compute";
    const EXCHANGE: &str = "main/solve/solve._omp_fn.0/exchange/GOMP_barrier";
    const OWN_BARRIER: &str = "main/solve/solve._omp_fn.0/exchange/pthread_barrier_wait";
    let openmp: OpenMp = |_, contexts| in_barriers(region(100, [1000, 325, 1000], contexts), 2700);
    // The communicating thread waits for another one, or works while the others wait.
    for (main, others, exchange) in [
        ([100, 900], [1200, 1800], EXCHANGE),
        ([1000, 0], [300, 2700], EXCHANGE),
        ([1000, 0], [300, 2700], OWN_BARRIER),
    ] {
        let mut subject = Subject::new(1);
        subject.threads = 4;
        subject.openmp = openmp;
        let part = |[work_ms, wait_ms]: [u64; 2]| {
            vec![doing(COMPUTE, work_ms * MS), doing(exchange, wait_ms * MS)]
        };
        subject.others = part(others);
        subject.step(BARRIER, |_| part(main));
        let summary = verdict(&subject);
        let loss = of_kind(&summary, LossKind::ThreadImbalance).expect("a loss");
        assert_eq!(causes(loss), [(COMPUTE.to_owned(), 0.675)]);
        let (_, call) = exchange.rsplit_once('/').expect("a call of a function");
        let wait = format!("mostly in {call}");
        assert!(loss.advice.contains(&wait), "{wait}: {}", loss.advice);
    }
    // Only other threads of the team execute a section.
    let mut subject = Subject::new(1);
    subject.threads = 4;
    subject.openmp = |_, contexts| region(100, [1000, 325, 1000], contexts);
    subject.others = vec![doing(COMPUTE, 1200 * MS)];
    subject.step(BARRIER, |_| {
        vec![doing("main/solve/solve._omp_fn.0", 100 * MS), doing(REGION, 900 * MS)]
    });
    assert_eq!(causes(&verdict(&subject).losses[0]), [(COMPUTE.to_owned(), 0.675)]);
}

/// All threads do the same in one function; one thread works in another one, too.
#[test]
fn the_cause_of_uneven_threads_is_what_the_late_thread_does_more() {
    const EVEN: &str = "main/solve/solve._omp_fn.0/even";
    const ODD: &str = "main/solve/solve._omp_fn.0/odd";
    let mut subject = Subject::new(1);
    subject.threads = 4;
    subject.openmp = |_, contexts| region(100, [1000, 625, 1000], contexts);
    // The communicating thread is late.
    subject.others = vec![doing(EVEN, 1500 * MS)];
    subject.step(BARRIER, |_| vec![doing(EVEN, 500 * MS), doing(ODD, 500 * MS)]);
    assert_eq!(causes(&verdict(&subject).losses[0]), [(ODD.to_owned(), 0.375)]);
    // Another thread is.
    let mut subject = Subject::new(1);
    subject.threads = 4;
    subject.openmp = |_, contexts| region(100, [1000, 625, 1000], contexts);
    subject.others = vec![doing(EVEN, 1500 * MS), doing(ODD, 500 * MS)];
    subject.step(BARRIER, |_| vec![doing(EVEN, 500 * MS), doing(REGION, 500 * MS)]);
    subject.thread_locations = |_, contexts| {
        let mut location =
            |kind, odd_ms| location(kind, None, 1, &[(EVEN, 500), (ODD, odd_ms)], contexts);
        let locations = vec![
            location(LocationKind::Slowest, 500),
            location(LocationKind::Fastest, 0),
            location(LocationKind::Rest, 0),
        ];
        ThreadProfile { locations, ..ThreadProfile::default() }
    };
    assert_eq!(causes(&verdict(&subject).losses[0]), [(ODD.to_owned(), 0.375)]);
}

#[test]
fn a_region_that_is_called_at_several_places_is_one_loss() {
    const SITES: [&str; 3] = ["GOMP_parallel@1", "GOMP_parallel@2", "GOMP_parallel@3"];
    // Each place loses 8 ms of a run of 1 s; the region at another line 20 ms.
    let openmp: OpenMp = |_, contexts| {
        let mut openmp = region(1, [100, 80, 100], contexts);
        let first = RegionProfile {
            file: Some("solve.c".into()),
            line: Some(7),
            max_work_ns: 88 * MS,
            ..openmp.regions.remove(0)
        };
        let site = |site: &str| RegionProfile {
            node: contexts.node(&format!("main/solve/{site}")),
            ..first.clone()
        };
        openmp.regions = SITES.map(site).into();
        let other = contexts.node("main/solve/GOMP_parallel@4");
        openmp.regions.push(RegionProfile {
            node: other,
            line: Some(9),
            max_work_ns: 100 * MS,
            ..first
        });
        openmp
    };
    let summary = with_teams(1, openmp, |_| vec![doing(KERNEL, 1000 * MS)]);
    let kind = LossKind::ThreadImbalance;
    assert_eq!(losses(&summary), [(kind, 0.024), (kind, 0.02)]);
    assert_eq!(causes(&summary.losses[0]), [(KERNEL.to_owned(), 0.024)]);
    let advice = &summary.losses[0].advice;
    for words in ["at solve.c:7", "takes 0.26 s and a thread 0.24 s", "3 instances"] {
        assert!(advice.contains(words), "{words}: {advice}");
    }
}

#[test]
fn waits_in_barriers_of_short_regions_and_of_regions_around_others_count_once() {
    let openmp: OpenMp =
        |_, contexts| in_barriers(region(100_000, [1000, 200, 300], contexts), 3000);
    let summary = with_teams(1, openmp, |_| in_region().to_vec());
    assert_eq!(losses(&summary), [(LossKind::FineGrainedRegions, 0.8)]);
    // The communicating thread makes a team inside and waits 300 ms for its end, which is work in
    // the outer region; there, all threads wait 200 ms in barriers.
    let openmp: OpenMp = |_, contexts| {
        let mut openmp = in_barriers(region(1, [1000, 800, 800], contexts), 800);
        openmp.regions.push(RegionProfile {
            node: contexts.node("main/solve/solve._omp_fn.0/GOMP_parallel"),
            function: Some(contexts.node("main/solve/solve._omp_fn.0/inner")),
            level: 1,
            elapsed_ns: 400 * MS,
            thread_ns: 1600 * MS,
            work_ns: 400 * MS,
            mean_work_ns: 100 * MS,
            max_work_ns: 400 * MS,
            max_thread_ns: 1600 * MS,
            barrier_ns: 0,
            ..openmp.regions[0].clone()
        });
        openmp
    };
    let summary = with_teams(1, openmp, |_| in_region().to_vec());
    let kind = LossKind::ThreadImbalance;
    assert_eq!(losses(&summary), [(kind, 0.3), (kind, 0.2)]);
}

#[test]
fn the_remedy_for_waits_inside_of_a_region_depends_on_the_call() {
    for (wait, words) in [
        ("main/solve/solve._omp_fn.0/GOMP_single_copy_start", "single construct"),
        ("main/solve/solve._omp_fn.0/GOMP_doacross_wait", "doacross loop"),
        ("main/solve/solve._omp_fn.0/GOMP_taskwait", "wait for tasks"),
    ] {
        let openmp: OpenMp = |_, contexts| in_barriers(region(1, [1000, 400, 900], contexts), 2400);
        let part = [doing(KERNEL, 400 * MS), doing(wait, 600 * MS)];
        let summary = with_teams(1, openmp, |_| part.to_vec());
        let advice = &of_kind(&summary, LossKind::ThreadImbalance).unwrap().advice;
        assert!(advice.contains(words), "{words}: {advice}");
        assert!(!advice.contains("schedule"), "{advice}");
    }
}

#[test]
fn waits_outside_of_regions_that_no_efficiency_shows_are_noted() {
    for (wait_ms, is_noted) in [(900, true), (90, false)] {
        let summary = with_teams(
            1,
            |_, contexts| region(10, [1000, 1000, 1000], contexts),
            |_| vec![doing(KERNEL, 1000 * MS), doing("main/pthread_cond_wait", wait_ms * MS)],
        );
        let words = "leaves out this time, in which they are idle";
        let noted = summary.notes.iter().any(|note| note.contains(words));
        assert_eq!(noted, is_noted, "{wait_ms}: {:?}", summary.notes);
    }
}

/// Threads execute tasks while they wait in a barrier or at the end of the region.
#[test]
fn the_remedy_for_uneven_tasks_is_about_tasks() {
    for (task_ms, is_named) in [(900, true), (700, false)] {
        let openmp: OpenMp = match is_named {
            true => |_, contexts| with_long_tasks(900, contexts),
            false => |_, contexts| with_long_tasks(700, contexts),
        };
        let create = calling(CREATION, MS, 20, 0);
        let summary = with_teams(1, openmp, |_| {
            vec![doing("main/solve/solve._omp_fn.0", 900 * MS), create, doing(REGION, 99 * MS)]
        });
        let advice = &of_kind(&summary, LossKind::ThreadImbalance).unwrap().advice;
        assert_eq!(advice.contains("grainsize"), is_named, "{task_ms}: {advice}");
    }
}

/// A region with 1600 ms of work, of it `task_ms` in 20 tasks.
fn with_long_tasks(task_ms: u64, contexts: &mut Contexts) -> OpenMpProfile {
    let tasks = vec![TaskProfile { count: 20, work_ns: task_ms * MS, ..TaskProfile::default() }];
    OpenMpProfile { tasks, ..region(1, [1000, 400, 900], contexts) }
}

/// Kinds of losses with one rank and this region, besides serial work.
fn kinds(openmp: OpenMp) -> Vec<LossKind> {
    let summary = with_teams(1, openmp, |_| in_region().to_vec());
    let kinds = summary.losses.iter().map(|loss| loss.kind);
    kinds.filter(|kind| *kind != LossKind::SerialSection).collect()
}

#[test]
fn short_regions_lose_all_time_without_work() {
    let openmp: OpenMp = |_, contexts| region(100_000, [1000, 200, 300], contexts);
    let summary = with_teams(1, openmp, |_| in_region().to_vec());
    assert_eq!(losses(&summary), [(LossKind::FineGrainedRegions, 0.8)]);
    let loss = &summary.losses[0];
    assert_eq!((loss.symptom.calls, loss.symptom.per_call_s), (100_000, Some(1e-5)));
    for words in ["In all ranks, the", "100,000 times", "80 % of it", "if clause"] {
        assert!(loss.advice.contains(words), "{words}: {}", loss.advice);
    }
    // Work of 98 and 102 us in each.
    assert_eq!(
        kinds(|_, contexts| region(2_040, [1000, 200, 300], contexts)),
        [LossKind::FineGrainedRegions]
    );
    assert_eq!(
        kinds(|_, contexts| region(1_960, [1000, 200, 300], contexts)),
        [LossKind::ThreadImbalance]
    );
    // Waits of 98 and 108 us in each, such as in a doacross loop, beside hardly any work.
    assert_eq!(
        kinds(|_, contexts| in_barriers(region(10_000, [1000, 1, 1], contexts), 3_900)),
        [LossKind::FineGrainedRegions]
    );
    assert_eq!(
        kinds(|_, contexts| in_barriers(region(9_000, [1000, 1, 1], contexts), 3_900)),
        [LossKind::ThreadImbalance]
    );
    // 11 % and 9 % without work.
    assert_eq!(
        kinds(|_, contexts| region(100_000, [1000, 850, 890], contexts)),
        [LossKind::FineGrainedRegions]
    );
    assert_eq!(
        kinds(|_, contexts| region(100_000, [1000, 850, 910], contexts)),
        [LossKind::ThreadImbalance]
    );
}

/// The region with `count` tasks, which take 50 ms of each thread in total; their creation takes
/// the communicating thread 300 ms.
fn with_tasks(count: u64, contexts: &mut Contexts) -> OpenMpProfile {
    let tasks = vec![TaskProfile { count, work_ns: 200 * MS, ..TaskProfile::default() }];
    OpenMpProfile { tasks, ..region(1, [1000, 125, 350], contexts) }
}

const CREATION: &str = "main/solve/solve._omp_fn.0/GOMP_task";

/// The communicating thread in the region of [`with_tasks`].
fn creating(count: u64) -> Vec<Doing> {
    let create = calling(CREATION, 300 * MS, count, 0);
    vec![doing("main/solve/solve._omp_fn.0", 600 * MS), create, doing(REGION, 100 * MS)]
}

#[test]
fn short_tasks_lose_all_time_but_their_work() {
    // Tasks of 2 us; 4 x 1000 ms less 200 ms of work, for one of four threads.
    let openmp: OpenMp = |_, contexts| with_tasks(100_000, contexts);
    let summary = with_teams(1, openmp, |_| creating(100_000));
    assert_eq!(losses(&summary), [(LossKind::FineGrainedTasks, 0.95)]);
    let loss = &summary.losses[0];
    assert_eq!(path(&loss.symptom.path), CREATION);
    assert_eq!(causes(loss), [("main/solve/solve._omp_fn.0".to_owned(), 0.95)]);
    assert!(loss.advice.contains("100,000 tasks of about 2.0 us"), "{}", loss.advice);
    // Tasks of 11 us are long enough, those of 9 us are not.
    for (openmp, count, kind) in [
        ((|_, contexts| with_tasks(18_000, contexts)) as OpenMp, 18_000, LossKind::ThreadImbalance),
        (|_, contexts| with_tasks(22_300, contexts), 22_300, LossKind::FineGrainedTasks),
    ] {
        let summary = with_teams(1, openmp, |_| creating(count));
        assert_eq!(summary.losses.iter().map(|loss| loss.kind).collect::<Vec<_>>(), [kind]);
    }
}

#[test]
fn few_short_tasks_cost_only_their_number() {
    let found = |openmp: OpenMp, count| losses(&with_teams(1, openmp, |_| creating(count)));
    // 40 tasks do not explain why a thread works for 990 ms and the others for less.
    let few: OpenMp = |_, contexts| {
        let tasks = vec![TaskProfile { count: 40, work_ns: 40, ..TaskProfile::default() }];
        OpenMpProfile { tasks, ..region(1, [1000, 240, 990], contexts) }
    };
    let summary = with_teams(1, few, |_| {
        let create = calling(CREATION, MS, 40, 0);
        vec![doing("main/solve/solve._omp_fn.0", 989 * MS), create, doing(REGION, 10 * MS)]
    });
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.75)]);
    // Each costs each thread 30 us at most, besides 300 ms for the creation of all.
    let many: OpenMp = |_, contexts| with_tasks(22_300, contexts);
    assert_eq!(found(many, 22_300), [(LossKind::FineGrainedTasks, 0.744)]);
    // 13,300 tasks cost at most 474 ms of 950 ms for each thread, 13,400 tasks 477 ms.
    let less: OpenMp = |_, contexts| short_tasks(13_300, contexts);
    assert_eq!(found(less, 13_300), [(LossKind::ThreadImbalance, 0.225)]);
    let more: OpenMp = |_, contexts| short_tasks(13_400, contexts);
    assert_eq!(found(more, 13_400), [(LossKind::FineGrainedTasks, 0.477)]);
}

/// The region of [`with_tasks`] with shorter tasks.
fn short_tasks(count: u64, contexts: &mut Contexts) -> OpenMpProfile {
    let mut openmp = with_tasks(count, contexts);
    openmp.tasks[0].work_ns = 20 * MS;
    openmp
}

/// The region with 100 000 short tasks after one with `long` tasks of 20 us.
fn with_two_regions(long: u64, contexts: &mut Contexts) -> OpenMpProfile {
    let mut openmp = with_tasks(100_000, contexts);
    let work_ns = long * 20_000;
    let name = Some("assemble".to_owned());
    openmp.tasks.push(TaskProfile { name, count: long, work_ns, ..TaskProfile::default() });
    openmp.regions.push(RegionProfile {
        node: contexts.node("main/assemble/GOMP_parallel"),
        function: Some(contexts.node("main/assemble/assemble._omp_fn.0")),
        work_ns: work_ns + 300 * MS,
        mean_work_ns: work_ns / 4 + 75 * MS,
        max_work_ns: work_ns / 4 + 75 * MS,
        max_thread_ns: work_ns + 300 * MS,
        elapsed_ns: work_ns / 2,
        thread_ns: 2 * work_ns,
        ..openmp.regions[0].clone()
    });
    openmp
}

#[test]
fn tasks_are_short_or_not_for_each_region() {
    for (openmp, long) in [
        ((|_, contexts| with_two_regions(40_000, contexts)) as OpenMp, 40_000),
        (|_, contexts| with_two_regions(200_000, contexts), 200_000),
    ] {
        let summary = with_teams(1, openmp, |_| {
            let create = calling("main/assemble/assemble._omp_fn.0/GOMP_task", 300 * MS, long, 0);
            let rest_ns = long * 10_000 - 300 * MS;
            let assembling = [create, doing("main/assemble/assemble._omp_fn.0", rest_ns)];
            [&creating(100_000)[..], &assembling].concat()
        });
        let kind = LossKind::FineGrainedTasks;
        let found = summary.losses.iter().filter(|loss| loss.kind == kind);
        let found: Vec<_> = found.map(|loss| (path(&loss.symptom.path), &*loss.advice)).collect();
        let [(symptom, advice)] = &found[..] else { panic!("{long}: {found:?}") };
        assert_eq!(symptom, CREATION);
        assert!(advice.contains("100,000 tasks of about 2.0 us"), "{advice}");
    }
}

#[test]
fn the_serial_work_of_a_program_that_hardly_uses_threads_is_no_loss() {
    for (ms, is_loss) in [(60, true), (40, false)] {
        let openmp: OpenMp = match is_loss {
            true => |_, contexts| region(10, [60, 60, 60], contexts),
            false => |_, contexts| region(10, [40, 40, 40], contexts),
        };
        let summary = with_teams(1, openmp, |_| {
            vec![doing(KERNEL, ms * MS), doing("main/prepare", (1000 - ms) * MS)]
        });
        assert_eq!(of_kind(&summary, LossKind::SerialSection).is_some(), is_loss, "{ms}");
    }
}

#[test]
fn uneven_threads_explain_a_slow_rank_only_in_large_part() {
    for (uneven_ms, is_named) in [(130, true), (110, false)] {
        let openmp: OpenMp = match is_named {
            true => {
                |rank, contexts| region(10, [1400, 1400 - 130 * u64::from(rank), 1400], contexts)
            }
            false => {
                |rank, contexts| region(10, [1400, 1400 - 110 * u64::from(rank), 1400], contexts)
            }
        };
        let summary =
            with_teams(2, openmp, |rank| vec![doing(KERNEL, (1000 + 400 * u64::from(rank)) * MS)]);
        let advice = &of_kind(&summary, LossKind::LoadImbalance).unwrap().advice;
        assert_eq!(advice.contains("by uneven threads"), is_named, "{uneven_ms}: {advice}");
    }
}

const FIELD: &str = "main/solve/solve._omp_fn.0/field";
const PARTICLES: (&str, u64) = ("main/solve/solve._omp_fn.0/particles/nanosleep", 3000);

/// Returns the advice on a rank with a communicating thread that waits for its team. The other
/// threads of both ranks work in `field`; those of the slow rank are in other contexts besides, for
/// these times in milliseconds.
fn slow_by_other_threads(contexts: &[(&'static str, u64)]) -> String {
    let openmp: OpenMp = |rank, contexts| region(10, [1000 + 1000 * u64::from(rank); 3], contexts);
    let mut subject = Subject::new(2);
    subject.threads = 4;
    subject.openmp = openmp;
    subject.others = vec![doing(FIELD, 3000 * MS)];
    subject.others.extend(contexts.iter().map(|(path, ms)| doing(path, ms * MS)));
    subject.step(BARRIER, |rank| {
        let waiting = doing(REGION, 1000 * MS * u64::from(rank));
        vec![doing(FIELD, 1000 * MS), waiting]
    });
    let mut inputs = subject.inputs();
    inputs[0].profile.other_threads.truncate(1);
    let summary = diagnose_alone(inputs, &job()).unwrap();
    of_kind(&summary, LossKind::LoadImbalance).unwrap().advice.clone()
}

const IN_PARTICLES: &str = "solve (which waits for threads in particles) takes";

#[test]
fn the_function_that_makes_other_threads_slow_is_named() {
    let advice = slow_by_other_threads(&[PARTICLES]);
    assert!(advice.contains(IN_PARTICLES), "{advice}");
    // The time of a function's own loop counts once.
    let own_loop = ("main/solve/solve._omp_fn.0/loop", 1200);
    let advice = slow_by_other_threads(&[PARTICLES, own_loop]);
    assert!(advice.contains(IN_PARTICLES), "{advice}");
    let advice = slow_by_other_threads(&[PARTICLES, ("main/solve/solve._omp_fn.0/loop", 1400)]);
    assert!(advice.contains("solve (which waits for threads in solve._omp_fn.0)"), "{advice}");
}

/// As in the functions in which threads work: no wait for threads or locks is work.
#[test]
fn waits_do_not_make_other_threads_slow() {
    for wait in [
        "main/solve/solve._omp_fn.0/field/GOMP_barrier",
        "main/solve/solve._omp_fn.0/field/GOMP_parallel",
        "main/solve/solve._omp_fn.0/field/GOMP_critical_start",
        "main/solve/solve._omp_fn.0/field/pthread_barrier_wait",
        "main/solve/solve._omp_fn.0/field/pthread_mutex_lock",
        "main/solve/solve._omp_fn.0/field/pthread_mutex_lock/__lll_lock_wait",
    ] {
        let advice = slow_by_other_threads(&[PARTICLES, (wait, 6000)]);
        assert!(advice.contains(IN_PARTICLES), "{wait}: {advice}");
    }
}

#[test]
fn the_callers_of_a_function_that_takes_locks_for_them_are_named() {
    const FILL: &str = "main/solve/loop/fill/lock/GOMP_critical_start";
    const DRAIN: &str = "main/solve/drain/lock/GOMP_critical_start";
    const DRAIN_LATER: &str = "main/finish/drain/lock/GOMP_critical_start";
    let openmp: OpenMp = |_, contexts| {
        let mut wait = |holder: &str, waited_ms: u64| LockWaitProfile {
            node: contexts.node(DRAIN),
            is_main: true,
            holder: Some(contexts.node(holder)),
            count: 1,
            waited_ns: waited_ms * MS,
        };
        let lock_waits = vec![wait(FILL, 600), wait(DRAIN, 250), wait(DRAIN_LATER, 50)];
        let whole = region(100, [1000, 1000, 1000], contexts);
        OpenMpProfile { lock_waits, ..whole }
    };
    let summary = with_teams(2, openmp, |_| {
        [DRAIN, FILL, DRAIN_LATER].map(|path| calling(path, 300 * MS, 10, 0)).into()
    });
    let text = plimsoll_report::text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
    for holder in
        ["Held by lock called by fill (67 % of the waiting)", "lock called by drain (33 % of the"]
    {
        assert!(text.contains(holder), "{holder}: {text}");
    }
}

#[test]
fn the_call_path_that_has_a_lock_while_others_wait_is_named() {
    let long = "main/solve/hold_long/GOMP_critical_start";
    let short = "main/solve/hold_short/GOMP_critical_start";
    let openmp: OpenMp = |_, contexts| {
        let mut wait = |waiter: &str, holder: Option<&str>, waited_ms: u64| LockWaitProfile {
            node: contexts.node(waiter),
            is_main: true,
            holder: holder.map(|holder| contexts.node(holder)),
            count: 1,
            waited_ns: waited_ms * MS,
        };
        let long = "main/solve/hold_long/GOMP_critical_start";
        let short = "main/solve/hold_short/GOMP_critical_start";
        let lock_waits = vec![
            wait(short, Some(long), 700),
            wait(short, None, 20),
            wait(short, Some(short), 80),
            wait(long, Some(short), 150),
            wait(long, Some(long), 50),
        ];
        let whole = region(100, [1000, 1000, 1000], contexts);
        OpenMpProfile { lock_waits, ..whole }
    };
    let summary = with_teams(2, openmp, |_| {
        vec![calling(short, 800 * MS, 10, 0), calling(long, 200 * MS, 10, 0)]
    });
    let loss = of_kind(&summary, LossKind::LockContention).expect("threads wait for a lock");
    // Threads that wait for their team count as useful among ranks.
    assert_eq!(rounded(summary.projection.elapsed_s), rounded(loss.elapsed_without_s));
    let holders: Vec<(String, f64)> =
        loss.holders.iter().map(|it| (path(&it.path), rounded(it.share))).collect();
    assert_eq!(holders, [(long.to_owned(), 0.75), (short.to_owned(), 0.23)]);
    let other = with_teams(
        2,
        |_, contexts| region(100, [1000, 700, 1000], contexts),
        |_| vec![doing(KERNEL, 900 * MS), doing(REGION, 100 * MS)],
    );
    assert!(other.losses.iter().all(|loss| loss.holders.is_empty()));
}

#[test]
fn waiting_in_order_for_the_thread_with_all_the_work_is_uneven_work_and_no_lock() {
    let waits = "main/solve/solve._omp_fn.0/GOMP_ordered_start";
    let with_lock = |openmp: OpenMp| {
        let part = |_| vec![doing(KERNEL, 100 * MS), calling(waits, 900 * MS, 10, 0)];
        with_teams(2, openmp, part)
    };
    // Another thread works all the time: without the lock, this one would wait for its end.
    let summary = with_lock(|_, contexts| locked(region(100, [1000, 250, 1000], contexts)));
    assert_eq!(losses(&summary), [(LossKind::ThreadImbalance, 0.75)]);
    // All threads work equally long, one after another.
    let summary = with_lock(|_, contexts| locked(region(100, [1000, 250, 250], contexts)));
    assert!(of_kind(&summary, LossKind::LockContention).is_some(), "{:?}", losses(&summary));
}

/// Adds 900 ms in which a thread of the region waits for a lock.
fn locked(mut openmp: OpenMpProfile) -> OpenMpProfile {
    openmp.regions[0].lock_ns = 900 * MS;
    openmp
}
