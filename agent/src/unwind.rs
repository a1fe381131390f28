//! Unwinder: computes a call path from registers and the stack.
//!
//! framehop steps from frame to frame. This module adds frames with a [`crate::cfi::FrameRule`],
//! the kernel's signal frames, and a check of every address that framehop finds. Nothing allocates
//! or locks.

use core::mem::offset_of;
use core::ops::Range;

use framehop::x86_64::{CacheX86_64, Reg, UnwindRegsX86_64};
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder};

use crate::addresses::{Addresses, Published, Refused};
use crate::cfi::CfiScratch;
use crate::marks::{MarkTarget, mark_stubs};
use crate::modules::Snapshot;
use crate::scripts::{Interpreter, Runs};
use crate::stack_memory::StackMemory;
use plimsoll_calls::{CallId, FIRST_CODE_ADDRESS};
use plimsoll_wire::record::MAX_DEPTH;
use plimsoll_wire::truncation::Truncation;

/// framehop's cache, of the kind that never allocates while unwinding.
pub type RuleCache = CacheX86_64<MustNotAllocateDuringUnwind>;

/// A frame of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Frame {
    /// The return address, or the program counter of the innermost frame.
    pub address: u64,
    /// Place of the return address on the stack; 0 for the innermost frame. Two frames with the
    /// same address at the same place in neighbouring samples count as the same call. Functions of
    /// scripts have other addresses and places ([`crate::scripts`]).
    pub return_slot: u64,
    /// Id of the address.
    pub id: u32,
    /// Stub of the return address if that may be marked, else 0.
    pub stub: u32,
}

impl Frame {
    /// Returns whether the frame is code that stands on the stack: not a wrapped call, and not a
    /// function of a script.
    #[inline]
    pub fn is_native(&self) -> bool {
        self.address >= FIRST_CODE_ADDRESS && !self.is_of_script()
    }
}

/// Frames of one stack, at most [`MAX_DEPTH`]. The length stands first, so that a short stack
/// touches one page.
#[repr(C)]
pub struct Frames {
    length: usize,
    frames: [Frame; MAX_DEPTH],
}

impl Frames {
    /// Bytes that are read only as far as `length` says, so that they need no initial value.
    pub(crate) const UNREAD: Range<usize> = offset_of!(Self, frames)..size_of::<Self>();

    /// Removes all frames. `Frames` is large and lives in a thread's block, which begins as zeros.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends a frame; returns false if there is no room.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> bool {
        match self.frames.get_mut(self.length) {
            Some(place) => {
                *place = frame;
                self.length += 1;
                true
            }
            None => false,
        }
    }

    /// Returns the frames in the order in which they were pushed.
    #[inline]
    pub fn as_slice(&self) -> &[Frame] {
        &self.frames[..self.length]
    }

    /// Returns the frames for modification.
    pub fn as_mut_slice(&mut self) -> &mut [Frame] {
        &mut self.frames[..self.length]
    }

    /// Removes the last frame, if any.
    pub fn pop(&mut self) {
        self.length = self.length.saturating_sub(1);
    }

    /// Replaces the frames by `path`, which has the outermost `common_prefix` frames in common with
    /// the present ones. Innermost frames that do not fit are left out.
    pub fn follow(&mut self, path: Path<'_>, common_prefix: usize) {
        self.length = common_prefix;
        for piece in path.beyond(common_prefix) {
            let end = MAX_DEPTH.min(self.length + piece.len());
            let room = &mut self.frames[self.length..end];
            room.copy_from_slice(&piece[..room.len()]);
            self.length = end;
        }
    }

    /// Reverses the order, from innermost first to outermost first.
    pub fn reverse(&mut self) {
        self.frames[..self.length].reverse();
    }
}

/// A stack in two pieces, outermost first.
#[derive(Clone, Copy)]
pub struct Path<'p> {
    /// Outer frames, known before the unwind.
    pub outer: &'p [Frame],
    /// Frames inside the outer ones.
    pub inner: &'p [Frame],
}

impl<'p> Path<'p> {
    /// Returns the frames inside the outermost `common_prefix` ones, in two pieces.
    pub fn beyond(self, common_prefix: usize) -> [&'p [Frame]; 2] {
        let inside = common_prefix.saturating_sub(self.outer.len());
        [
            self.outer.get(common_prefix..).unwrap_or_default(),
            self.inner.get(inside..).unwrap_or_default(),
        ]
    }

    /// Returns the frames inside the outermost `common_prefix` ones, outermost first.
    pub fn frames_beyond(self, common_prefix: usize) -> impl Iterator<Item = &'p Frame> {
        let [outer, inner] = self.beyond(common_prefix);
        outer.iter().chain(inner)
    }
}

