//! Atomic output of reports: whole or not at all, without replacing or leaving other files.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Target;
use super::draft::Draft;
use plimsoll_summary::error::Error;

/// The reports of a run.
pub trait Reports {
    /// Takes the paths of the files beside the reports, or the reason for their absence. The last
    /// call counts.
    fn name_sides(&mut self, sides: Result<&[PathBuf], &Error>);

    /// Returns the extensions of the reports, of `txt`, `json` and `html`.
    fn extensions(&self) -> &[&'static str];

    /// Writes the report with this extension.
    ///
    /// # Errors
    /// Those of `to`.
    fn write(&self, extension: &str, to: &mut dyn Write) -> io::Result<()>;
}

/// Files that were written.
#[derive(Debug)]
pub struct Written {
    /// Paths in the order of the reports.
    pub files: Vec<PathBuf>,
    /// Error at the target; `None` unless the reports are in the fallback directory.
    pub fallback: Option<Error>,
}

/// Fallback directory for reports.
pub const FALLBACK: &str = "/tmp";
/// Maximum length of a stem in bytes: with number and extension a name has at most 255.
const MAX_STEM_BYTES: usize = 220;
/// Extension of the folder beside reports.
const FOLDER_EXTENSION: &str = "d";
/// Extensions of all files of a report.
const REPORT_EXTENSIONS: [&str; 5] = ["txt", "json", "html", "npz", "timeline"];
/// Maximum number in a name; beyond it something is wrong.
pub(super) const MAX_NUMBER: u32 = 100_000;

/// Writes all reports of a run under one name, with a number if files of that name exist:
/// `x.plimsoll.txt`, `x-2.plimsoll.txt`, ... Creates missing directories. On failure the reports go
/// to /tmp.
///
/// # Errors
/// [`Error::NoPlace`] if nothing could be written; then no file is left behind.
pub fn write_reports(target: &Target, reports: &dyn Reports) -> Result<Written, Error> {
    write_with_fallback(target, Path::new(FALLBACK), reports)
}

/// Creates the folder that belongs to the reports of a run, `x.plimsoll.d`, and thereby reserves
/// their name. Returns the target of the reports, with a number in the name if the name was taken,
/// and the folder. Both are absolute, since the application may change its directory.
///
/// # Errors
/// [`Error::Write`] if the folder cannot be created.
pub fn claim_folder(target: &Target) -> Result<(Target, PathBuf), Error> {
    let failed = |path: &Path, source| Error::Write { path: path.into(), source };
    let directory = std::path::absolute(&target.directory)
        .map_err(|source| failed(&target.directory, source))?;
    create_directory(&directory)?;
    let stem = shortened(&target.stem);
    for number in 1..MAX_NUMBER {
        let stem = numbered(&stem, number);
        if is_taken(&directory, &stem) {
            continue;
        }
        let folder = directory.join(with_extension(&stem, FOLDER_EXTENSION));
        // Spools are private to the user.
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok((Target { directory: directory.clone(), stem }, folder)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(&folder, source)),
        }
    }
    Err(failed(&directory.join(stem), io::ErrorKind::AlreadyExists.into()))
}

/// Creates a directory with all directories around it, unless it exists.
fn create_directory(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(|source| {
        let source = match source.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("it is no directory"),
            _ => source,
        };
        Error::Write { path: directory.into(), source }
    })
}

/// Returns whether there are reports of that name.
pub(super) fn is_taken(directory: &Path, stem: &OsString) -> bool {
    let place = |extension: &&str| directory.join(with_extension(stem, extension));
    REPORT_EXTENSIONS.iter().map(place).any(|path| path.symlink_metadata().is_ok())
}

pub(super) fn numbered(stem: &OsString, number: u32) -> OsString {
    let mut name = stem.clone();
    if number > 1 {
        name.push(format!("-{number}"));
    }
    name
}

fn with_extension(stem: &OsString, extension: &str) -> OsString {
    let mut name = stem.clone();
    name.push(format!(".plimsoll.{extension}"));
    name
}

