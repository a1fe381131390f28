//! The collecting side: polls and drains the rings of all threads of a node, and makes one profile of
//! each process.
//!
//! [`Collector`] is the entry point: [`Collector::attach`] maps the segment of a process,
//! [`Collector::run`] polls the rings until it is stopped, [`Collector::finish`] returns the
//! [`ProcessProfile`](profile::ProcessProfile). [`digest`] makes the same profile from a recorded
//! spool ([`plimsoll_spool`]).
//!
//! ```text
//! attach -> drain -> replay -> account -> phases, rows, releases -> snapshot -> profile
//!                      tree, addresses <- plimsoll-binary           contexts, shares
//!                      course <- plimsoll-trees
//!                      series (where calls are not measured)
//! ```
//!
//! # Design constraints
//! - The collector lives in a process of the application: it starts no thread, its memory is bounded,
//!   and it keeps structure (contexts, phases, trees), not the history of records.
//! - Rings are hostile input: a process may die while it writes. Records that cannot be decoded are
//!   counted as lost; nothing in a ring makes the collector panic.
//! - Time is partitioned: each stamp of a thread's run is charged to exactly one context, so that the
//!   times of a report add up to the run time.

mod account;
mod addresses;
mod attach;
mod books;
mod clock;
mod collector;
mod contexts;
mod course;
mod death;
pub mod digest;
mod drain;
mod event_counts;
mod exemplars;
mod facts;
mod glance;
mod history;
mod loop_profile;
mod loop_slices;
mod loops;
mod pace;
mod partner_values;
mod periods;
mod phases;
mod place;
mod process;
pub mod profile;
mod releases;
mod replay;
mod rows;
mod series;
mod shares;
mod snapshot;
mod spooling;
mod tables;
#[cfg(test)]
mod tests;
mod time_series;
mod tree;
mod used;
mod values;

pub use attach::AttachError;
pub use collector::{Collector, Options, ProcessKey};
pub use death::Death;
pub use spooling::{Kept, PlaceSpool, SpoolOutcome, keep};
