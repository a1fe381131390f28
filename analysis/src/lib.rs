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
pub mod awaited_threads;
pub mod bandwidth;
pub mod biclusters;
pub mod broken_off;
pub mod canonical;
pub mod chains;
pub mod clocks;
pub mod clusters;
pub mod communication;
pub mod conclusion;
pub mod context_order;
mod counter_totals;
pub mod deaths;
pub mod delays;
pub mod diagnose;
pub mod digest;
pub mod distinctions;
pub mod finding;
pub mod frame_classes;
pub mod groups;
pub mod imbalance;
pub mod input;
pub mod instances;
pub mod job_totals;
mod joined_losses;
pub mod labelling;
pub mod late_partners;
mod lock_totals;
pub mod loop_totals;
pub mod losses;
mod map_merge;
pub mod message_ends;
pub mod metrics;
mod moving_work;
pub mod mpmd;
mod node_map;
mod openmp_totals;
mod order_in_time;
pub mod owners;
pub mod pairs;
mod partner_work;
pub mod per_rank;
mod phase_unification;
pub mod population;
pub mod queries;
pub mod random;
pub mod rank;
pub mod resources;
pub mod rules;
pub mod sampled_phases;
pub mod segments;
pub mod sibling_losses;
pub mod siblings;
pub mod sites;
pub mod slow_places;
mod sources;
pub mod spooled;
pub mod spooled_job;
pub mod subgroup_intervals;
pub mod summary_tree;
pub mod team_losses;
pub mod team_places;
pub mod team_times;
pub mod team_totals;
pub mod thread_clusters;
pub mod thread_totals;
pub mod thresholds;
pub mod timeline;
pub mod times;
pub mod totals;
mod when;
mod work_differences;

use plimsoll_comm::fingerprint;
pub use plimsoll_comm::{communicator, thread_ranks};
pub use plimsoll_summary as summary;
pub use plimsoll_summary::{error, glob, label, phrase, printable, ranks, settings};

#[cfg(test)]
mod synthetic_run;
