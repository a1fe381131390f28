//! Finds out whether all ranks of a job on several nodes carry the library, in a directory that all
//! nodes share and without communicating.
//!
//! The ranks that see each other's tokens ([`super::presence`]) form a node group; the first rank
//! of each node group takes part here, after the real MPI_Init has returned:
//!
//! 1. Each node group makes a directory of its own, its *mailbox*. The name of the mailbox holds
//!    the job and a number that was never used before.
//! 2. The node group of rank 0 runs the rendezvous in its mailbox. Each node group that finds this
//!    mailbox makes a file in it, the *answer*: its first rank, its number of ranks, and the
//!    expected number of ranks on its node.
//! 3. The caller makes a symbolic link `verdict` in the mailbox when all ranks of the job have
//!    answered, when all are accounted for and some lack the library, or when its timeout is over.
//!    A node group that has answered and has reached its timeout also makes the link, with the
//!    target `apart`.
//! 4. Only one link of a name can exist, and its target comes into being with it. The first verdict
//!    therefore holds for all node groups, no matter which one made it, and no rank enters a
//!    collective that another one has given up. This works on every file system that makes symbolic
//!    links as POSIX demands, including NFS; without symbolic links no node group can say
//!    `together`.
//!
//! Possible failures and their consequences:
//! - A rank lacks the library: the answer of its node group is short or never comes. The verdict is
//!   `apart`.
//! - The directory is not shared, is not writable, or is slower than the timeout: the verdict is
//!   `apart`.
//! - A node's cache shows an old directory: each look changes the directory first, which makes NFS
//!   fetch it anew; and making the link asks the server.
//! - An earlier run of this job was killed shortly before, and its mailboxes still exist: its
//!   numbers cannot be in our mailbox, so it is not counted. An answer to its call gets no verdict,
//!   and a verdict that existed before our answer is ignored. Mailboxes that are much older than
//!   ours are skipped, and rank 0 removes them.
//! - Another user of a directory that others may write makes mailboxes, too: they are skipped, and
//!   no other user can write in ours.
//! - Making the link reports an error although the link exists, and reading it fails too: this rank
//!   stays apart while the others wait for it. This takes a file server that breaks down between
//!   two calls.
//!
//! Each node group removes its own mailbox: nothing remains unless the job is killed in these
//! moments.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::decision::Decision;
use crate::fingerprint::fingerprint;

/// Maximum and minimum time that ranks wait for each other.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time that rank 0 waits once all ranks are accounted for and some are missing. Missing
/// ranks lack the library, unless the ranks of a node form several node groups, as in containers.
const STRAGGLING: Duration = Duration::from_secs(1);

/// Age difference (relative to our mailbox) above which a mailbox belongs to another run: MPI_Init
/// returns to all ranks together.
const MAX_AGE: Duration = Duration::from_secs(120);
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of attempts to read an existing verdict, or to remove a mailbox that another node
/// group is answering.
const ATTEMPTS: u32 = 20;

const VERDICT: &str = "verdict";
const TOGETHER: &str = "together";
const APART: &str = "apart";

/// A node group, as represented by its first rank.
#[derive(Clone, Copy, Debug)]
pub struct GroupCount {
    /// Lowest world rank in the node group.
    pub rank: u32,
    /// Number of ranks in the node group.
    pub present: u32,
    /// Number of ranks of the node; equal to `present` if unknown.
    pub expected: u32,
}

/// Result of a rendezvous.
#[derive(Debug)]
pub struct Rendezvous {
    /// Whether all ranks carry the library and all of them know it.
    pub together: bool,
    /// Number of ranks known to carry the library: on rank 0 all that answered, elsewhere the own
    /// node group.
    pub present: u32,
    /// Whether a node group of lower ranks was seen, which can speak for the job.
    pub lower_seen: bool,
    /// Mailbox of this node group. Must be kept until all ranks know the verdict, that is, until
    /// they have met in a collective.
    pub mailbox: Mailbox,
}

/// A node group's directory for the time of the rendezvous; removed on drop.
#[derive(Debug)]
pub struct Mailbox {
    path: PathBuf,
    number: u64,
}

/// Returns how long ranks wait for each other. All ranks leave MPI_Init at about the same time; the
/// spread grows with the duration of MPI_Init.
pub fn timeout(init: Duration) -> Duration {
    (MIN_TIMEOUT + init).min(MAX_TIMEOUT)
}

