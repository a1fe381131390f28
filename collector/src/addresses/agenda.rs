//! The order in which the structure of addresses is looked up.
//!
//! The functions with most samples come first, since time may run out. A unit of debug information is read
//! as a whole, so all addresses of one come together: none is read twice.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{Addresses, Detail, FunctionKey};
use crate::tables::Tables;
use plimsoll_binary::{ModuleId, Structures};

/// What is read at once: a unit, or where there is none, a function.
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
    /// Those of the addresses whose structure is to be looked up, by the samples of their batches, then of
    /// their functions.
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
