//! Frames made of records, and records that the format refuses.

use std::collections::BTreeMap;
use std::io::Cursor;

use plimsoll_wire::record::{Delta, MAX_DEPTH, Record, Stamp};

use super::Owned;
use super::files::{read, records_of};
use super::programs::{PERIOD, computing};
use crate::{MAX_RAW_BYTES, SpoolError, SpoolReader, SpoolWriter, Step};

#[test]
fn a_thread_that_writes_much_gets_frames_of_its_own() {
    let records = computing(150_000, 9);
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    for record in &records {
        writer.record(1, &record.get());
    }
    writer.end(1);
    let counts = writer.finish().unwrap();
    let found = read(&file).unwrap();
    assert!(found.order.len() > 2);
    // And the index.
    assert_eq!(counts.frames, found.order.len() as u64 + 1);
    assert_eq!(records_of(&found, 1), records);
}

#[test]
fn a_thread_that_writes_two_records_at_a_time_does_so_too() {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.begin(1, PERIOD);
    writer.halve();
    // Each pause brings the tick before it with it, so the number of records stays odd.
    writer.record(1, &Record::Lost { records: 1 });
    for _ in 0..100_000 {
        writer.record(1, &Record::Tick { delay: 0, stack: Delta { dropped: 0, added: &[] } });
        writer.record(1, &Record::Pause { stamp: Stamp::Delta(1 << 40) });
    }
    writer.finish().unwrap();
    let found = read(&file).unwrap();
    assert!(found.order.len() > 2);
    assert_eq!(records_of(&found, 1).len(), 200_001);
}

#[test]
fn many_frames_have_many_indices() {
    let record = Record::Tick { delay: 0, stack: Delta { dropped: 1, added: &[1] } };
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    for _ in 0..8_200 {
        writer.record(1, &record);
        writer.flush();
    }
    assert_eq!(writer.finish().unwrap().frames, 8_203);
    let found = read(&file).unwrap();
    assert!(found.orderly && found.damages.is_empty());
    assert_eq!(found.order.len(), 8_200);
    // Without the last one, the same by their headers.
    let scanned = read(&file[..file.len() - 1]).unwrap();
    assert!(!scanned.orderly);
    assert_eq!(scanned.frames, found.frames);
}

#[test]
fn halving_is_counted_in_the_file() {
    let records = computing(1000, 4);
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.begin(1, PERIOD);
    for (place, record) in records.iter().enumerate() {
        if place == 500 {
            writer.halve();
        }
        writer.record(1, &record.get());
    }
    assert_eq!(writer.level(), 1);
    let counts = writer.finish().unwrap();
    assert_eq!((counts.records, counts.merged_samples), (750, 250));
    let mut reader = SpoolReader::new(Cursor::new(&file)).unwrap();
    let mut walk = reader.walk();
    let Some(Step::Frame(frame)) = walk.next().unwrap() else { panic!("no frame") };
    let records = frame.records().unwrap();
    assert_eq!((records.records(), records.merged()), (750, 250));
}

#[test]
fn a_record_that_is_too_deep_becomes_a_loss() {
    let deep = [1; MAX_DEPTH + 1];
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.record(1, &Record::Slot { slot: 0, stack: Delta { dropped: 0, added: &deep } });
    assert_eq!(writer.finish().unwrap().lost, 1);
    let lost = Owned::new(&Record::Lost { records: 1 });
    assert_eq!(records_of(&read(&file).unwrap(), 1), [lost]);
}

#[test]
fn a_value_that_is_too_large_is_refused() {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    let large = " ".repeat(MAX_RAW_BYTES);
    assert!(matches!(writer.meta(0, &large), Err(SpoolError::TooLarge(_))));
    assert!(matches!(writer.meta(0, &BTreeMap::from([((1, 2), 3)])), Err(SpoolError::Json(_))));
    writer.finish().unwrap();
    assert!(read(&file).unwrap().order.is_empty());
}
