//! Names of functions of this process: in its binary, the C library, and the kernel's code.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::compiled::{Folder, Subject, compile, line_of};
use crate::{Address, Step, Structures};

#[inline(never)]
extern "C" fn a_function_of_this_binary(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

/// Returns the module path and load bias of a function, according to the loader.
fn loaded(function: usize) -> (PathBuf, u64) {
    // SAFETY: dladdr only writes to the structure it is given.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(function as *const libc::c_void, &mut info), 0);
        info
    };
    // SAFETY: dladdr succeeded, so the name is a string of the loader's.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let mut path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
    if !path.exists() {
        path = std::env::current_exe().unwrap();
    }
    (path, info.dli_fbase as u64)
}

/// Returns the name of the function that holds an address of a module's file.
fn named(path: &str, build_id: Vec<u8>, address: u64) -> Option<String> {
    let mut structures = Structures::default();
    let module = structures.module(PathBuf::from(path), build_id);
    let function = structures.function(module, Address::Leaf(address)).ok()?;
    function.name.as_ref().map(|name| name.to_string())
}

fn name_of(function: usize) -> Option<String> {
    let (path, bias) = loaded(function);
    named(path.to_str().unwrap(), Vec::new(), function as u64 - bias)
}

#[test]
fn functions_of_this_binary_and_of_libc_are_found() {
    let own = name_of(a_function_of_this_binary as *const () as usize).unwrap();
    assert!(own.ends_with("names::a_function_of_this_binary"), "{own}");
    assert!(!own.contains("::h"), "{own} shows its hash");
    assert_eq!(name_of(libc::getpid as *const () as usize).as_deref(), Some("getpid"));
    assert_eq!(name_of(libc::qsort as *const () as usize).as_deref(), Some("qsort"));
}

#[test]
fn the_kernels_code_has_names_without_a_file() {
    // SAFETY: getauxval has no preconditions.
    let bias = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    // SAFETY: C strings; the kernel's library is always loaded.
    let function = unsafe {
        let library = libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!library.is_null());
        libc::dlsym(library, c"__vdso_clock_gettime".as_ptr())
    };
    let address = function.addr() as u64 - bias + 1;
    assert_eq!(named("[vdso]", Vec::new(), address).as_deref(), Some("clock_gettime"));
    assert_eq!(named("[vdso]", vec![0xaa; 20], 5), None);
}

#[test]
fn another_build_and_a_missing_file_give_no_names() {
    let (path, bias) = loaded(libc::getpid as *const () as usize);
    let address = libc::getpid as *const () as u64 - bias;
    assert_eq!(named(path.to_str().unwrap(), vec![0xaa; 20], address), None);
    for path in ["/nonexistent/lib.so", "", "/proc/self/maps", "/dev/zero"] {
        assert_eq!(named(path, Vec::new(), 5), None, "{path}");
    }
}

#[test]
fn the_functions_of_nested_symbols_do_not_depend_on_the_order_of_lookups() {
    let folder = Folder::new();
    let path = compile(&folder, "gcc", &["-shared", "-nostdlib"], &["nested_symbols.s"]);
    let whole = Subject::new(&path).range("outer");
    let order: Vec<u64> = whole.collect();
    for first in &order {
        let mut subject = Subject::new(&path);
        let mut name = |at: &u64| {
            let function = subject.structures.function(subject.module, Address::Leaf(*at)).unwrap();
            function.name.as_ref().unwrap().to_string()
        };
        name(first);
        let names: Vec<String> = order.iter().map(name).collect();
        assert_eq!(names, ["outer", "inner", "inner", "outer", "outer"], "{first:x}");
    }
}

#[test]
fn templates_of_the_language_have_its_namespace() {
    for compiler in ["g++", "clang++"] {
        let folder = Folder::new();
        let flags = ["-O2", "-g", "-shared", "-fPIC"];
        let path = compile(&folder, compiler, &flags, &["algorithms.cpp"]);
        let mut subject = Subject::new(&path);
        let range = subject.range("_Z4eachPdS_");
        let names = range.filter_map(|address| {
            let place = subject.structures.place(subject.module, Address::Leaf(address));
            let line = place.location?.line;
            let inlined = place.steps.iter().filter_map(|step| match step {
                Step::Inlined(inlined) => Some(inlined.function.to_string()),
                _ => None,
            });
            (line == line_of("algorithms.cpp", "line lambda")).then(|| inlined.collect())
        });
        let names: Vec<Vec<String>> = names.collect();
        let found = names.iter().find(|names| names.len() == 2);
        let [template, inner] = &found.expect("the lambda is inlined")[..] else { unreachable!() };
        assert!(template.starts_with("std::for_each<"), "{compiler}: {template}");
        assert!(inner.contains("operator()"), "{compiler}: {inner}");
    }
}
