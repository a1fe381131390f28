//! Tests of the order of lookups, and of functions that are not looked up by the deadline.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use plimsoll_wire::segment::ADDRESS_IS_LEAF;
use tempfile::TempDir;

use super::{Addresses, Detail, Samples, Use};
use crate::profile::LateFunction;
use crate::raw_tree::IdMap;
use crate::tables::{ModuleInfo, Tables};
use plimsoll_binary::{Address, Limit, Options, Structures};

const BIAS: u64 = 1 << 40;

/// Functions with loops, in two units of a library, and the samples of each. The unit of `other`
/// has more samples than any single function of `loops.c`, but fewer than that file as a whole.
const SAMPLES: [(&str, u64); 4] =
    [("triangular", 30), ("lesser", 1), ("other", 50), ("nested", 40)];
const IN_ORDER: [&str; 4] = ["nested", "triangular", "other", "lesser"];
/// Expected late functions if none is looked up before the deadline.
const ALL_LATE: [(&str, u64); 4] =
    [("other", 50), ("nested", 40), ("triangular", 30), ("lesser", 1)];
const OTHER: &str = "int pick(int);
int other(int n) { int s = 0; for (int i = 0; i < n; i++) s += pick(i); return s; }
int lesser(int n) { int s = 1; for (int i = 0; i < n; i++) s *= pick(i); return s; }
";

