//! Do all ranks of a job on several nodes carry the library? Found out in a directory that all
//! nodes share, without communicating.
//!
//! The ranks that see each other's tokens ([`super::presence`]) are a company; the first rank of
//! each takes part here, when the real MPI_Init has returned:
//!
//! 1. Each makes a directory of its own, its *post*, whose name holds the job and a number that
//!    nobody has used before.
//! 2. The company of rank 0 holds the roll call in its post. Whoever finds that post makes a file in
//!    it: which rank, how many ranks are with it, how many there should be on its node.
//! 3. When all ranks of the job have answered, or all are accounted for and some lack the library,
//!    or patience is over, the caller makes a symbolic link `verdict` in the post. Whoever answered
//!    and has lost patience makes it too, and says `apart`.
//! 4. There can be only one link of a name, and its target comes into being with it. So the first
//!    verdict is everyone's, whoever tried to make it: no rank enters a collective that another one
//!    has given up. That holds on every file system that makes symbolic links as POSIX demands,
//!    NFS among them; where there are none, nobody can say `together`.
//!
//! What can go wrong, and what then happens:
//! - A rank lacks the library: its company's answer is short, or never comes. The verdict is `apart`.
//! - The directory is not shared, cannot be written, or is slower than our patience: the same.
//! - A node's cache shows an old directory: each look changes the directory first, which makes NFS
//!   fetch it anew; and making the link asks the server.
//! - An earlier run of this job was killed meanwhile, and its posts are still there: its numbers
//!   cannot be in our post, so that it is not counted. An answer to its call gets no verdict, and one
//!   that was there before the answer is none to us. Posts that are much older than ours are
//!   passed over, and removed by rank 0.
//! - Another user of a directory that others may write makes posts, too: they are passed over, and
//!   nobody else can write in ours.
//! - The link is made but the making of it fails, and reading it fails too: this rank stays apart
//!   while the others wait for it. It takes a file server that breaks down between two calls.
//!
//! Each removes its own post: nothing stays after a job that was not killed in these moments.

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

/// How long ranks wait for each other at most, and at least.
const MAX_PATIENCE: Duration = Duration::from_secs(5);
const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// How long rank 0 waits when all ranks are accounted for but some are missing. They lack the library,
/// unless a node's ranks are companies of their own, as in containers.
const STRAGGLING: Duration = Duration::from_secs(1);

/// Posts older than ours by more are not of this run: MPI_Init returns to all ranks together.
const MAX_AGE: Duration = Duration::from_secs(120);
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Attempts to read a verdict that is there, or to remove a post into which somebody answers.
const ATTEMPTS: u32 = 20;

const VERDICT: &str = "verdict";
const TOGETHER: &str = "together";
const APART: &str = "apart";

/// A company, as its first rank speaks for it.
#[derive(Clone, Copy, Debug)]
pub struct Company {
    /// Lowest rank in it, in the world.
    pub rank: u32,
    /// Its number of ranks.
    pub present: u32,
    /// How many there should be: the ranks of the node. As many as present if that is not known.
    pub expected: u32,
}

/// What came of a roll call.
#[derive(Debug)]
pub struct RollCall {
    /// All ranks carry the library, and all know that.
    pub together: bool,
    /// Ranks that are known to carry it: all that answered, if this is rank 0.
    pub present: u32,
    /// A company of lower ranks was there, which can speak for the job.
    pub lower_seen: bool,
    /// To be kept until all ranks know the verdict, which is so when they have met in a collective.
    pub post: Post,
}

/// A company's directory for the time of the roll call; removed when dropped.
#[derive(Debug)]
pub struct Post {
    path: PathBuf,
    number: u64,
}

/// How long ranks wait for each other. MPI_Init lets all of them go at about the same time; the longer it
/// took, the farther apart.
pub fn patience(init: Duration) -> Duration {
    (MIN_PATIENCE + init).min(MAX_PATIENCE)
}

