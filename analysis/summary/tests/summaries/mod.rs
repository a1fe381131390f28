//! Hand-made summaries of jobs as they occur, for the tests of schema and reports.
#![allow(dead_code, reason = "each test binary uses some of them")]

use std::collections::BTreeMap;

use plimsoll_summary::*;

pub fn function(name: &str, at: Option<(&str, u32)>) -> Frame {
    Frame {
        file: at.map(|(file, _)| format!("/home/ada/stencil/src/{file}")),
        line: at.map(|(_, line)| line),
        ..Frame::new(FrameKind::Function, name, "stencil")
    }
}

pub fn mpi(name: &str) -> Frame {
    Frame::new(FrameKind::Mpi, name, "libmpi.so.40")
}

pub fn loop_at(name: &str, file: &str, line: u32) -> Frame {
    Frame { kind: FrameKind::Loop, ..function(name, Some((file, line))) }
}

fn metric(mean_s: f64, min_s: f64, max_s: f64, ranks: u32) -> Metric {
    let (sum_s, stddev_s) = (mean_s * f64::from(ranks), (max_s - min_s) / 4.0);
    let min_observed_s = Some(min_s);
    Metric { mean_s, min_s, min_observed_s, max_s, sum_s, stddev_s, ranks, estimate: None }
}

/// A tree from its contexts in depth-first order: depth, frame, label, and mean, least, most time.
pub fn tree(ranks: u32, contexts: Vec<(usize, Frame, Label, [f64; 3])>) -> Tree {
    let mut tree = Tree::default();
    let mut open: Vec<u32> = Vec::new();
    for (depth, frame, label, [mean_s, min_s, max_s]) in contexts {
        open.truncate(depth);
        let known = tree.frames.iter().position(|other| *other == frame);
        let frame = known.unwrap_or_else(|| {
            tree.frames.push(frame);
            tree.frames.len() - 1
        });
        let inclusive = metric(mean_s, min_s, max_s, ranks);
        let node = TreeNode {
            parent: open.last().copied(),
            frame: frame as u32,
            label,
            calls: u64::from(ranks),
            inclusive,
            exclusive: inclusive,
            ..TreeNode::default()
        };
        open.push(tree.nodes.len() as u32);
        tree.nodes.push(node);
    }
    tree
}

/// A process without MPI and without any known value.
pub fn minimal() -> Summary {
    Summary {
        run: Run {
            executable: "true".into(),
            started: "2026-03-01T09:30:00+01:00".into(),
            ranks: 1,
            threads: 1,
            period_us: PeriodUs { asked: 4000.0, effective: None },
            complete: true,
            ended: "exit".into(),
            ..Run::default()
        },
        thresholds: BTreeMap::from([
            ("min_run_periods".to_owned(), 25.0),
            ("min_efficiency".to_owned(), 0.8),
        ]),
        ..Summary::default()
    }
}

