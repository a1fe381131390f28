//! Derives conclusions from the totals of all ranks, and builds the summary from them.

mod job_summary;
mod loop_summary;
mod verdict;

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use crate::agreement::{Agreed, Matching};
use crate::attribution::attribute;
use crate::awaited_threads;
use crate::biclusters::{Comparison, Group};
use crate::canonical::CanonicalTree;
use crate::chains::{self, Chain};
use crate::clocks::Reference;
use crate::clusters::Finished;
use crate::communication::as_wait_for_partner;
use crate::finding::{Finding, Scope};
use crate::groups::{self, Alike, ByContexts, Divergence};
use crate::imbalance::{Cause, PhaseImbalance, imbalances};
use crate::input::JobInfo;
use crate::job_totals::JobTotals;
use crate::joined_losses::{Answered, joined};
use crate::labelling::{ContextClass, context_classes, polls};
use crate::losses::{losses, min_loss_of, projected_s};
use crate::metrics::NS_PER_S;
use crate::moving_work::as_moving_work;
use crate::mpmd::{self, Groups, Members, Tasks};
use crate::order_in_time;
use crate::owners::Owners;
use crate::pairs::{Begin, MatrixAxis, Pairs, Wanted, Work};
use crate::per_rank::{MAX_BYTES, Sheet};
use crate::population::{self, Purpose};
use crate::queries::Query;
use crate::ranks::RankSet;
use crate::segments::segments;
use crate::slow_places::{self, Inquiry, SlowPlace, SlowPlaces};
use crate::summary::{
    Communication, Counters, Loss, LossKind, Phase, Projection, RankCluster, SchemaVersion,
    SideFile, Summary, Tree, When, WorkDifference,
};
use crate::summary_tree::{places, shown_path, summary_tree};
use crate::thread_clusters;
use crate::thresholds::{MIN_CAUSE_SHARE, in_force};
use crate::timeline::{self, Plan, TimelineTotals};
use crate::totals::{NodeTotals, PhaseSums, PhaseTotals, Totals};
use crate::when::when;
use crate::work_differences::{self, CauseId, Question};
use plimsoll_summary::settings::METRICS;
use plimsoll_summary::timeline_file::Timeline;

use job_summary::{collection, efficiency, notes, run};
use verdict::{compared, loss};

/// Conclusions from the totals.
pub struct Conclusion {
    totals: Totals,
    matching: Matching,
    reference: Reference,
    context_classes: Vec<ContextClass>,
    owners: Owners,
    imbalances: BTreeMap<u64, PhaseImbalance>,
    /// Ranks by the diverging contexts that they have, by first index of the phase.
    contexts_of_ranks: BTreeMap<u64, ByContexts>,
    /// Process groups of each phase with more than one.
    alike: BTreeMap<u64, Vec<Alike>>,
    groups: Groups,
    findings: Vec<Finding>,
    /// Mean work that slow places add, in nanoseconds.
    slow_work_ns: f64,
    /// Waiting between pairs of ranks; `None` until the ranks have answered.
    pairs: Option<Pairs>,
    axis: MatrixAxis,
    /// Chain behind each finding, in the order of `findings`.
    chains: Vec<Chain>,
}

impl Conclusion {
    /// Derives conclusions from the totals of all ranks; contexts are in canonical order.
    pub fn new(totals: Totals, agreed: &Agreed, reference: Reference) -> Self {
        let mut context_classes = context_classes(&totals.tree.contexts, &agreed.rules);
        polls::mark(&totals.tree.contexts, &mut context_classes, !agreed.by_samples, |id| {
            let node = &totals.nodes[id];
            polls::Own {
                time_ns: u64::try_from(node.exclusive.sum).unwrap_or(u64::MAX),
                run_delay_ns: node.run_delay_ns,
                poll_gap_ns: node.poll_gap_ns,
                calls: node.calls,
            }
        });
        let owners = Owners::new(&totals.tree.contexts, &context_classes);
        let imbalances =
            imbalances(&totals.sums, totals.job.ranks.len(), totals.job.kept_period_ns);
        let matching = agreed.matching.clone();
        let axis = MatrixAxis::Ranks(totals.job.ranks.clone());
        Self {
            totals,
            matching,
            reference,
            context_classes,
            owners,
            imbalances,
            contexts_of_ranks: BTreeMap::new(),
            alike: BTreeMap::new(),
            groups: Groups::new(),
            findings: Vec::new(),
            slow_work_ns: 0.0,
            pairs: None,
            axis,
            chains: Vec::new(),
        }
    }

