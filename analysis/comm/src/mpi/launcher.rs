//! Information that the job's launcher gives to each process before MPI does.

use std::env;
use std::fs;

use plimsoll_sys::process_stat::ProcessStat;

/// Environment variables with the rank of a process: PMIx, Hydra's and Slurm's PMI, Open MPI,
/// Slurm, PALS, MVAPICH, ALPS.
const RANK_VARIABLES: [&str; 7] = [
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "PALS_RANKID",
    "MV2_COMM_WORLD_RANK",
    "ALPS_APP_PE",
];

/// Environment variables that differ between jobs under one launcher and are equal on all ranks of
/// a node. Hydra starts the processes of MPI_Comm_spawn beside their parents, and tells them only
/// that they are spawned and their number.
const JOB_VARIABLES: [&str; 5] =
    ["PMIX_NAMESPACE", "PMI_JOBID", "SLURM_STEP_ID", "PMI_SPAWNED", "PMI_SIZE"];

/// Environment variables with a name of the job that no other job has: PMIx, Slurm's PMI.
const UNIQUE_NAMES: [&str; 2] = ["PMIX_NAMESPACE", "PMI_JOBID"];

/// Environment variables with the number of ranks on all nodes: Open MPI, Hydra, Slurm, MVAPICH.
const SIZE_VARIABLES: [&str; 4] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE"];

/// Environment variables with the number of the job's ranks on this node: Open MPI, Hydra (MPICH,
/// Intel), MVAPICH, Cray.
const LOCAL_SIZE_VARIABLES: [&str; 4] = [
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMI_LOCAL_SIZE",
];

/// Options with which the daemons of a launcher find the launcher itself: its address, and a port
/// that no other launcher at that address has. MPICH's Hydra, Intel's Hydra.
const WAY_BACK_OPTIONS: [&str; 3] = ["--control-port", "--upstream-host", "--upstream-port"];

/// Maximum number of ancestors searched for these options.
const MAX_DAEMONS: usize = 3;

/// Returns the rank of this process according to the launcher, before MPI tells it: the first of
/// [`RANK_VARIABLES`] that holds a number. Slurm sets its variable in batch scripts as well, where
/// nothing is a rank.
pub fn launcher_rank() -> Option<u32> {
    rank_in(|name| env::var(name).ok())
}

fn rank_in(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let in_step = variable("SLURM_STEP_ID").is_some();
    let names = RANK_VARIABLES.iter().filter(|name| in_step || **name != "SLURM_PROCID");
    names.into_iter().find_map(|name| variable(name)?.parse().ok())
}

/// Returns whether no launcher has started other processes along with this one, as far as its
/// variables tell.
pub fn is_alone() -> bool {
    is_alone_in(|name| env::var(name).ok())
}

fn is_alone_in(variable: impl Fn(&str) -> Option<String>) -> bool {
    let sizes = SIZE_VARIABLES.iter().filter_map(|name| variable(name)?.parse::<u32>().ok());
    sizes.max().map_or_else(|| rank_in(&variable).is_none(), |size| size == 1)
}

/// Returns the values that distinguish this job from others under the same launcher.
pub fn job_names() -> Vec<String> {
    JOB_VARIABLES.iter().filter_map(|name| env::var(name).ok()).collect()
}

/// Returns whether a launcher has started this process along with others. False for a batch script,
/// although its environment holds the number of processes that its job may start.
pub fn is_one_of_many() -> bool {
    let counts = [&LOCAL_SIZE_VARIABLES[..], &SIZE_VARIABLES];
    let sizes = counts.into_iter().flatten().filter_map(|name| env::var(name).ok()?.parse().ok());
    sizes.max().is_some_and(|size: u32| size > 1)
}

/// Returns the number of ranks of the job on this node; `None` if the launcher does not say.
pub fn local_size() -> Option<u32> {
    let size = LOCAL_SIZE_VARIABLES.iter().find_map(|name| env::var(name).ok()?.parse().ok());
    size.or_else(|| {
        let node = env::var("SLURM_NODEID").ok()?.parse().ok()?;
        tasks_of_node(&env::var("SLURM_STEP_TASKS_PER_NODE").ok()?, node)
    })
}

/// Returns the number of tasks of a node from Slurm's list: `4(x2),3` stands for 4, 4 and 3.
fn tasks_of_node(list: &str, mut node: u32) -> Option<u32> {
    for entry in list.split(',') {
        let (tasks, rest) = entry.split_once("(x").unwrap_or((entry, "1)"));
        let nodes: u32 = rest.strip_suffix(')')?.parse().ok()?;
        if node < nodes {
            return tasks.parse().ok();
        }
        node -= nodes;
    }
    None
}

/// Returns a text that is equal in all processes of this job on all nodes, and different in any
/// other job that runs at the same time; `None` if nothing suitable is known.
pub fn identity() -> Option<String> {
    let batch = plimsoll_summary::report_names::batch_job_id(|name| env::var_os(name));
    identity_of(|name| env::var(name).ok(), way_back_of_launcher, batch)
}

/// The strongest of the names alone: a launcher that starts its daemons through the batch system or
/// by ssh leaves variables of the batch system on some nodes only.
fn identity_of(
    variable: impl Fn(&str) -> Option<String>,
    way_back: impl Fn() -> Vec<String>,
    batch: Option<String>,
) -> Option<String> {
    let unique = UNIQUE_NAMES.iter().find_map(|name| variable(name));
    let mut parts: Vec<String> = unique.into_iter().collect();
    if parts.is_empty() {
        parts = way_back();
    }
    if parts.is_empty() {
        parts = batch.into_iter().chain(variable("SLURM_STEP_ID")).collect();
    }
    if parts.is_empty() {
        return None;
    }
    parts.extend(["PMI_SPAWNED", "PMI_SIZE"].into_iter().filter_map(variable));
    Some(parts.join(" "))
}

