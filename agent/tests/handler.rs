//! The real handler on the real clock, in this process: it samples, unwinds realigned frames, and
//! never allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config};
use plimsoll_wire::record::{Decoder, Record};
use plimsoll_wire::segment::{
    ADDRESSES_OFFSET, Address, MAX_ADDRESSES, ThreadArea, ring_bytes_for, thread_area_bytes,
    thread_offset,
};

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if WATCHED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn thread_cpu_ns() -> u64 {
    plimsoll_sys::posix_clocks::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline(never)]
fn burn(ms: u64) -> u64 {
    let end = thread_cpu_ns() + ms * 1_000_000;
    let mut turns = 0u64;
    while thread_cpu_ns() < end {
        for _ in 0..100_000 {
            turns = std::hint::black_box(turns + 1);
        }
    }
    turns
}

#[inline(never)]
fn outer(ms: u64) -> u64 {
    std::hint::black_box(burn(ms)) + 1
}

// A kernel in assembly, which uses rbp for data as OpenBLAS's do. Words in its frame look like
// return addresses. It exists without unwind information, and with some that is wrong.
macro_rules! kernel {
    ($name:literal, $begin:literal, $end:literal) => {
        std::arch::global_asm!(
            concat!($name, ":"),
            $begin,
            "sub rsp, 0x40",
            "mov [rsp + 8], rbp",
            "mov [rsp], rbx",
            "lea rbp, [rsp + 0x10]",
            "lea rbx, [rip + 3f]",
            "mov [rsp + 0x10], rbp",
            "mov [rsp + 0x18], rbx",
            "mov [rsp + 0x20], rbx",
            "2:",
            "dec rdi",
            "jnz 2b",
            "jmp 4f",
            "call 2b",
            "3:",
            "nop",
            "4:",
            "mov rbp, [rsp + 8]",
            "mov rbx, [rsp]",
            "add rsp, 0x40",
            "ret",
            $end,
            concat!($name, "_end:"),
        );
    };
}
kernel!("plimsoll_test_kernel", "", "");
kernel!("plimsoll_test_bare_kernel", ".cfi_startproc", ".cfi_endproc");

// A kernel that cannot be left: it does not end with a return. The words that rbp points to look
// like a frame with a small number as return address, which is no wrapped call.
std::arch::global_asm!(
    "plimsoll_test_lost_kernel:",
    "sub rsp, 0x40",
    "mov [rsp + 8], rbp",
    "lea rbp, [rsp + 0x10]",
    "lea rcx, [rsp + 0x30]",
    "mov [rsp + 0x10], rcx",
    "mov qword ptr [rsp + 0x18], 500",
    "2:",
    "dec rdi",
    "jnz 2b",
    "mov rbp, [rsp + 8]",
    "add rsp, 0x40",
    "pop rcx",
    "jmp rcx",
    "plimsoll_test_lost_kernel_end:",
);

unsafe extern "C" {
    fn plimsoll_test_lost_kernel(turns: u64);
    fn plimsoll_test_lost_kernel_end();
    fn plimsoll_test_kernel(turns: u64);
    fn plimsoll_test_kernel_end();
    fn plimsoll_test_bare_kernel(turns: u64);
    fn plimsoll_test_bare_kernel_end();
}

#[inline(never)]
fn outside_kernel(turns: u64) -> u64 {
    // SAFETY: the functions keep to the calling convention.
    unsafe {
        plimsoll_test_kernel(turns);
        plimsoll_test_bare_kernel(turns);
        plimsoll_test_lost_kernel(turns);
    }
    std::hint::black_box(turns) + 1
}