/// 16 ranks on two nodes, balanced.
pub fn balanced() -> Summary {
    let main = function("main", Some(("stencil.c", 212)));
    let step = function("step", Some(("stencil.c", 140)));
    let sweep = function("sweep", Some(("sweep.c", 31)));
    let mut summary = minimal();
    summary.run = Run {
        executable: "/home/ada/stencil/build/stencil".into(),
        arguments: vec!["--size".into(), "4096".into()],
        job: Some("4711".into()),
        elapsed_s: 120.43,
        ranks: 16,
        threads: 16,
        nodes: vec![
            NodeOfRun { host: "node-a".into(), ranks: "0-7".into(), cores: 8 },
            NodeOfRun { host: "node-b".into(), ranks: "8-15".into(), cores: 8 },
        ],
        mpi: Mpi { library: Some("Open MPI v4.1.4".into()), abi: MpiAbi::OpenMpi },
        period_us: PeriodUs { asked: 4000.0, effective: Some(4003.2) },
        ended: "finalize".into(),
        settings: BTreeMap::from([("PLIMSOLL_PERIOD".into(), "4ms".into())]),
        ..summary.run
    };
    summary.collection = Collection {
        samples: 475_210,
        mpi_calls: 96_016,
        record_bytes: 9_120_337,
        sampling_cpu_s: 1.9,
        collector_cpu_s: 3.1,
        structure_cpu_s: 0.4,
        late_structure_cpu_s: 0.01,
        late_functions: 0,
        late_samples: 0,
        finalize_s: Some(0.21),
        memory_bytes: Some(21 << 20),
        ..Collection::default()
    };
    summary.efficiency = Efficiency {
        parallel: Some(0.964),
        load_balance: Some(0.985),
        communication: Some(0.979),
        openmp: None,
        windows: vec![
            Window {
                begin_s: 0.0,
                end_s: 60.0,
                parallel: Some(0.964),
                load_balance: Some(0.985),
                communication: Some(0.979),
            },
            Window { begin_s: 60.0, end_s: 120.0, ..Window::default() },
        ],
    };
    summary.projection.elapsed_s = 120.43;
    summary.thresholds.insert("min_loss_s".into(), 1.2043);
    summary.thresholds.insert("min_communication_loss_s".into(), 1.2043);
    summary.tree = tree(
        16,
        vec![
            (0, main, Label::Computation, [120.4, 120.3, 120.43]),
            (1, step, Label::Computation, [119.1, 118.9, 119.3]),
            (2, sweep, Label::Computation, [112.0, 110.2, 113.1]),
            (2, mpi("MPI_Sendrecv"), Label::Communication, [3.3, 2.0, 4.1]),
            (2, mpi("MPI_Allreduce"), Label::CollectiveSynchronisation, [1.0, 0.4, 2.1]),
            (1, function("report", None), Label::Computation, [0.1, 0.0, 1.6]),
        ],
    );
    summary
}

fn symptom(summary: &Summary, node: u32, calls: u64, bytes: Option<u64>) -> Symptom {
    let time = &summary.tree.nodes[node as usize].inclusive;
    Symptom {
        path: summary.tree.path(node),
        node,
        mean_s: time.mean_s,
        min_s: time.min_s,
        max_s: time.max_s,
        calls,
        calls_exact: true,
        per_call_s: Some(time.sum_s / calls as f64),
        bytes,
        breakdown: BTreeMap::from([(summary.tree.nodes[node as usize].label, 1.0)]),
    }
}

fn cause(summary: &Summary, node: u32, seconds: f64, share: f64) -> Cause {
    let time = &summary.tree.nodes[node as usize].inclusive;
    Cause {
        path: summary.tree.path(node),
        node,
        group: None,
        seconds,
        share,
        mean_s: time.mean_s,
        max_s: time.max_s,
        difference: None,
    }
}

/// Rank 12 executes twice the instructions of the others.
pub fn more_work() -> WorkDifference {
    WorkDifference {
        kind: WorkDifferenceKind::MoreWork,
        share: 0.95,
        ranks: "12".into(),
        time_factor: 2.07,
        instructions_factor: 2.0,
        ipc: 1.45,
        ipc_of_others: 1.5,
    }
}

fn loss(summary: &Summary, kind: LossKind, seconds: f64, symptom: Symptom) -> Loss {
    let elapsed_s = summary.run.elapsed_s;
    Loss {
        kind,
        severity: seconds / elapsed_s,
        seconds,
        elapsed_without_s: elapsed_s - seconds,
        phase: 0,
        also_in_phases: vec![],
        group: None,
        label: summary.tree.nodes[symptom.node as usize].label,
        polling: false,
        evened_out: false,
        by_turns: false,
        slow_ranks: String::new(),
        waiting_ranks: String::new(),
        when: None,
        advice: String::new(),
        symptom,
        also_in: vec![],
        causes: vec![],
        median_s: None,
        holders: vec![],
        waits_for: vec![],
        node: None,
        factor: None,
        origin: None,
        pattern: None,
        lateness: None,
    }
}

