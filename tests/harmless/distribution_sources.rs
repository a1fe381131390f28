//! Sources of packages of the distribution, fetched by apt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_tests::artifacts::target_dir;

/// Returns `folder` of a source package, unpacked in the target directory; the rest of the archive
/// is not unpacked. `None` if the package cannot be fetched.
pub fn folder_of_package(package: &str, folder: &str) -> Option<PathBuf> {
    let place = target_dir().join("distribution-sources").join(package);
    let unpacked = place.join("unpacked");
    let found = || {
        let entries = fs::read_dir(&unpacked).ok()?.flatten();
        entries.map(|entry| entry.path().join(folder)).find(|path| path.exists())
    };
    if let Some(path) = found() {
        return Some(path);
    }
    fs::create_dir_all(&place).ok()?;
    let archive = download(&place, package)?;
    // Renamed when complete: an interrupted unpacking must not look complete.
    let unfinished = place.join("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir(&unfinished).ok()?;
    let pattern = format!("*/{folder}/*");
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(&unfinished).args(["--wildcards", &pattern]);
    succeeds(&mut tar).then(|| fs::rename(&unfinished, &unpacked))?.ok()?;
    found()
}

/// Downloads the archive of a source package into `place`, and returns its path. apt resumes an
/// interrupted download, and skips a complete one.
///
/// Few machines have sources of packages among apt's own sources, so apt gets a configuration and
/// lists beside those of the machine, and the machine's stay as they are.
fn download(place: &Path, package: &str) -> Option<PathBuf> {
    let lists = place.join("lists");
    fs::create_dir_all(lists.join("partial")).ok()?;
    let format = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)\n";
    let targets = ["indextargets", "--format", format, "Created-By: Packages"];
    let output = Command::new("apt-get").args(targets).output().ok()?;
    let mut sources: Vec<&str> = std::str::from_utf8(&output.stdout).ok()?.lines().collect();
    sources.sort_unstable();
    sources.dedup();
    fs::write(place.join("sources.list"), sources.join("\n") + "\n").ok()?;
    let configuration = format!(
        "Dir::Etc::SourceList \"{0}/sources.list\";\nDir::Etc::SourceParts \"-\";\n\
         Dir::State::Lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n",
        place.display()
    );
    fs::write(place.join("apt.conf"), configuration).ok()?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", place.join("apt.conf")).current_dir(place);
        succeeds(command.args(arguments))
    };
    // A repository without sources makes the update fail, but the others' lists are there.
    apt(&["update"]);
    let is_downloaded = apt(&["source", "--download-only", "--tar-only", package]);
    let _ = fs::remove_dir_all(lists);
    let entries = fs::read_dir(place).ok()?.flatten();
    let mut archives = entries.map(|entry| entry.path());
    let archive = archives.find(|path| path.display().to_string().contains(".orig.tar."))?;
    is_downloaded.then_some(archive)
}

/// Runs a command and returns whether it succeeds; nothing is printed.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
