//! Map of the loaded code: an immutable snapshot, replaced outside the handler.
//!
//! The handler uses the published snapshot and never takes the loader's lock. Snapshots are rebuilt
//! when the application loads or unloads a library. Before an unload, a snapshot of only the
//! modules that are never unloaded is published, so that no handler reads unwind tables that are
//! about to be unmapped. A replaced snapshot is freed when no thread uses it any more: each thread
//! stores the snapshot that it uses in a hazard pointer.

use core::ffi::{CStr, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};

use crate::loader;
use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_sys::vdso::VDSO;

/// Bytes of a module's image. Valid while the snapshot that holds it is published or in use.
pub type ImageBytes = &'static [u8];

/// A loaded module.
#[derive(Clone, Debug)]
pub struct LoadedModule {
    /// First runtime address of the executable segments.
    pub start: u64,
    /// One past the last runtime address of the executable segments.
    pub end: u64,
    /// Runtime address minus address in the file.
    pub bias: u64,
    /// Path as the loader states it; empty for the main program.
    pub name: Vec<u8>,
    /// GNU build-id, empty if there is none.
    pub build_id: Vec<u8>,
    /// The readable executable segments. Between two of them there may be no memory.
    pub code: Vec<CodeSegment>,
    /// Names of the imported and exported functions, one after the other (`.dynstr`).
    pub names: Option<ImageBytes>,
    /// Read-only segments of the file: code and constants.
    pub constants: Vec<ImageBytes>,
    /// `.eh_frame_hdr` and `.eh_frame` with their addresses in the file.
    pub unwind: Option<UnwindTables>,
    /// Whether the module is written in Go, according to the note that Go's linker leaves.
    pub is_go: bool,
    /// Index into the segment's module table.
    pub index: u32,
}

/// An executable segment of a module.
#[derive(Clone, Copy, Debug)]
pub struct CodeSegment {
    /// First runtime address.
    pub start: u64,
    /// The code.
    pub bytes: ImageBytes,
}

impl LoadedModule {
    /// Returns the executable segment that holds a runtime address, and the address's offset in it.
    pub fn code_at(&self, address: u64) -> Option<(ImageBytes, usize)> {
        self.code.iter().find_map(|segment| {
            let offset = usize::try_from(address.checked_sub(segment.start)?).ok()?;
            (offset < segment.bytes.len()).then_some((segment.bytes, offset))
        })
    }
}

/// A module's unwind tables.
#[derive(Clone, Copy, Debug)]
pub struct UnwindTables {
    /// `.eh_frame_hdr`.
    pub header: ImageBytes,
    /// Address of `.eh_frame_hdr` in the file.
    pub header_address: u64,
    /// `.eh_frame`, up to the end of its segment.
    pub frames: ImageBytes,
    /// Address of `.eh_frame` in the file.
    pub frames_address: u64,
}

/// An immutable map of the loaded code.
pub struct Snapshot {
    /// Modules by ascending address.
    pub modules: Vec<LoadedModule>,
    /// framehop's unwinder over the same modules.
    pub unwinder: UnwinderX86_64<ImageBytes, MustNotAllocateDuringUnwind>,
    /// Whether further modules are loaded that the snapshot leaves out: their code may be on a
    /// stack but must not be read.
    pub hides: bool,
}

impl Snapshot {
    /// Builds a snapshot of `modules` that hides the other loaded modules.
    pub fn hiding_others(modules: Vec<LoadedModule>) -> Self {
        Self { hides: true, ..Self::new(modules) }
    }

    /// Builds a snapshot of `modules`, all of the loaded ones.
    pub fn new(mut modules: Vec<LoadedModule>) -> Self {
        modules.sort_by_key(|module| module.start);
        let mut unwinder = UnwinderX86_64::new();
        for module in &modules {
            let range = module.start - module.bias..module.end - module.bias;
            let mut sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: Some(range),
                ..Default::default()
            };
            if let Some(tables) = module.unwind {
                let extent = |at: u64, bytes: ImageBytes| Some(at..at + bytes.len() as u64);
                sections.eh_frame_hdr_svma = extent(tables.header_address, tables.header);
                sections.eh_frame_hdr = Some(tables.header);
                sections.eh_frame_svma = extent(tables.frames_address, tables.frames);
                sections.eh_frame = Some(tables.frames);
            }
            unwinder.add_module(Module::new(
                String::new(),
                module.start..module.end,
                module.bias,
                sections,
            ));
        }
        Self { modules, unwinder, hides: false }
    }

    /// Returns the module that holds the code at `address`; `None` if there is none.
    #[inline]
    pub fn find(&self, address: u64) -> Option<&LoadedModule> {
        let after = self.modules.partition_point(|module| module.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        (address < module.end).then_some(module)
    }
}

