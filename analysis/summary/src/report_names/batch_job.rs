//! The id of a batch job.

use std::ffi::OsString;

/// Environment variables with the job id: Slurm, PBS, LSF, Flux, PALS, Cobalt.
const VARIABLES: [&str; 7] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "PALS_APID",
    "COBALT_JOBID",
];

/// Returns the batch system's job id. Without a batch system: the process id of the launcher, which
/// is the same for all ranks that it started on a node.
pub fn job_id(variable: impl Fn(&str) -> Option<OsString>, launcher_pid: u32) -> String {
    batch_job_id(variable).unwrap_or_else(|| launcher_pid.to_string())
}

/// Returns the batch system's job id; `None` without a batch system.
pub fn batch_job_id(variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let known = |name: &str| {
        let value = variable(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let batch = VARIABLES.iter().find_map(|name| known(name));
    // Other programs set JOB_ID, too: it is SGE's only if SGE's task id is set.
    let sge = || known("SGE_TASK_ID").and_then(|_| known("JOB_ID"));
    batch.or_else(sge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_systems_come_before_the_launcher() {
        let id = |environment: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = environment.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| value.into())
            };
            job_id(value, 77)
        };
        assert_eq!(id(&[]), "77");
        assert_eq!(id(&[("SLURM_JOB_ID", "4711")]), "4711");
        assert_eq!(id(&[("SLURM_JOB_ID", ""), ("PBS_JOBID", "12.server")]), "12.server");
        assert_eq!(id(&[("PALS_APID", "f00"), ("PBS_JOBID", "12")]), "12");
        assert_eq!(id(&[("JOB_ID", "a make job")]), "77");
        assert_eq!(id(&[("JOB_ID", "9"), ("SGE_TASK_ID", "undefined")]), "9");
    }
}
