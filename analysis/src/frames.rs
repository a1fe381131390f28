//! What kind of code a frame is.

use plimsoll_collector::profile::{Frame, FrameKind};

/// Modules whose functions are never named as a cause: they work on behalf of their caller.
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
    // What our wrappers take is the call's, or its caller's.
    "libplimsoll.so",
];

/// Whether a frame belongs to the system's libraries.
pub fn is_system(frame: &Frame) -> bool {
    SYSTEM_MODULES.iter().any(|module| frame.module.starts_with(module))
}

/// Whether a frame is a part of a procedure.
pub fn is_part(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Loop | FrameKind::Inlined | FrameKind::Line)
}
