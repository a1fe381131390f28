//! Names of reports: the user's pattern, the job's id, and the local time at which the run began.

mod batch_job;
mod local_time;
mod name;

pub use batch_job::{batch_job_id, job_id};
pub use local_time::LocalTime;
pub use name::{NameFields, Target, is_pattern_valid, shared_directory};
