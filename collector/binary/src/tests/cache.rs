//! The on-disk cache returns the results that were stored, even after damage to its file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::super::cache::path;
use super::super::{Address, Options, SourcePosition, Structures, binary};
use super::compiled::{self, Folder, compile};
use crate::symbols::{Source, Table};

struct Subject {
    folder: Folder,
    path: PathBuf,
    build_id: Vec<u8>,
    addresses: Vec<u64>,
}

fn subject() -> Subject {
    let folder = Folder::new();
    let flags = ["-g", "-O2", "-shared", "-fPIC", "-Wl,--build-id"];
    let path = compile(&folder, "g++", &flags, &["inlined.cpp"]);
    let build_id = binary::facts(&Source::open(&path).unwrap()).unwrap().build_id;
    assert!(!build_id.is_empty());
    let table = Table::read(&Source::open(&path).unwrap(), &[]).unwrap();
    let addresses =
        table.functions().map(|it| it.range()).flat_map(|range| range.step_by(5)).collect();
    Subject { folder, path, build_id, addresses }
}

impl Subject {
    fn cache(&self) -> PathBuf {
        self.folder.0.join("cache")
    }

    fn file(&self) -> PathBuf {
        path(&self.cache(), &self.build_id)
    }

    /// Returns all places from a new instance that has only the cache, and the number of modules
    /// that it wrote.
    fn places(&self) -> (Vec<SourcePosition>, usize) {
        let cache = Some(self.cache());
        let mut structures = Structures::new(Options { debug_folders: vec![], cache });
        let module = structures.module(self.path.clone(), self.build_id.clone());
        let each = self.addresses.iter();
        let places =
            each.map(|address| structures.place(module, Address::Leaf(*address))).collect();
        (places, structures.save())
    }
}

/// Returns all fields of places as text.
fn text(places: &[SourcePosition]) -> String {
    let each = places.iter().map(|place| {
        let function = place.function.as_ref().map(|function| {
            let loops = function.loops();
            (&function.name, function.entry, &function.parts, loops, function.calls())
        });
        let graph = place.function.as_ref().ok().and_then(|function| function.graph());
        format!("{function:?} {graph:?} {:?} {:?}\n", place.steps, place.location)
    });
    each.collect()
}

#[test]
fn cached_results_equal_the_original_ones() {
    let subject = subject();
    let (first, saved) = subject.places();
    assert_eq!(saved, 1);
    let (second, saved) = subject.places();
    assert_eq!(saved, 0, "there was nothing new");
    assert_eq!(text(&first), text(&second));
    // Identity is the state of the file: a changed state means other debug information.
    let time = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::options().write(true).open(&subject.path).unwrap().set_modified(time).unwrap();
    let (third, saved) = subject.places();
    assert_eq!(saved, 1, "made anew");
    assert_eq!(text(&first), text(&third));
}

/// Stripping leaves the build-id as it is.
#[test]
fn a_program_that_is_no_longer_stripped_has_names() {
    let folder = Folder::new();
    let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--build-id"];
    let path = compile(&folder, "gcc", &flags, &["loops.c"]);
    let whole = fs::read(&path).unwrap();
    let build_id = binary::facts(&Source::open(&path).unwrap()).unwrap().build_id;
    let nested = compiled::Subject::new(&path).range("nested").start;
    let name = || {
        let cache = Some(folder.0.join("cache"));
        let mut structures = Structures::new(Options { debug_folders: vec![], cache });
        let module = structures.module(path.clone(), build_id.clone());
        let function = structures.function(module, Address::Leaf(nested)).unwrap();
        (function.name.as_deref().map(str::to_owned), structures.save())
    };
    assert!(Command::new("strip").arg(&path).status().unwrap().success());
    assert_eq!(name(), (None, 1));
    fs::write(&path, whole).unwrap();
    assert_eq!(name(), (Some("nested".to_owned()), 1));
    assert_eq!(name(), (Some("nested".to_owned()), 0));
}

#[test]
fn symbols_are_kept_for_all_addresses_that_have_them() {
    let subject = subject();
    let structures = || {
        let cache = Some(subject.cache());
        let mut structures = Structures::new(Options { debug_folders: vec![], cache });
        let module = structures.module(subject.path.clone(), subject.build_id.clone());
        (structures, module)
    };
    let symbols = |offset: u64| {
        let (mut structures, module) = structures();
        let addresses = subject.addresses.iter().map(|address| Address::Leaf(address + offset));
        let symbols: Vec<_> = addresses.map(|address| structures.symbol(module, address)).collect();
        let was_open = structures.is_open();
        (symbols, structures.save(), was_open)
    };
    let (first, saved, _) = symbols(0);
    assert!(first.iter().any(|symbol| symbol.as_ref().is_ok_and(|symbol| symbol.name.is_some())));
    assert_eq!(saved, 1);
    assert_eq!(symbols(0), (first, 0, false), "all of it is kept, and no file is opened");
    // Other addresses in the same functions, from the file and from the cache.
    let (others, ..) = symbols(1);
    fs::remove_file(subject.file()).unwrap();
    assert_eq!(symbols(1).0, others);
}