    /// Returns the question to all ranks whether they are slow, and the job's totals, which judge
    /// the answers.
    pub fn slow_inquiry(&self) -> (Inquiry, &JobTotals) {
        (slow_places::inquiry(&self.totals), &self.totals.job)
    }

    /// Returns the contexts in which ranks diverge, about which all ranks are asked first.
    pub fn divergences(&self) -> Vec<Divergence> {
        groups::divergences(&self.totals, &self.owners)
    }

    /// Forms process groups from the ranks' answers; returns the members of the groups with values
    /// that are added up next.
    pub fn form_groups(&mut self, contexts_of_ranks: BTreeMap<u64, ByContexts>) -> Members {
        let alike = contexts_of_ranks.iter();
        let alike = alike.map(|(index, answers)| (*index, groups::of_phase(answers)));
        self.alike = alike.filter(|(_, groups)| !groups.is_empty()).collect();
        self.contexts_of_ranks = contexts_of_ranks;
        mpmd::members(&self.alike)
    }

    /// Finds the losses, including losses within groups.
    pub fn find_losses(&mut self, groups: Groups, slow: Option<(Vec<SlowPlace>, PhaseSums)>) {
        self.groups = groups;
        let ranks = self.totals.job.ranks.len();
        // Uneven work is found in the values that are even where places are slow; reports show the
        // values as measured.
        let slow = slow.map(|(places, even)| {
            let even_imbalances = imbalances(&even, ranks, self.totals.job.kept_period_ns);
            SlowPlaces {
                places,
                sums: std::mem::replace(&mut self.totals.sums, even),
                imbalances: std::mem::replace(&mut self.imbalances, even_imbalances),
            }
        });
        let Self { totals, imbalances, context_classes, owners, alike, groups, .. } = self;
        let found = losses(totals, imbalances, slow.as_ref(), groups, (context_classes, owners));
        self.findings = Tasks { totals, imbalances, owners, alike, groups }.told_apart(found);
        self.chains = vec![Chain::default(); self.findings.len()];
        if let Some(slow) = slow {
            self.slow_work_ns = slow.mean_work_ns(&self.totals);
            self.totals.sums = slow.sums;
            self.imbalances = slow.imbalances;
        }
    }

    /// Returns the questions to the ranks about their partners; `clusters` are the ranks with
    /// similar behaviour.
    pub fn pairs_wanted(&mut self, clusters: &Finished) -> Wanted {
        let members = clusters.clusters().iter().map(|cluster| &*cluster.members);
        self.axis = MatrixAxis::new(&self.totals.job.ranks, members);
        let totals = &self.totals;
        let alignment = totals.clocks.alignment(&self.reference, totals.job.kept_period_ns);
        Wanted::new(self.axis.clone(), chains::shown_paths(totals, &self.findings), alignment)
    }

    /// Follows the waiting between ranks; returns the begins of chains, at which ranks are asked
    /// next for their work.
    pub fn follow_pairs(&mut self, pairs: Pairs) -> Vec<Begin> {
        let clocks = self.totals.clocks.conclude(&self.reference, self.totals.job.kept_period_ns);
        let error_us = clocks.residual_us.unwrap_or(0.0);
        self.chains = chains::chains(&self.totals, &self.findings, &pairs, &self.axis, error_us);
        self.pairs = Some(pairs);
        let Self { totals, imbalances, owners, findings, chains, .. } = self;
        let ranks = totals.job.ranks.len();
        for (finding, chain) in findings.iter_mut().zip(&*chains) {
            let index = finding.phase;
            let both = totals.sums.phases.get(&index).zip(imbalances.get(&index));
            let Some((phase, imbalance)) = both.filter(|_| chain.has_late_partners) else {
                continue;
            };
            let whole = Scope { index, phase, imbalance, ranks, group: None };
            *finding = as_wait_for_partner((totals, owners), &whole, finding);
        }
        chains::begins(&self.findings, &self.chains)
    }

