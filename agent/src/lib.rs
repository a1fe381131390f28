//! Plimsoll's measuring side: what runs in the application's threads.
//!
//! # Design constraints
//! - The sampling path allocates nothing, locks nothing and reads no lazily allocated
//!   thread-local storage; `errno` and every register survive it.
//! - Nothing here knows MPI, trees or files: stacks go in, records come out.
//! - What cannot be done is counted in the thread's header, never dropped silently.

mod addresses;
mod cfi;
pub mod clock;
pub mod doorbell;
pub mod loader;
pub mod marks;
mod memory;
mod modules;
mod offcpu;
pub mod partner_table;
mod plausible;
pub mod process;
pub mod record;
pub mod regions;
mod ring;
mod room;
pub mod sampler;
pub mod segment;
pub mod started_requests;
mod stream;
pub mod sync;
pub mod thread;
pub mod timer;
pub mod tls;
mod tracer;
mod unwind;
