//! Where reports go: names, and files that appear whole or not at all and never replace another.

mod draft;
mod job;
mod local_time;
mod name;
mod place;
mod side;

pub use job::{batch_job_id, job_id};
pub use local_time::LocalTime;
pub use name::{Facts, Target, is_pattern_valid, shared_directory};
pub use place::{Reports, Written, claim_folder, write_reports};
pub use side::{Side, write_with_side};
