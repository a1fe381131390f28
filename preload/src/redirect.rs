//! Wraps the recent functions of MPI, in programs with an MPI that provides them, the functions of
//! Fortran without an underscore, and the functions of GCC's OpenMP runtime.
//!
//! An exported wrapper makes its function exist: a program that tests for the function by a weak
//! reference, as mpi4py does, would find it under an MPI that lacks it. It also takes the place of
//! functions with the same name in other libraries: the interface of R to MPI has functions of its
//! own named mpi_send, mpi_recv and so on. So the wrappers of recent functions and of such names
//! are not exported, and neither are those of the OpenMP runtime (`gomp.rs`). Instead,
//! the entries of a module's global offset table that lead to such a function are redirected to its
//! wrapper (System V ABI for x86-64, 4.4 and 5.2): after the program's start, after a dlopen, and
//! when MPI begins.

use std::ffi::{CStr, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_agent::loader;
use plimsoll_calls::{CALLS, Convention, MAX_SYMBOL_BYTES, SYMBOLS};
use plimsoll_comm::mpi::Definitions;
use plimsoll_sys::lock::Lock;

use crate::stubs::{MpiStub, UNEXPORTED};
use crate::{gomp, real};

/// Relocations of table entries that hold a function's address (System V ABI, table 4.9).
const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// Section index of a symbol that its module does not define (gABI, chapter 4).
const SHN_UNDEF: u16 = 0;

const PAGE: usize = 4096;

/// Beginnings of the names of functions that may be redirected.
const PREFIXES: [&[u8]; 4] = [b"MPI_", b"mpi_", b"GOMP_", b"omp_"];

/// A relocation with its addend (gABI, chapter 4, Relocation).
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Addresses of a module's tables, as its dynamic section gives them; `lists` holds address and
/// bytes of each relocation list.
#[derive(Default)]
struct Tables {
    symbols: u64,
    strings: u64,
    /// Index of each symbol's version; 0: the module has no versions.
    versions: u64,
    /// The versions that the module needs; 0: none.
    needed: u64,
    lists: [(u64, u64); 2],
}

/// A function and the wrapper that its calls are redirected to.
#[derive(Clone, Copy)]
pub struct Target {
    /// Symbol of the function.
    pub name: &'static [u8],
    /// Version of the symbol; `None` if there is only one.
    pub version: Option<&'static [u8]>,
    /// Address of the function.
    pub definition: usize,
    /// Address of the wrapper.
    pub wrapper: usize,
    /// Target of an entry that is bound at its first call.
    pub unbound: Binding,
}

/// Function that an entry will be bound to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The definition of the target.
    ToDefinition,
    /// A definition that is not known, so that the entry stays as it is.
    Unknown,
}

/// Redirects the calls of all modules that are loaded now.
pub fn redirect_calls() {
    // Before the iteration: the lookup takes the loader's first lock, and an iteration its second.
    let mut targets = targets();
    targets.extend(gomp::targets());
    targets.sort_unstable_by_key(|target| target.name);
    if !targets.is_empty() {
        // Tables are writable for a moment. Iterations exclude each other, and a fork.
        loader::each_object(&mut |info| {
            // SAFETY: the loader provides the description of the module.
            unsafe { redirect_of(info, &targets) };
            ControlFlow::Continue(())
        });
    }
}

/// Functions of one MPI that are wrapped.
struct MpiTargets {
    /// Definition of MPI_Init, which identifies the MPI.
    init: usize,
    targets: Vec<Target>,
}

/// Functions found by the first lookup in an MPI. A function that the MPI lacks would otherwise be
/// looked up after each dlopen by Plimsoll's own thread, and at its first lookup that fails the C
/// library reserves 64 MiB of address space for that thread.
static FOUND: Lock<Option<MpiTargets>> = Lock::new(None);

