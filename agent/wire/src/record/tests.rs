//! Every record is read back as written, and anything else is refused.

use super::*;
use crate::lengths::{LengthCount, LengthOf, MAX_BUCKETS};
use crate::lock_waits::LockWaitTotals;
use crate::sync_id::Subgroup;
use crate::teams::{MAX_SHARES, PathKey, RegionTotals, ShareTotals, TaskTotals};
use proptest::prelude::*;

fn stamp() -> impl Strategy<Value = Stamp> {
    prop_oneof![any::<u64>().prop_map(Stamp::Delta), any::<u64>().prop_map(Stamp::Resync)]
}

fn off_cpu() -> impl Strategy<Value = Option<OffCpu>> {
    prop::option::of((any::<u64>(), any::<u64>()).prop_map(|(cpu_ns, run_delay_ns)| OffCpu {
        cpu_ns: cpu_ns >> OFF_CPU_SHIFT << OFF_CPU_SHIFT,
        run_delay_ns: run_delay_ns >> OFF_CPU_SHIFT << OFF_CPU_SHIFT,
    }))
}

fn sync() -> impl Strategy<Value = SyncId> {
    let subgroup = (any::<u32>(), 1..=u32::MAX).prop_map(|(name, ranks)| Subgroup { name, ranks });
    (prop::option::of(subgroup), any::<u64>())
        .prop_map(|(subgroup, index)| SyncId { subgroup, index })
}

proptest! {
    #[test]
    fn every_record_is_read_back_as_written(
        stamp in stamp(),
        off_cpu in off_cpu(),
        entered in prop::option::of(any::<u64>()),
        sync in prop::option::of(sync()),
        added in prop::collection::vec(any::<u32>(), 0..MAX_DEPTH),
        numbers in any::<[u32; 4]>(),
        sum in any::<u64>(), bytes in any::<u64>(),
        truncated in any::<bool>(),
        delay in any::<i8>(),
        values in any::<[u64; MAX_EVENTS]>(),
        used in 0..=MAX_EVENTS,
    ) {
        let [slot, dropped, common, count] = numbers;
        let stack = Delta { dropped, added: &added };
        let mut counts = Counts { values: [0; MAX_EVENTS], uncounted_ns: bytes };
        counts.values[..used].copy_from_slice(&values[..used]);
        let records = [
            Record::Counts { in_call: truncated, counts },
            Record::Sample { stamp, stack, entered, off_cpu, truncated },
            Record::Tick { delay, stack },
            Record::Tick {
                delay,
                stack: Delta { dropped: dropped % 9, added: &added[..added.len() % 16] },
            },
            Record::Slot { slot, stack },
            Record::Tally { slot, count: u64::from(count), sum, bytes },
            Record::Partner {
                slot,
                messages: PartnerMessages {
                    partner: common,
                    sent: count.into(),
                    bytes,
                    received: sum >> 7,
                    waited: sum,
                },
            },
            Record::Message {
                slot,
                message: Message {
                    is_sent: truncated,
                    partner: common,
                    group: dropped,
                    tag: count as i32,
                    number: slot,
                    posted: sum >> 9,
                    entered: bytes,
                    left: sum,
                    waited: bytes >> 3,
                },
            },
            Record::Region {
                slot,
                totals: RegionTotals {
                    path: PathKey(sum),
                    function: common,
                    level: dropped,
                    threads: count,
                    instances: bytes,
                    elapsed: sum >> 3,
                    thread_time: sum >> 1,
                    mean_work: bytes >> 5,
                    max_work: sum >> 8,
                    max_thread_work: sum,
                },
            },
            Record::Share {
                slot,
                number: common % MAX_SHARES as u32,
                totals: ShareTotals {
                    count: bytes,
                    work: sum,
                    barrier: sum >> 4,
                    lock: bytes >> 7,
                    mpi: sum >> 13,
                },
            },
            Record::Task {
                totals: TaskTotals { function: common, count: bytes, work: sum, longest: sum >> 2 },
            },
            Record::Length {
                of: if truncated { LengthOf::Region(slot) } else { LengthOf::Task(common) },
                length: LengthCount { bucket: dropped % MAX_BUCKETS as u32, count: bytes },
            },
            Record::LockWait {
                slot,
                totals: LockWaitTotals { holder: PathKey(sum), count: bytes, waited: sum >> 5 },
            },
            Record::Graft { path: PathKey(bytes) },
            Record::Exit { stamp, slot, common, duration: sum, bytes, sync, off_cpu },
            Record::Pause { stamp },
            Record::Resume { stamp },
            Record::End { stamp },
            Record::Lost { records: sum },
        ];
        let mut decoder = Decoder::default();
        for record in &records {
            let mut buffer = vec![0; MAX_RECORD_BYTES];
            let mut encoder = Encoder::new(&mut buffer);
            let bytes = encoder.put(record).expect("MAX_RECORD_BYTES is enough");
            prop_assert_eq!(decoder.next(bytes), Ok(Some((*record, bytes.len()))));
            for end in 1..bytes.len().min(40) {
                prop_assert_eq!(decoder.next(&bytes[..end]), Err(DecodeError::Truncated));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut decoder = Decoder::default();
        let mut rest = &bytes[..];
        while let Ok(Some((_, length))) = decoder.next(rest) {
            prop_assert!(length > 0);
            rest = &rest[length..];
        }
    }
}

#[test]
fn a_record_that_does_not_fit_is_refused() {
    let mut buffer = [0; 4];
    let record = Record::Lost { records: u64::MAX };
    assert_eq!(Encoder::new(&mut buffer).put(&record), None);
}
