//! Ranks of a node, as needed by their collector.

use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, gather};

/// One rank of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRank {
    /// Rank in the world.
    pub rank: u32,
    /// Process id.
    pub pid: u32,
    /// Start time of the process (field 22 of /proc/pid/stat).
    pub start_time: u64,
    /// Descriptor of its segment.
    pub descriptor: i32,
    /// Cores on which the rank may run.
    pub cores: Vec<u32>,
    /// Identity of its clock: `RankClock::id`.
    pub clock: String,
    /// Whether the rank is measured (PLIMSOLL_RANKS).
    pub watched: bool,
}

/// Returns all ranks of the node on its first rank, in the order of their ranks on the node; `None`
/// on the others. Collective.
pub fn introduce(
    node: &dyn Communicator,
    me: NodeRank,
) -> Result<Option<Vec<NodeRank>>, CommunicatorError> {
    gather(node, me)
}

/// Distributes the decision of the node's first rank (which passes `Some`) for each rank whether it
/// is collected. Returns the id of the collecting process if this rank is collected. Collective.
pub fn distribute(
    node: &dyn Communicator,
    collected: Option<Vec<bool>>,
) -> Result<Option<u32>, CommunicatorError> {
    let decision = collected.map(|collected| (std::process::id(), collected));
    let (collector, collected) = broadcast(node, Ok(decision))?;
    let this = collected.get(node.rank() as usize).copied().unwrap_or(false);
    Ok(this.then_some(collector))
}
