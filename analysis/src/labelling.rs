//! What a calling context is for: its initial label, from the wrapped call or the function's name,
//! and the label that its time gives it (PPoPP20, 5.2, Table 1 and the derived labels).

use plimsoll_agent::calls::{self, CallClass, Provider};
use plimsoll_collector::profile::{ContextTree, Frame, FrameKind};

use crate::label::Label;

/// Share of a context's time that a label must hold to become its derived label.
const DERIVED_PERCENT: u64 = 70;

/// What a context is for, before any time is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Label of the time spent in the context itself.
    pub label: Label,
    /// It is a call of MPI or lies below one.
    pub in_mpi: bool,
    /// It is a call that looks for progress and returns at once, or lies below one.
    pub polling: bool,
}

impl Meaning {
    const OUTSIDE: Self = Self { label: Label::Computation, in_mpi: false, polling: false };

    /// Whether its time is the process's own, so that another process may have to wait for it:
    /// all but MPI and waiting for others. Locks, files, threads of the same process and sleeping
    /// hold up a process just like computing.
    pub fn is_work(self) -> bool {
        !self.in_mpi && self.label != Label::WaitResource
    }

    /// Whether its time is useful in the sense of POP's efficiencies.
    pub fn is_useful(self) -> bool {
        self.label == Label::Computation
    }
}

/// The meaning of each context of a tree.
pub fn meanings(tree: &ContextTree) -> Vec<Meaning> {
    let mut meanings: Vec<Meaning> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let outer = node.parent.map_or(Meaning::OUTSIDE, |parent| meanings[parent as usize]);
        meanings.push(meaning(&tree.frames[node.frame as usize], outer));
    }
    meanings
}

fn meaning(frame: &Frame, outer: Meaning) -> Meaning {
    // Polls keep their label, whatever the library does in them: it waits for nobody there.
    if outer.polling {
        return outer;
    }
    if let Some((class, provider)) = recorded_call(frame).or_else(|| mpi_by_name(frame)) {
        let in_mpi = outer.in_mpi || provider != Provider::Libc;
        let label = from_call_class(class, provider, outer);
        return Meaning { label, in_mpi, polling: class == CallClass::Polling };
    }
    if frame.kind == FrameKind::Mpi {
        return Meaning { label: Label::Communication, in_mpi: true, polling: false };
    }
    match known_function(&frame.function, outer.in_mpi) {
        Some(label) => Meaning { label, ..outer },
        // What a library does inside a call that communicates or waits belongs to that call.
        None => outer,
    }
}

fn recorded_call(frame: &Frame) -> Option<(CallClass, Provider)> {
    let id = frame.call?;
    Some((calls::class(id)?, calls::call(id)?.provider))
}

/// Without wrappers, MPI's calls are functions of the library.
fn mpi_by_name(frame: &Frame) -> Option<(CallClass, Provider)> {
    let name = frame.function.strip_prefix('P').unwrap_or(&frame.function);
    if !name.starts_with("MPI_") {
        return None;
    }
    let call = calls::call(calls::id_of(name))?;
    Some((call.class, call.provider))
}

/// The label of a wrapped call, given where it is called from. Inside MPI, whatever sleeps or
/// waits for a descriptor waits for another process.
pub fn from_call_class(class: CallClass, provider: Provider, outer: Meaning) -> Label {
    let in_mpi = outer.in_mpi && provider == Provider::Libc;
    match class {
        CallClass::CollectiveSync => Label::CollectiveSynchronisation,
        CallClass::Communication | CallClass::Polling => Label::Communication,
        CallClass::Io => Label::Io,
        CallClass::WaitLock => Label::WaitLock,
        CallClass::WaitPartner => Label::WaitPartner,
        CallClass::WaitResource | CallClass::Sleep if in_mpi => Label::WaitPartner,
        CallClass::WaitResource => Label::WaitResource,
        CallClass::Sleep => outer.label,
    }
}

