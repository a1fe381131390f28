//! Files and folders that other users of the machine cannot turn against the user: opened without
//! waiting for another process, created without following a planted link.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::own::Own;

/// Permission bits that let others change a file or a folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Opens a regular file for reading. Any other kind of file is an error: opening a pipe waits for
/// its writer, and opening a device may have any effect.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // The path is checked before the open, because opening a device may have effects, and the file
    // after the open, because the path may have changed.
    regular(path.metadata()?.is_file())?;
    open(path, 0)
}

/// Opens a regular file that belongs to this user and is not writable for others. Follows no link.
pub fn open_own(path: &Path) -> io::Result<Own<File>> {
    regular(path.symlink_metadata()?.is_file())?;
    let file = open(path, libc::O_NOFOLLOW)?;
    let metadata = file.metadata()?;
    own(metadata.uid())?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(refusal("other users can write it"));
    }
    Own::hidden(file)
}

/// Creates a new file that only this user can read; fails if the path exists. Follows no link.
pub fn create(path: &Path) -> io::Result<Own<File>> {
    let mut options = File::options();
    options.append(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    Own::hidden(options.open(path)?)
}

/// Creates a folder that only this user can enter. An existing folder must belong to this user;
/// others then lose write access to it.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if the folder belongs to another user.
pub fn create_own_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = folder.metadata()?;
    own(metadata.uid())?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        folder.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    // O_NONBLOCK: a pipe that has replaced the file meanwhile is opened without its writer.
    let file = File::options().read(true).custom_flags(flags | libc::O_NONBLOCK).open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

fn regular(is_regular: bool) -> io::Result<()> {
    let reason = "expected a regular file, not a pipe, a device, a link or a folder";
    if is_regular { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, reason)) }
}

fn own(owner: u32) -> io::Result<()> {
    // SAFETY: no preconditions.
    if owner == unsafe { libc::geteuid() } { Ok(()) } else { Err(refusal("another user owns it")) }
}

fn refusal(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn an_irregular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        fs::write(folder.path().join("file"), "x").unwrap();
        symlink(folder.path().join("file"), &link).unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            let refused = open_regular(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
            assert!(open_own(path).is_err(), "{}", path.display());
        }
        let (circle, dangling) = (folder.path().join("circle"), folder.path().join("dangling"));
        symlink("circle", &circle).unwrap();
        symlink("nowhere", &dangling).unwrap();
        for path in [&circle, &dangling] {
            assert!(open_regular(path).is_err() && open_own(path).is_err(), "{}", path.display());
        }
        open_regular(&link).unwrap();
        assert!(open_own(&link).is_err() && open_own(&pipe).is_err());
        open_own(&folder.path().join("file")).unwrap();
        // Also if the pipe replaces the file after the first check.
        assert_eq!(open(&pipe, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_folder_is_closed_to_others_and_must_be_ours() {
        let directory = tempfile::tempdir().unwrap();
        let (new, open) = (directory.path().join("new"), directory.path().join("open"));
        create_own_folder(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        create_own_folder(&open).unwrap();
        assert_eq!(mode(&open), 0o700);
        let link = directory.path().join("link");
        symlink(&open, &link).unwrap();
        assert!(create_own_folder(&link).is_err());
    }

    #[test]
    fn files_of_other_users_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (folder, file) = (directory.path().join("folder"), directory.path().join("file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(open_own(&file).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        if [&folder, &file].iter().any(|path| chown(path, Some(65534), None).is_err()) {
            println!("SKIPPED: files are given to another user by root only");
            return;
        }
        assert_eq!(open_own(&file).unwrap_err().to_string(), "another user owns it");
        assert_eq!(create_own_folder(&folder).unwrap_err().to_string(), "another user owns it");
        open_regular(&file).unwrap();
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        let planted = directory.path().join("planted");
        symlink(&victim, &planted).unwrap();
        assert_eq!(create(&planted).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!victim.exists());
        create(&victim).unwrap();
        assert_eq!(mode(&victim), 0o600);
    }
}
