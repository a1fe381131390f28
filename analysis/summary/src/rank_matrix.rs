//! Communication matrix: messages between ranks, and waiting between ranks.

use serde::{Deserialize, Serialize};

/// Communication between ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Communication {
    /// Point-to-point messages by ordered pair of ranks; `None` if no rank exchanged a message with
    /// a known rank.
    pub matrix: Option<Matrix>,
}

/// Point-to-point messages by ordered pair of ranks, or of clusters of ranks in large jobs. Rows
/// and columns stand for the same ranks, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Path of a side file with the numbers, relative to the summary; `None` if the numbers are
    /// here.
    pub file: Option<String>,
    /// Rank list with a row for each rank; `None` if rows stand for clusters.
    pub ranks: Option<String>,
    /// Rank lists with a row for each cluster; `None` if rows stand for single ranks.
    pub clusters: Option<Vec<String>>,
    /// Messages that the row's rank sent to the column's, as the sender counts them.
    pub calls: Vec<Vec<u64>>,
    /// Bytes of these messages.
    pub bytes: Vec<Vec<u64>>,
    /// Messages that the row's rank received from the column's, as the receiver counts them.
    pub received: Vec<Vec<u64>>,
    /// Seconds of the row's rank in point-to-point calls with the column's as partner.
    pub wait_s: Vec<Vec<f64>>,
    /// Messages of all ranks with unknown partners: the program ignores the status of a message
    /// from any rank, or the partner is no rank of the job.
    pub unknown: Untold,
    /// Messages of all ranks with partners that are not distinguished, because a rank has too many
    /// of them.
    pub others: Untold,
}

/// Messages with partners without a column, the sum over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Untold {
    /// Messages sent.
    pub calls: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Seconds in calls with these partners.
    pub wait_s: f64,
}

/// Ranks that the waiting ranks of a loss wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Rank list.
    pub ranks: String,
    /// Fraction of the time in the symptom's calls with these ranks as partner, 0 to 1.
    pub share: f64,
    /// Time with these ranks as partner, the sum over the waiting ranks.
    pub seconds: f64,
}

/// Begin of a chain of waiting ranks: the ranks that computed while the others waited for each
/// other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Rank list.
    pub ranks: String,
    /// Context of their computation: index into the tree's nodes; `None` if no context stands out.
    pub node: Option<u32>,
    /// Fraction of the waiting that leads to these ranks, 0 to 1.
    pub share: f64,
    /// Whether the chain begins at different ranks among these at different times.
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
