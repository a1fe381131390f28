//! System interfaces for code that runs inside the application's process.
//!
//! Each module wraps one kind of resource: [`syscalls`] and [`posix_clocks`] make system calls,
//! [`own`] and [`descriptors`] hold file descriptors, [`own_files`] opens and creates files,
//! [`mapping`] maps memory, [`lock`] and [`fork_lock`] exclude other threads, [`process_stat`]
//! reads the state of a process, [`quietly`](quiet::quietly) blocks the signals that a write may
//! raise, [`float_environment`] keeps computations apart from the program's traps and flags, and
//! [`memory_kind`] attributes the library's heap to its parts.
//!
//! # Design constraints
//! - Pending signals and the application's descriptors are the same after each call as before: the
//!   callers run between two instructions of the application. So is errno, except after a failure
//!   in [`mapping`] and where the standard library opens, reads or writes files: callers in the
//!   application's threads restore it by [`keep_errno`](syscalls::keep_errno).
//! - Mappings and descriptors are made by raw system calls: communication libraries replace the C
//!   library's functions (UCX patches mmap), and some are observed by Plimsoll itself.
//! - Nothing here knows what is measured: no module depends on another crate of the project.

pub mod descriptors;
pub mod float_environment;
pub mod fork_lock;
pub mod lock;
pub mod mapping;
pub mod memory_kind;
pub mod own;
pub mod own_files;
pub mod path_lookup;
pub mod posix_clocks;
pub mod process_stat;
pub mod quiet;
pub mod syscalls;
pub mod vdso;
