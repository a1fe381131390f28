//! Obstacles to preloading into a program, read from its file as the loader would.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use plimsoll_sys::own_files::open_regular;

/// Reason why the library is not loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No PT_INTERP: no loader runs that would read LD_PRELOAD.
    Static,
    /// Set-user-id, set-group-id, or file capabilities (capabilities(7)): the loader ignores
    /// LD_PRELOAD entries with a `/` (ld.so(8)).
    Privileged,
}

/// Returns the obstacle in a program; `None` for scripts, because their interpreter inherits the
/// environment, for unreadable files, and for files that are not 64-bit little-endian ELF.
pub fn obstacle(program: &Path) -> Option<Obstacle> {
    let file = open_regular(program).ok()?;
    let is_privileged = file.metadata().ok()?.mode() & 0o6000 != 0 || has_capabilities(&file);
    let content = ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&content).ok()?;
    let endian = header.endian().ok()?;
    if is_privileged {
        return Some(Obstacle::Privileged);
    }
    let segments = header.program_headers(endian, &content).ok()?;
    let has_loader = segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    (!has_loader).then_some(Obstacle::Static)
}

/// Returns whether the program gets capabilities from its file.
fn has_capabilities(file: &File) -> bool {
    let name = c"security.capability".as_ptr();
    // SAFETY: a C string and an empty buffer, which queries only the length.
    unsafe { libc::fgetxattr(file.as_raw_fd(), name, std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn obstacles_of_programs_are_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(obstacle(&own), None);

        // A copy without its PT_INTERP entry looks like a static program.
        let mut bytes = fs::read(&own).unwrap();
        let entries = u16::from_le_bytes([bytes[56], bytes[57]]);
        for index in 0..usize::from(entries) {
            let at = 64 + index * 56;
            if bytes[at..at + 4] == PT_INTERP.to_le_bytes() {
                bytes[at] = 0;
            }
        }
        let program = directory.path().join("static");
        fs::write(&program, &bytes).unwrap();
        assert_eq!(obstacle(&program), Some(Obstacle::Static));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(obstacle(&program), Some(Obstacle::Privileged));

        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // Version 2 with no capability in it; only root may set it.
        let capabilities = [0, 0, 0, 2].into_iter().chain([0; 16]).collect::<Vec<u8>>();
        let file = File::open(&program).unwrap();
        let (name, value) = (c"security.capability".as_ptr(), capabilities.as_ptr().cast());
        // SAFETY: a C string, and a buffer of the given length.
        let set = unsafe { libc::fsetxattr(file.as_raw_fd(), name, value, capabilities.len(), 0) };
        let expected = if set == 0 { Obstacle::Privileged } else { Obstacle::Static };
        assert_eq!(obstacle(&program), Some(expected));

        for content in [&b"#!/bin/sh\n"[..], &bytes[..40], &bytes[..70], b""] {
            fs::write(&program, content).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(obstacle(&program), None);
        }
        assert_eq!(obstacle(Path::new("/nowhere")), None);
    }
}
