//! Conclusions from the totals of all ranks, and the summary that tells them.

use std::collections::BTreeMap;

use plimsoll_agent::marks::retreat::Reason;
use plimsoll_collector::profile::NodeId;

use crate::advice::{Facts, advice};
use crate::agreement::{Agreed, Matching};
use crate::attribution::attribute;
use crate::canonical::CanonicalTree;
use crate::clocks::Reference;
use crate::clusters::Finished;
use crate::communication::{best_bandwidth, transfer_part};
use crate::crews;
use crate::diagnose::JobInfo;
use crate::groups::{self, ByContexts};
use crate::imbalance::{Cause, PhaseImbalance, imbalances};
use crate::job::JobTotals;
use crate::label::Label;
use crate::labelling::{Meaning, meanings, polls, shown};
use crate::loops;
use crate::losses::{Finding, LEAST_SEVERITY, SERIAL_FRACTION, cause_time, losses, projected_s};
use crate::metrics::{Accumulator, NS_PER_S};
use crate::per_rank::{MOST_BYTES, Sheet};
use crate::queries::{Answers, Query, Questions};
use crate::rank::Owners;
use crate::ranks::RankSet;
use crate::segments::segments;
use crate::summary::{
    self, Clock, Collection, Efficiency, Loss, LossKind, Marks, MpiAbi, NodeOfRun, PeriodUs, Phase,
    Projection, RankCluster, Run, SchemaVersion, SideFile, Summary, Symptom,
};
use crate::summary_tree::{shown_path, summary_tree};
use crate::totals::{PhaseTotals, SyncTotals, Totals};

/// What the totals tell.
pub struct Conclusion {
    totals: Totals,
    matching: Matching,
    reference: Reference,
    meanings: Vec<Meaning>,
    owners: Owners,
    imbalances: BTreeMap<u64, PhaseImbalance>,
    findings: Vec<Finding>,
}

impl Conclusion {
    /// Concludes from the totals of all ranks, contexts in canonical order.
    pub fn new(totals: Totals, agreed: &Agreed, reference: Reference) -> Self {
        let mut meanings = meanings(&totals.tree.contexts, &agreed.rules);
        polls::mark(&totals.tree.contexts, &mut meanings, |id| {
            let node = &totals.nodes[id];
            (u64::try_from(node.exclusive.sum).unwrap_or(u64::MAX), node.calls)
        });
        let owners = Owners::new(&totals.tree.contexts, &meanings);
        let imbalances = imbalances(&totals);
        let findings = losses(&totals, &imbalances, &meanings, &owners);
        let matching = agreed.matching.clone();
        Self { totals, matching, reference, meanings, owners, imbalances, findings }
    }

    /// The contexts of all ranks, by which processes tell each other of theirs.
    pub fn contexts(&self) -> CanonicalTree {
        self.totals.tree.clone()
    }

    /// Which ranks did alike.
    pub fn clusters(&self) -> Finished {
        self.totals.clusters.finished()
    }

    /// Which values of single ranks are worth a file; `None` if none are.
    pub fn sheet(&self) -> Option<Sheet> {
        Sheet::of(&self.totals, &self.imbalances, MOST_BYTES)
    }

    /// What is left to ask the ranks; the answers go to [`summary()`].
    pub fn questions(&self) -> Questions {
        let queries = self.findings.iter().flat_map(|it| it.slow.iter().chain(&it.waiting));
        Questions {
            queries: queries.cloned().collect(),
            divergences: groups::divergences(&self.totals, &self.owners),
        }
    }
}