pub(super) fn write_with_fallback(
    target: &Target,
    fallback: &Path,
    reports: &dyn Reports,
) -> Result<Written, Error> {
    let wanted = match write_all(target, reports) {
        Ok(files) => return Ok(Written { files, fallback: None }),
        Err(error) => error,
    };
    match write_all(&target.moved_to(fallback), reports) {
        Ok(files) => Ok(Written { files, fallback: Some(wanted) }),
        Err(fallback) => {
            Err(Error::NoPlace { wanted: Box::new(wanted), fallback: Box::new(fallback) })
        }
    }
}

pub(super) fn write_all(target: &Target, reports: &dyn Reports) -> Result<Vec<PathBuf>, Error> {
    let stem = shortened(&target.stem);
    create_directory(&target.directory)?;
    let mut drafts = Vec::new();
    for extension in reports.extensions() {
        let write = |to: &mut dyn Write| reports.write(extension, to);
        drafts.push(Draft::write(&target.directory, &stem, extension, &write)?);
    }
    for number in 1..MAX_NUMBER {
        if let Some(files) = publish_all(&drafts, &target.directory, &stem, number)? {
            return Ok(files);
        }
    }
    let source = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(Error::Write { path: target.directory.join(stem), source })
}

pub(super) fn shortened(stem: &OsString) -> OsString {
    let bytes = stem.as_bytes();
    std::ffi::OsStr::from_bytes(&bytes[..bytes.len().min(MAX_STEM_BYTES)]).into()
}

/// Gives all drafts their names with this number; `None` if one of the names is taken.
pub(super) fn publish_all(
    drafts: &[Draft],
    directory: &Path,
    stem: &OsString,
    number: u32,
) -> Result<Option<Vec<PathBuf>>, Error> {
    let stem = numbered(stem, number);
    let name = |draft: &Draft| directory.join(with_extension(&stem, &draft.extension));
    let paths: Vec<PathBuf> = drafts.iter().map(name).collect();
    let mut outcome = publish(&paths, |index| drafts[index].link(&paths[index]));
    if outcome.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
        outcome = publish_without_links(drafts, &paths);
    }
    match outcome {
        Ok(()) => Ok(Some(paths)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(source) => Err(Error::Write { path: directory.join(&stem), source }),
    }
}

/// Publishes without hard links: empty files reserve the names first. Creating a file tests whether
/// its name is free, and replacing the file is atomic.
fn publish_without_links(drafts: &[Draft], paths: &[PathBuf]) -> io::Result<()> {
    publish(paths, |index| {
        OpenOptions::new().write(true).create_new(true).open(&paths[index]).map(drop)
    })?;
    for (draft, path) in drafts.iter().zip(paths) {
        if let Err(error) = draft.replace(path) {
            withdraw(paths);
            return Err(error);
        }
    }
    Ok(())
}

/// Takes one name after the other, or none of them.
fn publish(paths: &[PathBuf], take: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    for index in 0..paths.len() {
        if let Err(error) = take(index) {
            withdraw(&paths[..index]);
            return Err(error);
        }
    }
    Ok(())
}

