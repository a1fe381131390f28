//! Process as recorded in a spool, and the id tables of its records.

use std::collections::BTreeMap;

use plimsoll_calls::{CallId, FIRST_CODE_ADDRESS};

use crate::spooling::meta::{
    FunctionMeta, ModuleMeta, NameMeta, ProcessMeta, Status, ThreadEnd, ThreadMeta,
};
use crate::tables::{ModuleInfo, Tables};
use plimsoll_spool::Address;

/// Maximum number of modules of a process accepted from a spool.
const MAX_MODULES: usize = plimsoll_wire::segment::MAX_MODULES;

/// Contents of a spool for one process.
#[derive(Default)]
pub(super) struct Process {
    pub(super) meta: Option<ProcessMeta>,
    pub(super) modules: BTreeMap<u32, ModuleMeta>,
    pub(super) addresses: Vec<Address>,
    pub(super) names: Vec<NameMeta>,
    pub(super) functions: Vec<FunctionMeta>,
    pub(super) threads: BTreeMap<u32, ThreadMeta>,
    pub(super) ends: BTreeMap<u32, ThreadEnd>,
    pub(super) status: Option<Status>,
    /// Stamp at which the run ends because another process of the job died; `None` if no process
    /// did.
    pub(super) cut: Option<u64>,
}

/// Id tables of a process's records.
pub(super) struct Recorded<'a> {
    pub(super) process: &'a Process,
    pub(super) calls: &'a BTreeMap<CallId, CallId>,
}

impl Tables for Recorded<'_> {
    fn address(&self, id: u32) -> Option<(u64, u32, u32)> {
        let addresses = &self.process.addresses;
        let address = addresses.get(id as usize).filter(|address| address.value != 0)?;
        let value = match address.value {
            call @ ..FIRST_CODE_ADDRESS => u64::from(*self.calls.get(&(call as CallId))?),
            code => code,
        };
        Some((value, address.module, address.flags))
    }

    fn modules(&self) -> usize {
        self.process
            .modules
            .keys()
            .next_back()
            .map_or(0, |last| *last as usize + 1)
            .min(MAX_MODULES)
    }

    fn module(&self, index: usize) -> Option<ModuleInfo> {
        let module = self.process.modules.get(&u32::try_from(index).ok()?)?;
        Some(ModuleInfo {
            bias: module.bias,
            build_id: module.build_id.clone(),
            path: module.path.clone().into_bytes(),
        })
    }
}