/// Ranks 12 to 15 of 16 compute forces for longer; besides, short messages.
pub fn imbalance() -> Summary {
    let mut summary = balanced();
    let main = function("main", Some(("stencil.c", 212)));
    let step = function("step", Some(("stencil.c", 140)));
    let forces = function("compute_forces", Some(("forces.c", 120)));
    summary.efficiency = Efficiency {
        parallel: Some(0.702),
        load_balance: Some(0.731),
        communication: Some(0.96),
        openmp: None,
        windows: Vec::new(),
    };
    summary.tree = tree(
        16,
        vec![
            (0, main, Label::Computation, [120.4, 120.3, 120.43]),
            (1, loop_at("main", "stencil.c", 230), Label::Computation, [120.0, 119.9, 120.1]),
            (2, step, Label::Computation, [84.6, 75.0, 115.6]),
            (3, forces, Label::Computation, [58.02, 48.0, 88.14]),
            (3, function("sweep", Some(("sweep.c", 31))), Label::Computation, [26.1, 25.7, 27.0]),
            (2, mpi("MPI_Allreduce"), Label::CollectiveSynchronisation, [31.2, 1.02, 40.2]),
            (2, mpi("MPI_Sendrecv"), Label::Communication, [4.2, 3.9, 4.4]),
        ],
    );
    summary.clusters = kinds_of_ranks();
    summary.losses = vec![
        Loss {
            slow_ranks: "12-15".into(),
            waiting_ranks: "0-11".into(),
            when: Some(When { kind: WhenKind::Confined, from_s: 41.2, to_s: 44.0, share: 0.85 }),
            advice:
                "Give ranks 12-15 less work in compute_forces, or spread its work more evenly: \
                     its slowest rank takes 88.1 s where the mean is 58.0 s."
                    .into(),
            causes: vec![cause(&summary, 3, 29.2, 0.967)],
            ..loss(&summary, LossKind::LoadImbalance, 30.18, symptom(&summary, 5, 24_000, None))
        },
        Loss {
            waiting_ranks: "0-15".into(),
            advice: "Send fewer, larger messages: combine those that go to the same rank.".into(),
            causes: vec![cause(&summary, 1, 4.2, 1.0)],
            ..loss(
                &summary,
                LossKind::FrequentCommunication,
                4.2,
                symptom(&summary, 6, 48_000, Some(393_216_000)),
            )
        },
    ];
    summary.projection.elapsed_s = 86.1;
    summary.phases = vec![Phase {
        id: 0,
        begins_after: None,
        ends_in: Some(summary.tree.path(5)),
        begin_s: 0.0,
        duration_s: 120.1,
        instances: 1500,
        kind: PhaseKind::Spmd,
        groups: vec![RankGroup { ranks: "0-15".into(), mean_work_s: 84.5 }],
    }];
    summary
}

fn kinds_of_ranks() -> Vec<RankCluster> {
    vec![
        RankCluster { ranks: "0-11".into(), size: 12, representative: 4, distance: Some(0.3) },
        RankCluster { ranks: "12-15".into(), size: 4, representative: 13, distance: Some(0.3) },
    ]
}

/// Rank 0 writes while the other seven wait.
pub fn serialization() -> Summary {
    let mut summary = balanced();
    let main = function("main", Some(("stencil.c", 212)));
    let write = function("io::Checkpoint<double>::write_header_and_fields", Some(("io.cpp", 77)));
    summary.run.ranks = 8;
    summary.run.threads = 8;
    summary.run.nodes.truncate(1);
    summary.efficiency = Efficiency {
        parallel: Some(0.61),
        load_balance: Some(0.62),
        communication: Some(0.98),
        openmp: None,
        windows: Vec::new(),
    };
    summary.tree = tree(
        8,
        vec![
            (0, main, Label::Computation, [120.4, 120.3, 120.43]),
            (1, function("solve", Some(("solve.c", 18))), Label::Computation, [72.0, 71.5, 72.4]),
            (1, function("io::dump", Some(("io.cpp", 12))), Label::Computation, [46.0, 45.9, 46.2]),
            (2, write, Label::Computation, [5.7, 0.0, 45.6]),
            (2, mpi("MPI_Barrier"), Label::CollectiveSynchronisation, [39.9, 0.01, 45.6]),
        ],
    );
    summary.losses = vec![Loss {
        slow_ranks: "0".into(),
        waiting_ranks: "1-7".into(),
        advice: "Let all ranks share this work, or overlap it with the work of the others.".into(),
        causes: vec![cause(&summary, 3, 39.9, 1.0)],
        ..loss(&summary, LossKind::Serialization, 39.89, symptom(&summary, 4, 80, None))
    }];
    summary.projection.elapsed_s = 80.54;
    summary
}

