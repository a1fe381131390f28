//! Classification of frames: language libraries, system libraries, parts of procedures.

use plimsoll_collector::profile::{Frame, FrameKind};

/// Modules with functions that are never named as a cause, because they work on behalf of their
/// caller.
const SYSTEM_MODULES: &[&str] = &[
    "libc.so",
    "libc-2",
    "libm.so",
    "libm-2",
    "ld-linux",
    "ld-2",
    "libpthread",
    "librt.so",
    "[vdso]",
];

/// Modules of the C library.
const C_LIBRARY_MODULES: &[&str] = &["libc.so", "libc-2", "libpthread"];

/// Returns whether a frame belongs to a system library.
pub fn is_system(frame: &Frame) -> bool {
    SYSTEM_MODULES.iter().any(|module| frame.module.starts_with(module))
}

/// Returns whether a frame belongs to the C library.
pub fn is_of_c_library(frame: &Frame) -> bool {
    C_LIBRARY_MODULES.iter().any(|module| frame.module.starts_with(module))
}

/// Returns whether a function has no name but its address in its module: `libm.so.6+0x1234`.
pub fn is_unnamed(frame: &Frame) -> bool {
    frame.function.strip_prefix(&frame.module).is_some_and(|address| address.starts_with("+0x"))
}

/// Returns whether a frame is part of a procedure: a loop, an inlined call or a line.
pub fn is_part(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Loop | FrameKind::Inlined | FrameKind::Line)
}

/// Returns whether a frame is a loop.
pub fn is_loop(frame: &Frame) -> bool {
    frame.kind == FrameKind::Loop
}
