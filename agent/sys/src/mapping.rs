//! Memory mappings, made by raw system calls.
//!
//! Communication libraries patch the C library's mmap and munmap to watch registered memory (UCX's
//! `ucm`), and call back into code that may allocate or lock; Plimsoll's memory must not reach
//! them.

use core::ptr::null_mut;

fn checked(result: libc::c_long) -> *mut u8 {
    if result == -1 { null_mut() } else { result as *mut u8 }
}

/// Maps zeroed private memory that is committed when touched; null on failure.
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
            // The argument is passed on the stack, so all eight bytes must be set.
            0 as libc::off_t,
        )
    })
}

/// Maps a part of a file, shared and writable; null on failure.
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

/// Maps a part of a file like [`shared`], without the descriptor, through a shared mapping of the
/// file's beginning; null on failure. An old size of 0 maps the same file again (mremap(2)),
/// including the part beyond the mapping.
///
/// # Safety
/// `beginning` is a shared mapping of the file from its beginning, and `offset` is a multiple of
/// the page size.
pub unsafe fn shared_again(beginning: *mut u8, offset: usize, bytes: usize) -> *mut u8 {
    // SAFETY: an old size of 0 changes no existing mapping.
    let whole = unsafe { resize(beginning, 0, offset + bytes, true) };
    if whole.is_null() || offset == 0 {
        return whole;
    }
    // SAFETY: the bytes before the part belong to the new mapping, which has no other user.
    unsafe {
        unmap(whole, offset);
        whole.add(offset)
    }
}

/// Unmaps a mapping; `false` if the kernel refuses.
///
/// # Safety
/// The range is a mapping of Plimsoll that is no longer used.
pub unsafe fn unmap(at: *mut u8, bytes: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) == 0 }
}

/// Changes a mapping's size and returns its address; null on failure.
///
/// # Safety
/// As [`unmap`], for the part that is cut off or moved.
pub unsafe fn resize(at: *mut u8, bytes: usize, new_bytes: usize, may_move: bool) -> *mut u8 {
    let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
    // SAFETY: as the caller promises.
    checked(unsafe { libc::syscall(libc::SYS_mremap, at, bytes, new_bytes, flags) })
}

/// Advises the kernel about the use of a mapping (madvise(2)).
///
/// # Safety
/// The range is a mapping of Plimsoll, and the advice does not change the contents that its users
/// rely on.
pub unsafe fn advise(at: *mut u8, bytes: usize, advice: libc::c_int) {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, advice) };
}

/// Returns the bytes of a range that are in memory, in whole pages; in a shared mapping, the pages
/// that any process has touched (mincore(2)). Pages that are not mapped, or cannot be queried,
/// count as 0.
pub fn resident(at: *const u8, bytes: usize) -> u64 {
    const PAGE: usize = 4096;
    let mut pages = [0u8; 512];
    let mut found = 0;
    let mut begin = 0;
    while begin < bytes {
        let length = (bytes - begin).min(pages.len() * PAGE);
        // SAFETY: the call only inspects the range, and has a byte of `pages` for each of its
        // pages.
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
