//! Calls of point-to-point communication: where the ranks, requests and statuses stand among their
//! arguments (MPI-4.1, chapters 3 and 4).

use super::{CALLS, CallId, ON_RESOURCE};

/// Relation of a call to messages between two ranks. Numbers are indices of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are indices, named after their arguments")]
pub enum Messages {
    /// Sends a message before it returns.
    Sends { to: u8 },
    /// Receives a message before it returns.
    Receives { from: u8, status: u8 },
    /// Sends one message and receives another.
    Exchanges { to: u8, from: u8, status: u8 },
    /// Waits for a message and leaves it there.
    Probes { from: u8, status: u8 },
    /// Waits for a message, and names it with a handle.
    Matches { from: u8, message: u8, status: u8 },
    /// Looks for a message, and names it with a handle where `flag` is set.
    MayMatch { from: u8, flag: u8, message: u8, status: u8 },
    /// Receives the message of a handle.
    Takes { message: u8, status: u8 },
    /// Starts to receive the message of a handle.
    StartsToTake { message: u8, request: u8 },
    /// Starts to send.
    StartsToSend { to: u8, request: u8 },
    /// Starts to receive.
    StartsToReceive { from: u8, request: u8 },
    /// Starts to send one message and to receive another.
    StartsToExchange { to: u8, from: u8, request: u8 },
    /// Makes a persistent request that sends. `partitions`: their number, of a partitioned one.
    PreparesToSend { to: u8, request: u8, partitions: Option<u8> },
    /// Makes a persistent request that receives; `partitions` as for sends.
    PreparesToReceive { from: u8, request: u8, partitions: Option<u8> },
    /// Starts persistent requests: one, or `count` of them.
    Starts { count: Option<u8>, requests: u8 },
    /// May complete one request. `flag`: whether it has; without one, it has.
    CompletesOne { request: u8, flag: Option<u8>, status: u8 },
    /// May complete all requests of a list.
    CompletesAll { flag: Option<u8>, statuses: u8 },
    /// May complete one request of a list; an argument receives its index.
    CompletesAny { index: u8, flag: Option<u8>, status: u8 },
    /// Completes some requests of a list; arguments receive their number and indices.
    CompletesSome { number: u8, indices: u8, statuses: u8 },
    /// Frees a request.
    Frees { request: u8 },
    /// Cancels what a request has started.
    Cancels { request: u8 },
    /// Starts something else, with a request as its last argument.
    StartsOther,
}

/// Index of the number of requests and of the list, in calls that complete some of a list.
pub const LIST_COUNT: u8 = 0;
/// Index of that list.
pub const LIST: u8 = 1;

