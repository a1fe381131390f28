//! A synthetic profile, as large as those of real applications: a rank that sets itself up, then
//! steps through time in a loop, each step ended by a synchronisation.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{
    ContextTree, Frame, FrameKind, InstanceRow, InstanceRows, LoopCluster, LoopProfile, Node,
    NodeId, NodeValue, PhaseProfile, ProcessProfile, SyncReturns, TemporalTreeKey,
    TemporalTreeProfile, TimeSeries,
};
use plimsoll_trees::{ControlFlow, Frame as Open, Key, Lca, Limits, Members, Moment, TreeBuilder};

/// Parts of the program: the first `SETUP` run once, the others, up to `PARTS`, in each step.
const SETUP: u32 = 4;
const PARTS: u32 = 8;
/// Functions of a part, and callees of each function.
const FUNCTIONS: u32 = 6;
const CALLEES: u32 = 5;
/// The last part, which writes, runs in one of this many steps.
const WRITES_EVERY: u32 = 20;
const STEPS: u32 = 300;
const PERIOD_NS: u64 = 4_000_000;
/// Time of a callee of a part in one step, in nanoseconds.
const CALLEE_NS: u64 = 500_000;

/// Length of a bin of the time series, in nanoseconds: the run is about 40 s long.
const BIN_NS: u64 = 256_000_000;

/// Number of kinds of ranks.
pub const KINDS: u32 = 4;

/// Contexts, by parent and name.
#[derive(Default)]
struct Contexts {
    tree: ContextTree,
    known: BTreeMap<(Option<NodeId>, String), NodeId>,
}

impl Contexts {
    fn node(&mut self, parent: Option<NodeId>, kind: FrameKind, function: &str) -> NodeId {
        let tree = &mut self.tree;
        *self.known.entry((parent, function.to_owned())).or_insert_with(|| {
            let id = plimsoll_calls::id_of(function);
            tree.frames.push(Frame {
                kind,
                function: function.to_owned(),
                file: Some("/home/user/project/src/made.cpp".to_owned()),
                line: Some(tree.nodes.len() as u32 + 10),
                offset: None,
                module: if id == 0 { "made" } else { "libmpi.so.40" }.to_owned(),
                call: (id != 0).then_some(id),
            });
            tree.nodes.push(Node { parent, frame: tree.frames.len() as u32 - 1, site: 0 });
            tree.nodes.len() as NodeId - 1
        })
    }
}

/// Order in which code further down comes later. Keys are contexts, numbered in that order.
struct Downwards;

impl ControlFlow for Downwards {
    fn precedes(&self, _: Key, one: Key, other: Key) -> Option<bool> {
        Some(one < other)
    }
}

/// Returns a context's key: the thread itself has key 0.
fn key(node: NodeId) -> Key {
    Key(node + 1)
}

/// A run under construction.
struct Run {
    contexts: Contexts,
    temporal_tree: TreeBuilder,
    /// The current path, outermost first, and the time so far.
    path: Vec<NodeId>,
    now_ns: u64,
    /// Times of the current phase.
    row: BTreeMap<NodeId, u64>,
    times: TimeSeries,
}

impl Run {
    fn new() -> Self {
        let limits = Limits { period: PERIOD_NS, nodes: 1 << 16, iteration_nodes: 1 << 10 };
        let temporal_tree = TreeBuilder::new(Key(0), 0, limits);
        Self {
            contexts: Contexts::default(),
            temporal_tree,
            path: Vec::new(),
            now_ns: 0,
            row: BTreeMap::new(),
            times: TimeSeries { width_ns: BIN_NS, bins: Vec::new() },
        }
    }

    /// Spends `time_ns` in the last of these contexts.
    fn spend(&mut self, path: &[(FrameKind, &str)], time_ns: u64) {
        let mut nodes: Vec<NodeId> = Vec::with_capacity(path.len());
        for (kind, function) in path {
            nodes.push(self.contexts.node(nodes.last().copied(), *kind, function));
        }
        let kept = self.path.iter().zip(&nodes).take_while(|(open, new)| open == new).count();
        let frame = |(node, (kind, _)): (&NodeId, &(FrameKind, &str))| match kind {
            FrameKind::Loop => Open::within_loop(key(*node)),
            _ => Open::call(key(*node)),
        };
        let frames: Vec<Open> = nodes.iter().zip(path).skip(kept).map(frame).collect();
        let at = Moment::exact(self.now_ns);
        self.temporal_tree.change(Lca::exactly(kept), &frames, at, &Downwards);
        self.now_ns += time_ns;
        if let Some(node) = nodes.last() {
            self.times.add(*node, self.now_ns - time_ns, self.now_ns);
            *self.row.entry(*node).or_default() += time_ns;
        }
        self.path = nodes;
    }

    /// Runs a part of the program, `slower` times its usual duration.
    fn part(&mut self, outer: &[(FrameKind, &str)], part: u32, slower: f64) {
        let name = format!("Part{part}::run");
        for function in 0..FUNCTIONS {
            let function = format!("Part{part}::function_{function}");
            for callee in 0..CALLEES {
                let time_ns = (CALLEE_NS as f64 * slower) as u64 * u64::from(1 + callee % 3);
                let callee = format!("{function}_callee_{callee}");
                let names = [name.as_str(), &function, &callee];
                let mut path = outer.to_vec();
                path.extend(names.map(|name| (FrameKind::Function, name)));
                self.spend(&path, time_ns);
            }
        }
    }
}