/// The summary, once the ranks have answered what the conclusion asks, and the rank nearest to each cluster
/// is found.
pub fn summary(
    conclusion: &Conclusion,
    answers: &Answers,
    clusters: Vec<RankCluster>,
    job: &JobInfo,
) -> Summary {
    let Conclusion { totals, matching, reference, meanings, owners, imbalances, findings } =
        conclusion;
    let attributed = attribute(totals, meanings, owners);
    let (tree, places) = summary_tree(totals, meanings, &attributed);
    let mut ranks = answers.ranks.iter();
    let mut answer = |query: &Option<Query>| {
        query.as_ref().and_then(|_| ranks.next()).cloned().unwrap_or_default()
    };
    let phases = phases(totals, &answers.groups);
    let mut losses: Vec<Loss> = Vec::new();
    for finding in findings {
        let (slow, waiting) = (answer(&finding.slow), answer(&finding.waiting));
        for (finding, slow, group) in divided(totals, &phases, finding, slow) {
            let mut loss = loss(conclusion, &finding, &slow, &waiting, &places);
            loss.group = group;
            if let Some(answers) = answers.groups.get(&finding.phase) {
                let phase = &totals.phases[&finding.phase];
                let doers = groups::doers(totals, owners, phase, answers);
                for (cause, found) in loss.causes.iter_mut().zip(&finding.causes) {
                    let outer = |node: &NodeId| totals.tree.contexts.nodes[*node as usize].parent;
                    let mut outwards = std::iter::successors(Some(found.node), outer);
                    cause.group = outwards.find_map(|node| doers.get(&node).copied());
                }
            }
            losses.push(loss);
        }
    }
    losses.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Summary {
        schema: SchemaVersion::V1,
        run: run(&totals.job, job),
        collection: collection(&totals.job),
        efficiency: efficiency(&totals.job, job),
        projection: Projection { elapsed_s: projected_s(totals, findings) },
        losses,
        segments: segments(totals, imbalances, meanings, owners, &places),
        phases,
        loops: loops::shown(totals, &places),
        clusters,
        thread_clusters: crews::shown(totals, meanings),
        clocks: totals.clocks.conclude(reference, totals.job.period_ns),
        timeline: SideFile::default(),
        per_rank: SideFile::default(),
        tree,
        notes: notes(&totals.job, matching, job),
    }
}

/// Load imbalance, told apart (PPoPP20, 5.4): what groups of ranks with different tasks have more or less
/// to do, and what is left of it within the groups. With each its slow ranks, and the group that is slow.
fn divided(
    totals: &Totals,
    phases: &[Phase],
    finding: &Finding,
    slow: RankSet,
) -> Vec<(Finding, RankSet, Option<u32>)> {
    /// Less of a loss is not told apart: what groups have to do is known in total, and losses by instances.
    const LEAST_WITHIN: f64 = 0.1;
    /// Groups explain a loss if they have this part of it: else it is single ranks that are slow, whatever
    /// their tasks.
    const LEAST_BETWEEN: f64 = 0.5;
    let groups = &phases[phase_id(totals, finding) as usize].groups;
    // Who is alone with a task, while the others have one of theirs, is not the only one to work.
    let least_s = groups.iter().map(|group| group.mean_work_s).fold(f64::INFINITY, f64::min);
    let most_s = groups.iter().map(|group| group.mean_work_s).fold(0.0, f64::max);
    let all_work = groups.len() > 1 && least_s > SERIAL_FRACTION * most_s;
    let kind = match finding.kind {
        LossKind::Serialization if all_work => LossKind::LoadImbalance,
        kind => kind,
    };
    let finding = &Finding { kind, ..finding.clone() };
    let heaviest = groups::heaviest(totals, &totals.phases[&finding.phase], groups);
    let heaviest =
        heaviest.filter(|_| kind == LossKind::LoadImbalance).and_then(|(index, more_s)| {
            Some((index, more_s, groups[index as usize].ranks.parse::<RankSet>().ok()?))
        });
    let Some((index, more_s, ranks)) = heaviest else {
        return vec![(finding.clone(), slow, None)];
    };
    // The first instance is divided like the others.
    let more_s = more_s * finding.seconds / (finding.seconds - finding.first_s);
    let within_s = finding.seconds - more_s;
    if more_s < LEAST_BETWEEN * finding.seconds {
        return vec![(finding.clone(), slow, None)];
    }
    let apart = within_s > LEAST_WITHIN * finding.seconds
        && within_s > LEAST_SEVERITY * totals.job.elapsed_ns as f64 / NS_PER_S;
    // What the group does alone comes first.
    let mut causes = finding.causes.clone();
    let phase = &totals.phases[&finding.phase];
    let is_own = |cause: &Cause| cause_time(phase, cause).ranks == ranks.len();
    let task = groups::task(&totals.tree.contexts, finding, is_own);
    causes.sort_by(|a, b| {
        is_own(b).cmp(&is_own(a)).then(b.ns.total_cmp(&a.ns)).then(a.node.cmp(&b.node))
    });
    causes.splice(..0, task);
    let between = Finding {
        kind: LossKind::GroupImbalance,
        seconds: if apart { more_s } else { finding.seconds },
        causes,
        ..finding.clone()
    };
    let within = Finding { seconds: within_s, ..finding.clone() };
    let within = apart.then_some((within, slow, None));
    [(between, ranks, Some(index))].into_iter().chain(within).collect()
}

