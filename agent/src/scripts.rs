//! Functions of scripts on a thread's stack: what an interpreter executes, in the place of its own
//! functions. Known is CPython 3.11 to 3.13.
//!
//! The interpreter has a chain of frames of its own, one per function of the script. One native
//! frame of its evaluation loop executes a run of them: a call from script to script needs no
//! native call. A structure of the run lies in that native frame, so that the unwinder finds the
//! run's place in the native stack. The functions of a run stand outside the evaluation loop in a
//! call path, so that the loop's changing program counter leaves them the same calls.
//!
//! All reads are of memory of the calling thread's interpreter, which the handler may have
//! interrupted anywhere: what is read there is checked for being mapped.

mod code_objects;
mod layouts;
#[cfg(test)]
mod tests;

use core::ffi::{CStr, c_int, c_ulong};
use core::sync::atomic::AtomicU32;

use crate::addresses::Published;
use crate::stack_memory::CheckedMemory;
use crate::unwind::Frame;
use code_objects::CodeObjects;
use layouts::{CPYTHON_3_11, CPYTHON_3_12, CPYTHON_3_13, Evaluation, Layout, RunEnd};
use plimsoll_wire::segment::ScriptFunction;

/// Bit in the address of a frame that is a function of a script; the rest is the address of the
/// instruction that it executes. Its `return_slot` is the address of the interpreter's frame.
const INSTRUCTION: u64 = 1 << 61;

impl Frame {
    /// Returns whether the frame is a function of a script, which stands nowhere on the stack.
    #[inline]
    pub fn is_of_script(&self) -> bool {
        self.address & INSTRUCTION != 0
    }
}

type ThreadState = unsafe extern "C" fn() -> u64;
type IsFinalizing = unsafe extern "C" fn() -> c_int;

/// The interpreter of this process.
pub struct Interpreter {
    /// `PyGILState_GetThisThreadState`, which reads a thread-specific value: it needs no lock.
    thread_state: ThreadState,
    /// `Py_IsFinalizing`, or its name before CPython 3.13.
    is_finalizing: IsFinalizing,
    layout: &'static Layout,
    code_objects: CodeObjects,
}

impl Interpreter {
    /// Returns the interpreter that is loaded with the program; `None` without one of a known
    /// version. Names of functions are written to `functions`; `used` counts those in use. Takes
    /// the loader's lock.
    pub fn find(functions: &'static [ScriptFunction], used: &'static AtomicU32) -> Option<Self> {
        let symbol = |name: &CStr| {
            // SAFETY: the name is a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let thread_state = symbol(c"PyGILState_GetThisThreadState")?;
        let is_finalizing = symbol(c"Py_IsFinalizing").or_else(|| symbol(c"_Py_IsFinalizing"))?;
        // SAFETY: `const unsigned long Py_Version` since CPython 3.11.
        let version = unsafe { *symbol(c"Py_Version")?.cast::<c_ulong>() };
        let layout = match version >> 16 {
            0x30b => &CPYTHON_3_11,
            0x30c => &CPYTHON_3_12,
            0x30d if !is_free_threaded(symbol(c"_PyRuntime")?) => &CPYTHON_3_13,
            _ => return None,
        };
        let code_objects = CodeObjects::new(layout, functions, used)?;
        // SAFETY: the functions have these types.
        unsafe {
            Some(Self {
                thread_state: core::mem::transmute::<*mut libc::c_void, ThreadState>(thread_state),
                is_finalizing: core::mem::transmute::<*mut libc::c_void, IsFinalizing>(
                    is_finalizing,
                ),
                layout,
                code_objects,
            })
        }
    }

    /// Returns an address in the interpreter's code.
    pub fn address(&self) -> u64 {
        self.thread_state as *const () as u64
    }

    /// Returns the runs of the calling thread, innermost first.
    pub fn runs(&self) -> Runs {
        let mut runs = Runs::NONE;
        // SAFETY: the function may be called by any thread.
        let state = unsafe { (self.thread_state)() };
        if state != 0 {
            runs.begin(self.layout, state + self.layout.state);
        }
        runs
    }

    /// Returns whether the functions of scripts in `path`, innermost first, are the innermost ones
    /// of the calling thread. While the interpreter ends, they are not: it frees the structures of
    /// threads that still run.
    ///
    /// # Safety
    /// The thread must be in a call that the interpreter's code has made, not interrupted: its
    /// structures are then consistent.
    pub unsafe fn executes<'f>(&self, mut path: impl Iterator<Item = &'f Frame>) -> bool {
        let layout = self.layout;
        // SAFETY: consistent structures, as the caller promises; none is read beyond the outermost.
        let read = |address: u64| unsafe { *(address as *const u64) };
        // SAFETY: the functions may be called by any thread.
        let (state, ends) = unsafe { ((self.thread_state)(), (self.is_finalizing)() != 0) };
        if state == 0 || ends {
            return false;
        }
        let innermost = read(state + layout.state);
        let mut frame = match layout.evaluation {
            Evaluation::Structure { frame, .. } if innermost != 0 => read(innermost + frame),
            _ => innermost,
        };
        path.all(|expected| {
            if let RunEnd::Before(at, value) = layout.end {
                let is_entry = |frame: u64| {
                    // SAFETY: as above.
                    frame != 0 && unsafe { *((frame + at) as *const u8) } == value
                };
                while frame != expected.return_slot && is_entry(frame) {
                    frame = read(frame + layout.frame_caller);
                }
            }
            let is_it = frame == expected.return_slot
                && read(frame + layout.frame_instruction) | INSTRUCTION == expected.address;
            if is_it {
                frame = read(frame + layout.frame_caller);
            }
            is_it
        })
    }
}

