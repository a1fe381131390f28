//! Unmaps the pages of the library's code and constants that only its start needed.
//!
//! All ranks of a node share these pages, but the kernel counts them as resident memory of each
//! rank. It maps 64 KiB around each use. After the start that is most of the library; a rank that
//! does not collect uses a small part of it from then on. What is used again is mapped again, from
//! memory.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;

use plimsoll_agent::loader::{constant_segments, each_object, segments};
use plimsoll_sys::mapping;

const PAGE: u64 = 4096;

/// Unmaps the pages of the library's code and constants. If anyone has changed them, as debuggers
/// do with breakpoints, all pages stay: unmapping would undo the changes.
pub fn unmap() {
    let ranges = own_constants();
    if !ranges.iter().all(is_as_in_file) {
        return;
    }
    for Range { start, end } in ranges {
        // SAFETY: the library's own mapping of its file, with the contents of the file.
        unsafe { mapping::advise(start as *mut u8, (end - start) as usize, libc::MADV_DONTNEED) };
    }
}

/// Returns the whole pages of the segments that the loader maps and nobody writes.
fn own_constants() -> Vec<Range<u64>> {
    let here = unmap as *const () as u64;
    let mut found = Vec::new();
    each_object(&mut |info| {
        // SAFETY: the object stays mapped while it is visited.
        unsafe {
            if !segments(info).any(|segment| segment.contains(&here)) {
                return ControlFlow::Continue(());
            }
            let whole = |it: Range<u64>| it.start.next_multiple_of(PAGE)..it.end / PAGE * PAGE;
            found.extend(constant_segments(info).map(whole).filter(|pages| !pages.is_empty()));
        }
        ControlFlow::Break(())
    });
    found
}

/// Returns whether the mapped pages of a range are those of the file; `false` if the kernel does
/// not say so.
fn is_as_in_file(range: &Range<u64>) -> bool {
    entries(range).is_some_and(|pages| pages.iter().all(|page| !page.is_mapped || page.is_of_file))
}

/// State of a page of this process, as in /proc/PID/pagemap (proc_pid_pagemap(5)).
struct PageEntry {
    is_mapped: bool,
    is_of_file: bool,
}

fn entries(range: &Range<u64>) -> Option<Vec<PageEntry>> {
    let pages = (range.end - range.start) / PAGE;
    let mut bytes = vec![0; 8 * pages as usize];
    let file = File::open("/proc/self/pagemap").ok()?;
    file.read_exact_at(&mut bytes, range.start / PAGE * 8).ok()?;
    let (words, _) = bytes.as_chunks();
    let entry = |word: &[u8; 8]| {
        let bits = u64::from_ne_bytes(*word);
        // A page in swap space was changed, since pages of files are not written there.
        PageEntry { is_mapped: bits >> 62 != 0, is_of_file: bits & 1 << 61 != 0 }
    };
    Some(words.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(4096))]
    struct Page([u8; PAGE as usize]);

    static CONSTANT: Page = Page([7; PAGE as usize]);

    fn mapped() -> usize {
        let ranges = own_constants();
        let pages = ranges.iter().flat_map(|range| entries(range).expect("Linux has pagemap"));
        pages.filter(|page| page.is_mapped).count()
    }

    #[test]
    fn code_and_constants_are_unmapped_until_they_are_used_again() {
        let before = mapped();
        unmap();
        let after = mapped();
        assert!(after < before, "{before} pages, then {after}");
        // A breakpoint changes a copy of the page in this process only.
        let at = CONSTANT.0.as_ptr().cast_mut();
        // SAFETY: the page has no other constants, and is given another value nobody relies on.
        unsafe {
            assert_eq!(
                libc::mprotect(at.cast(), CONSTANT.0.len(), libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            at.write_volatile(9);
            assert_eq!(libc::mprotect(at.cast(), CONSTANT.0.len(), libc::PROT_READ), 0);
        }
        unmap();
        // SAFETY: the page is readable.
        assert_eq!(unsafe { at.read_volatile() }, 9, "the change stays");
    }
}