/// Returns the functions of MPI to be wrapped. Looked up before the loader's list of
/// modules is locked, since the lookup takes another lock of the loader's first.
fn targets() -> Vec<Target> {
    let definitions = Definitions::default();
    let definition = |name: &CStr| definitions.next(name, std::ptr::null());
    let Some(init) = definition(c"MPI_Init").map(|init| init as usize) else { return Vec::new() };
    // Never waits for the lock, which a forked child may have inherited.
    if let Some(found) = FOUND.try_lock()
        && let Some(found) = found.as_ref().filter(|found| found.init == init)
    {
        return found.targets.clone();
    }
    // The lookup of a symbol that does not exist takes longest.
    let has_fortran = definition(c"mpi_send_").is_some();
    let target = |stub: &MpiStub| {
        let convention = SYMBOLS[stub.symbol_variant].convention;
        if convention == Convention::Fortran && !has_fortran {
            return None;
        }
        // A library of its own may define the symbol for itself, but not the most common symbol of
        // MPI's function, which is another name of one definition.
        let usual = SYMBOLS.iter().find(|symbol| symbol.convention == convention)?;
        let mut room = [0; MAX_SYMBOL_BYTES];
        let call = &CALLS[usize::from(stub.call) - 1];
        let definition = definition(usual.spell(call, &mut room))?;
        let unbound = match convention {
            Convention::C => Binding::ToDefinition,
            _ if real::resolve(stub.name, None) == Some(definition) => Binding::ToDefinition,
            _ => Binding::Unknown,
        };
        Some(Target {
            name: stub.name.to_bytes(),
            version: None,
            definition: definition as usize,
            wrapper: stub.wrapper as usize,
            unbound,
        })
    };
    let targets: Vec<Target> = UNEXPORTED.iter().filter_map(target).collect();
    if let Some(mut found) = FOUND.try_lock() {
        *found = Some(MpiTargets { init, targets: targets.clone() });
    }
    targets
}

/// # Safety
/// The loader describes a module that stays mapped during the call.
unsafe fn redirect_of(info: &libc::dl_phdr_info, targets: &[Target]) {
    // SAFETY: as the caller promises.
    unsafe {
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let own = redirect_calls as *const () as u64;
        let holds = |address: u64| loader::segments(info).any(|segment| segment.contains(&address));
        if !holds(own)
            && let Some(tables) = tables(info.dlpi_addr, headers)
        {
            for (list, bytes) in tables.lists {
                for at in 0..bytes as usize / size_of::<Relocation>() {
                    let relocation = (list as *const Relocation).add(at).read();
                    redirect(info.dlpi_addr, &tables, &relocation, targets, &holds);
                }
            }
        }
    }
}

impl Tables {
    /// Returns the version of the symbol at `index` that the module needs; `None` if the module
    /// names none (ELF gABI extension of GNU: Symbol Versioning, LSB Core 5.0, 10.7).
    ///
    /// # Safety
    /// The tables are those of a loaded module, and the symbol is one of its own.
    unsafe fn version(&self, index: usize) -> Option<&CStr> {
        /// Bit that hides a version from binding.
        const HIDDEN: u16 = 0x8000;
        #[repr(C)]
        struct Needed {
            version: u16,
            count: u16,
            file: u32,
            first: u32,
            next: u32,
        }
        #[repr(C)]
        struct NeededVersion {
            hash: u32,
            flags: u16,
            other: u16,
            name: u32,
            next: u32,
        }
        if self.versions == 0 || self.needed == 0 {
            return None;
        }
        // SAFETY: as the caller promises: a chain of files, each with a chain of versions.
        unsafe {
            let wanted = *(self.versions as *const u16).add(index) & !HIDDEN;
            let mut file = self.needed as *const Needed;
            loop {
                let mut version = file.byte_add((*file).first as usize).cast::<NeededVersion>();
                loop {
                    if (*version).other & !HIDDEN == wanted {
                        let name = self.strings + u64::from((*version).name);
                        return Some(CStr::from_ptr(name as *const libc::c_char));
                    }
                    match (*version).next {
                        0 => break,
                        next => version = version.byte_add(next as usize),
                    }
                }
                match (*file).next {
                    0 => return None,
                    next => file = file.byte_add(next as usize),
                }
            }
        }
    }
}