/// Returns whether a CPython without global lock is loaded, which has other structures.
///
/// `runtime` is `_PyRuntime`: a cookie and a version, of 8 bytes each, come before the answer.
fn is_free_threaded(runtime: *mut libc::c_void) -> bool {
    // SAFETY: the symbol is that of a larger structure, since CPython 3.13 with these fields.
    unsafe { *runtime.cast::<u64>().add(2) != 0 }
}

/// Maximum number of frames in a run: a chain that does not end is damaged.
const MAX_RUN: usize = 4096;

/// Runs of a thread, innermost first.
pub struct Runs {
    memory: CheckedMemory,
    /// Place on the stack in the evaluation loop of the next run; 0 if there is no run.
    evaluation: u64,
    /// Innermost frame of the next run.
    frame: u64,
}

impl Runs {
    /// No runs: there is no interpreter.
    pub const NONE: Self = Self { memory: CheckedMemory::NOTHING, evaluation: 0, frame: 0 };

    /// Returns whether the evaluation loop of the next run lies in a part of the stack.
    #[inline]
    pub fn is_next_in(&self, low: u64, high: u64) -> bool {
        (low..high).contains(&self.evaluation)
    }

    /// Sets the next run: that of the evaluation loop or of the frame that `place` names.
    fn begin(&mut self, layout: &Layout, place: u64) {
        (self.evaluation, self.frame) = (0, 0);
        let Ok(innermost) = self.memory.read(place) else { return };
        match layout.evaluation {
            Evaluation::Structure { frame, .. } => {
                if let Ok(frame) = self.memory.read(innermost + frame) {
                    (self.evaluation, self.frame) = (innermost, frame);
                }
            }
            Evaluation::EntryFrame => {
                let mut outermost = innermost;
                for _ in 0..MAX_RUN {
                    if self.ends(layout, outermost) != Some(false) {
                        (self.evaluation, self.frame) = (outermost, innermost);
                        return;
                    }
                    let Ok(caller) = self.memory.read(outermost + layout.frame_caller) else {
                        return;
                    };
                    outermost = caller;
                }
            }
        }
    }

    /// Returns whether a run ends with a frame, or before it; `None` if the frame is unreadable.
    fn ends(&mut self, layout: &Layout, frame: u64) -> Option<bool> {
        let mut byte = |at: u64| self.memory.read_part(frame + at, 1).ok();
        Some(match layout.end {
            RunEnd::With(at) => byte(at)? != 0,
            RunEnd::Before(at, value) => byte(at)? == u64::from(value),
        })
    }

    /// Hands the functions of the next run to `push`, innermost first, until that returns `false`.
    /// `module` is the number of the interpreter's module.
    #[cold]
    pub fn take(
        &mut self,
        interpreter: &Interpreter,
        published: &Published<'_>,
        module: u32,
        mut push: impl FnMut(Frame) -> bool,
    ) {
        let layout = interpreter.layout;
        let (evaluation, mut frame) = (self.evaluation, self.frame);
        for _ in 0..MAX_RUN {
            let Some(ends) = self.ends(layout, frame) else { break };
            if ends && matches!(layout.end, RunEnd::Before(..)) {
                break;
            }
            let memory = &mut self.memory;
            let (Ok(code), Ok(instruction)) = (
                memory.read(frame + layout.frame_code),
                memory.read(frame + layout.frame_instruction),
            ) else {
                break;
            };
            let place = (code, instruction);
            if let Some(id) = interpreter.code_objects.intern(place, memory, published, module) {
                let address = instruction | INSTRUCTION;
                if !push(Frame { address, return_slot: frame, id, stub: 0 }) {
                    break;
                }
            }
            let Ok(caller) = memory.read(frame + layout.frame_caller) else { break };
            if ends {
                break;
            }
            frame = caller;
        }
        let outer = match layout.evaluation {
            Evaluation::Structure { outer, .. } => evaluation + outer,
            Evaluation::EntryFrame => evaluation + layout.frame_caller,
        };
        self.begin(layout, outer);
    }
}
