//! The floating-point environment: which conditions trap, how results are rounded, and which flags
//! operations have raised. Each thread has its own; a new thread starts with its creator's
//! (pthread_create(3)), and a signal handler with the default one.

use core::arch::asm;
use core::hint::black_box;

/// Value of MXCSR at the start of a program: nothing traps, round to nearest, no flags (System V
/// ABI for x86-64, 3.4.1). The x87 unit has a control word of its own, but Rust does not use it.
const DEFAULT: u32 = 0x1f80;

/// Runs `work` in the default environment: what the program traps (feenableexcept(3)) or rounds
/// does not apply to `work`, and flags raised in `work` are not the program's.
pub fn in_default_environment<R>(work: impl FnOnce() -> R) -> R {
    let _restored = Restored(read());
    set_default();
    // No operation moves over a change of the environment.
    black_box(black_box(work)())
}

/// Gives the calling thread the default environment, for threads that the program created
/// indirectly.
pub fn set_default() {
    write(DEFAULT);
}

/// Environment that is restored at the end of its life.
struct Restored(u32);

impl Drop for Restored {
    fn drop(&mut self) {
        write(self.0);
    }
}

fn read() -> u32 {
    let mut value = 0u32;
    // SAFETY: writes four bytes to `value`.
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
    value
}

fn write(value: u32) {
    // SAFETY: reads four bytes. No reserved bit is set: the value was read or is the default.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, preserves_flags, readonly)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit of MXCSR that keeps invalid operations from trapping.
    const INVALID_MASKED: u32 = 1 << 7;

    #[test]
    fn the_program_s_traps_and_flags_are_not_those_of_the_work() {
        let before = read();
        let trapping = DEFAULT & !INVALID_MASKED;
        write(trapping);
        let result = in_default_environment(|| black_box(0.0) / black_box(0.0f64));
        let after = read();
        write(before);
        assert!(result.is_nan());
        assert_eq!(after, trapping, "no flag is raised, and the trap is set again");
    }
}
