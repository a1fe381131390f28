//! Any number of ranks from a few profiles: each rank takes a pseudo-random one, with noise.

use std::cell::Cell;

use ciborium::Value;
use plimsoll_analysis::agreement::{Agreed, Proposal};
use plimsoll_analysis::clocks::{Reference, lowest};
use plimsoll_analysis::input::{Cost, JobInfo, RankClock, RankInput};
use plimsoll_analysis::pairs::Pairs;
use plimsoll_analysis::random::Random;
use plimsoll_analysis::rank::Rank;
use plimsoll_analysis::rules::Rules;
use plimsoll_analysis::spooled::SpoolNote;
use plimsoll_analysis::totals::Totals;
use plimsoll_collector::digest::Digest;
use plimsoll_collector::profile::{ExemplaryMessage, PartnerValue, ProcessProfile};
use plimsoll_comm::communicator::Alone;
use plimsoll_tests::outcome::Outcome;
use plimsoll_trees::{Key, Node, Terms};

/// Number of ranks of a node.
const ON_A_NODE: u32 = 64;

/// Maximum relative noise of a rank's times.
const NOISE: f64 = 0.05;

/// The ranks of a job.
pub struct Ranks {
    /// The profiles that ranks are made from.
    profiles: Vec<ProcessProfile>,
    agreed: Agreed,
    reference: Reference,
}

impl Ranks {
    /// Creates `ranks` ranks from these profiles.
    pub fn new(profiles: Vec<ProcessProfile>, ranks: u32) -> Self {
        let proposals = profiles.iter().map(Proposal::of);
        let all = proposals.fold(Proposal::default(), Proposal::combine);
        let agreed = Agreed { ranks, ..all.conclude(Rules::default()) };
        let mut made = Self { profiles, agreed, reference: Reference::default() };
        let first = [made.input(0)];
        made.reference = Reference::learn(&Alone, &first, lowest(&first), false)
            .unwrap_or_else(|error| panic!("{error}"));
        made
    }

    /// Returns the agreement of all profiles.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Returns the reference clock of the others.
    pub fn reference(&self) -> Reference {
        self.reference.clone()
    }

    /// Returns a rank, as its collector would hand it on.
    pub fn input(&self, rank: u32) -> RankInput {
        let which = if rank == 0 { 0 } else { mixed(u64::from(rank)) % self.profiles.len() as u64 };
        let mut profile = self.profiles[which as usize].clone();
        disturb(&mut profile, rank);
        RankInput {
            rank,
            host: host(rank / ON_A_NODE),
            cores: (0..ON_A_NODE).collect(),
            clock: RankClock {
                id: "3e1f4c5a-7f5c-4f0e-9a41-5b1f6b0c2d17".to_owned(),
                exchanges: Vec::new(),
            },
            profile,
            cost: Cost::default(),
            spool_trouble: None,
        }
    }

    /// Returns a rank of `ranks` that exchanges messages with its neighbours in a grid, unless its
    /// profile has messages of its own.
    pub fn talking_input(&self, rank: u32, ranks: u32) -> RankInput {
        let mut input = self.input(rank);
        if input.profile.partners.is_empty() {
            talk(&mut input.profile, rank, ranks);
        }
        input
    }

    /// Returns a rank's totals at the begin of the reduction.
    pub fn totals(&self, rank: u32) -> Totals {
        let input = self.input(rank);
        let mut totals = Totals::default();
        totals.add_rank(&Rank::new(&input, &self.agreed), &self.agreed);
        totals.clocks.add_rank(&input, &self.reference);
        totals
    }
}

/// Returns the job's data and its ranks in order, from the spool of a job on one node.
pub fn recorded(job: &Outcome) -> (JobInfo, Vec<RankInput>) {
    let mut inputs = Vec::new();
    let mut info = None;
    for spool in job.files_ending(".spool") {
        let mut digest =
            Digest::open(&spool).unwrap_or_else(|error| panic!("{}: {error}", spool.display()));
        let note = digest.note().cloned().expect("a spool says which job it is of");
        let note: SpoolNote = serde_json::from_value(note).expect("the note is a SpoolNote");
        for process in digest.processes() {
            let profile = digest.profile(process.number, |_| {}).expect("the spool is whole");
            inputs.extend(profile.and_then(|profile| note.input(process.pid, profile)));
        }
        info = Some(note.job);
    }
    inputs.sort_by_key(|input| input.rank);
    (info.expect("the job has left a spool"), inputs)
}

/// Returns the totals with rank numbers higher by `by`, on other nodes. Their fields are found by
/// name in the serialised form, since only a measurement renumbers ranks.
pub fn moved(totals: &Totals, by: u32) -> Totals {
    let mut value = Value::serialized(totals).expect("totals can be sent, so they can be written");
    let clusters = at(&mut value, "clusters");
    for (block, clusters) in entries(at(clusters, "blocks")) {
        raise(at(block, "first"), by);
        elements(clusters)
            .iter_mut()
            .for_each(|cluster| raise_set(at(at(cluster, "members"), "ranks"), by));
    }
    for (_, it) in entries(at(at(&mut value, "loops"), "by_node")) {
        raise_set(at(it, "ranks"), by);
        raise(at(at(it, "longest"), "rank"), by);
    }
    let phases = entries(at(at(&mut value, "sums"), "phases"));
    phases.iter_mut().for_each(|(_, it)| raise(at(it, "named_by"), by));
    for (clock, known) in entries(at(at(&mut value, "clocks"), "clocks")) {
        raise_host(at(clock, "host"), by);
        raise_set(at(known, "ranks"), by);
        entries(at(known, "fits")).iter_mut().for_each(|(rank, _)| raise(rank, by));
    }
    let job = at(&mut value, "job");
    raise_set(at(job, "ranks"), by);
    for (host, known) in entries(at(job, "hosts")) {
        raise_host(host, by);
        raise_set(at(known, "ranks"), by);
    }
    value.deserialized().expect("only numbers have changed")
}

