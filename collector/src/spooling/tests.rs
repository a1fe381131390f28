//! Spools that take no more records, and tables that need more than one frame.

use std::io;

use super::*;
use crate::address_table::{Detail, Role};
use crate::process_info::FinalThreadState;
use crate::profile::{Frame, FrameKind};
use crate::tests::ids_of_names;
use plimsoll_spool::MAX_RAW_BYTES;

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

#[test]
fn names_that_are_too_large_for_one_frame_are_all_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank0");
    let file = path.with_extension(SPOOL);
    let mut spooling = Spooling::new(Box::new(|| Ok(path)), 1 << 30).unwrap();
    // Names of templates have up to some hundred kilobytes.
    let long = "N".repeat(MAX_RAW_BYTES / 64);
    let count = 80;
    for id in 1..=count {
        let frame = Frame {
            kind: FrameKind::Function,
            function: format!("{long}{id}"),
            file: None,
            line: None,
            offset: None,
            module: "subject".to_owned(),
            call: None,
        };
        spooling.name(NameMeta {
            process: 0,
            id,
            offset: u64::from(id),
            role: Role::Inside,
            detail: Detail::Symbol,
            frame,
            steps: Vec::new(),
            begin: None,
            call_line: None,
        });
    }
    assert_eq!(spooling.finish().trouble, None);
    assert_eq!(ids_of_names(&file), (1..=count).collect::<Vec<_>>());
}
