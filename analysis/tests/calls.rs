//! CALLS.md equals the table of wrapped calls.
//!
//! `PLIMSOLL_TESTS_UPDATE=1 cargo test -p plimsoll-analysis --test calls` rewrites the file.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use plimsoll_analysis::label::Label;
use plimsoll_analysis::labelling::{ContextClass, from_call_class};
use plimsoll_calls::{CALLS, Call, CallClass, Provider};

const HEAD: &str = "# The calls that Plimsoll wraps

Made from `agent/calls/src/table.rs` by a test; do not edit. Every call here is counted and timed
per call path, exactly, and its frame has the label (PPoPP20, 5.2) that it stands under. An MPI
function is one call however it is called: in C, as `NAME_c` where that is marked, in Fortran
through `mpif.h`, `mpi` or `mpi_f08` in every compiler's spelling. A call that another call here
makes belongs to that one and is not counted.
";

fn label(call: &Call) -> Label {
    from_call_class(call.class, call.provider, ContextClass::OUTSIDE)
}

fn note(class: CallClass) -> &'static str {
    match class {
        CallClass::Polling => ": calls that look for progress and return at once",
        CallClass::Sleep => {
            ": sleeping by the program's own wish, or while its processes work: work off the CPU"
        }
        CallClass::Region => {
            ": parallel regions; the time of the call is the wait for the end of all shares"
        }
        CallClass::TaskCreation => ": creating tasks, work of their creator",
        CallClass::ThreadCreation => {
            ": creating threads, work of their creator; counted, not timed"
        }
        CallClass::WaitPartner => "; of `syscall`, only waits for a futex",
        CallClass::Io => {
            "; on sockets, pipes and terminals: wait_resource, but computation by streams"
        }
        _ => "",
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let titles = [
        ("MPI", Provider::Mpi),
        ("The C library", Provider::Libc),
        ("GCC's OpenMP runtime", Provider::Gomp),
        ("OpenMP runtimes with a tools interface", Provider::Ompt),
    ];
    for (title, provider) in titles {
        let belongs =
            |call: &Call| call.provider == provider || provider.is_mpi() && call.provider.is_mpi();
        writeln!(page, "\n## {title}").unwrap();
        let calls: Vec<&Call> =
            CALLS.iter().filter(|call| belongs(call) && !call.large_count).collect();
        let mut classes: Vec<CallClass> = Vec::new();
        for call in &calls {
            if !classes.contains(&call.class) {
                classes.push(call.class);
            }
        }
        classes.sort_by_key(|class| *class as u8);
        for class in classes {
            let mut names: Vec<String> = calls
                .iter()
                .filter(|call| call.class == class)
                .map(|call| {
                    let twin = |large: &&Call| large.name.strip_suffix("_c") == Some(call.name);
                    let large = CALLS.iter().filter(|call| call.large_count).any(|c| twin(&c));
                    format!("`{}`{}", call.name, if large { " (`_c`)" } else { "" })
                })
                .collect();
            names.sort();
            let any = calls.iter().find(|call| call.class == class).unwrap();
            let note =
                if provider == Provider::Libc || class != CallClass::Io { note(class) } else { "" };
            write!(page, "\n### {}{note}\n\n{}\n", label(any), names.join(", ")).unwrap();
        }
    }
    page
}

#[test]
fn the_page_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CALLS.md");
    let page = page();
    if env::var_os("PLIMSOLL_TESTS_UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "CALLS.md is old: PLIMSOLL_TESTS_UPDATE=1 cargo test -p plimsoll-analysis --test calls"
    );
}
