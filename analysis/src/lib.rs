//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.
//!
//! [`diagnose::diagnose`] is the way through: what the ranks [agree](agreement) on, each rank's
//! [view](rank) with its [labels](labelling), their [totals] over the [communicator], the
//! [imbalance] and the other [losses] in them, the [queries] that name ranks, the
//! [conclusion](conclude).

pub mod advice;
pub mod agreement;
pub mod canonical;
pub mod cli;
pub mod communicator;
pub mod conclude;
pub mod diagnose;
pub mod digest;
pub mod error;
pub mod imbalance;
pub mod instances;
pub mod job;
pub mod label;
pub mod labelling;
pub mod loops;
pub mod losses;
pub mod metrics;
pub mod mpi;
pub mod order;
pub mod output;
pub mod queries;
pub mod rank;
pub mod ranks;
pub mod report;
pub mod settings;
pub mod spooled;
pub mod summary;
pub mod summary_tree;
pub mod threads;
pub mod totals;

#[cfg(test)]
mod subject;
