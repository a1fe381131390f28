//! Opens software events and reads them.

use std::os::fd::AsRawFd;

use plimsoll_sys::own::Known;

use super::*;

const PAGE_FAULTS: Event = Event { name: String::new(), kind: 1, config: 2 };
const CONTEXT_SWITCHES: Event = Event { name: String::new(), kind: 1, config: 3 };

/// Touches `pages` new pages.
fn touch(pages: usize) {
    let bytes = pages * 4096;
    // SAFETY: an anonymous mapping of this function's own, written within its length.
    unsafe {
        let memory = libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            memory.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(memory, bytes);
    }
}

#[test]
fn faults_and_switches_are_those_of_the_thread() {
    let descriptors = Descriptors::new();
    let mut refused = [0; MAX_EVENTS];
    let events = [CONTEXT_SWITCHES, PAGE_FAULTS];
    let mut counters = Counters::open(&events, &descriptors, &mut refused);
    if refused[1] != 0 {
        println!("SKIPPED: perf events are refused here: {}", refused[1]);
        return;
    }
    touch(1000);
    assert!(counters.note(1, false));
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    assert!(counters.note(2, true));
    let [before, inside] = counters.pending.map(|counts| counts.values);
    assert!((1000..1010).contains(&before[1]), "{before:?}");
    assert!(inside[1] < 10, "{inside:?}");
    if refused[0] == 0 {
        assert!((20..60).contains(&inside[0]), "{inside:?}");
    }
    counters.skip();
    assert!(counters.pending.iter().all(Counts::is_none));
    counters.close(&descriptors);
    assert!(!counters.counts());
}

#[test]
fn a_file_of_the_application_under_the_number_is_left_alone() {
    let descriptors = Descriptors::new();
    let mut refused = [0; MAX_EVENTS];
    let mut counters = Counters::open(&[PAGE_FAULTS], &descriptors, &mut refused);
    if refused[0] != 0 {
        println!("SKIPPED: perf events are refused here: {}", refused[0]);
        return;
    }
    let number = counters.groups[0].leader();
    let mut ends = [0; 2];
    // SAFETY: the array holds two descriptors; the read end takes the event's number.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::write(ends[1], [7u8; 64].as_ptr().cast(), 64), 64);
        assert_eq!(libc::dup2(ends[0], number), number);
    }
    assert!(!counters.note(1, false), "a pipe is no event");
    // An event of the application under the number is not ours either.
    let other = PAGE_FAULTS.open_in(-1, true).expect("events are allowed");
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(other, number) }, number);
    assert!(counters.groups[0].read().is_none());
    counters.close(&descriptors);
    let mut bytes = [0u8; 64];
    // SAFETY: the buffer holds 64 bytes; closes what this function has opened.
    unsafe {
        assert_eq!(libc::read(ends[0], bytes.as_mut_ptr().cast(), 64), 64, "nothing was read");
        assert_eq!(libc::close(number), 0, "it was not ours to close");
        for descriptor in [ends[0], ends[1], other] {
            libc::close(descriptor);
        }
    }
}

#[test]
fn events_beyond_the_processor_s_counters_form_another_group() {
    let files: Vec<_> =
        (0..5).map(|_| std::fs::File::open("/dev/null").expect("it is there")).collect();
    let mut groups = [Group::EMPTY; 2];
    // Leader of each event. The processor counts three events at a time.
    let mut leaders: Vec<c_int> = Vec::new();
    let mut add = |index: u8| {
        let file = Known::new(files[usize::from(index)].as_raw_fd()).expect("it is open");
        add_to_group(&mut groups, index, |leader| {
            let leader = if leader == -1 { file.number() } else { leader };
            if leaders.iter().filter(|other| **other == leader).count() == 3 {
                return Err(libc::EINVAL);
            }
            leaders.push(leader);
            Ok(Member { file, id: u64::from(index), page: None })
        })
    };
    for index in 0..5 {
        assert_eq!(add(index), Ok(()));
    }
    let indices = groups.map(|group| group.members().map(|(index, _)| index).collect::<Vec<_>>());
    assert_eq!(indices, [vec![0, 1, 2], vec![3, 4]]);
    let full = add_to_group(&mut groups, 5, |_| Err(libc::EINVAL));
    assert_eq!(full, Err(libc::EINVAL));
    let mut asked = 0;
    let unknown = add_to_group(&mut groups, 5, |_| {
        asked += 1;
        Err(libc::ENOENT)
    });
    assert_eq!((unknown, asked), (Err(libc::ENOENT), 1), "no group can count it");
}
