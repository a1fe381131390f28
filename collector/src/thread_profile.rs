//! Threads of a process other than the communicating one, aggregated (ESPT15, 4): part of
//! [`crate::profile::ProcessProfile`].
//!
//! The communicating thread is the paper's initial thread. Its values are those of the phases, so
//! they are in no location.

use serde::{Deserialize, Serialize};

use crate::profile::{NodeId, NodeValue, TimeSeries};

/// Way in which the threads of a process are aggregated (ESPT15, 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// All threads are one sum.
    Sum,
    /// The sum, with minimum, maximum, number and sum of squares over threads.
    Set,
    /// The slowest and the fastest thread, and the sum of the rest.
    #[default]
    Key,
    /// One sum for each set of visited call paths.
    Calltree,
    /// Each thread by itself.
    All,
}

/// Threads that a [`ThreadLocation`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocationKind {
    /// The thread with the most work.
    Slowest,
    /// The thread with the least work.
    Fastest,
    /// One thread, if each is kept by itself.
    Thread,
    /// Threads that visited the same call paths.
    Class,
    /// All remaining threads.
    Rest,
}

/// Values of one thread, or the sum over some threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocation {
    /// Threads that the location holds.
    pub kind: LocationKind,
    /// Lowest number of the threads, in the order in which the process's threads were first seen;
    /// `None` if unknown.
    pub number: Option<u32>,
    /// Number of threads.
    pub threads: u64,
    /// Time outside of the code of thread runtimes and of wrapped calls except those that sleep, in
    /// nanoseconds: the time in work regions, by which the slowest and the fastest thread are
    /// chosen.
    pub work_ns: u64,
    /// Exclusive values, by node id, each once.
    pub values: Vec<(NodeId, NodeValue)>,
    /// Time of a single thread in equal bins from the begin of the run on, at most 48; bins outside
    /// of its life are empty. Without bins for several threads, and for a thread that was not among
    /// the first 64 of its process.
    #[serde(default)]
    pub times: TimeSeries,
}

/// Statistics of one context over all threads of a process, the communicating thread included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatistics {
    /// Number of threads with time, calls or samples in the context.
    pub threads: u64,
    /// Minimum of each value over these threads. Over all threads it is 0 if some are not counted
    /// in `threads`.
    pub minimum: NodeValue,
    /// Maximum of each value.
    pub maximum: NodeValue,
    /// Sum of the values.
    pub sum: NodeValue,
    /// Sum of the squares of the exclusive wall times, in square nanoseconds.
    pub squares_ns2: u128,
}

impl ThreadStatistics {
    /// Adds the values of one thread.
    pub fn add(&mut self, value: &NodeValue) {
        self.minimum = match self.threads {
            0 => *value,
            _ => by_element(&self.minimum, value, u64::min),
        };
        self.maximum = by_element(&self.maximum, value, u64::max);
        self.sum.add(value);
        self.threads += 1;
        self.squares_ns2 = self.squares_ns2.saturating_add(u128::from(value.exclusive_ns).pow(2));
    }
}

fn by_element(one: &NodeValue, other: &NodeValue, choose: fn(u64, u64) -> u64) -> NodeValue {
    NodeValue {
        exclusive_ns: choose(one.exclusive_ns, other.exclusive_ns),
        run_delay_ns: choose(one.run_delay_ns, other.run_delay_ns),
        calls: choose(one.calls, other.calls),
        bytes: choose(one.bytes, other.bytes),
        long_ns: choose(one.long_ns, other.long_ns),
        samples: choose(one.samples, other.samples),
        poll_gap_ns: choose(one.poll_gap_ns, other.poll_gap_ns),
    }
}

/// Threads that were created at one place with one start routine: the workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiblingThreads {
    /// Context of the outermost function of the program in these threads, below the call path that
    /// created the first of them. Code of the language may create the others on other paths.
    pub routine: NodeId,
    /// Number of threads, at least 1.
    pub threads: u64,
    /// Exclusive times of the thread with the most work, in nanoseconds, by node id, each once.
    pub slowest: Vec<(NodeId, u64)>,
    /// Exclusive times of all of them, in nanoseconds, by node id, each once.
    pub sum: Vec<(NodeId, u64)>,
}

/// The threads of a process, aggregated. Under [`Aggregation::Sum`] there are no locations: the sum
/// is [`crate::profile::ProcessProfile::other_threads`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadProfile {
    /// Way of aggregation.
    pub aggregation: Aggregation,
    /// Locations, in the order of [`LocationKind`] and then of their numbers. Together they hold
    /// all threads with values.
    pub locations: Vec<ThreadLocation>,
    /// Statistics over threads under [`Aggregation::Set`], by node id, each once.
    pub statistics: Vec<(NodeId, ThreadStatistics)>,
    /// Number of threads with values that are missing from `statistics`, because the process had
    /// too many.
    pub uncounted_threads: u64,
    /// Threads by their place of creation, at most 64 places: those with the most work of a thread,
    /// in this order. Empty under [`Aggregation::Sum`]. Missing are the workers of OpenMP, and
    /// threads with the start routine of threads that are merged because there are too many.
    #[serde(default)]
    pub siblings: Vec<SiblingThreads>,
}
