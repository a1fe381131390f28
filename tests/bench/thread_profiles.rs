//! Size of profiles by number of threads, for each aggregation: Figures 3 and 4 of ESPT15 with 128
//! generated processes of 100 call paths, 90 of them parallel.

use plimsoll_collector::aggregate_threads;
use plimsoll_collector::profile::{
    Aggregation, ContextTree, Frame, FrameKind, Node, NodeId, NodeValue, PhaseProfile,
};

use crate::row::Row;

const CONTEXTS: u32 = 100;
/// Contexts of the communicating thread alone.
const SERIAL_CONTEXTS: u32 = 10;

/// Measures the bytes of all processes' values by thread and context, the communicating thread
/// included, as postcard: without compression. The baseline is the profile without aggregation;
/// their ratio is the compression ratio of Figure 4.
pub fn rows(processes: u32, threads: &[u32]) -> Vec<Row> {
    let of_size = |threads: &u32| {
        let size = |aggregation| {
            let bytes: usize = (0..processes).map(|it| bytes(it, *threads, aggregation)).sum();
            bytes as f64 / 1e6
        };
        let whole = size(Aggregation::All);
        let subject = format!("{processes} processes of {threads} threads");
        [
            ("sum", Aggregation::Sum),
            ("set", Aggregation::Set),
            ("key", Aggregation::Key),
            ("calltree", Aggregation::Calltree),
        ]
        .map(|(name, aggregation)| {
            let name = format!("profile, threads aggregated by {name}");
            Row::new(&name, &subject, size(aggregation), "MB", whole)
        })
    };
    threads.iter().flat_map(of_size).collect()
}

/// Returns the bytes of a process with `threads` threads, the communicating one included.
fn bytes(process: u32, threads: u32, aggregation: Aggregation) -> usize {
    let tree = tree();
    let phase = PhaseProfile {
        instances: 1,
        values: (0..CONTEXTS).map(|node| (node, value(process, 0, node))).collect(),
        ..PhaseProfile::default()
    };
    let values = |number| {
        let values = (SERIAL_CONTEXTS..CONTEXTS).map(|node| (node, value(process, number, node)));
        (number, values.collect::<Vec<(NodeId, NodeValue)>>())
    };
    let others: Vec<_> = (1..threads).map(values).collect();
    let mut sum: Vec<(NodeId, NodeValue)> =
        (SERIAL_CONTEXTS..CONTEXTS).map(|node| (node, NodeValue::default())).collect();
    for (_, values) in &others {
        sum.iter_mut().zip(values).for_each(|((_, sum), (_, value))| sum.add(value));
    }
    let phases = [phase];
    let aggregated = aggregate_threads(aggregation, &tree, &phases, others);
    let parts = (&phases[0].values, &sum, &aggregated);
    postcard::to_stdvec(&parts).map_or(0, |bytes| bytes.len())
}

fn tree() -> ContextTree {
    let frame = |id: u32| Frame::new(FrameKind::Function, format!("function{id}"), "app");
    let node = |id: u32| Node { parent: id.checked_sub(1).map(|it| it / 3), frame: id, site: 0 };
    ContextTree {
        frames: (0..CONTEXTS).map(frame).collect(),
        nodes: (0..CONTEXTS).map(node).collect(),
    }
}

/// Values that differ between processes, threads and contexts by some ten percent.
fn value(process: u32, number: u32, node: NodeId) -> NodeValue {
    let noise = (process * 31 + number * 7919 + node * 104_729) % 100_000;
    let exclusive_ns = 1_000_000_000 + 1000 * u64::from(noise);
    NodeValue {
        exclusive_ns,
        run_delay_ns: exclusive_ns / 1000,
        calls: 10_000 + u64::from(noise % 100),
        bytes: 0,
        long_ns: 0,
        samples: exclusive_ns / 4_000_000,
        poll_gap_ns: 0,
    }
}
