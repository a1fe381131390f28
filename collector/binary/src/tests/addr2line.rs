//! Lines and inlined frames compared with addr2line(1), for every form of debug information.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{Address, Step};
use super::compiled::{Folder, Subject, compile, run};
use crate::symbols::{Source, Table, demangle};

/// A frame: function, file name, line; line 0 if unknown.
type Frame = (String, String, u32);

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Returns the frames of each address according to addr2line(1), innermost first.
fn theirs(path: &Path, addresses: &[u64]) -> HashMap<u64, Vec<Frame>> {
    let mut found: HashMap<u64, Vec<Frame>> = HashMap::new();
    for some in addresses.chunks(2000) {
        let mut command = Command::new("addr2line");
        command.args(["-a", "-f", "-i", "-e"]).arg(path);
        command.args(some.iter().map(|address| format!("{address:#x}")));
        let text = run(&mut command);
        let mut lines = text.lines().peekable();
        while let Some(address) = lines.next() {
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            let frames = found.entry(address).or_default();
            while lines.peek().is_some_and(|line| !line.starts_with("0x")) {
                let function = demangle(lines.next().unwrap());
                let place = lines.next().unwrap().split(" (disc").next().unwrap();
                let (file, line) = place.rsplit_once(':').unwrap();
                let line = line.parse().unwrap_or(0);
                let file = if line == 0 { String::new() } else { file_name(file) };
                frames.push((function, file, line));
            }
        }
    }
    found
}

/// Returns the frames of an address according to this crate, innermost first.
fn ours(subject: &mut Subject, address: u64) -> Vec<Frame> {
    let place = subject.structures.place(subject.module, Address::Leaf(address));
    let function = place.function.ok().and_then(|function| function.name.clone());
    let mut names = vec![function.as_deref().unwrap_or("??").to_owned()];
    let mut places = Vec::new();
    for step in &place.steps {
        if let Step::Inlined(inlined) = step {
            names.push(inlined.function.to_string());
            places.push(inlined.call.clone());
        }
    }
    places.push(place.location);
    let place = |place: Option<super::super::Location>| {
        place.map_or((String::new(), 0), |place| (file_name(&place.file), place.line))
    };
    let mut frames: Vec<Frame> = names
        .into_iter()
        .zip(places)
        .map(|(name, location)| {
            let (file, line) = place(location);
            (name, file, line)
        })
        .collect();
    frames.reverse();
    frames
}

/// Counts of agreement with addr2line(1), by address.
#[derive(Debug, Default)]
struct Counts {
    addresses: usize,
    inlined: usize,
    depths_differ: usize,
    lines_differ: usize,
    files_differ: usize,
    names_differ: usize,
}

impl Counts {
    /// Asserts sufficient agreement. addr2line(1) has faults: binutils 2.40 reads wrong files from
    /// DWARF 5 tables (for example line 175 of `new` in a source of 60 lines), leaves out inlined
    /// calls with ranges in DWARF 5 lists, and lacks the name of an inlined function if the name
    /// stands in another entry (it repeats the caller's).
    fn check(&self, what: &str) {
        println!("{what}: {self:?}");
        assert!(self.addresses > 100, "{what}: {self:?}");
        assert_eq!(self.lines_differ, 0, "{what}: {self:?}");
        assert!(self.depths_differ * 100 <= self.addresses, "{what}: {self:?}");
        assert!((self.names_differ + self.files_differ) * 8 <= self.addresses, "{what}: {self:?}");
        if !what.contains("dwarf-5") {
            assert_eq!(self.depths_differ + self.files_differ, 0, "{what}: {self:?}");
        }
    }
}