/// Eight ranks share two cores.
pub fn oversubscription() -> Summary {
    let mut summary = serialization();
    summary.run.job = None;
    summary.run.executable = "./lmp".into();
    summary.run.nodes = vec![NodeOfRun { host: "laptop".into(), ranks: "0-7".into(), cores: 2 }];
    let mut over = loss(&summary, LossKind::Oversubscription, 88.4, symptom(&summary, 1, 8, None));
    over.symptom.calls_exact = false;
    over.slow_ranks = "0-7".into();
    over.waiting_ranks = "0-7".into();
    over.advice = "Start at most as many ranks and threads as there are cores, or ask the batch \
                   system for more cores."
        .into();
    summary.losses = vec![over];
    summary.projection.elapsed_s = 32.0;
    summary
}

/// A program without MPI, with threads.
pub fn without_mpi() -> Summary {
    let mut summary = minimal();
    summary.run.executable = "/usr/bin/solver".into();
    summary.run.elapsed_s = 12.0;
    summary.run.threads = 3;
    summary.run.nodes = vec![NodeOfRun { host: "laptop".into(), ranks: "0".into(), cores: 4 }];
    summary.run.period_us.effective = Some(4000.0);
    summary.collection.samples = 8_800;
    summary.collection.sampling_cpu_s = 0.02;
    summary.collection.collector_cpu_s = 0.05;
    summary.collection.memory_bytes = Some(6 << 20);
    summary.projection.elapsed_s = 12.0;
    let once = |time: f64| [time; 3];
    summary.tree = tree(
        1,
        vec![
            (0, function("main", Some(("main.c", 9))), Label::Computation, once(12.0)),
            (1, function("read_input", Some(("input.c", 40))), Label::Computation, once(0.8)),
            (2, function("parse_line", Some(("input.c", 11))), Label::Computation, once(0.7)),
            (1, function("run", Some(("main.c", 30))), Label::Computation, once(8.1)),
            (2, function("solve", Some(("solve.c", 5))), Label::Computation, once(8.1)),
            (3, loop_at("solve", "solve.c", 12), Label::Computation, once(8.1)),
            (4, function("axpy", Some(("blas.c", 3))), Label::Computation, once(6.0)),
            (4, function("dot", Some(("blas.c", 14))), Label::Computation, once(2.0)),
            (1, function("pthread_join", None), Label::WaitPartner, once(3.0)),
            (1, function("tidy", None), Label::Computation, once(0.01)),
            (0, function("worker", Some(("pool.c", 50))), Label::Computation, once(12.0)),
            (1, function("take_task", Some(("pool.c", 70))), Label::Computation, once(5.0)),
            (2, function("pthread_cond_wait", None), Label::WaitPartner, once(4.9)),
            (1, function("run_task", Some(("pool.c", 90))), Label::Computation, once(7.0)),
        ],
    );
    summary
}

/// A job that a signal ended before MPI_Finalize.
pub fn ended_by_signal() -> Summary {
    let mut summary = balanced();
    summary.run.complete = false;
    summary.run.ended = "signal 11".into();
    summary.run.nodes.truncate(1);
    summary.collection.finalize_s = None;
    summary.collection.lost = 37;
    summary.efficiency = Efficiency::default();
    summary.notes = vec![
        "Perf events were refused (perf_event_paranoid is 4): samples come from CPU timers.".into(),
        "The job ended without MPI_Finalize: this file holds the ranks of node-a only; the other \
         nodes wrote their own."
            .into(),
    ];
    summary
}

