//! Outlined functions of OpenMP that this library calls in place of the runtime.
//!
//! Compilers end an outlined function by a jump where the last thing that it does is a call: of a
//! barrier, of taskwait, of MPI. That call then returns into this library, and the outlined
//! function is no longer on the stack. Its address lies beside the return address, so that the call
//! path names the function nevertheless.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Entry;
use crate::unwind::Frame;

/// Number of places from which this library calls outlined functions: of shares, of tasks.
const PLACES: usize = 2;

/// Return addresses of these calls; 0 while unknown.
static RETURNS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Sets the return addresses of the calls of outlined functions. The word above each such return
/// address on the stack is the first address of the outlined function.
pub fn set_returns(addresses: [u64; PLACES]) {
    for (place, address) in RETURNS.iter().zip(addresses) {
        place.store(address, Ordering::Relaxed);
    }
}

fn is_return(address: u64) -> bool {
    address != 0 && RETURNS.iter().any(|place| place.load(Ordering::Relaxed) == address)
}

/// Returns the frame of the outlined function that has ended by the jump to the call of `entry`,
/// without its id; `None` if the call was not made so.
pub(super) fn ended_function(entry: &Entry) -> Option<Frame> {
    if !is_return(entry.return_address) {
        return None;
    }
    let return_slot = entry.return_slot + 8;
    // SAFETY: the frame above the return address is that of this library's call.
    let address = unsafe { *(return_slot as *const u64) };
    Some(Frame { address, return_slot, ..Frame::default() })
}

/// Whether a frame of a call path that stands on the stack is that of an [`ended_function`], which
/// unwinding does not find.
pub(crate) fn is_ended(frame: &Frame) -> bool {
    // SAFETY: the word below a frame's place is on the same stack, which is in use there.
    frame.return_slot != 0
        && !frame.is_of_script()
        && is_return(unsafe { *((frame.return_slot - 8) as *const u64) })
}
