//! Spools that take no more records.

use std::io;

use super::*;
use crate::process_info::FinalThreadState;

/// Returns the bytes that the spool and its journal hold and have written.
fn bytes(spooling: &Spooling) -> u64 {
    let of = |writer: &SpoolWriter<Sink>| writer.counts().bytes + writer.held_bytes() as u64;
    of(&spooling.spool) + of(&spooling.journal)
}

#[test]
fn threads_that_begin_when_the_spool_is_full_take_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank0");
    let places: [PlaceSpool; 2] =
        [Box::new(|| Ok(path)), Box::new(|| Err(io::ErrorKind::PermissionDenied.into()))];
    for place in places {
        let mut spooling = Spooling::new(place, 0).unwrap();
        spooling.flush(true, Instant::now());
        assert!(spooling.full.is_some());
        assert!(!matches!(spooling.spool.sink_mut(), Sink::Memory(_)));
        let before = bytes(&spooling);
        for number in 0..100 {
            let address = Address { value: 0x5000_0000 + u64::from(number), module: 1, flags: 0 };
            spooling.addresses(0, number + 1, &[address]);
            let records = spooling.thread(0, 0, PathKey::NONE, None, 100);
            let last = FinalThreadState::default();
            spooling.end_thread(ThreadEnd { records, end: 0, last });
        }
        assert_eq!(bytes(&spooling), before);
        assert!(spooling.finish().trouble.is_some());
    }
}
