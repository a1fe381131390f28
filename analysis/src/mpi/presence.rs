//! Do all ranks of the job carry the library? Found out without communicating.
//!
//! A collective on a world in which one rank is not preloaded would hang the job. So each rank
//! leaves a token before the real MPI_Init and counts the tokens after it: MPI_Init returns on no
//! rank before all have entered it. A token is a bound abstract Unix socket, which disappears with
//! its process and leaves nothing behind.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variables by which launchers tell a process its rank.
const RANK_VARIABLES: [&str; 4] = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Variables that tell jobs under one launcher apart.
const JOB_VARIABLES: [&str; 3] = ["PMIX_NAMESPACE", "PMI_JOBID", "SLURM_STEP_ID"];

/// A token of this process, until it is dropped.
pub struct Token {
    prefix: String,
    /// Held open: the name lives as long as the socket.
    _socket: OwnedFd,
}

/// Moves a descriptor out of the application's sight and returns its new number, or a negative one
/// where that is not possible.
pub type Hide<'a> = &'a dyn Fn(RawFd) -> RawFd;

impl Token {
    /// Leaves a token.
    pub fn leave(hide: Hide<'_>) -> io::Result<Self> {
        let prefix = prefix();
        let rank =
            RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        let name = format!("{prefix}{rank}-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        let hidden = hide(socket.into_raw_fd());
        if hidden < 0 {
            return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
        }
        // SAFETY: `hide` gave us a descriptor of our own.
        Ok(Self { prefix, _socket: unsafe { OwnedFd::from_raw_fd(hidden) } })
    }

    /// Who of the job has left one on this node.
    pub fn count(&self) -> io::Result<Present> {
        Ok(present(&fs::read_to_string("/proc/net/unix")?, &self.prefix))
    }
}

/// The processes that have left a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Their number.
    pub processes: u32,
    /// Lowest rank among them, as far as their launcher told them.
    pub lowest_rank: Option<u32>,
}

/// Abstract names are shown with a leading `@`, in the last column.
fn present(sockets: &str, prefix: &str) -> Present {
    let ours = |line: &'_ str| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        name.strip_prefix(prefix)
            .map(|rest| rest.split('-').next().and_then(|rank| rank.parse().ok()))
    };
    let ranks: Vec<Option<u32>> = sockets.lines().filter_map(ours).collect();
    Present { processes: ranks.len() as u32, lowest_rank: ranks.into_iter().flatten().min() }
}

/// Begin of the names of the tokens of this job: its launcher on this node, which all local ranks
/// descend from.
fn prefix() -> String {
    let launcher = launcher(std::process::id());
    let job: Vec<String> =
        JOB_VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).collect();
    format!("plimsoll-{}-{}-{}-", launcher, start_time(launcher).unwrap_or(0), job.join("."))
}

/// The nearest ancestor that is not itself part of a rank (a shell or a tool around the program):
/// one whose environment does not hold the rank.
fn launcher(pid: u32) -> u32 {
    let ranks: Vec<(String, String)> = RANK_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect();
    let mut ancestor = parent(pid).unwrap_or(1);
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

/// Fields of /proc/pid/stat after the name, which may itself hold anything.
fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(field)?.parse().ok()
}

fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, 1).and_then(|pid| u32::try_from(pid).ok())
}

fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_counted_until_it_is_dropped() {
        let token = Token::leave(&|socket| socket).expect("abstract sockets exist on Linux");
        assert_eq!(token.count().expect("/proc is mounted").processes, 1);
        let prefix = token.prefix.clone();
        drop(token);
        let sockets = fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
        assert_eq!(present(&sockets, &prefix), Present::default());
    }

    #[test]
    fn only_tokens_of_the_same_job_count() {
        let sockets = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00000000 0002 01 1 @plimsoll-7-9--3-100\n\
            0000: 00000002 00000000 00000000 0002 01 2 @plimsoll-7-9--2-101\n\
            0000: 00000002 00000000 00000000 0002 01 3 @plimsoll-71-9--0-102\n\
            0000: 00000002 00000000 00000000 0002 01 4 /run/plimsoll-7-9--103\n\
            0000: 00000002 00000000 00000000 0002 01 5\n";
        let found = present(sockets, "plimsoll-7-9--");
        assert_eq!(found, Present { processes: 2, lowest_rank: Some(2) });
    }
}
