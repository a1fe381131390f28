//! Reasons why a cause takes longer on some ranks: these execute more instructions (more work), or
//! fewer of them in each cycle (slower work).
//!
//! The time of a context is instructions / (IPC x frequency). So the logarithm of the ratio of two
//! ranks' times is the sum of those of the ratios of instructions, of cycles per instruction, and
//! of cycle times: each factor explains a part of the difference (POP's factors of computation
//! scaling, between ranks of one run). Process 0 asks all ranks for the sums that this needs, since
//! totals hold statistics of each event alone.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use crate::canonical::{find, path};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::finding::{Finding, cause_time};
use crate::imbalance::Cause;
use crate::losses::slow_at_least_ns;
use crate::queries::{Quantity, Query, is_meant};
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::{LossKind, WorkDifference, WorkDifferenceKind};
use crate::thresholds::{MIN_DIFFERENCE_SHARE, MIN_DIFFERENCE_TIME_FACTOR};
use crate::totals::{PhaseTotals, Totals};

/// Names of the events that are compared.
const INSTRUCTIONS: &[&str] = &["instructions"];
const CYCLES: &[&str] = &["cycles", "cpu-cycles"];

/// A cause of a loss, by the indices of the finding and of the cause in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CauseId {
    /// Index of the finding.
    pub finding: usize,
    /// Index of the cause in the finding.
    pub cause: usize,
}

/// Question for the events of the ranks in a cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    cause: CauseId,
    /// Query that only the slow ranks meet; its quantity is the work of the cause in the phase.
    slow: Query,
    events: EventNames,
}

/// Names under which the run counted the events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EventNames {
    instructions: String,
    cycles: String,
}

impl EventNames {
    /// Returns the names; `None` unless all ranks counted both events.
    fn of(totals: &Totals) -> Option<Self> {
        let name = |names: &[&str]| {
            let counted = totals.counters.counted_by(&totals.job.ranks);
            counted.into_iter().find(|name| is_one_of(name, names))
        };
        Some(Self { instructions: name(INSTRUCTIONS)?, cycles: name(CYCLES)? })
    }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// A phase and the ranks that are compared in it; `among` is `None` for all ranks.
pub struct Compared<'a> {
    /// Totals of the phase over these ranks.
    pub phase: &'a PhaseTotals,
    /// Number of these ranks.
    pub ranks: u32,
    /// The compared ranks; `None` for all.
    pub among: Option<RankSet>,
}

/// Returns the questions about the causes of uneven work; no questions unless all ranks counted
/// instructions and cycles. `compared` returns the ranks that a cause is compared over. A loss in
/// which ranks are slow in turn has no questions, since events are not kept by instance.
pub fn questions<'a>(
    totals: &Totals,
    findings: &[Finding],
    compared: impl Fn(&Finding, &Cause) -> Compared<'a>,
) -> Vec<Question> {
    let Some(events) = EventNames::of(totals) else { return Vec::new() };
    let mut questions = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        if finding.by_turns
            || !matches!(finding.kind, LossKind::LoadImbalance | LossKind::Serialization)
        {
            continue;
        }
        for (place, cause) in finding.causes.iter().enumerate() {
            let Compared { phase, ranks, among } = compared(finding, cause);
            let time = cause_time(phase, cause);
            if time.max == 0 {
                continue;
            }
            let path = path(&totals.tree.contexts, cause.node);
            questions.push(Question {
                cause: CauseId { finding: index, cause: place },
                slow: Query {
                    quantity: Quantity::Work { phase: finding.phase, path, own: cause.own },
                    at_least: slow_at_least_ns(&time, ranks),
                    among,
                },
                events: events.clone(),
            });
        }
    }
    questions
}

/// Sums over some ranks in a cause, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RankSums {
    ranks: RankSet,
    time_ns: u128,
    instructions: u128,
    cycles: u128,
}

impl RankSums {
    fn add(&mut self, other: &Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.time_ns += other.time_ns;
        self.instructions += other.instructions;
        self.cycles += other.cycles;
    }

    /// Returns the quotients of this mean over ranks and another one's; `None` if one of them is 0.
    fn over(&self, other: &Self) -> Option<Ratios> {
        let mean = |sums: &Self, sum: u128| sum as f64 / f64::from(sums.ranks.len());
        let ratio = |of: fn(&Self) -> u128| {
            let (ours, theirs) = (mean(self, of(self)), mean(other, of(other)));
            (ours > 0.0 && theirs > 0.0).then(|| ours / theirs)
        };
        Some(Ratios {
            time: ratio(|sums| sums.time_ns)?,
            instructions: ratio(|sums| sums.instructions)?,
            cycles: ratio(|sums| sums.cycles)?,
        })
    }

    fn ipc(&self) -> f64 {
        self.instructions as f64 / self.cycles as f64
    }
}

/// Quotients of slow ranks and the others.
#[derive(Clone, Copy, Debug)]
struct Ratios {
    time: f64,
    instructions: f64,
    cycles: f64,
}

/// Answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Answer {
    slow: RankSums,
    others: RankSums,
}