/// Removes files published a moment ago, before their names were reported.
pub(super) fn withdraw(paths: &[PathBuf]) {
    for path in paths {
        // A failure has no remedy, and the caller reports the original error.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    use super::super::draft::fill;
    use super::*;

    /// Reports with constant content.
    struct Said([(&'static str, &'static str); 2]);

    const REPORTS: Said = Said([("txt", "text"), ("json", "{}")]);

    impl Reports for Said {
        fn name_sides(&mut self, _: Result<&[PathBuf], &Error>) {}

        fn extensions(&self) -> &[&'static str] {
            &["txt", "json"]
        }

        fn write(&self, extension: &str, to: &mut dyn Write) -> io::Result<()> {
            let (_, content) = self.0.iter().find(|(end, _)| *end == extension).unwrap();
            to.write_all(content.as_bytes())
        }
    }

    fn target(directory: &Path) -> Target {
        Target { directory: directory.into(), stem: "run".into() }
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn reports_of_a_run_share_a_name_that_was_free() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("not/there/yet");
        for number in ["", "-2"] {
            let written = write_reports(&target(&place), &REPORTS).unwrap();
            let expected =
                ["txt", "json"].map(|end| place.join(format!("run{number}.plimsoll.{end}")));
            assert_eq!(written.files, expected);
            assert!(written.fallback.is_none());
        }
        // One taken name is enough to skip the number.
        fs::write(place.join("run-3.plimsoll.json"), "mine").unwrap();
        let written = write_reports(&target(&place), &REPORTS).unwrap();
        assert_eq!(written.files[0], place.join("run-4.plimsoll.txt"));
        assert_eq!(fs::read(place.join("run-3.plimsoll.json")).unwrap(), b"mine");
        assert_eq!(fs::read(&written.files[0]).unwrap(), b"text");
        assert_eq!(names(&place).len(), 7, "{:?}", names(&place));
    }

    #[test]
    fn a_folder_takes_the_name_of_the_reports() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("not/there/yet");
        let (first, folder) = claim_folder(&target(&place)).unwrap();
        assert_eq!((first, &folder), (target(&place), &place.join("run.plimsoll.d")));
        assert!(folder.is_dir());
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // A folder or a report of another run takes a number each.
        fs::write(place.join("run-2.plimsoll.txt"), "mine").unwrap();
        let (third, folder) = claim_folder(&target(&place)).unwrap();
        assert_eq!(folder, place.join("run-3.plimsoll.d"));
        let written = write_reports(&third, &REPORTS).unwrap();
        assert_eq!(written.files[0], place.join("run-3.plimsoll.txt"));
        fs::write(directory.path().join("file"), "").unwrap();
        let error = claim_folder(&target(&directory.path().join("file"))).unwrap_err().to_string();
        assert!(error.ends_with("/file cannot be written: it is no directory."), "{error}");
    }

    #[test]
    fn reports_are_published_without_hard_links() {
        for create in [Draft::anonymous, Draft::named] {
            let directory = tempfile::tempdir().unwrap();
            let draft = |extension: &&'static str| {
                let stem = "run".into();
                let (draft, file) = create(directory.path(), &stem, extension).unwrap();
                fill(file, &|to| REPORTS.write(extension, to)).unwrap();
                draft
            };
            let drafts: Vec<Draft> = REPORTS.extensions().iter().map(draft).collect();
            let paths = ["a.txt", "a.json"].map(|name| directory.path().join(name));
            fs::write(&paths[1], "mine").unwrap();
            let refused = publish_without_links(&drafts, &paths).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert!(!paths[0].exists());
            fs::remove_file(&paths[1]).unwrap();
            publish_without_links(&drafts, &paths).unwrap();
            drop(drafts);
            assert_eq!(fs::read(&paths[1]).unwrap(), b"{}");
            assert_eq!(names(directory.path()), BTreeSet::from(["a.json".into(), "a.txt".into()]));
        }
    }

    #[test]
    fn many_writers_of_one_name_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = target(directory.path());
        let contents: Vec<&'static str> =
            (0..16).map(|writer| &*format!("writer {writer}").leak()).collect();
        std::thread::scope(|scope| {
            for content in &contents {
                let place = &place;
                scope.spawn(move || {
                    let said = Said([("txt", content), ("json", content)]);
                    write_reports(place, &said).unwrap();
                });
            }
        });
        let read = |end: &str| -> BTreeSet<String> {
            let all = names(directory.path()).into_iter().filter(|name| name.ends_with(end));
            all.map(|name| fs::read_to_string(directory.path().join(name)).unwrap()).collect()
        };
        let all: BTreeSet<String> = contents.iter().map(|said| said.to_string()).collect();
        assert_eq!((read("txt"), read("json")), (all.clone(), all));
        assert_eq!(names(directory.path()).len(), 32);
    }

    #[test]
    fn an_unwritable_report_goes_elsewhere_with_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let fallback = directory.path().join("fallback");
        let written = write_with_fallback(&target(&file.join("x")), &fallback, &REPORTS).unwrap();
        assert_eq!(written.files[0], fallback.join("run.plimsoll.txt"));
        let message = written.fallback.unwrap().to_string();
        assert!(message.ends_with("a part of its path is not a directory."), "{message}");

        let error = write_with_fallback(&target(&file.join("x")), &file.join("y"), &REPORTS);
        let message = error.unwrap_err().to_string();
        assert!(message.ends_with("Set PLIMSOLL_OUTPUT to a directory that can be written."));
    }

    #[test]
    fn long_names_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let place = Target { directory: directory.path().into(), stem: "x".repeat(400).into() };
        assert!(write_reports(&place, &REPORTS).unwrap().fallback.is_none());
    }
}
