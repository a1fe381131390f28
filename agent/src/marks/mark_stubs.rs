//! Stubs: code that a marked call returns to in place of its caller.
//!
//! Each distinct return address has one stub, and the slot of a stub never changes once written. A
//! forgotten stub anywhere on any stack therefore still returns to the right address. A return
//! through the thread's live mark first moves the mark one frame outwards.
//!
//! Unwinders find a stub as the caller of the marked function. The stub's unwind table entry says
//! that its canonical frame address is rsp and that its return address lies in its slot, which is
//! found relative to the stub itself: the four bytes before a stub are the distance to its slot
//! (DWARF 5, 6.4.2; the expression is `DW_OP_breg16 -4; DW_OP_dup; DW_OP_deref_size 4; DW_OP_plus`,
//! register 16 being the program counter). Since stub and caller then share one frame address,
//! libgcc hands exceptions that the caller catches to the stub's [`personality`].
//!
//! A stub preserves all integer registers and flags: with -fipa-ra, compilers rely on more than the
//! ABI promises. Vector and x87 registers are not touched.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::LiveMark;
use crate::thread_state::ThreadBlock;
use crate::unwind::Frame;

/// Number of stubs, which limits the distinct return addresses that can be marked.
pub const STUBS: usize = 8192;

/// Bytes from one stub to the next.
const STRIDE: u64 = 16;

const LIVE: usize = offset_of!(ThreadBlock, mark);

