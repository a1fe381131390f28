//! Finds out whether all ranks of the job carry the library, without communicating.
//!
//! A collective on a world in which one rank is not preloaded would hang the job. Each rank
//! therefore leaves a token before the real MPI_Init and looks for tokens after it. MPI_Init
//! returns on no rank before all have entered it, so all ranks that can see the same tokens find
//! the same set. A token is a bound abstract Unix socket, which disappears with its process and
//! leaves nothing behind.
//!
//! Tokens are visible on the node only. The ranks that see each other's tokens form a *node group*,
//! mostly the ranks of one node. The first rank of a node group represents it among the node groups
//! ([`super::rendezvous`]) and passes the result to the others by the name of a second socket. The
//! others wait for the result, until the token of the first rank is gone (its process has ended,
//! and with it the job), or until the first rank has been silent for too long. Giving up the first
//! rank is recorded where that rank sees it ([`super::decision`]), so that a node group never comes
//! to two different results.
//!
//! Any user of the machine can bind any name. Only sockets that the kernel attributes to this user
//! count ([`super::socket_owner`]), and nothing is sent that a full queue could hold up.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sys::own::Own;

use super::decision::{Decision, State};
use super::launcher;
use super::socket_owner::SocketOwners;

/// Maximum time that the first rank of a node group may be silent once it has left MPI_Init.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to wait for a first rank that is still in MPI_Init when others have left it, or
/// that shows only its token. That rank is a live process of this user: another user cannot make a
/// rank wait.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Minimum and maximum pause between two looks for a verdict.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of names that are tried for a socket.
const ATTEMPTS: u32 = 20;
/// List of the sockets that this process can see.
const SOCKETS: &str = "/proc/net/unix";

/// Token of this process, until dropped.
pub struct Token {
    prefix: String,
    name: String,
    /// Open socket: the name lives as long as the socket.
    _socket: Own<UnixDatagram>,
    left: Instant,
    /// Decision that counts if this process is the first of its node group; `None` if it could not
    /// be made.
    decision: Option<Decision>,
    /// Socket with the verdict for the others of the node group; `None` before the verdict.
    verdict: Option<Own<UnixDatagram>>,
}

/// Moves a descriptor out of the application's sight and returns its new number, or a negative
/// number if that is not possible.
pub type Hide<'a> = &'a dyn Fn(RawFd) -> RawFd;

impl Token {
    /// Leaves a token.
    pub fn leave(hide: Hide<'_>) -> io::Result<Self> {
        let rank = launcher::launcher_rank().map(|rank| rank.to_string()).unwrap_or_default();
        Self::leave_as(prefix(), &rank, hide)
    }

    fn leave_as(prefix: String, rank: &str, hide: Hide<'_>) -> io::Result<Self> {
        let name = format!("{prefix}{rank}-{}", std::process::id());
        let (_socket, name) = bind_free(&name, hide)?;
        let decision = Decision::make(&name).ok();
        Ok(Self { prefix, name, _socket, left: Instant::now(), decision, verdict: None })
    }

    /// Returns the age of the token: when MPI_Init returns, about the duration of MPI_Init.
    pub fn age(&self) -> Duration {
        self.left.elapsed()
    }

    /// Tells the others that this process has left MPI_Init.
    pub fn left_init(&mut self) {
        if let Some(decision) = &mut self.decision {
            // If the record cannot be written, all ranks stay apart.
            let _ = decision.left_init();
        }
    }

    /// Returns the decision in which the first rank of the node group records its progress while it
    /// asks the other nodes.
    pub fn decision(&mut self) -> Option<&mut Decision> {
        self.decision.as_mut()
    }

    /// Returns the processes of the job with a token visible to this process. The kernel lists its
    /// sockets in pieces; a socket of any program that closes meanwhile may hide another one. The
    /// list is therefore read until it yields nothing new. Sockets of other users are not counted.
    pub fn group(&self) -> io::Result<NodeGroup> {
        let owners = SocketOwners::new();
        let mut found = NodeGroup::default();
        loop {
            let size = found.size();
            let is_ours = |socket: &Socket<'_>| owners.is_ours(socket.inode, socket.process());
            found.join(group(&fs::read_to_string(SOCKETS)?, &self.prefix, is_ours));
            if found.size() == size {
                return Ok(found);
            }
        }
    }

    /// Returns whether this process is the first of the node group.
    pub fn leads(&self, group: &NodeGroup) -> bool {
        group.names.first() == Some(&self.name)
    }

    /// Tells the others, as the first rank of the node group, whether all go on together: by the
    /// name of a second socket that lives as long as the token. Nothing is sent, so no other
    /// process can hold it up. Returns the decision that holds, because the others may have given
    /// this process up.
    pub fn tell(&mut self, together: bool, hide: Hide<'_>) -> io::Result<bool> {
        let together = match &mut self.decision {
            Some(decision) => decision.decide(together),
            None => together,
        };
        self.verdict = Some(bind_free(&verdict_name(&self.name, together), hide)?.0);
        Ok(together)
    }