#[test]
fn samples_carry_the_stack_and_the_handler_never_allocates() {
    const PERIOD_NS: u64 = 1_000_000;
    let config = Config::new(PERIOD_NS, Marks::On);
    let observed = observed_process::start(&config).expect("observed");
    let begin = Instant::now();
    burn(20); // first signals, first rules in the caches
    WATCHED.set(true);
    // SAFETY: errno's location is valid.
    let errno = unsafe {
        *libc::__errno_location() = 4711;
        std::hint::black_box(outer(300));
        let kernel_end = thread_cpu_ns() + 100_000_000;
        while thread_cpu_ns() < kernel_end {
            std::hint::black_box(outside_kernel(1_000_000));
        }
        *libc::__errno_location()
    };
    WATCHED.set(false);
    let elapsed_ms = begin.elapsed().as_millis() as u32;
    observed.stop();
    assert_eq!(
        ALLOCATIONS.load(Ordering::Relaxed),
        0,
        "allocations while only the handler could allocate"
    );
    assert_eq!(errno, 4711, "errno changed under the application");

    let ring_bytes = ring_bytes_for(PERIOD_NS);
    let index = observed.header().main_thread.load(Ordering::Relaxed) as usize;
    // SAFETY: maps the segment a second time; its file is larger than what is mapped.
    let (addresses, area, ring) = unsafe {
        let map = |bytes: usize, offset: usize| {
            let at = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                observed.descriptor(),
                offset as i64,
            );
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>()
        };
        let header = map(ADDRESSES_OFFSET + MAX_ADDRESSES * size_of::<Address>(), 0);
        let area = map(thread_area_bytes(ring_bytes), thread_offset(index, ring_bytes));
        let written = (*area.cast::<ThreadArea>()).thread.head.load(Ordering::Acquire) as usize;
        (
            std::slice::from_raw_parts(
                header.add(ADDRESSES_OFFSET).cast::<Address>(),
                MAX_ADDRESSES,
            ),
            &*area.cast::<ThreadArea>(),
            std::slice::from_raw_parts(area.add(size_of::<ThreadArea>()), written),
        )
    };
    let mut decoder = Decoder::default();
    let mut rest = ring;
    let mut stack: Vec<u32> = Vec::new();
    let mut innermost: HashMap<u64, u32> = HashMap::new();
    let (mut samples, mut through_outer, mut truncated_samples) = (0, 0, 0);
    let (mut in_kernels, mut through_kernels, mut lost) = ([0; 2], [0; 2], 0);
    let lost_kernel =
        plimsoll_test_lost_kernel as *const ()..plimsoll_test_lost_kernel_end as *const ();
    let kernels = [
        plimsoll_test_kernel as *const ()..plimsoll_test_kernel_end as *const (),
        plimsoll_test_bare_kernel as *const ()..plimsoll_test_bare_kernel_end as *const (),
    ];
    let near = |id: u32, function: usize| {
        let value = addresses[id as usize].value.load(Ordering::Acquire);
        value >= function as u64 && value < function as u64 + 400
    };
    while let Some((record, length)) = decoder.next(rest).expect("our own stream is sound") {
        let sample = match record {
            Record::Sample { stack, truncated, .. } => Some((stack, truncated)),
            Record::Tick { stack, .. } => Some((stack, false)),
            _ => None,
        };
        if let Some((delta, truncated)) = sample {
            stack.truncate(stack.len() - delta.dropped as usize);
            stack.extend_from_slice(delta.added);
            samples += 1;
            truncated_samples += u32::from(truncated);
            through_outer +=
                u32::from(stack.iter().any(|id| near(*id, outer as *const () as usize)));
            let leaf = addresses[stack[stack.len() - 1] as usize].value.load(Ordering::Acquire);
            *innermost.entry(leaf).or_default() += 1;
            if lost_kernel.contains(&(leaf as *const ())) {
                lost += 1;
                assert!(truncated, "nothing is known outside of it");
                assert_eq!(stack.len(), 1, "no frame comes from a guess");
            }
            if let Some(at) = kernels.iter().position(|it| it.contains(&(leaf as *const ()))) {
                in_kernels[at] += 1;
                let caller = stack[..stack.len() - 1].last();
                let is_right = |id: &u32| near(*id, outside_kernel as *const () as usize);
                through_kernels[at] += u32::from(caller.is_some_and(is_right));
            }
        }
        rest = &rest[length..];
    }
    assert_eq!(samples, area.thread.samples.load(Ordering::Relaxed) as u32);
    // The timer also runs while the host of a virtual machine has the core, the CPU time does not.
    let most = elapsed_ms + 20;
    assert!((200..=most).contains(&samples), "{samples} samples of {elapsed_ms} ms at 1 ms");
    assert!(
        through_outer >= (samples - lost - in_kernels.iter().sum::<u32>()) * 85 / 100,
        "{through_outer} of {samples} samples see outer()"
    );
    assert!(in_kernels.iter().all(|samples| *samples > 25), "{in_kernels:?} samples in kernels");
    assert_eq!(through_kernels, in_kernels, "samples in kernels with their caller");
    assert!(lost > 25, "{lost} samples in the lost kernel");
    assert_eq!(truncated_samples, lost);
    assert!(innermost.len() > 1, "the program counter moves");
}