global_asm!(
    ".pushsection .bss.plimsoll_mark_slots,\"aw\",@nobits",
    ".p2align 6",
    ".globl plimsoll_mark_slots",
    ".hidden plimsoll_mark_slots",
    ".type plimsoll_mark_slots,@object",
    ".size plimsoll_mark_slots, 8 * {stubs}",
    "plimsoll_mark_slots: .zero 8 * {stubs}",
    ".popsection",
    ".pushsection .data.rel.ro.plimsoll_mark,\"aw\",@progbits",
    ".p2align 3",
    ".Lplimsoll_mark_personality: .quad {personality}",
    ".popsection",
    ".pushsection .text.plimsoll_mark,\"ax\",@progbits",
    ".p2align 6",
    ".globl plimsoll_mark_begin, plimsoll_mark_first, plimsoll_mark_landing, plimsoll_mark_end",
    ".hidden plimsoll_mark_begin, plimsoll_mark_first, plimsoll_mark_landing, plimsoll_mark_end",
    "plimsoll_mark_begin:",
    ".set plimsoll_stub, 0",
    ".rept {stubs}",
    ".p2align 4, 0xcc",
    ".cfi_startproc",
    ".cfi_personality 0x9b, .Lplimsoll_mark_personality",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x10, 16, 6, 0x80, 0x7c, 0x12, 0x94, 4, 0x22",
    // Unwinders look up a return address one byte before it: here.
    ".long plimsoll_mark_slots + 8 * plimsoll_stub - .",
    ".if plimsoll_stub == 0",
    "plimsoll_mark_first:",
    ".endif",
    "push qword ptr [rip + plimsoll_mark_slots + 8 * plimsoll_stub]",
    ".cfi_def_cfa rsp, 8",
    ".cfi_offset 16, -8",
    "jmp .Lplimsoll_mark_return",
    ".cfi_endproc",
    ".set plimsoll_stub, plimsoll_stub + 1",
    ".endr",
    ".p2align 6",
    // The return address stands again where the stub's address stood.
    ".Lplimsoll_mark_return:",
    ".cfi_startproc",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rax, -16",
    "push rcx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rcx, -24",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rdx, -32",
    "lahf",
    "seto al",
    "mov rcx, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
    "mov rcx, qword ptr fs:[rcx]",
    "test rcx, rcx",
    "jz 5f",
    "lea rdx, [rsp + 24]",
    "cmp qword ptr [rcx + {awaited_slot}], rdx",
    "je 8f",
    "9: cmp qword ptr [rcx + {live_slot}], rdx",
    "jne 4f",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rsi, -48",
    "inc qword ptr [rcx + {passes}]",
    "mov rax, qword ptr [rcx + {index}]",
    // The next frame outwards that can be marked.
    "2: sub rax, 1",
    "mov qword ptr [rcx + {index}], rax",
    "jc 3f",
    "lea rsi, [rax + 2 * rax]",
    "shl rsi, 3",
    "add rsi, qword ptr [rcx + {frames}]",
    "mov eax, dword ptr [rsi + {stub}]",
    "test eax, eax",
    "mov eax, dword ptr [rcx + {index}]",
    "jz 2b",
    "mov eax, dword ptr [rsi + {stub}]",
    "mov rdx, qword ptr [rsi + {return_slot}]",
    "mov rsi, qword ptr [rsi + {address}]",
    "shl rax, 4",
    "cmp rsi, qword ptr [rdx]",
    "lea rsi, [rip + plimsoll_mark_first - 16]",
    "lea rax, [rax + rsi]",
    "je 6f",
    // An older mark with the same stub serves as well.
    "cmp rax, qword ptr [rdx]",
    "jne 3f",
    "6: mov qword ptr [rdx], rax",
    "mov qword ptr [rcx + {live_slot}], rdx",
    "jmp 7f",
    "3: mov qword ptr [rcx + {live_slot}], 0",
    "7: pop rsi",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rsi",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    // Restores the overflow flag from al, then the others from ah.
    "5: add al, 0x7f",
    "sahf",
    "pop rdx",
    ".cfi_remember_state",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rdx",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rcx",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rax",
    // Not ret: the call's return was predicted when the marked function returned.
    "lea rsp, [rsp + 8]",
    ".cfi_adjust_cfa_offset -8",
    "jmp qword ptr [rsp - 8]",
    ".cfi_restore_state",
    // Not this thread's live mark.
    "4: inc qword ptr [rcx + {strays}]",
    "jmp 5b",
    // A declared function has returned.
    "8: push rax",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "rdtsc",
    "shl rdx, 32",
    "or rdx, rax",
    "mov qword ptr [rcx + {awaited_return}], rdx",
    "mov rax, qword ptr [rcx + {index}]",
    "mov qword ptr [rcx + {index_at_return}], rax",
    "mov rax, qword ptr [rcx + {passes}]",
    "mov qword ptr [rcx + {passes_at_return}], rax",
    "mov qword ptr [rcx + {awaited_slot}], 0",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    "jmp 9b",
    ".cfi_endproc",
    // Where an exception lands that the caller of the marked function catches: rax is the
    // exception, rdx the return address, rsp stands as after the marked function's return.
    ".p2align 4",
    "nop",
    "plimsoll_mark_landing:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register 16, rdx",
    "mov rdi, rax",
    "push rdx",
    ".cfi_def_cfa rsp, 8",
    ".cfi_offset 16, -8",
    // As if the caller had called _Unwind_Resume in place of the marked function.
    "jmp qword ptr [rip + _Unwind_Resume@GOTPCREL]",
    ".cfi_endproc",
    "plimsoll_mark_end:",
    ".popsection",
    stubs = const STUBS,
    personality = sym personality,
    live_slot = const LIVE + offset_of!(LiveMark, return_slot),
    index = const LIVE + offset_of!(LiveMark, index),
    frames = const LIVE + offset_of!(LiveMark, frames),
    passes = const LIVE + offset_of!(LiveMark, passes),
    strays = const LIVE + offset_of!(LiveMark, strays),
    awaited_slot = const LIVE + offset_of!(LiveMark, awaited_slot),
    awaited_return = const LIVE + offset_of!(LiveMark, awaited_return),
    index_at_return = const LIVE + offset_of!(LiveMark, index_at_return),
    passes_at_return = const LIVE + offset_of!(LiveMark, passes_at_return),
    address = const offset_of!(Frame, address),
    return_slot = const offset_of!(Frame, return_slot),
    stub = const offset_of!(Frame, stub),
);

const _: () = assert!(size_of::<Frame>() == 24, "the stubs' code multiplies by 3 and 8");

unsafe extern "C" {
    static plimsoll_mark_slots: [AtomicU64; STUBS];
    static plimsoll_mark_begin: u8;
    static plimsoll_mark_first: u8;
    static plimsoll_mark_landing: u8;
    static plimsoll_mark_end: u8;
}

/// Number of stubs in use.
static USED: AtomicU32 = AtomicU32::new(0);

/// Returns whether an address lies in the code of the stubs.
#[inline]
pub fn contains(address: u64) -> bool {
    address >= (&raw const plimsoll_mark_begin).addr() as u64
        && address < (&raw const plimsoll_mark_end).addr() as u64
}