/// Returns the profile of a rank of a kind: one part of its steps takes longer than in other kinds.
pub fn profile(kind: u32) -> ProcessProfile {
    use FrameKind::{Function, Loop, Mpi};
    let mut run = Run::new();
    let main = [(Function, "main")];
    let sync = [(Function, "main"), (Loop, "main"), (Mpi, "MPI_Allreduce")];
    let steps = [(Function, "main"), (Loop, "main")];
    // All contexts in the order of the code, so that keys are in that order, too.
    let mut phases: Vec<PhaseProfile> = Vec::new();
    let mut values: Vec<BTreeMap<NodeId, NodeValue>> = Vec::new();
    let mut rows: Vec<InstanceRow> = Vec::new();
    let mut sync_returns = SyncReturns { begin_ns: 1 << 50, ends: Vec::new() };
    let mut durations: Vec<(u64, u64)> = Vec::new();
    let mut after = None;
    for step in 0..STEPS {
        let begin_ns = run.now_ns;
        if step == 0 {
            run.spend(&main, PERIOD_NS);
            (0..SETUP).for_each(|part| run.part(&main, part, 1.0 + f64::from(part)));
        }
        let stepped_ns = run.now_ns;
        for part in SETUP..PARTS {
            let writes = part + 1 == PARTS;
            if !writes || step % WRITES_EVERY == 0 {
                run.part(&steps, part, if part == SETUP + kind { 1.5 } else { 1.0 });
            }
        }
        run.spend(&sync, CALLEE_NS * u64::from(KINDS - kind));
        durations.push((run.now_ns - stepped_ns, 1));
        let sync = run.path.last().copied();
        let phase = usize::from(after.is_some());
        if phase == phases.len() {
            phases.push(PhaseProfile {
                begins_after: after,
                ends_in: sync,
                first_index: u64::from(step),
                first_begin_ns: begin_ns,
                ..PhaseProfile::default()
            });
            values.push(BTreeMap::new());
        }
        let duration_ns = run.now_ns - begin_ns;
        phases[phase].instances += 1;
        phases[phase].last_index = u64::from(step);
        phases[phase].duration_ns += duration_ns;
        let row = std::mem::take(&mut run.row);
        for (node, time_ns) in &row {
            let calls = u64::from(Some(*node) == sync);
            let samples = time_ns / PERIOD_NS;
            let value =
                NodeValue { exclusive_ns: *time_ns, calls, samples, ..NodeValue::default() };
            values[phase].entry(*node).or_default().add(&value);
        }
        let (index, values) = (u64::from(step), row.into_iter().collect());
        rows.push(InstanceRow {
            subgroup: None,
            index,
            ends_in: sync,
            phase: phase as u32,
            duration_ns,
            values,
        });
        sync_returns.ends.push((index, sync_returns.begin_ns + run.now_ns));
        after = sync;
    }
    for (phase, values) in phases.iter_mut().zip(values) {
        phase.values = values.into_iter().collect();
    }
    let the_loop = run.contexts.node(Some(0), Loop, "main");
    let elapsed_ns = run.now_ns;
    let keys = (0..run.contexts.tree.nodes.len() as NodeId).map(|node| TemporalTreeKey {
        node: Some(node),
        site: 0,
        position: Some(u64::from(node)),
    });
    let thread = TemporalTreeKey { node: None, site: 0, position: None };
    let temporal_tree = TemporalTreeProfile {
        keys: std::iter::once(thread).chain(keys).collect(),
        tree: run.temporal_tree.finish(elapsed_ns, &Downwards).0,
    };
    let duration_ns = durations.iter().map(|(time_ns, _)| time_ns).sum();
    ProcessProfile {
        tree: run.contexts.tree,
        phases,
        rows: InstanceRows { level: 0, rows },
        sync_returns: Some(sync_returns),
        times: run.times,
        temporal_tree: Some(temporal_tree),
        loops: vec![LoopProfile {
            begins: begins(&durations),
            node: the_loop,
            executions: 1,
            duration_ns,
            accepted: u64::from(STEPS),
            rejected: 0,
            stride: 2,
            durations: durations.chunks(2).map(|pair| (pair[0].0 + pair[1].0, 2)).collect(),
            clusters: vec![LoopCluster {
                members: Members::range(0..u64::from(STEPS)),
                count: u64::from(STEPS),
                duration_ns,
                instances: Default::default(),
                contexts: Vec::new(),
                slices: Vec::new(),
                instance: None,
            }],
        }],
        threads: 1,
        syncs: u64::from(STEPS),
        elapsed_ns,
        period_ns: PERIOD_NS,
        kept_period_ns: PERIOD_NS,
        effective_period_ns: PERIOD_NS,
        clock: "cpu".to_owned(),
        ..ProcessProfile::default()
    }
}

/// Begin of each pair of iterations that follow one another.
fn begins(durations: &[(u64, u64)]) -> Vec<Option<u64>> {
    let begin = |at: &mut u64, pair: &[(u64, u64)]| {
        let begin = *at;
        *at += pair.iter().map(|(ns, _)| ns).sum::<u64>();
        Some(Some(begin))
    };
    durations.chunks(2).scan(0, begin).collect()
}
