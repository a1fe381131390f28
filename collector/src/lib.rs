//! The collecting side: polls and drains the rings of all threads of a node, and makes one profile
//! of each process.
//!
//! [`Collector`] is the entry point: [`Collector::attach`] maps the segment of a process,
//! [`Collector::run`] polls the rings until it is stopped, [`Collector::finish`] returns the
//! [`ProcessProfile`](profile::ProcessProfile). [`digest`] makes the same profile from a recorded
//! spool ([`plimsoll_spool`]).
//!
//! ```text
//! attach -> drain -> replay -> account -> phases, rows, releases -> snapshot -> profile
//!                      tree, addresses <- plimsoll-binary           contexts, shares
//!                      temporal <- plimsoll-trees
//!                      series (where calls are not measured)
//! ```
//!
//! # Design constraints
//! - The collector lives in a process of the application: it starts no thread, its memory is
//!   bounded, and it keeps structure (contexts, phases, trees), not the history of records.
//! - Rings are hostile input: a process may die while it writes. Records that cannot be decoded are
//!   counted as lost; nothing in a ring makes the collector panic.
//! - Time is partitioned: each stamp of a thread's run is charged to exactly one context, so that
//!   the times of a report add up to the run time.

mod account;
mod address_table;
mod apportionment;
mod attach;
mod clock_rate;
mod collected_process;
mod collector;
mod concurrency;
mod context_values;
mod contexts;
mod death;
pub mod digest;
mod drain;
mod event_counts;
mod exemplars;
mod graft_makers;
mod history;
mod instance_reservoir;
mod length_distribution;
mod loop_profile;
mod loop_profiles;
mod loop_slices;
mod openmp_profile;
mod partner_values;
mod periods;
mod phases;
mod poll;
mod process_info;
pub mod profile;
mod raw_tree;
mod referenced_addresses;
mod region_values;
mod replay;
mod replay_target;
mod resolved_profile;
mod sample_series;
mod schedules;
mod spooling;
mod stack_position;
mod sync_returns;
mod tables;
mod temporal;
#[cfg(test)]
mod tests;
mod thread_accounts;
mod thread_profile;
mod time_series;

pub use attach::AttachError;
pub use collector::{Collector, Options, ProcessKey};
pub use death::Death;
pub use resolved_profile::aggregate_threads;
pub use spooling::{PlaceSpool, SpoolOutcome, SpoolSelection, keep};
