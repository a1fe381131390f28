//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.

pub mod label;
pub mod summary;
