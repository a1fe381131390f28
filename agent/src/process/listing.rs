//! Which files are loaded: seen by the unwinder and told to the reader of the segment.

use core::sync::atomic::Ordering;
use std::vec::Vec;

use super::{Observed, PERMANENT};
use crate::marks::retreat::{Reason, Surroundings};
use crate::marks::unwinders;
use crate::modules::{self, LoadedModule, Snapshot};
use crate::segment::{MAX_MODULES, MAX_PATH, MODULES_OFFSET, ModuleEntry};

impl Observed {
    /// Libraries may have been loaded: publishes the map of what is loaded now, and looks whether
    /// marks are still safe among them.
    pub fn notice_modules(&self) {
        self.refresh_modules();
        // Without our lock: it takes the loader's, which a thread may hold that waits for ours, in a
        // dlclose from a constructor.
        if let Some(reason) = Surroundings::REAL.reason() {
            self.retreat(reason);
        }
    }

    /// Publishes the map of what is loaded now.
    fn refresh_modules(&self) {
        let _guard = self.lock.lock();
        let mut loaded = modules::loaded();
        self.list_modules(&mut loaded);
        self.publish(Snapshot::new(loaded));
    }

    /// Runs `unload`, which may unmap libraries, while handlers see only the modules that it
    /// cannot take away: the ones that were loaded with the program. `None` without running it if a
    /// thread does not let go of what it sees: libraries may stay loaded for longer than they must.
    pub fn around_unload<R>(&self, unload: impl FnOnce() -> R) -> Option<R> {
        let hidden = {
            let _guard = self.lock.lock();
            let mut stay = modules::loaded();
            self.list_modules(&mut stay);
            stay.truncate(PERMANENT.load(Ordering::Relaxed) as usize);
            self.publish(Snapshot::hiding_others(stay))
        };
        let result = hidden.then(unload);
        self.refresh_modules();
        result
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

    /// Gives each module its index in the segment's table, and marks those that are gone.
    fn list_modules(&self, loaded: &mut [LoadedModule]) {
        let header = self.header();
        // SAFETY: the mapping holds the whole table.
        let table = unsafe {
            core::slice::from_raw_parts(
                self.segment.add(MODULES_OFFSET).cast::<ModuleEntry>(),
                MAX_MODULES,
            )
        };
        let mut used = (header.modules.load(Ordering::Relaxed) as usize).min(MAX_MODULES);
        PERMANENT
            .compare_exchange(0, loaded.len() as u64, Ordering::Relaxed, Ordering::Relaxed)
            .ok();
        let mut listed = Vec::new();
        for module in loaded.iter_mut() {
            let known = table[..used].iter().position(|entry| {
                entry.unloaded.load(Ordering::Relaxed) == 0
                    && entry.start.load(Ordering::Relaxed) == module.start
                    && entry.end.load(Ordering::Relaxed) == module.end
                    && entry.build_id_bytes.load(Ordering::Relaxed) as usize
                        == module.build_id.len().min(20)
                    && entry
                        .build_id
                        .iter()
                        .zip(&module.build_id)
                        .all(|(a, b)| a.load(Ordering::Relaxed) == *b)
            });
            let index = match known {
                Some(index) => index,
                None if used < MAX_MODULES => {
                    write_entry(&table[used], module);
                    // Our own holds the message that is looked for.
                    let is_own = module.start <= self.own_text.0 && self.own_text.1 <= module.end;
                    if !is_own && unwinders::carries_foreign(module) {
                        self.retreat(Reason::ForeignUnwinder);
                    }
                    used += 1;
                    used - 1
                }
                None => MAX_MODULES - 1,
            };
            module.index = index as u32;
            listed.push(index);
        }
        for (index, entry) in table[..used].iter().enumerate() {
            if entry.unloaded.load(Ordering::Relaxed) == 0 && !listed.contains(&index) {
                entry.unloaded.store(1, Ordering::Relaxed);
                let (start, end) =
                    (entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
                self.addresses.forget(start, end, &self.address_table());
            }
        }
        header.modules.store(used as u32, Ordering::Release);
    }
}

fn write_entry(entry: &ModuleEntry, module: &LoadedModule) {
    let resolved;
    let path: &[u8] = if module.name.is_empty() {
        use std::os::unix::ffi::OsStrExt;
        resolved = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        resolved.as_os_str().as_bytes()
    } else {
        &module.name
    };
    let path = if path.len() > MAX_PATH { &[] } else { path };
    entry.bias.store(module.bias, Ordering::Relaxed);
    entry.start.store(module.start, Ordering::Relaxed);
    entry.end.store(module.end, Ordering::Relaxed);
    for (place, byte) in entry.path.iter().zip(path) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.path_bytes.store(path.len() as u32, Ordering::Relaxed);
    for (place, byte) in entry.build_id.iter().zip(&module.build_id) {
        place.store(*byte, Ordering::Relaxed);
    }
    entry.build_id_bytes.store(module.build_id.len().min(20) as u32, Ordering::Relaxed);
}
