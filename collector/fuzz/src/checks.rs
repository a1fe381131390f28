//! Properties that hold for any bytes: the reader ends, does not panic, and takes bounded memory.
//! The fuzz targets and the collector's own tests (`src/tests/spool_corpus.rs`) share this file.

use std::io::Cursor;

use plimsoll_wire::record::Record;
use serde_json::json;

use super::digest::Digest;
use super::spool::columns::{Builder, Records};
use super::spool::{Addresses, Frame, HEADER_BYTES, Kind, Payload, SpoolReader, SpoolWriter, Step};

/// Reads a payload as records and as addresses, and writes the result again.
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

/// Asserts that the payload is equal when written again.
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
        Kind::Ring => {}
        Kind::Index => panic!("indices are the reader's own"),
    }
}

/// Digests two files, a spool and its journal.
pub fn digest(spool: &[u8], journal: &[u8]) {
    let Ok(mut digest) = Digest::new(Cursor::new(spool), Some(Cursor::new(journal))) else {
        return;
    };
    for process in digest.processes() {
        let profile = digest.profile(process.number, |_| {}).expect("memory can be read");
        let profile = profile.expect("a process that is listed");
        let times = profile.phases.iter().flat_map(|phase| &phase.values);
        assert!(times.map(|(_, value)| u128::from(value.exclusive_ns)).sum::<u128>() < 1 << 80);
    }
}

/// Returns a file described by the bytes: frames with correct checksums, otherwise arbitrary, and
/// other bytes between.
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
            // A frame, or the beginning of one; its payload may carry a wrong length.
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
                let stream = (kind, u32::from(field(1) % 4), u32::from(field(2)));
                let packed_bytes = packed.len() as u32 + u32::from(field(8));
                frame(stream, (raw_bytes, packed_bytes), &packed, &mut file);
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

/// Returns a frame: kind, stream and number; the lengths in its header; its payload.
fn frame(stream: (u8, u32, u32), (raw, said): (u32, u32), packed: &[u8], file: &mut Vec<u8>) {
    let (kind, number, sequence) = stream;
    let numbers = [number, sequence, raw, said, crc32fast::hash(packed)];
    let mut header = b"\xf5PLF".to_vec();
    header.extend([kind, 0, 0, 0]);
    numbers.iter().for_each(|number| header.extend(number.to_le_bytes()));
    header.extend(crc32fast::hash(&header).to_le_bytes());
    file.extend(header);
    file.extend(packed);
}

/// Returns the spool of a process with two threads: the first 32 bytes are its metadata, all others
/// the payloads of its records.
pub fn forge_process(bytes: &[u8]) -> Vec<u8> {
    let (said, mut payloads) = bytes.split_at(bytes.len().min(32));
    let byte = |place: usize| u64::from(said.get(place).copied().unwrap_or(0));
    // Small, or very large.
    let number = |place: usize| byte(place) << (byte(place + 1) % 57);
    let mut file = Vec::new();
    SpoolWriter::new(&mut file).expect("there is memory").finish().expect("so it can be written");
    file.truncate(16);
    let mut sequences = [[0; 2]; 4];
    let mut put = |kind: u8, stream: u32, raw: &[u8]| {
        let packed = zstd::bulk::compress(raw, 1).expect("there is memory");
        let sequence: &mut u32 = &mut sequences[usize::from(kind)][stream as usize];
        let lengths = (raw.len() as u32, packed.len() as u32);
        frame((kind, stream, *sequence), lengths, &packed, &mut file);
        *sequence += 1;
    };
    let last = json!({
        "tallies": [[byte(0) % 4, number(1), number(3), number(5)]],
        "open": [byte(1) % 4, number(7)],
        "counters": {
            "samples": number(9), "lost": number(11), "truncated": 0, "mpi_calls": 0,
            "marks_planted": 0, "marks_hit": 0, "marks_stale": 0, "marks_verified": 0,
            "marks_mismatched": 0, "handler_ticks": number(13),
        },
    });
    for value in [
        json!({
            "process": { "process": 0, "pid": 1, "start_time": 1, "memory_bytes": number(15) },
        }),
        json!({ "thread": { "process": 0, "records": 0, "routine": 0, "born": null } }),
        json!({ "thread": { "process": 0, "records": 1, "routine": 9, "born": number(17) } }),
        json!({ "thread_end": { "records": 1, "end": number(19), "last": last } }),
        json!({ "calls": [[1, "read"], [2, "MPI_Allreduce"], [3, "MPI_Send"]] }),
        json!({ "statuses": [{
            "process": 0,
            "begin": number(21),
            "end": if byte(2) & 1 == 0 { None } else { Some(number(23)) },
            "read": number(25), "main": 0, "period_stamps": number(27),
            "ns_per_ticks_q32": number(29),
            "facts": {
                "period_ns": number(27),
                "clock": byte(3),
                "rate": { "ns_per_ticks_q32": number(29) },
                "marks_off": 0, "unsampled_threads": 0, "stepped_aside": false,
            },
            "follows": byte(5) & 1 == 0,
            "threads": byte(4),
            "unread": number(30),
            "record_bytes": 0,
            "living": [[0, last]],
        }] }),
    ] {
        put(1, 0, value.to_string().as_bytes());
    }
    // Ids from 1 on: three calls, then code from 0x5000 on, as differences.
    let mut addresses = vec![1, 26, 24, 24, 2, 2, 2, 0x80, 0xc0, 0x02];
    addresses.extend([32; 20]);
    addresses.extend([0; 48]);
    put(2, 0, &addresses);
    while let Some((head, rest)) = payloads.split_at_checked(2) {
        let length = rest.len().min(usize::from(head[1]) << 3);
        put(3, u32::from(head[0] & 1), &rest[..length]);
        payloads = &rest[length..];
    }
    file
}
