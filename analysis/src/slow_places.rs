//! Slow places: nodes and cores on which the same work takes longer than elsewhere, in all contexts
//! alike. The machine is then the cause of the waiting, not the program.
//!
//! A program with uneven work looks different: its ranks differ by another factor in each context.
//! A place is slow only if all of this holds:
//!
//! - several functions or loops hold most of the work, and in each of their contexts the place
//!   takes longer than the other ranks by the same factor;
//! - all ranks of the place have that factor, and no rank elsewhere is slow;
//! - the ranks of the place neither move more data nor make more calls by that factor;
//! - a single rank has waited for a core that others used. A rank with more data than all others
//!   may take longer in all contexts alike as well, so its time alone proves nothing.
//!
//! A wrong verdict sends the user to the wrong people, so the conditions are strict: slow places
//! are missed where work is uneven too, or where fewer than three functions or loops work.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::NodeId;
use serde::{Deserialize, Serialize};

use crate::agreement::Agreed;
use crate::canonical::{CanonicalTree, Step, Threads, find as find_context, path};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::finding::{Finding, Place, half_query};
use crate::frame_classes::is_loop;
use crate::imbalance::PhaseImbalance;
use crate::job_totals::{Host, JobTotals};
use crate::metrics::{Accumulator, NS_PER_S};
use crate::queries::Quantity;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::thresholds::{
    MAX_FACTOR_DEVIATION, MAX_SLOW_RANKS, MIN_PLACE_CONTEXT_FRACTION, MIN_PLACE_CONTEXT_PERIODS,
    MIN_PLACE_CONTEXTS, MIN_PLACE_DELAY_FRACTION, MIN_PLACE_WORK_FRACTION, MIN_SEVERITY,
    MIN_SLOW_FACTOR,
};
use crate::totals::{PhaseSums, PhaseTotals, Totals};

/// Question to all ranks whether they are slow, and in which contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inquiry {
    /// Contexts with most of the work; none if no rank is slow.
    contexts: Vec<Vec<Step>>,
    /// Minimum work of a slow rank, in nanoseconds.
    at_least_ns: u64,
    /// Whether time of waiting for a core counts as work: on nodes with a core for each thread,
    /// other programs or a quota take the cores.
    with_delays: bool,
}

/// Work of one slow rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SlowRank {
    host: String,
    amount: Amount,
    /// Time in each context of the inquiry, in nanoseconds.
    times_ns: Vec<u64>,
}

/// Sums over the work of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Amount {
    /// Time in the contexts of the inquiry, in nanoseconds.
    work_ns: u128,
    /// Part of `work_ns` that is waiting for a core.
    delay_ns: u128,
    /// Time of waiting for a core in all work, in nanoseconds.
    all_delay_ns: u128,
    calls: u128,
    bytes: u128,
}

/// Answers of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Answers {
    /// Number of slow ranks.
    slow_count: usize,
    /// Slow ranks; none if there are more than [`MAX_SLOW_RANKS`].
    slow: BTreeMap<u32, SlowRank>,
    /// Number of other ranks.
    others: u32,
    amount_of_others: Amount,
    /// Time of the other ranks in each context of the inquiry.
    times_of_others: Vec<Accumulator>,
}

/// A node or core on which all work takes longer than elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowPlace {
    /// Name of the node.
    pub host: String,
    /// Slow ranks.
    pub ranks: RankSet,
    /// Whether the whole node is slow, not only one core of it.
    pub is_node: bool,
    /// Time of the work there, as a multiple of the time elsewhere.
    pub factor: f64,
    /// As `factor`, net of waiting for a core.
    work_factor: f64,
    /// Additional time of waiting for a core, mean over the ranks of the place, in nanoseconds.
    delay_ns: f64,
}

/// Slow places of a run, with the values that losses beside them are found in.
pub struct SlowPlaces {
    /// The places, by host.
    pub places: Vec<SlowPlace>,
    /// Values as measured. [`Totals::sums`] holds them as if no place were slow.
    pub sums: PhaseSums,
    /// Imbalance of the values as measured.
    pub imbalances: BTreeMap<u64, PhaseImbalance>,
}