/// Holds the roll call of a job of `size` ranks, together with the first ranks of all other
/// companies, in a directory that all nodes share. `job`: the same on all nodes, and different for
/// different jobs that run at the same time. Never waits longer than `patience` for others, and not
/// at all once the ranks of the own company have given this one up.
pub fn hold(
    directory: &Path,
    job: &str,
    company: Company,
    size: u32,
    patience: Duration,
    decision: Option<&mut Decision>,
) -> io::Result<RollCall> {
    fs::create_dir_all(directory)?;
    let prefix = prefix(job, size);
    let post = Post::make(directory, &prefix, company.rank)?;
    let mut pauses = Pauses::until(Instant::now() + patience, decision);
    if !pauses.ask(post.number) {
        let present = company.present;
        return Ok(RollCall { together: false, present, lower_seen: false, post });
    }
    if company.rank == 0 {
        let present = call(&post, company, size, pauses)?;
        let wanted = if present == size { TOGETHER } else { APART };
        let together = settle(&post.path, post.number, wanted) == TOGETHER;
        remove_old_posts(directory, &prefix, &post);
        Ok(RollCall { together, present, lower_seen: false, post })
    } else {
        let (calls, lower_seen) = (BTreeMap::new(), false);
        let mut answers = Answers { directory, prefix: &prefix, post, company, calls, lower_seen };
        let together = answers.wait(pauses);
        let Answers { post, lower_seen, .. } = answers;
        Ok(RollCall { together, present: company.present, lower_seen, post })
    }
}

/// Ends the roll call for a company whose first rank is given up, and has the post with this number.
/// Returns whether the verdict was `together` before; the first rank comes to the same.
///
/// Every call that it can have answered by now gets its verdict here. It answers no other one.
pub fn give_up(directory: &Path, job: &str, size: u32, post: u64) -> bool {
    let (prefix, look_number) = (prefix(job, size), new_number());
    let post = format!("-{post:016x}");
    let mut together = false;
    for name in look(directory, look_number).unwrap_or_default() {
        let call = directory.join(&name);
        if rank_of(&name, &prefix) != Some(0) || !is_own(&call) {
            continue;
        }
        let verdict = settle(&call, look_number, APART);
        let is_its_own = || name.ends_with(&post);
        let is_answer = |name: &String| name.starts_with("here-") && name.ends_with(&post);
        let is_answered =
            || look(&call, look_number).is_ok_and(|names| names.iter().any(is_answer));
        together |= verdict == TOGETHER && (is_its_own() || is_answered());
    }
    together
}

/// Rank 0 waits for answers. Returns the number of ranks that are present.
fn call(post: &Post, ours: Company, size: u32, mut pauses: Pauses<'_>) -> io::Result<u32> {
    let mut accounted_for = false;
    loop {
        let names = look(&post.path, post.number)?;
        let answers = names.iter().filter_map(|name| Company::from_name(name));
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

/// What a company that does not hold the roll call knows.
struct Answers<'a> {
    directory: &'a Path,
    prefix: &'a str,
    post: Post,
    company: Company,
    /// The calls that were found, and whether we answered.
    calls: BTreeMap<PathBuf, bool>,
    lower_seen: bool,
}

impl Answers<'_> {
    /// Answers every call and waits for a verdict. From the first answer on nothing but a verdict
    /// leads out of here, for the others may count on us.
    fn wait(&mut self, mut pauses: Pauses<'_>) -> bool {
        loop {
            self.find_calls();
            for call in self.answered() {
                match look(&call, self.post.number) {
                    Ok(names) if names.iter().any(|name| name == VERDICT) => {
                        return self.settle(&call);
                    }
                    // Rank 0 removes its post at once when the verdict is `apart`; when it is
                    // `together`, not before we have met it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
                    _ => {}
                }
            }
            if !pauses.pause() {
                break;
            }
        }
        // Not `any`, which would leave the calls after the first one open.
        let verdicts: Vec<bool> = self.answered().iter().map(|call| self.settle(call)).collect();
        verdicts.contains(&true)
    }

    fn settle(&self, call: &Path) -> bool {
        settle(call, self.post.number, APART) == TOGETHER
    }

    fn answered(&self) -> Vec<PathBuf> {
        let answered = self.calls.iter().filter(|(_, is_answered)| **is_answered);
        answered.map(|(path, _)| path.clone()).collect()
    }

    fn find_calls(&mut self) {
        for name in look(self.directory, self.post.number).unwrap_or_default() {
            let Some(rank) = rank_of(&name, self.prefix) else { continue };
            let path = self.directory.join(&name);
            let is_known = self.calls.contains_key(&path);
            let is_foreign = !is_own(&path);
            let is_old = self.post.is_younger_by_far(&path);
            if rank >= self.company.rank || is_known || is_foreign || is_old {
                continue;
            }
            self.lower_seen = true;
            if rank == 0 {
                // A call that has a verdict already was not for us.
                let names = look(&path, self.post.number);
                let is_open = names.is_ok_and(|names| names.iter().all(|name| name != VERDICT));
                let answer = path.join(self.company.name(self.post.number));
                // Even where that fails the file may be there: others may count on us.
                let is_answered = is_open && {
                    let made = File::create_new(&answer);
                    made.is_ok() || answer.exists()
                };
                self.calls.insert(path, is_answered);
            }
        }
    }
}

