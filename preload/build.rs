//! Generates stubs.rs, the list of stubs: one for each symbol of each call in the table.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use plimsoll_calls::{CALLS, CallClass, MAX_SYMBOL_BYTES, Provider, RUNTIME_SYMBOLS, SYMBOLS};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut stubs = String::new();
    let mut unexported = String::new();
    for (index, call) in CALLS.iter().enumerate() {
        let body = if call.provider == Provider::Own { "hooked" } else { "measured" };
        for (symbol_variant, symbol) in SYMBOLS.iter().enumerate() {
            let mut room = [0; MAX_SYMBOL_BYTES];
            let name = symbol.spell(call, &mut room).to_str().expect("symbols are ASCII");
            // Those have hooks of their own; some lead to their stubs.
            let has_hook = matches!(
                name,
                "pthread_mutex_lock"
                    | "pthread_rwlock_rdlock"
                    | "pthread_rwlock_wrlock"
                    | "pthread_create"
                    | "syscall"
                    | "fread"
                    | "__fread_chk"
                    | "fwrite"
                    | "fgets"
                    | "__fgets_chk"
                    | "__getdelim"
            );
            if symbol.belongs_to(call) && !has_hook {
                let id = index + 1;
                let in_c = symbol_variant == 0;
                let exported = symbol.is_exported() && !(in_c && call.is_recent());
                let kind = if exported { "stub" } else { "unexported_stub" };
                writeln!(stubs, "{kind}!({name}, {id}, {symbol_variant}, {body});")
                    .expect("a string takes all");
                if !exported {
                    writeln!(
                        unexported,
                        "    MpiStub {{ call: {id}, name: c\"{name}\", \
                         symbol_variant: {symbol_variant}, wrapper: {name} }},"
                    )
                    .expect("a string takes all");
                }
            }
        }
    }
    writeln!(
        stubs,
        "/// Stubs of MPI's functions that are not exported.\n\
         pub const UNEXPORTED: &[MpiStub] = &[\n{unexported}];"
    )
    .expect("a string takes all");
    runtime_stubs(&mut stubs);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("stubs.rs"), stubs).expect("cargo's own directory is writable");
}

/// Writes the stubs of the OpenMP runtime, which are not exported.
fn runtime_stubs(stubs: &mut String) {
    let mut list = String::new();
    for (index, call) in CALLS.iter().enumerate() {
        for (place, symbol) in RUNTIME_SYMBOLS.iter().enumerate() {
            if symbol.belongs_to(call) {
                let id = index + 1;
                let name = format!("{}{}", call.name, symbol.suffix);
                let version =
                    symbol.version.map_or("None".to_owned(), |it| format!("Some(c\"{it}\")"));
                let body = if call.class == CallClass::Region { "parallel" } else { "in_runtime" };
                let stub = format!("{name}_{place}");
                writeln!(stubs, "unexported_stub!({stub}, {id}, {place}, {body});")
                    .expect("a string takes all");
                writeln!(
                    list,
                    "    RuntimeStub {{ name: c\"{name}\", version: {version}, call: {id}, \
                     symbol: {place}, wrapper: {stub} }},"
                )
                .expect("a string takes all");
            }
        }
    }
    writeln!(
        stubs,
        "/// Stubs of the OpenMP runtime.\npub const RUNTIME_STUBS: &[RuntimeStub] = &[\n{list}];"
    )
    .expect("a string takes all");
}
