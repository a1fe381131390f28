//! The only part that knows MPI: the job's MPI library, found at run time, and the calls of it.

mod communicator;
mod decision;
mod handles;
pub mod joint;
pub mod launch;
mod library;
mod linked;
pub mod node;
mod objects;
pub mod presence;
pub mod roll_call;
mod sessions;
mod socket_owner;
#[cfg(feature = "mpi")]
pub mod stand_alone;

pub use communicator::{MpiCommunicator, MpiError};
pub use handles::{HandleFacts, Named, RequestList};
pub use library::{Abi, Handle, Library, LibraryError};
pub use linked::is_linked_in;
pub use objects::Definitions;
