//! Language runtimes that walk the stack by return addresses.
//!
//! A garbage collector or an exception mechanism of this kind looks up each return address in a
//! table of the runtime's own code. A mark is in no such table: the runtime would stop, or read
//! past its tables. A runtime is recognised by a function among the module's dynamic symbols, which
//! a stripped program keeps.

use super::unwinders::holds;
use crate::modules::LoadedModule;

/// Symbols of such runtimes. Each begins with a NUL or ends with one, so that no longer name
/// matches.
const SYMBOLS: [&[u8]; 5] = [
    // OCaml: frame descriptors by return address (runtime/stack.h); ocamlopt exports all symbols.
    b"\0caml_frametable\0",
    // V8, alone or in node and Electron: embedded builtins and the safepoint tables of its code.
    b"\0_ZN2v87Isolate3New",
    // GraalVM native images: code information by instruction pointer.
    b"\0graal_create_isolate\0",
    // .NET (CoreCLR and Mono): precompiled code is mapped from files.
    b"\0coreclr_initialize\0",
    b"\0mono_jit_init\0",
];

/// Returns whether the module holds a runtime that looks up return addresses of the stack in its
/// own tables.
pub fn walks_by_return_addresses(module: &LoadedModule) -> bool {
    holds(module.names.unwrap_or_default(), &SYMBOLS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;

    #[test]
    fn runtimes_are_recognised_by_their_symbols() {
        let loaded = modules::loaded();
        for module in &loaded {
            let name = String::from_utf8_lossy(&module.name).into_owned();
            assert!(!walks_by_return_addresses(module), "{name}");
        }
        let mut program = loaded.into_iter().next().expect("the program itself is loaded");
        for (names, expected) in [
            (b"\0malloc\0caml_frametable\0".as_slice(), true),
            (b"\0_ZN2v87Isolate3NewERKNS0_12CreateParamsE\0", true),
            (b"\0my_caml_frametable\0caml_frametables\0", false),
        ] {
            program.names = Some(names);
            assert_eq!(walks_by_return_addresses(&program), expected);
        }
        program.names = None;
        assert!(!walks_by_return_addresses(&program));
    }
}