/// Returns the address ranges of the loader's functions that work on behalf of their caller, which
/// they look up (dlsym(3), dlopen(3), dl_iterate_phdr(3)). Takes the loader's lock.
fn asking_functions() -> Vec<core::ops::Range<u64>> {
    // SAFETY: C strings; dladdr1 fills in both results, and the symbol is the loader's.
    let range = |name: &CStr| unsafe {
        let function = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut symbol: *mut c_void = core::ptr::null_mut();
        if function.is_null()
            || dladdr1(function, &mut info, &mut symbol, RTLD_DL_SYMENT) == 0
            || symbol.is_null()
        {
            return None;
        }
        let start = function.addr() as u64;
        Some(start..start + (*symbol.cast::<libc::Elf64_Sym>()).st_size)
    };
    const NAMES: [&CStr; 6] =
        [c"dlsym", c"dlvsym", c"dlopen", c"dlmopen", c"dlclose", c"dl_iterate_phdr"];
    NAMES.into_iter().filter_map(range).collect()
}

static ASKING: std::sync::OnceLock<Vec<core::ops::Range<u64>>> = std::sync::OnceLock::new();

/// Finds the functions that [`asks_for_caller`] knows. Callers must hold none of the agent's locks:
/// a thread in a constructor holds the loader's lock while it waits for one of the agent's.
pub fn find_asking_functions() {
    ASKING.get_or_init(asking_functions);
}

/// Returns whether `address` lies in a function of the loader that looks up its caller.
pub fn asks_for_caller(address: u64) -> bool {
    ASKING.get().is_some_and(|functions| functions.iter().any(|f| f.contains(&address)))
}

/// Flag of [`dladdr1`]: the extra result is the symbol's table entry (dladdr(3)).
const RTLD_DL_SYMENT: c_int = 1;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Returns the modules that are loaded now, without their index in the segment. Their memory may be
/// read within [`loader::while_mapped`] only: a dlopen that fails unmaps its library again.
pub fn loaded() -> Vec<LoadedModule> {
    let mut modules = Vec::new();
    loader::each_object(&mut |info| {
        // SAFETY: the loader describes its own program headers.
        modules.extend(unsafe { describe(info) });
        ControlFlow::Continue(())
    });
    modules
}

