//! The MPI of a `plimsoll digest` that runs as an MPI program itself.

use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination, Source};

use crate::communicator::{Communicator, CommunicatorError};

/// All processes that the launcher has started.
pub struct World {
    world: SimpleCommunicator,
    /// Ends MPI when it is dropped, so it comes last.
    _universe: Universe,
}

impl World {
    /// Initialises MPI. Returns an error, as a sentence, if MPI is already initialised.
    pub fn begin() -> Result<Self, String> {
        let universe = mpi::initialize().ok_or("MPI could not be initialised.")?;
        Ok(Self { world: universe.world(), _universe: universe })
    }
}

impl Communicator for World {
    fn rank(&self) -> u32 {
        self.world.rank().cast_unsigned()
    }

    fn size(&self) -> u32 {
        self.world.size().cast_unsigned()
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), CommunicatorError> {
        self.world.process_at_rank(to.cast_signed()).send(bytes);
        Ok(())
    }

    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError> {
        let (bytes, _) = self.world.process_at_rank(from.cast_signed()).receive_vec::<u8>();
        Ok(bytes)
    }
}
