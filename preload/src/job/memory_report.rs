//! Memory of the library in this process, by purpose.

use plimsoll_agent::observed_process;
use plimsoll_analysis::input::Cost;
use plimsoll_summary::{Collection, Memory};
use plimsoll_sys::memory_kind::MemoryKind;

use super::Job;
use crate::heap;

impl Job {
    /// Returns the memory of the library in this process, which collects `ranks` ranks: the heap at
    /// its maximum, and all other memory as it is now.
    pub(super) fn memory(&self, ranks: usize) -> Memory {
        let heap = heap::largest();
        let kind = |kind: MemoryKind| heap.kinds[kind as usize];
        let beside_heap =
            observed_process::current().map_or(0, |observed| observed.sampling_bytes());
        let segments = self.collector.segment_bytes();
        Memory {
            total_bytes: heap.mapped + beside_heap + segments,
            ranks: ranks as u32,
            segment_bytes: segments,
            sampling_bytes: beside_heap + kind(MemoryKind::Sampling),
            context_bytes: kind(MemoryKind::Contexts),
            cluster_bytes: kind(MemoryKind::Clusters),
            structure_bytes: kind(MemoryKind::Structure),
            debug_info_bytes: kind(MemoryKind::DebugInfo),
            spool_bytes: kind(MemoryKind::Spool),
            analysis_bytes: kind(MemoryKind::Analysis),
            unused_bytes: heap.mapped.saturating_sub(heap.kinds.iter().sum()),
        }
    }

    /// Adds the memory that the reduction has taken in this process since the ranks reported
    /// theirs, and returns free memory to the system.
    pub(super) fn add_memory(&self, collection: &mut Collection, ranks: usize) {
        heap::trim();
        if ranks > 0 {
            let memory = self.memory(ranks);
            let Cost { memory_bytes, .. } = of_each(memory);
            collection.memory_bytes = collection.memory_bytes.max(memory_bytes);
            collection.memory = collection.memory.max(Some(memory));
        }
    }
}

/// Returns one rank's share of the memory of the process that collects it.
pub(super) fn of_each(memory: Memory) -> Cost {
    let of_each = memory.total_bytes / u64::from(memory.ranks.max(1));
    Cost { memory_bytes: Some(of_each), ..Cost::default() }
}