const ROLES: [(&str, Messages); 42] = {
    use Messages::*;
    const fn sends(to: u8) -> Messages {
        Sends { to }
    }
    const fn starts_to_send(to: u8) -> Messages {
        StartsToSend { to, request: 6 }
    }
    const fn prepares_to_send(to: u8) -> Messages {
        PreparesToSend { to, request: 6, partitions: None }
    }
    [
        ("MPI_Send", sends(3)),
        ("MPI_Bsend", sends(3)),
        ("MPI_Ssend", sends(3)),
        ("MPI_Rsend", sends(3)),
        ("MPI_Recv", Receives { from: 3, status: 6 }),
        ("MPI_Sendrecv", Exchanges { to: 3, from: 8, status: 11 }),
        ("MPI_Sendrecv_replace", Exchanges { to: 3, from: 5, status: 8 }),
        ("MPI_Probe", Probes { from: 0, status: 3 }),
        ("MPI_Mprobe", Matches { from: 0, message: 3, status: 4 }),
        ("MPI_Improbe", MayMatch { from: 0, flag: 3, message: 4, status: 5 }),
        ("MPI_Mrecv", Takes { message: 3, status: 4 }),
        ("MPI_Imrecv", StartsToTake { message: 3, request: 4 }),
        ("MPI_Isend", starts_to_send(3)),
        ("MPI_Ibsend", starts_to_send(3)),
        ("MPI_Issend", starts_to_send(3)),
        ("MPI_Irsend", starts_to_send(3)),
        ("MPI_Irecv", StartsToReceive { from: 3, request: 6 }),
        ("MPI_Isendrecv", StartsToExchange { to: 3, from: 8, request: 11 }),
        ("MPI_Isendrecv_replace", StartsToExchange { to: 3, from: 5, request: 8 }),
        ("MPI_Send_init", prepares_to_send(3)),
        ("MPI_Bsend_init", prepares_to_send(3)),
        ("MPI_Ssend_init", prepares_to_send(3)),
        ("MPI_Rsend_init", prepares_to_send(3)),
        ("MPI_Recv_init", PreparesToReceive { from: 3, request: 6, partitions: None }),
        ("MPI_Psend_init", PreparesToSend { to: 4, request: 8, partitions: Some(1) }),
        ("MPI_Precv_init", PreparesToReceive { from: 4, request: 8, partitions: Some(1) }),
        ("MPI_Start", Starts { count: None, requests: 0 }),
        ("MPI_Startall", Starts { count: Some(LIST_COUNT), requests: LIST }),
        ("MPI_Wait", CompletesOne { request: 0, flag: None, status: 1 }),
        ("MPI_Test", CompletesOne { request: 0, flag: Some(1), status: 2 }),
        ("MPI_Waitall", CompletesAll { flag: None, statuses: 2 }),
        ("MPI_Testall", CompletesAll { flag: Some(2), statuses: 3 }),
        ("MPI_Waitany", CompletesAny { index: 2, flag: None, status: 3 }),
        ("MPI_Testany", CompletesAny { index: 2, flag: Some(3), status: 4 }),
        ("MPI_Waitsome", CompletesSome { number: 2, indices: 3, statuses: 4 }),
        ("MPI_Testsome", CompletesSome { number: 2, indices: 3, statuses: 4 }),
        ("MPI_Request_free", Frees { request: 0 }),
        ("MPI_Cancel", Cancels { request: 0 }),
        ("MPI_Rput", StartsOther),
        ("MPI_Rget", StartsOther),
        ("MPI_Raccumulate", StartsOther),
        ("MPI_Rget_accumulate", StartsOther),
    ]
};

/// Returns whether `name` is that of a nonblocking collective or file operation.
const fn starts_other(name: &str) -> bool {
    (begins(name, "MPI_I") && !begins(name, "MPI_Int") && !begins(name, "MPI_Ip"))
        || begins(name, "MPI_File_i")
        || begins(name, "MPI_Comm_i")
}