    /// Names the causes of chains from the answers of the ranks at which the chains begin, or from
    /// the trees of `clusters`, which hold the order of work and calls.
    pub fn name_origins(&mut self, answers: Vec<Work>, clusters: &Finished) {
        let Self { totals, owners, findings, chains, .. } = self;
        let ranks = totals.job.ranks.len();
        chains::name_causes((totals, owners), findings, chains, answers);
        for (finding, chain) in findings.iter_mut().zip(chains) {
            let known_ns: f64 = finding.causes.iter().map(|cause| cause.ns).sum();
            let is_known = known_ns >= MIN_CAUSE_SHARE * finding.seconds * NS_PER_S;
            if is_known || finding.kind != LossKind::WaitForPartner {
                continue;
            }
            let known = (&totals.tree.contexts, &*owners);
            let stage_ns = chain.stage_ns.filter(|_| !chain.are_unknown);
            let causes = match (stage_ns, totals.sums.phases.get(&finding.phase)) {
                (Some(stage_ns), _) => order_in_time::in_stages(known, clusters, finding, stage_ns),
                (None, Some(phase)) => {
                    order_in_time::under_window_locks(known, clusters, finding, (phase, ranks))
                }
                (None, None) => Vec::new(),
            };
            if !causes.is_empty() {
                finding.causes = causes;
                finding.under_window_lock = stage_ns.is_none();
            }
        }
    }

    /// Returns the contexts of all ranks: the common numbering in which processes exchange
    /// contexts.
    pub fn contexts(&self) -> CanonicalTree {
        self.totals.tree.clone()
    }

    /// Takes the clusters of ranks with similar behaviour out of the totals: their trees are large.
    pub fn take_clusters(&mut self) -> Finished {
        std::mem::take(&mut self.totals.clusters).finished()
    }

    /// Returns the per-rank values that are worth a file; `None` if there are none.
    pub fn sheet(&self) -> Option<Sheet> {
        Sheet::of(&self.totals, &self.imbalances, MAX_BYTES)
    }

    /// Returns the inputs of the search for contexts and ranks that vary together.
    pub fn comparisons(&self) -> Vec<Comparison> {
        Comparison::all(&self.totals, &self.context_classes)
    }

    /// Returns what the sample of ranks is for, with the request for their values; `None` if the
    /// job samples no ranks. `clusters` are the ranks with similar behaviour.
    pub fn population(
        &self,
        job: &JobInfo,
        clusters: &Finished,
    ) -> Option<(Purpose, population::Plan)> {
        let Self { totals, reference, .. } = self;
        let purpose = Purpose::of(job, totals)?;
        let members = clusters.clusters().iter().map(|cluster| &*cluster.members);
        let alignment = totals.clocks.alignment(reference, totals.job.kept_period_ns);
        let plan = population::Plan::new(&purpose, totals, members, alignment);
        Some((purpose, plan))
    }

    /// Returns the index of each context in the summary's tree.
    pub fn places(&self) -> Vec<Option<u32>> {
        places(&self.totals)
    }

    /// Returns the request for the values of the run over time.
    pub fn plan(&self, wants_cells: bool) -> Plan {
        let Self { totals, reference, context_classes, owners, findings, .. } = self;
        let job = &totals.job;
        let alignment = totals.clocks.alignment(reference, job.kept_period_ns);
        let shows_threads = timeline::have_rows_of_their_own(&job.ranks);
        let chosen = timeline::chosen(totals, context_classes, findings, shows_threads);
        let contexts = (chosen, timeline::symptoms(totals, owners, findings));
        let run = (job.ranks.clone(), job.span_ns, job.bin_ns);
        Plan::new(run, alignment, wants_cells, contexts)
    }

    /// Returns the timeline of the run, if one is wanted.
    pub fn timeline(&self, (plan, timeline_totals): &(Plan, TimelineTotals)) -> Option<Timeline> {
        timeline_totals.timeline(plan, &places(&self.totals))
    }

    /// Returns the questions why causes take longer on some ranks.
    pub fn work_questions(&self) -> Vec<Question> {
        let compared = |finding: &Finding, cause: &Cause| compared(self, finding, cause);
        work_differences::questions(&self.totals, &self.findings, compared)
    }

