//! Names of reports: the user's pattern with the properties of the job filled in.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LocalTime;

/// The properties of a job that a name may contain.
#[derive(Clone, Debug)]
pub struct NameFields<'a> {
    /// Directory to which a relative pattern refers; empty: the current directory.
    pub directory: &'a Path,
    /// Path or name of the executable.
    pub executable: &'a Path,
    /// Job id ([`super::job_id`]).
    pub job: &'a str,
    /// Host name.
    pub host: &'a str,
    /// Process id.
    pub pid: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Time at which the run began.
    pub time: LocalTime,
}

/// The target of a report: its directory, and its name without number and extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The directory.
    pub directory: PathBuf,
    /// The name.
    pub stem: OsString,
}

/// Maximum length of a property within a name, in bytes. File systems allow 255 for a whole name.
const MAX_PART_BYTES: usize = 64;

impl Target {
    /// Fills in the pattern of PLIMSOLL_OUTPUT. The result is a directory if the pattern contains
    /// no `%` or ends in `/`, or if the directory exists; else it is a name. The extension of a
    /// report is removed from the name, so that `x.json` does not become `x.json.plimsoll.json`.
    pub fn new(pattern: &OsStr, fields: &NameFields) -> Self {
        let expanded = OsString::from_vec(expand(pattern.as_bytes(), fields));
        let expanded = fields.directory.join(expanded);
        let is_directory = !pattern.as_bytes().contains(&b'%')
            || pattern.as_bytes().ends_with(b"/")
            || expanded.is_dir();
        match (is_directory, expanded.parent(), expanded.file_name()) {
            (false, Some(parent), Some(name)) => {
                Self { directory: not_empty(parent), stem: without_extension(name).into() }
            }
            _ => Self { directory: not_empty(&expanded), stem: default_stem(fields).into() },
        }
    }

    /// Returns a target of equal name in another directory.
    pub fn moved_to(&self, directory: &Path) -> Self {
        Self { directory: directory.into(), stem: self.stem.clone() }
    }
}

fn not_empty(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { ".".into() } else { path.into() }
}

fn default_stem(fields: &NameFields) -> String {
    let NameFields { ranks, time, .. } = fields;
    format!("{}_{}_{ranks}p_{}", executable(fields), clean(fields.job), time.stamp())
}

fn executable(fields: &NameFields) -> String {
    clean(&fields.executable.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns the part of the pattern that is equal in all processes of a job: the folders before the
/// first one with a `%`, since host and process id differ.
pub fn shared_directory(pattern: &OsStr) -> PathBuf {
    let is_fixed = |name: &OsStr| !name.as_bytes().contains(&b'%');
    let fixed = Path::new(pattern).iter().take_while(|name| is_fixed(name)).collect::<PathBuf>();
    not_empty(&fixed)
}

/// Returns whether every `%` is followed by a known letter.
pub fn is_pattern_valid(pattern: &OsStr) -> bool {
    let mut bytes = pattern.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' && !bytes.next().is_some_and(|letter| b"ejhpnt%".contains(letter)) {
            return false;
        }
    }
    true
}

fn expand(pattern: &[u8], fields: &NameFields) -> Vec<u8> {
    let mut expanded = Vec::new();
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            expanded.push(byte);
            continue;
        }
        let letter = bytes.next().copied();
        let part = match letter {
            Some(b'e') => executable(fields),
            Some(b'j') => clean(fields.job),
            Some(b'h') => clean(fields.host),
            Some(b'p') => fields.pid.to_string(),
            Some(b'n') => fields.ranks.to_string(),
            Some(b't') => fields.time.stamp(),
            Some(b'%') | None => "%".into(),
            Some(_) => {
                expanded.push(b'%');
                expanded.extend(letter);
                continue;
            }
        };
        expanded.extend(part.into_bytes());
    }
    expanded
}

/// Reduces a property to letters, digits and `._+-`. The result begins with neither `.` nor `-`, so
/// the file is not hidden and looks like no option.
fn clean(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let mut clean: String = text.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    clean.truncate(MAX_PART_BYTES);
    let clean = clean.trim_start_matches(['.', '-']);
    if clean.is_empty() { "unknown".into() } else { clean.into() }
}

