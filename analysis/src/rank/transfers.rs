//! Bytes moved by each call of one rank, and the bandwidth.
//!
//! A transfer started by a nonblocking call is completed by another call, often in another
//! function, and in another phase if a synchronisation lies between them. No record links the two
//! calls: the completion is searched from the function of the start outwards, and the first
//! function with a call below it that can complete the transfer is taken. Bytes are divided by time
//! between the start and all such calls there. Both directions of an exchange run at the same time,
//! so the larger one counts.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, NodeId, PhaseProfile};

use super::CallTime;
use crate::bandwidth::Bandwidths;
use crate::canonical::below;
use crate::owners::function_around;

/// Calls of a phase outside of work.
type Waits = BTreeMap<NodeId, CallTime>;

/// Minimum percentage of a function's time in the calls that exchange messages for the function to
/// do little else: its data then travels from the first of these calls to the last.
const EXCHANGE_PERCENT: u64 = 50;

/// Role of an MPI call in transfers that proceed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Sends, or takes part in a collective; completed by a request or by the synchronisation of a
    /// window.
    Sends,
    /// Posts a receive buffer, at least as large as the message.
    Receives,
    /// Accesses a window.
    Accesses,
    /// Completes requests.
    CompletesRequests,
    /// Completes accesses to a window.
    CompletesAccesses,
    /// Moves its data itself, and returns when all data has left.
    Moves,
    /// Has bytes that give no bandwidth: those of a receive, of a file, or of a copy to be sent
    /// later.
    Other,
}

impl Part {
    fn starts(self) -> bool {
        matches!(self, Self::Sends | Self::Receives | Self::Accesses)
    }

    fn completes(self) -> bool {
        matches!(self, Self::CompletesRequests | Self::CompletesAccesses)
    }
}

fn part(tree: &ContextTree, node: NodeId) -> Part {
    let frame = &tree.frames[tree.nodes[node as usize].frame as usize];
    let Some(call) = frame.call.and_then(calls::call) else { return Part::Other };
    if !call.provider.is_mpi() || call.class == CallClass::Io {
        return Part::Other;
    }
    let begins = |beginnings: &[&str]| beginnings.iter().any(|it| call.name.starts_with(it));
    match call.name.strip_suffix("_c").unwrap_or(call.name) {
        "MPI_Irecv" | "MPI_Imrecv" => Part::Receives,
        "MPI_Recv" | "MPI_Mrecv" | "MPI_Bsend" => Part::Other,
        "MPI_Put" | "MPI_Get" | "MPI_Accumulate" | "MPI_Get_accumulate" => Part::Accesses,
        "MPI_Rput" | "MPI_Rget" | "MPI_Raccumulate" | "MPI_Rget_accumulate" => Part::Sends,
        "MPI_Win_fence" | "MPI_Win_complete" => Part::CompletesAccesses,
        _ if begins(&["MPI_Win_flush", "MPI_Win_unlock"]) => Part::CompletesAccesses,
        _ if begins(&["MPI_Wait", "MPI_Test"]) => Part::CompletesRequests,
        _ if begins(&["MPI_I"]) => Part::Sends,
        _ => Part::Moves,
    }
}

/// Sets the bytes moved by the calls of all phases, and returns the bandwidths. `waits` holds the
/// calls of each phase before its ending synchronisation.
pub fn settle(tree: &ContextTree, phases: &[PhaseProfile], waits: &mut [Waits]) -> Bandwidths {
    let mut seen = Bandwidths::default();
    let mut open = Vec::new();
    for (at, (phase, waits)) in phases.iter().zip(&mut *waits).enumerate() {
        let mut exchanges = Exchanges::default();
        for (node, wait) in waits.iter_mut() {
            let part = part(tree, *node);
            wait.moved = if part.starts() { 0 } else { wait.bytes };
            if part == Part::Moves {
                seen.add_whole(wait.calls, wait.bytes, wait.time_ns);
            }
            exchanges.add_completion(tree, *node, wait);
        }
        for (node, wait) in waits.iter_mut().filter(|(node, _)| part(tree, **node).starts()) {
            if !exchanges.add_start(tree, *node, wait) {
                open.push((at, *node));
            }
        }
        exchanges.observe(tree, phase, &mut seen);
        for (node, wait) in waits.iter_mut() {
            wait.moved += exchanges.part_of(tree, *node, wait.time_ns);
        }
    }
    settle_across_phases(tree, open, waits);
    for (node, wait) in waits.iter().flatten() {
        if part(tree, *node).completes() {
            seen.add_completed(wait.calls, wait.moved, wait.time_ns);
        }
    }
    seen
}