/// Returns the question to the ranks; without contexts if no rank can be slow.
pub fn inquiry(totals: &Totals) -> Inquiry {
    let job = &totals.job;
    let ranks = job.ranks.len();
    let with_delays = job.crowding() <= 1.0;
    let useful = if with_delays { &job.useful } else { &job.useful_on_core };
    let (mean_ns, excess_ns) = (useful.mean(ranks), useful.imbalance(ranks));
    if ranks < 2 || excess_ns <= MIN_SEVERITY * job.elapsed_ns as f64 {
        return Inquiry::default();
    }
    let mut by_context: BTreeMap<NodeId, u128> = BTreeMap::new();
    for (node, times) in totals.sums.phases.values().flat_map(|phase| &phase.nodes) {
        let delay_ns = if with_delays { times.run_delay.sum } else { 0 };
        *by_context.entry(*node).or_default() += times.own.sum + delay_ns;
    }
    let whole_ns: u128 = by_context.values().sum();
    let least_ns = (MIN_PLACE_CONTEXT_FRACTION * whole_ns as f64)
        .max(MIN_PLACE_CONTEXT_PERIODS * job.kept_period_ns as f64 * f64::from(ranks));
    by_context.retain(|_, sum_ns| *sum_ns as f64 >= least_ns);
    let held_ns: u128 = by_context.values().sum();
    // A function or loop that is called from several places takes longer by the same factor in each
    // of them if a rank has more to do there.
    let contexts = &totals.tree.contexts;
    let code_of = |node: &NodeId| {
        let frame = contexts.frame_of(*node);
        let place = is_loop(frame).then_some((frame.line, frame.offset));
        (&frame.module, &frame.function, place)
    };
    let code: BTreeSet<_> = by_context.keys().map(code_of).collect();
    if code.len() < MIN_PLACE_CONTEXTS
        || (held_ns as f64) < MIN_PLACE_WORK_FRACTION * whole_ns as f64
    {
        return Inquiry::default();
    }
    let contexts = by_context.keys().map(|node| path(&totals.tree.contexts, *node));
    let at_least_ns = (mean_ns + excess_ns / 2.0).ceil() as u64;
    Inquiry { contexts: contexts.collect(), at_least_ns, with_delays }
}

/// Returns the slow places of a job on all processes. Only process 0's inquiry and job count.
/// Collective.
pub fn find(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    asked: Result<Option<(Inquiry, &JobTotals)>, CommunicatorError>,
) -> Result<Vec<SlowPlace>, CommunicatorError> {
    let job = asked.as_ref().ok().and_then(|asked| asked.as_ref().map(|(_, job)| *job));
    let inquiry = broadcast(comm, asked.map(|asked| asked.map(|(inquiry, _)| inquiry)))?;
    if inquiry.contexts.is_empty() {
        return Ok(Vec::new());
    }
    let answers = local.iter().map(|rank| Answers::of_rank(rank, &inquiry));
    let ours = answers.fold(Answers::default(), Answers::combine);
    let all = reduce(comm, ours, Answers::combine);
    let hosts = |answers: Answers| job.map(|job| answers.places(&job.hosts)).unwrap_or_default();
    broadcast(comm, all.map(|all| all.map(hosts)))
}

