//! Records as columns and back.

use plimsoll_wire::record::{Delta, MAX_DEPTH, Record, Stamp};
use plimsoll_wire::sync_id::{Subgroup, SyncId};
use proptest::prelude::*;

use super::{Owned, any_record};
use crate::columns::{Builder, Records};
use crate::{Payload, PayloadError};

/// Reads a payload to its end.
fn read(payload: &[u8]) -> Result<Vec<Owned>, PayloadError> {
    let mut records = Records::new(payload)?;
    let mut all = Vec::new();
    while let Some(record) = records.next()? {
        all.push(Owned::new(&record));
    }
    Ok(all)
}

fn write(records: &[Owned]) -> Payload {
    let mut builder = Builder::default();
    let mut payload = Payload::default();
    for record in records {
        builder.push(&record.get()).unwrap();
    }
    builder.finish(&mut payload);
    payload
}

proptest! {
    #[test]
    fn records_are_read_back(
        records in prop::collection::vec(any_record(), 0..60),
        again in prop::collection::vec(any_record(), 0..60),
        merged in any::<u64>(),
    ) {
        let mut builder = Builder::default();
        let mut payload = Payload::default();
        for records in [&records, &again] {
            builder.merge(merged);
            for record in records {
                builder.push(&record.get()).unwrap();
            }
            prop_assert_eq!(builder.records(), records.len() as u64);
            builder.finish(&mut payload);
            prop_assert_eq!(&read(payload.bytes()).unwrap(), records);
            let read = Records::new(payload.bytes()).unwrap();
            prop_assert_eq!((read.records(), read.merged()), (records.len() as u64, merged));
        }
    }

    #[test]
    fn a_payload_that_is_cut_is_refused(
        records in prop::collection::vec(any_record(), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let payload = write(&records);
        let cut = cut.index(payload.bytes().len());
        prop_assert!(read(&payload.bytes()[..cut]).is_err());
        prop_assert!(read(&[payload.bytes(), &[0]].concat()).is_err());
    }

    #[test]
    fn damaged_payloads_are_read_or_refused(
        records in prop::collection::vec(any_record(), 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = write(&records).bytes().to_vec();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        // A record takes at least its shape.
        prop_assert!(read(&bytes).map_or(true, |records| records.len() <= bytes.len()));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        prop_assert!(read(&bytes).map_or(true, |records| records.len() <= bytes.len()));
    }
}

#[test]
fn the_deepest_stack_and_the_largest_subgroup_are_read_back() {
    let deep: Vec<u32> = (0..MAX_DEPTH as u32).map(|frame| u32::MAX - frame).collect();
    let (stamp, off_cpu) = (Stamp::Delta(u64::MAX), None);
    let subgroup = Some(Subgroup { name: u32::MAX, ranks: u32::MAX });
    let sync = Some(SyncId { subgroup, index: u64::MAX });
    let records = [
        Record::Tick { delay: i8::MIN, stack: Delta { dropped: u32::MAX, added: &deep } },
        Record::Exit { stamp, slot: 0, common: 0, duration: 0, bytes: 0, sync, off_cpu },
    ]
    .map(|record| Owned::new(&record));
    assert_eq!(read(write(&records).bytes()).unwrap(), records);
}

#[test]
fn a_stack_that_is_too_deep_is_refused_on_both_sides() {
    let deep = [1; MAX_DEPTH + 1];
    let stack = Delta { dropped: 0, added: &deep };
    let mut builder = Builder::default();
    let mut payload = Payload::default();
    assert!(matches!(builder.push(&Record::Tick { delay: 0, stack }), Err(PayloadError::TooDeep)));
    assert!(matches!(builder.push(&Record::Slot { slot: 0, stack }), Err(PayloadError::TooDeep)));
    builder.finish(&mut payload);
    assert_eq!(read(payload.bytes()).unwrap(), []);
    // One frame more than a record may have, in its column.
    let stack = Delta { dropped: 0, added: &deep[1..] };
    builder.push(&Record::Slot { slot: 0, stack }).unwrap();
    builder.finish(&mut payload);
    let mut bytes = payload.bytes().to_vec();
    let count = bytes.windows(2).rposition(|pair| pair == [0x80, 0x04]).unwrap();
    bytes[count] = 0x81;
    assert!(matches!(read(&bytes), Err(PayloadError::TooDeep)));
}