/// Assigns transfers that a phase started and did not complete to completing calls of other phases
/// that have started nothing of that kind. A transfer without any completing call belongs to its
/// start.
fn settle_across_phases(tree: &ContextTree, open: Vec<(usize, NodeId)>, waits: &mut [Waits]) {
    let mut exchanges = Exchanges::default();
    let is_idle =
        |(node, wait): &(&NodeId, &CallTime)| part(tree, **node).completes() && wait.moved == 0;
    let idle: BTreeSet<(usize, NodeId)> = (0..)
        .zip(&*waits)
        .flat_map(|(at, waits)| waits.iter().filter(is_idle).map(move |(node, _)| (at, *node)))
        .collect();
    for (at, node) in &idle {
        exchanges.add_completion(tree, *node, &waits[*at][node]);
    }
    for (at, node) in open {
        if let Some(wait) = waits[at].get_mut(&node)
            && !exchanges.add_start(tree, node, wait)
        {
            wait.moved = wait.bytes;
        }
    }
    for (at, node) in idle {
        if let Some(wait) = waits[at].get_mut(&node) {
            wait.moved = exchanges.part_of(tree, node, wait.time_ns);
        }
    }
}

/// Place of an exchange: the innermost function around its start and its completion, and the kind
/// of completion.
type TransferSite = (Option<NodeId>, Part);

/// Calls that exchange data together, by the innermost function around them.
#[derive(Default)]
struct Exchanges {
    /// Time and number of all completing calls below a function.
    completions: BTreeMap<TransferSite, Completions>,
    granted: BTreeMap<TransferSite, Granted>,
}

#[derive(Clone, Copy, Default)]
struct Completions {
    calls: u64,
    time_ns: u64,
}

/// Transfers that the completing calls below a function complete, in bytes.
#[derive(Clone, Copy, Default)]
struct Granted {
    sent: u64,
    received: u64,
    /// Time in the calls that started the transfers, in nanoseconds.
    starting_ns: u64,
}

impl Granted {
    fn bytes(self) -> u64 {
        self.sent.max(self.received)
    }
}

/// Returns the functions around a context, innermost first, and then `None` for the code outside of
/// all functions.
fn functions(tree: &ContextTree, node: NodeId) -> impl Iterator<Item = Option<NodeId>> {
    let outwards = |function: &Option<NodeId>| function.map(|it| function_around(tree, it));
    std::iter::successors(Some(function_around(tree, node)), outwards)
}

impl Exchanges {
    fn add_completion(&mut self, tree: &ContextTree, node: NodeId, wait: &CallTime) {
        let part = part(tree, node);
        for function in functions(tree, node).filter(|_| part.completes()) {
            let completions = self.completions.entry((function, part)).or_default();
            completions.calls += wait.calls;
            completions.time_ns += wait.time_ns;
        }
    }

    /// Assigns the bytes started by a call to their completion; returns false if no call completes
    /// them.
    fn add_start(&mut self, tree: &ContextTree, node: NodeId, wait: &mut CallTime) -> bool {
        let part = part(tree, node);
        // An access with a request may also be completed with its window.
        let kinds = match part {
            Part::Accesses => &[Part::CompletesAccesses][..],
            _ => &[Part::CompletesRequests, Part::CompletesAccesses],
        };
        let found = kinds.iter().find_map(|kind| {
            let mut places = functions(tree, node).map(|function| (function, *kind));
            places.find_map(|place| {
                let time_ns = self.completions.get(&place)?.time_ns;
                (time_ns > 0).then_some((place, time_ns))
            })
        });
        let Some((place, completing_ns)) = found else { return false };
        wait.moved = share(wait.bytes, wait.time_ns, wait.time_ns + completing_ns);
        let granted = self.granted.entry(place).or_default();
        let direction = match part {
            Part::Receives => &mut granted.received,
            _ => &mut granted.sent,
        };
        *direction += wait.bytes - wait.moved;
        granted.starting_ns += wait.time_ns;
        true
    }

    /// Returns the bytes that a completing call completes.
    fn part_of(&self, tree: &ContextTree, node: NodeId, time_ns: u64) -> u64 {
        let part = part(tree, node);
        let of_place = |function: Option<NodeId>| {
            let granted = self.granted.get(&(function, part))?;
            Some(share(granted.bytes(), time_ns, self.completions[&(function, part)].time_ns))
        };
        functions(tree, node).filter_map(of_place).sum()
    }

    /// Adds the bandwidths of functions that do little but exchange: their time is the time of the
    /// transfer.
    fn observe(&self, tree: &ContextTree, phase: &PhaseProfile, seen: &mut Bandwidths) {
        for ((function, kind), granted) in &self.granted {
            let inside = below(tree, *function);
            let values = phase.values.iter().filter(|(node, _)| inside[*node as usize]);
            let whole_ns: u64 = values.map(|(_, value)| value.exclusive_ns).sum();
            let completions = self.completions[&(*function, *kind)];
            let in_calls_ns = granted.starting_ns + completions.time_ns;
            if in_calls_ns * 100 >= whole_ns * EXCHANGE_PERCENT {
                seen.add_whole(completions.calls, granted.bytes(), whole_ns);
            }
        }
    }
}

fn share(bytes: u64, time_ns: u64, of_ns: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(time_ns) / u128::from(of_ns.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
