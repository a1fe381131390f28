//! Compilation of the subjects: the programs with a known truth in `tests/programs/`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::artifacts::{target_dir, workspace_dir};
use crate::background::in_background;
use crate::bindings;
use crate::mpi::{Mpi, find_command};
use crate::openmp_runtime::{Language, OpenMpRuntime, compile_openmp};

pub(crate) const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror"];
pub(crate) const C_FLAGS: &[&str] = &["-std=c11", "-O2", "-g", "-pthread"];
/// The C interface only: the bindings for C++ have left the standard (MPI-3, 16.1).
/// Handlers of faults may throw.
pub(crate) const CXX_FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-g",
    "-pthread",
    "-fnon-call-exceptions",
    "-DOMPI_SKIP_MPICXX",
    "-DMPICH_SKIP_MPICXX",
];
/// gfortran has no attribute that keeps a function unchanged, and mpif.h declares unused
/// parameters.
pub(crate) const FORTRAN_FLAGS: &[&str] = &["-O1", "-g", "-fno-inline", "-Wno-unused-parameter"];

/// Language of a subject, and how it links to its MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// C, with MPI as a shared library.
    C,
    /// C++, calling the C interface.
    Cxx,
    /// C++ at -O3, with everything inlined that can be.
    CxxInlined,
    /// C++ at -O3, inlined as above, without debug information.
    CxxWithoutDebug,
    /// C++ with the libraries of compiler and language linked statically.
    CxxStaticRuntime,
    /// C++ with nongnu libunwind to unwind exceptions, in place of the compiler's library.
    CxxForeignUnwinder,
    /// C++ with all libraries linked statically, and LLVM's libunwind among them.
    CxxLlvmUnwinder,
    /// C++ as above, with a changed wording of the message that identifies LLVM's libunwind.
    CxxUnknownUnwinder,
    /// Fortran without MPI.
    Fortran,
    /// Fortran with `include 'mpif.h'`.
    MpifH,
    /// Fortran as above, with names of functions without an underscore at their ends.
    WithoutUnderscores,
    /// Fortran with `use mpi`.
    UseMpi,
    /// Fortran with `use mpi_f08`.
    UseMpiF08,
    /// Fortran with `use mpi` at -O3, with everything inlined that can be.
    FortranInlined,
    /// Fortran as above, without debug information.
    FortranWithoutDebug,
    /// Rust through the crate `mpi`; without an MPI, a single file.
    Rust,
    /// Python, through mpi4py with an MPI.
    Python,
    /// C in a shared object that a program without MPI loads by dlopen with RTLD_LOCAL.
    Plugin,
    /// A shared object in C that the subject loads.
    Library,
    /// C with MPI linked statically, the C library not.
    StaticMpi,
    /// C with hypre, built by the distribution for its Open MPI.
    Hypre,
    /// C or, for gfortran, Fortran without MPI, by this compiler with these flags.
    By(&'static str, &'static [&'static str]),
    /// With OpenMP, in this language, linked with this runtime.
    OpenMp(Language, OpenMpRuntime),
    /// Go, with these flags ([`Form::go`]).
    Go(&'static [&'static str]),
    /// A program of the distribution, found by its name.
    Installed,
}

/// A program to start: its path, its first arguments, and the environment that it needs.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) command: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

/// Returns a subject compiled for an MPI or, with `None`, without any. Recompiled when a source in
/// `tests/programs/` is younger. The caller must hold the job lock ([`crate::job_lock`]), so that
/// no other test compiles into the same file.
///
/// # Panics
/// If the subject does not compile without warnings.
pub fn program(name: &str, form: Form, mpi: Option<Mpi>) -> Program {
    let variables = mpi.map(Mpi::variables).unwrap_or_default();
    let command = match (form, mpi) {
        (Form::Python, Some(mpi)) => {
            let script = programs_dir().join(name).with_extension("py");
            let variables = [variables, mpi.python_variables()].concat();
            return Program { command: vec![mpi.python().into(), script.into()], variables };
        }
        (Form::Python, None) => {
            let python = find_command("python3").expect("scripts/test installs Python");
            vec![python.into(), programs_dir().join(name).with_extension("py").into()]
        }
        (Form::Installed, _) => vec![
            find_command(name)
                .unwrap_or_else(|| panic!("{name} is not installed: scripts/test does that"))
                .into(),
        ],
        (Form::Plugin, _) => {
            vec![executable("local", Form::C, None).into(), executable(name, form, mpi).into()]
        }
        _ => vec![executable(name, form, mpi).into()],
    };
    Program { command, variables }
}

