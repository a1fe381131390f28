//! Obstacles to preloading into a program, read from its file as the loader would.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    let mut file = open_regular(program).ok()?;
    let metadata = file.metadata().ok()?;
    let start = headers(&mut file).ok()??;
    if metadata.mode() & 0o6000 != 0 || has_capabilities(&file) {
        return Some(Obstacle::Privileged);
    }
    (!has_interpreter(&mut file, &start).ok()?).then_some(Obstacle::Static)
}

/// Returns whether the program gets capabilities from its file.
fn has_capabilities(file: &File) -> bool {
    let name = c"security.capability".as_ptr();
    // SAFETY: a C string and an empty buffer, which queries only the length.
    unsafe { libc::fgetxattr(file.as_raw_fd(), name, std::ptr::null_mut(), 0) > 0 }
}

/// Position of the program headers (ELF-64 object file format, file header).
struct ProgramHeaders {
    offset: u64,
    entry_bytes: u16,
    entries: u16,
}

const PT_INTERP: u32 = 3;
const HEADER_BYTES: usize = 64;

fn headers(file: &mut File) -> io::Result<Option<ProgramHeaders>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    // Magic, ELFCLASS64, ELFDATA2LSB.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let offset = u64::from(word(32)) | u64::from(word(34)) << 16 | u64::from(word(36)) << 32;
    Ok(Some(ProgramHeaders { offset, entry_bytes: word(54), entries: word(56) }))
}

fn has_interpreter(file: &mut File, headers: &ProgramHeaders) -> io::Result<bool> {
    for index in 0..headers.entries {
        let offset = u64::from(index) * u64::from(headers.entry_bytes);
        file.seek(SeekFrom::Start(headers.offset.saturating_add(offset)))?;
        let mut kind = [0; 4];
        file.read_exact(&mut kind)?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
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
