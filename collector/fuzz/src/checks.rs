//! What must hold for any bytes: the reader ends, does not panic, and takes bounded memory. The fuzz
//! targets and the collector's own tests (`spool/tests/corpus.rs`) share this file.

use std::io::Cursor;

use plimsoll_agent::record::Record;

use super::spool::columns::{Builder, Records};
use super::spool::{Addresses, Frame, HEADER_BYTES, Kind, Payload, SpoolReader, SpoolWriter, Step};

/// Reads a payload as records, and writes what was read; then as addresses.
pub fn payload(bytes: &[u8]) {
    if let Ok(mut records) = Records::new(bytes) {
        let mut builder = Builder::default();
        let mut each = Vec::new();
        while let Ok(Some(record)) = records.next() {
            builder.push(&record).expect("what was read can be written");
            each.push(format!("{record:?}"));
        }
        // Each takes at least a byte.
        assert!(each.len() <= bytes.len());
        same(&mut builder, &each);
    }
    if let Ok(addresses) = Addresses::new(bytes) {
        assert!(addresses.count() <= bytes.len());
    }
}

/// What is written again is the same.
fn same(builder: &mut Builder, each: &[String]) {
    let mut payload = Payload::default();
    builder.finish(&mut payload);
    let mut records = Records::new(payload.bytes()).expect("a payload of our own");
    for expected in each {
        let record = records.next().expect("a payload of our own").expect("all records");
        assert_eq!(expected, &format!("{record:?}"));
    }
    assert!(matches!(records.next(), Ok(None)));
}

/// Reads a file in file order and by streams.
pub fn file(bytes: &[u8]) {
    let Ok(mut reader) = SpoolReader::new(Cursor::new(bytes)) else { return };
    // No two frames overlap.
    let mut end = 16;
    for info in reader.frames() {
        assert!(info.offset >= end && info.bytes >= HEADER_BYTES as u64);
        end = info.offset + info.bytes;
    }
    assert!(end <= bytes.len() as u64);
    let (frames, streams) = (reader.frames().len(), reader.streams());
    let (mut seen, mut whole) = (0, 0);
    let mut walk = reader.walk();
    while let Some(step) = walk.next().expect("memory can be read") {
        match step {
            Step::Frame(frame) => {
                whole += 1;
                seen += 1;
                read(&frame);
            }
            Step::Damaged(damage) => {
                assert!(damage.offset < bytes.len() as u64);
                assert!(!damage.to_string().is_empty());
                seen += 1;
            }
            Step::Missing(_, sequences) => assert!(!sequences.is_empty()),
        }
    }
    assert!(seen >= frames);
    let mut again = 0;
    for stream in streams.into_keys() {
        let mut walk = reader.walk_stream(stream);
        while let Some(step) = walk.next().expect("memory can be read") {
            again += usize::from(matches!(step, Step::Frame(_)));
        }
    }
    assert_eq!(whole, again);
}

fn read(frame: &Frame<'_>) {
    match frame.info.stream.kind {
        Kind::Records => {
            if let Ok(mut records) = frame.records() {
                while let Ok(Some(_)) = records.next() {}
            }
        }
        Kind::Addresses => {
            if let Ok(addresses) = frame.addresses() {
                addresses.for_each(drop);
            }
        }
        Kind::Meta => drop(frame.meta::<serde_json::Value>()),
        Kind::Index => panic!("indices are the reader's own"),
    }
}

/// A file that the bytes describe: frames whose checks are right, whatever else is wrong, and other
/// bytes between.
pub fn forge(mut recipe: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).expect("there is memory");
    writer.record(1, &Record::Lost { records: 1 });
    writer.finish().expect("memory can be written");
    let own = file.split_off(16);
    let mut last = 0u64;
    while let Some((step, rest)) = recipe.split_first() {
        recipe = rest;
        let mut take = |most: usize| {
            let (length, rest) = recipe.split_first().unwrap_or((&0, &[]));
            let (taken, rest) = rest.split_at(rest.len().min(usize::from(*length) % most));
            recipe = rest;
            taken
        };
        match step % 8 {
            // A frame, or the beginning of one, whose payload may say a wrong length of itself.
            0..=4 => {
                let fields = take(9).to_vec();
                let field = |place: usize| fields.get(place).copied().unwrap_or(0);
                let raw = take(256).to_vec();
                let mut packed = zstd::bulk::compress(&raw, 1).expect("there is memory");
                if field(3) & 1 != 0
                    && let Some(byte) = packed.get_mut(usize::from(field(4)))
                {
                    *byte ^= field(5);
                }
                let raw_bytes = raw.len() as u32 + u32::from(field(6)) * u32::from(field(7));
                if step % 8 == 4 {
                    last = file.len() as u64;
                }
                let kind = if step % 8 == 4 { 4 } else { field(0) % 5 };
                let numbers = [
                    u32::from(field(1) % 4),
                    u32::from(field(2)),
                    raw_bytes,
                    packed.len() as u32 + u32::from(field(8)),
                    crc32fast::hash(&packed),
                ];
                let mut header = b"\xf5PLF".to_vec();
                header.extend([kind, 0, 0, 0]);
                numbers.iter().for_each(|number| header.extend(number.to_le_bytes()));
                header.extend(crc32fast::hash(&header).to_le_bytes());
                file.extend(header);
                file.extend(packed);
            }
            5 => file.extend(take(64)),
            6 => file.extend(&own),
            // The trailer.
            _ => {
                let mut trailer = b"\xf5PLE".to_vec();
                trailer.extend(last.to_le_bytes());
                trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
                file.extend(trailer);
            }
        }
    }
    file
}
