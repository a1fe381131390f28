//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.
//!
//! [`diagnose::diagnose`] is the entry point. Its steps: the [agreement] of the ranks, each rank's
//! [view](rank) with its [labels](labelling), the reduction of their [totals] over the
//! [communicator], the [imbalance], the [communication], the [resources] and the [losses] in them,
//! the offsets of their [clocks], the [queries] for ranks, the [attribution] of lost time to
//! contexts and its [segments], and the [conclusion](conclude).

pub mod advice;
pub mod agreement;
pub mod attribution;
pub mod bandwidth;
pub mod biclusters;
pub mod canonical;
pub mod chains;
pub mod clocks;
pub mod clusters;
pub mod communication;
pub mod conclude;
mod counter_totals;
pub mod crews;
pub mod deaths;
pub mod delays;
pub mod diagnose;
pub mod digest;
pub mod distinctions;
pub mod divisions;
pub mod finding;
pub mod frames;
pub mod groups;
pub mod imbalance;
pub mod input;
pub mod instances;
pub mod job;
mod joining;
pub mod labelling;
pub mod late_partners;
pub mod loops;
pub mod losses;
pub mod message_ends;
pub mod metrics;
pub mod mpmd;
pub mod order;
pub mod owners;
pub mod pairs;
pub mod per_rank;
pub mod queries;
pub mod random;
pub mod rank;
pub mod resources;
pub mod rules;
pub mod segments;
pub mod series;
pub mod sites;
pub mod slow_places;
mod sources;
pub mod spooled;
pub mod spooled_job;
pub mod summary_tree;
pub mod thresholds;
pub mod timeline;
pub mod times;
pub mod totals;
mod when;

use plimsoll_comm::fingerprint;
pub use plimsoll_comm::{communicator, threads};
pub use plimsoll_summary as summary;
pub use plimsoll_summary::{error, glob, label, phrase, printable, ranks, settings};

#[cfg(test)]
mod subject;
