//! Do all ranks of the job carry the library? Found out without communicating.
//!
//! A collective on a world in which one rank is not preloaded would hang the job. So each rank
//! leaves a token before the real MPI_Init and looks for tokens after it: MPI_Init returns on no
//! rank before all have entered it, so all that see the same tokens see them alike. A token is a
//! bound abstract Unix socket, which disappears with its process and leaves nothing behind.
//!
//! Tokens are seen on the node only. The ranks that see each other's are a *company*, mostly those
//! of one node; its first rank speaks for it among the companies ([`super::roll_call`]) and tells
//! the others what came of it, by a message to their tokens. So a company is never of two minds: the
//! others wait until they are told, or until the first rank's token is gone, which means that the
//! process is, and with it the job.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use super::launch;

/// The first of a company asks the other nodes before it tells, which takes seconds at most.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// How long a rank listens before it looks whether there is still somebody to be told by.
const LISTENING: Duration = Duration::from_millis(500);
/// Longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

/// A token of this process, until it is dropped.
pub struct Token {
    prefix: String,
    name: String,
    /// Held open: the name lives as long as the socket.
    socket: UnixDatagram,
}

/// Moves a descriptor out of the application's sight and returns its new number, or a negative one
/// where that is not possible.
pub type Hide<'a> = &'a dyn Fn(RawFd) -> RawFd;

impl Token {
    /// Leaves a token.
    pub fn leave(hide: Hide<'_>) -> io::Result<Self> {
        Self::leave_as(prefix(), &launch::told_rank().unwrap_or_default(), hide)
    }

    fn leave_as(prefix: String, rank: &str, hide: Hide<'_>) -> io::Result<Self> {
        let name = format!("{prefix}{rank}-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_read_timeout(Some(LISTENING))?;
        let hidden = hide(socket.into_raw_fd());
        if hidden < 0 {
            return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
        }
        // SAFETY: `hide` gave us a descriptor of our own.
        let socket = unsafe { OwnedFd::from_raw_fd(hidden) }.into();
        Ok(Self { prefix, name, socket })
    }

    /// Who of the job has left one where this process can see it. The kernel tells its sockets in
    /// parts; one that closes meanwhile, of whatever program, may hide another. So they are read
    /// until nothing new comes to light.
    pub fn company(&self) -> io::Result<Company> {
        let mut found = Company::default();
        loop {
            let size = found.size();
            found.join(company(&fs::read_to_string("/proc/net/unix")?, &self.prefix));
            if found.size() == size {
                return Ok(found);
            }
        }
    }

    /// Whether this process is the first of the company.
    pub fn leads(&self, company: &Company) -> bool {
        company.names.first() == Some(&self.name)
    }

    /// The first of the company tells the others.
    pub fn tell(&self, company: &Company, message: &str) {
        let cut = (0..=message.len().min(MAX_MESSAGE_BYTES)).rev();
        let end = cut.into_iter().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        for name in company.names.iter().filter(|name| **name != self.name) {
            // Who cannot be told any more has ended.
            let _ = SocketAddr::from_abstract_name(name)
                .and_then(|address| self.socket.send_to_addr(&message.as_bytes()[..end], &address));
        }
    }

    /// What the first of the company tells; `None` if its process has ended instead, or says nothing
    /// for so long that it cannot be of this job. What others send, who could be anybody on the
    /// machine, is passed over.
    pub fn listen(&self, company: &Company) -> Option<String> {
        let first = company.names.first()?;
        let mut message = vec![0; MAX_MESSAGE_BYTES];
        let begin = Instant::now();
        while begin.elapsed() < LONGEST_SILENCE {
            if let Ok((length, sender)) = self.socket.recv_from(&mut message) {
                if sender.as_abstract_name() == Some(first.as_bytes()) {
                    message.truncate(length);
                    return Some(String::from_utf8_lossy(&message).into_owned());
                }
                continue;
            }
            // Nothing came in time, or a signal did.
            if self.company().is_ok_and(|now| !now.names.contains(first)) {
                return None;
            }
        }
        None
    }
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
            let mut parts = name.rsplit('-');
            let process: Option<u32> = parts.next().and_then(|process| process.parse().ok());
            let rank: Option<u32> = parts.next().and_then(|rank| rank.parse().ok());
            // Ranks that are known come first.
            (rank.is_none(), rank, process)
        };
        self.names.extend(other.names);
        self.names.sort_by_key(order);
        self.names.dedup();
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.names.len() as u32
    }
}

/// Abstract names are shown with a leading `@`, in the last column.
fn company(sockets: &str, prefix: &str) -> Company {
    let names = sockets.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'));
    let ours = names.filter(|name| {
        let rest = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(_, process)| process.parse::<u32>().is_ok())
    });
    let mut company = Company::default();
    company.join(Company { names: ours.map(str::to_owned).collect() });
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

    fn token(name: &str, rank: &str) -> Token {
        let prefix = format!("plimsoll-test-{name}-{}-", std::process::id());
        Token::leave_as(prefix, rank, &|socket| socket).expect("abstract sockets exist on Linux")
    }

    #[test]
    fn a_token_is_seen_until_it_is_dropped() {
        let token = Token::leave(&|socket| socket).expect("abstract sockets exist on Linux");
        let company_of_one = token.company().expect("/proc is mounted");
        assert_eq!(company_of_one.size(), 1);
        assert!(token.leads(&company_of_one));
        let prefix = token.prefix.clone();
        drop(token);
        let sockets = fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
        assert_eq!(company(&sockets, &prefix), Company::default());
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
        let found = company(sockets, "plimsoll-7-9--");
        let names = ["plimsoll-7-9--2-101", "plimsoll-7-9--10-100", "plimsoll-7-9---99"];
        assert_eq!(found, Company { names: names.map(str::to_owned).into() });
    }

    #[test]
    fn the_others_hear_the_first_and_nobody_else() {
        let (first, second) = (token("hear", "1"), token("hear", "2"));
        let stranger = token("stranger", "0");
        let company = first.company().expect("/proc is mounted");
        assert!(first.leads(&company) && !second.leads(&company));
        stranger.tell(&company, "a lie");
        first.tell(&company, "the truth");
        assert_eq!(second.listen(&company).as_deref(), Some("the truth"));
        drop(first);
        assert_eq!(second.listen(&company), None);
    }
}