/// Returns the original return address if `word` is the address of a stub in use, else `word`.
#[inline]
pub fn original(word: u64) -> u64 {
    let index = word.wrapping_sub((&raw const plimsoll_mark_first).addr() as u64) / STRIDE;
    if index >= STUBS as u64 || word != address(index as u32 + 1) {
        return word;
    }
    // SAFETY: the array is defined above, with this type and length.
    let slot = unsafe { &plimsoll_mark_slots[index as usize] };
    match slot.load(Ordering::Acquire) {
        0 => word,
        original => original,
    }
}

/// Returns the address of stub number `stub`, counted from 1.
#[inline]
pub fn address(stub: u32) -> u64 {
    (&raw const plimsoll_mark_first).addr() as u64 + STRIDE * u64::from(stub - 1)
}

/// Creates a stub for a return address and returns its number; `None` when all stubs are in use.
pub fn create(return_address: u64) -> Option<u32> {
    let index = USED
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            (used < STUBS as u32).then_some(used + 1)
        })
        .ok()?;
    // SAFETY: as in `original`.
    let slot = unsafe { &plimsoll_mark_slots[index as usize] };
    slot.store(return_address, Ordering::Release);
    Some(index + 1)
}

/// Bit of `actions` in a personality routine: the second phase, and the frame that catches
/// (Itanium C++ ABI, Exception Handling, 1.4 and 2.5.2).
const CLEANUP_PHASE: c_int = 2;
const HANDLER_FRAME: c_int = 4;
/// Return values of a personality routine.
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut c_void, value: usize);
}

/// Initialises the unwinder library for [`personality`]. A program with another, statically linked
/// copy of the library unwinds with that copy, but [`personality`] sets registers through this
/// copy, which needs its table of register sizes initialised first.
pub fn prepare() {
    extern "C" fn stop(_context: *mut c_void, _argument: *mut c_void) -> c_int {
        /// `_URC_NORMAL_STOP`.
        const STOP: c_int = 4;
        STOP
    }
    // SAFETY: the visitor reads nothing.
    unsafe { _Unwind_Backtrace(stop, core::ptr::null_mut()) };
}

/// Personality routine of the stubs. Phase 2 recognises the catching frame by its canonical frame
/// address and meets the stub first, which has the same address. The stub then restarts the unwind
/// in its caller, as if no stub stood between.
///
/// An unwinder with contexts other than GCC's that was not recognised beforehand
/// ([`super::unwinders`]) may pass: it already calls this routine in phase 1, all marks are then
/// removed, and phase 2 meets none. A mark that is set between the two phases, while the program
/// cleans up, is not handled.
///
/// # Safety
/// Only the unwinder may call this function.
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the context is the unwinder's; in GCC's contexts the instruction pointer is a stub's.
    let stub = unsafe { _Unwind_GetIP(context) } as u64;
    if !contains(stub) {
        super::restore_all();
        return CONTINUE_UNWIND;
    }
    if actions & CLEANUP_PHASE == 0 || actions & HANDLER_FRAME == 0 {
        return CONTINUE_UNWIND;
    }
    // SAFETY: as above. Registers 0 and 1 are rax and rdx, the arguments of every landing pad
    // (System V ABI, 6.2.5).
    unsafe {
        _Unwind_SetGR(context, 0, exception.addr());
        _Unwind_SetGR(context, 1, original(stub) as usize);
        _Unwind_SetIP(context, (&raw const plimsoll_mark_landing).addr());
    }
    INSTALL_CONTEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwinders_that_are_not_understood_are_let_pass() {
        // More than any context holds; its instruction pointer is no stub's.
        let mut context = [0u64; 128];
        for actions in [1, CLEANUP_PHASE, CLEANUP_PHASE | HANDLER_FRAME] {
            // SAFETY: only the instruction pointer of the context is read.
            let answer = unsafe {
                personality(1, actions, 0, core::ptr::null_mut(), context.as_mut_ptr().cast())
            };
            assert_eq!(answer, CONTINUE_UNWIND);
        }
        assert_eq!(context, [0; 128]);
    }

    #[test]
    fn a_stub_stands_for_its_return_address() {
        let stub = create(0x1234_5678).expect("stubs are left");
        let word = address(stub);
        assert!(contains(word));
        assert_eq!(original(word), 0x1234_5678);
        for other in [word + 1, word - 1, word + STRIDE * STUBS as u64, 0x1234_5678, 0] {
            assert_eq!(original(other), other);
        }
    }
}
