//! Which ranks exchange messages with which, and which ranks wait for which.

use serde::{Deserialize, Serialize};

/// Communication between ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Communication {
    /// Point-to-point messages by ordered pair of ranks; `None` where no rank exchanged any with a rank that
    /// is known.
    pub matrix: Option<Matrix>,
}

/// Point-to-point messages by ordered pair of ranks, or of clusters of ranks where there are many. Rows and
/// columns stand for the same ranks, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Path of a side file with the numbers, relative to the summary; `None` where they are here.
    pub file: Option<String>,
    /// Rank list: a row for each of these ranks; `None` where rows stand for clusters.
    pub ranks: Option<String>,
    /// Rank lists: a row for each of these clusters; `None` where rows stand for single ranks.
    pub clusters: Option<Vec<String>>,
    /// Messages that the row's rank sent to the column's, as the sender counts them.
    pub calls: Vec<Vec<u64>>,
    /// Bytes of these messages.
    pub bytes: Vec<Vec<u64>>,
    /// Messages that the row's rank received from the column's, as the receiver counts them.
    pub received: Vec<Vec<u64>>,
    /// Seconds that the row's rank spent in point-to-point calls whose partner was the column's.
    pub wait_s: Vec<Vec<f64>>,
    /// Messages of all ranks with partners that are not known: the program ignores the status of what it
    /// receives from any rank, or the partner is no rank of the job.
    pub unknown: Untold,
    /// Messages of all ranks with partners that are not told apart, because a rank has too many of them.
    pub others: Untold,
}

/// Messages with partners that no column stands for, the sum over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Untold {
    /// Messages sent.
    pub calls: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Seconds in calls with such partners.
    pub wait_s: f64,
}

/// Ranks that the waiting ranks of a loss wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Rank list.
    pub ranks: String,
    /// Part of the time in the symptom's calls in which these ranks are the partner, 0 to 1.
    pub share: f64,
    /// That time, the sum over the ranks that wait.
    pub seconds: f64,
}

/// Where a chain of waiting ranks begins: the ranks that computed while the others waited for each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Rank list.
    pub ranks: String,
    /// What they computed: index into the tree's nodes; `None` if no context stands out.
    pub node: Option<u32>,
    /// Part of the waiting that leads to these ranks, 0 to 1.
    pub share: f64,
    /// Whether different ranks among these are the begin at different times.
    #[serde(default)]
    pub changes: bool,
}

/// Pattern of waiting between two ranks (Scalasca's terms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Receivers wait for messages that are not yet sent.
    LateSender,
    /// Senders wait for receivers that have not yet begun to receive.
    LateReceiver,
}

/// Reasons of waiting between two ranks, as fractions of the waiting, 0 to 1: estimates from
/// messages that both ends have recorded with their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// The sender had not begun to send.
    pub late_sender: f64,
    /// The receiver had not begun to receive.
    pub late_receiver: f64,
    /// Both had begun.
    pub transfer: f64,
    /// The times of the other end are unknown.
    pub unknown: f64,
}
