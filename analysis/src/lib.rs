//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.

pub mod cli;
pub mod error;
pub mod label;
pub mod output;
pub mod report;
pub mod settings;
pub mod summary;