#[test]
fn a_damaged_file_is_written_anew() {
    let subject = subject();
    let (first, _) = subject.places();
    let right = std::fs::read(subject.file()).unwrap();
    let damaged: Vec<Vec<u8>> = vec![
        vec![],
        right[..right.len() / 2].to_vec(),
        vec![0; right.len()],
        [&right[..], b"more"].concat(),
    ];
    let flipped = (0..right.len()).step_by(right.len() / 20).map(|at| {
        let mut bytes = right.clone();
        bytes[at] ^= 0x10;
        bytes
    });
    for bytes in damaged.into_iter().chain(flipped) {
        std::fs::write(subject.file(), &bytes).unwrap();
        let (again, saved) = subject.places();
        assert_eq!(saved, 1);
        assert_eq!(text(&first), text(&again));
    }
    assert_eq!(subject.places().1, 0);
}

#[test]
fn jobs_that_write_at_the_same_time_leave_a_right_file() {
    let subject = Arc::new(subject());
    let first = text(&subject.places().0);
    let jobs: Vec<_> = (0..8)
        .map(|job| {
            let subject = subject.clone();
            std::thread::spawn(move || {
                for _ in 0..3 {
                    let cache = Some(subject.cache());
                    let mut structures = Structures::new(Options { debug_folders: vec![], cache });
                    let id = subject.build_id.clone();
                    let module = structures.module(subject.path.clone(), id);
                    for address in subject.addresses.iter().skip(job).step_by(8) {
                        // One byte further: not yet known to the first job.
                        structures.place(module, Address::Leaf(*address + 1));
                    }
                    structures.save();
                }
            })
        })
        .collect();
    jobs.into_iter().for_each(|job| job.join().unwrap());
    let (places, saved) = subject.places();
    assert_eq!(text(&places), first);
    assert_eq!(saved, 0, "all was kept");
    let left = std::fs::read_dir(subject.file().parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "nothing unfinished stays");
}

#[test]
fn a_folder_that_cannot_be_written_to_does_no_harm() {
    let subject = subject();
    std::fs::write(subject.cache(), "a file").unwrap();
    let (_, saved) = subject.places();
    assert_eq!(saved, 0);
    assert!(Path::new(&subject.cache()).is_file());
}

#[test]
fn a_pipe_and_a_file_of_another_user_are_as_good_as_none() {
    let subject = subject();
    let (_, new) = subject.places();
    assert!(new > 0);
    assert_eq!(subject.places().1, 0, "all is known from the cache");
    let folder = subject.file().parent().unwrap().to_owned();
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    if chown(subject.file(), Some(65534), None).is_ok() {
        assert_eq!(subject.places().1, new, "what another user says is not believed");
    } else {
        println!("SKIPPED: files are given to another user by root only");
    }
    fs::remove_file(subject.file()).unwrap();
    assert!(Command::new("mkfifo").arg(subject.file()).status().unwrap().success());
    assert_eq!(subject.places().1, new, "nobody waits for the writer of a pipe");
}

#[test]
fn functions_of_large_units_are_known_as_a_whole_before_these_are_given_back() {
    let subject = subject();
    let file = subject.folder.0.join("large.c");
    let names: String = (0..150_000).map(|number| format!("NAME{number},\n")).collect();
    let function = "int first(int n) { int s = 0; while (n--) s += n * s; return s; }
        int second(int n) { int s = 1; while (n--) s += n / s; return s; }";
    fs::write(&file, format!("enum name {{ {names} }};\nenum name it;\n{function}\n")).unwrap();
    let flags = ["-g", "-O1", "-shared", "-fPIC"];
    let path = compile(&subject.folder, "gcc", &flags, &[file.to_str().unwrap()]);
    let table = Table::read(&Source::open(&path).unwrap(), &[]).unwrap();
    let range = |name| table.named(name).next().unwrap().range();
    let mut structures = Structures::default();
    let module = structures.module(path.clone(), Vec::new());
    structures.place(module, Address::Leaf(range("first").start));
    structures.release();
    assert!(!structures.is_open());
    let function = structures.function(module, Address::Leaf(range("first").start)).unwrap();
    for block in function.graph().unwrap().blocks() {
        for address in [block.start, block.last] {
            assert!(structures.place(module, Address::Leaf(address)).location.is_some());
        }
    }
    assert!(!structures.is_open(), "nothing had to be read");
    structures.place(module, Address::Leaf(range("second").start));
    assert!(structures.is_open());
}
