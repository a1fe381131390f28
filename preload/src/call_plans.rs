//! Plans of wrapped calls: what a wrapper does for a call, and the indexes of the arguments that it
//! reads, in one line of memory for each call.

use plimsoll_calls::messages::{Messages, messages};
use plimsoll_calls::requests::{Role, role};
use plimsoll_calls::{CALLS, CallClass, CallId, Extent, ON_STREAMS, Provider, id_of};

use crate::synchronisations::MAY_SYNCHRONISE;

/// Plan of a call.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct CallPlan {
    steps: Steps,
    /// Index of the communicator; of no meaning without [`Steps::HAS_RANKS`].
    pub communicator: u8,
    /// Indexes of count and datatype; of no meaning without [`Steps::WHOLE_MESSAGE`].
    pub message: (u8, u8),
    /// Relation to messages between two ranks; of no meaning without [`Steps::HAS_PARTNERS`].
    pub messages: Messages,
}

impl CallPlan {
    /// Returns the plan of a call of [`CALLS`].
    #[inline(always)]
    pub fn of(call: CallId) -> &'static Self {
        &PLANS[usize::from(call) % PLANS.len()]
    }

    /// Returns whether some of these steps are taken.
    #[inline(always)]
    pub const fn has(&self, steps: Steps) -> bool {
        self.steps.0 & steps.0 != 0
    }
}

/// Steps that only some calls need, a bit each, so that a wrapper skips several with one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u16);

impl Steps {
    /// The call belongs to MPI.
    pub const MPI: Self = Self(1);
    /// The call frees a communicator, window, file, datatype or request.
    pub const FREES: Self = Self(1 << 1);
    /// The call may complete nonblocking collectives.
    pub const COMPLETES: Self = Self(1 << 2);
    /// The call may synchronise ranks, or starts persistent requests that may.
    pub const SYNCHRONISES: Self = Self(1 << 3);
    /// The call's label depends on the kind of file behind its descriptor.
    pub const READS_DESCRIPTOR: Self = Self(1 << 4);
    /// One count and one datatype describe the call's message.
    pub const WHOLE_MESSAGE: Self = Self(1 << 5);
    /// Several counts or datatypes describe the call's messages.
    pub const OTHER_MESSAGES: Self = Self(1 << 6);
    /// The call's result is a number of bytes.
    pub const RETURNS_BYTES: Self = Self(1 << 7);
    /// The call is related to messages between two ranks.
    pub const HAS_PARTNERS: Self = Self(1 << 8);
    /// The call has an argument with the rank of a partner.
    pub const HAS_RANKS: Self = Self(1 << 9);
    /// The call may complete, cancel or free requests of messages.
    pub const ENDS_REQUESTS: Self = Self(1 << 10);
    /// The call makes a persistent request and starts nothing.
    pub const ONLY_PREPARES: Self = Self(1 << 11);
    /// The call's last argument is a stream of the C library.
    pub const READS_STREAM: Self = Self(1 << 12);
    /// The call's result is a number of items; the argument before their number is their size.
    pub const RETURNS_ITEMS: Self = Self(1 << 13);

    const fn with(self, steps: Self, needed: bool) -> Self {
        if needed { Self(self.0 | steps.0) } else { self }
    }
}

/// Calls that free a handle.
const FREEING: [CallId; 6] = [
    id_of("MPI_Comm_free"),
    id_of("MPI_Comm_disconnect"),
    id_of("MPI_Win_free"),
    id_of("MPI_File_close"),
    id_of("MPI_Type_free"),
    id_of("MPI_Request_free"),
];

/// Calls on files that do not begin with the file's descriptor.
const ON_NO_DESCRIPTOR: [CallId; 16] = [
    id_of("msync"),
    id_of("sync"),
    id_of("open"),
    id_of("open64"),
    id_of("__open_2"),
    id_of("__open64_2"),
    id_of("openat"),
    id_of("openat64"),
    id_of("creat"),
    id_of("creat64"),
    id_of("fopen"),
    id_of("fopen64"),
    id_of("rename"),
    id_of("unlink"),
    id_of("remove"),
    id_of("mkdir"),
];

const fn contains(calls: &[CallId], call: CallId) -> bool {
    let mut at = 0;
    while at < calls.len() {
        if calls[at] == call {
            return true;
        }
        at += 1;
    }
    false
}

/// A power of two, so that no access needs a check.
const PLACES: usize = (CALLS.len() + 1).next_power_of_two();

