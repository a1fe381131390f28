//! Conclusions from the totals of all ranks, and the summary that tells them.

use plimsoll_agent::marks::retreat::Reason;
use plimsoll_collector::profile::NodeId;

use crate::advice::{Facts, advice};
use crate::agreement::Matching;
use crate::diagnose::JobInfo;
use crate::imbalance::Cause;
use crate::job::JobTotals;
use crate::label::Label;
use crate::labelling::{Meaning, meanings, shown};
use crate::loops;
use crate::losses::{Finding, cause_time, losses, projected_s};
use crate::metrics::{Accumulator, NS_PER_S};
use crate::queries::Query;
use crate::rank::Owners;
use crate::ranks::RankSet;
use crate::summary::{
    self, Clock, ClockMethod, Clocks, Collection, Efficiency, Loss, LossKind, Marks, MpiAbi,
    NodeOfRun, PeriodUs, Phase, PhaseKind, Projection, RankGroup, Run, SchemaVersion, SideFile,
    Summary, Symptom,
};
use crate::summary_tree::{shown_path, summary_tree};
use crate::totals::{PhaseTotals, Totals};

/// What the totals tell.
pub struct Conclusion {
    totals: Totals,
    matching: Matching,
    meanings: Vec<Meaning>,
    findings: Vec<Finding>,
}

impl Conclusion {
    /// Concludes from the totals of all ranks, contexts in canonical order.
    pub fn new(totals: Totals, matching: Matching) -> Self {
        let meanings = meanings(&totals.tree.contexts);
        let owners = Owners::new(&totals.tree.contexts, &meanings);
        let findings = losses(&totals, &owners);
        Self { totals, matching, meanings, findings }
    }

    /// What is left to ask the ranks; the answers go to [`summary()`] in the same order.
    pub fn queries(&self) -> Vec<Query> {
        self.findings.iter().flat_map(|f| f.slow.iter().chain(&f.waiting).cloned()).collect()
    }
}

/// The summary, once the ranks have answered the conclusion's queries.
pub fn summary(conclusion: &Conclusion, answers: &[RankSet], job: &JobInfo) -> Summary {
    let Conclusion { totals, matching, meanings, findings } = conclusion;
    let (tree, places) = summary_tree(totals, meanings);
    let mut answers = answers.iter();
    let mut answer = |query: &Option<Query>| {
        query.as_ref().and_then(|_| answers.next()).cloned().unwrap_or_default()
    };
    let losses = findings.iter().map(|finding| {
        let (slow, waiting) = (answer(&finding.slow), answer(&finding.waiting));
        loss(conclusion, finding, &slow, &waiting, &places)
    });
    let losses = losses.collect();
    Summary {
        schema: SchemaVersion::V1,
        run: run(&totals.job, job),
        collection: collection(&totals.job),
        efficiency: efficiency(&totals.job, job),
        projection: Projection { elapsed_s: projected_s(totals, findings) },
        losses,
        segments: Vec::new(),
        phases: (0..).zip(totals.phases.values()).map(|(id, p)| phase(totals, id, p)).collect(),
        loops: loops::shown(totals, &places),
        clusters: Vec::new(),
        clocks: Clocks {
            reference: totals.job.ranks.first().unwrap_or(0),
            offsets_us: Vec::new(),
            drift_ppm: Vec::new(),
            residual_us: None,
            method: ClockMethod::None,
        },
        timeline: SideFile::default(),
        per_rank: SideFile::default(),
        tree,
        notes: notes(&totals.job, *matching, job),
    }
}

fn run(totals: &JobTotals, job: &JobInfo) -> Run {
    let nodes = totals.hosts.iter().map(|(host, at)| NodeOfRun {
        host: host.clone(),
        ranks: at.ranks.to_string(),
        cores: at.cores.len() as u32,
    });
    let samples = totals.counts.samples;
    let effective = totals.sampled_ns as f64 / samples.max(1) as f64 / 1e3;
    Run {
        executable: job.executable.clone(),
        arguments: job.arguments.clone(),
        job: job.job.clone(),
        started: job.started.clone(),
        elapsed_s: totals.elapsed_ns as f64 / NS_PER_S,
        ranks: totals.ranks.len(),
        threads: totals.threads,
        nodes: nodes.collect(),
        mpi: job.mpi.clone(),
        period_us: PeriodUs {
            asked: totals.period_ns as f64 / 1e3,
            effective: (effective > 0.0).then_some(effective),
        },
        clock: match totals.clock.as_str() {
            "wall" => Clock::Wall,
            "timer" => Clock::Timer,
            _ => Clock::Cpu,
        },
        complete: job.complete && totals.unsound.is_empty(),
        ended: job.ended.clone(),
        settings: job.settings.clone(),
    }
}