/// Which of the phases a loss is in.
fn phase_id(totals: &Totals, finding: &Finding) -> u32 {
    totals.phases.range(..finding.phase).count() as u32
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

fn phases(totals: &Totals, groups: &BTreeMap<u64, ByContexts>) -> Vec<Phase> {
    let ranks = totals.job.ranks.len();
    let path = |node: NodeId| shown_path(totals, node);
    let phase = |(id, (first_index, phase)): (u32, (&u64, &PhaseTotals))| {
        let (kind, groups) = groups::shown(totals, phase, groups.get(first_index));
        Phase {
            id,
            begins_after: phase.begins_after.map(path),
            ends_in: phase.ends_in.map(path),
            begin_s: phase.begin.mean(ranks) / NS_PER_S,
            duration_s: phase.duration.mean(ranks) / NS_PER_S,
            instances: phase.instances,
            kind,
            groups,
        }
    };
    (0..).zip(&totals.phases).map(phase).collect()
}

fn notes(totals: &JobTotals, matching: &Matching, job: &JobInfo) -> Vec<String> {
    let mut notes = job.notes.clone();
    match matching {
        Matching::Phases => {}
        Matching::Joined(_) => notes.push(
            "In part of the run the ranks synchronised at places that do not correspond: each such part is \
             one phase."
                .into(),
        ),
        Matching::WholeRun => notes.push(
            "The ranks did not see the same synchronisations: the whole run is one phase.".into(),
        ),
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
        let time = match finding.kind {
            // To blame for calls, not for work.
            LossKind::FrequentCommunication
            | LossKind::LargeMessage
            | LossKind::LargeIo
            | LossKind::LockContention => totals.nodes[cause.node as usize].inclusive,
            _ => cause_time(phase, cause),
        };
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
        phase: phase_id(totals, finding),
        group: None,
        label: match crowded {
            true => Label::Computation,
            false => shown(meaning, totals.nodes[finding.symptom as usize].derived),
        },
        polling: meaning.polling,
        evened_out: finding.evened_out,
        by_turns: finding.by_turns,
        slow_ranks: slow.to_string(),
        waiting_ranks: waiting.to_string(),
        advice: advice(totals, &Facts { finding, slow, waiting, cause_s }),
        symptom: Symptom {
            path: shown_path(totals, finding.symptom),
            node: place(finding.symptom),
            ..if crowded {
                delayed(totals, finding, phase, meaning)
            } else if finding.kind == LossKind::LockContention {
                locking(totals, finding, meaning)
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
        breakdown: match finding.kind {
            LossKind::WaitForPartner | LossKind::LargeMessage => transfer(totals, sync),
            _ => sync.by_label.iter().map(|(label, ns)| (*label, fraction(*ns))).collect(),
        },
        ..times(&sync.time, totals.job.ranks.len())
    }
}

/// What a call takes its time for. Of what the library does not tell by the names of its functions, the
/// time in which the fastest call of the run would have moved its bytes is a message's; the rest is
/// waiting for the partner.
fn transfer(totals: &Totals, call: &SyncTotals) -> BTreeMap<Label, f64> {
    let fraction = |ns: u64| ns as f64 / call.time.sum as f64;
    let mut breakdown: BTreeMap<Label, f64> =
        call.by_label.iter().map(|(label, ns)| (*label, fraction(*ns))).collect();
    let untold = breakdown.remove(&Label::Communication).unwrap_or(0.0);
    let told = |(label, _): &(&Label, &f64)| label.is_a(Label::DataTransfer);
    let told: f64 = breakdown.iter().filter(told).map(|(_, part)| part).sum();
    let moving = (transfer_part(call, best_bandwidth(totals)) - told).clamp(0.0, untold);
    for (label, part) in [(Label::Message, moving), (Label::WaitPartner, untold - moving)] {
        if part > 0.0 {
            *breakdown.entry(label).or_default() += part;
        }
    }
    breakdown
}

/// The symptom of threads that wait for locks, in the whole run.
fn locking(totals: &Totals, finding: &Finding, meaning: Meaning) -> Symptom {
    let node = &totals.nodes[finding.symptom as usize];
    let time_s = node.inclusive.sum as f64 / NS_PER_S;
    Symptom {
        calls: node.calls,
        calls_exact: is_wrapped(totals, finding.symptom),
        per_call_s: (node.calls > 0).then(|| time_s / node.calls as f64),
        breakdown: [(meaning.label, 1.0)].into(),
        ..times(&node.inclusive, totals.job.ranks.len())
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
