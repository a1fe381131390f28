//! Lists that the application passes: statuses, requests and datatypes.

use std::ffi::c_int;

use super::HandleFacts;
use super::pending::Layout;
use crate::mpi::{Abi, Handle};

/// Bit set in integer handles, so that none is the address of an object.
const FORTRAN_HANDLE: u64 = 1 << 62;

impl HandleFacts {
    /// Returns whether a rank argument is MPI_ANY_SOURCE.
    #[inline]
    pub fn is_any_source(&self, rank: c_int) -> bool {
        rank == self.library.constants.any_source
    }

    /// Returns the source in the status at an index of a list; `None` if the application ignores
    /// the status.
    ///
    /// # Safety
    /// `statuses` must be that argument of a call that has returned and has set this status, or an
    /// argument that ignores the status.
    #[inline]
    pub unsafe fn source(&self, statuses: usize, at: usize, is_c: bool) -> Option<c_int> {
        // SAFETY: promised by the caller.
        Some(unsafe { self.source_and_tag(statuses, at, is_c)? }.0)
    }

    /// Returns the source and the tag in the status at an index of a list; `None` if the
    /// application ignores the status.
    ///
    /// # Safety
    /// As [`Self::source`].
    #[inline]
    pub unsafe fn source_and_tag(
        &self,
        statuses: usize,
        at: usize,
        is_c: bool,
    ) -> Option<(c_int, c_int)> {
        let constants = &self.library.constants;
        if statuses == 0 || is_c && statuses == constants.status_ignore {
            return None;
        }
        if !is_c {
            let ignored = self.status_ignore.get_or_init(|| self.library.fortran_status_ignore());
            // If the address of MPI_STATUS_IGNORE is unknown, any status may be the ignored one.
            if ignored.is_empty() || ignored.contains(&statuses) {
                return None;
            }
        }
        let place = statuses + at * constants.status.bytes + constants.status.source;
        let source = place as *const c_int;
        // SAFETY: promised by the caller. The tag follows the source in every ABI.
        Some(unsafe { (source.read_unaligned(), source.add(1).read_unaligned()) })
    }

    /// Returns the handle at an index of a list of requests or messages. The C and the Fortran
    /// handle of one object differ, too.
    ///
    /// # Safety
    /// The list must have an element at this index.
    #[inline]
    pub unsafe fn listed_handle(&self, list: usize, at: usize, is_c: bool) -> u64 {
        let layout = Layout::new(self.library.abi, is_c);
        // SAFETY: promised by the caller.
        let handle = unsafe { layout.read(list + at * layout.bytes()) } as u64;
        match layout {
            Layout::Integer => handle | FORTRAN_HANDLE,
            Layout::Word => handle,
        }
    }

    /// Reads the first handles of a list, as [`Self::listed_handle`] returns them.
    ///
    /// # Safety
    /// The list must have at least as many elements as `handles`.
    #[inline(always)]
    pub unsafe fn read_handles(&self, list: usize, is_c: bool, handles: &mut [u64]) {
        // SAFETY: promised by the caller.
        unsafe {
            match Layout::new(self.library.abi, is_c) {
                Layout::Integer => {
                    for (at, handle) in handles.iter_mut().enumerate() {
                        let word = (list as *const u32).add(at).read_unaligned();
                        *handle = u64::from(word) | FORTRAN_HANDLE;
                    }
                }
                Layout::Word => {
                    for (at, handle) in handles.iter_mut().enumerate() {
                        *handle = (list as *const Handle).add(at).read_unaligned() as u64;
                    }
                }
            }
        }
    }

    /// Returns the bytes of one element of the datatype at an index of a list.
    ///
    /// # Safety
    /// The list must have valid C datatypes up to this index.
    pub unsafe fn listed_type_bytes(&self, list: usize, index: usize) -> u64 {
        // SAFETY: promised by the caller; MPICH's handles are ints, those of other ABIs words.
        let datatype = unsafe {
            match self.library.abi {
                Abi::Mpich => *(list as *const u32).add(index) as Handle,
                _ => *(list as *const Handle).add(index),
            }
        };
        self.type_bytes(datatype)
    }
}
