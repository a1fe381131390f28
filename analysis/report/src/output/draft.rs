//! Drafts: reports on disk before they have their names, hidden if the file system allows it, so
//! that a killed process leaves nothing behind.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IntoInnerError, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_sys::own::Own;
use plimsoll_sys::path_lookup::names_in;

use super::atomic_write::MAX_NUMBER;
use plimsoll_summary::error::Error;

/// Minimum age of an abandoned draft: the process that owns it may run on another node with the
/// same directory.
const MIN_STALE_AGE: Duration = Duration::from_secs(3600);

/// Report on disk without a name or under a temporary one; removed when the value is dropped.
pub(super) struct Draft {
    /// Extension of the report's name.
    pub(super) extension: String,
    place: DraftFile,
}

enum DraftFile {
    /// File without a name.
    Anonymous(Own<File>),
    /// File with a temporary name, on file systems without unnamed files.
    Named(PathBuf),
}

impl Draft {
    /// Creates a draft with this content.
    pub(super) fn write(
        directory: &Path,
        stem: &OsString,
        extension: &str,
        content: Content<'_>,
    ) -> Result<Self, Error> {
        let (draft, file) = Self::create(directory, stem, extension)?;
        match fill(file, content) {
            Ok(()) => Ok(draft),
            Err(source) => Err(Error::Write { path: directory.into(), source }),
        }
    }

    /// Creates an empty draft.
    pub(super) fn create(
        directory: &Path,
        stem: &OsString,
        extension: &str,
    ) -> Result<(Self, Own<File>), Error> {
        Self::anonymous(directory, stem, extension)
            .or_else(|_| {
                remove_stale(directory);
                Self::named(directory, stem, extension)
            })
            .map_err(|source| Error::Write { path: directory.into(), source })
    }

