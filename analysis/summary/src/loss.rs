//! Scalability losses (PPoPP20, 5.3) and inefficient segments (ICS18, 4.3.3).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Frame, Label, Origin, WaitsFor};

/// What kind of loss it is (PPoPP20, Table 2, and beyond).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Some ranks work longer than others, which wait for them.
    LoadImbalance,
    /// One rank works while all others wait.
    Serialization,
    /// Many short communication calls.
    FrequentCommunication,
    /// Communication that waits for its partner.
    WaitForPartner,
    /// Communication that moves much data.
    LargeMessage,
    /// File operations that move much data.
    LargeIo,
    /// Groups of ranks with different tasks have different amounts of work.
    GroupImbalance,
    /// Threads wait for a lock that others hold.
    LockContention,
    /// More runnable threads than cores.
    Oversubscription,
}

impl LossKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::LoadImbalance,
        Self::Serialization,
        Self::FrequentCommunication,
        Self::WaitForPartner,
        Self::LargeMessage,
        Self::LargeIo,
        Self::GroupImbalance,
        Self::LockContention,
        Self::Oversubscription,
    ];
}

/// The kind in words: `load imbalance`.
impl fmt::Display for LossKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::LoadImbalance => "load imbalance",
            Self::Serialization => "serialization",
            Self::FrequentCommunication => "frequent communication",
            Self::WaitForPartner => "wait for partner",
            Self::LargeMessage => "large message",
            Self::LargeIo => "large I/O",
            Self::GroupImbalance => "group imbalance",
            Self::LockContention => "lock contention",
            Self::Oversubscription => "oversubscription",
        })
    }
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Its kind.
    pub kind: LossKind,
    /// Fraction of the elapsed time that it costs: `seconds` / elapsed.
    pub severity: f64,
    /// What the run would be shorter by without it: the sum over instances of the loss of each.
    pub seconds: f64,
    /// The run time without this loss alone.
    pub elapsed_without_s: f64,
    /// Id of the phase in which it happens ([`super::Phase::id`]).
    pub phase: u32,
    /// Index into the phase's groups, where it concerns one of them alone.
    pub group: Option<u32>,
    /// Label of the symptom.
    pub label: Label,
    /// Whether the symptom's calls poll.
    pub polling: bool,
    /// Whether several causes lie on different ranks and partly even each other out.
    pub evened_out: bool,
    /// Whether another rank is slow each time, so that over the run none is slower by as much as is lost.
    #[serde(default)]
    pub by_turns: bool,
    /// Rank list: those whose time in the first cause is at least mean + (max - mean) / 2.
    pub slow_ranks: String,
    /// Rank list: those whose wait is at least half of the largest.
    pub waiting_ranks: String,
    /// What the user can do.
    pub advice: String,
    /// When it happens; `None` where that is not known, or it comes and goes otherwise.
    #[serde(default)]
    pub when: Option<When>,
    /// Where it shows.
    pub symptom: Symptom,
    /// What brings it about, by falling share.
    pub causes: Vec<Cause>,
    /// Which ranks are waited for in point-to-point calls of the symptom, by falling share; those with little
    /// come last, together. Empty where no partner is known.
    #[serde(default)]
    pub waits_for: Vec<WaitsFor>,
    /// Where the chain of waiting ranks begins, of a wait for partners; `None` where that is not known.
    #[serde(default)]
    pub origin: Option<Origin>,
}

/// How a loss is spread over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenKind {
    /// About as much all the time.
    Steady,
    /// More and more.
    Growing,
    /// Most of it in a short part of the run.
    Confined,
}

/// When a loss happens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct When {
    /// How it is spread.
    pub kind: WhenKind,
    /// Begin of the part of the run in which it happens, in seconds since the begin of the run.
    pub from_s: f64,
    /// End of that part.
    pub to_s: f64,
    /// The fraction of the loss that lies in that part.
    pub share: f64,
}

/// Where a loss shows: the context in which ranks lose the time. Of a loss of one group, its ranks count; of a
/// group imbalance all do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symptom {
    /// Call path from the outermost to the innermost frame.
    pub path: Vec<Frame>,
    /// Index into the tree's nodes.
    pub node: u32,
    /// Time in it, mean over ranks.
    pub mean_s: f64,
    /// Least of the ranks.
    pub min_s: f64,
    /// Most of the ranks.
    pub max_s: f64,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Whether `calls` was counted; else it is a lower bound from samples.
    pub calls_exact: bool,
    /// Mean duration of a call; `None` without calls.
    pub per_call_s: Option<f64>,
    /// Bytes moved, the sum over ranks, where the calls tell.
    pub bytes: Option<u64>,
    /// What its time is made of: the fraction of each label.
    pub breakdown: BTreeMap<Label, f64>,
}

/// What brings a loss about. Its times are of the group that it lies in; of a group imbalance, of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Call path from the outermost to the innermost frame.
    pub path: Vec<Frame>,
    /// Index into the tree's nodes.
    pub node: u32,
    /// Index into the phase's groups, where the cause lies in one of them.
    pub group: Option<u32>,
    /// The part of the loss that it explains.
    pub seconds: f64,
    /// The same as a fraction of the loss.
    pub share: f64,
    /// Time in it, mean over ranks.
    pub mean_s: f64,
    /// Most of the ranks.
    pub max_s: f64,
}

/// A part of the run between synchronisations in which time is lost (ICS18, 4.3.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Id of its phase.
    pub phase: u32,
    /// Imbalance of the synchronisation that ends it.
    pub imb_sync_s: f64,
    /// Sum of the imbalances of its other significant contexts.
    pub sum_imb_s: f64,
    /// Sum of their waits.
    pub sum_wait_s: f64,
    /// Row of ICS18's Table 2 (1 to 5) that applies, if one does.
    pub row: Option<u8>,
    /// Its significant contexts: indices into the tree's nodes.
    pub nodes: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_on_the_wire_are_their_words_in_snake_case() {
        for kind in LossKind::ALL {
            let words = kind.to_string().to_lowercase().replace("/", "").replace(' ', "_");
            assert_eq!(serde_json::to_value(kind).unwrap(), words);
        }
    }
}