/// More losses, deeper paths and longer names than a screen holds.
pub fn overfull() -> Summary {
    let mut summary = imbalance();
    let long = "hydro::detail::Riemann<hydro::policies::Exact, 3u>::solve_all_faces_of_the_patch";
    let mut deep: Vec<Frame> =
        (0..40).map(|level| function(&format!("level_{level}"), Some(("deep.c", level)))).collect();
    deep.push(function(long, Some(("riemann_solver_with_a_long_file_name.cpp", 1234))));
    deep.push(mpi("MPI_Allreduce"));
    let first = summary.losses[0].clone();
    for number in 0..12u32 {
        let mut loss = first.clone();
        loss.seconds = 60.0 - f64::from(number);
        loss.severity = loss.seconds / summary.run.elapsed_s;
        loss.elapsed_without_s = summary.run.elapsed_s - loss.seconds;
        loss.symptom.path = deep.clone();
        loss.slow_ranks = (0..90).map(|rank| (rank * 7).to_string()).collect::<Vec<_>>().join(",");
        loss.causes = vec![loss.causes[0].clone(); 9];
        loss.causes[0].path = deep[..41].to_vec();
        loss.evened_out = true;
        summary.losses.insert(number as usize, loss);
    }
    summary.projection.elapsed_s = 1.5;
    summary.notes = (0..20).map(|number| format!("Note {number} about something.")).collect();
    summary
        .notes
        .insert(1, "A name with \u{1b}[31mcolour\nand line end, and \u{e9}t\u{e9}.".into());
    summary
}

fn counters() -> Counters {
    let count = |sum: f64| CountStatistics {
        sum,
        mean: sum / 4.0,
        min: 0.0,
        max: sum,
        stddev: 2.0,
        ranks: 2,
    };
    let cycles = EventStatistics { inclusive: count(40.0), exclusive: count(20.0) };
    let ipc = MetricValues { inclusive: Some(0.5), exclusive: None };
    Counters {
        events: vec![CountedEvent {
            name: "cycles".into(),
            total: Some(40.0),
            ranks: "0-1".into(),
            refused: Some("this machine has no such hardware counter (rank 2-3)".into()),
        }],
        metrics: vec![RunMetric {
            name: "ipc".into(),
            expression: "instructions / cycles".into(),
            value: Some(0.5),
        }],
        estimated_s: 0.5,
        uncounted_threads: 1,
        contexts: vec![ContextCounters {
            node: 0,
            events: [("cycles".into(), cycles)].into(),
            metrics: [("ipc".into(), ipc)].into(),
        }],
    }
}

fn openmp() -> OpenMp {
    let share =
        |number| ThreadShare { number, work_s: 2.0, barrier_s: 0.25, lock_s: 0.125, mpi_s: 0.5 };
    OpenMp {
        runtime: Some("libgomp.so.1".into()),
        regions: vec![Region {
            path: Vec::new(),
            node: 0,
            function: Some("smooth._omp_fn.0".into()),
            file: Some("smooth.c".into()),
            line: Some(12),
            level: 1,
            ranks: "0-3".into(),
            threads: 2,
            instances: 40,
            elapsed_s: 3.0,
            mean_s: 0.075,
            median_s: Some(0.02),
            thread_s: 6.0,
            work_s: 4.0,
            wait_s: 2.0,
            imbalance_s: 0.5,
            max_imbalance_s: 0.25,
            scheduling_s: 1.0,
            load_balance_s: 1.0,
            barrier_s: 0.5,
            lock_s: 0.25,
            mpi_s: 1.0,
            shares: vec![share(0), share(1)],
        }],
        tasks: vec![Task {
            function: Some("smooth._omp_fn.1".into()),
            file: Some("smooth.c".into()),
            line: Some(20),
            ranks: "0-3".into(),
            count: 100,
            work_s: 0.5,
            longest_s: 0.125,
            median_s: Some(0.011),
        }],
        unmeasured: 1,
        efficiency: Some(OpenMpEfficiency {
            parallel: 0.72,
            load_balance: 0.9,
            scheduling: 1.0,
            serialisation: 0.8,
        }),
    }
}