/// # Safety
/// The headers are those of a loaded module.
unsafe fn tables(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Tables> {
    const DT_STRTAB: i64 = 5;
    const DT_SYMTAB: i64 = 6;
    const DT_RELA: i64 = 7;
    const DT_RELASZ: i64 = 8;
    const DT_JMPREL: i64 = 23;
    const DT_PLTRELSZ: i64 = 2;
    const DT_VERSYM: i64 = 0x6fff_fff0;
    const DT_VERNEED: i64 = 0x6fff_fffe;
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let mut entry = bias.wrapping_add(dynamic.p_vaddr) as *const (i64, u64);
    let mut tables = Tables::default();
    loop {
        // SAFETY: the section ends with a tag of 0.
        let (tag, value) = unsafe { entry.read() };
        // The C library adds the bias in place, except in read-only tables.
        let address = if value < bias { value.wrapping_add(bias) } else { value };
        match tag {
            0 => break,
            DT_VERSYM => tables.versions = address,
            DT_VERNEED => tables.needed = address,
            DT_STRTAB => tables.strings = address,
            DT_SYMTAB => tables.symbols = address,
            DT_RELA => tables.lists[0].0 = address,
            DT_RELASZ => tables.lists[0].1 = value,
            DT_JMPREL => tables.lists[1].0 = address,
            DT_PLTRELSZ => tables.lists[1].1 = value,
            _ => {}
        }
        // SAFETY: as above.
        entry = unsafe { entry.add(1) };
    }
    tables.lists.iter_mut().filter(|(list, _)| *list == 0).for_each(|(_, bytes)| *bytes = 0);
    (tables.symbols != 0 && tables.strings != 0).then_some(tables)
}

/// # Safety
/// The tables and the relocation belong to a module loaded at `bias`; `holds` tests whether an
/// address lies in the module.
unsafe fn redirect(
    bias: u64,
    tables: &Tables,
    relocation: &Relocation,
    targets: &[Target],
    holds: &impl Fn(u64) -> bool,
) {
    let kind = relocation.info & 0xffff_ffff;
    if ![R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT].contains(&kind)
        || (kind == R_X86_64_64 && relocation.addend != 0)
    {
        return;
    }
    let symbol = (relocation.info >> 32) as usize;
    // SAFETY: the relocation names a symbol of the module's table, and the symbol a string.
    let (name, is_own) = unsafe {
        let symbol = (tables.symbols as *const libc::Elf64_Sym).add(symbol);
        let name = (tables.strings + u64::from((*symbol).st_name)) as *const libc::c_char;
        (CStr::from_ptr(name), (*symbol).st_shndx != SHN_UNDEF)
    };
    let name = name.to_bytes();
    if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return;
    }
    let first = targets.partition_point(|target| target.name < name);
    let named = targets[first..].iter().take_while(|target| target.name == name);
    let entry = bias.wrapping_add(relocation.offset);
    // SAFETY: the loader has written the entry, which is aligned. An entry that is read-only
    // afterwards (RELRO) is made writable for a moment.
    unsafe {
        let entry = &*(entry as *const AtomicUsize);
        let value = entry.load(Ordering::Acquire);
        // An entry that is not bound yet leads back into the module's own code, as does a bound
        // one of a function that the module defines.
        let is_unbound = kind == R_X86_64_JUMP_SLOT && !is_own && holds(value as u64);
        let leads_to = |target: &&Target| {
            value == target.definition
                || is_unbound
                    && target.unbound == Binding::ToDefinition
                    && target.version.is_none_or(|version| {
                        tables.version(symbol).is_some_and(|it| it.to_bytes() == version)
                    })
        };
        let Some(target) = named.into_iter().find(leads_to) else { return };
        let page = (std::ptr::from_ref(entry) as usize & !(PAGE - 1)) as *mut c_void;
        let writable = is_writable(std::ptr::from_ref(entry) as u64);
        if !writable && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        entry.store(target.wrapper, Ordering::Release);
        if !writable {
            libc::mprotect(page, PAGE, libc::PROT_READ);
        }
    }
}

/// Returns whether the page of an address is mapped for writing, as /proc/self/maps lists it.
fn is_writable(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let holds = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        (start <= address && address < end).then(|| rest.as_bytes().get(1) == Some(&b'w'))
    };
    maps.lines().find_map(holds).unwrap_or(false)
}