static PLANS: [CallPlan; PLACES] = {
    let none = CallPlan {
        steps: Steps(0),
        communicator: 0,
        message: (0, 0),
        messages: Messages::StartsOther,
    };
    let mut plans = [none; PLACES];
    let mut at = 0;
    while at < CALLS.len() {
        let call = at as CallId + 1;
        let plan = &mut plans[at + 1];
        plan.steps = steps(call);
        if let Some(word) = CALLS[at].communicator {
            plan.communicator = word;
        }
        if let (Some(count), Some(datatype)) = (CALLS[at].count, CALLS[at].datatype) {
            plan.message = (count, datatype);
        }
        if let Some(messages) = messages(call) {
            plan.messages = messages;
        }
        at += 1;
    }
    plans
};

const fn steps(call: CallId) -> Steps {
    let entry = &CALLS[call as usize - 1];
    let frees = contains(&FREEING, call);
    let is_on_stream = contains(&ON_STREAMS, call);
    let is_mpi = matches!(entry.provider, Provider::Mpi);
    let is_io = matches!(entry.class, CallClass::Io) && matches!(entry.provider, Provider::Libc);
    let role = role(call);
    let synchronises =
        matches!(role, Some(Role::StartsPrepared(_))) || MAY_SYNCHRONISE[call as usize];
    let has_message = entry.count.is_some() && entry.datatype.is_some();
    let is_whole = matches!(entry.extent, Extent::Whole);
    let steps = Steps(0)
        .with(Steps::MPI, is_mpi)
        .with(Steps::FREES, frees)
        .with(Steps::COMPLETES, matches!(role, Some(Role::Completes(_))))
        .with(Steps::SYNCHRONISES, synchronises)
        .with(Steps::READS_DESCRIPTOR, is_io && !is_on_stream && !contains(&ON_NO_DESCRIPTOR, call))
        .with(Steps::READS_STREAM, is_on_stream)
        .with(Steps::RETURNS_ITEMS, is_on_stream && entry.count.is_some())
        .with(Steps::WHOLE_MESSAGE, is_mpi && has_message && is_whole)
        .with(Steps::OTHER_MESSAGES, is_mpi && has_message && !is_whole)
        .with(Steps::RETURNS_BYTES, !is_mpi && entry.count.is_some());
    match messages(call) {
        Some(messages) => steps
            .with(Steps::HAS_PARTNERS, true)
            .with(Steps::HAS_RANKS, messages.has_ranks() && entry.communicator.is_some())
            .with(Steps::ENDS_REQUESTS, messages.completes().is_some())
            .with(Steps::ONLY_PREPARES, messages.only_prepares()),
        None => steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_the_steps_that_it_needs() {
        let (message, partners) = (Steps::WHOLE_MESSAGE, Steps::HAS_PARTNERS);
        for (name, taken) in [
            ("MPI_Barrier", vec![Steps::MPI, Steps::SYNCHRONISES]),
            ("MPI_Send", vec![Steps::MPI, message, partners, Steps::HAS_RANKS]),
            (
                "MPI_Recv_init",
                vec![Steps::MPI, message, partners, Steps::HAS_RANKS, Steps::ONLY_PREPARES],
            ),
            ("MPI_Start", vec![Steps::MPI, Steps::SYNCHRONISES, partners]),
            ("MPI_Waitall", vec![Steps::MPI, Steps::COMPLETES, partners, Steps::ENDS_REQUESTS]),
            ("MPI_Request_free", vec![Steps::MPI, Steps::FREES, partners, Steps::ENDS_REQUESTS]),
            ("MPI_Alltoallw", vec![Steps::MPI, Steps::SYNCHRONISES, Steps::OTHER_MESSAGES]),
            ("MPI_Type_free", vec![Steps::MPI, Steps::FREES]),
            ("read", vec![Steps::READS_DESCRIPTOR, Steps::RETURNS_BYTES]),
            ("fflush", vec![Steps::READS_STREAM]),
            ("fwrite", vec![Steps::READS_STREAM, Steps::RETURNS_BYTES, Steps::RETURNS_ITEMS]),
            ("GOMP_barrier", vec![]),
        ] {
            let steps = taken.into_iter().fold(Steps(0), |all, step| all.with(step, true));
            assert_eq!(CallPlan::of(id_of(name)).steps, steps, "{name}");
        }
        assert!(!CallPlan::of(id_of("msync")).has(Steps::READS_DESCRIPTOR), "it takes an address");
        let send = CallPlan::of(id_of("MPI_Send"));
        assert_eq!((send.communicator, send.message), (5, (1, 2)));
    }
}