/// Runs the rendezvous of a job of `size` ranks, together with the first ranks of all other
/// node groups, in a directory that all nodes share. `job` must be the same on all nodes, and
/// different for jobs that run at the same time. Waits at most `timeout` for others, and stops
/// waiting once the ranks of the own node group have given this rank up.
pub fn run(
    directory: &Path,
    job: &str,
    group: GroupCount,
    size: u32,
    timeout: Duration,
    decision: Option<&mut Decision>,
) -> io::Result<Rendezvous> {
    fs::create_dir_all(directory)?;
    let prefix = prefix(job, size);
    let mailbox = Mailbox::make(directory, &prefix, group.rank)?;
    let mut pauses = Pauses::until(Instant::now() + timeout, decision);
    if !pauses.ask(mailbox.number) {
        let present = group.present;
        return Ok(Rendezvous { together: false, present, lower_seen: false, mailbox });
    }
    if group.rank == 0 {
        let present = call(&mailbox, group, size, pauses)?;
        let wanted = if present == size { TOGETHER } else { APART };
        let together = settle(&mailbox.path, mailbox.number, wanted) == TOGETHER;
        remove_old_mailboxes(directory, &prefix, &mailbox);
        Ok(Rendezvous { together, present, lower_seen: false, mailbox })
    } else {
        let (calls, lower_seen) = (BTreeMap::new(), false);
        let mut answers = Answers { directory, prefix: &prefix, mailbox, group, calls, lower_seen };
        let together = answers.wait(pauses);
        let Answers { mailbox, lower_seen, .. } = answers;
        Ok(Rendezvous { together, present: group.present, lower_seen, mailbox })
    }
}

/// Ends the rendezvous for a node group after its first rank was given up; `mailbox` is the number
/// of that rank's mailbox. Returns whether the verdict was already `together`; the first rank reads
/// the same verdict.
///
/// Every call that the first rank can have answered so far gets a verdict here. The first rank
/// answers no other call.
pub fn give_up(directory: &Path, job: &str, size: u32, mailbox: u64) -> bool {
    let (prefix, look_number) = (prefix(job, size), new_number());
    let mailbox = format!("-{mailbox:016x}");
    let mut together = false;
    for name in look(directory, look_number).unwrap_or_default() {
        let call = directory.join(&name);
        if rank_of(&name, &prefix) != Some(0) || !is_own(&call) {
            continue;
        }
        let verdict = settle(&call, look_number, APART);
        let is_its_own = || name.ends_with(&mailbox);
        let is_answer = |name: &String| name.starts_with("here-") && name.ends_with(&mailbox);
        let is_answered =
            || look(&call, look_number).is_ok_and(|names| names.iter().any(is_answer));
        together |= verdict == TOGETHER && (is_its_own() || is_answered());
    }
    together
}

/// Waits for answers on rank 0. Returns the number of ranks that are present.
fn call(mailbox: &Mailbox, ours: GroupCount, size: u32, mut pauses: Pauses<'_>) -> io::Result<u32> {
    let mut accounted_for = false;
    loop {
        let names = look(&mailbox.path, mailbox.number)?;
        let answers = names.iter().filter_map(|name| GroupCount::from_name(name));
        let (mut present, mut expected) = (ours.present, ours.expected);
        for answer in answers {
            present += answer.present;
            expected += answer.expected;
        }
        if expected >= size && !accounted_for {
            accounted_for = true;
            pauses.end_within(STRAGGLING);
        }
        let is_settled = names.iter().any(|name| name == VERDICT);
        if present == size || is_settled || !pauses.pause() {
            return Ok(present);
        }
    }
}

/// State of a node group that does not run the rendezvous.
struct Answers<'a> {
    directory: &'a Path,
    prefix: &'a str,
    mailbox: Mailbox,
    group: GroupCount,
    /// Calls found so far, and whether this node group answered each.
    calls: BTreeMap<PathBuf, bool>,
    lower_seen: bool,
}

impl Answers<'_> {
    /// Answers every call and waits for a verdict. After the first answer only a verdict ends the
    /// wait, because the others may count on this node group.
    fn wait(&mut self, mut pauses: Pauses<'_>) -> bool {
        loop {
            self.find_calls();
            for call in self.answered() {
                match look(&call, self.mailbox.number) {
                    Ok(names) if names.iter().any(|name| name == VERDICT) => {
                        return self.settle(&call);
                    }
                    // Rank 0 removes its mailbox at once if the verdict is `apart`; if it is
                    // `together`, only after this rank has met it in a collective.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
                    _ => {}
                }
            }
            if !pauses.pause() {
                break;
            }
        }
        // `any` would leave the calls after the first `together` without a verdict.
        let verdicts: Vec<bool> = self.answered().iter().map(|call| self.settle(call)).collect();
        verdicts.contains(&true)
    }

    fn settle(&self, call: &Path) -> bool {
        settle(call, self.mailbox.number, APART) == TOGETHER
    }

    fn answered(&self) -> Vec<PathBuf> {
        let answered = self.calls.iter().filter(|(_, is_answered)| **is_answered);
        answered.map(|(path, _)| path.clone()).collect()
    }

    fn find_calls(&mut self) {
        for name in look(self.directory, self.mailbox.number).unwrap_or_default() {
            let Some(rank) = rank_of(&name, self.prefix) else { continue };
            let path = self.directory.join(&name);
            let is_known = self.calls.contains_key(&path);
            let is_foreign = !is_own(&path);
            let is_old = self.mailbox.is_younger_by_far(&path);
            if rank >= self.group.rank || is_known || is_foreign || is_old {
                continue;
            }
            self.lower_seen = true;
            if rank == 0 {
                // A call that already has a verdict was not meant for this node group.
                let names = look(&path, self.mailbox.number);
                let is_open = names.is_ok_and(|names| names.iter().all(|name| name != VERDICT));
                let answer = path.join(self.group.name(self.mailbox.number));
                // The file may exist even if making it failed, and others may count on this node
                // group then.
                let is_answered = is_open && {
                    let made = File::create_new(&answer);
                    made.is_ok() || answer.exists()
                };
                self.calls.insert(path, is_answered);
            }
        }
    }
}

