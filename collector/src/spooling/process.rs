//! What is told of one process, beside the records of its threads.

use std::sync::atomic::Ordering;

use plimsoll_wire::clock::stamp_now;
use plimsoll_wire::segment::MAX_ADDRESSES;

use super::Spooling;
use crate::facts::Facts;
use crate::process::{Process, last_words};
use crate::spooling::meta::{ModuleMeta, Status};
use crate::tables::Tables;
use plimsoll_spool::Address;

/// How far a process has been told.
pub(crate) struct Told {
    /// Its number in the spool.
    pub(crate) process: u32,
    addresses: u32,
    modules: usize,
    names: usize,
    functions: usize,
    /// Addresses and modules below these numbers that were not announced yet.
    missing_addresses: Vec<u32>,
    missing_modules: Vec<usize>,
}

impl Told {
    /// Nothing but its number.
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

    /// Tells the modules and addresses that are new.
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
    /// Tells what is new, and how the process is; with `end`, that its run has ended then.
    pub(crate) fn tell(&mut self, end: Option<u64>, facts: &Facts, spool: &mut Spooling) {
        let Some(mut told) = self.told.take() else { return };
        let header = self.segment.process();
        told.tables(&self.segment, header.addresses.load(Ordering::Acquire), spool);
        for name in self.history.addresses().named_since(told.process, told.names) {
            told.names += 1;
            spool.name(name);
        }
        for (module, function) in self.history.functions_since(told.functions) {
            told.functions += 1;
            spool.function(told.process, *module, function);
        }
        let seats = self.seats.iter().flatten();
        let living =
            seats.filter_map(|seat| Some((seat.life.as_ref()?.stream?, last_words(&seat.area))));
        spool.status(Status {
            process: told.process,
            begin: self.history.begin(),
            end,
            died: self.died,
            read: stamp_now(),
            main: self.main_stream,
            period_stamps: header.period_stamps.load(Ordering::Relaxed),
            kept_period_stamps: header.kept_period_stamps.load(Ordering::Relaxed),
            ns_per_ticks_q32: header.ns_per_ticks_q32.load(Ordering::Relaxed),
            facts: facts.clone(),
            follows: self.history.follows(),
            threads: self.history.threads,
            unread: self.history.unread,
            record_bytes: self.history.counts.record_bytes,
            living: living.collect(),
        });
        self.told = Some(told);
    }
}
