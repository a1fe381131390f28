//! Reads the application's stack without ever faulting.

use plimsoll_sys::syscalls::syscall;

/// Page size in bytes: stacks of unknown bounds are checked page by page.
const PAGE: u64 = 4096;

/// Maximum distance above the stack pointer at which a stack of unknown bounds is read, in bytes.
const UNKNOWN_STACK_REACH: u64 = 8 << 20;

/// Size of the area below the stack pointer that belongs to the function, in bytes (System V ABI,
/// 3.2.2).
const RED_ZONE: u64 = 128;

/// The readable part of one stack, from a given stack pointer upwards.
pub struct StackMemory {
    low: u64,
    high: u64,
    known: bool,
    /// Last page that the kernel found readable; `None` before the first one.
    checked_page: Option<u64>,
}

impl StackMemory {
    /// Describes the stack in use at `sp`. `bounds` is the thread's own stack. If `sp` lies
    /// elsewhere (a coroutine, an alternate signal stack), every page is checked before it is read.
    pub fn at(sp: u64, bounds: (u64, u64)) -> Self {
        let known = sp >= bounds.0 && sp < bounds.1;
        let high = if known { bounds.1 } else { sp.saturating_add(UNKNOWN_STACK_REACH) };
        Self { low: sp.saturating_sub(RED_ZONE), high, known, checked_page: None }
    }

    /// Returns the word at `address`; an error if it is out of range or unreadable.
    #[inline]
    pub fn read(&mut self, address: u64) -> Result<u64, ()> {
        if address < self.low || address > self.high.saturating_sub(8) {
            return Err(());
        }
        let readable =
            self.known || (self.page_is_readable(address) && self.page_is_readable(address + 7));
        if !readable {
            return Err(());
        }
        // SAFETY: the address lies on the thread's own stack above its stack pointer, or on a page
        // that the kernel has just found readable.
        Ok(unsafe { (address as *const u64).read_unaligned() })
    }

    fn page_is_readable(&mut self, address: u64) -> bool {
        let page = address & !(PAGE - 1);
        if self.checked_page == Some(page) {
            return true;
        }
        let readable = is_readable(page);
        if readable {
            self.checked_page = Some(page);
        }
        readable
    }
}

/// Memory that is read only where it is mapped: the kernel is asked for each page first.
pub struct CheckedMemory {
    /// Readable pages: the last ones that were asked for.
    pages: [u64; Self::PAGES],
    next: usize,
}

impl CheckedMemory {
    const PAGES: usize = 8;

    /// Memory without known pages.
    pub const NOTHING: Self = Self { pages: [0; Self::PAGES], next: 0 };

    /// Returns the word at `address`; an error if it is unreadable or not aligned.
    pub fn read(&mut self, address: u64) -> Result<u64, ()> {
        let page = address & !(PAGE - 1);
        if page == 0 || !address.is_multiple_of(8) {
            return Err(());
        }
        if !self.pages.contains(&page) {
            if !is_readable(page) {
                return Err(());
            }
            self.pages[self.next % Self::PAGES] = page;
            self.next += 1;
        }
        // SAFETY: the kernel has found the page readable in this walk; the thread that has it in
        // use is this one.
        Ok(unsafe { *(address as *const u64) })
    }

    /// Returns the number of `bytes` bytes at `address`, which lies within one aligned word.
    pub fn read_part(&mut self, address: u64, bytes: u64) -> Result<u64, ()> {
        let word = self.read(address & !7)?;
        Ok(word >> (8 * (address & 7)) & (u64::MAX >> (64 - 8 * bytes)))
    }
}

/// Returns whether the eight bytes at `address` are readable. Uses a system call: rt_sigprocmask
/// with an invalid `how` copies the mask in before it fails, so that EFAULT means unreadable.
/// Preserves errno.
fn is_readable(address: u64) -> bool {
    // SAFETY: the kernel checks the pointer; nothing is changed because `how` is invalid.
    let result = unsafe { syscall!(libc::SYS_rt_sigprocmask, -1i32, address, 0, 8) };
    matches!(result, Err(error) if error != libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_stacks_are_read_only_where_mapped() {
        // SAFETY: a fresh anonymous mapping of two pages; the upper one is made unreadable.
        let base = unsafe {
            let base = libc::mmap(
                core::ptr::null_mut(),
                2 * PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_eq!(libc::mprotect(base.add(PAGE as usize), PAGE as usize, libc::PROT_NONE), 0);
            *base.cast::<u64>() = 42;
            base as u64
        };
        let mut stack = StackMemory::at(base, (0, 0));
        assert_eq!(stack.read(base), Ok(42));
        assert_eq!(stack.read(base + PAGE - 8), Ok(0));
        assert_eq!(stack.read(base + PAGE - 4), Err(()), "half of the word lies on the dead page");
        assert_eq!(stack.read(base + PAGE), Err(()));
        assert_eq!(stack.read(base - 2 * RED_ZONE), Err(()), "below the stack pointer");
    }

    #[test]
    fn checked_memory_is_read_only_where_mapped() {
        let memory = || CheckedMemory::NOTHING;
        // SAFETY: a fresh anonymous mapping of a page.
        let page = unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let kind = kind | libc::MAP_ANONYMOUS;
            let page = libc::mmap(core::ptr::null_mut(), PAGE as usize, access, kind, -1, 0);
            page.cast::<u64>().write(0x0102_0304_0506_0708);
            page as u64
        };
        assert_eq!(memory().read(page), Ok(0x0102_0304_0506_0708));
        assert_eq!(memory().read_part(page + 2, 2), Ok(0x0506));
        assert_eq!(memory().read(page + 1), Err(()), "not aligned");
        assert_eq!(memory().read(8), Err(()), "the first page of all");
        assert_eq!(memory().read(1 << 60), Err(()), "no address of a program");
        // The page stays reserved: after munmap, another test's thread could map memory there.
        // SAFETY: only this test uses the page.
        unsafe { libc::mprotect(page as *mut libc::c_void, PAGE as usize, libc::PROT_NONE) };
        assert_eq!(memory().read(page), Err(()));
        // SAFETY: as above.
        unsafe { libc::munmap(page as *mut libc::c_void, PAGE as usize) };
    }

    #[test]
    fn the_first_page_of_all_is_asked_for_as_any_other() {
        // Nothing is mapped there: Linux keeps the lowest pages free (mmap_min_addr).
        let mut stack = StackMemory::at(PAGE, (0, 0));
        assert_eq!(stack.read(PAGE - 8), Err(()));
        assert_eq!(StackMemory::at(RED_ZONE, (0, 0)).read(8), Err(()));
    }

    #[test]
    fn asking_for_a_page_leaves_errno_alone() {
        let word = 7u64;
        let at = &raw const word as u64;
        // SAFETY: errno's location is valid.
        let errno = unsafe {
            *libc::__errno_location() = 4711;
            assert_eq!(StackMemory::at(at, (0, 0)).read(at), Ok(7));
            *libc::__errno_location()
        };
        assert_eq!(errno, 4711);
    }

    #[test]
    fn known_stacks_end_at_their_bound() {
        let words = [7u64; 4];
        let low = words.as_ptr() as u64;
        let mut stack = StackMemory::at(low, (low, low + 32));
        assert_eq!(stack.read(low + 24), Ok(7));
        assert_eq!(stack.read(low + 25), Err(()));
    }
}