fn collection(totals: &JobTotals) -> Collection {
    let counts = &totals.counts;
    Collection {
        samples: counts.samples,
        lost: counts.lost,
        truncated: counts.truncated,
        marks: marks(totals),
        mpi_calls: counts.mpi_calls,
        spool_bytes: counts.spool_bytes,
        record_bytes: counts.record_bytes,
        sampling_cpu_s: counts.sampling_cpu_ns as f64 / NS_PER_S,
        collector_cpu_s: counts.collector_cpu_ns as f64 / NS_PER_S,
        structure_cpu_s: counts.structure_cpu_ns.0 as f64 / NS_PER_S,
        late_structure_cpu_s: counts.structure_cpu_ns.1 as f64 / NS_PER_S,
        // Known only when this analysis is over.
        finalize_s: None,
        memory_bytes: counts.memory_bytes,
        unsampled_threads: counts.unsampled_threads,
    }
}

fn marks(totals: &JobTotals) -> Marks {
    let [planted, hit, stale, verified, mismatched] = totals.counts.marks;
    let reasons = totals.marks_off.iter().filter_map(|(number, ranks)| {
        let reason = Reason::from_number(*number)?;
        let everywhere = ranks.len() == totals.ranks.len();
        Some(if everywhere { reason.to_string() } else { format!("{reason} (rank {ranks})") })
    });
    let reasons: Vec<String> = reasons.collect();
    let off_reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    Marks { planted, hit, stale, verified, mismatched, off_reason }
}

/// POP's efficiencies: parallel = load balance x communication.
fn efficiency(totals: &JobTotals, job: &JobInfo) -> Efficiency {
    let (mean_ns, max_ns) = (totals.useful.mean(totals.ranks.len()), totals.useful.max as f64);
    let elapsed_ns = totals.elapsed_ns as f64;
    let of = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0));
    if job.mpi.abi == MpiAbi::None {
        return Efficiency::default();
    }
    Efficiency {
        parallel: of(mean_ns, elapsed_ns),
        load_balance: of(mean_ns, max_ns),
        communication: of(max_ns, elapsed_ns),
    }
}

fn phase(totals: &Totals, id: u32, phase: &PhaseTotals) -> Phase {
    // The ranks that have the phase, which is all of them where they agree on phases.
    let ranks = totals.job.ranks.len();
    let path = |node: NodeId| shown_path(totals, node);
    Phase {
        id,
        begins_after: phase.begins_after.map(path),
        ends_in: phase.ends_in.map(path),
        begin_s: phase.begin.mean(ranks) / NS_PER_S,
        duration_s: phase.duration.mean(ranks) / NS_PER_S,
        instances: phase.instances,
        kind: PhaseKind::Spmd,
        groups: vec![RankGroup {
            ranks: totals.job.ranks.to_string(),
            mean_work_s: phase.work.mean(ranks) / NS_PER_S,
        }],
    }
}

fn notes(totals: &JobTotals, matching: Matching, job: &JobInfo) -> Vec<String> {
    let mut notes = job.notes.clone();
    if matching == Matching::WholeRun {
        notes.push(
            "The ranks did not see the same synchronisations: the whole run is one phase.".into(),
        );
    }
    if !totals.unsound.is_empty() {
        notes.push(format!(
            "The profile of rank {} contradicts itself and was left out.",
            totals.unsound
        ));
    }
    for (trouble, ranks) in &totals.spool_troubles {
        notes.push(format!("The spool of rank {ranks} is incomplete: {trouble}."));
    }
    if !totals.stepped_aside.is_empty() {
        notes.push(format!(
            "The application uses the sampling signal itself on rank {}: sampling stepped aside \
             there.",
            totals.stepped_aside
        ));
    }
    notes
}