/// Every key filled.
pub fn maximal() -> Summary {
    let mut summary = imbalance();
    summary.efficiency.windows = balanced().efficiency.windows;
    summary.counters = counters();
    summary.openmp = openmp();
    summary.openmp.regions[0].path = summary.tree.path(0);
    summary.efficiency.openmp = summary.openmp.efficiency;
    let path = summary.tree.path(5);
    summary.collection.marks.off_reason = Some("a shadow stack is in use".into());
    summary.collection.memory = Some(Memory {
        total_bytes: 84 << 20,
        ranks: 4,
        segment_bytes: 5 << 20,
        sampling_bytes: 3 << 20,
        context_bytes: 20 << 20,
        cluster_bytes: 12 << 20,
        structure_bytes: 12 << 20,
        debug_info_bytes: 18 << 20,
        spool_bytes: 4 << 20,
        analysis_bytes: 6 << 20,
        unused_bytes: 4 << 20,
    });
    summary.losses[0].group = Some(0);
    summary.losses[0].causes[0].group = Some(0);
    for loss in &mut summary.losses {
        loss.also_in = vec![loss.symptom.clone()];
        loss.also_in_phases = vec![1, 2];
        loss.median_s = Some(1.1e-6);
        loss.holders = vec![LockHolder { path: loss.symptom.path.clone(), node: 2, share: 0.6 }];
        loss.waits_for = vec![WaitsFor { ranks: "12".into(), share: 0.87, seconds: 3.2 }];
        loss.origin =
            Some(Origin { ranks: "12".into(), node: Some(3), share: 0.87, changes: false });
        loss.pattern = Some(Pattern::LateSender);
        loss.lateness =
            Some(Lateness { late_sender: 0.92, late_receiver: 0.0, transfer: 0.03, unknown: 0.05 });
        (loss.node, loss.factor) = (Some("node2".into()), Some(1.5));
        loss.causes.iter_mut().for_each(|cause| cause.difference = Some(more_work()));
    }
    summary.communication.matrix = Some(Matrix {
        file: None,
        ranks: Some("0-1".into()),
        clusters: Some(vec!["0-11".into(), "12-15".into()]),
        calls: vec![vec![0, 20], vec![10, 0]],
        bytes: vec![vec![0, 160], vec![80, 0]],
        received: vec![vec![0, 10], vec![20, 0]],
        wait_s: vec![vec![0.0, 1.5], vec![0.25, 0.0]],
        unknown: Untold { received: 3, ..Untold::default() },
        others: Untold { calls: 1, bytes: 8, received: 1, wait_s: 0.01 },
    });
    summary.segments = vec![Segment {
        phase: 0,
        imb_sync_s: 30.0,
        sum_imb_s: 31.0,
        sum_wait_s: 1.0,
        row: Some(3),
        nodes: vec![3, 5],
    }];
    let mut second = summary.phases[0].clone();
    (second.id, second.begins_after, second.ends_in) = (1, Some(path.clone()), None);
    second.kind = PhaseKind::Mpmd;
    summary.phases.push(second);
    let second_path = summary.tree.path(2);
    summary.loops = vec![Loop {
        path,
        node: 1,
        ranks: "0-15".into(),
        executions: 1,
        mean_duration_s: 120.0,
        longest_s: Some(120.0),
        fraction: 0.99,
        iterations: Iterations { accepted: 1500, rejected: 2, calls_seen: Some(1500), exact: true },
        durations_s: vec![0.08; 200],
        first_iterations: "0-199".into(),
        stride: Some(1),
        begins_s: vec![Some(0.5); 200],
        clusters: vec![IterationCluster {
            iterations: "0-90:10".into(),
            mean_s: 0.08,
            representative: Some(40),
            weight: Some(10),
            period: Some(10),
            distinction: Some(Distinction {
                node: 2,
                path: second_path,
                mean_s: 0.03,
                others_s: 0.0,
            }),
            slices: vec![IterationSlice { node: 2, begin_s: 0.01, duration_s: 0.03 }],
            instance: None,
        }],
        rank: Some(3),
    }];
    summary.clusters = kinds_of_ranks();
    summary.biclusters = vec![Bicluster {
        event: Some("page-faults".into()),
        nodes: vec![1],
        ranks: "3".into(),
        sign: 1,
        variance_share: 0.62,
    }];
    summary.thread_clusters = vec![ThreadCluster {
        ranks: "0-15".into(),
        size: 32,
        routine: Some("write_behind".into()),
        mean_s: 120.0,
        work_s: 3.5,
        distance: Some(0.4),
    }];
    summary.threads = threads_of_processes();
    summary.clocks = Clocks {
        reference: 0,
        offsets_us: vec![0.0, -3.5],
        drift_ppm: vec![0.0, 0.2],
        residual_us: Some(1.5),
        method: ClockMethod::PingPong,
    };
    summary.timeline.file = Some("a.plimsoll.timeline".into());
    summary.per_rank.file = Some("a.plimsoll.ranks".into());
    let node = &mut summary.tree.nodes[3];
    node.balanced = Some(false);
    for value in [
        &mut node.idle_s,
        &mut node.imb_s,
        &mut node.wait_s,
        &mut node.sum_imb_s,
        &mut node.sum_wait_s,
        &mut node.blame_inclusive_s,
        &mut node.blame_exclusive_s,
    ] {
        *value = Some(1.25);
    }
    node.blame_fraction = Some(0.5);
    node.counters = BTreeMap::from([("cycles".into(), 1.0e12)]);
    node.thread_times = BTreeMap::from([("slowest".into(), 60.0)]);
    for node in &mut summary.tree.nodes {
        let estimate = Some(Estimate { mean_s: 2.0, low_s: 1.75, high_s: 2.25 });
        (node.inclusive.estimate, node.exclusive.estimate) = (estimate, estimate);
    }
    summary.population = Some(population());
    summary.notes = vec!["Something fell back.".into()];
    summary
}