/// Returns the executable of a compiled subject; otherwise as [`program`].
///
/// # Panics
/// As [`program`].
pub fn executable(name: &str, form: Form, mpi: Option<Mpi>) -> PathBuf {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let folder = target_dir().join("subjects").join(mpi.map_or("alone", Mpi::folder));
    let executable = folder.join(format!("{name}{}", form.suffix()));
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !built.contains(&executable) {
        if !is_current(&executable) {
            form.compile(name, mpi, &executable);
        }
        built.push(executable.clone());
    }
    executable
}

fn programs_dir() -> PathBuf {
    workspace_dir().join("tests/programs")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Returns whether the executable is younger than all sources, shared headers included, and than
/// the flags in this file.
fn is_current(executable: &Path) -> bool {
    let Some(compiled) = modified(executable) else { return false };
    let mut sources = vec![workspace_dir().join("tests/src/subject.rs")];
    for folder in ["", "marks", "rust-imbalance/src"].map(|folder| programs_dir().join(folder)) {
        sources.extend(fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()));
    }
    sources
        .iter()
        .filter(|source| source.is_file())
        .all(|source| modified(source).is_some_and(|changed| changed < compiled))
}

impl Form {
    /// Returns the form for Go with these flags; `None`, with a message, if Go is not installed.
    pub fn go(flags: &'static [&'static str]) -> Option<Self> {
        if find_command("go").is_none() {
            println!("SKIPPED: no Go is installed");
            return None;
        }
        Some(Self::Go(flags))
    }

    /// Returns the suffix that distinguishes the executables of one subject.
    fn suffix(self) -> String {
        let fixed = match self {
            // env(1) parses a name with an equals sign as a variable.
            Self::By(compiler, flags) => {
                return format!("-{compiler}{}", flags.concat()).replace('=', "-");
            }
            Self::Go(flags) => return format!("-go{}", flags.concat()).replace('=', "-"),
            Self::OpenMp(language, runtime) => {
                return format!("-{}-{}", language.extension(), runtime.name());
            }
            Self::C | Self::Python | Self::Installed => "",
            Self::Cxx => "-cxx",
            Self::CxxInlined => "-cxx-inlined",
            Self::CxxWithoutDebug => "-cxx-without-debug",
            Self::CxxStaticRuntime => "-cxx-static-runtime",
            Self::CxxForeignUnwinder => "-cxx-foreign-unwinder",
            Self::CxxLlvmUnwinder => "-cxx-llvm-unwinder",
            Self::CxxUnknownUnwinder => "-cxx-unknown-unwinder",
            Self::Fortran => "-fortran",
            Self::MpifH => "-mpif-h",
            Self::WithoutUnderscores => "-without-underscores",
            Self::UseMpi => "-use-mpi",
            Self::FortranInlined => "-fortran-inlined",
            Self::FortranWithoutDebug => "-fortran-without-debug",
            Self::UseMpiF08 => "-use-mpi-f08",
            Self::Rust => "-rust",
            Self::Plugin | Self::Library => ".so",
            Self::StaticMpi => "-static-mpi",
            Self::Hypre => "-hypre",
        };
        fixed.to_owned()
    }

    fn compile(self, name: &str, mpi: Option<Mpi>, executable: &Path) {
        let folder = executable.parent().expect("subjects lie in a folder");
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        // Compiled beside and renamed: an interrupted compiler leaves nothing that looks current.
        let unfinished = executable.with_extension("part");
        let source = programs_dir().join(name);
        let wrapper = |wrapper: &str| match mpi {
            Some(mpi) => Command::new(mpi.compiler(wrapper)),
            None => Command::new("gcc"),
        };
        let command = match self {
            Self::Python | Self::Installed => panic!("{name} is not compiled"),
            Self::OpenMp(language, runtime) => {
                compile_openmp(language, runtime, mpi, &source, &unfinished);
                fs::rename(&unfinished, executable).expect("both are in one folder");
                return;
            }
            Self::By(compiler, flags) => {
                let mut command = Command::new(compiler);
                command.args(flags).arg("-g");
                if compiler == "gfortran" {
                    command.arg("-fno-inline").arg("-J").arg(folder);
                    command.arg(source.with_extension("F90"));
                } else {
                    command.args(["-std=c11", "-pthread", "-DSUBJECT_NO_MPI"]).args(WARNINGS);
                    command.arg(source.with_extension("c"));
                }
                command
            }
            Self::Go(flags) => {
                let mut command = Command::new("go");
                // Without a module of its own, and without files in the user's home.
                command.env("GO111MODULE", "off").env("GOCACHE", target_dir().join("tmp/go"));
                command.arg("build").args(flags).arg("-o").arg(&unfinished);
                let output = in_background(command.arg(source.with_extension("go"))).output();
                let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{command:?}:\n{errors}");
                fs::rename(&unfinished, executable).expect("both are in one folder");
                return;
            }
            Self::Rust => match mpi {
                Some(mpi) => {
                    build_with_cargo(name, mpi, &unfinished);
                    fs::rename(&unfinished, executable).expect("both are in one folder");
                    return;
                }
                None => {
                    let mut command = Command::new("rustc");
                    command.args(["--edition", "2024", "-O", "-g"]);
                    command.arg(source.with_extension("rs"));
                    command
                }
            },
            Self::Cxx
            | Self::CxxInlined
            | Self::CxxWithoutDebug
            | Self::CxxStaticRuntime
            | Self::CxxForeignUnwinder
            | Self::CxxLlvmUnwinder
            | Self::CxxUnknownUnwinder => {
                let mut command = match mpi {
                    Some(_) => wrapper("mpicxx"),
                    None => Command::new("g++"),
                };
                command.args(CXX_FLAGS).args(WARNINGS).arg(source.with_extension("cpp"));
                if mpi.is_none() {
                    command.arg("-DSUBJECT_NO_MPI");
                }
                match self {
                    Self::CxxInlined => {
                        command.arg("-O3");
                    }
                    Self::CxxWithoutDebug => {
                        command.args(["-O3", "-g0"]);
                    }
                    Self::CxxStaticRuntime => {
                        command.args(["-static-libgcc", "-static-libstdc++"]);
                    }
                    Self::CxxLlvmUnwinder | Self::CxxUnknownUnwinder => {
                        command.args(["-static-libgcc", "-static-libstdc++"]);
                        // All of it, before GCC's own.
                        command.arg("-Wl,--whole-archive,--allow-multiple-definition");
                        command.arg(llvm_unwinder()).arg("-Wl,--no-whole-archive");
                    }
                    Self::CxxForeignUnwinder => {
                        command.args(["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
                    }
                    _ => {}
                }
                command
            }
            Self::Fortran => {
                let mut command = Command::new("gfortran");
                command.args(FORTRAN_FLAGS).args(["-Wall", "-Werror"]);
                command.arg("-J").arg(folder).arg(source.with_extension("F90"));
                command
            }
            Self::FortranInlined | Self::FortranWithoutDebug => {
                let mut command = wrapper("mpifort");
                let debug = if self == Self::FortranInlined { "-g" } else { "-g0" };
                command.args(["-O3", debug, "-Wall", "-Werror", "-J"]).arg(folder);
                command.arg(source.with_extension("F90"));
                command
            }
            Self::MpifH | Self::WithoutUnderscores | Self::UseMpi | Self::UseMpiF08 => {
                let mut command = wrapper("mpifort");
                command.args(FORTRAN_FLAGS).args(["-Wall", "-Werror"]).arg(match self {
                    Self::MpifH | Self::WithoutUnderscores => "-DSUBJECT_MPIF_H",
                    Self::UseMpi => "-DSUBJECT_USE_MPI",
                    _ => "-DSUBJECT_USE_MPI_F08",
                });
                if self == Self::WithoutUnderscores {
                    command.arg("-fno-underscoring");
                }
                // Folder for the subject's own module files.
                command.arg("-J").arg(folder).arg(source.with_extension("F90"));
                command
            }
            Self::C | Self::Plugin | Self::Library | Self::StaticMpi | Self::Hypre => {
                let mut command = wrapper("mpicc");
                command.args(C_FLAGS).args(WARNINGS).arg(source.with_extension("c"));
                if mpi.is_none() {
                    command.arg("-DSUBJECT_NO_MPI");
                }
                if self == Self::Library {
                    command.args(["-shared", "-fPIC"]);
                }
                if self == Self::Plugin {
                    command.args(["-shared", "-fPIC", "-Dmain=plugin_main"]);
                }
                if self == Self::StaticMpi {
                    command.args(static_mpich());
                }
                if self == Self::Hypre {
                    command.args(["-isystem", "/usr/include/hypre", "-lHYPRE", "-lm"]);
                }
                command
            }
        };
        compile(command, &unfinished);
        if self == Self::CxxUnknownUnwinder {
            disguise(&unfinished);
        }
        fs::rename(&unfinished, executable)
            .unwrap_or_else(|error| panic!("{}: {error}", executable.display()));
    }
}

pub(crate) fn compile(mut command: Command, executable: &Path) {
    let output =
        in_background(command.arg("-o").arg(executable)).output().unwrap_or_else(|error| {
            panic!("{command:?} does not run ({error}): scripts/test installs the compilers")
        });
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Changes the message by which LLVM's unwinder is recognised.
fn disguise(executable: &Path) {
    const RECOGNISED: &[u8] = b"personality function said it would stop here";
    let mut bytes = fs::read(executable).expect("it was compiled");
    let at = bytes.windows(RECOGNISED.len()).position(|window| window == RECOGNISED);
    bytes[at.expect("LLVM's unwinder was linked")..][..RECOGNISED.len()].make_ascii_uppercase();
    fs::write(executable, bytes).expect("the folder of subjects can be written");
}

/// Builds a subject that is a cargo package of its own.
fn build_with_cargo(name: &str, mpi: Mpi, executable: &Path) {
    let package = format!("rust-{name}");
    let manifest = programs_dir().join(&package).join("Cargo.toml");
    let manifest = manifest.to_str().expect("the workspace has a path in UTF-8");
    bindings::build(mpi, &["--locked", "--manifest-path", manifest], &package, executable);
}

/// Returns the archive of LLVM's libunwind, of any installed version.
fn llvm_unwinder() -> PathBuf {
    let versions = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    versions
        .filter(|folder| folder.file_name().to_string_lossy().starts_with("llvm-"))
        .map(|folder| folder.path().join("lib/libunwind.a"))
        .find(|path| path.exists())
        .expect("scripts/test installs libunwind-14-dev")
}

/// Returns the archive of Debian's MPICH and the libraries that it needs, according to pkg-config.
fn static_mpich() -> Vec<String> {
    let find = |under: &str| {
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join(under)).find(|path| path.exists())
    };
    let archive = find("libmpich.a").expect("libmpich-dev brings the archive");
    let description = find("pkgconfig/mpich.pc").and_then(|path| fs::read_to_string(path).ok());
    let description = description.expect("libmpich-dev brings its description");
    let needed =
        description.lines().filter_map(|line| line.strip_prefix("Libs:")).flat_map(|line| {
            line.split_whitespace().filter(|word| word.starts_with("-l") && *word != "-lmpich")
        });
    // First, so that the wrapper's own -lmpich finds nothing left to provide.
    std::iter::once(archive.display().to_string())
        .chain(needed.map(str::to_owned))
        .chain(["-lm".to_owned(), "-Wl,--as-needed".to_owned()])
        .collect()
}
