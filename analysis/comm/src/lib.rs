//! Exchange of values between the processes of a job.
//!
//! A [`communicator::Communicator`] sends and receives bytes; broadcast, reduction and gathering
//! stand on top of it. [`mpi::MpiCommunicator`] is the job's own MPI, found at run time;
//! [`thread_ranks::run`] makes ranks of threads.
//!
//! # Design constraints
//!
//! - No MPI is linked: one build serves every MPI, so each function is looked up when it is needed.
//! - Nothing is sent before every rank is known to carry the library ([`mpi::presence`],
//!   [`mpi::rendezvous`]): a collective that one rank does not enter hangs the job.
//! - Every rank of a collective step learns of a failure in another one: no rank waits for a
//!   message that never comes.

pub mod communicator;
pub mod fingerprint;
pub mod mpi;
pub mod thread_ranks;