/// Internals of communication and threading libraries whose purpose is known, by the beginning of
/// their names.
const KNOWN: &[(&str, Label)] = &[
    // Open MPI
    ("opal_progress", Label::WaitPartner),
    ("ompi_sync_wait_mt", Label::WaitPartner),
    ("ompi_request_default_wait", Label::WaitPartner),
    ("ompi_request_wait_completion", Label::WaitPartner),
    ("opal_thread_internal_cond_wait", Label::WaitPartner),
    // MPICH, Intel MPI
    ("MPIDI_CH3I_Progress", Label::WaitPartner),
    ("MPID_Progress_wait", Label::WaitPartner),
    ("MPIDI_Progress_test", Label::WaitPartner),
    ("MPIR_Wait", Label::WaitPartner),
    ("MPIDI_progress_test", Label::WaitPartner),
    ("MPID_nem_lmt_shm_start_send", Label::Message),
    ("MPID_nem_lmt_shm_start_recv", Label::Message),
    // Transports
    ("ucp_worker_progress", Label::WaitPartner),
    ("ucp_worker_wait", Label::WaitPartner),
    ("uct_worker_progress", Label::WaitPartner),
    ("psm2_mq_ipeek", Label::WaitPartner),
    ("psm3_mq_ipeek", Label::WaitPartner),
    ("ofi_cq_readfrom", Label::WaitPartner),
    ("process_vm_readv", Label::Message),
    ("process_vm_writev", Label::Message),
    // Accelerators
    ("cudaMemcpy", Label::Device),
    ("cuMemcpy", Label::Device),
    ("hipMemcpy", Label::Device),
    // OpenMP: GNU, LLVM, Intel
    ("gomp_mutex_lock", Label::WaitLock),
    ("gomp_barrier_wait", Label::WaitPartner),
    ("gomp_team_barrier_wait", Label::WaitPartner),
    ("gomp_sem_wait", Label::WaitPartner),
    ("gomp_ptrlock_get_slow", Label::WaitLock),
    ("do_wait", Label::WaitPartner),
    ("futex_wait", Label::WaitPartner),
    ("__kmp_wait_", Label::WaitPartner),
    ("__kmp_barrier", Label::WaitPartner),
    ("__kmp_join_barrier", Label::WaitPartner),
    ("__kmp_fork_barrier", Label::WaitPartner),
    ("__kmp_hyper_barrier", Label::WaitPartner),
    ("__kmp_acquire_", Label::WaitLock),
    // The C library
    ("__futex_abstimed_wait", Label::WaitPartner),
    ("__lll_lock_wait", Label::WaitLock),
];

/// Functions that copy memory: a transfer when MPI calls them, else the program's own work.
const COPIES: &[&str] = &["memcpy", "memmove", "__memcpy", "__memmove", "opal_memcpy"];

fn known_function(name: &str, in_mpi: bool) -> Option<Label> {
    if in_mpi && COPIES.iter().any(|prefix| name.starts_with(prefix)) {
        return Some(Label::MemoryCopy);
    }
    // A user's own `do_wait` or `futex_wait_all` must not be taken for the runtime's.
    let whole = ["do_wait", "futex_wait"];
    KNOWN
        .iter()
        .find(
            |(known, _)| {
                if whole.contains(known) { name == *known } else { name.starts_with(known) }
            },
        )
        .map(|(_, label)| *label)
}

/// For each context the most specific label that holds at least 70 % of its time on this rank,
/// from the time of each context alone. `None` for contexts without time, which have no say, and
/// `Some(None)` where no label holds so much.
pub fn derived(
    tree: &ContextTree,
    meanings: &[Meaning],
    own_ns: &[u64],
) -> Vec<Option<Option<Label>>> {
    let mut by_label = vec![[0u64; Label::ALL.len()]; tree.nodes.len()];
    for index in (0..tree.nodes.len()).rev() {
        by_label[index][meanings[index].label as usize] += own_ns[index];
        if let Some(parent) = tree.nodes[index].parent {
            let inner = by_label[index];
            for (sum, part) in by_label[parent as usize].iter_mut().zip(inner) {
                *sum += part;
            }
        }
    }
    by_label.iter().map(dominant).collect()
}

fn dominant(by_label: &[u64; Label::ALL.len()]) -> Option<Option<Label>> {
    let total: u64 = by_label.iter().sum();
    let held = |label: Label| -> u64 {
        Label::ALL.iter().filter(|l| l.is_a(label)).map(|l| by_label[*l as usize]).sum()
    };
    let enough = |label: &Label| {
        u128::from(held(*label)) * 100 >= u128::from(total) * u128::from(DERIVED_PERCENT)
    };
    // More than half: the labels that hold enough are one lineage.
    let deepest = Label::ALL.into_iter().filter(enough).max_by_key(|label| label.lineage().count());
    (total > 0).then_some(deepest)
}