/// Asks all ranks. Returns the causes with a difference on process 0, and `None` elsewhere. Only
/// the `questions` of process 0 count. Collective.
pub fn ask(
    comm: &dyn Communicator,
    ranks: &[Rank<'_>],
    questions: Result<Option<Vec<Question>>, CommunicatorError>,
) -> Result<Option<BTreeMap<CauseId, WorkDifference>>, CommunicatorError> {
    let questions = broadcast(comm, questions)?;
    if questions.is_empty() {
        // All processes know that.
        return Ok((comm.rank() == 0).then(BTreeMap::new));
    }
    let ours: Vec<Answer> = questions.iter().map(|question| answer(ranks, question)).collect();
    let answers = reduce(comm, ours, |mut ours: Vec<Answer>, theirs| {
        for (ours, theirs) in ours.iter_mut().zip(&theirs) {
            ours.slow.add(&theirs.slow);
            ours.others.add(&theirs.others);
        }
        ours
    })?;
    let differences = answers.map(|answers| {
        let answered = questions.iter().zip(&answers);
        answered
            .filter_map(|(question, answer)| Some((question.cause, answer.difference()?)))
            .collect()
    });
    Ok(differences)
}

fn answer(ranks: &[Rank<'_>], question: &Question) -> Answer {
    let mut answer = Answer::default();
    for rank in ranks {
        let is_asked =
            question.slow.among.as_ref().is_none_or(|among| among.contains(rank.input.rank));
        if !is_asked {
            continue;
        }
        match is_meant(rank, &question.slow) {
            true => answer.slow.add(&sums_of(rank, question)),
            false => answer.others.add(&sums_of(rank, question)),
        }
    }
    answer
}

fn sums_of(rank: &Rank<'_>, question: &Question) -> RankSums {
    let mut sums = RankSums { ranks: RankSet::from_iter([rank.input.rank]), ..RankSums::default() };
    let Quantity::Work { path, own, .. } = &question.slow.quantity else { return sums };
    let profile = &rank.input.profile;
    let Some(node) = find(&profile.tree, path) else { return sums };
    let work_ns = |phase: &PhaseProfile| {
        let work = rank.phase_work(phase).into_iter().find(|(owner, _)| *owner == node);
        work.map_or(0, |(_, work)| if *own { work.own_ns } else { work.inclusive_ns })
    };
    sums.time_ns = rank.phases.iter().map(|phase| u128::from(work_ns(phase))).sum();
    // Events in calls are no work, as their time is none.
    let is_work_of_cause = |at: NodeId| {
        let mut owners = rank.owners.owners_outward(at);
        if *own { owners.next() == Some(node) } else { owners.any(|owner| owner == node) }
    };
    let counters = &profile.counters;
    let index = |name: &str| counters.events.iter().position(|event| event.name == name);
    let (instructions, cycles) =
        (index(&question.events.instructions), index(&question.events.cycles));
    for (_, values) in counters.main.iter().filter(|(at, _)| is_work_of_cause(*at)) {
        sums.instructions += instructions.map_or(0, |index| u128::from(values[index]));
        sums.cycles += cycles.map_or(0, |index| u128::from(values[index]));
    }
    sums
}

impl Answer {
    /// Returns what makes the slow ranks slow; `None` if they are hardly slower over the whole run,
    /// the others never execute the cause, or neither factor explains enough.
    fn difference(&self) -> Option<WorkDifference> {
        let Ratios { time, instructions, cycles } = self.slow.over(&self.others)?;
        if time < MIN_DIFFERENCE_TIME_FACTOR {
            return None;
        }
        let share = |factor: f64| factor.ln() / time.ln();
        let (more, slower) = (share(instructions), share(cycles / instructions));
        let (kind, share) = match more >= slower {
            true => (WorkDifferenceKind::MoreWork, more),
            false => (WorkDifferenceKind::SlowerWork, slower),
        };
        (share >= MIN_DIFFERENCE_SHARE).then(|| WorkDifference {
            kind,
            share: share.min(1.0),
            ranks: self.slow.ranks.to_string(),
            time_factor: time,
            instructions_factor: instructions,
            ipc: self.slow.ipc(),
            ipc_of_others: self.others.ipc(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(ranks: &[u32], time_ns: u128, instructions: u128, cycles: u128) -> RankSums {
        RankSums { ranks: ranks.iter().copied().collect(), time_ns, instructions, cycles }
    }

    #[test]
    fn the_factor_that_explains_most_of_the_time_names_the_difference() {
        let others = sums(&[0, 1], 200, 2_000, 1_000);
        let of = |slow: RankSums| Answer { slow, others: others.clone() }.difference();
        // Twice the mean time: twice the instructions at the same IPC.
        let more = of(sums(&[2], 200, 2_000, 1_000)).expect("a difference");
        assert_eq!((more.kind, more.share), (WorkDifferenceKind::MoreWork, 1.0));
        assert_eq!((more.time_factor, more.instructions_factor), (2.0, 2.0));
        assert_eq!((more.ipc, more.ipc_of_others, &*more.ranks), (2.0, 2.0, "2"));
        // Twice the time: the same instructions at half of the IPC.
        let slower = of(sums(&[2], 200, 1_000, 1_000)).expect("a difference");
        assert_eq!((slower.kind, slower.share), (WorkDifferenceKind::SlowerWork, 1.0));
        assert_eq!((slower.instructions_factor, slower.ipc), (1.0, 1.0));
        // Four times the time: 2.8 times the instructions, the rest by IPC.
        let mixed = of(sums(&[2], 400, 2_828, 2_000)).expect("a difference");
        assert_eq!(mixed.kind, WorkDifferenceKind::MoreWork);
        assert!((mixed.share - 0.75).abs() < 1e-3, "{}", mixed.share);
        // Twice the time in the same instructions and cycles: the core is slower.
        assert_eq!(of(sums(&[2], 200, 1_000, 500)), None);
        // Hardly longer.
        assert_eq!(of(sums(&[2], 105, 1_050, 525)), None);
        // Events without a count.
        assert_eq!(of(sums(&[2], 200, 0, 0)), None);
        let alone = Answer { slow: others.clone(), others: sums(&[2, 3], 0, 0, 0) };
        assert_eq!(alone.difference(), None, "only the slow ranks execute it");
    }
}