/// Returns the address of the launcher, from the options of its daemon on this node; empty if that
/// has no such options.
fn way_back_of_launcher() -> Vec<String> {
    let mut ancestor = launcher();
    for _ in 0..MAX_DAEMONS {
        let Ok(arguments) = fs::read(format!("/proc/{ancestor}/cmdline")) else { break };
        let found = way_back(&arguments);
        if !found.is_empty() {
            return found;
        }
        match parent(ancestor) {
            Some(next) if next > 1 => ancestor = next,
            _ => break,
        }
    }
    Vec::new()
}

fn way_back(arguments: &[u8]) -> Vec<String> {
    let words: Vec<_> = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let pairs = words.windows(2).filter(|pair| WAY_BACK_OPTIONS.contains(&pair[0].as_ref()));
    pairs.map(|pair| pair[1].clone().into_owned()).collect()
}

/// Returns the nearest ancestor that is not itself part of a rank (such as a shell or a tool around
/// the program): one without the rank in its environment.
pub fn launcher() -> u32 {
    let ranks: Vec<(String, String)> = RANK_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
        .collect();
    let mut ancestor = parent(std::process::id()).unwrap_or(1);
    while ancestor > 1 && !ranks.is_empty() && environment_holds(ancestor, &ranks) {
        ancestor = parent(ancestor).unwrap_or(1);
    }
    ancestor
}

fn environment_holds(pid: u32, variables: &[(String, String)]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    variables.iter().all(|(name, value)| {
        let wanted = format!("{name}={value}");
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    })
}

fn parent(pid: u32) -> Option<u32> {
    ProcessStat::read(pid).map(|stat| stat.parent)
}

/// Returns whether a process is stopped, by a signal or by a debugger.
pub fn is_stopped(pid: u32) -> bool {
    ProcessStat::read(pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// Returns the start time of a process, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    ProcessStat::read(pid).map(|stat| stat.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a lookup in these variables.
    fn among(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_first_variable_that_holds_a_number_is_the_rank() {
        let rank = |set: &[(&str, &str)]| rank_in(among(set));
        for name in RANK_VARIABLES {
            assert_eq!(rank(&[("SLURM_STEP_ID", "0"), (name, "3")]), Some(3), "{name}");
        }
        assert_eq!(rank(&[("PALS_RANKID", "5"), ("PMI_RANK", "0")]), Some(0));
        assert_eq!(rank(&[("PALS_RANKID", "5"), ("PMI_RANK", ""), ("PMIX_RANK", "x")]), Some(5));
        assert_eq!(rank(&[("PMI_RANK", "-1")]), None);
        assert_eq!(rank(&[]), None);
    }

    #[test]
    fn a_program_in_a_batch_script_is_alone_and_no_rank() {
        let script = [("SLURM_JOB_ID", "4711"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64")];
        assert_eq!((rank_in(among(&script)), is_alone_in(among(&script))), (None, true));
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!((rank_in(among(&step)), is_alone_in(among(&step))), (Some(0), true));
        let many = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert!(!is_alone_in(among(&many)));
        assert!(!is_alone_in(among(&[("PMIX_RANK", "0")])), "the size is unknown");
    }

    #[test]
    fn variables_that_some_nodes_lack_do_not_tell_a_job_apart() {
        let (none, batch) = (Vec::new, || Some("4711".to_owned()));
        // Open MPI's mpirun in a batch script of Slurm: its daemons on other nodes are a step.
        let head = among(&[("PMIX_NAMESPACE", "prterun-n1-77@1"), ("SLURM_JOB_ID", "4711")]);
        let other = among(&[("PMIX_NAMESPACE", "prterun-n1-77@1"), ("SLURM_STEP_ID", "0")]);
        assert_eq!(identity_of(head, none, batch()), identity_of(other, none, None));
        // Hydra by ssh.
        let (size, proxy) = ([("PMI_SIZE", "4")], || vec!["n1:45863".to_owned()]);
        let by_ssh = identity_of(among(&size), proxy, None);
        assert_eq!(identity_of(among(&size), proxy, batch()), by_ssh);
        assert_eq!(by_ssh.as_deref(), Some("n1:45863 4"));
        let step = |id| identity_of(among(&[("SLURM_STEP_ID", id)]), none, batch());
        assert_ne!(step("0"), step("1"));
        assert_eq!(identity_of(among(&size), none, None), None, "many jobs have 4 ranks");
    }

    #[test]
    fn slurm_counts_tasks_node_by_node() {
        let tasks: Vec<_> = (0..5).map(|node| tasks_of_node("4(x2),3,16", node)).collect();
        assert_eq!(tasks, [Some(4), Some(4), Some(3), Some(16), None]);
        assert_eq!(tasks_of_node("many(x2", 0), None);
    }

    #[test]
    fn daemons_know_the_way_back() {
        let hydra = b"hydra_pmi_proxy\0--control-port\0node1:45863\0--rmk\0user\0";
        assert_eq!(way_back(hydra), ["node1:45863"]);
        let intel = b"hydra_bstrap_proxy\0--upstream-host\0node1\0--upstream-port\x0033\0";
        assert_eq!(way_back(intel), ["node1", "33"]);
        assert!(way_back(b"bash\0-c\0./app").is_empty());
    }
}