/// Compares the frames found in `path` with those of addr2line(1) in `reference`.
fn compare(path: &Path, reference: &Path, addresses: &[u64], folders: &[PathBuf]) -> Counts {
    let theirs = theirs(reference, addresses);
    let mut subject = Subject::with_debug_folders(path, folders);
    let mut counts = Counts::default();
    for address in addresses {
        let (ours, mut theirs) = (ours(&mut subject, *address), theirs[address].clone());
        if ours.len() < theirs.len() {
            // A function that is inlined in itself is one frame here.
            theirs.dedup_by(|outer, inner| outer.0 == inner.0);
        }
        counts.addresses += 1;
        counts.inlined += usize::from(theirs.len() > 1);
        let all =
            |same: fn(&Frame, &Frame) -> bool| ours.iter().zip(&theirs).all(|(a, b)| same(a, b));
        let differ = if ours.len() != theirs.len() {
            &mut counts.depths_differ
        } else if !all(|a, b| a.2 == b.2) {
            &mut counts.lines_differ
        } else if !all(|a, b| a.1 == b.1) {
            &mut counts.files_differ
        } else if !all(|a, b| a.0 == b.0) {
            &mut counts.names_differ
        } else {
            continue;
        };
        *differ += 1;
        if *differ < 3 {
            println!("{address:#x}\n    ours {ours:?}\n  theirs {theirs:?}");
        }
    }
    counts
}

/// Returns every `every`th address of the functions of a file.
fn addresses(path: &Path, every: usize) -> Vec<u64> {
    let table = Table::read(&Source::open(path).unwrap(), &[]).unwrap();
    table.functions().map(|it| it.range()).flat_map(|range| range.step_by(every)).collect()
}

const LANGUAGES: [(&str, &str); 5] = [
    ("gcc", "loops.c"),
    ("g++", "inlined.cpp"),
    ("gfortran", "nests.f90"),
    ("clang", "loops.c"),
    ("clang++", "inlined.cpp"),
];

fn build(folder: &Folder, compiler: &str, flags: &[&str], subject: &str) -> PathBuf {
    let flags: Vec<&str> = flags.iter().copied().chain(["-shared", "-fPIC"]).collect();
    compile(folder, compiler, &flags, &[subject])
}

#[test]
fn lines_agree_with_addr2line() {
    for (compiler, subject) in LANGUAGES {
        for optimised in ["-O0", "-O2", "-O3"] {
            for version in ["-gdwarf-4", "-gdwarf-5"] {
                let folder = Folder::new();
                let path = build(&folder, compiler, &["-g", version, optimised], subject);
                let counts = compare(&path, &path, &addresses(&path, 3), &[]);
                counts.check(&format!("{compiler} {optimised} {version}"));
            }
        }
    }
    for optimised in ["0", "3"] {
        let folder = Folder::new();
        let optimise = format!("opt-level={optimised}");
        let flags = ["--edition=2024", "-Cdebuginfo=2", "-C", &optimise];
        let path = compile(&folder, "rustc", &flags, &["iterators.rs"]);
        let own = Table::read(&Source::open(&path).unwrap(), &[]).unwrap();
        let own = own
            .named_functions()
            .filter(|(_, name)| ["pairs", "chained", "checked"].contains(&name.as_str()));
        let addresses: Vec<u64> = own.flat_map(|(range, _)| range.step_by(3)).collect();
        compare(&path, &path, &addresses, &[]).check(&format!("rustc {optimised}"));
    }
}

#[test]
fn a_function_inlined_in_itself_is_one_frame() {
    let folder = Folder::new();
    let path = build(&folder, "g++", &["-g", "-O2"], "inlined_in_itself.cpp");
    let addresses = addresses(&path, 1);
    let theirs = theirs(&path, &addresses);
    let mut subject = Subject::new(&path);
    for function in ["sum", "Writer::checkpoint"] {
        // Addresses at which addr2line(1) shows the function in itself.
        let twice =
            |frames: &[Frame]| frames.windows(2).any(|two| two.iter().all(|it| it.0 == function));
        let found: Vec<u64> = addresses.iter().copied().filter(|it| twice(&theirs[it])).collect();
        assert!(!found.is_empty(), "{function}");
        for address in found {
            let ours = ours(&mut subject, address);
            let count = ours.iter().filter(|frame| frame.0 == function).count();
            assert_eq!(count, 1, "{address:#x}: {ours:?}");
        }
    }
}

