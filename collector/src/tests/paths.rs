//! Where paths begin, and which call sites are one context. Names come from real modules: this
//! test program and its C library.

use std::ffi::CStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use object::{Object, ObjectSymbol};

use super::kept::functions;
use super::subject::{BEGIN, STAMP_NS, Subject};
use super::{collect, path, spool};
use crate::digest::spools;
use crate::profile::{FrameKind, NodeId, ProcessProfile};
use crate::{Collector, Options};

/// A function that lends its name and its addresses.
#[inline(never)]
extern "C" fn lender(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(3) ^ std::hint::black_box(x)
}

/// Path and load address of the module that holds a function of this process.
fn module_of(function: usize) -> (String, u64) {
    // SAFETY: dladdr only writes to the structure it is given, and its name is the loader's.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(function as *const libc::c_void, &mut info), 0);
        (CStr::from_ptr(info.dli_fname).to_str().unwrap().to_owned(), info.dli_fbase as u64)
    }
}

/// Where this program's own `main`, which no Rust code can name, lies in its file.
fn offset_of_main() -> u64 {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let main = elf.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap();
    main.address()
}

/// Announces the module that holds a function of this process; returns its number.
fn announce(subject: &mut Subject, function: usize) -> u32 {
    let (name, base) = module_of(function);
    let own = std::env::current_exe().unwrap();
    let path = if name.contains(".so") { name } else { own.to_str().unwrap().to_owned() };
    subject.module(&path, base, &[])
}

/// Two return addresses in [`lender`].
pub(super) fn two_places(subject: &mut Subject) -> (u32, u32) {
    let start = lender as *const () as usize;
    let module = announce(subject, start);
    (subject.address(start as u64 + 2, module, 0), subject.address(start as u64 + 4, module, 0))
}

/// A symbol's address, by the loader.
fn loaded(name: &CStr) -> usize {
    // SAFETY: the name is a string, and no handle is involved.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not loaded");
    found as usize
}

#[test]
fn a_path_begins_at_main_or_at_the_start_routine() {
    let mut subject = Subject::new(1 << 14);
    let libc_start = loaded(c"__libc_start_main");
    let libc_module = announce(&mut subject, libc_start);
    let start_main = subject.address(libc_start as u64 + 1, libc_module, 0);
    let libc_inner = subject.address(loaded(c"qsort") as u64 + 1, libc_module, 0);
    let agent = subject.module("/nowhere/libplimsoll.so", 0, &[]);
    let trampoline = subject.address(0x7500, agent, 0);
    // A stripped program: `_start` and main have no names.
    let (entry, main, work) = (subject.code(0x1000), subject.code(0x2000), subject.code(0x3000));
    let routine = subject.code(0x4000);
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[entry, start_main, libc_inner, main, work]);
    w.sample(BEGIN + 200, &[entry, start_main, libc_inner, main, work, libc_inner]);
    w.sample(BEGIN + 250, &[entry, start_main]);
    subject.begin_thread(1, routine);
    let mut w = subject.writer(1);
    w.sample(BEGIN, &[libc_inner, trampoline, routine]);
    w.sample(BEGIN + 100, &[libc_inner, trampoline, routine, work]);
    w.sample(BEGIN + 130, &[libc_inner]);
    subject.end_at(BEGIN + 300);
    let profile = collect(&subject);
    let found: Vec<(Vec<String>, u64)> = profile.phases[0]
        .values
        .iter()
        .map(|(node, value)| (path(&profile, *node), value.exclusive_ns / STAMP_NS))
        .collect();
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert!(found.contains(&(named(&["app+0x2000", "app+0x3000"]), 150)), "{found:?}");
    assert!(found.contains(&(named(&["app+0x2000", "app+0x3000", "qsort"]), 75)), "{found:?}");
    assert!(found.contains(&(named(&["app+0x2000"]), 75)), "outside of main is main's: {found:?}");
    assert_eq!(found.len(), 3);
    let others: Vec<(Vec<String>, u64)> = profile
        .other_threads
        .iter()
        .map(|(node, value)| (path(&profile, *node), value.exclusive_ns / STAMP_NS))
        .collect();
    assert!(others.contains(&(named(&["app+0x4000", "app+0x3000"]), 65)), "{others:?}");
    assert!(others.contains(&(named(&["app+0x4000"]), 235)), "{others:?}");
}