/// Threads aggregated by key, with every key of the summary filled; the list of classes is that of
/// another aggregation.
fn threads_of_processes() -> ProcessThreads {
    let times = |number, threads, work_s| ThreadTimes { number, threads, work_s, time_s: 120.0 };
    let role = |role: &str, threads, work_s| ThreadRole {
        role: role.into(),
        ranks: "0-15".into(),
        threads,
        work_s,
        min_work_s: 0.5 * work_s,
        max_work_s: 2.0 * work_s,
        time_s: 120.0,
    };
    let path = vec![function("worker", None), function("kernel", None)];
    ProcessThreads {
        aggregation: ThreadAggregation::Key,
        roles: vec![
            role("initial", 16, 100.0),
            role("slowest", 16, 60.0),
            role("fastest", 16, 10.0),
            role("rest", 32, 30.0),
        ],
        processes: vec![ThreadsOfProcess {
            rank: 3,
            threads: 5,
            key: Some(KeyThreads {
                initial: times(None, 1, 100.0),
                slowest: times(Some(2), 1, 60.0),
                fastest: Some(times(Some(4), 1, 10.0)),
                rest: Some(times(None, 2, 30.0)),
            }),
            classes: Some(vec![times(Some(1), 4, 25.0)]),
        }],
        unlisted: 15,
        distinction: Some(ThreadDistinction { node: 1, path, slowest_s: 50.0, fastest_s: 5.0 }),
    }
}

/// A sample of 6 of 16 ranks, as a digest shows it.
pub fn population() -> Population {
    let mean = |mean_s: f64| SampledMean {
        mean_s,
        low_s: Some(0.99 * mean_s),
        high_s: Some(1.01 * mean_s),
        error: Some(0.01),
        required: Some(5),
    };
    let metric = |quantity, node| SampledMetric { quantity, node, time: mean(60.0) };
    let stratum = |ranks: &str, sampled: &str, variance| Stratum {
        ranks: ranks.into(),
        sampled: sampled.into(),
        variance,
    };
    Population {
        strata: vec![stratum("0-11", "3,7-8,10", 0.25), stratum("12-15", "12,15", 0.0)],
        confidence: 0.95,
        error: 0.03,
        seed: 2_271_560_481,
        achieved_error: Some(0.01),
        metrics: vec![
            metric(Quantity::Work, None),
            metric(Quantity::Inclusive, Some(1)),
            metric(Quantity::Exclusive, Some(2)),
        ],
        windows: vec![SampledWindow { begin_s: 0.0, end_s: 60.0, time: mean(30.0) }],
    }
}
