//! Mappings by raw system calls.
//!
//! Communication libraries patch the C library's mmap and munmap to watch registered memory (UCX's
//! `ucm`), and call back into code that may allocate or lock: our memory is none of their business.

use core::ptr::null_mut;

fn checked(result: libc::c_long) -> *mut u8 {
    if result == -1 { null_mut() } else { result as *mut u8 }
}

/// Zeroed private memory that is committed when touched; null if there is none.
pub fn private(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            null_mut::<u8>(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            // All eight bytes: this argument lies on the stack.
            0 as libc::off_t,
        )
    })
}

/// A shared, writable mapping of a part of a file; null if it cannot be had.
pub fn shared(descriptor: libc::c_int, offset: usize, bytes: usize) -> *mut u8 {
    // SAFETY: a fresh mapping.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            null_mut::<u8>(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            descriptor,
            offset,
        )
    })
}

/// As [`shared`] without the descriptor, through a shared mapping of the file's beginning; null if it
/// cannot be had. An old size of 0 maps the same file again (mremap(2)), also what is beyond the mapping.
///
/// # Safety
/// `beginning` is a shared mapping of the file from its beginning, and `offset` is a multiple of the page
/// size.
pub unsafe fn shared_again(beginning: *mut u8, offset: usize, bytes: usize) -> *mut u8 {
    // SAFETY: no mapping changes by this.
    let whole = unsafe { resize(beginning, 0, offset + bytes, true) };
    if whole.is_null() || offset == 0 {
        return whole;
    }
    // SAFETY: what comes before the part is new, and nobody's.
    unsafe {
        unmap(whole, offset);
        whole.add(offset)
    }
}

/// Gives a mapping back; false if the kernel refuses.
///
/// # Safety
/// The range is a mapping of ours that nobody uses any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) == 0 }
}

/// Changes a mapping's size; null if that is not possible.
///
/// # Safety
/// As [`unmap`], for what is cut off or moved.
pub unsafe fn resize(at: *mut u8, bytes: usize, new_bytes: usize, may_move: bool) -> *mut u8 {
    let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
    // SAFETY: as the caller promises.
    checked(unsafe { libc::syscall(libc::SYS_mremap, at, bytes, new_bytes, flags) })
}

/// Sets a property of a mapping.
///
/// # Safety
/// The range is a mapping of ours, and the advice does not change what its users find there.
pub unsafe fn advise(at: *mut u8, bytes: usize, advice: libc::c_int) {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, advice) };
}

/// Bytes of a range that are in memory, in whole pages: of a shared mapping those that anybody has touched
/// (mincore(2)). What is not mapped, or cannot be asked about, counts as 0.
pub fn resident(at: *const u8, bytes: usize) -> u64 {
    const PAGE: usize = 4096;
    let mut pages = [0u8; 512];
    let mut found = 0;
    let mut begin = 0;
    while begin < bytes {
        let length = (bytes - begin).min(pages.len() * PAGE);
        // SAFETY: the call only looks at the range, and has a byte of `pages` for each page of it.
        let asked = unsafe {
            libc::syscall(libc::SYS_mincore, at.wrapping_add(begin), length, pages.as_mut_ptr())
        };
        if asked == 0 {
            let looked = &pages[..length.div_ceil(PAGE)];
            found += looked.iter().filter(|page| **page & 1 != 0).count() * PAGE;
        }
        begin += length;
    }
    found as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_touched_pages_are_resident() {
        let bytes = 3 << 20;
        let memory = private(bytes);
        assert!(!memory.is_null());
        assert_eq!(resident(memory, bytes), 0);
        for page in [0, 1, 700] {
            // SAFETY: within the mapping, which is this test's alone.
            unsafe { memory.add(page * 4096).write(1) };
        }
        assert_eq!(resident(memory, bytes), 3 * 4096);
        assert_eq!(resident(memory, 4096 + 1), 2 * 4096);
        // SAFETY: the mapping is this test's alone.
        assert!(unsafe { unmap(memory, bytes) });
        assert_eq!(resident(memory, bytes), 0);
    }
}
