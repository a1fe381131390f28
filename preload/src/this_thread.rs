//! The calling thread, if it is observed.

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::thread_state::ThreadBlock;
use plimsoll_agent::tls;

/// Returns the calling thread and the observed process; `None` if the thread is not observed.
#[inline(always)]
pub fn this_thread() -> Option<(&'static ThreadBlock, &'static Observed)> {
    // SAFETY: the block is the calling thread's, and stays until the thread has ended.
    let block = unsafe { tls::get().as_ref() }?;
    Some((block, observed_process::current()?))
}
