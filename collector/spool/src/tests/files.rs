//! Files that are cut, damaged, full, or made by somebody who means harm.

use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind, Write};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::programs::{PERIOD, computing, talking};
use super::{Owned, any_record};
use crate::{
    Address, Cause, Damage, FrameInfo, HEADER_BYTES, Kind, SpoolError, SpoolReader, SpoolWriter,
    Step, Stream, Walk,
};
use plimsoll_sys::posix_clocks::thread_cpu_ns;

/// Content of a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    Records(Vec<Owned>),
    Addresses(Vec<(u32, Address)>),
    Meta(Value),
    Ring(Vec<u8>),
}

/// Result of a reader.
#[derive(Default)]
pub(super) struct Found {
    pub(super) frames: BTreeMap<(Stream, u32), Held>,
    /// In the order in which they came.
    pub(super) order: Vec<FrameInfo>,
    pub(super) damages: Vec<Damage>,
    missing: Vec<(Stream, std::ops::Range<u64>)>,
    pub(super) orderly: bool,
}

pub(super) fn read(file: &[u8]) -> Result<Found, SpoolError> {
    let mut reader = SpoolReader::new(Cursor::new(file))?;
    let mut found = Found { orderly: reader.orderly(), ..Found::default() };
    let mut walk = reader.walk();
    while let Some(step) = walk.next()? {
        match step {
            Step::Damaged(damage) => found.damages.push(damage),
            Step::Missing(stream, range) => found.missing.push((stream, range)),
            Step::Frame(frame) => {
                let held = match frame.info.stream.kind {
                    Kind::Records => {
                        let (mut records, mut all) = (frame.records()?, Vec::new());
                        while let Some(record) = records.next()? {
                            all.push(Owned::new(&record));
                        }
                        Held::Records(all)
                    }
                    Kind::Addresses => {
                        Held::Addresses(frame.addresses()?.collect::<Result<_, _>>()?)
                    }
                    Kind::Meta => Held::Meta(frame.meta()?),
                    Kind::Ring => Held::Ring(frame.payload().to_vec()),
                    Kind::Index => panic!("indices are the reader's own"),
                };
                found.order.push(frame.info);
                found.frames.insert((frame.info.stream, frame.info.sequence), held);
            }
        }
    }
    Ok(found)
}

fn thread(records: u32) -> Value {
    json!({ "thread": { "records": records, "main": records == 1 } })
}

fn addresses() -> Vec<Address> {
    let address = |value: u64| Address { value: 0x5500_0000 + value * 37, module: 1, flags: 0 };
    (0..50).map(address).collect()
}

/// Bytes of a ring.
fn ring() -> Vec<u8> {
    (0..300u32).flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns a small spool: two threads with three frames each, a process's addresses, a value for
/// each thread, and parts of a ring.
fn small() -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.addresses(1, 1, &addresses());
    let streams = [computing(60, 1), talking(60, 2)];
    for (number, _) in streams.iter().enumerate() {
        writer.meta(number as u32, &thread(number as u32)).unwrap();
        writer.begin(number as u32, PERIOD);
    }
    for subgroup in 0..3 {
        for (number, records) in streams.iter().enumerate() {
            for record in &records[20 * subgroup..20 * (subgroup + 1)] {
                writer.record(number as u32, &record.get());
            }
        }
        writer.flush();
    }
    writer.ring(2, &ring());
    writer.ring(2, &[]);
    writer.finish().unwrap();
    file
}

pub(super) fn records_of(found: &Found, number: u32) -> Vec<Owned> {
    let stream = Stream { kind: Kind::Records, number };
    let frames = found.frames.range((stream, 0)..=(stream, u32::MAX));
    let mut all = Vec::new();
    for (_, held) in frames {
        let Held::Records(records) = held else { panic!("not records: {held:?}") };
        all.extend_from_slice(records);
    }
    all
}

