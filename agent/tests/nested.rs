//! A signal handler on an alternate stack that interrupts the agent's code and enters the agent.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config};
use plimsoll_agent::tls;

static HANDLED: AtomicBool = AtomicBool::new(false);
static ENTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: libc::c_int) {
    // SAFETY: the block of this thread, which is observed until the process ends.
    let block = unsafe { tls::get().as_ref() }.expect("observed");
    ENTERED.store(block.enter(|_| ()).is_some(), Ordering::Relaxed);
    HANDLED.store(true, Ordering::Relaxed);
}

#[test]
fn an_alternate_stack_inside_the_thread_s_own_gives_no_second_state() {
    let config = Config::new(3_600_000_000_000, Marks::On);
    observed_process::start(&config).expect("observed");
    // Further out on this thread's stack than all frames called from here.
    let mut alternate = [0u8; 64 << 10];
    // SAFETY: the stack outlives its use as an alternate one; the handler is as sigaction wants it.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: alternate.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: alternate.len(),
        };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    // SAFETY: the block of this thread.
    let block = unsafe { tls::get().as_ref() }.expect("observed");
    // SAFETY: the signal is handled on this thread before raise returns.
    let outer = block.enter(|_| unsafe { libc::raise(libc::SIGUSR1) });
    assert_eq!(outer, Some(0));
    assert!(HANDLED.load(Ordering::Relaxed));
    assert!(!ENTERED.load(Ordering::Relaxed), "two users of one state");
    // SAFETY: takes the alternate stack away again.
    unsafe {
        let none =
            libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        libc::sigaltstack(&none, std::ptr::null_mut());
    }
    assert_eq!(block.enter(|_| ()), Some(()), "it ended as it began");
}
