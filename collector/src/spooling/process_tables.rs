//! Tables and state of one process in the spool, beside the records of its threads.

use std::sync::atomic::Ordering;

use plimsoll_wire::clock_anchor::stamp_now;
use plimsoll_wire::segment::MAX_ADDRESSES;

use super::Spooling;
use crate::collected_process::{Process, final_state};
use crate::process_info::ProcessInfo;
use crate::spooling::meta::{ModuleMeta, Status};
use crate::tables::Tables;
use plimsoll_spool::Address;

/// Progress of writing a process's tables to the spool.
pub(crate) struct SpoolCursor {
    /// Number of the process in the spool.
    pub(crate) process: u32,
    addresses: u32,
    modules: usize,
    names: usize,
    functions: usize,
    /// Addresses and modules below these numbers that were not announced yet.
    missing_addresses: Vec<u32>,
    missing_modules: Vec<usize>,
}

impl SpoolCursor {
    /// Creates the empty tables of a process.
    pub(crate) fn new(process: u32) -> Self {
        Self {
            process,
            addresses: 1,
            modules: 0,
            names: 0,
            functions: 0,
            missing_addresses: Vec::new(),
            missing_modules: Vec::new(),
        }
    }

    /// Writes the modules and addresses that are new.
    fn tables(&mut self, tables: &dyn Tables, addresses: u32, spool: &mut Spooling) {
        let modules = self.modules..tables.modules().max(self.modules);
        self.modules = modules.end;
        for index in std::mem::take(&mut self.missing_modules).into_iter().chain(modules) {
            match tables.module(index).filter(|module| !module.path.is_empty()) {
                Some(module) => spool.module(ModuleMeta {
                    process: self.process,
                    index: index as u32,
                    bias: module.bias,
                    build_id: module.build_id,
                    path: String::from_utf8_lossy(&module.path).into_owned(),
                }),
                None => self.missing_modules.push(index),
            }
        }
        let address = |id| {
            let (value, module, flags) = tables.address(id)?;
            Some(Address { value, module, flags })
        };
        for id in std::mem::take(&mut self.missing_addresses) {
            match address(id) {
                Some(address) => spool.addresses(self.process, id, &[address]),
                None => self.missing_addresses.push(id),
            }
        }
        let first = self.addresses;
        self.addresses = addresses.clamp(first, MAX_ADDRESSES as u32);
        let new: Vec<Address> = (first..self.addresses)
            .map(|id| {
                address(id).unwrap_or_else(|| {
                    self.missing_addresses.push(id);
                    Address::default()
                })
            })
            .collect();
        if !new.is_empty() {
            spool.addresses(self.process, first, &new);
        }
    }
}

impl Process {
    /// Writes new table entries and the state of the process; with `end`, the run has ended then.
    pub(crate) fn write_tables(
        &mut self,
        end: Option<u64>,
        info: &ProcessInfo,
        spool: &mut Spooling,
    ) {
        let Some(mut spool_cursor) = self.spool_cursor.take() else { return };
        let header = self.segment.process();
        spool_cursor.tables(&self.segment, header.addresses.load(Ordering::Acquire), spool);
        let addresses = self.history.addresses();
        for name in addresses.named_since(spool_cursor.process, spool_cursor.names) {
            spool.name(name);
        }
        spool_cursor.names = addresses.names();
        for (module, function) in self.history.functions_since(spool_cursor.functions) {
            spool_cursor.functions += 1;
            spool.function(spool_cursor.process, *module, function);
        }
        let thread_slots = self.thread_slots.iter().flatten();
        let living = thread_slots.filter_map(|slot| {
            let reader = slot.reader.as_ref()?;
            let is_unfollowed = self.history.is_unfollowed(&reader.thread);
            Some((reader.stream?, final_state(&slot.area, is_unfollowed)))
        });
        spool.status(Status {
            process: spool_cursor.process,
            begin: self.history.begin(),
            end,
            died: self.died,
            read: stamp_now(),
            main: self.main_stream,
            period_stamps: header.period_stamps.load(Ordering::Relaxed),
            kept_period_stamps: header.kept_period_stamps.load(Ordering::Relaxed),
            ns_per_ticks_q32: header.ns_per_ticks_q32.load(Ordering::Relaxed),
            info: info.clone(),
            follows: self.history.follows(),
            threads: self.history.threads,
            unread: self.history.unread,
            record_bytes: self.history.counts.record_bytes,
            living: living.collect(),
        });
        self.spool_cursor = Some(spool_cursor);
    }
}
