//! Generates stubs.rs, the list of stubs: one for each symbol of each call in the table.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use plimsoll_calls::{CALLS, MAX_SYMBOL_BYTES, Provider, SYMBOLS};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut stubs = String::new();
    let mut unexported = String::new();
    for (index, call) in CALLS.iter().enumerate() {
        let body = if call.provider == Provider::Own { "hooked" } else { "measured" };
        for (symbol_variant, symbol) in SYMBOLS.iter().enumerate() {
            let mut room = [0; MAX_SYMBOL_BYTES];
            let name = symbol.spell(call, &mut room).to_str().expect("symbols are ASCII");
            // pthread_mutex_lock has a hook of its own, which leads to its stub.
            if symbol.belongs_to(call) && name != "pthread_mutex_lock" {
                let id = index + 1;
                let in_c = symbol_variant == 0;
                let kind = if in_c && call.is_recent() { "unexported_stub" } else { "stub" };
                writeln!(stubs, "{kind}!({name}, {id}, {symbol_variant}, {body});")
                    .expect("a string takes all");
                if kind == "unexported_stub" {
                    writeln!(unexported, "    ({id}, {name}),").expect("a string takes all");
                }
            }
        }
    }
    writeln!(
        stubs,
        "/// Stubs that are not exported, by their calls.\n\
         pub const UNEXPORTED: &[(CallId, unsafe extern \"C-unwind\" fn())] = &[\n{unexported}];"
    )
    .expect("a string takes all");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("stubs.rs"), stubs).expect("cargo's own directory is writable");
}