#[test]
fn what_is_written_is_read() {
    let found = read(&small()).unwrap();
    assert!(found.orderly && found.damages.is_empty() && found.missing.is_empty());
    assert_eq!(found.frames.len(), 11);
    assert_eq!(records_of(&found, 0), computing(60, 1));
    assert_eq!(records_of(&found, 1), talking(60, 2));
    let of = |kind, number| Stream { kind, number };
    let listed = (1..).zip(addresses()).collect();
    assert_eq!(found.frames[&(of(Kind::Addresses, 1), 0)], Held::Addresses(listed));
    assert_eq!(found.frames[&(of(Kind::Meta, 0), 0)], Held::Meta(thread(0)));
    let items: u64 = found.order.iter().filter_map(|info| info.items).sum();
    assert_eq!(found.frames[&(of(Kind::Ring, 2), 0)], Held::Ring(ring()));
    assert_eq!(found.frames[&(of(Kind::Ring, 2), 1)], Held::Ring(Vec::new()));
    assert_eq!(items, 50 + 2 + 120 + 2);
}

#[test]
fn frames_are_copied_as_they_are() {
    let file = small();
    let mut reader = SpoolReader::new(Cursor::new(&file)).unwrap();
    let mut copy = Vec::new();
    let mut writer = SpoolWriter::new(&mut copy).unwrap();
    let mut walk = reader.walk();
    while let Some(step) = walk.next().unwrap() {
        let Step::Frame(frame) = step else { panic!("{step:?}") };
        writer.copy(&frame).unwrap();
    }
    assert_eq!(writer.finish().unwrap().records, 120);
    assert_eq!(read(&copy).unwrap().frames, read(&file).unwrap().frames);
}

#[test]
fn one_stream_is_read_alone() {
    let file = small();
    let mut reader = SpoolReader::new(Cursor::new(&file)).unwrap();
    let stream = Stream { kind: Kind::Records, number: 1 };
    assert_eq!(reader.streams()[&stream], 3);
    let mut sequences = Vec::new();
    let mut walk = reader.walk_stream(stream);
    while let Some(step) = walk.next().unwrap() {
        let Step::Frame(frame) = step else { panic!("{step:?}") };
        assert_eq!(frame.info.stream, stream);
        sequences.push(frame.info.sequence);
    }
    assert_eq!(sequences, [0, 1, 2]);
}

#[test]
fn all_streams_are_read_one_by_one_in_linear_time() {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    let streams = 0..5000u32;
    streams.clone().for_each(|number| writer.meta(number, &json!(number)).unwrap());
    writer.finish().unwrap();
    let mut reader = SpoolReader::new(Cursor::new(&file)).unwrap();
    let count = |mut walk: Walk<'_, _>| {
        let mut frames = 0;
        while let Some(step) = walk.next().unwrap() {
            frames += u32::from(matches!(step, Step::Frame(_)));
        }
        frames
    };
    let begin = thread_cpu_ns();
    assert_eq!(count(reader.walk()), streams.end);
    let middle = thread_cpu_ns();
    for number in streams {
        assert_eq!(count(reader.walk_stream(Stream { kind: Kind::Meta, number })), 1);
    }
    let (at_once, one_by_one) = (middle - begin, thread_cpu_ns() - middle);
    assert!(one_by_one < 8 * at_once, "{one_by_one} ns, not {at_once} ns");
}

