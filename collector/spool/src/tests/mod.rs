//! Whole spools: records are read back, also from damaged files.

mod columns;
mod files;
mod frames;
mod measure;
mod programs;
mod thinning;

use plimsoll_wire::increments::{Counts, MAX_EVENTS};
use plimsoll_wire::lengths::{LengthCount, LengthOf, MAX_BUCKETS};
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::record::{Delta, MAX_DEPTH, Message, OffCpu, PartnerMessages, Record, Stamp};
use plimsoll_wire::sync_id::{Subgroup, SyncId};
use plimsoll_wire::teams::{MAX_SHARES, PathKey, RegionTotals, ShareTotals, TaskTotals};
use proptest::prelude::*;

/// A record that holds its frames itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    record: Record<'static>,
    added: Vec<u32>,
}

impl Owned {
    /// A record that is the same as `record`.
    pub(super) fn new(record: &Record<'_>) -> Self {
        const NONE: &[u32] = &[];
        let mut added = Vec::new();
        let mut owned = |stack: Delta<'_>| {
            added = stack.added.to_vec();
            Delta { dropped: stack.dropped, added: NONE }
        };
        let record = match *record {
            Record::Sample { stamp, stack, entered, off_cpu, truncated } => {
                Record::Sample { stamp, stack: owned(stack), entered, off_cpu, truncated }
            }
            Record::Tick { delay, stack } => Record::Tick { delay, stack: owned(stack) },
            Record::Slot { slot, stack } => Record::Slot { slot, stack: owned(stack) },
            Record::Tally { slot, count, sum, bytes } => Record::Tally { slot, count, sum, bytes },
            Record::Partner { slot, messages } => Record::Partner { slot, messages },
            Record::Counts { in_call, counts } => Record::Counts { in_call, counts },
            Record::Message { slot, message } => Record::Message { slot, message },
            Record::Region { slot, totals } => Record::Region { slot, totals },
            Record::Share { slot, number, totals } => Record::Share { slot, number, totals },
            Record::Task { totals } => Record::Task { totals },
            Record::Length { of, length } => Record::Length { of, length },
            Record::LockWait { slot, totals } => Record::LockWait { slot, totals },
            Record::Graft { path } => Record::Graft { path },
            Record::Exit { stamp, slot, common: kept, duration, bytes, sync, off_cpu } => {
                Record::Exit { stamp, slot, common: kept, duration, bytes, sync, off_cpu }
            }
            Record::Pause { stamp } => Record::Pause { stamp },
            Record::Resume { stamp } => Record::Resume { stamp },
            Record::End { stamp } => Record::End { stamp },
            Record::Lost { records } => Record::Lost { records },
        };
        Self { record, added }
    }

    /// The record.
    pub(super) fn get(&self) -> Record<'_> {
        let with = |stack: Delta<'_>| Delta { dropped: stack.dropped, added: &self.added };
        match self.record {
            Record::Sample { stamp, stack, entered, off_cpu, truncated } => {
                Record::Sample { stamp, stack: with(stack), entered, off_cpu, truncated }
            }
            Record::Tick { delay, stack } => Record::Tick { delay, stack: with(stack) },
            Record::Slot { slot, stack } => Record::Slot { slot, stack: with(stack) },
            other => other,
        }
    }
}

/// Integers of all sizes.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..300,
        (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift),
        Just(u64::MAX)
    ]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..40, any::<u32>(), Just(u32::MAX)]
}

fn frames() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        9 => prop::collection::vec(0u32..400, 0..20),
        1 => prop::collection::vec(any::<u32>(), 0..=MAX_DEPTH),
    ]
}

fn stamp() -> impl Strategy<Value = Stamp> {
    prop_oneof![4 => number().prop_map(Stamp::Delta), 1 => number().prop_map(Stamp::Resync)]
}

fn off_cpu() -> impl Strategy<Value = Option<OffCpu>> {
    prop::option::of(
        (number(), number()).prop_map(|(cpu_ns, run_delay_ns)| OffCpu { cpu_ns, run_delay_ns }),
    )
}

fn sync() -> impl Strategy<Value = Option<SyncId>> {
    let subgroup = (any::<u32>(), any::<u32>()).prop_map(|(name, ranks)| Subgroup { name, ranks });
    let sync = (prop::option::of(subgroup), number())
        .prop_map(|(subgroup, index)| SyncId { subgroup, index });
    prop::option::of(sync)
}

