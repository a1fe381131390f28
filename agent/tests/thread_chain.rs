//! Creation of threads: the recorded call paths have the names that the threads are given.

use std::arch::naked_asm;
use std::hint::black_box;
use std::sync::atomic::Ordering;

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config, Observed};
use plimsoll_agent::regions::thread_creations::{ThreadOrigin, begin_creation};
use plimsoll_agent::regions::{Entry, flush_tallies, lie_in};
use plimsoll_agent::thread_state::State;
use plimsoll_agent::tls;
use plimsoll_calls::CREATE_THREAD;
use plimsoll_wire::record::{Decoder, MAX_DEPTH, Record};
use plimsoll_wire::segment::ThreadArea;
use plimsoll_wire::teams::PathKey;

/// Begins the creation of a thread at its own place, as a hook does.
#[unsafe(naked)]
unsafe extern "C" fn create(origin: &mut ThreadOrigin) {
    naked_asm!("mov rsi, rsp", "mov rdx, [rsp]", "mov rcx, rbp", "jmp {note}", note = sym note)
}

unsafe extern "C" fn note(
    origin: &mut ThreadOrigin,
    return_slot: u64,
    return_address: u64,
    caller_rbp: u64,
) {
    let observed = observed_process::current().expect("observed");
    let call = CREATE_THREAD;
    let entry = Entry { call, return_slot, return_address, caller_rbp, descriptor: -1, ticks: 0 };
    *origin = on_thread(|state| begin_creation(observed, state, &entry, true));
}

fn on_thread<R>(work: impl FnOnce(&mut State) -> R) -> R {
    // SAFETY: the block of this thread, which is observed.
    let block = unsafe { tls::get().as_ref() }.expect("observed");
    block.enter(work).expect("the handler does not run")
}

#[inline(never)]
fn created() -> ThreadOrigin {
    let mut origin = ThreadOrigin::default();
    // SAFETY: the thread is observed.
    unsafe { create(&mut origin) };
    origin
}

/// As [`created`], this many frames further in.
#[inline(never)]
fn created_below(frames: u32) -> ThreadOrigin {
    match black_box(frames) {
        0 => created(),
        _ => black_box(created_below(frames - 1)),
    }
}

/// Bytes that the calling thread has written to its ring, which nobody reads.
fn written() -> Vec<u8> {
    on_thread(|state| {
        let written = state.area().thread.head.load(Ordering::Acquire) as usize;
        let area: *const ThreadArea = state.area;
        // SAFETY: the ring follows its area, and this thread alone writes there.
        unsafe { std::slice::from_raw_parts(area.add(1).cast::<u8>(), written).to_vec() }
    })
}

/// Names of the call paths in the slots that the calling thread has announced since its stream
/// began or was reset, and whether it was reset.
fn announced() -> (Vec<PathKey>, bool) {
    let bytes = written();
    let (mut decoder, mut rest) = (Decoder::default(), &bytes[..]);
    let (mut paths, mut graft, mut was_reset) = (Vec::new(), PathKey::NONE, false);
    while let Some((record, length)) = decoder.next(rest).expect("our own stream is sound") {
        match record {
            Record::Lost { .. } => (graft, was_reset) = (PathKey::NONE, true),
            Record::Graft { path } => graft = path,
            Record::Slot { stack, .. } => {
                assert_eq!(stack.dropped, 0, "no sample was taken");
                paths.push(stack.added.iter().fold(graft, |path, id| path.then((*id).into())));
            }
            _ => {}
        }
        if matches!(record, Record::Lost { .. }) {
            paths.clear();
        }
        rest = &rest[length..];
    }
    (paths, was_reset)
}

/// One test: a process has one observation.
#[test]
fn created_threads_know_the_recorded_call_path() {
    let config = Config::new(1_000_000_000, Marks::Off);
    let observed = observed_process::start(&config).expect("observed");
    let mut seen = Vec::new();
    // The compiler must not unroll the loop into several call sites.
    for _ in 0..black_box(3) {
        seen.push(created());
    }
    assert!(seen.iter().all(|origin| *origin == seen[0]), "one call site: {seen:?}");
    assert_eq!((announced(), seen[0].creators), ((vec![seen[0].path], false), 1));

    // A collector that attaches later learns the path without a further creation or its count.
    on_thread(flush_tallies);
    observed.header().reader.fetch_add(1, Ordering::Release);
    on_thread(flush_tallies);
    assert_eq!(announced(), (vec![seen[0].path], true));

    a_chain_of_threads_has_a_bounded_number_of_paths(observed);
    on_new_thread(observed, a_call_below_more_frames_than_fit_is_part_of_its_path);
    on_new_thread(observed, a_slot_that_does_not_fit_is_not_named);
}

fn on_new_thread(observed: &'static Observed, test: fn(&Observed)) {
    let run = move || {
        observed.attach_thread(0, ThreadOrigin::default());
        test(observed);
        observed.detach_thread();
    };
    std::thread::spawn(run).join().expect("it does not panic");
}

fn a_call_below_more_frames_than_fit_is_part_of_its_path(_: &Observed) {
    let origin = created_below(2 * MAX_DEPTH as u32);
    assert_eq!(announced(), (vec![origin.path], false));
}

fn a_slot_that_does_not_fit_is_not_named(observed: &Observed) {
    created_below(100);
    // The next collector knows no slot.
    observed.header().reader.fetch_add(1, Ordering::Release);
    let ring_bytes = u64::from(observed.header().ring_bytes.load(Ordering::Relaxed));
    let lost = on_thread(|state| {
        // Room for the count of the call, but not for its path.
        let mut path = PathKey(1);
        while ring_bytes - state.area().thread.head.load(Ordering::Relaxed) > 60 {
            path = path.then(1);
            lie_in(state, path);
        }
        flush_tallies(state);
        state.area().thread.lost.load(Ordering::Relaxed)
    });
    assert_eq!(lost, 3, "the path, the count, and the path of a creation again");
    let bytes = written();
    let (mut decoder, mut rest) = (Decoder::default(), &bytes[..]);
    let mut known = Vec::new();
    while let Some((record, length)) = decoder.next(rest).expect("our own stream is sound") {
        match record {
            Record::Lost { .. } => known.clear(),
            Record::Slot { slot, .. } => known.push(slot),
            Record::Tally { slot, .. } => assert!(known.contains(&slot), "{slot} of {known:?}"),
            _ => {}
        }
        rest = &rest[length..];
    }
}

fn a_chain_of_threads_has_a_bounded_number_of_paths(observed: &'static Observed) {
    fn link(observed: &'static Observed, origin: ThreadOrigin, left: u32) -> Vec<ThreadOrigin> {
        let mut origins = vec![origin];
        if left > 0 {
            let next = std::thread::spawn(move || {
                observed.attach_thread(0, origin);
                let next = created();
                let (paths, _) = announced();
                assert_eq!(paths.len(), 1);
                assert!(paths[0] == next.path || next == origin, "{paths:?}, {next:?}");
                let origins = link(observed, next, left - 1);
                observed.detach_thread();
                origins
            });
            origins.extend(next.join().expect("it does not panic"));
        }
        origins
    }
    let origins = link(observed, created(), 12);
    let creators: Vec<u8> = origins.iter().map(|origin| origin.creators).collect();
    assert_eq!(creators, [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8]);
    let mut paths: Vec<PathKey> = origins.iter().map(|origin| origin.path).collect();
    paths.dedup();
    assert_eq!(paths.len(), 8);
}
