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

/// Environment variables of an element of a job array of Slurm: the array, and the element in it.
const SLURM_ARRAY: [&str; 2] = ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"];

/// Returns the batch system's job id. Without a batch system: the process id of the launcher, which
/// is the same for all ranks that it started on a node.
pub fn job_id(variable: impl Fn(&str) -> Option<OsString>, launcher_pid: u32) -> String {
    batch_job_id(variable).unwrap_or_else(|| launcher_pid.to_string())
}

/// Returns the batch system's job id, in an array with the element (`4711_3`); `None` without a
/// batch system.
pub fn batch_job_id(variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let known = |name: &str| {
        let value = variable(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    // Jobs of an array have numbers of their own, as users know them from the queue; LSF's is 0 and
    // SGE's is no number outside of an array.
    let task = |name: &str| known(name).filter(|task| task.parse().is_ok_and(|task: u64| task > 0));
    let slurm = || Some(format!("{}_{}", known(SLURM_ARRAY[0])?, known(SLURM_ARRAY[1])?));
    let batch = || VARIABLES.iter().find_map(|name| Some((*name, known(name)?)));
    // Other programs set JOB_ID, too: it is SGE's only if SGE's task id is set.
    let sge = || known("SGE_TASK_ID").and_then(|_| Some(("JOB_ID", known("JOB_ID")?)));
    slurm().or_else(|| {
        let (name, id) = batch().or_else(sge)?;
        let element = match name {
            "LSB_JOBID" => task("LSB_JOBINDEX"),
            "JOB_ID" => task("SGE_TASK_ID"),
            _ => None,
        };
        Some(match element {
            Some(element) => format!("{id}_{element}"),
            None => id,
        })
    })
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
        // Elements of arrays.
        let array = [("SLURM_ARRAY_JOB_ID", "4711"), ("SLURM_ARRAY_TASK_ID", "0")];
        assert_eq!(id(&[("SLURM_JOB_ID", "4715"), array[0], array[1]]), "4711_0");
        assert_eq!(id(&[("LSB_JOBID", "12"), ("LSB_JOBINDEX", "3")]), "12_3");
        assert_eq!(id(&[("LSB_JOBID", "12"), ("LSB_JOBINDEX", "0")]), "12");
        assert_eq!(id(&[("JOB_ID", "9"), ("SGE_TASK_ID", "2")]), "9_2");
    }
}