#[test]
fn a_drain_that_goes_on_when_the_run_ends_finds_the_functions_of_its_stacks() {
    let mut subject = Subject::new(1 << 14);
    let (here, there) = two_places(&mut subject);
    let options = Options { lookup_time: Some(Duration::from_secs(60)), ..Options::default() };
    let collector = Collector::new(options);
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    subject.writer(0).sample(BEGIN + 100, &[here, there]);
    subject.end_at(BEGIN + 200);
    collector.drain_late();
    let profile = collector.finish(key).unwrap();
    assert_eq!(profile.collection.late_functions, 0);
    assert_eq!(spool.digest(&collector), profile);
    let [file] = &spools(spool.folder.path()).unwrap()[..] else { panic!("one spool") };
    assert_eq!(functions(file), (1, 1), "one function with its module");
}

#[test]
fn a_named_main_is_outermost_whatever_starts_it() {
    let mut subject = Subject::new(1 << 14);
    let starter = subject.code(0x1000);
    let work = subject.code(0x3000);
    let module = announce(&mut subject, lender as *const () as usize);
    let (_, base) = module_of(lender as *const () as usize);
    let main = subject.address(base + offset_of_main() + 1, module, 0);
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[starter, starter, main, work, main]);
    subject.end_at(BEGIN + 100);
    let profile = collect(&subject);
    let (node, _) = profile.phases[0].values.iter().find(|(_, v)| v.exclusive_ns > 0).unwrap();
    assert_eq!(path(&profile, *node), ["main", "app+0x3000", "main"], "recursion stays nested");
}

#[test]
fn call_sites_of_a_function_are_one_context_but_those_of_mpi_stay_apart() {
    let mut subject = Subject::new(1 << 14);
    let (here, there) = two_places(&mut subject);
    let work = subject.code(0x3000);
    let (barrier, read) = (subject.call("MPI_Barrier"), subject.call("read"));
    subject.module("/usr/lib/x86_64/libmpi_mpifh.so.40", 0, &[]);
    subject.module("/usr/lib/x86_64/libmpi.so.40", 0, &[]);
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[here, work]);
    w.sample(BEGIN + 200, &[there, work]);
    for (slot, place) in [here, there].into_iter().enumerate() {
        w.slot(slot as u32, &[place, barrier]);
        w.slot(slot as u32 + 2, &[place, read]);
        w.exit(BEGIN + 300 + 200 * slot as u64, slot as u32, 100, None);
        w.exit(BEGIN + 400 + 200 * slot as u64, slot as u32 + 2, 100, None);
    }
    subject.end_at(BEGIN + 600);
    let profile = collect(&subject);
    let tree = &profile.tree;
    let of = |function: &str| {
        profile.phases[0]
            .values
            .iter()
            .map(|(node, value)| (&tree.nodes[*node as usize], value))
            .filter(|(node, _)| tree.frames[node.frame as usize].function == function)
            .collect::<Vec<_>>()
    };
    let work = of("app+0x3000");
    assert_eq!(work.len(), 1);
    assert_eq!(work[0].1.exclusive_ns, 200 * STAMP_NS);
    let reads = of("read");
    assert_eq!((reads.len(), reads[0].1.calls, reads[0].0.site), (1, 2, 0));
    assert_eq!(tree.frames[reads[0].0.frame as usize].kind, FrameKind::Function);
    assert!(tree.frames[reads[0].0.frame as usize].call.is_some());
    let barriers = of("MPI_Barrier");
    assert_eq!(barriers.len(), 2);
    assert_eq!(barriers[0].0.site.abs_diff(barriers[1].0.site), 2);
    assert_eq!(barriers[0].0.parent, barriers[1].0.parent);
    let frame = &tree.frames[barriers[0].0.frame as usize];
    assert_eq!((frame.kind, frame.module.as_str()), (FrameKind::Mpi, "libmpi.so.40"));
}

