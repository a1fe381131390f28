//! Size of a spool: the format's bounds, so that an expensive change is noticed.

use super::Owned;
use super::programs::{PERIOD, computing};
use crate::SpoolWriter;

/// Returns the bytes per record of a spool with `a_frame` records per frame.
fn bytes_per_record(records: &[Owned], a_frame: usize) -> f64 {
    let mut file = Vec::new();
    let mut writer = SpoolWriter::new(&mut file).unwrap();
    writer.begin(1, PERIOD);
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

#[test]
fn a_tick_takes_less_than_three_bytes() {
    assert!(bytes_per_record(&computing(20_000, 3), 250) < 3.0);
    assert!(bytes_per_record(&computing(20_000, 3), 1000) < 2.6);
}
