//! Do all ranks of the job carry the library? Found out without communicating.
//!
//! A collective on a world in which one rank is not preloaded would hang the job. So each rank
//! leaves a token before the real MPI_Init and looks for tokens after it: MPI_Init returns on no
//! rank before all have entered it, so all that see the same tokens see them alike. A token is a
//! bound abstract Unix socket, which disappears with its process and leaves nothing behind.
//!
//! Tokens are seen on the node only. The ranks that see each other's are a *company*, mostly those
//! of one node; its first rank speaks for it among the companies ([`super::roll_call`]) and tells
//! the others what came of it, by a second socket with a name that says it. So a company is never of two minds: the
//! others wait until they are told, or until the first rank's token is gone, which means that the
//! process is, and with it the job.
//!
//! Any user of the machine can bind any name. So only sockets count that the kernel knows to be this
//! user's ([`super::socket_owner`]), and nothing is sent that a full queue could hold up.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_agent::own::Own;

use super::launch;
use super::socket_owner::Owners;

/// The first of a company asks the other nodes before it tells, which takes seconds at most. It is a
/// process of this user, and alive: another user cannot make anybody wait.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// Between two looks for a verdict.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Names that are tried.
const ATTEMPTS: u32 = 20;
/// The sockets that this process can see.
const SOCKETS: &str = "/proc/net/unix";

/// A token of this process, until it is dropped.
pub struct Token {
    prefix: String,
    name: String,
    /// Held open: the name lives as long as the socket.
    _socket: Own<UnixDatagram>,
    /// What this process has told the others of its company.
    verdict: Option<Own<UnixDatagram>>,
}

/// Moves a descriptor out of the application's sight and returns its new number, or a negative one
/// where that is not possible.
pub type Hide<'a> = &'a dyn Fn(RawFd) -> RawFd;

impl Token {
    /// Leaves a token.
    pub fn leave(hide: Hide<'_>) -> io::Result<Self> {
        let rank = launch::told_rank().map(|rank| rank.to_string()).unwrap_or_default();
        Self::leave_as(prefix(), &rank, hide)
    }

    fn leave_as(prefix: String, rank: &str, hide: Hide<'_>) -> io::Result<Self> {
        let name = format!("{prefix}{rank}-{}", std::process::id());
        let (_socket, name) = bind_free(&name, hide)?;
        Ok(Self { prefix, name, _socket, verdict: None })
    }

    /// Who of the job has left one where this process can see it. The kernel tells its sockets in
    /// parts; one that closes meanwhile, of whatever program, may hide another. So they are read
    /// until nothing new comes to light. A socket of another user is not counted.
    pub fn company(&self) -> io::Result<Company> {
        let owners = Owners::new();
        let mut found = Company::default();
        loop {
            let size = found.size();
            let is_ours = |socket: &Socket<'_>| owners.is_ours(socket.inode, socket.process());
            found.join(company(&fs::read_to_string(SOCKETS)?, &self.prefix, is_ours));
            if found.size() == size {
                return Ok(found);
            }
        }
    }

    /// Whether this process is the first of the company.
    pub fn leads(&self, company: &Company) -> bool {
        company.names.first() == Some(&self.name)
    }

    /// The first of the company tells the others whether all go on together: by a second socket, whose
    /// name says it, for as long as the token is there. Nothing is sent, so nobody can hold it up.
    pub fn tell(&mut self, together: bool, hide: Hide<'_>) -> io::Result<()> {
        let said = verdict_name(&self.name, together);
        self.verdict = Some(bind_free(&said, hide)?.0);
        Ok(())
    }

    /// What the first of the company tells; `None` if its process has ended instead, or says nothing
    /// for so long that it never will. Its token is this user's, and so must be what it says.
    pub fn listen(&self, company: &Company) -> Option<bool> {
        let first = company.names.first()?;
        let owners = Owners::new();
        let process = process_of(first).unwrap_or(0);
        let (begin, mut pause) = (Instant::now(), SHORTEST_PAUSE);
        while begin.elapsed() < LONGEST_SILENCE {
            // One look must not miss a verdict and see the token gone: they go together.
            let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
            let told = [true, false].into_iter().find(|together| {
                let said = verdict_name(first, *together);
                let says = |socket: &Socket<'_>| {
                    let rest = socket.name.strip_prefix(said.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                        && owners.is_ours(socket.inode, process)
                };
                sockets.lines().filter_map(Socket::parse).any(|socket| says(&socket))
            });
            if told.is_some() {
                return told;
            }
            if self.company().is_ok_and(|now| !now.names.contains(first)) {
                return None;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        None
    }
}

fn verdict_name(token: &str, together: bool) -> String {
    format!("{token}={}", if together { "together" } else { "apart" })
}

/// Binds a name, or where somebody has it already, that name with a number nobody can guess.
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
/// behind the inode.
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

    /// The process that its name says.
    fn process(&self) -> u32 {
        process_of(self.name).unwrap_or(0)
    }
}

fn process_of(name: &str) -> Option<u32> {
    name.rsplit('-').next()?.split('.').next()?.parse().ok()
}

/// Processes that see each other's tokens: the same ones, in the same order, in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// Names of the tokens, the lowest rank's first as far as the launcher told the ranks.
    names: Vec<String>,
}

impl Company {
    fn join(&mut self, other: Self) {
        let order = |name: &String| {
            let rank: Option<u32> = name.rsplit('-').nth(1).and_then(|rank| rank.parse().ok());
            // Ranks that are known come first.
            (rank.is_none(), rank, process_of(name), name.clone())
        };
        self.names.extend(other.names);
        self.names.sort_by_cached_key(order);
        self.names.dedup();
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.names.len() as u32
    }
}

