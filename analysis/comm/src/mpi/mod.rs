//! The only part that knows MPI: the job's MPI library, found at run time, and the calls of it.

mod decision;
mod handles;
pub mod joint;
pub mod launcher;
mod linked;
mod mpi_communicator;
mod mpi_library;
pub mod node;
mod objects;
pub mod presence;
pub mod rendezvous;
mod sessions;
mod socket_owner;
#[cfg(feature = "mpi")]
pub mod stand_alone;

pub use handles::{HandleFacts, Members, Named, ObjectKind, RequestList};
pub use linked::is_linked_in;
pub use mpi_communicator::{MpiCommunicator, MpiError};
pub use mpi_library::{Abi, Handle, Library, LibraryError};
pub use objects::Definitions;
