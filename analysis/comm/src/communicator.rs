//! Exchange of values between processes: point-to-point messages of bytes, and reduction, broadcast
//! and gathering by binary trees on top of them (PPoPP20, 3.1).
//!
//! Implementations are the job's own MPI ([`Communicator`] over its PMPI), the `mpi` crate for the
//! stand-alone digest, and threads in one process ([`crate::thread_ranks`]).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a message, in bytes: well below the 2 GiB limit of MPI's int counts.
const CHUNK_BYTES: usize = 1 << 29;

/// A set of processes that exchange messages. Messages between two processes arrive in the order
/// in which they were sent; sending may block until the receiver takes the message.
pub trait Communicator {
    /// Returns the number of this process, from 0 to `size` - 1.
    fn rank(&self) -> u32;
    /// Returns the number of processes.
    fn size(&self) -> u32;
    /// Sends a message of less than 1 GiB.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), CommunicatorError>;
    /// Waits for the next message from a process and returns it.
    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError>;
}

/// An error of exchanging values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommunicatorError {
    /// The transport failed.
    #[error("the exchange with process {peer} failed: {reason}")]
    Transport {
        /// The process at the other end.
        peer: u32,
        /// The transport's message.
        reason: String,
    },
    /// A value cannot be encoded.
    #[error("a result could not be encoded: {0}")]
    Encode(String),
    /// Received bytes do not decode to a value of the expected type.
    #[error(
        "what process {peer} sent cannot be read ({reason}): use one version of the library on all \
         nodes"
    )]
    Decode {
        /// The sending process.
        peer: u32,
        /// The decoder's message.
        reason: String,
    },
    /// Another process failed; the exchange was completed without its values.
    #[error("another process failed: {0}")]
    Elsewhere(String),
}

/// Content of a message: a value, or the reason why there is none. A process that failed still
/// sends its messages, since others wait for them.
type Envelope<T> = Result<T, String>;

fn send_value<T: Serialize>(
    comm: &dyn Communicator,
    to: u32,
    value: &Envelope<T>,
) -> Result<(), CommunicatorError> {
    send_in_chunks(comm, to, value, CHUNK_BYTES)
}

fn send_in_chunks<T: Serialize>(
    comm: &dyn Communicator,
    to: u32,
    value: &Envelope<T>,
    chunk_bytes: usize,
) -> Result<(), CommunicatorError> {
    let bytes = postcard::to_stdvec(value)
        .or_else(|error| postcard::to_stdvec(&Envelope::<()>::Err(error.to_string())))
        .map_err(|error| CommunicatorError::Encode(error.to_string()))?;
    comm.send(to, &(bytes.len() as u64).to_le_bytes())?;
    bytes.chunks(chunk_bytes).try_for_each(|chunk| comm.send(to, chunk))
}

fn receive_value<T: DeserializeOwned>(
    comm: &dyn Communicator,
    from: u32,
) -> Result<Envelope<T>, CommunicatorError> {
    let decode = |reason: String| CommunicatorError::Decode { peer: from, reason };
    let length = comm.receive(from)?;
    let length = <[u8; 8]>::try_from(&length[..])
        .map_err(|_| decode(format!("a length of {} bytes", length.len())))?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|e| decode(e.to_string()))?;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let chunk = comm.receive(from)?;
        if chunk.is_empty() {
            return Err(decode("an empty part".to_owned()));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(match postcard::from_bytes(&bytes) {
        Ok(envelope) => envelope,
        Err(error) => Err(decode(error.to_string()).to_string()),
    })
}

/// Combines the values of all processes by a binary tree. Returns the result on process 0, `None`
/// elsewhere. `combine` must be associative and commutative. Collective.
pub fn reduce<T: Serialize + DeserializeOwned>(
    comm: &dyn Communicator,
    value: T,
    mut combine: impl FnMut(T, T) -> T,
) -> Result<Option<T>, CommunicatorError> {
    let (rank, size) = (u64::from(comm.rank()), u64::from(comm.size()));
    let mut envelope: Envelope<T> = Ok(value);
    let mut stride = 1;
    while stride < size {
        if rank & stride != 0 {
            send_value(comm, (rank - stride) as u32, &envelope)?;
            return Ok(None);
        }
        if rank + stride < size {
            let theirs = receive_value(comm, (rank + stride) as u32)?;
            envelope = match (envelope, theirs) {
                (Ok(ours), Ok(theirs)) => Ok(combine(ours, theirs)),
                (Err(reason), _) | (_, Err(reason)) => Err(reason),
            };
        }
        stride *= 2;
    }
    envelope.map(Some).map_err(CommunicatorError::Elsewhere)
}

