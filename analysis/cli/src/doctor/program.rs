//! Checks of a program, read from its file.

use std::path::Path;

use object::read::elf::{ElfFile64, FileHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::Settings;
use plimsoll_sys::own_files::open_regular;

use super::check::{Check, State};
use crate::elf::{Obstacle, obstacle};
use crate::run_command;

/// Maximum size of a file that is read whole, in bytes; of larger files only the headers are read.
const MAX_READ_BYTES: u64 = 1 << 30;

/// Libraries that identify an MPI, by prefixes of their names.
const MPI_LIBRARIES: [(&str, &str); 11] = [
    ("libmpi_abi.so", "MPI standard ABI"),
    ("libmpich.so", "MPICH"),
    ("libmpi.so.12", "MPICH ABI (MPICH, Intel MPI)"),
    ("libmpi.so.0", "MPICH ABI (MPICH)"),
    ("libmpi.so.40", "Open MPI"),
    ("libmpi.so", "an MPI"),
    // Cray's MPICH, one library for each compiler.
    ("libmpi_cray.so", "Cray MPICH"),
    ("libmpi_gnu", "Cray MPICH"),
    ("libmpi_intel", "Cray MPICH"),
    ("libmpi_nvidia", "Cray MPICH"),
    ("libmpi_ibm.so", "IBM Spectrum MPI"),
];

/// Libraries of OpenMP runtimes.
const OPENMP_LIBRARIES: [&str; 3] = ["libgomp.so", "libomp.so", "libiomp5.so"];

/// Libraries of sanitizers; beside them nothing is measured.
const SANITIZER_LIBRARIES: [&str; 5] =
    ["libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so", "libclang_rt.asan"];

/// Properties of an ELF file.
#[derive(Debug, Default)]
struct ProgramTraits {
    /// Names of the directly linked libraries.
    needed: Vec<String>,
    has_symbols: bool,
    has_lines: bool,
    has_mpi_inside: bool,
    is_go: bool,
    is_sanitized: bool,
}

/// Runs all checks of the program at a path, with the settings of its run.
pub fn checks(path: &Path, settings: &Settings) -> Vec<Check> {
    let name = shown(path).to_string();
    match obstacle(path) {
        Some(Obstacle::Static) => {
            return vec![Check::failed(
                "program",
                format!("{name} is statically linked: no library can be preloaded"),
                "Link it dynamically.",
            )];
        }
        Some(Obstacle::Privileged) => {
            return vec![Check::failed(
                "program",
                format!("{name} is set-user-id or has capabilities: the loader ignores LD_PRELOAD"),
                "Use a copy without these rights.",
            )];
        }
        None => {}
    }
    let content = match read(path) {
        Ok(content) => content,
        Err(error) => {
            let remedy = "Give a regular file that you may read.";
            return vec![Check::failed("program", format!("{name}: {error}"), remedy)];
        }
    };
    if content.starts_with(b"#!") {
        let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let command = String::from_utf8_lossy(&first[2..]).trim().to_owned();
        let interpreter = run_command::interpreter(&command);
        let chosen = interpreter.as_ref().map(|path| watched(path, settings));
        return vec![chosen.filter(|check| check.state != State::Ok).unwrap_or_else(|| {
            let found = format!("{name} is a script of {command}: ");
            match interpreter.as_deref().is_some_and(run_command::is_shell) {
                true => Check::limited(
                    "program",
                    found + "of the programs that it starts, those with MPI are measured",
                    "Start another program there by exec, or by `plimsoll run`.",
                ),
                false => Check::ok("program", found + "its interpreter is measured"),
            }
        })];
    }
    match facts(&content) {
        Some(facts) => [vec![watched(path, settings)], judge(&facts)].concat(),
        None => vec![Check::failed(
            "program",
            format!("{name} is no 64-bit x86 program of Linux"),
            "Give the program itself, not its launcher's input.",
        )],
    }
}

/// Checks that the settings choose the program, by the path of its file without links.
fn watched(path: &Path, settings: &Settings) -> Check {
    let name = shown(path).to_string();
    if settings.watches_program(&path.canonicalize().unwrap_or_else(|_| path.into())) {
        return Check::ok("program", name);
    }
    Check::failed(
        "program",
        format!("{name} is left alone: PLIMSOLL_INCLUDE or PLIMSOLL_EXCLUDE says so"),
        "Name it in PLIMSOLL_INCLUDE and not in PLIMSOLL_EXCLUDE, or unset both.",
    )
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let file = open_regular(path)?;
    let mut content = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

fn facts(content: &[u8]) -> Option<ProgramTraits> {
    let elf = ElfFile64::<LittleEndian>::parse(content).ok()?;
    if elf.elf_header().e_machine(LittleEndian) != object::elf::EM_X86_64 {
        return None;
    }
    let has_section = |name: &str| elf.section_by_name(name).is_some();
    let has_symbol = |wanted: &str| {
        let all = elf.symbols().chain(elf.dynamic_symbols());
        all.into_iter().any(|symbol| symbol.is_definition() && symbol.name() == Ok(wanted))
    };
    Some(ProgramTraits {
        needed: needed(&elf),
        has_symbols: elf.symbols().next().is_some(),
        has_lines: has_section(".debug_line") || has_separate_lines(&elf),
        has_mpi_inside: has_symbol("MPI_Init") || has_symbol("PMPI_Init"),
        is_go: has_section(".go.buildinfo"),
        is_sanitized: ["__asan_init", "__tsan_init", "__msan_init"].into_iter().any(has_symbol),
    })
}

/// Returns the libraries in DT_NEEDED.
fn needed(elf: &ElfFile64<'_, LittleEndian>) -> Vec<String> {
    let names = || -> Option<Vec<String>> {
        let endian = LittleEndian;
        let sections = elf.elf_header().sections(endian, elf.data()).ok()?;
        let (entries, strings) = sections.dynamic(endian, elf.data()).ok()??;
        let strings = sections.strings(endian, elf.data(), strings).ok()?;
        let of_entry = |entry: &object::elf::Dyn64<LittleEndian>| {
            let is_needed = entry.d_tag.get(endian) == object::elf::DT_NEEDED;
            let at = u32::try_from(entry.d_val.get(endian)).ok().filter(|_| is_needed)?;
            Some(String::from_utf8_lossy(strings.get(at).ok()?).into_owned())
        };
        Some(entries.iter().filter_map(of_entry).collect())
    };
    names().unwrap_or_default()
}

/// Returns whether there is a separate file of debug information where Debian and others install
/// it.
fn has_separate_lines(elf: &ElfFile64<'_, LittleEndian>) -> bool {
    let Ok(Some(id)) = elf.build_id() else { return false };
    let Some((first, rest)) = id.split_first() else { return false };
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(&format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")).exists()
}

fn judge(facts: &ProgramTraits) -> Vec<Check> {
    let links = |library: &&str| facts.needed.iter().any(|needed| needed.starts_with(*library));
    let mut checks = vec![mpi(facts)];
    checks.push(if facts.has_lines {
        Check::ok("source lines", "debug information is there")
    } else {
        Check::limited(
            "source lines",
            "no debug information: loops are named by function and offset, inlined calls not at \
            all",
            "Compile with -g beside the optimisation flags; it does not slow the program.",
        )
    });
    if !facts.has_symbols {
        checks.push(Check::limited(
            "function names",
            "the symbol table is stripped: only exported functions have names",
            "Do not strip the program.",
        ));
    }
    if let Some(runtime) = OPENMP_LIBRARIES.into_iter().find(|library| links(library)) {
        checks.push(Check::ok("OpenMP", runtime.trim_end_matches(".so").to_owned()));
    }
    if facts.is_sanitized || SANITIZER_LIBRARIES.iter().any(links) {
        checks.push(Check::failed(
            "instrumentation",
            "the program is built with a sanitizer, beside which nothing is measured",
            "Build it without -fsanitize.",
        ));
    }
    if facts.is_go {
        checks.push(Check::limited(
            "runtime",
            "Go handles every signal itself: calls are measured, samples are not taken",
            "None; time between calls is not attributed to functions.",
        ));
    }
    checks
}

fn mpi(facts: &ProgramTraits) -> Check {
    if facts.has_mpi_inside {
        return Check::failed(
            "MPI",
            "the MPI library is linked into the program: its calls cannot be seen",
            "Link the MPI dynamically; otherwise each process reports by itself.",
        );
    }
    let known = MPI_LIBRARIES.iter().find_map(|(library, mpi)| {
        let needed = facts.needed.iter().find(|needed| needed.starts_with(library))?;
        Some(format!("{mpi} ({needed})"))
    });
    Check::ok(
        "MPI",
        known.unwrap_or_else(|| {
            "none is linked directly: one that a library brings, or that is loaded later, is \
        found"
                .into()
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;

    fn state(checks: &[Check], name: &str) -> Option<State> {
        checks.iter().find(|check| check.name == name).map(|check| check.state)
    }

    #[test]
    fn a_program_with_everything_passes() {
        let checks = checks(&std::env::current_exe().unwrap(), &Settings::default());
        assert_eq!(state(&checks, "program"), Some(State::Ok), "{checks:?}");
        assert_eq!(state(&checks, "source lines"), Some(State::Ok), "{checks:?}");
        assert_eq!(state(&checks, "function names"), None, "{checks:?}");
        assert_eq!(state(&checks, "instrumentation"), None, "{checks:?}");
    }

    #[test]
    fn a_program_that_the_settings_leave_alone_fails() {
        let own = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("app");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        for (variable, value, expected) in [
            ("PLIMSOLL_EXCLUDE", name, State::Failed),
            ("PLIMSOLL_INCLUDE", "other", State::Failed),
            ("PLIMSOLL_INCLUDE", name, State::Ok),
            // The library knows the file, not the link.
            ("PLIMSOLL_EXCLUDE", "app", State::Ok),
        ] {
            let (settings, _) = Settings::from_env([(variable.into(), value.into())]);
            assert_eq!(watched(&link, &settings).state, expected, "{variable}={value}");
        }
    }

    #[test]
    fn a_script_is_left_alone_if_the_settings_leave_its_interpreter_alone() {
        let shell = run_command::find(OsStr::new("sh")).unwrap().canonicalize().unwrap();
        let name = shell.file_name().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        for first in [&*format!("#!{} -e", shell.display()), "#!/usr/bin/env -S A=1 sh -e"] {
            fs::write(&script, format!("{first}\nexit\n")).unwrap();
            for (variable, value, expected) in [
                ("PLIMSOLL_EXCLUDE", name, State::Failed),
                ("PLIMSOLL_INCLUDE", name, State::Limited),
                ("PLIMSOLL_EXCLUDE", OsStr::new("script"), State::Limited),
                ("PLIMSOLL_INCLUDE", OsStr::new("script"), State::Failed),
            ] {
                let (settings, _) = Settings::from_env([(variable.into(), value.into())]);
                let checks = checks(&script, &settings);
                assert_eq!(state(&checks, "program"), Some(expected), "{first}: {checks:?}");
            }
        }
    }

    #[test]
    fn libraries_decide_the_findings() {
        let of = |needed: &[&str], is_go| {
            let needed = needed.iter().map(ToString::to_string).collect();
            judge(&ProgramTraits {
                needed,
                has_symbols: true,
                has_lines: true,
                is_go,
                ..ProgramTraits::default()
            })
        };
        let open_mpi = of(&["libgomp.so.1", "libmpi.so.40", "libc.so.6"], false);
        assert!(open_mpi[0].found.starts_with("Open MPI"), "{open_mpi:?}");
        assert_eq!(state(&open_mpi, "OpenMP"), Some(State::Ok));
        assert!(of(&["libmpich.so.12"], false)[0].found.starts_with("MPICH ("));
        assert!(of(&["libmpi.so.12"], false)[0].found.contains("Intel MPI"));
        assert!(of(&["libmpi_gnu_123.so.12"], false)[0].found.starts_with("Cray MPICH ("));
        assert_eq!(state(&of(&["libasan.so.8"], false), "instrumentation"), Some(State::Failed));
        assert_eq!(state(&of(&[], true), "runtime"), Some(State::Limited));
    }

    #[test]
    fn the_libraries_of_a_program_are_read() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let facts = facts(&own).unwrap();
        assert!(facts.needed.iter().any(|name| name == "libc.so.6"), "{facts:?}");
        assert!(facts.has_symbols && !facts.is_go && !facts.is_sanitized, "{facts:?}");
    }

    #[test]
    fn a_file_that_is_no_program_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "#!/usr/bin/python3\nprint()\n").unwrap();
        let checks = |path: &Path| checks(path, &Settings::default());
        assert!(checks(&file)[0].found.contains("/usr/bin/python3"));
        for content in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01\x01garbage", b"MZ"] {
            fs::write(&file, content).unwrap();
            assert_eq!(checks(&file)[0].state, State::Failed, "{content:?}");
        }
        assert_eq!(checks(directory.path())[0].state, State::Failed);
    }
}
