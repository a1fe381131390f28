//! The program of this process, its node, cores and clock.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the path of the program; empty if unknown.
pub fn executable() -> PathBuf {
    fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// Returns the arguments of the program, without its name. Read from /proc, since std does not set
/// them for a library.
pub fn arguments() -> Vec<String> {
    let bytes = fs::read("/proc/self/cmdline").unwrap_or_default();
    let all = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    all.skip(1).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// Returns the name of the node.
pub fn host() -> String {
    let mut name = [0 as libc::c_char; 256];
    // SAFETY: the buffer is one byte longer than the length passed, so the name ends in a NUL.
    unsafe {
        libc::gethostname(name.as_mut_ptr(), name.len() - 1);
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    }
}

/// Types of node-local file systems (linux/magic.h): ext, XFS, Btrfs, F2FS, tmpfs, ramfs, overlay,
/// ZFS.
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

/// Returns whether a directory is on a node-local file system, judged by the type of the file
/// system.
pub fn is_local(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string; all-zero is a valid statfs, which the kernel fills in.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut system) == 0
            && LOCAL_FILE_SYSTEMS.contains(&(system.f_type as u32))
    }
}

/// Returns the numbers of the cores on which this process may run; empty if unknown.
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

/// Returns a text that identifies the clock of this process among those of other machines and
/// containers: the kernel's boot id, and the time namespace, which may shift CLOCK_MONOTONIC. Empty
/// if the boot id cannot be read.
pub fn clock() -> String {
    let Ok(boot) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
        return String::new();
    };
    // Kernels before 5.6 have no time namespaces.
    let space = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{}{}", boot.trim_end(), space.display())
}

/// Returns whether the parent process carries the library too, so that this process inherited it.
pub fn parent_carries_library() -> bool {
    // SAFETY: no preconditions.
    let parent = unsafe { libc::getppid() };
    fs::read_to_string(format!("/proc/{parent}/maps"))
        .is_ok_and(|maps| maps.contains("/libplimsoll.so"))
}

/// Names of programs that start other programs and are not measured themselves.
const LAUNCHERS: [&str; 33] = [
    "bwrap",
    "ch-run",
    "enroot",
    "nsenter",
    "unshare",
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

/// Returns whether the program is a launcher or a shell.
pub fn is_launcher(program: &Path) -> bool {
    program.file_name().is_some_and(|name| LAUNCHERS.iter().any(|launcher| name == *launcher))
}
