//! The measuring side: code that runs in the threads of the observed process.
//!
//! [`observed_process::start`] begins to observe the process. A timer of each thread then raises a
//! signal, [`sampler`] unwinds the interrupted stack in the handler, and [`regions`] counts and
//! times wrapped calls. Both write records into the ring of the thread ([`plimsoll_wire`]), which
//! the collector reads. [`thread_state::State`] is all that is known of a thread; [`marks`]
//! shortens unwinding by marking return addresses.
//!
//! # Design constraints
//! - The handler allocates nothing, takes no lock and reads no lazily allocated thread-local
//!   storage: it may interrupt malloc, the loader or the holder of any lock.
//! - errno and all registers are the same after a sample or a wrapper as before: the interrupted
//!   code of the application continues with them.
//! - The crate knows neither MPI nor trees nor files: stacks go in, records come out. What is slow
//!   or may fail is the collector's work, outside the application's threads.
//! - Every failure is counted in the header of the thread (truncated, lost): reports state what is
//!   missing.

mod addresses;
mod cfi;
pub mod channels;
mod code_rules;
pub mod counters;
pub mod loader;
pub mod marks;
mod modules;
pub mod observed_process;
mod offcpu;
pub mod partner_table;
mod plausible;
pub mod regions;
mod room;
pub mod sampler;
mod scripts;
mod stack_memory;
pub mod started_requests;
mod stream;
mod thread_blocks;
pub mod thread_state;
pub mod timer;
pub mod tls;
mod tracer;
mod unwind;