#[test]
fn any_damaged_byte_costs_at_most_its_frame() {
    let file = small();
    let whole = read(&file).unwrap();
    for (place, change) in (0..file.len()).zip([0x01, 0x80, 0xff].into_iter().cycle()) {
        let mut damaged = file.clone();
        damaged[place] ^= change;
        let found = match read(&damaged) {
            Ok(found) => found,
            Err(SpoolError::NotASpool) if place < 16 => continue,
            Err(error) => panic!("byte {place}: {error}"),
        };
        assert!(place >= 16, "a damaged preamble was read");
        let holds =
            |info: &FrameInfo| (info.offset..info.offset + info.bytes).contains(&(place as u64));
        let lost: Vec<_> =
            whole.frames.keys().filter(|key| !found.frames.contains_key(key)).collect();
        let hit = whole.order.iter().find(|info| holds(info));
        let expected: Vec<_> = hit.map(|info| (info.stream, info.sequence)).into_iter().collect();
        assert_eq!(lost, expected.iter().collect::<Vec<_>>(), "byte {place}");
        for (key, held) in &found.frames {
            assert_eq!(held, &whole.frames[key], "byte {place}");
        }
        // It is named once: at its place, or where its number is missing.
        assert_eq!(found.damages.len(), 1, "byte {place}: {:?}", found.damages);
        if let Some(info) = hit {
            let named = found.damages[0].frame == Some((info.stream, info.sequence));
            let gap = u64::from(info.sequence)..u64::from(info.sequence) + 1;
            assert!(named != found.missing.contains(&(info.stream, gap)), "byte {place}");
            assert_eq!(found.damages[0].offset, info.offset);
        }
    }
}

#[test]
fn a_damaged_header_without_an_index_shows_as_a_gap() {
    let file = small();
    let order = read(&file).unwrap().order;
    let info = order.iter().find(|info| (info.stream.kind, info.sequence) == (Kind::Records, 1));
    let info = *info.unwrap();
    let mut damaged = file[..file.len() - 1].to_vec();
    damaged[info.offset as usize + 9] ^= 1;
    let found = read(&damaged).unwrap();
    assert!(!found.orderly);
    assert_eq!(found.missing, [(info.stream, 1..2)]);
    assert_eq!(found.damages[0].frame, None);
    assert_eq!(
        (found.damages[0].offset, found.damages[0].cause),
        (info.offset, Cause::NoHeader(info.bytes))
    );
}

#[test]
fn bytes_that_are_missing_or_too_many_cost_only_their_frame() {
    let file = small();
    let whole = read(&file).unwrap();
    for info in &whole.order {
        let middle = info.offset as usize + (HEADER_BYTES + info.bytes as usize) / 2;
        for damaged in [
            [&file[..middle], &file[middle + 3..]].concat(),
            [&file[..middle], b"\xf5PLF oh", &file[middle..]].concat(),
        ] {
            let found = read(&damaged).unwrap();
            let mut left = whole.frames.clone();
            left.remove(&(info.stream, info.sequence));
            assert_eq!(found.frames, left);
            // Its header is whole: so it is named, and not missing once more.
            let frame = Some((info.stream, info.sequence));
            assert!(found.damages.iter().any(|damage| damage.frame == frame));
            assert_eq!(found.missing, []);
        }
    }
}

#[test]
fn a_file_that_is_cut_has_all_frames_before() {
    let file = small();
    let whole = read(&file).unwrap();
    for end in 0..file.len() {
        let found = match read(&file[..end]) {
            Ok(found) => found,
            Err(SpoolError::NotASpool) if end < 16 => continue,
            Err(error) => panic!("{end} bytes: {error}"),
        };
        assert!(end >= 16 && !found.orderly);
        let before = whole.order.iter().filter(|info| info.offset + info.bytes <= end as u64);
        let expected: BTreeMap<_, _> = before
            .map(|info| (info.stream, info.sequence))
            .map(|key| (key, whole.frames[&key].clone()))
            .collect();
        assert_eq!(found.frames, expected, "{end} bytes");
        assert!(found.damages.len() <= 1 && found.missing.is_empty(), "{end} bytes");
        let next = whole.order.iter().find(|info| info.offset + info.bytes > end as u64);
        if let Some(info) = next.filter(|info| info.offset + HEADER_BYTES as u64 <= end as u64) {
            let frame = Some((info.stream, info.sequence));
            let cut = Damage { offset: info.offset, frame, cause: Cause::CutOff };
            assert_eq!(found.damages, [cut]);
        }
    }
}

