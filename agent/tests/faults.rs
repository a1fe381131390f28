//! A panic of the library in the handler ends the measurement of the interrupted thread, not the
//! thread.

use std::sync::atomic::Ordering;

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config};
use plimsoll_agent::tls;

#[test]
fn a_thread_on_which_we_panic_goes_on_unmeasured() {
    let config = Config::new(1_000_000, Marks::On);
    let observed = observed_process::start(&config).expect("observed");
    // SAFETY: the block of this thread, which is observed until the process ends.
    let block = unsafe { tls::get().as_ref() }.expect("observed");
    let muted = || block.enter(|state| state.muted);
    assert_eq!(muted(), Some(false));
    block.enter(|state| block.guard(state, |state| state.paused = false));
    assert_eq!(muted(), Some(false));
    // Counts once, even if repeated.
    for _ in 0..2 {
        block.enter(|state| block.guard(state, |_| panic!("as it should")));
        assert_eq!(muted(), Some(true));
    }
    assert_eq!(observed.header().unsampled_threads.load(Ordering::Relaxed), 1);
}
