//! The ranks of a node, as their collector needs to know them.

use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, gather};

/// One rank of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRank {
    /// Rank in the world.
    pub rank: u32,
    /// Process id.
    pub pid: u32,
    /// Start of the process (field 22 of /proc/pid/stat).
    pub start_time: u64,
    /// Descriptor of its segment.
    pub descriptor: i32,
    /// Cores on which it may run.
    pub cores: Vec<u32>,
    /// Which clock it reads: `RankClock::id`.
    pub clock: String,
    /// It is to be watched (PLIMSOLL_RANKS).
    pub watched: bool,
}

/// Tells the node's first rank of all ranks, in the order of their ranks on the node; `None` on the
/// others. Collective.
pub fn introduce(
    node: &dyn Communicator,
    me: NodeRank,
) -> Result<Option<Vec<NodeRank>>, CommunicatorError> {
    gather(node, me)
}

/// The node's first rank (which passes `Some`) tells for each rank whether it collects it. Returns
/// the id of the process that collects this rank, if it is that one. Collective.
pub fn distribute(
    node: &dyn Communicator,
    collected: Option<Vec<bool>>,
) -> Result<Option<u32>, CommunicatorError> {
    let told = collected.map(|collected| (std::process::id(), collected));
    let (collector, collected) = broadcast(node, Ok(told))?;
    let this = collected.get(node.rank() as usize).copied().unwrap_or(false);
    Ok(this.then_some(collector))
}
