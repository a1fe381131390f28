//! Shared code of the job tests: subjects are compiled and run as jobs, and their own truth is
//! compared with the summary that Plimsoll wrote about them.
//!
//! # Design constraints
//! - One job at a time on the whole machine's cores: a second one would change what the first
//!   measures, if anything is measured ([`job_lock`]).
//! - Measurements are compared with the truth in a run that nothing disturbed; a job's end and its
//!   output are checked in every run ([`retry_on_noise`]).
//! - A job that hangs is ended with everything that it started, and what it printed is shown.
//! - Nothing is left out silently: what a machine cannot run fails, or, where the user asked for
//!   that, is named on stderr in a line that begins with `SKIPPED` ([`mpi`]).
//! - The tests know the summary as JSON only, as a user's script does ([`summary`]).

pub mod artifacts;
pub mod background;
mod bindings;
pub mod digests;
pub mod job_lock;
pub mod lists;
pub mod mpi;
pub mod nodes;
pub mod openmp_runtime;
pub mod outcome;
pub mod per_rank_check;
pub mod process;
pub mod readers;
pub mod retry_on_noise;
pub mod scratch;
pub mod side_by_side;
pub mod subject;
pub mod subject_job;
pub mod summary;
pub mod truth;
pub mod wheels;
