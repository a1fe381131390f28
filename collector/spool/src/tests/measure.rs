//! Costs of a spool: `cargo test --release -p plimsoll-spool spool_costs -- --ignored --nocapture`.
//! Also asserts the format's bounds, so that an expensive change is noticed.

use std::io::Cursor;
use std::time::Instant;

use super::Owned;
use super::programs::{PERIOD, computing, talking};
use crate::columns::{Builder, Records};
use crate::{Payload, SpoolReader, SpoolWriter, Step};

/// Returns the bytes per record of a spool with `a_frame` records per frame, thinned to one sample
/// in 2^`level`.
fn bytes_per_record(records: &[Owned], a_frame: usize, level: u32) -> f64 {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.begin(1, PERIOD);
    for _ in 0..level {
        writer.halve();
    }
    for records in records.chunks(a_frame) {
        for record in records {
            writer.record(1, &record.get());
        }
        writer.flush();
    }
    let counts = writer.finish().unwrap();
    assert_eq!((counts.bytes, counts.lost), (file.len() as u64, 0));
    file.len() as f64 / counts.records as f64
}

/// The lowest of several times, in nanoseconds per record.
fn fastest(records: usize, mut run: impl FnMut()) -> f64 {
    let times = (0..9).map(|_| {
        let begin = Instant::now();
        run();
        begin.elapsed()
    });
    times.min().unwrap().as_nanos() as f64 / records as f64
}

#[test]
fn a_tick_takes_less_than_three_bytes() {
    assert!(bytes_per_record(&computing(20_000, 3), 250, 0) < 3.0);
    assert!(bytes_per_record(&computing(20_000, 3), 1000, 0) < 2.6);
}

#[test]
#[ignore = "measures times: in a release build, on a calm machine"]
fn spool_costs() {
    for (name, records) in [("computing", computing(240_000, 3)), ("talking", talking(240_000, 3))]
    {
        for a_frame in [250, 1000, 60_000] {
            for level in [0, 1, 3] {
                let bytes = bytes_per_record(&records, a_frame, level);
                println!(
                    "{name}, {a_frame} records a frame, level {level}: {bytes:.3} bytes a record"
                );
            }
            let records = &records[..60_000];
            let mut payloads = Vec::new();
            let columns = fastest(records.len(), || {
                payloads.clear();
                let mut builder = Builder::default();
                for records in records.chunks(a_frame) {
                    let mut payload = Payload::default();
                    for record in records {
                        builder.push(&record.get()).unwrap();
                    }
                    builder.finish(&mut payload);
                    payloads.push(payload);
                }
            });
            let decode = fastest(records.len(), || {
                let mut count = 0;
                for payload in &payloads {
                    let mut read = Records::new(payload.bytes()).unwrap();
                    while let Some(record) = read.next().unwrap() {
                        std::hint::black_box(&record);
                        count += 1;
                    }
                }
                assert_eq!(count, records.len());
            });
            let mut file = Vec::new();
            let write = fastest(records.len(), || {
                file.clear();
                let mut writer = SpoolWriter::new(&mut file).unwrap();
                writer.begin(1, PERIOD);
                for records in records.chunks(a_frame) {
                    for record in records {
                        writer.record(1, &record.get());
                    }
                    writer.flush();
                }
                writer.finish().unwrap();
            });
            let read = fastest(records.len(), || {
                let mut reader = SpoolReader::new(Cursor::new(&file)).unwrap();
                let mut walk = reader.walk();
                let mut count = 0;
                while let Some(step) = walk.next().unwrap() {
                    let Step::Frame(frame) = step else { panic!("damaged") };
                    let mut read = frame.records().unwrap();
                    while let Some(record) = read.next().unwrap() {
                        std::hint::black_box(&record);
                        count += 1;
                    }
                }
                assert_eq!(count, records.len());
            });
            println!(
                "    ns a record: columns {columns:.1}, whole writer {write:.1}; \
                 decode {decode:.1} ({:.1} M/s), whole reader {read:.1}",
                1e3 / decode
            );
        }
    }
}
