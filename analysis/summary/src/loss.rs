//! Scalability losses (PPoPP20, 5.3) and inefficient segments (ICS18, 4.3.3).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Frame, Label, Lateness, Origin, Pattern, WaitsFor};

/// Kind of a loss (PPoPP20, Table 2, and further kinds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Some ranks work longer than others, which wait for them.
    LoadImbalance,
    /// One rank works while all others wait.
    Serialization,
    /// Many short communication calls.
    FrequentCommunication,
    /// Communication calls that wait for their partner.
    WaitForPartner,
    /// Communication calls that move much data.
    LargeMessage,
    /// File operations that move much data.
    LargeIo,
    /// Groups of ranks with different tasks have different amounts of work.
    GroupImbalance,
    /// Threads wait for a lock that others hold.
    LockContention,
    /// More runnable threads than cores.
    Oversubscription,
    /// All work takes longer on the ranks of one node than elsewhere, in all contexts alike.
    SlowNode,
    /// All work of one rank takes longer than elsewhere, because others use its core.
    SlowCore,
    /// Some threads of a team work longer than others in a parallel region.
    ThreadImbalance,
    /// One thread works outside of parallel regions while its team waits.
    SerialSection,
    /// Many tasks that are short compared with their creation.
    FineGrainedTasks,
    /// Many parallel regions that are short compared with their begin and end.
    FineGrainedRegions,
}

impl LossKind {
    /// Every kind.
    pub const ALL: [Self; 15] = [
        Self::LoadImbalance,
        Self::Serialization,
        Self::FrequentCommunication,
        Self::WaitForPartner,
        Self::LargeMessage,
        Self::LargeIo,
        Self::GroupImbalance,
        Self::LockContention,
        Self::Oversubscription,
        Self::SlowNode,
        Self::SlowCore,
        Self::ThreadImbalance,
        Self::SerialSection,
        Self::FineGrainedTasks,
        Self::FineGrainedRegions,
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
            Self::SlowNode => "slow node",
            Self::SlowCore => "slow core",
            Self::ThreadImbalance => "thread imbalance",
            Self::SerialSection => "serial section",
            Self::FineGrainedTasks => "fine-grained tasks",
            Self::FineGrainedRegions => "fine-grained regions",
        })
    }
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Kind of the loss.
    pub kind: LossKind,
    /// Fraction of the elapsed time lost: `seconds` / elapsed.
    pub severity: f64,
    /// Run time saved without this loss, in seconds: the sum over instances of the loss in each.
    pub seconds: f64,
    /// Run time without this loss alone, in seconds.
    pub elapsed_without_s: f64,
    /// Id of the phase in which the loss occurs ([`super::Phase::id`]), or most of it.
    pub phase: u32,
    /// Ids of the other phases of the loss, ascending. Empty for frequent communication, which is a
    /// loss over the whole run.
    #[serde(default)]
    pub also_in_phases: Vec<u32>,
    /// Index into the phase's groups; `None` unless the loss concerns one group only.
    pub group: Option<u32>,
    /// Label of the symptom.
    pub label: Label,
    /// Whether the symptom's calls poll.
    pub polling: bool,
    /// Whether several causes lie on different ranks and partly even each other out.
    pub evened_out: bool,
    /// Whether a different rank is slow each time, so that over the whole run no rank is slower by
    /// the lost time.
    #[serde(default)]
    pub by_turns: bool,
    /// Rank list: ranks with a time in the first cause of at least mean + (max - mean) / 2. For
    /// large messages with uneven data: ranks with at least mean + (max - mean) / 2 bytes.
    pub slow_ranks: String,
    /// Rank list: ranks with a wait time of at least half of the largest, in all calls in which the
    /// loss shows.
    pub waiting_ranks: String,
    /// Advice for the user.
    pub advice: String,
    /// Time at which the loss occurs; `None` if unknown, or if the loss fits no [`WhenKind`].
    #[serde(default)]
    pub when: Option<When>,
    /// Context in which the loss shows.
    pub symptom: Symptom,
    /// Other contexts in which the loss shows, by falling share. The synchronisation in which the
    /// first ranks of a pipeline wait comes last, and does not count for `waiting_ranks`.
    #[serde(default)]
    pub also_in: Vec<Symptom>,
    /// Causes of the loss, by falling share.
    pub causes: Vec<Cause>,
    /// Median duration of the tasks or regions that are too short, in seconds; `None` for other
    /// kinds.
    #[serde(default)]
    pub median_s: Option<f64>,
    /// Call paths that have the lock while others wait for it, by falling share; those with small
    /// shares are left out. Empty for other kinds, and for locks outside of OpenMP.
    #[serde(default)]
    pub holders: Vec<LockHolder>,
    /// Ranks that point-to-point calls of the symptom wait for, by falling share; ranks with small
    /// shares come last as one entry. Empty if no partner is known.
    #[serde(default)]
    pub waits_for: Vec<WaitsFor>,
    /// Host name of the slow node, or of the node with the slow core; `None` for other kinds.
    #[serde(default)]
    pub node: Option<String>,
    /// Time of the work at the slow place, as a multiple of the time elsewhere; `None` for other
    /// kinds.
    #[serde(default)]
    pub factor: Option<f64>,
    /// Rank at the begin of the chain of waiting ranks, for a wait for partners; `None` if unknown.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Main reason of the waiting in point-to-point calls; `None` if no reason holds for half of
    /// the waiting.
    #[serde(default)]
    pub pattern: Option<Pattern>,
    /// Reasons of the waiting in point-to-point calls of the symptom; `None` if no partner is
    /// known.
    #[serde(default)]
    pub lateness: Option<Lateness>,
}