/// Two calls in one loop and one in an inlined function; each label is a return address.
const CALLS: &str = "void call(void);
#define TWICE call(); RETURN(third) call(); RETURN(fourth)
#define RETURN(name) __asm__ volatile(\".globl \" #name \"\\n\" #name \":\");
static inline __attribute__((always_inline)) void exchange(void) {
    call(); RETURN(fifth)
}
void solve(int n) {
    for (int i = 0; i < n; i++) {
        call(); RETURN(first)
        call(); RETURN(second)
        TWICE
        exchange();
    }
}
";

/// Compiles [`CALLS`]; returns the addresses of its labels.
fn compile_calls(path: &Path) -> Vec<u64> {
    let source = path.with_extension("c");
    std::fs::write(&source, CALLS).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O1", "-shared", "-fPIC", "-fno-unroll-loops", "-o"]).arg(path).arg(source);
    assert!(gcc.status().unwrap().success(), "{gcc:?}");
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let labels = ["first", "second", "third", "fourth", "fifth"];
    labels.map(|label| file.symbol_by_name(label).unwrap().address()).to_vec()
}

#[test]
fn a_call_of_mpi_has_the_line_of_its_site() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.so");
    let mut subject = Subject::new(1 << 14);
    let returns = compile_calls(&path);
    let bias = 1 << 40;
    let module = subject.module(path.to_str().unwrap(), bias, &[]);
    let (reduce, read) = (subject.call("MPI_Allreduce"), subject.call("read"));
    let sites: Vec<u32> = returns.iter().map(|at| subject.address(bias + at, module, 0)).collect();
    let nowhere = subject.code(0x3000);
    let options = Options { lookup_time: Some(Duration::from_secs(60)), ..Options::default() };
    let collector = Collector::new(options);
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    let mut w = subject.writer(0);
    for (slot, site) in (0..).zip(sites.iter().chain([&nowhere])) {
        w.slot(slot, &[*site, reduce]);
        w.exit(BEGIN + 100 * u64::from(slot + 1), slot, 10, None);
    }
    w.slot(6, &[sites[0], read]);
    w.exit(BEGIN + 700, 6, 10, None);
    subject.end_at(BEGIN + 700);
    collector.drain_late();
    let profile = collector.finish(key).unwrap();
    let tree = &profile.tree;
    let called = |function: &str| {
        let of = |(node, _): &(NodeId, _)| {
            let frame = tree.frame_of(*node);
            let place = frame.file.as_deref().map(|file| (file.ends_with("calls.c"), frame.line));
            (frame.function == function).then_some((place, tree.nodes[*node as usize].site))
        };
        let mut found: Vec<_> = profile.phases[0].values.iter().filter_map(of).collect();
        found.sort_unstable();
        found
    };
    let line = |line| Some((true, Some(line)));
    let lines = [None, line(5), line(9), line(10), line(11), line(11)];
    let found = called("MPI_Allreduce");
    assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), lines);
    assert_ne!(found[4].1, found[5].1, "two calls of one line stay apart");
    assert_eq!(called("read"), [(None, 0)], "calls at several sites are one context");
    // The lines are recorded: the file is no longer needed.
    folder.close().unwrap();
    assert_eq!(spool.digest(&collector), profile);
}

