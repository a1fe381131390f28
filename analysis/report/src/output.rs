//! Output of reports: file names, and files that appear whole or not at all and never replace
//! another file.

mod atomic_write;
mod draft;
mod side;

pub use atomic_write::{FALLBACK, Reports, Written, claim_folder, write_reports};
pub use plimsoll_summary::report_names::{
    LocalTime, NameFields, Target, batch_job_id, is_pattern_valid, job_id, shared_directory,
};
pub use side::{Side, write_with_side};
