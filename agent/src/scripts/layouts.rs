//! Structures of CPython, by version.

/// Offsets of fields in the structures of an interpreter's version, in bytes.
pub struct Layout {
    /// The innermost structure of an evaluation loop or, without such structures, the innermost
    /// frame, in a thread's state.
    pub state: u64,
    pub evaluation: Evaluation,
    /// The code object of a frame.
    pub frame_code: u64,
    /// The caller of a frame.
    pub frame_caller: u64,
    /// The instruction that a frame executes.
    pub frame_instruction: u64,
    pub end: RunEnd,
    /// First line, name with classes, file, table of lines, and first instruction of a code object.
    pub code_line: u64,
    pub code_name: u64,
    pub code_file: u64,
    pub code_lines: u64,
    pub code_begin: u64,
    /// Characters of a string that is ASCII, and of any other one.
    pub ascii: u64,
    pub wide: u64,
}

/// The part of the stack by which an evaluation loop is known.
#[derive(Clone, Copy)]
pub enum Evaluation {
    /// A structure, with the innermost frame of its run and the structure of the next outer loop at
    /// these offsets.
    Structure { frame: u64, outer: u64 },
    /// The outermost frame of its run, which is no function.
    EntryFrame,
}

/// The end of a run of frames.
#[derive(Clone, Copy)]
pub enum RunEnd {
    /// With the frame that has a nonzero byte at this offset.
    With(u64),
    /// Before the frame with this value of the byte at this offset, which is no function.
    Before(u64, u8),
}

/// Include/internal/pycore_frame.h, Include/cpython/{pystate,code,unicodeobject}.h of CPython.
pub const CPYTHON_3_11: Layout = Layout {
    state: 56,
    evaluation: Evaluation::Structure { frame: 8, outer: 16 },
    frame_code: 32,
    frame_caller: 48,
    frame_instruction: 56,
    end: RunEnd::With(68),
    code_line: 72,
    code_name: 128,
    code_file: 112,
    code_lines: 136,
    code_begin: 184,
    ascii: 48,
    wide: 72,
};
/// See [`CPYTHON_3_11`].
pub const CPYTHON_3_12: Layout = Layout {
    evaluation: Evaluation::Structure { frame: 0, outer: 8 },
    frame_code: 0,
    frame_caller: 8,
    end: RunEnd::Before(70, 3),
    code_line: 68,
    code_begin: 192,
    ascii: 40,
    wide: 56,
    ..CPYTHON_3_11
};
/// See [`CPYTHON_3_11`].
pub const CPYTHON_3_13: Layout =
    Layout { state: 72, evaluation: Evaluation::EntryFrame, code_begin: 200, ..CPYTHON_3_12 };

/// Length and first byte of an object that holds bytes, in bytes from its begin.
pub const BYTES_LENGTH: u64 = 16;
pub const BYTES: u64 = 32;

/// Length of a string, and the word that describes its characters, in bytes from its begin.
pub const STRING_LENGTH: u64 = 16;
pub const STRING_KIND: u64 = 32;