    /// Returns the remaining queries to the ranks; [`summary()`] takes the answers.
    pub fn queries(&self) -> Vec<Query> {
        self.findings.iter().flat_map(|it| it.slow.iter().chain(&it.waiting)).cloned().collect()
    }
}

/// Builds the summary from the conclusions, the ranks' answers to [`Conclusion::queries`] and
/// [`Conclusion::work_questions`], and the clusters with their representatives.
pub fn summary(
    mut conclusion: Conclusion,
    answers: (&[RankSet], &BTreeMap<CauseId, WorkDifference>),
    clusters: (Vec<RankCluster>, &[Group]),
    over_time: &Option<(Plan, TimelineTotals)>,
    job: &JobInfo,
) -> Summary {
    let places = conclusion.places();
    let summary = without_tree(&conclusion, answers, clusters, over_time, (&places, job));
    let attributed = attribute(&conclusion.totals, &conclusion.context_classes, &conclusion.owners);
    // The tree takes most memory of the summary. Totals that it does not use are freed before.
    conclusion.totals.free_all_but_contexts();
    conclusion.imbalances = BTreeMap::new();
    let Conclusion { totals, context_classes, .. } = &conclusion;
    Summary { tree: summary_tree(totals, context_classes, &attributed, &places), ..summary }
}

/// Builds the summary without the tree. `places` holds the index of each context in the tree.
fn without_tree(
    conclusion: &Conclusion,
    (answers, differences): (&[RankSet], &BTreeMap<CauseId, WorkDifference>),
    (clusters, biclusters): (Vec<RankCluster>, &[Group]),
    over_time: &Option<(Plan, TimelineTotals)>,
    (places, job): (&[Option<u32>], &JobInfo),
) -> Summary {
    let Conclusion {
        totals,
        matching,
        reference,
        context_classes,
        owners,
        imbalances,
        findings,
        ..
    } = conclusion;
    let mut ranks = answers.iter();
    let mut answer = |queries: &[Query]| {
        ranks.by_ref().take(queries.len()).fold(RankSet::default(), |one, more| one.union(more))
    };
    let phases = phases(totals, &conclusion.alike);
    let efficiency = efficiency(totals, over_time, job);
    let alignment = totals.clocks.alignment(reference, totals.job.kept_period_ns);
    let answered = findings.iter().enumerate().map(|(index, finding)| Answered {
        index,
        slow: answer(&finding.slow).union(&finding.slow_ranks),
        waiting: answer(finding.waiting.as_slice()),
        finding: finding.clone(),
    });
    let mut losses: Vec<Loss> = Vec::new();
    for answered in joined(totals, answered.collect()) {
        let Answered { index, ref finding, ref slow, ref waiting } = answered;
        let chain = &conclusion.chains[index];
        let moving = as_moving_work(finding, findings, over_time, (totals, context_classes));
        // The answers are about the causes that were known before.
        let differences = if moving.is_some() { &BTreeMap::new() } else { differences };
        let finding = moving.as_ref().unwrap_or(finding);
        let mut loss = loss(conclusion, (finding, chain), slow, waiting, places);
        for (place, cause) in loss.causes.iter_mut().enumerate() {
            let id = CauseId { finding: index, cause: place };
            cause.difference = differences.get(&id).cloned();
        }
        if let Some(answers) = conclusion.contexts_of_ranks.get(&finding.phase) {
            let phase = &totals.sums.phases[&finding.phase];
            let doers = groups::doers(totals, owners, phase, answers);
            for (cause, found) in loss.causes.iter_mut().zip(&finding.causes) {
                let mut outwards = totals.tree.contexts.outwards(found.node);
                let doer = || outwards.find_map(|node| doers.get(&node).copied());
                cause.group = found.group.or_else(doer);
            }
        }
        loss.when = over_time.as_ref().and_then(|it| when_of(finding, it, totals));
        losses.push(loss);
    }
    losses.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Summary {
        schema: SchemaVersion::V1,
        run: run(&totals.job, job),
        collection: collection(&totals.job),
        openmp: totals.openmp.conclude(places, |node| shown_path(totals, node), efficiency.openmp),
        efficiency,
        projection: Projection {
            elapsed_s: projected_s(totals, conclusion.slow_work_ns, findings),
        },
        losses,
        segments: segments(totals, imbalances, context_classes, owners, places),
        phases,
        loops: loop_summary::shown(totals, places, &alignment),
        clusters,
        biclusters: biclusters.iter().map(|group| group.shown(places)).collect(),
        population: None,
        thread_clusters: thread_clusters::shown(totals, context_classes),
        threads: totals.threads.shown(totals, context_classes, places),
        clocks: totals.clocks.conclude(reference, totals.job.kept_period_ns),
        timeline: SideFile::default(),
        per_rank: SideFile::default(),
        communication: Communication {
            matrix: conclusion.pairs.as_ref().and_then(|pairs| pairs.matrix(&conclusion.axis)),
        },
        counters: counters(totals, places, job),
        tree: Tree::default(),
        thresholds: in_force(min_loss_of(totals)),
        notes: {
            let mut notes = notes(&totals.job, matching, job);
            // Ranks that share cores leave late because they wait for a core.
            if !totals.job.lacks_cores() {
                notes.extend(totals.clocks.apart_note(reference, totals.job.kept_period_ns));
            }
            notes.extend(awaited_threads::note(totals));
            notes.extend(totals.counters.notes(job.settings.get(METRICS).map(String::as_str)));
            notes
        },
    }
}

