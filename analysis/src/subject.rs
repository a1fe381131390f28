//! Runs with a known truth, for tests: the profiles that ranks would have if they did just this.

use std::collections::{BTreeMap, HashMap};

use plimsoll_agent::calls;
use plimsoll_collector::profile::{
    CollectionCounts, ContextTree, Frame, FrameKind, InstanceRow, InstanceRows, Node, NodeId,
    NodeValue, PhaseProfile, ProcessProfile, instance_level,
};

use crate::diagnose::{Cost, JobInfo, RankInput};
use crate::summary::{Mpi, MpiAbi};

/// A millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;

/// Contexts named by paths like `main/solve/MPI_Barrier`; `MPI_Barrier@7` is call site 7.
#[derive(Clone, Default)]
pub struct Contexts {
    pub tree: ContextTree,
}

impl Contexts {
    /// The node of a path; made where it does not exist.
    pub fn node(&mut self, path: &str) -> NodeId {
        let mut at = None;
        for name in path.split('/') {
            let (name, site) = name.split_once('@').unwrap_or((name, "0"));
            let (frame, site) = (self.frame(name), site.parse().unwrap());
            let wanted = Node { parent: at, frame, site };
            let known = self.tree.nodes.iter().position(|node| *node == wanted);
            at = Some(known.unwrap_or_else(|| {
                self.tree.nodes.push(wanted);
                self.tree.nodes.len() - 1
            }) as NodeId);
        }
        at.unwrap()
    }

    fn frame(&mut self, name: &str) -> u32 {
        let call = Some(calls::id_of(name)).filter(|id| *id != 0);
        let mpi = name.starts_with("MPI_");
        let module = match call {
            Some(_) if mpi => "libmpi.so.40",
            Some(_) => "libc.so.6",
            None => "app",
        };
        let kind = if mpi { FrameKind::Mpi } else { FrameKind::Function };
        let frame = Frame {
            kind,
            function: name.to_owned(),
            file: None,
            line: None,
            offset: None,
            module: module.to_owned(),
            call,
        };
        let known = self.tree.frames.iter().position(|known| *known == frame);
        known.unwrap_or_else(|| {
            self.tree.frames.push(frame);
            self.tree.frames.len() - 1
        }) as u32
    }
}

/// What one rank does in one context before a synchronisation: time on the clock, of which so
/// much it waits for a core.
#[derive(Clone, Copy)]
pub struct Doing {
    pub path: &'static str,
    pub wall_ns: u64,
    pub run_delay_ns: u64,
}

/// Does it without waiting for a core.
pub fn doing(path: &'static str, wall_ns: u64) -> Doing {
    Doing { path, wall_ns, run_delay_ns: 0 }
}

