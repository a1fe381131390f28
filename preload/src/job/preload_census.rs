//! Census: finds out, before the ranks communicate, which of them carry the library. All ranks
//! reach the same result.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use plimsoll_comm::mpi::launcher;
use plimsoll_comm::mpi::presence::{NodeGroup, TIMEOUT, Token};
use plimsoll_comm::mpi::rendezvous::{self, Mailbox, Rendezvous};
use plimsoll_report::output::shared_directory;
use plimsoll_summary::error::reason;
use plimsoll_summary::printable;

use super::Job;
use super::start::hide;
use crate::guard::{self, contained, guarded};
use crate::{environment, log};

/// Result of the census on this rank.
pub struct Census {
    /// Reason why the ranks cannot be compared; `None` if all ranks carry the library and have
    /// agreed on that.
    pub apart: Option<String>,
    /// Whether this process prints the messages of the job.
    pub speaks: bool,
    /// This node's directory for the census, which its drop removes; must be kept until all ranks
    /// have met.
    pub mailbox: Option<Mailbox>,
}

/// Maximum number of attempts to read the sockets of the node, and the pause between two attempts.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

const ALONE: &str = "so ranks are not compared: each writes a report of its own.";
const START_ALL: &str = "Start all ranks with `plimsoll run` or LD_PRELOAD.";
const SHARE: &str = "Set PLIMSOLL_OUTPUT to a directory that all nodes share";

impl Census {
    /// Takes the census, after the real MPI_Init. The token must be kept until every rank has
    /// counted; it is set to `None` if no rank shall count this one.
    pub fn take(job: &Job, token: &mut Option<Token>, rank: u32, size: u32) -> Self {
        let census = || Self { apart: None, speaks: rank == 0, mailbox: None };
        if size == 1 {
            return census();
        }
        if let Some(token) = token {
            token.left_init();
        }
        let token = RefCell::new(token);
        let count = || census().counted(job, &mut token.borrow_mut(), rank, size);
        // If counting fails, this rank still has its token, and the other ranks have counted it.
        let otherwise = || {
            let failed = || census().failed(job, &mut token.borrow_mut(), size);
            contained(failed, census)
        };
        guarded("census", count, otherwise)
    }

    fn counted(mut self, job: &Job, token: &mut Option<Token>, rank: u32, size: u32) -> Self {
        let group = token.as_ref().and_then(see);
        if group.is_none() {
            // Without a token no rank counts this one, and no rank waits for its result.
            *token = None;
        }
        let Some((token, group)) = token.as_mut().zip(group) else {
            self.apart = Some(format!("The ranks of a node cannot see each other, {ALONE}"));
            return self;
        };
        if group.size() == size {
            return self;
        }
        guard::raise("asking other nodes");
        if token.leads(&group) {
            self.lead(token, &group, job, rank, size);
        } else {
            self.follow(token, &group, job, size, TIMEOUT);
        }
        self
    }

    /// Returns the result that the other ranks reach without this rank, on which the census has
    /// failed.
    fn failed(mut self, job: &Job, token: &mut Option<Token>, size: u32) -> Self {
        let group = token.as_ref().and_then(see);
        if let Some((token, group)) = token.as_mut().zip(group)
            && group.size() != size
        {
            self.follow(token, &group, job, size, Duration::ZERO);
        }
        self
    }

    /// Receives the result from the first rank of the node.
    fn follow(
        &mut self,
        token: &mut Token,
        group: &NodeGroup,
        job: &Job,
        size: u32,
        timeout: Duration,
    ) {
        let settle = |mailbox| {
            let directory = meeting_place(job);
            let identity = launcher::identity();
            identity.is_some_and(|job| rendezvous::give_up(&directory, &job, size, mailbox))
        };
        self.speaks = false;
        self.apart = match token.listen(group, timeout, settle) {
            Some(true) => None,
            Some(false) => Some(format!(
                "Not all of {size} ranks carry Plimsoll, or their nodes do not find each other, \
                 {ALONE} {START_ALL}"
            )),
            None => Some(format!("The first rank of this node ended, {ALONE}")),
        };
    }