/// Distribution of a loss over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenKind {
    /// The loss is about equal all the time.
    Steady,
    /// The loss grows over the run.
    Growing,
    /// Most of the loss lies in a part of the run.
    Confined,
}

/// Time at which a loss occurs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct When {
    /// Distribution of the loss over the run.
    pub kind: WhenKind,
    /// Begin of the part of the run in which the loss occurs, in seconds since the begin of the
    /// run.
    pub from_s: f64,
    /// End of that part, in seconds since the begin of the run.
    pub to_s: f64,
    /// Fraction of the loss that lies in that part.
    pub share: f64,
}

/// Context in which ranks lose the time. Values are over the ranks of the group if the loss
/// concerns one group, and over all ranks otherwise and for a group imbalance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symptom {
    /// Call path from the outermost to the innermost frame.
    pub path: Vec<Frame>,
    /// Index of the context in the tree's nodes.
    pub node: u32,
    /// Time in the context, mean over ranks, in seconds.
    pub mean_s: f64,
    /// Time in the context, minimum over ranks, in seconds.
    pub min_s: f64,
    /// Time in the context, maximum over ranks, in seconds.
    pub max_s: f64,
    /// Number of calls, summed over ranks.
    pub calls: u64,
    /// Whether `calls` was counted; otherwise it is a lower bound from samples.
    pub calls_exact: bool,
    /// Mean duration of a call, in seconds; `None` without calls.
    pub per_call_s: Option<f64>,
    /// Bytes moved, summed over ranks; `None` if the calls have no sizes.
    pub bytes: Option<u64>,
    /// Fraction of the context's time with each label.
    pub breakdown: BTreeMap<Label, f64>,
}

/// A cause of a loss. Times are over the ranks of the group that holds the cause; for a group
/// imbalance, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Call path from the outermost to the innermost frame.
    pub path: Vec<Frame>,
    /// Index of the context in the tree's nodes.
    pub node: u32,
    /// Index into the phase's groups; `None` unless the cause lies in one group.
    pub group: Option<u32>,
    /// Part of the loss that the cause explains, in seconds.
    pub seconds: f64,
    /// Part of the loss that the cause explains, as a fraction of the loss.
    pub share: f64,
    /// Time in the context, mean over ranks, in seconds.
    pub mean_s: f64,
    /// Time in the context, maximum over ranks, in seconds.
    pub max_s: f64,
    /// Reason of the longer time on the slow ranks; `None` unless all ranks counted instructions
    /// and cycles (`PLIMSOLL_COUNTERS`), and these explain the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<WorkDifference>,
}

/// Call path that has a lock while others wait for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Call path from the outermost frame to the call that acquires the lock.
    pub path: Vec<Frame>,
    /// Index of the context in the tree's nodes.
    pub node: u32,
    /// Fraction of the wait time in which the call path has the lock.
    pub share: f64,
}

/// Reason of the longer time of a context on slow ranks than on the others, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkDifference {
    /// Factor that explains most of the difference.
    pub kind: WorkDifferenceKind,
    /// Part of the difference that this factor explains, as a part of the logarithm of
    /// `time_factor`; at most 1.
    pub share: f64,
    /// Rank list of the ranks that are slow in this context.
    pub ranks: String,
    /// Mean time of the slow ranks, as a multiple of that of the others.
    pub time_factor: f64,
    /// Mean number of instructions of the slow ranks, as a multiple of that of the others.
    pub instructions_factor: f64,
    /// Instructions per cycle of the slow ranks.
    pub ipc: f64,
    /// Instructions per cycle of the others.
    pub ipc_of_others: f64,
}

/// Factor by which a rank is slow in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkDifferenceKind {
    /// The rank executes more instructions.
    MoreWork,
    /// The rank executes fewer instructions per cycle.
    SlowerWork,
}

/// A part of the run between synchronisations in which time is lost (ICS18, 4.3.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Id of its phase.
    pub phase: u32,
    /// Imbalance of the synchronisation that ends the segment, in seconds.
    pub imb_sync_s: f64,
    /// Sum of the imbalances of its other significant contexts, in seconds.
    pub sum_imb_s: f64,
    /// Sum of the wait times of its other significant contexts, in seconds.
    pub sum_wait_s: f64,
    /// Row of ICS18's Table 2 (1 to 5) that applies; `None` if no row does.
    pub row: Option<u8>,
    /// Significant contexts of the segment: indices into the tree's nodes.
    pub nodes: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_on_the_wire_are_their_words_in_snake_case() {
        for kind in LossKind::ALL {
            let words = kind.to_string().to_lowercase().replace("/", "").replace([' ', '-'], "_");
            assert_eq!(serde_json::to_value(kind).unwrap(), words);
        }
    }

    #[test]
    fn the_readme_explains_every_kind() {
        let readme = include_str!("../../../README.md");
        let rows: Vec<_> = readme.lines().filter_map(|line| line.strip_prefix("| ")).collect();
        for kind in LossKind::ALL {
            let kind = kind.to_string();
            let explains = |row: &str| {
                let (names, _) = row.split_once(" | ").unwrap_or_default();
                names.split(", ").any(|name| name == kind)
            };
            assert!(rows.iter().any(|row| explains(row)), "{kind}");
        }
    }
}
