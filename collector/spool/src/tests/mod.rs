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

/// Makes integers of all sizes from any integers.
const fn number(value: u64, size: u8) -> u64 {
    match size {
        0..86 => value % 300,
        86..171 => value >> (size % 64),
        _ => u64::MAX,
    }
}

fn frames() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        9 => prop::collection::vec(0u32..400, 0..20),
        1 => prop::collection::vec(any::<u32>(), 0..=MAX_DEPTH),
    ]
}

/// Any record, also one that no thread would write.
pub(super) fn any_record() -> impl Strategy<Value = Owned> {
    let stack = prop_oneof![
        WITH_STACK => (0..WITH_STACK, frames()),
        VARIANTS - WITH_STACK => (WITH_STACK..VARIANTS, Just(Vec::new())),
    ];
    (stack, any::<[(u64, u8); 11]>(), any::<[bool; 4]>()).prop_map(
        |((variant, added), numbers, flags)| {
            let numbers = numbers.map(|(value, size)| number(value, size));
            Owned::new(&record(variant, numbers, flags, &added))
        },
    )
}

/// Number of variants of [`record`]: frequent records have several.
const VARIANTS: u32 = 23;
/// Number of the variants with a stack, the first ones.
const WITH_STACK: u32 = 7;

/// Makes a record of these values.
fn record(variant: u32, numbers: [u64; 11], flags: [bool; 4], added: &[u32]) -> Record<'_> {
    let [time, sum, bytes, count, a, b, c, d, cpu_ns, run_delay_ns, index] = numbers;
    let [slot, dropped, common, function] = [a, b, c, d].map(|number| number as u32);
    let stamp = if flags[0] { Stamp::Delta(time) } else { Stamp::Resync(time) };
    let off_cpu = flags[1].then_some(OffCpu { cpu_ns, run_delay_ns });
    let stack = Delta { dropped, added };
    match variant {
        0..4 => Record::Tick { delay: time as i8, stack },
        4 | 5 => {
            let entered = flags[2].then_some(sum);
            Record::Sample { stamp, stack, entered, off_cpu, truncated: flags[3] }
        }
        6 => Record::Slot { slot, stack },
        7 | 8 => {
            let subgroup = flags[2].then_some(Subgroup { name: dropped, ranks: function });
            let sync = flags[3].then_some(SyncId { subgroup, index });
            Record::Exit { stamp, slot, common, duration: sum, bytes, sync, off_cpu }
        }
        9 => Record::Tally { slot, count, sum, bytes },
        10 => {
            let (sent, received, waited) = (count, index, sum);
            let messages = PartnerMessages { partner: common, sent, bytes, received, waited };
            Record::Partner { slot, messages }
        }
        11 => {
            let mut counts = Counts { uncounted_ns: index, ..Counts::NONE };
            let used = usize::from(index as u8) % (MAX_EVENTS + 1);
            counts.values[..used].copy_from_slice(&numbers[..used]);
            Record::Counts { in_call: flags[0], counts }
        }
        12 => Record::Message {
            slot,
            message: Message {
                is_sent: flags[0],
                partner: common,
                group: dropped,
                tag: index as i32 / 3,
                number: function,
                posted: time,
                entered: sum,
                left: bytes,
                waited: count,
            },
        },
        13 => Record::Region {
            slot,
            totals: RegionTotals {
                path: PathKey(index),
                function,
                level: dropped,
                threads: common,
                instances: count,
                elapsed: time,
                thread_time: sum,
                mean_work: bytes,
                max_work: cpu_ns,
                max_thread_work: run_delay_ns,
            },
        },
        14 => Record::Share {
            slot,
            number: function % MAX_SHARES as u32,
            totals: ShareTotals { count, work: sum, barrier: bytes, lock: time, mpi: index },
        },
        15 => Record::Task { totals: TaskTotals { function, count, work: sum, longest: time } },
        16 => {
            let of = if flags[0] { LengthOf::Region(slot) } else { LengthOf::Task(slot) };
            let bucket = function % MAX_BUCKETS as u32;
            Record::Length { of, length: LengthCount { bucket, count } }
        }
        17 => {
            let totals = LockWaitTotals { holder: PathKey(index), count, waited: sum };
            Record::LockWait { slot, totals }
        }
        18 => Record::Graft { path: PathKey(index) },
        19 => Record::Pause { stamp },
        20 => Record::Resume { stamp },
        21 => Record::End { stamp },
        _ => Record::Lost { records: count },
    }
}
