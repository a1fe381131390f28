//! Temporal context trees: built from the stack changes of a thread, compared, merged, clustered
//! and pruned (ICS18; PPoPP20, 3).
//!
//! [`TreeBuilder`] takes the frames that open and close on a thread and returns its [`Node`]. The
//! builder splits the children of a loop into iterations (ICS18, Algorithm 1) and clusters them as
//! they close. [`difference`] and [`merged`] compare and average two trees (Algorithm 2);
//! [`StreamingClusterer`] and [`Blocks`] keep the K representatives that are farthest apart
//! (Algorithm 3), of iterations, threads or ranks.
//!
//! ```text
//! frames open and close -> TreeBuilder -> iterations -> StreamingClusterer: clusters
//!                         Node <- difference, merge <- k_farthest <- clusters of threads, of ranks
//! ```
//!
//! # Design constraints
//! - Trees are built while the program runs. A time-step loop ends with the job, so its iterations
//!   are clustered as they close, those of an inner loop before those of the loop around it (ICS18,
//!   4.2.1).
//! - Memory is bounded by structure, never by run time: O(depth x K) trees, and a hard bound at
//!   which detail is pruned and counted. The collector shares its process with the application.
//! - Totals are exact: nodes hold sums, and averages are computed when they are read. Pruning and
//!   merging keep the sum of all times.
//! - The crate knows neither samples nor ranks, nor the meaning of a [`Key`]: [`ControlFlow`]
//!   answers questions about the program, and times are in the unit of the stamps. The same
//!   operations therefore serve iterations, threads and ranks.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

mod blocks;
mod child_alignment;
mod children;
mod closed;
mod difference;
mod distances;
mod durations;
mod flatten;
mod instance_sample;
mod iteration_capture;
mod iterations;
mod k_farthest;
mod loop_clusters;
mod members;
mod merge;
mod open;
mod open_path;
mod period;
mod pruning;
mod runs;
mod streaming;
#[cfg(test)]
mod tests;
mod translate;
mod tree_builder;
mod tree_node;

pub use blocks::{Blocks, Merging};
pub use children::MAX_CHILDREN;
pub use difference::{difference, ratio};
pub use durations::{Durations, MAX_DURATIONS, Stretch};
pub use flatten::flattened;
pub use instance_sample::{Instance, InstanceSample, MAX_SAMPLED};
pub use iteration_capture::{CapturedIteration, WantedIteration};
pub use iterations::{
    ACCEPTED_CHILDREN, ACCEPTED_PERIODS, IterationEvidence, IterationSplitter, identifiers,
};
pub use k_farthest::{MemberSet, RATIO_MIN, RATIO_REL, most_clusters, separations};
pub use members::{MAX_RUNS, Members};
pub use merge::merged;
pub use open::{Frame, Moment};
pub use pruning::{Pruned, prune_to};
pub use runs::Run;
pub use streaming::StreamingClusterer;
pub use translate::Terms;
pub use tree_builder::{BuildCounts, Lca, Limits, TreeBuilder};
pub use tree_node::{Boundary, Cluster, Content, Iterations, Key, Kind, Node};

/// Order of call sites and loops in the control flow of the program.
pub trait ControlFlow {
    /// Returns whether `other` can run after `one` within one pass through `parent` (a procedure,
    /// or one iteration of a loop): whether `other` is reachable without a back edge (ICS18,
    /// Algorithm 1); `None` where the control flow is unknown. A strict order of the other keys:
    /// never true of a key and itself, nor of two keys in both directions.
    fn precedes(&self, parent: Key, one: Key, other: Key) -> Option<bool>;

    /// Returns a total order of keys, for those that the control flow leaves unordered.
    fn order(&self, one: Key, other: Key) -> Ordering {
        one.cmp(&other)
    }

    /// Returns whether entry and exit of the call are recorded, so that its duration is exact;
    /// false for calls that only samples show.
    fn is_recorded(&self, _call: Key) -> bool {
        false
    }
}