    /// Finds the result with the other nodes and sends it to the other ranks of this node.
    fn lead(&mut self, token: &mut Token, group: &NodeGroup, job: &Job, rank: u32, size: u32) {
        self.ask_other_nodes(token, group, job, rank, size);
        match token.tell(self.apart.is_none(), &hide) {
            Ok(true) => {}
            Ok(false) => {
                let reason = || format!("This rank was silent for too long, {ALONE}");
                self.apart.get_or_insert_with(reason);
            }
            Err(error) => {
                // The other ranks give up when they receive nothing, so this rank must not proceed
                // alone.
                log::debug(|| {
                    format!("the decision did not reach the ranks of this node: {error}")
                });
                let reason =
                    || format!("The ranks of a node cannot tell each other anything, {ALONE}");
                self.apart.get_or_insert_with(reason);
            }
        }
    }

    /// Exchanges the number of ranks with the other nodes. Called on the first rank of the node
    /// only.
    fn ask_other_nodes(
        &mut self,
        token: &mut Token,
        group: &NodeGroup,
        job: &Job,
        rank: u32,
        size: u32,
    ) {
        let present = group.size();
        if launcher::local_size() == Some(size) || present > size {
            // No other node takes part; this is the lowest rank that can print messages.
            self.speaks = true;
            self.apart = Some(short(present, size));
            return;
        }
        let Some(identity) = launcher::identity() else {
            self.apart = Some(format!(
                "Nothing that the launcher tells its ranks says on all nodes which job this is, \
                 {ALONE} Start it in a batch job, or on one node."
            ));
            return;
        };
        let expected = launcher::local_size().unwrap_or(present).max(present);
        let ours = rendezvous::GroupCount { rank, present, expected };
        let directory = meeting_place(job);
        log::debug(|| format!("{ours:?} meets others of {identity} in {}", directory.display()));
        let timeout = rendezvous::timeout(token.age());
        match rendezvous::run(&directory, &identity, ours, size, timeout, token.decision()) {
            Ok(Rendezvous { together: true, mailbox, .. }) => self.mailbox = Some(mailbox),
            Ok(call) => {
                // A rank that meets no other in a node-local directory cannot know whether rank 0,
                // on another node, prints the messages, so it prints its own. In a directory shared
                // by all nodes it stays silent.
                let first =
                    !call.lower_seen && (present < expected || !environment::is_local(&directory));
                self.speaks = rank == 0 || first;
                self.apart = Some(why_apart(&call, ours, size, &directory));
            }
            Err(error) => {
                let (place, reason) = (shown(&directory), reason(&error));
                self.apart = Some(format!(
                    "The nodes cannot find each other in {place} ({reason}), {ALONE} {SHARE}."
                ));
            }
        }
    }
}

/// Returns the directory in which the first ranks of all nodes meet.
fn meeting_place(job: &Job) -> PathBuf {
    job.directory.join(shared_directory(&job.settings.output))
}

/// Returns the ranks of this node that carry the library. Retries, since the process may have no
/// free file descriptor for a moment.
fn see(token: &Token) -> Option<NodeGroup> {
    for _ in 0..ATTEMPTS {
        match token.group() {
            Ok(group) => return Some(group),
            Err(error) => {
                log::debug(|| format!("the sockets of this node cannot be read: {error}"));
                thread::sleep(PAUSE);
            }
        }
    }
    None
}

fn short(present: u32, size: u32) -> String {
    format!("Only {present} of {size} ranks carry Plimsoll, {ALONE} {START_ALL}")
}

fn why_apart(
    call: &Rendezvous,
    ours: rendezvous::GroupCount,
    size: u32,
    directory: &Path,
) -> String {
    let place = shown(directory);
    let nobody_came = call.present == ours.present && !call.lower_seen;
    if call.present == size {
        format!("The nodes took too long to find each other in {place}, {ALONE} {SHARE}.")
    } else if ours.rank != 0 && !nobody_came {
        format!("Not all of {size} ranks carry Plimsoll, {ALONE} {START_ALL}")
    } else if nobody_came && ours.present == ours.expected {
        format!(
            "No rank of another node was found in {place}, {ALONE} {SHARE}; if they do share it, \
             start all ranks with `plimsoll run` or LD_PRELOAD."
        )
    } else {
        short(call.present, size)
    }
}

fn shown(directory: &Path) -> String {
    let whole = std::path::absolute(directory).unwrap_or_else(|_| PathBuf::from(directory));
    printable::path(&whole).to_string()
}
