//! Plimsoll's collecting side: the rings of all threads of a node in, temporal context trees out.
//!
//! ```text
//! attach -> drain -> replay -> account -> phases, rows, releases -> snapshot -> profile
//!                      tree, addresses <- structure, symbols    contexts, shares
//!                      series (where calls are not measured)
//! ```
//!
//! [`spool`] is a file format of its own: what goes through the drain, kept for after a death.
//!
//! # Design constraints
//! - The collector lives in a process of the application: it starts no thread, never panics on what
//!   a ring holds, and keeps structure, not history.
//! - What the rings hold is hostile: a process may die in mid-write. What cannot be read is counted
//!   as lost.
//! - Time is partitioned: every stamp of a thread's run is booked in exactly one context.

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
mod facts;
mod glance;
mod history;
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
pub mod spool;
mod spooling;
mod tables;
#[cfg(test)]
mod tests;
mod tree;
mod used;
mod values;

pub use attach::AttachError;
pub use collector::{Collector, Options, ProcessKey};
pub use death::Death;
pub use spooling::{Kept, PlaceSpool, SpoolOutcome, keep};