/// Describes a loaded object; `None` if it has no executable segment.
///
/// # Safety
/// `info` describes an object that stays mapped while the result is in use.
unsafe fn describe(info: &libc::dl_phdr_info) -> Option<LoadedModule> {
    let bias = info.dlpi_addr;
    // SAFETY: the loader's array of program headers.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let code = || loads().filter(|header| header.p_flags & libc::PF_X != 0);
    let start = code().map(|header| bias.wrapping_add(header.p_vaddr)).min()?;
    let end = code().map(|header| bias.wrapping_add(header.p_vaddr + header.p_memsz)).max()?;
    // Bytes from a runtime address to the end of the readable segment that holds it.
    let rest_of_segment = |at: u64| {
        loads()
            .filter(|header| header.p_flags & libc::PF_R != 0)
            .map(|header| (bias.wrapping_add(header.p_vaddr), header.p_memsz))
            .find(|(first, size)| at >= *first && at < first + size)
            .map(|(first, size)| first + size - at)
    };
    let image = |at: u64, size: u64| -> ImageBytes {
        // SAFETY: the range lies in one readable segment of the object.
        unsafe { core::slice::from_raw_parts(at as *const u8, size as usize) }
    };
    let readable = code().filter(|header| header.p_flags & libc::PF_R != 0);
    let readable = readable.map(|header| {
        let start = bias.wrapping_add(header.p_vaddr);
        CodeSegment { start, bytes: image(start, header.p_memsz) }
    });
    let readable = readable.collect();
    let unwind =
        headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).and_then(|header| {
            let at = bias.wrapping_add(header.p_vaddr);
            let size = header.p_memsz.min(rest_of_segment(at)?);
            let frames = frames_address(image(at, size), at)?;
            Some(UnwindTables {
                header: image(at, size),
                header_address: at.wrapping_sub(bias),
                frames: image(frames, rest_of_segment(frames)?),
                frames_address: frames.wrapping_sub(bias),
            })
        });
    let note = |name: &[u8; 4], kind: u32| {
        headers.iter().filter(|header| header.p_type == libc::PT_NOTE).find_map(|header| {
            let at = bias.wrapping_add(header.p_vaddr);
            note(image(at, header.p_memsz.min(rest_of_segment(at)?)), name, kind)
        })
    };
    let build_id = note(b"GNU\0", GNU_BUILD_ID).unwrap_or_default();
    let is_go = note(b"Go\0\0", GO_BUILD_ID).is_some();
    let names =
        headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC).and_then(|header| {
            let at = bias.wrapping_add(header.p_vaddr);
            let (names, size) = names(image(at, header.p_memsz.min(rest_of_segment(at)?)), bias)?;
            Some(image(names, size.min(rest_of_segment(names)?)))
        });
    let constants = loads()
        .filter(|header| header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R)
        .map(|header| image(bias.wrapping_add(header.p_vaddr), header.p_filesz))
        .collect();
    // SAFETY: the loader's names are C strings.
    let mut name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().to_vec();
    // SAFETY: getauxval has no preconditions.
    if bias == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } && bias != 0 {
        name = VDSO.as_bytes().to_vec();
    }
    Some(LoadedModule {
        start,
        end,
        bias,
        name,
        build_id,
        code: readable,
        names,
        constants,
        unwind,
        is_go,
        index: 0,
    })
}

/// Returns the runtime address of `.eh_frame`, from the header at runtime address `at` (LSB, Core,
/// 10.6.2). Supports only the encoding that every linker writes: a 32-bit offset relative to the
/// field.
fn frames_address(header: &[u8], at: u64) -> Option<u64> {
    const PC_RELATIVE_I32: u8 = 0x1b;
    if header.len() < 8 || header[0] != 1 || header[1] != PC_RELATIVE_I32 {
        return None;
    }
    let offset = i32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    Some((at + 4).wrapping_add_signed(i64::from(offset)))
}

/// Returns the runtime address and size of an object's string table, from its dynamic section (ELF
/// gABI, chapter 5, Dynamic Section). The loader has relocated most of the addresses there.
fn names(dynamic: &[u8], bias: u64) -> Option<(u64, u64)> {
    const STRING_TABLE: u64 = 5;
    const STRING_TABLE_BYTES: u64 = 10;
    let (pairs, _) = dynamic.as_chunks::<16>();
    let value = |tag: u64| {
        pairs.iter().find(|pair| pair[..8] == tag.to_le_bytes()).map(|pair| {
            let (_, value) = pair.split_at(8);
            u64::from_le_bytes(value.try_into().expect("eight bytes"))
        })
    };
    let at = value(STRING_TABLE)?;
    Some((if at < bias { at + bias } else { at }, value(STRING_TABLE_BYTES)?))
}

/// Note types: the build-id of the GNU linker, and that of Go's linker.
const GNU_BUILD_ID: u32 = 3;
const GO_BUILD_ID: u32 = 4;