/// The tokens of a job among the sockets of the node.
fn company(sockets: &str, prefix: &str, is_ours: impl Fn(&Socket<'_>) -> bool) -> Company {
    let tokens = sockets.lines().filter_map(Socket::parse).filter(|socket| {
        let rest = socket.name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(_, process)| process_of(process).is_some()) && is_ours(socket)
    });
    let mut company = Company::default();
    company.join(Company { names: tokens.map(|token| token.name.to_owned()).collect() });
    company
}

/// Begin of the names of the tokens of this job: its launcher on this node, which all local ranks
/// descend from. Process ids mean something only in their namespace.
fn prefix() -> String {
    let launcher = launch::launcher();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let processes: String =
        processes.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let started = launch::start_time(launcher).unwrap_or(0);
    format!("plimsoll-{processes}-{launcher}-{started}-{}-", launch::job_names().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Held while a test forks, or closes a token: a child keeps the tokens of its parent open.
    static FORKS: std::sync::RwLock<()> = std::sync::RwLock::new(());

    fn token(name: &str, rank: &str) -> Token {
        let prefix = format!("plimsoll-test-{name}-{}-", std::process::id());
        Token::leave_as(prefix, rank, &|socket| socket).expect("abstract sockets exist on Linux")
    }

    #[test]
    fn a_token_is_seen_until_it_is_dropped() {
        let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let token = Token::leave(&|socket| socket).expect("abstract sockets exist on Linux");
        let company_of_one = token.company().expect("/proc is mounted");
        assert_eq!(company_of_one.size(), 1);
        assert!(token.leads(&company_of_one));
        let prefix = token.prefix.clone();
        drop(token);
        let sockets = fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
        assert_eq!(company(&sockets, &prefix, |_| true), Company::default());
    }

    #[test]
    fn only_tokens_of_the_same_job_count() {
        let sockets = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00000000 0002 01 0 @plimsoll-7-9---99\n\
            0000: 00000002 00000000 00000000 0002 01 1 @plimsoll-7-9--10-100\n\
            0000: 00000002 00000000 00000000 0002 01 2 @plimsoll-7-9--2-101\n\
            0000: 00000002 00000000 00000000 0002 01 3 @plimsoll-71-9--0-102\n\
            0000: 00000002 00000000 00000000 0002 01 4 /run/plimsoll-7-9--1-103\n\
            0000: 00000002 00000000 00000000 0002 01 5\n";
        let found = company(sockets, "plimsoll-7-9--", |_| true);
        let names = ["plimsoll-7-9--2-101", "plimsoll-7-9--10-100", "plimsoll-7-9---99"];
        assert_eq!(found, Company { names: names.map(str::to_owned).into() });
    }

    #[test]
    fn the_others_hear_the_first() {
        let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        for together in [true, false] {
            let (mut first, second) = (token("hear", "1"), token("hear", "2"));
            let company = first.company().expect("/proc is mounted");
            assert!(first.leads(&company) && !second.leads(&company));
            first.tell(together, &|socket| socket).expect("the name is free");
            assert_eq!(second.company().expect("/proc is mounted"), company);
            assert_eq!(second.listen(&company), Some(together));
            drop(first);
            assert_eq!(second.listen(&company), None);
        }
    }

    #[test]
    fn a_name_that_somebody_has_taken_gets_a_number() {
        let squatted = format!("plimsoll-test-taken-{0}-3-{0}", std::process::id());
        let address = SocketAddr::from_abstract_name(&squatted).expect("a short name");
        let _squatter = UnixDatagram::bind_addr(&address).expect("the name is free");
        let token = token("taken", "3");
        assert!(token.name.starts_with(&format!("{squatted}.")), "{}", token.name);
        assert!(token.company().expect("/proc is mounted").names.contains(&token.name));
    }

    /// Binds names as another user, in a child, for as long as `action` takes.
    fn while_another_user_holds(names: &[String], action: impl FnOnce()) -> bool {
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            println!("SKIPPED: only root can act as another user");
            return false;
        }
        let _child = FORKS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let addresses: Vec<_> = names.iter().map(SocketAddr::from_abstract_name).collect();
        // SAFETY: the child calls nothing that takes a lock before it waits to be killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain system calls.
            let became = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
            let held: Vec<_> = addresses.iter().flatten().map(UnixDatagram::bind_addr).collect();
            let _ = became && held.iter().all(Result::is_ok);
            loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            }
        }
        let is_bound = || {
            let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
            names.iter().all(|name| sockets.contains(name.as_str()))
        };
        let begin = Instant::now();
        while !is_bound() && begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(SHORTEST_PAUSE);
        }
        assert!(is_bound(), "the other user holds the names");
        action();
        // SAFETY: the child is ours and was not waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        true
    }

    #[test]
    fn what_another_user_forges_is_not_believed() {
        let (mut first, second) = (token("forged", "1"), token("forged", "2"));
        // A token that sorts first, and a verdict in the name of the true first.
        let forged = [format!("{}0-1", first.prefix), verdict_name(&first.name, true)];
        while_another_user_holds(&forged, || {
            let company = second.company().expect("/proc is mounted");
            assert_eq!(company.size(), 2, "{company:?}");
            assert!(first.leads(&company));
            first.tell(false, &|socket| socket).expect("the name is free");
            assert_eq!(second.listen(&company), Some(false));
        });
    }

    #[test]
    fn a_verdict_finds_a_name_where_another_user_holds_it() {
        let (mut first, second) = (token("squat", "1"), token("squat", "2"));
        let both = [true, false].map(|together| verdict_name(&first.name, together));
        while_another_user_holds(&both, || {
            let company = second.company().expect("/proc is mounted");
            first.tell(true, &|socket| socket).expect("another name is free");
            assert_eq!(second.listen(&company), Some(true));
        });
    }
}
