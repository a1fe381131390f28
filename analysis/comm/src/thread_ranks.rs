//! A [`Communicator`] of threads in one process: reduction without MPI, for digests and tests.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::communicator::{Communicator, CommunicatorError};

/// One thread's ends of the channels to all threads.
pub struct ThreadCommunicator {
    rank: u32,
    to: Vec<Sender<Vec<u8>>>,
    // A receiver is not Sync, and a communicator is used through a shared reference.
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
}

impl ThreadCommunicator {
    /// Makes the communicators of `size` threads, in the order of their ranks.
    pub fn world(size: u32) -> Vec<Self> {
        let mut world: Vec<Self> =
            (0..size).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..world.len() {
            for to in 0..world.len() {
                let (sender, receiver) = channel();
                world[from].to.push(sender);
                world[to].from.push(Mutex::new(receiver));
            }
        }
        world
    }

    fn gone(peer: u32) -> CommunicatorError {
        CommunicatorError::Transport { peer, reason: "its thread has ended".to_owned() }
    }
}

impl Communicator for ThreadCommunicator {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.to.len() as u32
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), CommunicatorError> {
        let sender = self.to.get(to as usize).ok_or_else(|| Self::gone(to))?;
        sender.send(bytes.to_vec()).map_err(|_| Self::gone(to))
    }

    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError> {
        let receiver = self.from.get(from as usize).ok_or_else(|| Self::gone(from))?;
        let receiver = receiver.lock().map_err(|_| Self::gone(from))?;
        receiver.recv().map_err(|_| Self::gone(from))
    }
}

/// Runs `body` on `size` threads, each with its communicator. Returns the results in the order of
/// ranks. A panic in a thread is passed on.
pub fn run<T: Send>(size: u32, body: impl Fn(&dyn Communicator) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let threads: Vec<_> = ThreadCommunicator::world(size)
            .into_iter()
            .map(|comm| scope.spawn(move || body(&comm)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