fn without_extension(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    let endings: [&[u8]; 3] = [b".txt", b".json", b".html"];
    let bytes = endings.iter().find_map(|ending| bytes.strip_suffix(*ending)).unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b".plimsoll").unwrap_or(bytes);
    if bytes.is_empty() { name } else { OsStr::from_bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    fn fields() -> NameFields<'static> {
        let time = LocalTime::at(SystemTime::now());
        NameFields {
            directory: Path::new(""),
            executable: Path::new("/opt/my app/bin/lmp:mpi"),
            job: "12[3].server",
            host: "node-a.cluster",
            pid: 99,
            ranks: 16,
            time,
        }
    }

    fn target(pattern: &str) -> (String, String) {
        let target = Target::new(OsStr::new(pattern), &fields());
        (target.directory.to_str().unwrap().into(), target.stem.to_str().unwrap().into())
    }

    #[test]
    fn directories_take_the_usual_name() {
        let usual = format!("lmp_mpi_12_3_.server_16p_{}", fields().time.stamp());
        for directory in [".", "results", "/tmp/results/", "/tmp"] {
            assert_eq!(target(directory), (directory.into(), usual.clone()));
        }
        assert_eq!(target("out/%n/"), ("out/16/".into(), usual.clone()));
        assert_eq!(target("/%%/../tmp"), ("/%/..".into(), "tmp".into()));
        assert_eq!(target(""), (".".into(), usual));
    }

    #[test]
    fn names_are_filled_in() {
        let all = format!("lmp_mpi-12_3_.server-node-a.cluster-99-16-{}", fields().time.stamp());
        assert_eq!(target("a/%e-%j-%h-%p-%n-%t"), ("a".into(), all));
        assert_eq!(target("%n%%.plimsoll.json"), (".".into(), "16%".into()));
        assert_eq!(target("%n.txt"), (".".into(), "16".into()));
        assert_eq!(target("/r/%j/x"), ("/r/12_3_.server".into(), "x".into()));
    }

    #[test]
    fn relative_names_count_from_the_given_directory() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("16")).unwrap();
        let fields = NameFields { directory: root.path(), ..fields() };
        let directory = |pattern| Target::new(OsStr::new(pattern), &fields).directory;
        assert_eq!(directory("."), root.path());
        assert_eq!(directory("results"), root.path().join("results"));
        assert_eq!(directory("%n-x"), root.path());
        // There it is an existing directory, wherever the process is now.
        assert_eq!(directory("%n"), root.path().join("16"));
        assert_eq!(directory("/scratch/me"), Path::new("/scratch/me"));
    }

    #[test]
    fn facts_are_not_in_what_all_processes_share() {
        for (pattern, shared) in [
            ("", "."),
            ("results", "results"),
            ("%e-%j", "."),
            ("/scratch/me/%h/%e", "/scratch/me"),
            ("a/100%%/b", "a"),
        ] {
            assert_eq!(shared_directory(OsStr::new(pattern)), Path::new(shared), "{pattern}");
        }
    }

    #[test]
    fn facts_cannot_lead_elsewhere() {
        let mut fields = fields();
        (fields.job, fields.host) = ("../../etc/passwd", "");
        let target = Target::new(OsStr::new("d/%j-%h"), &fields);
        assert_eq!(target.directory, Path::new("d"));
        assert_eq!(target.stem, "_.._etc_passwd-unknown");
    }

    #[test]
    fn unknown_letters_are_reported() {
        for (pattern, valid) in [("%e_%j%%", true), ("plain", true), ("%x", false), ("a%", false)] {
            assert_eq!(is_pattern_valid(OsStr::new(pattern)), valid, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_job_id_is_a_name(job in "\\PC{0,100}") {
            let cleaned = clean(&job);
            prop_assert!(!cleaned.contains('/') && !cleaned.starts_with('.'));
            prop_assert!((1..=MAX_PART_BYTES).contains(&cleaned.len()));
        }
    }
}
