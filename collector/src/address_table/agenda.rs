//! Order in which the structure of addresses is looked up.
//!
//! Functions with most samples come first because the deadline may cut the lookups short. A unit of
//! debug information is parsed as a whole, so all addresses of one unit are consecutive and no unit
//! is parsed twice.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{Addresses, Detail, FunctionKey};
use crate::tables::Tables;
use plimsoll_binary::{ModuleId, Structures};

/// Group of addresses looked up together: a unit of debug information, or the function if there is
/// no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Batch {
    Unit(ModuleId, u64),
    Function(Option<FunctionKey>),
}

struct Task {
    id: u32,
    batch: Batch,
    function: Option<FunctionKey>,
    offset: u64,
    samples: u64,
}

impl Addresses {
    /// Returns the addresses that need a structure lookup, in descending order of the samples of
    /// their batch, then of their function.
    pub(super) fn in_order(
        &mut self,
        mut ids: Vec<u32>,
        samples: impl Fn(u32) -> u64,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> Vec<u32> {
        ids.sort_unstable();
        ids.dedup();
        let tasks = ids.into_iter().filter_map(|id| {
            let raw = self.raw(id).filter(|raw| raw.detail == Detail::Structure)?;
            let named = self.named.get(&id).filter(|named| named.detail < Detail::Structure)?;
            let (function, offset) = (named.function, named.offset);
            let mut unit = || {
                let (module, address) = self.locate(raw, tables, structures)?;
                Some(Batch::Unit(module, structures.unit(module, address)?))
            };
            let batch = unit().unwrap_or(Batch::Function(function));
            Some(Task { id, batch, function, offset, samples: samples(id) })
        });
        let mut tasks: Vec<Task> = tasks.collect();
        let (mut batches, mut functions) = (HashMap::new(), HashMap::new());
        for task in &tasks {
            *batches.entry(task.batch).or_insert(0u64) += task.samples;
            *functions.entry(task.function).or_insert(0u64) += task.samples;
        }
        tasks.sort_by_cached_key(|task| {
            let (batch, function) = (batches[&task.batch], functions[&task.function]);
            (Reverse(batch), task.batch, Reverse(function), task.function, task.offset, task.id)
        });
        tasks.into_iter().map(|task| task.id).collect()
    }
}
