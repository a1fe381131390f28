//! Reads made pages, and the page of a software event.

use core::cell::Cell;

use super::*;

const ALL: u64 = BIT_0_IS_DEPRECATED | USER_RDPMC | USER_TIME;

/// Returns the page of an event on counter 3 (index 4) of 48 bits, enabled for 1000 ns and counted
/// for 600 of them until its last change at stamp 5000; one stamp is half a nanosecond.
fn page() -> Page {
    // SAFETY: a structure of numbers.
    let mut page: Page = unsafe { core::mem::zeroed() };
    page.__bindgen_anon_1.capabilities = ALL;
    page.lock = 2;
    page.index = 4;
    page.offset = 1 << 47;
    page.pmc_width = 48;
    page.time_enabled = 1_000;
    page.time_running = 600;
    page.time_shift = 4;
    page.time_mult = 8;
    page.time_offset = 2_500u64.wrapping_neg();
    page
}

/// Reads a page with a counter at `counter` at the stamp 5300.
fn read(page: &Page, counter: u64) -> Option<PageReading> {
    // SAFETY: a reference to a page.
    unsafe {
        read_from(
            page,
            |index| {
                assert_eq!(index, 3);
                counter
            },
            || 5_300,
        )
    }
}

#[test]
fn the_counter_is_signed_and_adds_to_the_offset_and_the_times_go_on() {
    // The kernel lets a counter of 48 bits begin at its least value.
    let least = 1 << 47;
    let expected = |value| Some(PageReading { value, enabled_ns: 1_150, running_ns: 750 });
    assert_eq!(read(&page(), least + 77), expected(77));
    assert_eq!(read(&page(), 5), expected((1 << 47) + 5));
    // Bits above the width are not the counter's.
    assert_eq!(read(&page(), u64::MAX << 48 | least | 77), expected(77));
    let mut whole = page();
    whole.pmc_width = 64;
    whole.offset = 10;
    assert_eq!(read(&whole, 3u64.wrapping_neg()), expected(7));
}

#[test]
fn what_user_code_may_not_read_is_left_to_the_kernel() {
    let change = |change: fn(&mut Page)| {
        let mut page = page();
        change(&mut page);
        // SAFETY: a reference to a page.
        unsafe { read_from(&raw const page, |_| panic!("rdpmc is not allowed"), || 5_300) }
    };
    assert_eq!(change(|page| page.index = 0), None, "no counter now");
    let no_rdpmc = change(|page| {
        page.__bindgen_anon_1.capabilities = BIT_0_IS_DEPRECATED | USER_TIME;
    });
    assert_eq!(no_rdpmc, None);
    // Kernels before 3.12 gave the first bits another meaning.
    assert_eq!(change(|page| page.__bindgen_anon_1.capabilities = USER_RDPMC | USER_TIME), None);
    assert_eq!(change(|page| page.pmc_width = 0), None);
    assert_eq!(change(|page| page.pmc_width = 65), None);
}

#[test]
fn without_time_stamps_only_an_event_that_always_counted_is_read() {
    let mut page = page();
    page.__bindgen_anon_1.capabilities = BIT_0_IS_DEPRECATED | USER_RDPMC;
    assert_eq!(read(&page, 1 << 47), None, "how long it counted is unknown");
    page.time_running = 1_000;
    let expected = PageReading { value: 0, enabled_ns: 1_000, running_ns: 1_000 };
    assert_eq!(read(&page, 1 << 47), Some(expected));
    page.__bindgen_anon_1.capabilities = ALL;
    page.time_shift = 64;
    assert_eq!(read(&page, 1 << 47), None, "no shift of 64 bits");
}

#[test]
fn a_short_time_stamp_continues_the_last_one() {
    let mut page = page();
    page.__bindgen_anon_1.capabilities = ALL | USER_TIME_SHORT;
    page.time_mask = 0xfff;
    // 5300 has passed 4096 once, 5000 as well.
    page.time_cycles = 5_000;
    // SAFETY: a reference to a page.
    let reading = unsafe { read_from(&raw const page, |_| 1 << 47, || 5_300 & 0xfff) };
    assert_eq!(reading.map(|it| it.enabled_ns), Some(1_150));
}

#[test]
fn a_page_that_changes_meanwhile_is_read_again() {
    let page = Cell::new(page());
    let attempts = Cell::new(0);
    let change = |index: u32| {
        attempts.set(attempts.get() + 1);
        let mut now = page.get();
        match attempts.get() {
            // The kernel moves the event to another counter between two reads of `lock`.
            1 => (now.lock, now.index, now.offset) = (4, 6, (1 << 47) + 900),
            // An update that has begun and not ended.
            2 => (now.lock, now.offset) = (5, 0),
            3 => {}
            4 => (now.lock, now.offset) = (6, (1 << 47) + 1_000),
            _ => assert_eq!(index, 5),
        }
        page.set(now);
        1 << 47
    };
    // SAFETY: a page that only `change` writes, as the kernel would.
    let reading = unsafe { read_from(page.as_ptr(), change, || 5_300) };
    assert_eq!(reading.map(|it| it.value), Some(1_000));
    assert_eq!(attempts.get(), 5);
}

#[test]
fn a_page_that_never_settles_is_given_up() {
    let page = Cell::new(page());
    let change = |_| {
        let mut now = page.get();
        now.lock += 2;
        page.set(now);
        0
    };
    // SAFETY: a page that only `change` writes, as the kernel would.
    assert_eq!(unsafe { read_from(page.as_ptr(), change, || 5_300) }, None);
}

#[test]
fn an_event_that_has_no_counter_of_the_processor_is_read_by_the_kernel() {
    let task_clock = super::super::Event { name: String::new(), kind: 1, config: 1 };
    let Ok(number) = task_clock.open_in(-1, true) else {
        println!("SKIPPED: perf events are refused here");
        return;
    };
    let page = EventPage::map(number).expect("the kernel maps the page of any event");
    assert_eq!(page.read(), None);
    // SAFETY: the page is mapped; reads its first fields only.
    let (version, capabilities) = unsafe {
        let page = page.0.as_ptr();
        (
            (&raw const (*page).version).read_volatile(),
            (&raw const (*page).__bindgen_anon_1.capabilities).read_volatile(),
        )
    };
    assert_eq!(version, 0);
    assert_eq!(capabilities & (BIT_0_IS_DEPRECATED | USER_RDPMC), BIT_0_IS_DEPRECATED);
    page.unmap();
    // SAFETY: the descriptor was opened here.
    unsafe { libc::close(number) };
}