/// Sends process 0's value to all processes and returns it there. The argument is ignored on other
/// processes. If process 0 has an error instead, all processes return it. Collective.
pub fn broadcast<T: Serialize + DeserializeOwned>(
    comm: &dyn Communicator,
    value: Result<Option<T>, CommunicatorError>,
) -> Result<T, CommunicatorError> {
    let (rank, size) = (u64::from(comm.rank()), u64::from(comm.size()));
    let lowest_bit = if rank == 0 { size.next_power_of_two() } else { rank & rank.wrapping_neg() };
    let envelope: Envelope<T> = if rank == 0 {
        match value {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err("process 0 has no value to hand out".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    } else {
        receive_value(comm, (rank - lowest_bit) as u32)?
    };
    let mut stride = lowest_bit / 2;
    while stride > 0 {
        if rank + stride < size {
            send_value(comm, (rank + stride) as u32, &envelope)?;
        }
        stride /= 2;
    }
    envelope.map_err(CommunicatorError::Elsewhere)
}

/// Gathers the values of all processes on process 0, in the order of ranks; `None` elsewhere.
/// Collective.
pub fn gather<T: Serialize + DeserializeOwned>(
    comm: &dyn Communicator,
    value: T,
) -> Result<Option<Vec<T>>, CommunicatorError> {
    let gathered = reduce(comm, vec![(comm.rank(), value)], |mut ours, theirs| {
        ours.extend(theirs);
        ours
    })?;
    Ok(gathered.map(|mut values| {
        values.sort_by_key(|(rank, _)| *rank);
        values.into_iter().map(|(_, value)| value).collect()
    }))
}

/// The communicator of a single process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Communicator for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn send(&self, to: u32, _: &[u8]) -> Result<(), CommunicatorError> {
        let reason = "this process is the only one".to_owned();
        Err(CommunicatorError::Transport { peer: to, reason })
    }

    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError> {
        let reason = "this process is the only one".to_owned();
        Err(CommunicatorError::Transport { peer: from, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_ranks::run;

    #[test]
    fn every_process_counts_once() {
        for size in [1, 2, 3, 5, 8, 13] {
            let results = run(size, |comm| {
                let sum = reduce(comm, u64::from(comm.rank()) + 1, |a, b| a + b).unwrap();
                let all = gather(comm, format!("process {}", comm.rank())).unwrap();
                let received = broadcast(comm, Ok((comm.rank() == 0).then_some(size * 7))).unwrap();
                (sum, all, received)
            });
            let names = (0..size).map(|rank| format!("process {rank}")).collect();
            let sum = u64::from(size) * (u64::from(size) + 1) / 2;
            assert_eq!(results[0], (Some(sum), Some(names), size * 7));
            assert!(results[1..].iter().all(|result| *result == (None, None, size * 7)));
        }
    }

    #[test]
    fn a_long_value_travels_in_parts() {
        let value: Vec<u64> = (0..1000).map(|i| i * i).collect();
        let results = run(2, |comm| {
            if comm.rank() == 1 {
                send_in_chunks(comm, 0, &Ok(&value), 7).unwrap();
                return None;
            }
            Some(receive_value::<Vec<u64>>(comm, 1).unwrap().unwrap())
        });
        assert_eq!(results[0].as_ref(), Some(&value));
    }

    #[test]
    fn an_undecodable_value_fails_the_reduction_without_a_hang() {
        let results = run(4, |comm| {
            let reduced = if comm.rank() == 3 {
                comm.send(2, &1u64.to_le_bytes()).and_then(|()| comm.send(2, &[9])).map(|()| None)
            } else {
                reduce(comm, 1u64, |a, b| a + b)
            };
            broadcast(comm, reduced)
        });
        for result in results {
            assert!(matches!(result, Err(CommunicatorError::Elsewhere(_))), "{result:?}");
        }
    }
}
