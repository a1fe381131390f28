//! Loaded modules: published to the unwinder and to the consumer of the segment.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::borrow::Cow;
use std::os::unix::ffi::OsStringExt;
use std::vec::Vec;

use super::{Observed, PERMANENT};
use crate::loader;
use crate::marks::marks_disabled::{MarksDisabled, UnwinderProbe};
use crate::marks::{runtimes, unwinders};
use crate::modules::{self, LoadedModule, Snapshot};
use plimsoll_wire::segment::{MAX_MODULES, MAX_PATH, MODULES_OFFSET, ModuleEntry};

/// File of a loaded module.
#[derive(Clone, Debug)]
pub struct LoadedFile {
    /// Path as the loader knows it; the main program's path is resolved.
    pub path: Vec<u8>,
    /// GNU build-id, empty if there is none.
    pub build_id: Vec<u8>,
    /// Runtime address minus address in the file.
    pub bias: u64,
}

impl Observed {
    /// Publishes the map of the loaded modules after libraries may have been loaded, and checks
    /// whether marks are still safe with them.
    pub fn notice_modules(&self) {
        self.refresh_modules();
        // Without our lock: it takes the loader's, which a thread may hold that waits for ours, in
        // a dlclose from a constructor.
        if let Some(reason) = UnwinderProbe::REAL.reason() {
            self.disable_marks(reason);
        }
    }

    /// Returns the files of the loaded modules other than this library.
    pub fn loaded_files(&self) -> Vec<LoadedFile> {
        let file = |module: &LoadedModule| LoadedFile {
            path: path(module).into_owned(),
            build_id: module.build_id.clone(),
            bias: module.bias,
        };
        loader::while_mapped(|| {
            let loaded = modules::loaded();
            loaded.iter().filter(|module| !self.is_own(module.start)).map(file).collect()
        })
    }

    /// Publishes the map of the modules loaded now.
    fn refresh_modules(&self) {
        loader::while_mapped(|| self.show_modules(&mut self.lock.lock()));
    }

    /// Publishes the loaded modules. Lock order: the loader's lock ([`loader::while_mapped`])
    /// before `self.lock`.
    fn show_modules(&self, listing: &mut Listing) {
        // What is being unloaded may be in the loader's list still: the last dlclose shows the
        // rest.
        if listing.unloading == 0 {
            let mut loaded = modules::loaded();
            self.list_modules(listing, &mut loaded);
            self.publish(Snapshot::new(loaded));
        }
    }

    /// Prepares for the unmapping of libraries. While the result lives, handlers see only the
    /// modules that cannot be unloaded: those that were loaded with the program. Returns `None` if
    /// a thread does not release the old snapshot in time: then libraries must stay loaded.
    pub fn begin_unload(&self) -> Option<Unloading<'_>> {
        loader::while_mapped(|| self.hide_others())
    }

    fn hide_others(&self) -> Option<Unloading<'_>> {
        let mut listing = self.lock.lock();
        if listing.unloading == 0 {
            let mut stay = modules::loaded();
            self.list_modules(&mut listing, &mut stay);
            stay.truncate(PERMANENT.load(Ordering::Relaxed) as usize);
            if !self.publish(Snapshot::hiding_others(stay)) {
                self.show_modules(&mut listing);
                return None;
            }
        }
        listing.unloading += 1;
        drop(listing);
        Some(Unloading(self))
    }

    fn publish(&self, snapshot: Snapshot) -> bool {
        self.snapshots.replace(snapshot, |old| {
            self.blocks.iter().any(|block| {
                let block = block.load(Ordering::Acquire);
                // SAFETY: blocks are unlisted under the lock, which the caller holds, before they
                // are unmapped.
                !block.is_null() && unsafe { (*block).hazard.load(Ordering::SeqCst) } == old
            })
        })
    }

    /// Assigns each module its index in the segment's table and forgets the addresses of unloaded
    /// modules. A file that is loaded again at its former place keeps its index.
    fn list_modules(&self, listing: &mut Listing, loaded: &mut [LoadedModule]) {
        let header = self.header();
        // SAFETY: the mapping holds the whole table.
        let table = unsafe {
            core::slice::from_raw_parts(
                self.segment.start().add(MODULES_OFFSET).cast::<ModuleEntry>(),
                MAX_MODULES,
            )
        };
        let mut used = (header.modules.load(Ordering::Relaxed) as usize).min(MAX_MODULES);
        PERMANENT
            .compare_exchange(0, loaded.len() as u64, Ordering::Relaxed, Ordering::Relaxed)
            .ok();
        let mut known = vec![None; loaded.len()];
        let mut by_start: Vec<(u64, usize)> = Vec::new();
        by_start.extend(loaded.iter().enumerate().map(|(at, module)| (module.start, at)));
        by_start.sort_unstable();
        for (index, entry) in table[..used].iter().enumerate() {
            let start = entry.start.load(Ordering::Relaxed);
            if let Ok(at) = by_start.binary_search_by_key(&start, |(start, _)| *start) {
                let at = by_start[at].1;
                if is_of(entry, &loaded[at]) {
                    known[at] = Some(index);
                }
            }
        }
        let mut now = Vec::new();
        for (module, known) in loaded.iter_mut().zip(known) {
            let index = known.unwrap_or_else(|| {
                let index = used.min(MAX_MODULES - 1);
                if index < MAX_MODULES - 1 {
                    write_entry(&table[index], module, path(module).as_ref());
                } else {
                    write_path(&table[index], NOT_LISTED);
                }
                used = index + 1;
                index
            });
            module.index = index as u32;
            let code = (module.start, module.end, module.index);
            // Our own holds the message that is looked for.
            let is_own = module.start <= self.own_text.0 && self.own_text.1 <= module.end;
            if !listing.loaded.contains(&code) && !is_own {
                if unwinders::carries_foreign(module) {
                    self.disable_marks(MarksDisabled::ForeignUnwinder);
                } else if runtimes::walks_by_return_addresses(module) {
                    self.disable_marks(MarksDisabled::StackWalker);
                }
            }
            now.push(code);
        }
        for code in listing.loaded.iter().filter(|code| !now.contains(code)) {
            self.addresses.forget(code.0, code.1, &self.address_table());
        }
        listing.loaded = now;
        header.modules.store(used as u32, Ordering::Release);
    }
}

