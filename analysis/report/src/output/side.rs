//! Side files beside the reports, filled before the reports are made, because the reports name
//! them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use plimsoll_sys::own::Own;
use plimsoll_sys::quiet::quietly;

use super::atomic_write::{
    FALLBACK, MAX_NUMBER, is_taken, numbered, publish_all, shortened, withdraw, write_all,
    write_with_fallback,
};
use super::draft::{Content, Draft};
use super::{Reports, Target, Written};
use plimsoll_summary::error::Error;
use plimsoll_summary::npz::{self, Array};
use plimsoll_summary::per_rank_file::{EXTENSION, Table};

/// Extension of the file of kept numbers, on file systems without unnamed files.
const KEPT: &str = "numbers";

/// File of single ranks' times, and further files. No file exists before the first bytes are
/// written, and none stays unless it is published.
pub struct Side {
    target: Target,
    /// Numbers of the file, which come in any order.
    kept: Option<(Draft, Own<File>)>,
    written: Vec<Draft>,
}

/// Side files with their names.
struct Published {
    /// Target of the reports, with the same name.
    target: Target,
    paths: Vec<PathBuf>,
}

impl Side {
    /// Creates side files for the reports at `target`.
    pub fn new(target: Target) -> Self {
        Self { target, kept: None, written: Vec::new() }
    }

    fn draft(&mut self, extension: &str, content: Content<'_>) -> Result<(), Error> {
        let (directory, stem) = self.place()?;
        self.written.push(Draft::write(directory, &stem, extension, content)?);
        Ok(())
    }

    /// Creates the directory of the target. Returns it with the begin of the files' names.
    fn place(&self) -> Result<(&Path, OsString), Error> {
        let Target { directory, stem } = &self.target;
        fs::create_dir_all(directory).map_err(|source| self.failed(source))?;
        Ok((directory, shortened(stem)))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.target.directory.clone(), source }
    }

    /// Gives the files names that no other run's reports have; `None` if nothing was written.
    fn publish(self) -> Result<Option<Published>, Error> {
        let Self { target, written: drafts, .. } = self;
        if drafts.is_empty() {
            return Ok(None);
        }
        let (directory, stem) = (&target.directory, shortened(&target.stem));
        for number in 1..MAX_NUMBER {
            let name = numbered(&stem, number);
            if is_taken(directory, &name) {
                continue;
            }
            if let Some(paths) = publish_all(&drafts, directory, &stem, number)? {
                let target = Target { directory: directory.clone(), stem: name };
                return Ok(Some(Published { target, paths }));
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(Error::Write { path: directory.clone(), source })
    }
}

impl Table for Side {
    fn keep_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if self.kept.is_none() {
            let (directory, stem) = self.place()?;
            self.kept = Some(Draft::create(directory, &stem, KEPT)?);
        }
        let Some((_, file)) = &self.kept else { return Ok(()) };
        let written = quietly(|| file.get()?.write_all_at(bytes, offset));
        written.map_err(|source| self.failed(source))
    }

    fn write(&mut self, arrays: &[Array]) -> Result<(), Error> {
        let kept = self.kept.take();
        let file = kept.as_ref().map(|(_, file)| file.get()).transpose();
        let file = file.map_err(|source| self.failed(source))?;
        self.draft(EXTENSION, &|to| npz::write(to, arrays, file))
    }

    fn discard(&mut self) {
        self.kept = None;
    }

    fn attach(&mut self, extension: &str, content: &[u8]) -> Result<(), Error> {
        self.draft(extension, &|to| to.write_all(content))
    }
}

/// Writes the reports of a run with their side files, all under one name
/// ([`super::write_reports`]).
///
/// # Errors
/// [`Error::NoPlace`] if no report could be written; then no file is left behind.
pub fn write_with_side(
    target: &Target,
    side: Option<Side>,
    reports: &mut dyn Reports,
) -> Result<Written, Error> {
    write(target, side, Path::new(FALLBACK), reports)
}

