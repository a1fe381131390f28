//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.

pub mod communicator;
pub mod label;
pub mod metrics;
pub mod ranks;
pub mod summary;
pub mod threads;
