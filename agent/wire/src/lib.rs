//! Shared memory and records between an observed process and the collector of its node.
//!
//! A process shares one [`segment`] of memory with the collector: a header, tables of modules and
//! addresses, and for each thread its counters and a ring. The thread writes [`record`]s into its
//! ring through [`ring::Producer`]; the collector maps the segment, polls the rings, and decodes
//! what it reads with [`record::Decoder`]. A [`doorbell`] wakes the collector when a ring fills.
//! [`clock_anchor`] relates the stamps of records to CLOCK_MONOTONIC, and [`sync_id`] names
//! synchronisations.
//!
//! # Design constraints
//! - Every word of the segment is an atomic: the collector reads while the process writes, and a
//!   process may die between any two stores.
//! - The writing side is async-signal-safe and neither allocates nor locks: it runs in the signal
//!   handler. It never waits for the collector: a full ring drops whole records and counts them.
//! - The reading side trusts nothing: [`record::Decoder`] returns an error for any bytes that are
//!   no record, never a panic.
//! - Records are differences to the thread's previous stack: a sample costs three or four bytes, so
//!   that a ring holds half a minute and a spool of a day fits a disk.

pub mod clock_anchor;
pub mod doorbell;
pub mod increments;
pub mod leb128;
pub mod lengths;
pub mod lock_waits;
pub mod record;
pub mod ring;
pub mod segment;
pub mod sync_id;
pub mod teams;
pub mod truncation;
