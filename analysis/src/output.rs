//! Where reports go: names, and files that appear whole or not at all and never replace another.

mod job;
mod local_time;
mod name;
mod place;

pub use job::job_id;
pub use local_time::LocalTime;
pub use name::{Facts, Target, is_pattern_valid};
pub use place::{Report, Written, write_reports};
