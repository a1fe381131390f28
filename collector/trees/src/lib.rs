//! Temporal context trees as values, and what is done with them (ICS18; PPoPP20, 3): iterations
//! told apart, trees compared and merged, iterations of a loop and ranks of a job clustered.
//!
//! ```text
//! samples -> TreeBuilder: frames open and close -> iterations -> Online: clusters as they close
//!            Node  <- difference, merge <- farthest <- the same for ranks, in a reduction
//! ```
//!
//! # Design constraints
//! - Everything streams. A time-step loop ends with the job, so its iterations are clustered as they
//!   close; an inner loop's before those of the loop around it (ICS18, 4.2.1).
//! - Memory is bounded by structure, never by run time: O(depth x K) trees, and a hard bound
//!   at which detail is shed, counted.
//! - Totals are exact: nodes hold sums, and averages are taken when they are read.
//! - Nothing here knows where samples come from, what keys stand for, or what a rank is. The control flow
//!   is asked for through [`ControlFlow`]; times are in whatever unit the stamps have.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

mod align;
mod builder;
mod children;
mod closed;
mod difference;
mod distances;
mod durations;
mod farthest;
mod flatten;
mod identify;
mod loops;
mod members;
mod merge;
mod node;
mod online;
mod open;
mod path;
mod runs;
mod shed;
#[cfg(test)]
mod tests;
mod translate;

pub use builder::{BuildCounts, Lca, Limits, TreeBuilder};
pub use children::MOST_CHILDREN;
pub use difference::{difference, ratio};
pub use durations::{Durations, MOST_DURATIONS, Stretch};
pub use farthest::{
    MemberSet, RATIO_MIN, RATIO_REL, clustered, merge_sets, most_clusters, separations,
};
pub use identify::{ACCEPTED_CHILDREN, ACCEPTED_PERIODS, Evidence, Identifier, identifiers};
pub use members::{MOST_RUNS, Members};
pub use merge::merged;
pub use node::{Boundary, Cluster, Content, Iterations, Key, Kind, Node};
pub use online::Online;
pub use open::{Frame, Moment};
pub use runs::Run;
pub use shed::{Shed, limit};
pub use translate::Terms;

/// What the structure of the program says of the order of call sites and loops.
pub trait ControlFlow {
    /// Whether, within one pass through `parent` (a procedure, or one iteration of a loop), `other`
    /// can run after `one`: whether it is reachable without a back edge (ICS18, Algorithm 1).
    ///
    /// False where it is not known. Never true of a place and itself, nor of two places both ways.
    fn precedes(&self, parent: Key, one: Key, other: Key) -> bool;

    /// An order of keys for places that the control flow does not order.
    fn order(&self, one: Key, other: Key) -> Ordering {
        one.cmp(&other)
    }

    /// Whether calls for which a key stands are recorded, not only seen by samples.
    fn is_recorded(&self, _call: Key) -> bool {
        false
    }
}