/// Start of an unwind, and the places at which it stops.
pub struct Start {
    /// Program counter (or return address).
    pub address: u64,
    /// Whether `address` is a return address, so that the registers are those after a call.
    pub is_return: bool,
    /// Place of `address` on the stack if it is a return address, else 0.
    pub return_slot: u64,
    /// Registers in the frame. Only rsp and rbp are known if `is_return`, else all.
    pub regs: UnwindRegsX86_64,
    /// Bounds of the thread's own stack.
    pub stack_bounds: (u64, u64),
    /// Place of the open call's return address, outside which the frames are known; all ones if no
    /// call is open.
    pub stop_at: u64,
    /// Return address of the open call.
    pub stop_address: u64,
    /// The mark, outside which the frames are known.
    pub mark_target: MarkTarget,
}

/// End of an unwind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// At the outermost frame.
    Complete,
    /// At `stop_at`.
    ReachedCall,
    /// At or beyond `stop_at` without a return to `stop_address`: a jump or an exception has left
    /// the open call.
    Abandoned,
    /// At the mark.
    ReachedMark,
    /// At code that cannot be unwound, such as generated code. Outer native frames are missing, the
    /// functions of scripts are there.
    Scripts,
    /// Outer frames are missing.
    Truncated(Truncation),
}

impl WalkEnd {
    /// Returns whether all frames of the stack were found, or are known from before the unwind.
    pub fn is_whole(self) -> bool {
        !matches!(self, Self::Truncated(_) | Self::Scripts)
    }
}

/// Context of an unwind: the process's tables and the thread's caches.
pub struct Unwinding<'a> {
    /// Snapshot of the loaded code, protected by the caller's hazard pointer.
    pub snapshot: &'a Snapshot,
    /// Interned addresses of the process.
    pub addresses: &'a Addresses,
    /// Address table in the segment, in which new addresses are announced.
    pub published: Published<'a>,
    /// The thread's framehop cache.
    pub cache: &'a mut RuleCache,
    /// The thread's scratch for CFI rows.
    pub scratch: &'a mut CfiScratch,
    /// Interpreter of the process, if any.
    pub interpreter: Option<&'a Interpreter>,
}

impl Unwinding<'_> {
    /// Interns a wrapped call and returns its address id; `None` if the tables are full.
    pub fn intern_call(&mut self, call: CallId) -> Option<u32> {
        let value = u64::from(call);
        let interned =
            self.addresses.intern(value, false, &self.published, self.snapshot, self.scratch);
        interned.ok().map(|call| call.id)
    }

    /// Interns the first address of a function and returns its id; `None` if it is no code or the
    /// tables are full.
    pub fn intern_function(&mut self, address: u64) -> Option<u32> {
        let interned =
            self.addresses.intern(address, true, &self.published, self.snapshot, self.scratch);
        interned.ok().map(|function| function.id)
    }

    /// Pushes the functions of a run of an interpreter; returns false if there is no room for all.
    #[cold]
    fn push_run(&self, runs: &mut Runs, frames: &mut Frames) -> bool {
        let Some(interpreter) = self.interpreter else { return true };
        let module = self.snapshot.find(interpreter.address()).map_or(0, |module| module.index + 1);
        let mut fits = true;
        runs.take(interpreter, &self.published, module, |frame| {
            fits = frames.push(frame);
            fits
        });
        fits
    }

    /// Returns why an unwind cannot step on from `address`.
    fn lost_at(&self, address: u64) -> Truncation {
        match self.snapshot.find(address) {
            Some(_) => Truncation::NoCaller,
            None => Truncation::UnknownCode,
        }
    }

    /// Unwinds from `start` outwards, pushes the frames innermost first, and returns how the unwind
    /// ended.
    pub fn walk(&mut self, start: Start, frames: &mut Frames) -> WalkEnd {
        let mut runs = self.interpreter.map_or(Runs::NONE, Interpreter::runs);
        let end = self.walk_native(start, frames, &mut runs);
        if !matches!(end, WalkEnd::Truncated(Truncation::UnknownCode | Truncation::NoCaller)) {
            return end;
        }
        let native = frames.as_slice().len();
        // A damaged chain may have no end.
        for _ in 0..MAX_DEPTH {
            if !runs.is_next_in(1, u64::MAX) || !self.push_run(&mut runs, frames) {
                break;
            }
        }
        if frames.as_slice().len() > native { WalkEnd::Scripts } else { end }
    }

    fn walk_native(&mut self, start: Start, frames: &mut Frames, runs: &mut Runs) -> WalkEnd {
        let mut regs = start.regs;
        let mut memory = StackMemory::at(regs.sp(), start.stack_bounds);
        let mut address = start.address;
        let mut innermost = !start.is_return;
        let mut return_slot = start.return_slot;
        loop {
            // A running stub holds the return address in a place unknown to the unwinder.
            if innermost && mark_stubs::contains(address) {
                return WalkEnd::Truncated(Truncation::NoCaller);
            }
            let interned = self.addresses.intern(
                address,
                innermost,
                &self.published,
                self.snapshot,
                self.scratch,
            );
            let interned = match interned {
                Ok(interned) => interned,
                Err(Refused::NoRoom) => return WalkEnd::Truncated(Truncation::TableFull),
                Err(Refused::Implausible) => return WalkEnd::Truncated(self.lost_at(address)),
            };
            let mut read = |address: u64| memory.read(address);
            if interned.signal_return {
                match leave_signal_frame(&mut regs, &mut read) {
                    Ok(interrupted) => address = interrupted,
                    Err(()) => return WalkEnd::Truncated(Truncation::NoCaller),
                }
                // The handler may run on another stack than the interrupted code.
                memory = StackMemory::at(regs.sp(), start.stack_bounds);
                innermost = true;
                return_slot = 0;
                continue;
            }
            if !frames.push(Frame { address, return_slot, id: interned.id, stub: 0 }) {
                return WalkEnd::Truncated(Truncation::TooDeep);
            }
            if self.snapshot.hides
                && address >= FIRST_CODE_ADDRESS
                && self.snapshot.find(address).is_none()
            {
                return WalkEnd::Truncated(Truncation::UnknownCode);
            }
            let before = regs.sp();
            let next = match interned.rule {
                Some(rule) => {
                    self.addresses.rule(rule).step(innermost, &mut regs, &mut read).map(Some)
                }
                None => {
                    let Some(at) = (if innermost {
                        Some(FrameAddress::from_instruction_pointer(address))
                    } else {
                        FrameAddress::from_return_address(address)
                    }) else {
                        return WalkEnd::Truncated(Truncation::UnknownCode);
                    };
                    self.snapshot
                        .unwinder
                        .unwind_frame(at, &mut regs, self.cache, &mut read)
                        .map_err(|_| ())
                }
            };
            let caller = match next {
                Ok(None) | Ok(Some(0)) => return WalkEnd::Complete,
                Ok(Some(caller)) => caller,
                Err(()) => return WalkEnd::Truncated(self.lost_at(address)),
            };
            return_slot = regs.sp().wrapping_sub(8);
            if runs.is_next_in(before, return_slot) && !self.push_run(runs, frames) {
                return WalkEnd::Truncated(Truncation::TooDeep);
            }
            if start.mark_target.is(return_slot, caller) {
                return WalkEnd::ReachedMark;
            }
            address = mark_stubs::original(caller);
            // Small numbers are ids of wrapped calls, which stand on no stack.
            if address < FIRST_CODE_ADDRESS {
                return WalkEnd::Truncated(Truncation::UnknownCode);
            }
            if return_slot >= start.stop_at {
                let open = return_slot == start.stop_at && address == start.stop_address;
                return if open { WalkEnd::ReachedCall } else { WalkEnd::Abandoned };
            }
            // The stack pointer must grow in every step: even a leaf that has pushed nothing yet
            // pops the word of its return address.
            if regs.sp() <= before {
                return WalkEnd::Truncated(Truncation::NoCaller);
            }
            innermost = false;
        }
    }
}