/// Returns the events and the metrics derived from them; the time of a context counts all threads.
fn counters(totals: &Totals, places: &[Option<u32>], job: &JobInfo) -> Counters {
    let definitions = job.settings.get(METRICS).map(String::as_str);
    let seconds = |node: Option<NodeId>| match node {
        Some(node) => {
            let NodeTotals { inclusive, exclusive, .. } = &totals.nodes[node as usize];
            [inclusive.sum, exclusive.sum].map(|ns| ns as f64 / NS_PER_S)
        }
        None => {
            let contexts = totals.tree.contexts.nodes.iter().zip(&totals.nodes);
            let outermost = contexts.filter(|(node, _)| node.parent.is_none());
            [outermost.map(|(_, it)| it.inclusive.sum as f64 / NS_PER_S).sum(); 2]
        }
    };
    totals.counters.conclude(places, definitions, totals.job.ranks.len(), seconds)
}

/// Returns the times at which a loss occurs, from the ranks' time in its symptom by window.
fn when_of(
    finding: &Finding,
    (plan, timeline_totals): &(Plan, TimelineTotals),
    totals: &Totals,
) -> Option<When> {
    // The symptom of oversubscription is work, not wait time, and threads of a team wait in no
    // context of the communicating thread.
    if matches!(
        finding.kind,
        LossKind::Oversubscription
            | LossKind::ThreadImbalance
            | LossKind::SerialSection
            | LossKind::FineGrainedTasks
            | LossKind::FineGrainedRegions
    ) {
        return None;
    }
    let (windows, window_s) = timeline_totals.in_symptom(plan, finding.symptom)?;
    let is_uneven = matches!(
        finding.kind,
        LossKind::LoadImbalance
            | LossKind::GroupImbalance
            | LossKind::Serialization
            | LossKind::SlowNode
            | LossKind::SlowCore
    );
    let ranks = f64::from(totals.job.ranks.len());
    // The minimum over ranks in a window is not wait time due to uneven work.
    let lost = windows.iter().map(|it| match is_uneven {
        true => (it.sum_ns as f64 - ranks * it.min_ns as f64).max(0.0),
        false => it.sum_ns as f64,
    });
    let lost: Vec<f64> = lost.collect();
    // While ranks wait because of uneven work, others work. Other losses are compared by time.
    let reference = match is_uneven {
        true => timeline_totals.useful_ns(),
        false => vec![1.0; lost.len()],
    };
    let is_measured: Vec<bool> = timeline_totals.are_measured().collect();
    let end_s = totals.job.span_ns as f64 / NS_PER_S;
    when((&lost, &reference), &is_measured, window_s, end_s)
}

/// Returns the number of the phase with this first index.
fn phase_id(totals: &Totals, first_index: u64) -> u32 {
    totals.sums.phases.range(..first_index).count() as u32
}

fn phases(totals: &Totals, groups: &BTreeMap<u64, Vec<Alike>>) -> Vec<Phase> {
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
    (0..).zip(&totals.sums.phases).map(phase).collect()
}