/// The library, compiled once.
struct Library {
    bytes: Vec<u8>,
    /// As in [`Subject`].
    addresses: Vec<(&'static str, u64)>,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(compile);

fn compile() -> Library {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.c");
    std::fs::write(&other, OTHER).unwrap();
    let flags = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let loops = Path::new(env!("CARGO_MANIFEST_DIR")).join("binary/src/tests/subjects/loops.c");
    let path = folder.path().join("subject");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(&folder).args(flags).arg("-o").arg(&path).args([loops, other]);
    assert!(gcc.status().unwrap().success(), "{gcc:?}");
    let bytes = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut structures = Structures::default();
    let module = structures.module(path, Vec::new());
    let mut addresses = Vec::new();
    for (name, _) in SAMPLES {
        let symbol = file.symbol_by_name(name).unwrap();
        let range = symbol.address()..symbol.address() + symbol.size();
        let mut in_loop = range.filter(|address| {
            let place = structures.place(module, Address::Leaf(*address));
            place.innermost_loop().is_some()
        });
        let (first, last) = (in_loop.next().unwrap(), in_loop.last().unwrap());
        addresses.extend([(name, first), (name, last)]);
    }
    Library { bytes, addresses }
}

/// The library in a folder of its own, with a cache beside it.
struct Subject {
    folder: TempDir,
    path: PathBuf,
    build_id: Vec<u8>,
    /// Function and address in the file, indexed by id minus 1: two addresses in a loop of each
    /// function, the second one a return address.
    addresses: Vec<(&'static str, u64)>,
}

fn is_return(id: u32) -> bool {
    id.is_multiple_of(2)
}

impl Tables for Subject {
    fn address(&self, id: u32) -> Option<(u64, u32, u32)> {
        let (_, address) = self.addresses.get((id as usize).checked_sub(1)?)?;
        Some((BIAS + address, 1, if is_return(id) { 0 } else { ADDRESS_IS_LEAF }))
    }

    fn modules(&self) -> usize {
        1
    }

    fn module(&self, index: usize) -> Option<ModuleInfo> {
        let (build_id, path) = (self.build_id.clone(), self.path.as_os_str().as_bytes().to_vec());
        (index == 0).then_some(ModuleInfo { bias: BIAS, build_id, path })
    }
}

impl Subject {
    fn new() -> Self {
        let Library { bytes, addresses } = &*LIBRARY;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subject");
        std::fs::write(&path, bytes).unwrap();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        let build_id = file.build_id().unwrap().unwrap().to_vec();
        Self { folder, path, build_id, addresses: addresses.clone() }
    }

    fn structures(&self, limit: &Limit) -> Structures {
        let cache = Some(self.folder.path().join("cache"));
        Structures::with_limit(Options { debug_folders: vec![], cache }, limit.clone())
    }

    fn ids(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.addresses.len() as u32
    }

    fn function(&self, id: u32) -> &'static str {
        self.addresses[id as usize - 1].0
    }

    /// Returns the samples by address id; all samples of a function are at its first address.
    fn samples(&self) -> IdMap<u32, Samples> {
        let samples: HashMap<&str, u64> = SAMPLES.into_iter().collect();
        let with = |id: u32| {
            let own = if id % 2 == 1 { samples[self.function(id)] } else { 0 };
            (id, Samples { own, all: own })
        };
        self.ids().map(with).collect()
    }

    /// Returns addresses that were announced but not named.
    fn seen(&self) -> Addresses {
        let mut addresses = Addresses::default();
        self.ids().for_each(|id| {
            addresses.kind(id, Detail::Structure, self).unwrap();
        });
        addresses
    }

    /// Returns the addresses as a finished run uses them.
    fn used(&self) -> Vec<(u32, Use)> {
        let samples = self.samples();
        let of = |id: u32| (id, Use { detail: Detail::Structure, samples: samples[&id] });
        self.ids().map(of).collect()
    }

    /// Names all addresses as at the end of a run; returns the functions not looked up in time.
    fn finish(&self, addresses: &mut Addresses, structures: &mut Structures) -> Vec<LateFunction> {
        addresses.name_all(self.used(), self, structures);
        self.drop_given_up(addresses, structures)
    }

    fn drop_given_up(
        &self,
        addresses: &mut Addresses,
        structures: &Structures,
    ) -> Vec<LateFunction> {
        let late = addresses.without_structure(self.used(), structures);
        for id in self.ids() {
            let named = addresses.named(id).unwrap();
            assert_eq!(addresses.frame(named.frame).function, self.function(id));
            let is_whole = named.detail == Detail::Symbol;
            assert_eq!(named.steps.is_empty(), is_whole);
            assert_eq!(named.call_line.is_some(), is_return(id) && !is_whole);
        }
        late
    }

    /// Returns the functions without structure, each once per address.
    fn whole(&self, addresses: &Addresses) -> Vec<&'static str> {
        let is_whole = |id: &u32| addresses.named(*id).unwrap().detail == Detail::Symbol;
        self.ids().filter(is_whole).map(|id| self.function(id)).collect()
    }
}

fn names_and_samples(late: &[LateFunction]) -> Vec<(&str, u64)> {
    late.iter().map(|function| (function.name.as_str(), function.samples)).collect()
}

/// Returns a deadline that has passed.
fn over() -> Option<Instant> {
    Some(Instant::now())
}

#[test]
fn the_unit_and_then_the_function_with_most_samples_come_first() {
    let subject = Subject::new();
    let mut structures = subject.structures(&Limit::default());
    let mut addresses = subject.seen();
    addresses.name_some(Duration::MAX, || subject.samples(), &subject, &mut structures);
    assert!(!addresses.has_nameless());
    let (symbols, order) = addresses.order.split_at(subject.addresses.len());
    assert_eq!(symbols.len(), order.len(), "first all symbols");
    let mut functions: Vec<_> = order.iter().map(|id| subject.function(*id)).collect();
    functions.dedup();
    assert_eq!(functions, IN_ORDER);
    let named: Vec<u32> = addresses.named_since(0, 0).map(|name| name.id).collect();
    assert_eq!(named.len(), symbols.len(), "each name once");
}

#[test]
fn after_the_deadline_functions_stand_by_their_symbols_until_another_job_looks_them_up() {
    let subject = Subject::new();
    let limit = Limit::default();
    let mut structures = subject.structures(&limit);
    let module = structures.module(subject.path.clone(), subject.build_id.clone());
    structures.symbol(module, Address::Leaf(subject.addresses[0].1)).unwrap();
    limit.set(over());
    let mut addresses = subject.seen();
    let late = subject.finish(&mut addresses, &mut structures);
    assert_eq!(names_and_samples(&late), ALL_LATE);
    assert_eq!(subject.whole(&addresses).len(), 8);
    structures.save();
    // The deadline is lifted, in this job and in another.
    limit.set(None);
    structures.resume();
    assert_eq!(subject.finish(&mut addresses, &mut structures), []);
    assert_eq!(structures.save(), 1);
    // Cached structure needs no lookup time.
    limit.set(over());
    let mut structures = subject.structures(&limit);
    let mut addresses = subject.seen();
    assert_eq!(subject.finish(&mut addresses, &mut structures), []);
    assert!(!structures.is_open());
}

#[test]
fn a_function_is_looked_up_as_a_whole_or_not_at_all() {
    let subject = Subject::new();
    for is_read in [true, false] {
        let limit = Limit::default();
        let mut structures = Structures::with_limit(Options::default(), limit.clone());
        let module = structures.module(subject.path.clone(), subject.build_id.clone());
        // One address of each function was looked up while the program ran.
        for (_, address) in subject.addresses.iter().step_by(2) {
            assert!(structures.place(module, Address::Leaf(*address)).function.is_ok());
        }
        if !is_read {
            structures.release();
        }
        limit.set(over());
        let mut addresses = subject.seen();
        let late = subject.finish(&mut addresses, &mut structures);
        if is_read {
            assert_eq!(late, [], "their units are at hand");
        } else {
            assert_eq!(names_and_samples(&late), ALL_LATE);
            assert_eq!(subject.whole(&addresses).len(), 8);
        }
    }
}

#[test]
fn a_function_given_up_on_another_node_stands_by_its_symbol_here() {
    let subject = Subject::new();
    let (here, there) = (Limit::default(), Limit::default());
    let [mut in_time, mut late] = [&here, &there].map(|limit| {
        let mut structures = Structures::with_limit(Options::default(), limit.clone());
        structures.module(subject.path.clone(), subject.build_id.clone());
        structures
    });
    let module = late.module(subject.path.clone(), subject.build_id.clone());
    late.symbol(module, Address::Leaf(subject.addresses[0].1)).unwrap();
    there.set(over());
    assert_eq!(names_and_samples(&subject.finish(&mut subject.seen(), &mut late)), ALL_LATE);
    let mut addresses = subject.seen();
    assert_eq!(subject.finish(&mut addresses, &mut in_time), []);
    in_time.give_up_all(&late.given_up());
    let dropped = subject.drop_given_up(&mut addresses, &in_time);
    assert_eq!(names_and_samples(&dropped), ALL_LATE);
    assert_eq!(subject.whole(&addresses).len(), 8);
}

#[test]
fn a_deadline_that_passes_meanwhile_leaves_no_half_of_a_function() {
    let subject = Subject::new();
    for microseconds in (0..).map(|exponent| 1u64 << exponent) {
        let limit = Limit::default();
        let mut structures = Structures::with_limit(Options::default(), limit.clone());
        let module = structures.module(subject.path.clone(), subject.build_id.clone());
        structures.symbol(module, Address::Leaf(subject.addresses[0].1)).unwrap();
        limit.set(Some(Instant::now() + Duration::from_micros(microseconds)));
        let mut addresses = subject.seen();
        let late = subject.finish(&mut addresses, &mut structures);
        let mut whole = subject.whole(&addresses);
        whole.sort_unstable();
        assert!(whole.chunk_by(|one, other| one == other).all(|function| function.len() == 2));
        assert_eq!(whole.len(), 2 * late.len());
        if late.is_empty() {
            break;
        }
    }
}