/// State kept between two readings of the loader's list.
#[derive(Default)]
pub(super) struct Listing {
    /// Number of dlclose calls in progress.
    unloading: u32,
    /// Code that was loaded: first address, one past the last address, index in the segment's
    /// table.
    loaded: Vec<(u64, u64, u32)>,
}

/// A dlclose call in progress. Dropped also when an exception leaves a destructor of the library.
pub struct Unloading<'a>(&'a Observed);

impl Drop for Unloading<'_> {
    fn drop(&mut self) {
        loader::while_mapped(|| {
            let mut listing = self.0.lock.lock();
            listing.unloading -= 1;
            self.0.show_modules(&mut listing);
        });
    }
}

/// Path of the last entry of the table, which stands for all modules beyond the table's capacity.
const NOT_LISTED: &[u8] = b"[beyond 4095 libraries]";
const _: () = assert!(MAX_MODULES == 4096);

/// Returns the path of a module as stored in the table.
fn path(module: &LoadedModule) -> Cow<'_, [u8]> {
    let path = if module.name.is_empty() {
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        Cow::Owned(program.into_os_string().into_vec())
    } else {
        Cow::Borrowed(module.name.as_slice())
    };
    if path.len() > MAX_PATH { Cow::Borrowed(&[]) } else { path }
}

/// Returns whether an entry describes this file, loaded at this place.
fn is_of(entry: &ModuleEntry, module: &LoadedModule) -> bool {
    let same = |stored: &[AtomicU8], length: &AtomicU32, bytes: &[u8]| {
        length.load(Ordering::Relaxed) as usize == bytes.len()
            && stored.iter().zip(bytes).all(|(a, b)| a.load(Ordering::Relaxed) == *b)
    };
    let build_id = &module.build_id[..module.build_id.len().min(entry.build_id.len())];
    entry.start.load(Ordering::Relaxed) == module.start
        && entry.end.load(Ordering::Relaxed) == module.end
        && same(&entry.build_id, &entry.build_id_bytes, build_id)
        // The program's own is always the same.
        && (module.name.is_empty() || same(&entry.path, &entry.path_bytes, &path(module)))
}

fn write_entry(entry: &ModuleEntry, module: &LoadedModule, path: &[u8]) {
    entry.bias.store(module.bias, Ordering::Relaxed);
    entry.start.store(module.start, Ordering::Relaxed);
    entry.end.store(module.end, Ordering::Relaxed);
    write_path(entry, path);
    for (place, byte) in entry.build_id.iter().zip(&module.build_id) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.build_id_bytes.store(module.build_id.len().min(20) as u32, Ordering::Relaxed);
}

fn write_path(entry: &ModuleEntry, path: &[u8]) {
    for (place, byte) in entry.path.iter().zip(path) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.path_bytes.store(path.len() as u32, Ordering::Relaxed);
}
