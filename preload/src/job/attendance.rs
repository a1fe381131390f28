//! Census: finds out, before the ranks communicate, which of them carry the library. All ranks
//! reach the same result.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use plimsoll_comm::mpi::launch;
use plimsoll_comm::mpi::presence::{Company, PATIENCE, Token};
use plimsoll_comm::mpi::roll_call::{self, Post, RollCall};
use plimsoll_report::output::shared_directory;
use plimsoll_summary::error::reason;
use plimsoll_summary::printable;

use super::Job;
use super::start::hide;
use crate::guard::{self, contained, guarded};
use crate::{say, surroundings};

/// Result of the census on this rank.
pub struct Attendance {
    /// Reason why the ranks cannot be compared; `None` if all ranks carry the library and have
    /// agreed on that.
    pub apart: Option<String>,
    /// Whether this process prints the messages of the job.
    pub speaks: bool,
    /// This node's directory for the census, which its drop removes; must be kept until all ranks
    /// have met.
    pub post: Option<Post>,
}

/// Maximum number of attempts to read the sockets of the node, and the pause between two attempts.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

const ALONE: &str = "so ranks are not compared: each writes a report of its own.";
const START_ALL: &str = "Start all ranks with `plimsoll run` or LD_PRELOAD.";
const SHARE: &str = "Set PLIMSOLL_OUTPUT to a directory that all nodes share";

impl Attendance {
    /// Takes the census, after the real MPI_Init. The token must be kept until every rank has
    /// counted; it is set to `None` if no rank shall count this one.
    pub fn take(job: &Job, token: &mut Option<Token>, rank: u32, size: u32) -> Self {
        let attendance = || Self { apart: None, speaks: rank == 0, post: None };
        if size == 1 {
            return attendance();
        }
        if let Some(token) = token {
            token.left_init();
        }
        let token = RefCell::new(token);
        let count = || attendance().counted(job, &mut token.borrow_mut(), rank, size);
        // If counting fails, this rank still has its token, and the other ranks have counted it.
        let otherwise = || {
            let failed = || attendance().failed(job, &mut token.borrow_mut(), size);
            contained(failed, attendance)
        };
        guarded("attendance", count, otherwise)
    }

    fn counted(mut self, job: &Job, token: &mut Option<Token>, rank: u32, size: u32) -> Self {
        let company = token.as_ref().and_then(see);
        if company.is_none() {
            // Without a token no rank counts this one, and no rank waits for its result.
            *token = None;
        }
        let Some((token, company)) = token.as_mut().zip(company) else {
            self.apart = Some(format!("The ranks of a node cannot see each other, {ALONE}"));
            return self;
        };
        if company.size() == size {
            return self;
        }
        guard::raise("asking other nodes");
        if token.leads(&company) {
            self.lead(token, &company, job, rank, size);
        } else {
            self.follow(token, &company, job, size, PATIENCE);
        }
        self
    }

    /// Returns the result that the other ranks reach without this rank, on which the census has
    /// failed.
    fn failed(mut self, job: &Job, token: &mut Option<Token>, size: u32) -> Self {
        let company = token.as_ref().and_then(see);
        if let Some((token, company)) = token.as_mut().zip(company)
            && company.size() != size
        {
            self.follow(token, &company, job, size, Duration::ZERO);
        }
        self
    }

    /// Receives the result from the first rank of the node.
    fn follow(
        &mut self,
        token: &mut Token,
        company: &Company,
        job: &Job,
        size: u32,
        patience: Duration,
    ) {
        let settle = |post| {
            let directory = meeting_place(job);
            let identity = launch::identity();
            identity.is_some_and(|job| roll_call::give_up(&directory, &job, size, post))
        };
        self.speaks = false;
        self.apart = match token.listen(company, patience, settle) {
            Some(true) => None,
            Some(false) => Some(format!(
                "Not all of {size} ranks carry Plimsoll, or their nodes do not find each other, \
                 {ALONE} {START_ALL}"
            )),
            None => Some(format!("The first rank of this node ended, {ALONE}")),
        };
    }

    /// Finds the result with the other nodes and sends it to the other ranks of this node.
    fn lead(&mut self, token: &mut Token, company: &Company, job: &Job, rank: u32, size: u32) {
        self.ask_other_nodes(token, company, job, rank, size);
        match token.tell(self.apart.is_none(), &hide) {
            Ok(true) => {}
            Ok(false) => {
                let reason = || format!("This rank was silent for too long, {ALONE}");
                self.apart.get_or_insert_with(reason);
            }
            Err(error) => {
                // The other ranks give up when they receive nothing, so this rank must not proceed
                // alone.
                say::debug(|| format!("nothing could be told to the ranks of this node: {error}"));
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
        company: &Company,
        job: &Job,
        rank: u32,
        size: u32,
    ) {
        let present = company.size();
        if launch::local_size() == Some(size) || present > size {
            // No other node takes part; this is the lowest rank that can print messages.
            self.speaks = true;
            self.apart = Some(short(present, size));
            return;
        }
        let Some(identity) = launch::identity() else {
            self.apart = Some(format!(
                "Nothing that the launcher tells its ranks says on all nodes which job this is, \
                 {ALONE} Start it in a batch job, or on one node."
            ));
            return;
        };
        let expected = launch::local_size().unwrap_or(present).max(present);
        let ours = roll_call::Company { rank, present, expected };
        let directory = meeting_place(job);
        say::debug(|| format!("{ours:?} meets others of {identity} in {}", directory.display()));
        let patience = roll_call::patience(token.age());
        match roll_call::hold(&directory, &identity, ours, size, patience, token.decision()) {
            Ok(RollCall { together: true, post, .. }) => self.post = Some(post),
            Ok(call) => {
                // A rank that meets no other in a node-local directory cannot know whether rank 0,
                // on another node, prints the messages, so it prints its own. In a directory shared
                // by all nodes it stays silent.
                let first =
                    !call.lower_seen && (present < expected || !surroundings::is_local(&directory));
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
fn see(token: &Token) -> Option<Company> {
    for _ in 0..ATTEMPTS {
        match token.company() {
            Ok(company) => return Some(company),
            Err(error) => {
                say::debug(|| format!("the sockets of this node cannot be read: {error}"));
                thread::sleep(PAUSE);
            }
        }
    }
    None
}

fn short(present: u32, size: u32) -> String {
    format!("Only {present} of {size} ranks carry Plimsoll, {ALONE} {START_ALL}")
}

fn why_apart(call: &RollCall, ours: roll_call::Company, size: u32, directory: &Path) -> String {
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