#[test]
fn another_version_and_another_file_are_told_apart() {
    let mut file = small();
    file[8..12].copy_from_slice(&9u32.to_le_bytes());
    let check = crc32fast::hash(&file[..12]);
    file[12..16].copy_from_slice(&check.to_le_bytes());
    assert!(matches!(read(&file), Err(SpoolError::Version(9))));
    assert!(matches!(read(b""), Err(SpoolError::NotASpool)));
    assert!(matches!(read(&[0; 100]), Err(SpoolError::NotASpool)));
}

/// A disk that is full after some bytes, and takes some at a time.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
    at_a_time: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room - self.bytes.len()).min(self.at_a_time);
        self.bytes.extend_from_slice(&bytes[..taken]);
        if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_keeps_what_was_whole() {
    let records = computing(400, 5);
    for (room, level) in (0..1500).step_by(13).flat_map(|room| [(room, 0), (room, 2)]) {
        let mut disk = Disk { bytes: Vec::new(), room, at_a_time: 1 + room % 97 };
        let mut writer = SpoolWriter::new(&mut disk).unwrap();
        writer.begin(3, PERIOD);
        (0..level).for_each(|_| writer.halve());
        let mut failed = false;
        for (place, record) in records.iter().enumerate() {
            writer.record(3, &record.get());
            if place % 50 == 49 {
                writer.flush();
            }
            assert!(!failed || writer.error().is_some(), "an error is not forgotten");
            failed = writer.error().is_some();
        }
        let counts = writer.counts();
        if failed {
            assert_eq!(writer.error().unwrap().kind(), ErrorKind::StorageFull);
            let all = counts.records + counts.merged_samples + counts.lost;
            assert_eq!(all, records.len() as u64, "{room}");
        }
        let finished = writer.finish();
        assert!(if failed { finished.is_err() } else { disk.bytes.len() <= room });
        if let Ok(counts) = finished {
            assert_eq!(counts.bytes, disk.bytes.len() as u64);
            assert_eq!(counts.records + counts.merged_samples, records.len() as u64);
        } else {
            assert_eq!(disk.bytes.len(), room);
        }
        if room >= 16 {
            let read = records_of(&read(&disk.bytes).unwrap(), 3);
            assert!(read.len() as u64 >= counts.records);
            if level == 0 {
                assert_eq!(read, records[..read.len()]);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_behind_a_preamble_are_read(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                Just(b"\xf5PLF".to_vec()),
                // Frames of a real spool, and parts of them.
                (0usize..1200, 0usize..400).prop_map(|(start, length)| {
                    let file = small();
                    let start = start.min(file.len());
                    file[start..file.len().min(start + length)].to_vec()
                }),
            ],
            0..12,
        ),
    ) {
        let file = [&small()[..16], &pieces.concat()].concat();
        let found = read(&file).unwrap();
        // Nothing is read twice, and nothing overlaps.
        let mut end = 16;
        for info in &found.order {
            prop_assert!(info.offset >= end);
            end = info.offset + info.bytes;
        }
    }

    #[test]
    fn any_records_of_any_threads_are_read_back(
        records in prop::collection::vec((0u32..3, any_record()), 0..80),
        flush in 1usize..20,
    ) {
        let mut file = Vec::new();
        let mut writer = SpoolWriter::new(&mut file).unwrap();
        let mut each: BTreeMap<u32, Vec<Owned>> = BTreeMap::new();
        for (place, (stream, record)) in records.iter().enumerate() {
            writer.record(*stream, &record.get());
            each.entry(*stream).or_default().push(record.clone());
            if place % flush == 0 {
                writer.flush();
            }
        }
        writer.finish().unwrap();
        let found = read(&file).unwrap();
        for (stream, records) in each {
            prop_assert_eq!(records_of(&found, stream), records);
        }
    }
}