/// Returns the messages of ranks with numbers higher by `by`, in the same clusters.
pub fn moved_pairs(pairs: &Pairs, by: u32) -> Pairs {
    let mut value = Value::serialized(pairs).expect("pairs can be sent, so they can be written");
    for end in elements(at(at(&mut value, "ends"), "ends")) {
        raise(at(end, "rank"), by);
        raise(at(end, "partner"), by);
    }
    value.deserialized().expect("only numbers have changed")
}

fn at<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    let found = entries(value).iter_mut().find(|(key, _)| key.as_text() == Some(name));
    &mut found.unwrap_or_else(|| panic!("totals have no {name} any more")).1
}

fn entries(value: &mut Value) -> &mut Vec<(Value, Value)> {
    value.as_map_mut().expect("a map")
}

fn elements(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list")
}

fn raise(value: &mut Value, by: u32) {
    let number = u64::try_from(value.as_integer().expect("a rank")).expect("a rank");
    *value = Value::from(number + u64::from(by));
}

fn raise_set(set: &mut Value, by: u32) {
    for run in elements(at(set, "runs")) {
        raise(at(run, "first"), by);
        raise(at(run, "last"), by);
    }
}

fn raise_host(value: &mut Value, by: u32) {
    let name = value.as_text().expect("a host has a name");
    let number: u32 = name.trim_start_matches("node").parse().expect("nodes are numbered");
    *value = Value::from(host(number + by / ON_A_NODE));
}

fn host(number: u32) -> String {
    format!("node{number:05}")
}

/// Scales times in a temporal context tree, each by its own noise.
struct Noisy(Cell<u64>);

impl Terms for Noisy {
    type Place = ();

    fn node(&mut self, (): (), node: &Node) -> Option<((), Key)> {
        Some(((), node.key()))
    }

    fn time(&self, time: u64) -> u64 {
        self.0.set(mixed(self.0.get()));
        noisy(time, self.0.get())
    }
}

/// Distances of neighbours in a grid of ranks, in both directions.
const STRIDES: [u32; 3] = [1, 64, 4096];
/// Number of contexts with messages, and of exemplary messages of a channel.
const TALKING: u32 = 8;
const EXEMPLARY: u32 = 64;

/// Adds messages with the neighbours of a rank to a profile.
fn talk(profile: &mut ProcessProfile, rank: u32, ranks: u32) {
    let up = STRIDES.map(|stride| (rank + stride) % ranks);
    let down = STRIDES.map(|stride| (rank + ranks - stride % ranks) % ranks);
    let nodes = profile.tree.nodes.len() as u32;
    for partner in up.into_iter().chain(down) {
        let value = |node| PartnerValue {
            node,
            partner,
            sent: 300,
            bytes: 300 << 10,
            received: 300,
            waited_ns: mixed(u64::from(rank)) % 1_000_000_000,
        };
        profile.partners.extend((0..TALKING.min(nodes)).map(value));
        for (number, is_sent) in (0..EXEMPLARY).flat_map(|it| [(it, true), (it, false)]) {
            let posted_ns = u64::from(number) * 100_000_000 + u64::from(rank % 64) * 100_000;
            profile.messages.messages.push(ExemplaryMessage {
                node: number % TALKING.min(nodes),
                is_sent,
                partner,
                group: 1,
                tag: 3,
                number,
                posted_ns,
                entered_ns: posted_ns,
                left_ns: posted_ns + 50_000_000,
                waited_ns: u64::from(number) * 50_000_000,
            });
        }
    }
    profile.partners.sort_by_key(|it| (it.node, it.partner));
}

/// Adds the noise of a rank to a profile.
fn disturb(profile: &mut ProcessProfile, rank: u32) {
    let of_node = |node: u32| mixed(u64::from(rank) << 32 | u64::from(node));
    for (node, value) in profile.phases.iter_mut().flat_map(|phase| &mut phase.values) {
        value.exclusive_ns = noisy(value.exclusive_ns, of_node(*node));
    }
    for row in &mut profile.rows.rows {
        let which = of_node(row.index as u32);
        row.values.iter_mut().for_each(|(node, ns)| *ns = noisy(*ns, which ^ of_node(*node)));
    }
    if let Some(temporal_tree) = &mut profile.temporal_tree {
        let mut noise = Noisy(Cell::new(of_node(0)));
        temporal_tree.tree =
            temporal_tree.tree.translated(((), temporal_tree.tree.key()), &mut noise);
    }
}

fn noisy(time_ns: u64, random: u64) -> u64 {
    let part = random as f64 / u64::MAX as f64 * 2.0 - 1.0;
    (time_ns as f64 * (1.0 + NOISE * part)) as u64
}

/// Returns a pseudo-random number.
fn mixed(number: u64) -> u64 {
    Random::new(number).next()
}
