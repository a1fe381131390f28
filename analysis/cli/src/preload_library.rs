//! Location of the library to preload.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use plimsoll_sys::own_files::open_regular;

use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::LIBRARY;

/// The library's file name.
const NAME: &str = "libplimsoll.so";

/// Finds the library: at the path in the variable `given`, else beside the command (as cargo builds
/// it), else in `../lib` or `../lib64` (as packages install it).
///
/// # Errors
/// A sentence with the searched places and a remedy.
pub fn find(command: &Path, given: Option<&OsStr>) -> Result<PathBuf, String> {
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        let path = PathBuf::from(given);
        let whole = std::path::absolute(&path).unwrap_or(path);
        return preloadable(whole).map_err(|path| {
            format!(
                "{LIBRARY} names {}, which is no file that can be read; correct or unset it.",
                shown(&path)
            )
        });
    }
    let directory = command.parent().unwrap_or(Path::new("/"));
    let above = directory.parent().unwrap_or(directory);
    let places = [directory.into(), above.join("lib"), above.join("lib64")];
    for place in &places {
        if let Ok(path) = preloadable(place.join(NAME)) {
            return Ok(path);
        }
    }
    let places: Vec<String> = places.iter().map(|place| shown(place).to_string()).collect();
    Err(format!(
        "{NAME} is not in {}. Build it (`cargo build --release`) or set {LIBRARY} to its path.",
        places.join(", ")
    ))
}

/// Checks the path beforehand: the loader would only report a failure, in every process.
fn preloadable(path: PathBuf) -> Result<PathBuf, PathBuf> {
    if open_regular(&path).is_ok() { Ok(path) } else { Err(path) }
}

/// Returns LD_PRELOAD with the library before the present entries; a repeated entry is not added.
///
/// # Errors
/// A sentence if the library's path contains a separator of entries.
pub fn preload(library: &Path, present: Option<&OsStr>) -> Result<OsString, String> {
    use std::os::unix::ffi::OsStrExt;
    let separator = |byte: &u8| b": \t\n".contains(byte);
    let path = library.as_os_str();
    if path.as_bytes().iter().any(separator) {
        return Err(format!(
            "{} cannot be preloaded, because its path holds a space or a colon. Set {LIBRARY} to a \
             link to it elsewhere.",
            shown(library)
        ));
    }
    let mut value = path.to_owned();
    for entry in present.map_or(&[][..], OsStr::as_bytes).split(separator) {
        if !entry.is_empty() && entry != path.as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(entry));
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_library_is_found_where_it_is_built_and_installed() {
        let root = tempfile::tempdir().unwrap();
        let command = root.path().join("bin/plimsoll");
        let message = find(&command, None).unwrap_err();
        assert!(message.contains("cargo build --release"), "{message}");
        for place in ["lib64", "lib", "bin"] {
            fs::create_dir_all(root.path().join(place)).unwrap();
            let library = root.path().join(place).join(NAME);
            fs::write(&library, "").unwrap();
            assert_eq!(find(&command, None), Ok(library.clone()));
            assert_eq!(find(&command, Some(OsStr::new(""))), Ok(library));
        }
        let other = root.path().join("lib").join(NAME);
        assert_eq!(find(&command, Some(other.as_os_str())), Ok(other));
        assert!(find(&command, Some(OsStr::new("/nowhere/x.so"))).is_err());
    }

    #[test]
    fn other_preloads_are_kept_behind_it() {
        let preload = |present: Option<&str>| {
            preload(Path::new("/l/libplimsoll.so"), present.map(OsStr::new)).unwrap()
        };
        assert_eq!(preload(None), "/l/libplimsoll.so");
        assert_eq!(preload(Some("a.so b.so")), "/l/libplimsoll.so:a.so:b.so");
        assert_eq!(preload(Some("a.so:/l/libplimsoll.so")), "/l/libplimsoll.so:a.so");
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        assert!(preload(Path::new("/my lib/libplimsoll.so"), None).is_err());
    }
}
