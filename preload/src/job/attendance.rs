//! Who of the job's ranks carries the library: decided alike in all of them, before they communicate.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use plimsoll_analysis::mpi::launch;
use plimsoll_analysis::mpi::presence::{Company, Token};
use plimsoll_analysis::mpi::roll_call::{self, PATIENCE, Post, RollCall};
use plimsoll_analysis::output::shared_directory;

use super::Job;
use crate::{say, surroundings};

/// What this rank knows about the others.
pub struct Attendance {
    /// Why ranks cannot be compared; `None` if all of them carry the library and know that.
    pub apart: Option<String>,
    /// This process speaks for the job.
    pub speaks: bool,
    /// Keeps this rank's token until every rank has counted.
    pub token: Option<Token>,
    /// To be kept until all ranks have met.
    pub post: Option<Post>,
}

/// Attempts to read the sockets of the node, and the pause between them.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// What a rank is told that may go on with the others.
const TOGETHER: &str = "";
const ALONE: &str = "so ranks are not compared: each writes a report of its own.";
const START_ALL: &str = "Start all ranks with `plimsoll run` or LD_PRELOAD.";
const SHARE: &str = "Set PLIMSOLL_OUTPUT to a directory that all nodes share";

impl Attendance {
    /// Takes attendance, after the real MPI_Init.
    pub fn take(job: &Job, token: Option<Token>, rank: u32, size: u32) -> Self {
        let mut attendance = Self { apart: None, speaks: rank == 0, token: None, post: None };
        if size == 1 {
            return attendance;
        }
        let Some((token, company)) = token.and_then(see) else {
            // Without a token nobody counts this rank, and nobody waits to be told by it.
            attendance.apart = Some(format!("The ranks of a node cannot see each other, {ALONE}"));
            return attendance;
        };
        if company.size() != size {
            attendance.take_among(&token, &company, job, rank, size);
        }
        attendance.token = Some(token);
        attendance
    }

    fn take_among(&mut self, token: &Token, company: &Company, job: &Job, rank: u32, size: u32) {
        if !token.leads(company) {
            self.speaks = false;
            let told = token.listen(company);
            let told =
                told.unwrap_or_else(|| format!("The first rank of this node ended, {ALONE}"));
            self.apart = (told != TOGETHER).then_some(told);
            return;
        }
        self.ask_other_nodes(company, job, rank, size);
        token.tell(company, self.apart.as_deref().unwrap_or(TOGETHER));
    }

    /// The company's first rank asks the other nodes.
    fn ask_other_nodes(&mut self, company: &Company, job: &Job, rank: u32, size: u32) {
        let present = company.size();
        if launch::local_size() == Some(size) || present > size {
            // No other node; this is the lowest rank that can speak.
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
        let directory = shared_directory(&job.settings.output);
        say::debug(|| format!("{ours:?} meets others of {identity} in {}", directory.display()));
        match roll_call::hold(&directory, &identity, ours, size, PATIENCE) {
            Ok(RollCall { together: true, post, .. }) => self.post = Some(post),
            Ok(call) => {
                // Who meets nobody in a directory of its node cannot know whether rank 0 speaks,
                // elsewhere; in one that all nodes have, it does not.
                let first =
                    !call.lower_seen && (present < expected || !surroundings::is_local(&directory));
                self.speaks = rank == 0 || first;
                self.apart = Some(why_apart(&call, ours, size, &directory));
            }
            Err(error) => {
                let place = shown(&directory);
                self.apart = Some(format!(
                    "The nodes cannot find each other in {place} ({error}), {ALONE} {SHARE}."
                ));
            }
        }
    }
}

/// Whom this rank sees. The last of its file descriptors may be taken for a moment.
fn see(token: Token) -> Option<(Token, Company)> {
    for _ in 0..ATTEMPTS {
        match token.company() {
            Ok(company) => return Some((token, company)),
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
    whole.display().to_string()
}