impl Company {
    fn name(&self, number: u64) -> String {
        format!("here-{}-{}-{}-{number:016x}", self.rank, self.present, self.expected)
    }

    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("here-")?.split('-').map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        Some(Self { rank: next()?, present: next()?, expected: next()? })
    }
}

impl Post {
    fn make(directory: &Path, prefix: &str, rank: u32) -> io::Result<Self> {
        let number = new_number();
        let path = directory.join(format!("{prefix}{rank}-{number:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, number })
    }

    /// Both times are the file server's.
    fn is_younger_by_far(&self, than: &Path) -> bool {
        let made = |path: &Path| fs::metadata(path).and_then(|post| post.modified());
        match (made(&self.path), made(than)) {
            (Ok(ours), Ok(theirs)) => ours.duration_since(theirs).is_ok_and(|age| age > MAX_AGE),
            _ => false,
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        // Somebody may be answering at this moment.
        let removed = |_| fs::remove_dir_all(&self.path).is_ok() || !self.path.exists();
        let _ = (0..ATTEMPTS).any(removed);
    }
}

/// A number that nobody has used before.
fn new_number() -> u64 {
    // Seeded by the kernel; the clock makes a difference where that should fail.
    RandomState::new().hash_one(SystemTime::now())
}

/// Begin of the names of all posts of a job.
fn prefix(job: &str, size: u32) -> String {
    format!(".plimsoll-{:016x}-{size}-", fingerprint(job))
}

/// The rank in the name of a post of this job.
fn rank_of(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split('-').next()?.parse().ok()
}

/// Whether a post was made by this user, and can be changed by nobody else.
fn is_own(post: &Path) -> bool {
    // SAFETY: no preconditions.
    let us = unsafe { libc::geteuid() };
    let is_own = |post: fs::Metadata| post.is_dir() && post.uid() == us && post.mode() & 0o022 == 0;
    post.symlink_metadata().is_ok_and(is_own)
}

/// Makes the verdict, or learns which one was made before.
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
            Err(_) => thread::sleep(SHORTEST_PAUSE),
        }
        // For its effect on the node's cache only.
        let _ = look(call, number);
    }
    APART
}

/// The names in a directory, not as a cache remembers them: what this node has changed itself it
/// reads anew. Where it cannot be changed, the names as they are known.
fn look(directory: &Path, number: u64) -> io::Result<Vec<String>> {
    let change = directory.join(format!(".plimsoll-look-{number:016x}"));
    let _ = fs::create_dir(&change).and_then(|()| fs::remove_dir(&change));
    list(directory)
}

fn list(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn remove_old_posts(directory: &Path, prefix: &str, ours: &Post) {
    for name in list(directory).unwrap_or_default() {
        let path = directory.join(&name);
        if rank_of(&name, prefix).is_some() && is_own(&path) && ours.is_younger_by_far(&path) {
            // Another's, if it is there: nothing that we rely on.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Longer and longer pauses until a deadline, or until this rank is given up.
struct Pauses<'a> {
    deadline: Instant,
    next: Duration,
    decision: Option<&'a mut Decision>,
}

impl<'a> Pauses<'a> {
    fn until(deadline: Instant, decision: Option<&'a mut Decision>) -> Self {
        Self { deadline, next: SHORTEST_PAUSE, decision }
    }

    /// Notes that other companies are about to count on us; false if they must not.
    fn ask(&mut self, post: u64) -> bool {
        self.decision.as_mut().is_none_or(|decision| decision.ask(post))
    }

    /// Moves the deadline forward.
    fn end_within(&mut self, rest: Duration) {
        self.deadline = self.deadline.min(Instant::now() + rest);
    }

    /// Pauses; false if the deadline had passed before, or if this rank is given up.
    fn pause(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        thread::sleep(self.next);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        self.decision.as_mut().is_none_or(|decision| decision.goes_on())
    }
}

#[cfg(test)]
mod tests;