/// Returns the value of a note among an object's notes, by owner and type (ELF gABI, chapter 5,
/// Note Section).
fn note(mut notes: &[u8], owner: &[u8; 4], wanted: u32) -> Option<Vec<u8>> {
    let word =
        |notes: &[u8], at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
    loop {
        let (name, size, kind) =
            (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
        let value = 12 + name.next_multiple_of(4);
        if kind == wanted && notes.get(12..12 + name)? == owner {
            return notes.get(value..value + size).map(<[u8]>::to_vec);
        }
        notes = notes.get(value + size.next_multiple_of(4)..)?;
    }
}

/// Maximum wait for a thread that uses an old snapshot, in nanoseconds. A thread that is off its
/// core for longer may be stopped, or may have left the agent's code by a jump.
const TIMEOUT_NS: u64 = 2_000_000_000;

/// The published snapshot.
pub struct Published(AtomicPtr<Snapshot>);

impl Published {
    /// Creates a value without a published snapshot.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns the published snapshot, protected from being freed while `hazard` points to it.
    /// Returns `None` before the first snapshot is published.
    #[inline]
    pub fn protect(&self, hazard: &AtomicPtr<Snapshot>) -> Option<&Snapshot> {
        loop {
            let snapshot = self.0.load(Ordering::SeqCst);
            hazard.store(snapshot, Ordering::SeqCst);
            if self.0.load(Ordering::SeqCst) == snapshot {
                // SAFETY: the snapshot was still published after `hazard` was set, so `replace`
                // waits for this thread.
                return unsafe { snapshot.as_ref() };
            }
        }
    }

    /// Publishes `snapshot` and frees the replaced one once `in_use` says that no thread uses it.
    /// Returns false if a thread still uses the old snapshot after [`TIMEOUT_NS`]; then the old
    /// one is never freed. Callers must serialise their calls.
    pub fn replace(&self, snapshot: Snapshot, in_use: impl Fn(*mut Snapshot) -> bool) -> bool {
        let old = self.0.swap(Box::into_raw(Box::new(snapshot)), Ordering::SeqCst);
        if old.is_null() {
            return true;
        }
        let begin = clock_ns(libc::CLOCK_MONOTONIC);
        while in_use(old) {
            if clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(begin) > TIMEOUT_NS {
                return false;
            }
            // SAFETY: no preconditions. A handler takes microseconds, unless it is off its core.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: `old` came from `Box::into_raw`, is no longer published, and no thread uses it.
        drop(unsafe { Box::from_raw(old) });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_libraries_are_found() {
        let snapshot = Snapshot::new(loaded());
        let here = this_program_and_its_libraries_are_found as fn() as usize as u64;
        let module = snapshot.find(here).expect("the test itself is loaded");
        assert!(module.unwind.is_some() && !module.code.is_empty() && !module.build_id.is_empty());
        assert!(module.name.is_empty(), "the main program has no name in the loader");
        let libc = snapshot.find(libc::getpid as *const () as u64);
        assert!(libc.is_some());
        assert!(snapshot.find(8).is_none());
    }

    /// OpenBLAS has its code in two segments with no memory between them.
    #[test]
    fn code_in_several_segments_is_found_in_each_of_them() {
        const OFFSETS: [u64; 2] = [0x100, 0x2100];
        const SIZE: u64 = 0x80;
        let image = vec![0x90; 0x3000];
        let header = |offset| libc::Elf64_Phdr {
            p_type: libc::PT_LOAD,
            p_flags: libc::PF_R | libc::PF_X,
            p_offset: 0,
            p_vaddr: offset,
            p_paddr: 0,
            p_filesz: SIZE,
            p_memsz: SIZE,
            p_align: 0,
        };
        let headers = OFFSETS.map(header);
        // SAFETY: an object without properties.
        let mut info: libc::dl_phdr_info = unsafe { core::mem::zeroed() };
        let base = image.as_ptr() as u64;
        (info.dlpi_addr, info.dlpi_name) = (base, c"kernels.so".as_ptr());
        (info.dlpi_phdr, info.dlpi_phnum) = (headers.as_ptr(), headers.len() as u16);
        // SAFETY: the headers describe parts of `image`.
        let module = unsafe { describe(&info) }.expect("it has code");
        let at = |offset| module.code_at(base + offset).map(|(code, at)| (code.len() as u64, at));
        assert_eq!(OFFSETS.map(|offset| at(offset + 0x10)), [Some((SIZE, 0x10)); 2]);
        assert_eq!([0, 0x1000, OFFSETS[1] + SIZE].map(at), [None; 3]);
    }

    #[test]
    fn a_replaced_snapshot_waits_for_its_users() {
        let published = Published::none();
        let hazard = AtomicPtr::new(core::ptr::null_mut());
        assert!(published.protect(&hazard).is_none());
        published.replace(Snapshot::new(Vec::new()), |_| unreachable!("nothing was published"));
        let used: *const Snapshot = published.protect(&hazard).expect("published");
        let asked = core::cell::Cell::new(0);
        published.replace(Snapshot::new(loaded()), |old| {
            assert_eq!(old.cast_const(), used);
            asked.set(asked.get() + 1);
            asked.get() < 3 && hazard.load(Ordering::SeqCst) == old
        });
        assert_eq!(asked.get(), 3);
        assert!(!published.protect(&hazard).expect("published").modules.is_empty());
    }
}