/// A run: a sequence of steps, each ended by a synchronisation of all ranks.
pub struct Subject {
    pub ranks: u32,
    steps: Vec<(Vec<&'static str>, Vec<Vec<Doing>>)>,
    rows_from_level: Vec<u32>,
    pub cores: Vec<u32>,
    pub others: Vec<Doing>,
    pub threads: u32,
}

impl Subject {
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            steps: Vec::new(),
            rows_from_level: vec![0; ranks as usize],
            cores: (0..ranks).collect(),
            others: Vec::new(),
            threads: 1,
        }
    }

    /// Each rank does its part and then calls the synchronisation at `sync`.
    pub fn step(&mut self, sync: &'static str, part: impl Fn(u32) -> Vec<Doing>) -> &mut Self {
        self.step_of_sites(|_| sync, part)
    }

    /// The same, where the ranks call the synchronisation at different places.
    pub fn step_of_sites(
        &mut self,
        sync: impl Fn(u32) -> &'static str,
        part: impl Fn(u32) -> Vec<Doing>,
    ) -> &mut Self {
        let syncs = (0..self.ranks).map(sync).collect();
        self.steps.push((syncs, (0..self.ranks).map(part).collect()));
        self
    }

    /// Rank `rank` keeps only instances of this level.
    pub fn level(&mut self, rank: u32, level: u32) -> &mut Self {
        self.rows_from_level[rank as usize] = level;
        self
    }

    /// Rank `rank`'s profile.
    pub fn profile(&self, rank: u32) -> ProcessProfile {
        let mut contexts = Contexts::default();
        contexts.node("main");
        let mut phases: Vec<PhaseProfile> = Vec::new();
        let mut values: Vec<BTreeMap<NodeId, NodeValue>> = Vec::new();
        let mut known: HashMap<(Option<NodeId>, NodeId), usize> = HashMap::new();
        let mut rows = Vec::new();
        let (mut now, mut after) = (0, None);
        let level = self.rows_from_level[rank as usize];
        let busy = |part: &[Doing]| part.iter().map(|doing| doing.wall_ns).sum::<u64>();
        for (index, (syncs, parts)) in self.steps.iter().enumerate() {
            let duration_ns = parts.iter().map(|part| busy(part)).max().unwrap();
            let ends_in = contexts.node(syncs[rank as usize]);
            let phase = *known.entry((after, ends_in)).or_insert_with(|| {
                values.push(BTreeMap::new());
                phases.push(PhaseProfile {
                    begins_after: after,
                    ends_in: Some(ends_in),
                    first_index: index as u64,
                    instances: 0,
                    first_begin_ns: now,
                    duration_ns: 0,
                    values: Vec::new(),
                });
                phases.len() - 1
            });
            let part = &parts[rank as usize];
            let mut row: BTreeMap<NodeId, u64> = BTreeMap::new();
            let wait = doing(syncs[rank as usize], duration_ns - busy(part));
            for doing in part.iter().chain([&wait]) {
                let node = contexts.node(doing.path);
                let calls = u64::from(
                    contexts.tree.frames[contexts.tree.nodes[node as usize].frame as usize]
                        .call
                        .is_some(),
                );
                values[phase].entry(node).or_default().add(&NodeValue {
                    exclusive_ns: doing.wall_ns,
                    run_delay_ns: doing.run_delay_ns,
                    calls,
                    bytes: 0,
                    samples: 1,
                });
                *row.entry(node).or_default() += doing.wall_ns - doing.run_delay_ns;
            }
            phases[phase].instances += 1;
            phases[phase].duration_ns += duration_ns;
            if instance_level(index as u64) >= level {
                let values = row.into_iter().collect();
                let (index, phase) = (index as u64, phase as u32);
                rows.push(InstanceRow { index, phase, duration_ns, values });
            }
            now += duration_ns;
            after = Some(ends_in);
        }
        for (phase, values) in phases.iter_mut().zip(values) {
            phase.values = values.into_iter().collect();
        }
        let others = self.others.iter().map(|doing| {
            let value = NodeValue { exclusive_ns: doing.wall_ns, samples: 1, ..Default::default() };
            (contexts.node(doing.path), value)
        });
        let other_threads = others.collect();
        ProcessProfile {
            tree: contexts.tree,
            phases,
            rows: InstanceRows { level, rows },
            other_threads,
            loops: Vec::new(),
            threads: self.threads,
            syncs: self.steps.len() as u64,
            elapsed_ns: now,
            period_ns: 4 * MS,
            effective_period_ns: 4 * MS,
            clock: "cpu".to_owned(),
            collection: CollectionCounts { samples: now / (4 * MS), ..Default::default() },
        }
    }

    /// Rank `rank`, as its collector hands it on.
    pub fn input(&self, rank: u32) -> RankInput {
        RankInput {
            rank,
            host: "sloop".to_owned(),
            cores: self.cores.clone(),
            profile: self.profile(rank),
            cost: Cost::default(),
            spool_trouble: None,
        }
    }

    /// All ranks.
    pub fn inputs(&self) -> Vec<RankInput> {
        (0..self.ranks).map(|rank| self.input(rank)).collect()
    }
}

/// A job of which nothing but its ranks matters.
pub fn job() -> JobInfo {
    JobInfo {
        executable: "app".to_owned(),
        arguments: Vec::new(),
        job: None,
        started: "2026-01-01T00:00:00+00:00".to_owned(),
        mpi: Mpi { library: None, abi: MpiAbi::OpenMpi },
        complete: true,
        ended: "finalize".to_owned(),
        settings: BTreeMap::new(),
        notes: Vec::new(),
    }
}
