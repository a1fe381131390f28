//! Real paths and the names in a folder, found without the C library's heap.
//!
//! realpath(3) and opendir(3) allocate. At a thread's first allocation, the C library reserves
//! 64 MiB of address space for the thread (an arena; 128 MiB for a moment). Where the address space
//! is limited (`ulimit -v`), the application would lack these for its own allocations.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use crate::syscalls::syscall;

/// Maximum number of links in one path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Size of the buffer for directory entries, in bytes: more than the largest entry.
const ENTRIES_BYTES: usize = 8 << 10;

/// Offsets of an entry's length and of its name in `struct linux_dirent64` (getdents64(2)).
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Returns the absolute path of an existing file without links, as realpath(3) does.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut real = std::env::current_dir()?;
    let mut rest = reversed(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(real.pop()),
            Some(Component::Normal(name)) => {
                let next = real.join(name);
                if !next.symlink_metadata()?.is_symlink() {
                    real = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                rest.extend(reversed(&next.read_link()?));
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(real)
}

/// Returns the components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
}

/// Returns the names of the entries of a folder, without `.` and `..`, in no particular order.
pub fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let folder = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(folder)?;
    let mut buffer = vec![0u8; ENTRIES_BYTES];
    let mut names = Vec::new();
    loop {
        let number = folder.as_raw_fd();
        // SAFETY: the length is that of the buffer.
        let read =
            unsafe { syscall!(libc::SYS_getdents64, number, buffer.as_mut_ptr(), buffer.len()) };
        let length = read.map_err(io::Error::from_raw_os_error)?;
        if length == 0 {
            return Ok(names);
        }
        let mut entries = &buffer[..length];
        while let Some((entry, others)) = split_entry(entries) {
            let name = entry[NAME_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
            if ![&b"."[..], b".."].contains(&name) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
            entries = others;
        }
    }
}

/// Splits the first directory entry off; `None` if there is none.
fn split_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = entries.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?;
    let (entry, others) = entries.split_at_checked(u16::from_ne_bytes(length).into())?;
    (entry.len() > NAME_AT).then_some((entry, others))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn real_paths_are_those_of_the_c_library() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "x").unwrap();
        symlink("a/b", at("relative")).unwrap();
        symlink(at("relative"), at("absolute")).unwrap();
        symlink("../../relative/./file", at("a/b/up")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let names = ["a/b/file", "absolute/file", "relative/up", "a/../absolute/..", "a/./b"];
        for name in names {
            let path = at(name);
            assert_eq!(real_path(&path).unwrap(), path.canonicalize().unwrap(), "{name}");
        }
        let here = Path::new("src/..");
        assert_eq!(real_path(here).unwrap(), here.canonicalize().unwrap());
        for name in ["circle", "nowhere", "a/b/file/x"] {
            let path = at(name);
            let errors = [real_path(&path), path.canonicalize()].map(|it| it.unwrap_err());
            assert_eq!(errors[0].raw_os_error(), errors[1].raw_os_error(), "{name}");
        }
    }

    #[test]
    fn all_names_of_a_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let name = |number: usize| {
            let width = 1 + number % 200;
            format!("{number:0width$}")
        };
        let expected: BTreeSet<OsString> = (1..600).map(|number| name(number).into()).collect();
        assert!(names_in(folder.path()).unwrap().is_empty());
        for name in &expected {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = names_in(folder.path()).unwrap();
        assert_eq!(found.len(), expected.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        let file = folder.path().join(name(1));
        assert_eq!(names_in(&file).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    }
}