    /// Creates a draft without a name. The kernel gives such a file a name only through /proc.
    pub(super) fn anonymous(
        directory: &Path,
        _: &OsString,
        extension: &str,
    ) -> io::Result<(Self, Own<File>)> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        let file = Own::hidden(options.open(directory)?)?;
        let ours = Own::hidden(file.get()?.try_clone()?)?;
        descriptor_path(ours.get()?).symlink_metadata()?;
        let place = DraftFile::Anonymous(ours);
        Ok((Self { extension: extension.to_owned(), place }, file))
    }

    /// Creates a draft with a temporary name.
    pub(super) fn named(
        directory: &Path,
        stem: &OsString,
        extension: &str,
    ) -> io::Result<(Self, Own<File>)> {
        for attempt in 0..MAX_NUMBER {
            let mut name = OsString::from(".");
            name.push(stem);
            name.push(format!(".{}-{attempt}.{extension}.part", std::process::id()));
            let path = directory.join(name);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let place = DraftFile::Named(path);
                    let draft = Self { extension: extension.to_owned(), place };
                    return Ok((draft, Own::hidden(file)?));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Gives the draft a free name.
    pub(super) fn link(&self, path: &Path) -> io::Result<()> {
        match &self.place {
            DraftFile::Named(draft) => fs::hard_link(draft, path),
            DraftFile::Anonymous(file) => {
                let string = |path: &Path| CString::new(path.as_os_str().as_bytes().to_vec());
                let (from, to) = (string(&descriptor_path(file.get()?))?, string(path)?);
                let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
                // SAFETY: both are C strings.
                match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
        }
    }

    /// Replaces an empty file, on file systems without hard links.
    pub(super) fn replace(&self, path: &Path) -> io::Result<()> {
        match &self.place {
            DraftFile::Named(draft) => fs::rename(draft, path),
            DraftFile::Anonymous(file) => {
                let mut file = file.get()?;
                file.seek(SeekFrom::Start(0))?;
                let whole = Own::hidden(OpenOptions::new().write(true).open(path)?)?;
                fill(whole, &|to| io::copy(&mut { file }, to).map(drop))
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let DraftFile::Named(path) = &self.place {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the content of a file.
pub(super) type Content<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Number of bytes written at once.
const PIECE_BYTES: usize = 64 << 10;

/// Writes a file and syncs it to disk. Content is streamed: a report may have many megabytes.
pub(super) fn fill(file: Own<File>, content: Content<'_>) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(PIECE_BYTES, file);
    content(&mut file)?;
    let file = file.into_inner().map_err(IntoInnerError::into_error)?;
    synced(file.get()?.sync_all())
}

/// Returns the result of a sync. A full disk or a quota may only show then. Some file systems
/// cannot sync and return EINVAL or an error for unsupported operations, although the content is
/// complete.
pub(super) fn synced(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => Ok(()),
        outcome => outcome,
    }
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Removes drafts with names that killed processes of this user have left in a directory.
fn remove_stale(directory: &Path) {
    for name in names_in(directory).unwrap_or_default() {
        let path = directory.join(&name);
        if is_stale(&name, &path).unwrap_or(false) {
            // Another process may have removed it first.
            let _ = fs::remove_file(path);
        }
    }
}

fn is_stale(name: &OsStr, path: &Path) -> Option<bool> {
    let pid = pid_of(name)?;
    let metadata = path.symlink_metadata().ok()?;
    // SAFETY: no preconditions; the signal 0 is none.
    let (user, is_gone) = unsafe { (libc::geteuid(), libc::kill(pid, 0) != 0) };
    let is_gone = is_gone && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    let age = metadata.modified().ok()?.elapsed().ok()?;
    Some(metadata.is_file() && metadata.uid() == user && is_gone && age >= MIN_STALE_AGE)
}

/// Returns the process id in the name of a draft.
fn pid_of(name: &OsStr) -> Option<libc::pid_t> {
    let name = String::from_utf8_lossy(name.as_bytes());
    let rest = name.strip_prefix('.')?.strip_suffix(".part")?;
    let (rest, _) = rest.rsplit_once('.')?;
    let (pid, attempt) = rest.rsplit_once('.')?.1.split_once('-')?;
    attempt.parse::<u32>().ok()?;
    pid.parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_hidden_until_it_has_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let stem = "run".into();
        let (draft, file) = Draft::anonymous(directory.path(), &stem, "txt").unwrap();
        fill(file, &|to| to.write_all(b"text")).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let path = directory.path().join("report");
        draft.link(&path).unwrap();
        assert_eq!(draft.link(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn drafts_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (gone, here) = (child.id(), std::process::id());
        let old = std::time::SystemTime::now() - 2 * MIN_STALE_AGE;
        let make = |name: String, is_old: bool| {
            let file = File::create(directory.path().join(&name)).unwrap();
            if is_old {
                file.set_modified(old).unwrap();
            }
            name
        };
        make(format!(".run.{gone}-0.txt.part"), true);
        let mut kept = vec![
            make(format!(".run.{gone}-1.txt.part"), false),
            make(format!(".run.{here}-0.txt.part"), true),
            make("mine.part".into(), true),
            make(format!(".mine.{gone}.part"), true),
        ];
        remove_stale(directory.path());
        let entries = fs::read_dir(directory.path()).unwrap().flatten();
        let mut left: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        left.sort();
        kept.sort();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_full_disk_is_named() {
        let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
        let source = fill(Own::new(full).unwrap(), &|to| to.write_all(b"text")).unwrap_err();
        let error = Error::Write { path: "/scratch".into(), source };
        assert_eq!(error.to_string(), "/scratch cannot be written: the disk is full.");
    }

    #[test]
    fn a_file_system_without_sync_keeps_the_report() {
        for errno in [libc::EINVAL, libc::ENOTSUP] {
            assert!(synced(Err(io::Error::from_raw_os_error(errno))).is_ok());
        }
        assert!(synced(Err(io::Error::from_raw_os_error(libc::EIO))).is_err());
        // A pipe cannot be synced.
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        fill(Own::new(file).unwrap(), &|to| to.write_all(b"text")).unwrap();
    }
}