/// Steps out of the kernel's signal frame, where rsp points at the saved `ucontext`. Returns the
/// interrupted program counter.
fn leave_signal_frame(
    regs: &mut UnwindRegsX86_64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<u64, ()> {
    let registers = regs.sp() + core::mem::offset_of!(libc::ucontext_t, uc_mcontext) as u64;
    let mut saved = |register: libc::c_int| read(registers + 8 * register as u64);
    let (rip, rsp, rbp) = (saved(libc::REG_RIP)?, saved(libc::REG_RSP)?, saved(libc::REG_RBP)?);
    let (r10, rbx, r12, r13) = (
        saved(libc::REG_R10)?,
        saved(libc::REG_RBX)?,
        saved(libc::REG_R12)?,
        saved(libc::REG_R13)?,
    );
    *regs = UnwindRegsX86_64::new(rip, rsp, rbp);
    for (register, value) in [(Reg::R10, r10), (Reg::RBX, rbx), (Reg::R12, r12), (Reg::R13, r13)] {
        regs.set(register, value);
    }
    Ok(rip)
}

/// Returns the registers of a thread interrupted at `context`.
pub fn interrupted(context: &libc::ucontext_t) -> UnwindRegsX86_64 {
    let saved = |register: libc::c_int| context.uc_mcontext.gregs[register as usize] as u64;
    let mut regs =
        UnwindRegsX86_64::new(saved(libc::REG_RIP), saved(libc::REG_RSP), saved(libc::REG_RBP));
    for (register, number) in [
        (Reg::RAX, libc::REG_RAX),
        (Reg::RDX, libc::REG_RDX),
        (Reg::RCX, libc::REG_RCX),
        (Reg::RBX, libc::REG_RBX),
        (Reg::RSI, libc::REG_RSI),
        (Reg::RDI, libc::REG_RDI),
        (Reg::R8, libc::REG_R8),
        (Reg::R9, libc::REG_R9),
        (Reg::R10, libc::REG_R10),
        (Reg::R11, libc::REG_R11),
        (Reg::R12, libc::REG_R12),
        (Reg::R13, libc::REG_R13),
        (Reg::R14, libc::REG_R14),
        (Reg::R15, libc::REG_R15),
    ] {
        regs.set(register, saved(number));
    }
    regs
}