/// What two groups of ranks agree on: a derived label must hold on every rank that has the context.
pub fn agreed(ours: Option<Option<Label>>, theirs: Option<Option<Label>>) -> Option<Option<Label>> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(ours.zip(theirs).and_then(|(a, b)| a.common(b))),
        (one, None) | (None, one) => one,
    }
}

/// The label to show: the derived one, unless it says less than the initial one. A call keeps what
/// it was made for; a program's own function becomes what its time was spent on.
pub fn shown(meaning: Meaning, derived: Option<Option<Label>>) -> Label {
    match derived.flatten() {
        Some(label) if meaning.polling => label.common(meaning.label).unwrap_or(meaning.label),
        Some(label) if meaning.label == Label::Computation || label.is_a(meaning.label) => label,
        _ => meaning.label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Contexts;

    fn labels(contexts: &Contexts) -> Vec<Label> {
        meanings(&contexts.tree).iter().map(|meaning| meaning.label).collect()
    }

    #[test]
    fn calls_mean_what_they_wait_for() {
        let mut contexts = Contexts::default();
        for (path, label) in [
            ("main", Label::Computation),
            ("main/MPI_Barrier", Label::CollectiveSynchronisation),
            ("main/MPI_Bcast", Label::Communication),
            ("main/MPI_Bcast/stripped", Label::Communication),
            ("main/MPI_Bcast/opal_progress", Label::WaitPartner),
            ("main/MPI_Bcast/opal_progress/usleep", Label::WaitPartner),
            ("main/MPI_Bcast/opal_progress/poll", Label::WaitPartner),
            ("main/MPI_Bcast/__memmove_avx_unaligned", Label::MemoryCopy),
            ("main/MPI_Test/opal_progress", Label::Communication),
            ("main/MPI_File_write_all/stripped", Label::Io),
            ("main/PMPI_Allreduce", Label::CollectiveSynchronisation),
            ("main/usleep", Label::Computation),
            ("main/poll", Label::WaitResource),
            ("main/fsync", Label::Io),
            ("main/pthread_mutex_lock", Label::WaitLock),
            ("main/pthread_join", Label::WaitPartner),
            ("main/gomp_team_barrier_wait_end/do_spin", Label::WaitPartner),
            ("main/__memmove_avx_unaligned", Label::Computation),
            ("main/do_wait_for_input", Label::Computation),
        ] {
            let node = contexts.node(path);
            assert_eq!(labels(&contexts)[node as usize], label, "{path}");
        }
    }

    #[test]
    fn a_context_becomes_what_seventy_percent_of_its_time_is() {
        let mut contexts = Contexts::default();
        let exchange = contexts.node("main/exchange") as usize;
        let send = contexts.node("main/exchange/MPI_Send") as usize;
        let progress = contexts.node("main/exchange/MPI_Send/opal_progress") as usize;
        let barrier = contexts.node("main/exchange/MPI_Barrier") as usize;
        let copy = contexts.node("main/exchange/MPI_Barrier/memcpy") as usize;
        let mut own = vec![0; contexts.tree.nodes.len()];
        (own[exchange], own[send], own[progress], own[barrier], own[copy]) = (10, 25, 75, 1, 9);
        let meanings = meanings(&contexts.tree);
        let derived = derived(&contexts.tree, &meanings, &own);
        let shown = |node: usize| shown(meanings[node], derived[node]);
        assert_eq!(shown(send), Label::WaitPartner);
        assert_eq!(shown(exchange), Label::Communication, "75 of 120 wait, 110 communicate");
        assert_eq!(shown(barrier), Label::CollectiveSynchronisation);
        assert_eq!(derived[barrier], Some(Some(Label::MemoryCopy)));
    }

    #[test]
    fn ranks_must_agree_and_ranks_without_time_have_no_say() {
        let (wait, lock) = (Some(Some(Label::WaitPartner)), Some(Some(Label::WaitLock)));
        assert_eq!(agreed(wait, lock), Some(Some(Label::Wait)));
        assert_eq!(agreed(wait, None), wait);
        assert_eq!(agreed(None, lock), lock);
        assert_eq!(agreed(wait, Some(None)), Some(None));
        assert_eq!(agreed(wait, Some(Some(Label::Computation))), Some(None));
    }
}