    /// Returns the verdict of the first rank of the node group; `None` if its process has ended or
    /// showed no decision for `MAX_WAIT`. A first rank that is silent for `timeout` is given up:
    /// then all of the node group stay apart, or follow what the first rank agreed with other
    /// nodes. `settle` finds that out by the number of the first rank's mailbox.
    pub fn listen(
        &mut self,
        group: &NodeGroup,
        timeout: Duration,
        settle: impl Fn(u64) -> bool,
    ) -> Option<bool> {
        let first = group.names.first()?;
        let process = process_of(first).unwrap_or(0);
        let own = if self.leads(group) { self.decision.take() } else { None };
        let decision = own.or_else(|| Decision::find(first, process));
        let mut silence = Silence::begin(decision, process);
        let owners = SocketOwners::new();
        let mut pause = MIN_PAUSE;
        loop {
            // One look reads both verdict and token, because they disappear together.
            if let Some(together) = verdict_of(first, |inode| owners.is_ours(inode, process)) {
                return Some(together);
            }
            if self.group().is_ok_and(|now| !now.names.contains(first)) {
                return None;
            }
            match silence.state(timeout) {
                Some(State::Decided(together)) => return Some(together),
                Some(State::Closed(mailbox)) => return Some(settle(mailbox)),
                Some(_) => {}
                None if silence.begin.elapsed() >= MAX_WAIT => return None,
                None => {}
            }
            thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

/// Time since the last sign of life of the first rank of a node group.
struct Silence {
    decision: Option<Decision>,
    process: u32,
    begin: Instant,
    /// Number of entries of the decision at the last read, and time of the last sign of life.
    entries: usize,
    last: Instant,
}

impl Silence {
    fn begin(decision: Option<Decision>, process: u32) -> Self {
        let begin = Instant::now();
        Self { decision, process, begin, entries: 0, last: begin }
    }

    /// Returns the state of the decision, or `None` if it is not visible. Gives up a process that
    /// is silent for `timeout`.
    fn state(&mut self, timeout: Duration) -> Option<State> {
        let decision = self.decision.as_mut()?;
        let (state, entries) = (decision.state(), decision.entries());
        // MPI_Init may take longer in the first rank.
        let is_starting = state == State::InInit
            && self.begin.elapsed() < MAX_WAIT
            && !launcher::is_stopped(self.process);
        if entries != self.entries || is_starting {
            (self.entries, self.last) = (entries, Instant::now());
        }
        let is_silent = self.last.elapsed() >= timeout;
        let is_undecided = matches!(state, State::InInit | State::Open | State::Asked(_));
        Some(if is_silent && is_undecided { decision.give_up() } else { state })
    }
}

/// Returns the verdict of the process with this token. The verdict must belong to this user, like
/// the token.
fn verdict_of(token: &str, is_ours: impl Fn(u32) -> bool) -> Option<bool> {
    let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
    [true, false].into_iter().find(|together| {
        let said = verdict_name(token, *together);
        let says = |socket: &Socket<'_>| {
            let rest = socket.name.strip_prefix(said.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                && is_ours(socket.inode)
        };
        sockets.lines().filter_map(Socket::parse).any(|socket| says(&socket))
    })
}

fn verdict_name(token: &str, together: bool) -> String {
    format!("{token}={}", if together { "together" } else { "apart" })
}

/// Binds a name, or, if it is taken, that name with an unpredictable number appended.
fn bind_free(name: &str, hide: Hide<'_>) -> io::Result<(Own<UnixDatagram>, String)> {
    let mut wanted = name.to_owned();
    for _ in 0..ATTEMPTS {
        match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&wanted)?) {
            Ok(socket) => {
                let hidden = hide(socket.into_raw_fd());
                if hidden < 0 {
                    return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
                }
                // SAFETY: `hide` gave us a descriptor of our own.
                let socket = unsafe { OwnedFd::from_raw_fd(hidden) };
                return Ok((Own::new(socket.into())?, wanted));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let number = RandomState::new().hash_one(Instant::now()) as u32;
                wanted = format!("{name}.{number:08x}");
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// A line of /proc/net/unix that shows an abstract name: with a leading `@`, in the last column,
/// after the inode.
struct Socket<'a> {
    inode: u32,
    name: &'a str,
}

impl<'a> Socket<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut columns = line.rsplit(' ');
        let name = columns.next()?.strip_prefix('@')?;
        Some(Self { name, inode: columns.next()?.parse().ok()? })
    }

    /// Returns the process id in the socket's name, or 0.
    fn process(&self) -> u32 {
        process_of(self.name).unwrap_or(0)
    }
}

fn process_of(name: &str) -> Option<u32> {
    name.rsplit('-').next()?.split('.').next()?.parse().ok()
}

/// Processes that see each other's tokens: the same processes in the same order in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroup {
    /// Names of the tokens, sorted by rank as far as the launcher provides it.
    names: Vec<String>,
}

impl NodeGroup {
    fn join(&mut self, other: Self) {
        let order = |name: &String| {
            let rank: Option<u32> = name.rsplit('-').nth(1).and_then(|rank| rank.parse().ok());
            // Known ranks come first.
            (rank.is_none(), rank, process_of(name), name.clone())
        };
        self.names.extend(other.names);
        self.names.sort_by_cached_key(order);
        self.names.dedup();
    }

    /// Returns the number of processes.
    pub fn size(&self) -> u32 {
        self.names.len() as u32
    }
}

/// Returns the tokens of a job among the sockets of the node.
fn group(sockets: &str, prefix: &str, is_ours: impl Fn(&Socket<'_>) -> bool) -> NodeGroup {
    let tokens = sockets.lines().filter_map(Socket::parse).filter(|socket| {
        let rest = socket.name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(_, process)| process_of(process).is_some()) && is_ours(socket)
    });
    let mut group = NodeGroup::default();
    group.join(NodeGroup { names: tokens.map(|token| token.name.to_owned()).collect() });
    group
}

/// Returns the prefix of the names of this job's tokens: its launcher on this node, the common
/// ancestor of all local ranks. Process ids are only unique in their namespace.
fn prefix() -> String {
    let launcher = launcher::launcher();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let processes: String =
        processes.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let started = launcher::start_time(launcher).unwrap_or(0);
    format!("plimsoll-{processes}-{launcher}-{started}-{}-", launcher::job_names().join("."))
}

#[cfg(test)]
mod tests;