const fn begins(name: &str, with: &str) -> bool {
    let (name, with) = (name.as_bytes(), with.as_bytes());
    if name.len() < with.len() {
        return false;
    }
    let mut at = 0;
    while at < with.len() {
        if name[at] != with[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns whether `name` is `base`, or `base` with large counts.
const fn is_of(name: &str, base: &str) -> bool {
    begins(name, base)
        && (name.len() == base.len()
            || name.len() == base.len() + 2
                && name.as_bytes()[base.len()] == b'_'
                && name.as_bytes()[base.len() + 1] == b'c')
}

static BY_CALL: [Option<Messages>; CALLS.len() + 1] = {
    let mut by_call = [None; CALLS.len() + 1];
    let mut at = 0;
    while at < CALLS.len() {
        let name = CALLS[at].name;
        if starts_other(name) {
            by_call[at + 1] = Some(Messages::StartsOther);
        }
        let mut role = 0;
        while role < ROLES.len() {
            if is_of(name, ROLES[role].0) {
                by_call[at + 1] = Some(ROLES[role].1);
            }
            role += 1;
        }
        at += 1;
    }
    by_call
};

/// Returns the relation of a recorded call to messages between two ranks; `None` without one, and
/// for an id that is not in the table.
#[inline]
pub const fn messages(call: CallId) -> Option<Messages> {
    let at = (call & !ON_RESOURCE) as usize;
    if at < BY_CALL.len() { BY_CALL[at] } else { None }
}

/// Returns the index of a message's tag, given the index of its rank: all calls have the tag next.
#[inline]
pub const fn tag_after(rank: u8) -> u8 {
    rank + 1
}

impl Messages {
    /// Returns the arguments with the requests that the call may complete: index of their number,
    /// if that is an argument, and index of the first request.
    #[inline]
    pub const fn completes(self) -> Option<(Option<u8>, u8)> {
        match self {
            Self::CompletesOne { request, .. } => Some((None, request)),
            Self::CompletesAll { .. } | Self::CompletesAny { .. } | Self::CompletesSome { .. } => {
                Some((Some(LIST_COUNT), LIST))
            }
            // They may be null when the call returns.
            Self::Frees { request } | Self::Cancels { request } => Some((None, request)),
            Self::Takes { message, .. } | Self::StartsToTake { message, .. } => {
                Some((None, message))
            }
            _ => None,
        }
    }

    /// Returns whether the call makes a request and starts nothing.
    #[inline]
    pub const fn only_prepares(self) -> bool {
        matches!(self, Self::PreparesToSend { .. } | Self::PreparesToReceive { .. })
    }

    /// Returns whether the call has an argument with a rank.
    #[inline]
    pub const fn has_ranks(self) -> bool {
        matches!(self.ranks(), [Some(_), _] | [_, Some(_)])
    }

    /// Returns the arguments with the ranks that the call sends to and receives from.
    #[inline]
    pub const fn ranks(self) -> [Option<u8>; 2] {
        match self {
            Self::Sends { to }
            | Self::StartsToSend { to, .. }
            | Self::PreparesToSend { to, .. } => [Some(to), None],
            Self::Receives { from, .. }
            | Self::Probes { from, .. }
            | Self::Matches { from, .. }
            | Self::MayMatch { from, .. }
            | Self::StartsToReceive { from, .. }
            | Self::PreparesToReceive { from, .. } => [None, Some(from)],
            Self::Exchanges { to, from, .. } | Self::StartsToExchange { to, from, .. } => {
                [Some(to), Some(from)]
            }
            _ => [None; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CALLS, call, id_of};
    use super::*;

    #[test]
    fn every_argument_exists() {
        for (name, role) in ROLES {
            let call = CALLS.iter().find(|call| call.name == name).expect(name);
            let listed = role.completes();
            let words = role.ranks().into_iter().flatten();
            let words =
                words.chain(listed.and_then(|(count, _)| count)).chain(listed.map(|it| it.1));
            assert!(words.into_iter().all(|word| word < call.arity), "{name}");
            if role.ranks().iter().any(Option::is_some) {
                assert!(call.communicator.is_some(), "{name}: ranks are those of a communicator");
            }
        }
    }

    #[test]
    fn every_recorded_id_can_be_asked_for() {
        for id in 0..=CallId::MAX {
            let expected = call(id).and_then(|call| messages(id_of(call.name)));
            assert_eq!(messages(id), expected, "{id}");
        }
    }

    #[test]
    fn large_counts_and_other_requests_are_told_apart_from_probes() {
        assert_eq!(messages(id_of("MPI_Isend_c")), messages(id_of("MPI_Isend")));
        assert_eq!(messages(id_of("MPI_Ibcast")), Some(Messages::StartsOther));
        assert_eq!(messages(id_of("MPI_Comm_idup")), Some(Messages::StartsOther));
        for name in ["MPI_Iprobe", "MPI_Intercomm_create", "MPI_Barrier", "read"] {
            assert_eq!(messages(id_of(name)), None, "{name}");
        }
    }
}