fn loss(
    conclusion: &Conclusion,
    finding: &Finding,
    slow: &RankSet,
    waiting: &RankSet,
    places: &[Option<u32>],
) -> Loss {
    let totals = &conclusion.totals;
    let ranks = totals.job.ranks.len();
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let phase = &totals.phases[&finding.phase];
    let place = |node: NodeId| places[node as usize].unwrap_or(0);
    let cause = |cause: &Cause| {
        let time = cause_time(phase, cause);
        summary::Cause {
            path: shown_path(totals, cause.node),
            node: place(cause.node),
            group: None,
            seconds: cause.ns / NS_PER_S,
            share: cause.ns / NS_PER_S / finding.seconds,
            mean_s: time.mean(ranks) / NS_PER_S,
            max_s: time.max as f64 / NS_PER_S,
        }
    };
    let causes: Vec<summary::Cause> = finding.causes.iter().map(cause).collect();
    let cause_s = causes.first().map_or((0.0, 0.0), |cause| (cause.mean_s, cause.max_s));
    let crowded = finding.kind == LossKind::Oversubscription;
    let meaning = conclusion.meanings[finding.symptom as usize];
    Loss {
        kind: finding.kind,
        severity: finding.seconds / elapsed_s,
        seconds: finding.seconds,
        elapsed_without_s: (elapsed_s - finding.seconds).max(0.0),
        phase: totals.phases.range(..finding.phase).count() as u32,
        group: None,
        label: match crowded {
            true => Label::Computation,
            false => shown(meaning, totals.nodes[finding.symptom as usize].derived),
        },
        polling: meaning.polling,
        evened_out: finding.evened_out,
        slow_ranks: slow.to_string(),
        waiting_ranks: waiting.to_string(),
        advice: advice(totals, &Facts { finding, slow, waiting, cause_s }),
        symptom: Symptom {
            path: shown_path(totals, finding.symptom),
            node: place(finding.symptom),
            ..if crowded {
                delayed(totals, finding, phase, meaning)
            } else {
                synchronising(totals, finding, phase)
            }
        },
        causes,
    }
}

/// The symptom of ranks that wait for each other, in a synchronisation or in another call.
fn synchronising(totals: &Totals, finding: &Finding, phase: &PhaseTotals) -> Symptom {
    let sync = phase.wait(finding.symptom).unwrap_or(&phase.sync);
    let (calls, total_ns) = (sync.calls, sync.time.sum as f64);
    let fraction = |ns: u64| ns as f64 / total_ns;
    Symptom {
        calls,
        calls_exact: is_wrapped(totals, finding.symptom),
        per_call_s: (calls > 0).then(|| total_ns / calls as f64 / NS_PER_S),
        bytes: (sync.bytes > 0).then_some(sync.bytes),
        breakdown: sync.by_label.iter().map(|(label, ns)| (*label, fraction(*ns))).collect(),
        ..times(&sync.time, totals.job.ranks.len())
    }
}

/// The symptom of ranks that wait for a core: how long they do so in the context where it is most.
fn delayed(totals: &Totals, finding: &Finding, phase: &PhaseTotals, meaning: Meaning) -> Symptom {
    let node = phase.nodes.get(&finding.symptom).copied().unwrap_or_default();
    Symptom {
        calls: totals.nodes[finding.symptom as usize].calls,
        calls_exact: is_wrapped(totals, finding.symptom),
        breakdown: [(meaning.label, 1.0)].into(),
        ..times(&node.run_delay, totals.job.ranks.len())
    }
}

fn times(time: &Accumulator, ranks: u32) -> Symptom {
    Symptom {
        path: Vec::new(),
        node: 0,
        mean_s: time.mean(ranks) / NS_PER_S,
        min_s: time.min(ranks) as f64 / NS_PER_S,
        max_s: time.max as f64 / NS_PER_S,
        calls: 0,
        calls_exact: false,
        per_call_s: None,
        bytes: None,
        breakdown: Default::default(),
    }
}

fn is_wrapped(totals: &Totals, node: NodeId) -> bool {
    let contexts = &totals.tree.contexts;
    contexts.frames[contexts.nodes[node as usize].frame as usize].call.is_some()
}
