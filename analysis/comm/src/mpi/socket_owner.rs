//! Finds the owner of a Unix socket through the kernel. A name proves nothing: any user can bind
//! it.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use plimsoll_sys::own::Own;

/// Constants of linux/sock_diag.h and linux/unix_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_UID: u16 = 7;
/// Sizes of `nlmsghdr` and of the `unix_diag_msg` after it.
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// A request for one socket by its inode.
#[repr(C)]
struct Request {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
    family: u8,
    protocol: u8,
    padding: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

/// Queries the kernel about the sockets of this network namespace (sock_diag(7)).
pub struct SocketOwners {
    socket: Option<Own<OwnedFd>>,
}

impl SocketOwners {
    /// Opens the query socket. If the kernel does not answer, the descriptors of processes are
    /// inspected instead.
    pub fn new() -> Self {
        // SAFETY: plain system calls; a new descriptor is nobody else's.
        let socket = unsafe {
            let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let socket = libc::socket(libc::AF_NETLINK, flags, libc::NETLINK_SOCK_DIAG);
            (socket >= 0).then(|| OwnedFd::from_raw_fd(socket))
        };
        let socket = socket.and_then(|socket| Own::hidden(socket).ok());
        Self { socket }
    }

    /// Returns whether the socket with this inode belongs to this user; `process` is the process
    /// that supposedly holds it.
    pub fn is_ours(&self, inode: u32, process: u32) -> bool {
        // SAFETY: no preconditions.
        let us = unsafe { libc::geteuid() };
        match self.owner(inode) {
            Ok(Some(owner)) => owner == us,
            // Kernel before 5.3, or queries not permitted.
            Ok(None) | Err(_) => holds(process, inode),
        }
    }

    /// Returns the user id of the owner; `None` if the kernel does not tell.
    fn owner(&self, inode: u32) -> io::Result<Option<u32>> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::Unsupported)?.get()?;
        let request = Request {
            length: size_of::<Request>() as u32,
            kind: SOCK_DIAG_BY_FAMILY,
            flags: libc::NLM_F_REQUEST as u16,
            sequence: inode,
            port: 0,
            family: libc::AF_UNIX as u8,
            protocol: 0,
            padding: 0,
            states: u32::MAX,
            inode,
            show: UDIAG_SHOW_UID,
            cookie: [u32::MAX; 2],
        };
        // SAFETY: a request of the length that it says, to the kernel (port 0).
        let sent = unsafe {
            let mut to: libc::sockaddr_nl = std::mem::zeroed();
            to.nl_family = libc::AF_NETLINK as u16;
            let request = (&raw const request).cast();
            let address = ((&raw const to).cast(), size_of::<libc::sockaddr_nl>() as u32);
            let flags = libc::MSG_DONTWAIT;
            let length = size_of::<Request>();
            libc::sendto(socket.as_raw_fd(), request, length, flags, address.0, address.1)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            let mut answer = [0u8; 512];
            // SAFETY: a buffer of the length that is said. The kernel answers while it is asked.
            let length = unsafe {
                let flags = libc::MSG_DONTWAIT;
                libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), flags)
            };
            let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
            let answer = &answer[..length];
            // An answer to an earlier request may be left after an error.
            if word(answer, 8) == Some(inode) {
                return Ok(owner_in(answer));
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the owner attribute of an answer.
fn owner_in(answer: &[u8]) -> Option<u32> {
    if half(answer, 4) != Some(SOCK_DIAG_BY_FAMILY) {
        return None;
    }
    let mut at = HEADER_BYTES + MESSAGE_BYTES;
    loop {
        let (length, kind) = (usize::from(half(answer, at)?), half(answer, at + 2)?);
        if kind == UNIX_DIAG_UID {
            return word(answer, at + 4);
        }
        if length < 4 {
            return None;
        }
        at += length.next_multiple_of(4);
    }
}

/// Returns whether a process holds a socket, if this process may read that process's descriptors.
/// The kernel shows them to its user and to root.
fn holds(process: u32, inode: u32) -> bool {
    let wanted = format!("socket:[{inode}]");
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
    let targets = descriptors.into_iter().flatten().flatten();
    let is_held = targets
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| target.as_os_str() == wanted.as_str());
    is_held && is_process_ours(process)
}

/// Returns whether a process belongs to this user: root may read the descriptors of all users.
fn is_process_ours(process: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: no preconditions.
    let us = unsafe { libc::geteuid() };
    fs::metadata(format!("/proc/{process}")).is_ok_and(|process| process.uid() == us)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn the_kernel_knows_the_owner_of_a_socket() {
        let socket = UnixDatagram::unbound().unwrap();
        let file = fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = file.ino() as u32;
        let owners = SocketOwners::new();
        // SAFETY: no preconditions.
        let us = unsafe { libc::geteuid() };
        match owners.owner(inode) {
            Ok(owner) => assert_eq!(owner, Some(us)),
            Err(error) => println!("SKIPPED: this kernel is not to be asked: {error}"),
        }
        assert!(owners.is_ours(inode, std::process::id()));
        assert!(!owners.is_ours(u32::MAX, std::process::id()));
        let by_descriptors = SocketOwners { socket: None };
        assert!(by_descriptors.is_ours(inode, std::process::id()));
        assert!(!by_descriptors.is_ours(inode, 1), "another process does not hold it");
    }
}