/// Removes the slowness of the places from the work of the ranks on them.
pub fn even_out(local: &mut [Rank<'_>], places: &[SlowPlace]) {
    for rank in local {
        let place = places.iter().find(|place| place.ranks.contains(rank.input.rank));
        rank.slowness = place.map_or(1.0, |place| place.work_factor);
    }
}

/// Adds up the values of ranks that [`even_out`] has changed; contexts are those of `tree`. Returns
/// the sums on process 0, and `None` elsewhere and without slow places. Collective.
pub fn add_up(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    agreed: &Agreed,
    tree: &mut CanonicalTree,
    places: &[SlowPlace],
) -> Result<Option<PhaseSums>, CommunicatorError> {
    if places.is_empty() {
        return Ok(None);
    }
    let same: Vec<NodeId> = (0..tree.contexts.nodes.len() as NodeId).collect();
    let mut sums = PhaseSums::default();
    for rank in local {
        let mut nodes = tree.adopt(&rank.input.profile.tree, Threads::Main, |_| true);
        // A context that is missing in the tree has taken no time on any rank.
        nodes.iter_mut().for_each(|it| *it = it.filter(|it| same.get(*it as usize).is_some()));
        sums.add_rank(rank, agreed, &nodes, |_| true);
    }
    reduce(comm, sums, |mut ours, theirs| {
        ours.combine(theirs, &same);
        ours
    })
}

impl Amount {
    fn add(&mut self, other: &Self) {
        self.work_ns += other.work_ns;
        self.delay_ns += other.delay_ns;
        self.all_delay_ns += other.all_delay_ns;
        self.calls += other.calls;
        self.bytes += other.bytes;
    }
}

impl Answers {
    fn of_rank(rank: &Rank<'_>, inquiry: &Inquiry) -> Self {
        let (work, delays) = work_of(rank);
        let counted = |ns: u64, delay_ns: u64| ns + if inquiry.with_delays { delay_ns } else { 0 };
        let mut amount =
            Amount { all_delay_ns: delays.values().copied().map(u128::from).sum(), ..moved(rank) };
        let time_ns = |path: &Vec<Step>| {
            let node = find_context(&rank.input.profile.tree, path);
            let of = |times: &BTreeMap<NodeId, u64>| node.and_then(|it| times.get(&it).copied());
            let delay_ns = of(&delays).unwrap_or(0);
            amount.delay_ns += u128::from(counted(0, delay_ns));
            counted(of(&work).unwrap_or(0), delay_ns)
        };
        let times_ns: Vec<u64> = inquiry.contexts.iter().map(time_ns).collect();
        amount.work_ns = times_ns.iter().copied().map(u128::from).sum();
        if useful_ns(rank, inquiry.with_delays) >= inquiry.at_least_ns {
            let host = rank.input.host.clone();
            let slow = SlowRank { host, amount, times_ns };
            return Self {
                slow_count: 1,
                slow: BTreeMap::from([(rank.input.rank, slow)]),
                ..Self::default()
            };
        }
        Self {
            others: 1,
            amount_of_others: amount,
            times_of_others: times_ns.iter().map(|ns| Accumulator::from_iter([*ns])).collect(),
            ..Self::default()
        }
    }

    fn combine(mut self, other: Self) -> Self {
        self.slow_count += other.slow_count;
        self.slow.extend(other.slow);
        if self.slow_count > MAX_SLOW_RANKS {
            self.slow.clear();
        }
        self.others += other.others;
        self.amount_of_others.add(&other.amount_of_others);
        if self.times_of_others.is_empty() {
            self.times_of_others = other.times_of_others;
        } else {
            for (ours, theirs) in self.times_of_others.iter_mut().zip(&other.times_of_others) {
                ours.combine(theirs);
            }
        }
        self
    }

    /// Returns the slow places; none unless they explain all slow ranks, at most half of all.
    fn places(&self, hosts: &BTreeMap<String, Host>) -> Vec<SlowPlace> {
        let count = self.slow_count;
        if count == 0 || count > MAX_SLOW_RANKS || count > self.others as usize {
            return Vec::new();
        }
        let mut by_host: BTreeMap<&str, Vec<(u32, &SlowRank)>> = BTreeMap::new();
        for (rank, slow) in &self.slow {
            by_host.entry(&slow.host).or_default().push((*rank, slow));
        }
        let place = |(host, slow): (&str, Vec<(u32, &SlowRank)>)| {
            let ranks: RankSet = slow.iter().map(|(rank, _)| *rank).collect();
            let is_node = hosts.len() > 1 && hosts.get(host).is_some_and(|it| it.ranks == ranks);
            let slow: Vec<&SlowRank> = slow.into_iter().map(|(_, slow)| slow).collect();
            let slowness = self.slowness(&slow).filter(|_| is_node || slow.len() == 1)?;
            let Slowness { factor, work_factor, delay_ns } = slowness;
            Some(SlowPlace { host: host.to_owned(), ranks, is_node, factor, work_factor, delay_ns })
        };
        by_host.into_iter().map(place).collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// Returns by how much the ranks of a place are slow; `None` unless they are so in all contexts
    /// alike, and the other ranks in none.
    fn slowness(&self, slow: &[&SlowRank]) -> Option<Slowness> {
        let (count, others) = (slow.len() as f64, f64::from(self.others));
        let mut amount = Amount::default();
        slow.iter().for_each(|rank| amount.add(&rank.amount));
        let mean = |sum: u128| sum as f64 / count;
        let mean_of_others = |of: fn(&Amount) -> u128| of(&self.amount_of_others) as f64 / others;
        let usual_ns = mean_of_others(|it| it.work_ns);
        let factor = mean(amount.work_ns) / usual_ns;
        if !(factor.is_finite() && factor >= MIN_SLOW_FACTOR) {
            return None;
        }
        let tolerance = MAX_FACTOR_DEVIATION * (factor - 1.0);
        let is_alike = |it: f64, tolerance: f64| (it - factor).abs() <= tolerance;
        for rank in slow {
            if !is_alike(rank.amount.work_ns as f64 / usual_ns, tolerance) {
                return None;
            }
        }
        for (context, time) in self.times_of_others.iter().enumerate() {
            let usual_ns = time.mean(self.others);
            let sum_ns: u64 = slow.iter().map(|rank| rank.times_ns[context]).sum();
            let of_rank = |rank: &&SlowRank| rank.times_ns[context] as f64 / usual_ns;
            let is_slow = is_alike(sum_ns as f64 / count / usual_ns, tolerance)
                && slow.iter().map(of_rank).all(|it| is_alike(it, 2.0 * tolerance));
            let is_usual = time.variance(self.others).sqrt() <= tolerance * usual_ns
                && time.max as f64 <= (1.0 + (factor - 1.0) / 2.0) * usual_ns;
            if !(is_slow && is_usual) {
                return None;
            }
        }
        let has_more = |of: fn(&Amount) -> u128| {
            mean(of(&amount)) > mean_of_others(of) * (1.0 + (factor - 1.0) / 2.0)
        };
        if has_more(|it| it.calls) || has_more(|it| it.bytes) {
            return None;
        }
        let more = |of: fn(&Amount) -> u128| mean(of(&amount)) - mean_of_others(of);
        let delayed = more(|it| it.delay_ns) / more(|it| it.work_ns);
        if slow.len() == 1 && delayed < MIN_PLACE_DELAY_FRACTION {
            return None;
        }
        let net = |it: &Amount| it.work_ns - it.delay_ns;
        let work_factor = mean(net(&amount)) / (net(&self.amount_of_others) as f64 / others);
        Some(Slowness {
            factor,
            work_factor: if work_factor.is_finite() { work_factor.max(1.0) } else { 1.0 },
            delay_ns: match delayed > 0.0 {
                true => more(|it| it.all_delay_ns).max(0.0),
                false => 0.0,
            },
        })
    }
}

/// Slowness of a place; the fields are those of [`SlowPlace`].
struct Slowness {
    factor: f64,
    work_factor: f64,
    delay_ns: f64,
}

/// Returns a rank's work in the whole run, net of waiting for a core, and its waiting for a core,
/// by responsible context, in nanoseconds.
fn work_of(rank: &Rank<'_>) -> (BTreeMap<NodeId, u64>, BTreeMap<NodeId, u64>) {
    let (mut work, mut delays) = (BTreeMap::new(), BTreeMap::new());
    for phase in rank.phases.iter() {
        for (node, done) in rank.phase_work(phase) {
            *work.entry(node).or_default() += done.own_ns;
        }
        for (node, delay_ns) in rank.run_delays(phase) {
            *delays.entry(node).or_default() += delay_ns;
        }
    }
    (work, delays)
}

/// Returns the useful time of a rank, in nanoseconds.
fn useful_ns(rank: &Rank<'_>, with_delays: bool) -> u64 {
    let values = rank.phases.iter().flat_map(|phase| &phase.values);
    let useful = values.filter(|(node, _)| rank.context_classes[*node as usize].is_useful());
    useful.map(|(_, it)| if with_delays { it.exclusive_ns } else { it.net_ns() }).sum()
}

/// Returns the number of calls of a rank and the bytes that they move. Polling calls do not count:
/// their number depends on the rank's wait time, not on its work.
fn moved(rank: &Rank<'_>) -> Amount {
    let values = rank.phases.iter().flat_map(|phase| &phase.values);
    let calls = values.filter(|(node, _)| !rank.context_classes[*node as usize].polling);
    calls.fold(Amount::default(), |sum, (_, value)| Amount {
        calls: sum.calls + u128::from(value.calls),
        bytes: sum.bytes + u128::from(value.bytes),
        ..sum
    })
}

impl SlowPlaces {
    /// Returns the longest additional time of waiting for a core at any place, in nanoseconds.
    fn delay_ns(&self) -> f64 {
        self.places.iter().map(|place| place.delay_ns).fold(0.0, f64::max)
    }

    /// Returns the additional time of waiting for a core at all places, mean over `ranks` ranks, in
    /// nanoseconds.
    pub fn mean_delay_ns(&self, ranks: u32) -> f64 {
        let sum_ns = |place: &SlowPlace| place.delay_ns * f64::from(place.ranks.len());
        self.places.iter().map(sum_ns).sum::<f64>() / f64::from(ranks.max(1))
    }

    /// Returns the part of a phase's duration that waiting for a core at slow places explains, in
    /// nanoseconds.
    pub fn delay_in_ns(&self, phase: &PhaseTotals, ranks: u32) -> f64 {
        if self.delay_ns() > 0.0 { phase.run_delay.imbalance(ranks) } else { 0.0 }
    }

    /// Returns how much shorter the slowest ranks' work in a phase is without slow places, in
    /// nanoseconds.
    fn lost_ns(&self, index: u64, even: (&PhaseTotals, &PhaseImbalance), ranks: u32) -> f64 {
        let slowest_ns =
            |phase: &PhaseTotals, it: &PhaseImbalance| phase.work.mean(ranks) + it.work_ns;
        let measured = self.sums.phases.get(&index).zip(self.imbalances.get(&index));
        let measured_ns = measured.map_or(0.0, |(phase, it)| slowest_ns(phase, it));
        (measured_ns - slowest_ns(even.0, even.1)).max(0.0)
    }

    /// Returns the mean over ranks of the work that the slow places add, in nanoseconds.
    pub fn mean_work_ns(&self, totals: &Totals) -> f64 {
        let ranks = totals.job.ranks.len();
        let mean_ns =
            |sums: &PhaseSums| sums.phases.values().map(|it| it.work.mean(ranks)).sum::<f64>();
        (mean_ns(&self.sums) - mean_ns(&totals.sums)).max(0.0)
    }

    /// Returns the loss by each slow place. Together they cost what the run would be shorter by
    /// without all of them.
    pub fn findings(
        &self,
        totals: &Totals,
        imbalances: &BTreeMap<u64, PhaseImbalance>,
    ) -> Vec<Finding> {
        let ranks = totals.job.ranks.len();
        let phases = totals.sums.phases.iter();
        let lost: Vec<(u64, f64)> = phases
            .map(|(index, phase)| {
                (*index, self.lost_ns(*index, (phase, &imbalances[index]), ranks))
            })
            .collect();
        let lost_ns = lost.iter().map(|(_, ns)| ns).sum::<f64>() + self.delay_ns();
        let delayed = |index: &u64| self.delay_in_ns(&totals.sums.phases[index], ranks);
        let most = lost.iter().max_by(|a, b| {
            (a.1 + delayed(&a.0)).total_cmp(&(b.1 + delayed(&b.0))).then(b.0.cmp(&a.0))
        });
        let Some((index, _)) = most else { return Vec::new() };
        let phase = &totals.sums.phases[index];
        let waits_most = || phase.waits_most(ranks).map(|(node, _)| node);
        let works = || phase.nodes.keys().next().copied();
        let Some(symptom) = phase.ends_in.or_else(waits_most).or_else(works) else {
            return Vec::new();
        };
        let waiting = match phase.ends_in {
            Some(_) => half_query(Quantity::Sync { phase: *index }, phase.sync.time.max),
            None => half_query(Quantity::Waits { phase: *index }, phase.waited.max),
        };
        let more = |place: &SlowPlace| place.factor - 1.0;
        let all: f64 = self.places.iter().map(more).sum();
        let finding = |place: &SlowPlace| {
            let kind = if place.is_node { LossKind::SlowNode } else { LossKind::SlowCore };
            Finding {
                slow_ranks: place.ranks.clone(),
                waiting: waiting.clone(),
                place: Some(Place { host: place.host.clone(), factor: place.factor }),
                ..Finding::new(kind, *index, lost_ns / NS_PER_S * more(place) / all, symptom)
            }
        };
        self.places.iter().map(finding).collect()
    }
}