impl GroupCount {
    fn name(&self, number: u64) -> String {
        format!("here-{}-{}-{}-{number:016x}", self.rank, self.present, self.expected)
    }

    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("here-")?.split('-').map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        Some(Self { rank: next()?, present: next()?, expected: next()? })
    }
}

impl Mailbox {
    fn make(directory: &Path, prefix: &str, rank: u32) -> io::Result<Self> {
        let number = new_number();
        let path = directory.join(format!("{prefix}{rank}-{number:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, number })
    }

    /// Returns whether the other mailbox is older by more than [`MAX_AGE`]. Both times are the file
    /// server's.
    fn is_younger_by_far(&self, than: &Path) -> bool {
        let made = |path: &Path| fs::metadata(path).and_then(|mailbox| mailbox.modified());
        match (made(&self.path), made(than)) {
            (Ok(ours), Ok(theirs)) => ours.duration_since(theirs).is_ok_and(|age| age > MAX_AGE),
            _ => false,
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // Another node group may be answering at this moment.
        let removed = |_| fs::remove_dir_all(&self.path).is_ok() || !self.path.exists();
        let _ = (0..ATTEMPTS).any(removed);
    }
}

/// Returns a number that was never used before.
fn new_number() -> u64 {
    // The kernel seeds the hash; if that should fail, the clock makes the difference.
    RandomState::new().hash_one(SystemTime::now())
}

/// Returns the prefix of the names of all mailboxes of a job.
fn prefix(job: &str, size: u32) -> String {
    format!(".plimsoll-{:016x}-{size}-", fingerprint(job))
}

/// Returns the rank in the name of a mailbox of this job.
fn rank_of(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split('-').next()?.parse().ok()
}

/// Returns whether this user made a mailbox and no other user can change it.
fn is_own(mailbox: &Path) -> bool {
    // SAFETY: no preconditions.
    let us = unsafe { libc::geteuid() };
    let is_own = |mailbox: fs::Metadata| {
        mailbox.is_dir() && mailbox.uid() == us && mailbox.mode() & 0o022 == 0
    };
    mailbox.symlink_metadata().is_ok_and(is_own)
}

/// Makes the verdict, or returns the one made before.
fn settle(call: &Path, number: u64, wanted: &'static str) -> &'static str {
    let link = call.join(VERDICT);
    if !is_own(call) {
        return APART;
    }
    if symlink(wanted, &link).is_ok() {
        return wanted;
    }
    for _ in 0..ATTEMPTS {
        match fs::read_link(&link) {
            Ok(verdict) if verdict == Path::new(TOGETHER) => return TOGETHER,
            Ok(_) => return APART,
            Err(_) if !call.exists() => return APART,
            Err(_) => thread::sleep(MIN_PAUSE),
        }
        // Called only for its effect on the node's cache.
        let _ = look(call, number);
    }
    APART
}

/// Returns the names in a directory, not as a cache remembers them: the node reads a directory anew
/// after changing it. If the directory cannot be changed, returns the cached names.
fn look(directory: &Path, number: u64) -> io::Result<Vec<String>> {
    let change = directory.join(format!(".plimsoll-look-{number:016x}"));
    let _ = fs::create_dir(&change).and_then(|()| fs::remove_dir(&change));
    list(directory)
}

fn list(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn remove_old_mailboxes(directory: &Path, prefix: &str, ours: &Mailbox) {
    for name in list(directory).unwrap_or_default() {
        let path = directory.join(&name);
        if rank_of(&name, prefix).is_some() && is_own(&path) && ours.is_younger_by_far(&path) {
            // An old mailbox belongs to another run: this run does not depend on its removal.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Pauses with exponential backoff until a deadline, or until this rank is given up.
struct Pauses<'a> {
    deadline: Instant,
    next: Duration,
    decision: Option<&'a mut Decision>,
}

impl<'a> Pauses<'a> {
    fn until(deadline: Instant, decision: Option<&'a mut Decision>) -> Self {
        Self { deadline, next: MIN_PAUSE, decision }
    }

    /// Records that other node groups are about to count on this rank; returns false if they must
    /// not.
    fn ask(&mut self, mailbox: u64) -> bool {
        self.decision.as_mut().is_none_or(|decision| decision.ask(mailbox))
    }

    /// Moves the deadline forward.
    fn end_within(&mut self, rest: Duration) {
        self.deadline = self.deadline.min(Instant::now() + rest);
    }

    /// Pauses; returns false if the deadline has passed or if this rank is given up.
    fn pause(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        thread::sleep(self.next);
        self.next = (self.next * 2).min(MAX_PAUSE);
        self.decision.as_mut().is_none_or(|decision| decision.goes_on())
    }
}

#[cfg(test)]
mod tests;
