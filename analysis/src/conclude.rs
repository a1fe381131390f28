//! Conclusions from the totals of all ranks, and the summary that tells them.

mod job;
mod loops;
mod verdict;

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use crate::agreement::{Agreed, Matching};
use crate::attribution::attribute;
use crate::canonical::CanonicalTree;
use crate::clocks::Reference;
use crate::clusters::Finished;
use crate::crews;
use crate::finding::{Finding, SERIAL_FRACTION, cause_time};
use crate::groups::{self, ByContexts};
use crate::imbalance::{Cause, PhaseImbalance, imbalances};
use crate::input::JobInfo;
use crate::job::LEAST_SEVERITY;
use crate::labelling::{Meaning, meanings, polls};
use crate::losses::{losses, projected_s};
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::per_rank::{MOST_BYTES, Sheet};
use crate::queries::{Answers, Query, Questions};
use crate::ranks::RankSet;
use crate::segments::segments;
use crate::summary::{
    Loss, LossKind, Phase, Projection, RankCluster, SchemaVersion, SideFile, Summary,
};
use crate::summary_tree::{shown_path, summary_tree};
use crate::totals::{PhaseTotals, Totals};

use job::{collection, efficiency, notes, run};
use verdict::loss;

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
        polls::mark(&totals.tree.contexts, &mut meanings, !agreed.by_samples, |id| {
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
