//! Comparison of runs: summaries in, one [`Comparison`] out.
//!
//! Entry points: [`Experiment::from_json`] reads the values that a comparison needs from a summary,
//! [`compare`] compares experiments; [`text`], [`to_json`] and [`write_page`] are views of the
//! result and compute nothing.
//!
//! Excess work follows Fowler, *Scalability and Scaling of Performance Tools*, slides "Relative
//! Scalability" and "Ensemble of Parallel Experiments" ([`excess`]). The scaling table has the
//! efficiencies of the POP methodology ([`pop`]). Growth is chosen among few simple models by
//! leave-one-out cross-validation ([`growth`]). Versions of a program are compared by t-tests with
//! variances shared between contexts ([`regression`]).
//!
//! Design constraints:
//! - Pure: no files, no clock, no randomness. The same summaries give the same comparison.
//! - An experiment is small (about 60 bytes per calling context): large summaries are read one by
//!   one and not kept.
//! - Every threshold that decides a verdict stands in [`diff_thresholds`] and in the comparison
//!   itself.
#![forbid(unsafe_code)]

pub mod alignment;
pub mod comparison;
pub mod computation_counts;
mod context_keys;
mod contrast;
mod diff_page;
pub mod diff_thresholds;
mod diff_verdict;
pub mod excess;
pub mod expectation;
pub mod experiment;
pub mod growth;
mod loss_changes;
mod merged;
mod notes;
pub mod pop;
pub mod regression;
mod setups;
mod significant;
mod summary_keys;
mod view;

pub use comparison::{Comparison, DiffVersion};
pub use contrast::{CompareError, Options, compare};
pub use diff_page::write_page;
pub use expectation::Expect;
pub use experiment::Experiment;
pub use view::{text, to_json};
