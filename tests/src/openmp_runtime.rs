//! Subjects with OpenMP: their languages, and the runtimes that they are linked with.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mpi::{Mpi, find_command, skip};
use crate::subject::{C_FLAGS, CXX_FLAGS, FORTRAN_FLAGS, WARNINGS, compile};
use crate::subject_job::Job;
use crate::wheels;

/// Language of a subject with OpenMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// C11.
    C,
    /// C++17.
    Cxx,
    /// Fortran, always by gfortran. Under another runtime than GCC's, it calls GCC's entry points
    /// of that runtime.
    Fortran,
}

/// OpenMP runtime that a subject is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMpRuntime {
    /// GCC's libgomp; C and C++ are compiled by GCC.
    Gomp,
    /// LLVM's libomp of the distribution; C and C++ are compiled by clang.
    Llvm,
    /// Intel's libiomp5, from the wheel `intel-openmp`; C and C++ are compiled by clang.
    Intel,
}

/// Name of the virtual environment that holds the wheel `intel-openmp`.
const INTEL_ENVIRONMENT: &str = "iomp";

impl Language {
    /// All languages.
    pub const ALL: [Self; 3] = [Self::C, Self::Cxx, Self::Fortran];

    /// Returns the ending of a source file.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cxx => "cpp",
            Self::Fortran => "F90",
        }
    }
}

impl OpenMpRuntime {
    /// All runtimes.
    pub const ALL: [Self; 3] = [Self::Gomp, Self::Llvm, Self::Intel];

    /// Returns the name of the runtime in a summary.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gomp => "libgomp",
            Self::Llvm => "libomp",
            Self::Intel => "libiomp5",
        }
    }

    /// Returns whether subjects can be linked with the runtime. If not, reports the skip on stderr,
    /// and the test ends or goes on with another runtime.
    pub fn available(self) -> bool {
        match self.why_unavailable() {
            None => true,
            Some(reason) => {
                skip(&format!("{reason}: a test that needs {self}"));
                false
            }
        }
    }

    /// Returns why no subject can be linked with the runtime; `None` if it can.
    pub fn why_unavailable(self) -> Option<String> {
        match self {
            Self::Gomp => None,
            Self::Llvm | Self::Intel if find_command("clang").is_none() => {
                Some("clang not found (package clang)".to_owned())
            }
            Self::Llvm => llvm_library()
                .is_none()
                .then(|| "clang finds no libomp.so (package libomp-dev)".to_owned()),
            Self::Intel => wheels::unavailable(INTEL_ENVIRONMENT),
        }
    }

    /// Returns the path of the runtime's library; `None` for GCC's, which the loader finds.
    ///
    /// # Panics
    /// If the runtime is not available.
    pub fn library(self) -> Option<PathBuf> {
        match self {
            Self::Gomp => None,
            Self::Llvm => Some(llvm_library().expect("the caller asked whether it is there")),
            Self::Intel => {
                Some(wheels::environment(INTEL_ENVIRONMENT).join("lib").join("libiomp5.so"))
            }
        }
    }

    /// Returns the linker's arguments, with which the program also finds the library at its start.
    fn link_arguments(self) -> Vec<String> {
        let Some(library) = self.library() else { return Vec::new() };
        let folder = library.parent().expect("a library lies in a folder").display().to_string();
        vec![format!("-L{folder}"), format!("-Wl,-rpath,{folder}")]
    }
}

impl fmt::Display for OpenMpRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gomp => "GCC's OpenMP runtime",
            Self::Llvm => "LLVM's OpenMP runtime",
            Self::Intel => "Intel's OpenMP runtime",
        })
    }
}

/// Returns the path of the libomp.so that belongs to clang.
fn llvm_library() -> Option<PathBuf> {
    let output = Command::new("clang").arg("-print-resource-dir").output().ok()?;
    let resources = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // <prefix>/lib/clang/<version>
    resources.ancestors().nth(2)?.join("libomp.so").canonicalize().ok()
}

/// Compiles `source`, with the ending of the language, into `executable`.
pub(crate) fn compile_openmp(
    language: Language,
    runtime: OpenMpRuntime,
    mpi: Option<Mpi>,
    source: &Path,
    executable: &Path,
) {
    let source = source.with_extension(language.extension());
    match language {
        Language::Fortran => compile_fortran(runtime, mpi, &source, executable),
        Language::C | Language::Cxx => {
            let (wrapper, alone, flags) = match language {
                Language::Cxx => ("mpicxx", ["g++", "clang++"], CXX_FLAGS),
                _ => ("mpicc", ["gcc", "clang"], C_FLAGS),
            };
            let compiler = alone[usize::from(runtime != OpenMpRuntime::Gomp)];
            let mut command = compiler_command(mpi, wrapper, compiler);
            command.args(flags).args(WARNINGS);
            command.arg(match runtime {
                OpenMpRuntime::Intel => "-fopenmp=libiomp5",
                _ => "-fopenmp",
            });
            command.arg(source).args(runtime.link_arguments());
            compile(command, executable);
        }
    }
}

/// Compiles and links in two steps, since gfortran's own option for OpenMP would link libgomp.
fn compile_fortran(runtime: OpenMpRuntime, mpi: Option<Mpi>, source: &Path, executable: &Path) {
    let object = executable.with_extension("o");
    let folder = executable.parent().expect("subjects lie in a folder");
    let mut command = compiler_command(mpi, "mpifort", "gfortran");
    command.args(FORTRAN_FLAGS).args(["-Wall", "-Werror", "-fopenmp", "-c", "-J"]).arg(folder);
    if mpi.is_some() {
        command.arg("-DSUBJECT_USE_MPI");
    }
    command.arg(source);
    compile(command, &object);
    let mut command = compiler_command(mpi, "mpifort", "gfortran");
    command.arg(&object).args(runtime.link_arguments()).arg(match runtime {
        OpenMpRuntime::Gomp => "-lgomp",
        OpenMpRuntime::Llvm => "-lomp",
        OpenMpRuntime::Intel => "-liomp5",
    });
    compile(command, executable);
    // The object has served; a failure to remove it leaves a file in the folder of build products.
    let _ = std::fs::remove_file(object);
}

/// Returns the MPI's compiler command, set to call `compiler`, or that compiler itself.
fn compiler_command(mpi: Option<Mpi>, wrapper: &str, compiler: &str) -> Command {
    let Some(mpi) = mpi else {
        let mut command = Command::new(compiler);
        if wrapper != "mpifort" {
            command.arg("-DSUBJECT_NO_MPI");
        }
        return command;
    };
    let mut command = Command::new(mpi.compiler(wrapper));
    match wrapper {
        "mpicc" => command.env("OMPI_CC", compiler).env("MPICH_CC", compiler),
        "mpicxx" => command.env("OMPI_CXX", compiler).env("MPICH_CXX", compiler),
        _ => &mut command,
    };
    command
}

/// Sets the number of threads of a job's teams. Threads that wait leave their core at once, so that
/// more threads than cores work undisturbed by sleeping.
#[must_use]
pub fn team(job: Job, threads: u32) -> Job {
    job.variable("OMP_NUM_THREADS", threads.to_string()).variable("OMP_WAIT_POLICY", "passive")
}
