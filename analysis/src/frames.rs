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

/// Libraries of the languages, which are never named either, not even where the outermost function calls them.
const LANGUAGE_MODULES: &[&str] = &[
    "libstdc++",
    "libc++",
    "libgcc_s",
    "libgfortran",
    "libquadmath",
    "libflang",
    "libFortran",
    "libifcore",
    "libifport",
    "libimf",
    "libintlc",
    "libirc",
    "libsvml",
];

/// Namespaces of the languages' libraries, whose templates are compiled into the program.
const LANGUAGE_NAMESPACES: &[&str] = &["std::", "__gnu_cxx::", "core::", "alloc::"];

/// Whether a frame belongs to a language's libraries, be it that these are compiled into the program.
pub fn is_of_language(frame: &Frame) -> bool {
    let begins = |name: &str, known: &[&str]| known.iter().any(|known| name.starts_with(known));
    // Methods of Rust's traits are written <Type as Trait>::method.
    let name = frame.function.trim_start_matches('<');
    begins(&frame.module, LANGUAGE_MODULES) || begins(name, LANGUAGE_NAMESPACES)
}

/// Whether a frame belongs to the system's libraries.
pub fn is_system(frame: &Frame) -> bool {
    SYSTEM_MODULES.iter().any(|module| frame.module.starts_with(module))
}

/// Whether a frame is a part of a procedure.
pub fn is_part(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Loop | FrameKind::Inlined | FrameKind::Line)
}

/// Whether a frame is a loop.
pub fn is_loop(frame: &Frame) -> bool {
    frame.kind == FrameKind::Loop
}
