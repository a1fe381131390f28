//! What the process is and where it runs.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Path of the program.
pub fn executable() -> PathBuf {
    fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// Arguments of the program, without its name. From /proc: std's are not set for a library.
pub fn arguments() -> Vec<String> {
    let bytes = fs::read("/proc/self/cmdline").unwrap_or_default();
    let all = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    all.skip(1).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// Name of the node.
pub fn host() -> String {
    let mut name = [0 as libc::c_char; 256];
    // SAFETY: the buffer is one byte longer than said, so that it ends in a NUL.
    unsafe {
        libc::gethostname(name.as_mut_ptr(), name.len() - 1);
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    }
}

/// Kinds of file systems that a node has for itself (linux/magic.h): ext, XFS, Btrfs, F2FS, tmpfs,
/// ramfs, overlay, ZFS.
const LOCAL_FILE_SYSTEMS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x2fc1_2fc1,
];

/// Whether a directory is on a file system that a node has for itself, as far as one can tell.
pub fn is_local(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string; all-zero is a valid statfs, which the kernel fills in.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut system) == 0
            && LOCAL_FILE_SYSTEMS.contains(&(system.f_type as u32))
    }
}

/// Numbers of the cores on which this process may run.
pub fn cores() -> Vec<u32> {
    // SAFETY: all-zero is an empty set; the kernel fills it in.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as u32).filter(|core| libc::CPU_ISSET(*core as usize, &set)).collect()
    }
}

/// What tells the clock of this process from those of other machines and of other containers: the
/// kernel's start, and the namespace that may shift CLOCK_MONOTONIC. Empty where that cannot be read.
pub fn clock() -> String {
    let Ok(boot) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
        return String::new();
    };
    // Kernels before 5.6 have no such namespaces.
    let space = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{}{}", boot.trim_end(), space.display())
}

/// Whether the parent process carries the library too: then this process inherited it.
pub fn parent_carries_library() -> bool {
    // SAFETY: no preconditions.
    let parent = unsafe { libc::getppid() };
    fs::read_to_string(format!("/proc/{parent}/maps"))
        .is_ok_and(|maps| maps.contains("/libplimsoll.so"))
}

/// Programs that start others and are not what the user wants to know about.
const LAUNCHERS: [&str; 28] = [
    "mpiexec",
    "mpirun",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.openmpi",
    "mpirun.openmpi",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "aprun",
    "jsrun",
    "flux",
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "orted",
    "prted",
    "slurmstepd",
    "ssh",
    "sh",
    "bash",
    "dash",
    "zsh",
    "env",
    "time",
    "timeout",
    "plimsoll",
];

/// Whether the program is a launcher or a shell.
pub fn is_launcher(program: &Path) -> bool {
    program.file_name().is_some_and(|name| LAUNCHERS.iter().any(|launcher| name == *launcher))
}