/// Any record, also one that no thread would write.
pub(super) fn any_record() -> impl Strategy<Value = Owned> {
    let without = |record| Owned { record, added: Vec::new() };
    const fn stack(dropped: u32) -> Delta<'static> {
        Delta { dropped, added: &[] }
    }
    let optional = || prop::option::of(number());
    prop_oneof![
        4 => (any::<i8>(), small(), frames()).prop_map(|(delay, dropped, added)| Owned {
            record: Record::Tick { delay, stack: stack(dropped) },
            added
        }),
        2 => (stamp(), small(), frames(), optional(), off_cpu(), any::<bool>()).prop_map(
            |(stamp, dropped, added, entered, off_cpu, truncated)| Owned {
                record: Record::Sample {
                    stamp,
                    stack: stack(dropped),
                    entered,
                    off_cpu,
                    truncated,
                },
                added
            }
        ),
        1 => (small(), small(), frames()).prop_map(|(slot, dropped, added)| Owned {
            record: Record::Slot { slot, stack: stack(dropped) },
            added
        }),
        1 => (small(), number(), number(), number()).prop_map(
            move |(slot, count, sum, bytes)| without(
                Record::Tally { slot, count, sum, bytes }
            )
        ),
        1 => (small(), small(), [number(), number(), number(), number()]).prop_map(
            move |(slot, partner, [sent, bytes, received, waited])| without(Record::Partner {
                slot,
                messages: PartnerMessages { partner, sent, bytes, received, waited },
            })
        ),
        1 => (any::<bool>(), prop::collection::vec(number(), 0..=MAX_EVENTS), number()).prop_map(
            move |(in_call, values, uncounted_ns)| {
                let mut counts = Counts { uncounted_ns, ..Counts::NONE };
                counts.values[..values.len()].copy_from_slice(&values);
                without(Record::Counts { in_call, counts })
            }
        ),
        1 => (
            [small(), small(), small(), small()],
            [number(), number(), number(), number()],
        ).prop_map(
            move |([slot, partner, group, number], [posted, entered, left, waited])| without(
                Record::Message {
                    slot,
                    message: Message {
                        is_sent: posted % 2 == 0,
                        partner,
                        group,
                        tag: number as i32 / 3,
                        number,
                        posted,
                        entered,
                        left,
                        waited,
                    },
                }
            )
        ),
        1 => ([small(), small(), small(), small()], prop::array::uniform7(number())).prop_map(
            move |([slot, function, level, threads], numbers)| {
                let [path, instances, elapsed, thread_time, mean_work, max_work, most] = numbers;
                let totals = RegionTotals {
                    path: PathKey(path),
                    function,
                    level,
                    threads,
                    instances,
                    elapsed,
                    thread_time,
                    mean_work,
                    max_work,
                    max_thread_work: most,
                };
                without(Record::Region { slot, totals })
            }
        ),
        1 => (small(), 0..MAX_SHARES as u32, prop::array::uniform5(number())).prop_map(
            move |(slot, number, [count, work, barrier, lock, mpi])| {
                let totals = ShareTotals { count, work, barrier, lock, mpi };
                without(Record::Share { slot, number, totals })
            }
        ),
        1 => (small(), prop::array::uniform3(number())).prop_map(
            move |(function, [count, work, longest])| {
                without(Record::Task { totals: TaskTotals { function, count, work, longest } })
            }
        ),
        1 => (small(), any::<bool>(), 0..MAX_BUCKETS as u32, number()).prop_map(
            move |(id, is_region, bucket, count)| {
                let of = if is_region { LengthOf::Region(id) } else { LengthOf::Task(id) };
                without(Record::Length { of, length: LengthCount { bucket, count } })
            }
        ),
        1 => (small(), prop::array::uniform3(number())).prop_map(
            move |(slot, [holder, count, waited])| {
                let totals = LockWaitTotals { holder: PathKey(holder), count, waited };
                without(Record::LockWait { slot, totals })
            }
        ),
        1 => number().prop_map(move |path| without(Record::Graft { path: PathKey(path) })),
        2 => (stamp(), (small(), small()), number(), number(), sync(), off_cpu()).prop_map(
            move |(stamp, (slot, kept), duration, bytes, sync, off_cpu)| without(
                Record::Exit { stamp, slot, common: kept, duration, bytes, sync, off_cpu }
            )
        ),
        1 => stamp().prop_map(move |stamp| without(Record::Pause { stamp })),
        1 => stamp().prop_map(move |stamp| without(Record::Resume { stamp })),
        1 => stamp().prop_map(move |stamp| without(Record::End { stamp })),
        1 => number().prop_map(move |records| without(Record::Lost { records })),
    ]
}