fn write(
    target: &Target,
    side: Option<Side>,
    fallback: &Path,
    reports: &mut dyn Reports,
) -> Result<Written, Error> {
    let mut alone = |sides: Result<&[PathBuf], &Error>| {
        reports.name_sides(sides);
        write_with_fallback(target, fallback, reports)
    };
    let Published { target: beside, paths } = match side.map_or(Ok(None), Side::publish) {
        Ok(Some(published)) => published,
        Ok(None) => return alone(Ok(&[])),
        Err(error) => return alone(Err(&error)),
    };
    reports.name_sides(Ok(&paths));
    match write_all(&beside, reports) {
        Ok(files) => Ok(Written { files, fallback: None }),
        Err(error) => {
            // Side files must not be separated from their reports.
            withdraw(&paths);
            reports.name_sides(Err(&error));
            write_with_fallback(target, fallback, reports)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use plimsoll_summary::npz::{Arrays, Kind, Numbers};

    use super::*;

    fn target(directory: &Path) -> Target {
        Target { directory: directory.into(), stem: "run".into() }
    }

    fn side(directory: &Path) -> Side {
        let mut side = Side::new(target(directory));
        side.keep_at(4, &2f32.to_le_bytes()).unwrap();
        side.keep_at(0, &1f32.to_le_bytes()).unwrap();
        side.write(&[Array::new("table", Kind::Float, &[2], Numbers::Kept(0))]).unwrap();
        side
    }

    /// Returns the numbers of the table in a file.
    fn numbers(path: &Path) -> [f32; 2] {
        let arrays = Arrays::open(File::open(path).unwrap()).unwrap();
        let mut numbers = [0.0; 2];
        let begin = arrays.numbers("table", Kind::Float, &[2]).unwrap();
        arrays.floats(begin, &mut numbers).unwrap();
        numbers
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Report that records what it receives about the side file.
    #[derive(Default)]
    struct RecordingReports {
        received: String,
        /// Whether the reports fail at the target while there is a side file.
        is_bad: bool,
    }

    impl Reports for RecordingReports {
        fn name_sides(&mut self, sides: Result<&[PathBuf], &Error>) {
            self.is_bad &= !self.received.contains("npz");
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_owned();
            self.received = match sides {
                Ok(paths) => format!("{:?}", paths.iter().map(name).collect::<Vec<_>>()),
                Err(error) => error.to_string(),
            };
        }

        fn extensions(&self) -> &[&'static str] {
            if self.is_bad { &["no/name"] } else { &["json"] }
        }

        fn write(&self, _: &str, to: &mut dyn Write) -> io::Result<()> {
            to.write_all(self.received.as_bytes())
        }
    }

    #[test]
    fn the_report_names_the_side_file_and_shares_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("not/there/yet");
        let first =
            write_with_side(&target(&place), Some(side(&place)), &mut RecordingReports::default())
                .unwrap();
        assert_eq!(first.files, [place.join("run.plimsoll.json")]);
        assert_eq!(fs::read(&first.files[0]).unwrap(), br#"["run.plimsoll.npz"]"#);
        assert_eq!(numbers(&place.join("run.plimsoll.npz")), [1.0, 2.0]);
        // The name is taken by any file of another run.
        fs::remove_file(place.join("run.plimsoll.npz")).unwrap();
        fs::write(place.join("run-2.plimsoll.txt"), "mine").unwrap();
        let third =
            write_with_side(&target(&place), Some(side(&place)), &mut RecordingReports::default())
                .unwrap();
        assert_eq!(third.files, [place.join("run-3.plimsoll.json")]);
        assert_eq!(fs::read(&third.files[0]).unwrap(), br#"["run-3.plimsoll.npz"]"#);
        assert_eq!(names(&place).len(), 4, "{:?}", names(&place));
    }

    #[test]
    fn further_side_files_share_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut both = side(directory.path());
        both.attach("timeline", b"{}").unwrap();
        let mut alone = Side::new(target(directory.path()));
        alone.attach("timeline", b"[]").unwrap();
        let received = [both, alone].map(|side| {
            let reports = &mut RecordingReports::default();
            write_with_side(&target(directory.path()), Some(side), reports).unwrap();
            reports.received.clone()
        });
        assert_eq!(
            received,
            [r#"["run.plimsoll.npz", "run.plimsoll.timeline"]"#, r#"["run-2.plimsoll.timeline"]"#]
        );
        let read = |name| fs::read(directory.path().join(name)).unwrap();
        assert_eq!(read("run.plimsoll.timeline"), b"{}");
        assert_eq!(read("run-2.plimsoll.timeline"), b"[]");
        // A timeline alone also takes the name.
        fs::write(directory.path().join("run-3.plimsoll.timeline"), "mine").unwrap();
        let third = Some(side(directory.path()));
        write_with_side(&target(directory.path()), third, &mut RecordingReports::default())
            .unwrap();
        assert!(directory.path().join("run-4.plimsoll.npz").exists());
    }

    #[test]
    fn an_empty_side_file_does_not_exist() {
        let directory = tempfile::tempdir().unwrap();
        let mut discarded = Side::new(target(directory.path()));
        discarded.keep_at(0, b"some").unwrap();
        discarded.discard();
        for side in [None, Some(Side::new(target(directory.path()))), Some(discarded)] {
            let written =
                write_with_side(&target(directory.path()), side, &mut RecordingReports::default())
                    .unwrap();
            assert_eq!(fs::read(&written.files[0]).unwrap(), b"[]");
        }
        drop(side(directory.path()));
        let all = ["run", "run-2", "run-3"].map(|name| format!("{name}.plimsoll.json"));
        assert_eq!(names(directory.path()), BTreeSet::from(all));
    }

    #[test]
    fn a_side_file_does_not_stay_without_its_reports() {
        let directory = tempfile::tempdir().unwrap();
        let (place, fallback) = (directory.path().join("place"), directory.path().join("other"));
        let bad = &mut RecordingReports { is_bad: true, ..RecordingReports::default() };
        let written = write(&target(&place), Some(side(&place)), &fallback, bad).unwrap();
        let said = fs::read_to_string(&written.files[0]).unwrap();
        assert!(said.contains("cannot be written"), "{said}");
        assert_eq!(names(&place), BTreeSet::from(["run.plimsoll.json".to_owned()]));

        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let mut nowhere = Side::new(target(&file));
        assert!(nowhere.keep_at(0, b"x").is_err());
        nowhere.discard();
        let written =
            write(&target(&file), Some(nowhere), &fallback, &mut RecordingReports::default())
                .unwrap();
        assert_eq!(written.files, [fallback.join("run.plimsoll.json")]);
    }
}