#[test]
fn all_forms_of_debug_information_agree() {
    for (compiler, subject) in [("g++", "inlined.cpp"), ("clang++", "inlined.cpp")] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let plain_folder = Folder::new();
            let base = ["-g", version, "-O2", "-Wl,--build-id"];
            let plain = build(&plain_folder, compiler, &base, subject);
            let addresses = addresses(&plain, 3);
            let check = |path: &Path, folders: &[PathBuf], form: &str| {
                let counts = compare(path, &plain, &addresses, folders);
                counts.check(&format!("{compiler} {version} {form}"));
            };
            for form in ["-gz=zlib", "-gz=zstd", "-gsplit-dwarf"] {
                let folder = Folder::new();
                let flags: Vec<&str> = base.into_iter().chain([form]).collect();
                if form == "-gz=zstd" && !knows(compiler, form) {
                    compress(&plain, &folder.0.join("subject"), "zstd");
                } else {
                    build(&folder, compiler, &flags, subject);
                }
                let path = folder.0.join("subject");
                check(&path, &[], form);
                // binutils' dwp does not support DWARF 5.
                if form == "-gsplit-dwarf" && version == "-gdwarf-4" {
                    pack(&folder);
                    check(&path, &[], "a package of split debug information");
                }
            }
            // Separate debug information, found by its name beside the module, then by its
            // build-id.
            let folder = Folder::new();
            let path = folder.0.join("subject");
            let debug = folder.0.join("subject.debug");
            objcopy(&["--only-keep-debug"], &plain, &debug);
            let link = format!("--add-gnu-debuglink={}", debug.display());
            objcopy(&["--strip-all", &link], &plain, &path);
            check(&path, &[], "debug link");
            // A file of the module's own name in another folder.
            let named = Folder::new();
            std::fs::create_dir(named.0.join(".debug")).unwrap();
            let of_same_name = named.0.join(".debug/subject");
            std::fs::copy(&debug, &of_same_name).unwrap();
            let link = format!("--add-gnu-debuglink={}", of_same_name.display());
            objcopy(&["--strip-all", &link], &plain, &named.0.join("subject"));
            check(&named.0.join("subject"), &[], "debug link with the module's name");
            let by_id = folder.0.join("debug/.build-id");
            let id = super::super::binary::facts(&Source::open(&path).unwrap());
            let id = super::super::debug_file::hexadecimal(&id.unwrap().build_id);
            std::fs::create_dir_all(by_id.join(&id[..2])).unwrap();
            let moved = by_id.join(&id[..2]).join(format!("{}.debug", &id[2..]));
            std::fs::rename(&debug, &moved).unwrap();
            check(&path, &[folder.0.join("debug")], "build-id");
            // Debug information of another build is ignored.
            let other_folder = Folder::new();
            let flags = ["-g", "-O1", "-Wl,--build-id"];
            let other = build(&other_folder, compiler, &flags, subject);
            objcopy(&["--only-keep-debug"], &other, &moved);
            let mut subject = Subject::with_debug_folders(&path, &[folder.0.join("debug")]);
            let frames = ours(&mut subject, addresses[addresses.len() / 2]);
            assert_eq!((frames.len(), frames[0].2), (1, 0), "{frames:?}");
        }
    }
}

/// Returns whether a compiler accepts a flag.
fn knows(compiler: &str, flag: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args([flag, "-x", "c", "-c", "/dev/null", "-o", "/dev/null"]);
    command.output().unwrap().status.success()
}

fn objcopy(flags: &[&str], from: &Path, to: &Path) {
    run(Command::new("objcopy").args(flags).arg(from).arg(to));
}

fn compress(from: &Path, to: &Path, how: &str) {
    objcopy(&[&format!("--compress-debug-sections={how}")], from, to);
}

/// Packs the split debug information in a folder into a package, and removes the parts.
fn pack(folder: &Folder) {
    let parts: Vec<PathBuf> = std::fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "dwo"))
        .collect();
    assert!(!parts.is_empty());
    run(Command::new("dwp").arg("-o").arg(folder.0.join("subject.dwp")).args(&parts));
    parts.iter().for_each(|part| std::fs::remove_file(part).unwrap());
}

#[test]
fn inlined_calls_nested_without_end_are_survived() {
    let folder = Folder::new();
    let path = compile(&folder, "gcc", &["-shared", "-nostdlib"], &["deep_inlining.s"]);
    let mut subject = Subject::new(&path);
    let names = ["deep", "plain"].map(|symbol| {
        let address = subject.range(symbol).start;
        ours(&mut subject, address).into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
    });
    assert_eq!(names, [vec!["deep"], vec!["inner", "plain"]]);
}