#[test]
fn a_sample_in_a_call_counts_none_of_the_frames_that_are_left_out() {
    let mut subject = Subject::new(1 << 14);
    let main = subject.code(0x1000);
    let finalize = subject.call("MPI_Finalize");
    let own = subject.module("/nowhere/libplimsoll.so", 0, &[]);
    let [hook, wait] = [0x7500, 0x7600].map(|at| subject.address(at, own, 0));
    let mut w = subject.writer(0);
    w.slot(1, &[main, finalize]);
    w.sample(BEGIN + 10, &[main]);
    w.sample_as(BEGIN + 50, &[main, finalize, hook, wait], Some(20), None);
    w.exit(BEGIN + 100, 1, 70, None);
    subject.end_at(BEGIN + 100);
    let profile = collect(&subject);
    let calls =
        profile.phases[0].values.iter().map(|(node, value)| (path(&profile, *node), value.calls));
    let of_finalize = calls.filter(|(path, _)| path.last().unwrap() == "MPI_Finalize");
    assert_eq!(of_finalize.map(|(_, calls)| calls).collect::<Vec<_>>(), [1]);
}

/// A script with `main` calls `solve`, directly and through a native function of another module,
/// in which the interpreter executes it anew.
fn in_interpreter(file: &str) -> (Vec<(String, u64)>, ProcessProfile) {
    let mut subject = Subject::new(1 << 14);
    let native = subject.code(0x5000);
    let interpreter = subject.module(file, 0, &[]);
    let [run, evaluate, again] =
        [0x7100, 0x7200, 0x7300].map(|at| subject.address(at, interpreter, 0));
    let [main, in_line_12] = [11, 12].map(|line| subject.script(0, ("main", line), interpreter));
    let solve = subject.script(1, ("Solver.solve", 4), interpreter);
    let barrier = subject.call("MPI_Barrier");
    let collector = Collector::new(Options::default());
    let spool = spool(&collector);
    let key = subject.attach(&collector).unwrap();
    let mut w = subject.writer(0);
    w.sample(BEGIN + 100, &[run, main, evaluate]);
    w.sample(BEGIN + 200, &[run, main, solve, evaluate]);
    w.sample(BEGIN + 400, &[run, main, evaluate, native, run, solve, again]);
    w.slot(1, &[run, in_line_12, again, native, barrier]);
    w.exit(BEGIN + 500, 1, 100, None);
    subject.end_at(BEGIN + 500);
    collector.drain_late();
    let profile = collector.finish(key).unwrap();
    let values = profile.phases.iter().flat_map(|phase| &phase.values);
    let times = values.filter(|(_, value)| value.exclusive_ns > 0);
    let mut times: Vec<(String, u64)> = times
        .map(|(node, value)| (path(&profile, *node).join("/"), value.exclusive_ns / STAMP_NS))
        .collect();
    times.sort();
    // The names are recorded.
    assert_eq!(spool.digest(&collector), profile);
    (times, profile)
}

#[test]
fn functions_of_a_script_stand_in_the_place_of_their_interpreter() {
    let (times, profile) = in_interpreter("/usr/bin/python3.11");
    let named = |path: &str, time| (path.to_owned(), time);
    assert_eq!(
        times,
        [
            named("main", 150),
            named("main/Solver.solve", 150),
            named("main/app+0x5000/MPI_Barrier", 100),
            named("main/app+0x5000/Solver.solve", 100),
        ]
    );
    let frames = &profile.tree.frames;
    let solve = frames.iter().find(|frame| frame.function == "Solver.solve").unwrap();
    assert_eq!((solve.file.as_deref(), solve.line), (Some("/home/ada/model.py"), Some(3)));
    assert_eq!(solve.module, "model.py");
    let barrier = frames.iter().find(|frame| frame.function == "MPI_Barrier").unwrap();
    assert_eq!((barrier.file.as_deref(), barrier.line), (Some("/home/ada/model.py"), Some(12)));
}

#[test]
fn functions_of_a_program_with_an_interpreter_stay_beside_those_of_the_script() {
    let (times, _) = in_interpreter("/opt/model/ocean");
    let is_known = |path: &str| times.iter().any(|(known, _)| known == path);
    assert!(is_known("ocean+0x70ff/main/ocean+0x71ff"), "{times:?}");
}
