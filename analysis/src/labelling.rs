//! Labels of calling contexts: the initial label, from the user's rules, the wrapped call or the
//! function's name, and the derived label, from the context's time (PPoPP20, 5.2, Table 1 and the
//! derived labels).

mod known;
pub mod polls;

use plimsoll_calls::{self as calls, CallClass, Provider};
use plimsoll_collector::profile::{ContextTree, Frame, FrameKind};

use crate::frame_classes::is_of_c_library;
use crate::label::Label;
pub use known::is_thread_barrier;

use crate::rules::Rules;

/// Share of a context's time that a label must hold to become its derived label.
const DERIVED_PERCENT: u64 = 70;

/// Class of a context: the purpose of its time, determined without that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextClass {
    /// Label of the time spent in the context itself.
    pub label: Label,
    /// Whether the context is an MPI call or lies below one.
    pub in_mpi: bool,
    /// Whether the context is, or lies below, a call that tests for progress and returns at once.
    pub polling: bool,
    /// Whether the context is unnamed code of a thread runtime, or the loop of a thread pool; code
    /// of the program may lie below it.
    pub in_thread_runtime: bool,
    /// Whether the context is, or lies below, a function in which other processes take part,
    /// according to a user's rule or as an image of a program with coarrays. Such a function is
    /// treated like MPI.
    pub waits_on_peers: bool,
    /// Whether the context is the part of a polling loop between its polls; contexts below are not.
    pub is_poll_gap: bool,
}

impl ContextClass {
    /// Class of code outside of all calls.
    pub const OUTSIDE: Self = Self {
        label: Label::Computation,
        in_mpi: false,
        polling: false,
        in_thread_runtime: false,
        waits_on_peers: false,
        is_poll_gap: false,
    };

    /// Returns whether the context's time is the process's own, so that another process may have to
    /// wait for it: all time except MPI and waiting for others. Locks, files, threads of the same
    /// process and sleeping delay a process just like computation.
    pub fn is_work(self) -> bool {
        !self.communicates() && self.label != Label::WaitResource
    }

    fn communicates(self) -> bool {
        self.in_mpi || self.waits_on_peers
    }

    /// Returns whether the context's time is useful in the sense of POP's efficiencies.
    pub fn is_useful(self) -> bool {
        self.label == Label::Computation
    }
}

/// Returns the class of each context of a tree; the user's rules have priority.
pub fn context_classes(tree: &ContextTree, rules: &Rules) -> Vec<ContextClass> {
    let asked = rules.labels(&tree.frames);
    let have_images = known::have_images(&tree.frames);
    let mut context_classes: Vec<ContextClass> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let outer =
            node.parent.map_or(ContextClass::OUTSIDE, |parent| context_classes[parent as usize]);
        let frame = &tree.frames[node.frame as usize];
        let for_images = have_images && known::waits_for_images(frame);
        let asked = asked[node.frame as usize].or(for_images.then_some(Label::WaitPartner));
        context_classes.push(context_class(frame, asked, outer));
    }
    context_classes
}

fn context_class(frame: &Frame, asked: Option<Label>, outer: ContextClass) -> ContextClass {
    // Polls keep their label, no matter what the library does in them: nothing waits there. Loops
    // and lines have the class of the function that contains them.
    if outer.polling || matches!(frame.kind, FrameKind::Loop | FrameKind::Line) {
        return outer;
    }
    let context_class = known_class(frame, outer);
    match asked {
        // MPI stays MPI, no matter which label a rule gives to its time.
        Some(label) => {
            ContextClass { label, waits_on_peers: involves_others(label), ..context_class }
        }
        None => context_class,
    }
}

/// Returns whether other processes take part in a function with this label from a rule; other
/// processes then do not wait for that function. Files, devices, memory and locks belong to the
/// process alone, as for the functions that are known without rules.
fn involves_others(label: Label) -> bool {
    match label {
        Label::Computation | Label::MemoryCopy | Label::Device | Label::Io | Label::WaitLock => {
            false
        }
        Label::Communication
        | Label::CollectiveSynchronisation
        | Label::DataTransfer
        | Label::Message
        | Label::Wait
        | Label::WaitPartner
        | Label::WaitResource => true,
    }
}

fn known_class(frame: &Frame, outer: ContextClass) -> ContextClass {
    if !outer.communicates() && known::waits_for_work(frame) {
        return ContextClass { label: Label::WaitPartner, in_thread_runtime: true, ..outer };
    }
    let outer = if outer.in_thread_runtime {
        // A loop that looks for work yields its core meanwhile.
        if frame.yields() {
            return outer;
        }
        ContextClass { label: Label::Computation, in_thread_runtime: false, ..outer }
    } else {
        outer
    };
    let by_name = || mpi_by_name(frame).or_else(|| libc_by_name(frame));
    if let Some((class, provider)) = recorded_call(frame).or_else(by_name) {
        let in_mpi = outer.in_mpi || provider.is_mpi();
        let label = from_call_class(class, provider, outer);
        return ContextClass { label, in_mpi, polling: class == CallClass::Polling, ..outer };
    }
    if frame.kind == FrameKind::Mpi {
        return ContextClass { label: Label::Communication, in_mpi: true, ..outer };
    }
    match known::label(&frame.function, outer.communicates()) {
        Some(label) => ContextClass { label, ..outer },
        // The work of a library inside a call that communicates or waits belongs to that call.
        None => outer,
    }
}

fn recorded_call(frame: &Frame) -> Option<(CallClass, Provider)> {
    let id = frame.call?;
    Some((calls::class(id)?, calls::call(id)?.provider))
}

/// Without wrappers, MPI calls appear as functions of the library.
fn mpi_by_name(frame: &Frame) -> Option<(CallClass, Provider)> {
    let name = frame.function.strip_prefix('P').unwrap_or(&frame.function);
    if !name.starts_with("MPI_") {
        return None;
    }
    call_named(name)
}

fn call_named(name: &str) -> Option<(CallClass, Provider)> {
    let call = calls::call(calls::id_of(name))?;
    Some((call.class, call.provider))
}

/// Without wrappers, and where the C library calls itself (fwrite writes), its calls appear as its
/// functions, under any of its names for them (`__write`, `__libc_pread`, `__read_nocancel`).
fn libc_by_name(frame: &Frame) -> Option<(CallClass, Provider)> {
    if frame.kind != FrameKind::Function || !is_of_c_library(frame) {
        return None;
    }
    let name = frame.function.trim_start_matches("__GI_").trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let name = ["_nocancel", "_chk"].iter().fold(name, |name, end| name.trim_end_matches(end));
    call_named(name).filter(|(_, provider)| *provider == Provider::Libc)
}

/// Returns the label of a wrapped call, given its caller. Inside MPI, or a function that a rule
/// treats like MPI, a call that sleeps or waits for a descriptor waits for another process.
pub fn from_call_class(class: CallClass, provider: Provider, outer: ContextClass) -> Label {
    let waits = outer.communicates() && provider == Provider::Libc;
    match class {
        CallClass::CollectiveSync => Label::CollectiveSynchronisation,
        CallClass::Communication | CallClass::Polling => Label::Communication,
        CallClass::Io => Label::Io,
        CallClass::WaitLock | CallClass::TeamLock => Label::WaitLock,
        CallClass::WaitPartner | CallClass::Region | CallClass::TeamWait => Label::WaitPartner,
        CallClass::WaitResource | CallClass::Sleep if waits => Label::WaitPartner,
        CallClass::WaitResource => Label::WaitResource,
        CallClass::Sleep | CallClass::TaskCreation | CallClass::ThreadCreation => outer.label,
    }
}

/// Returns, for each context, the most specific label that holds at least 70 % of its time on this
/// rank; `own_ns` is the exclusive time of each context. The result is `None` for contexts without
/// time, which have no vote, and `Some(None)` if no label holds 70 %.
///
/// A callee counts as a whole, with its shown label, as in PPoPP20 (5.2): a callee that mostly
/// waits counts as waiting. The exclusive time of a context counts like a callee with the context's
/// initial label.
pub fn derived(
    tree: &ContextTree,
    context_classes: &[ContextClass],
    own_ns: &[u64],
) -> Vec<Option<Option<Label>>> {
    let mut by_label = vec![[0u64; Label::ALL.len()]; tree.nodes.len()];
    let mut derived = vec![None; tree.nodes.len()];
    for index in (0..tree.nodes.len()).rev() {
        by_label[index][context_classes[index].label as usize] += own_ns[index];
        let label = dominant(&by_label[index]);
        derived[index] = label;
        if let Some(parent) = tree.nodes[index].parent {
            let time_ns: u64 = by_label[index].iter().sum();
            by_label[parent as usize][shown(context_classes[index], label) as usize] += time_ns;
        }
    }
    derived
}

fn dominant(by_label: &[u64; Label::ALL.len()]) -> Option<Option<Label>> {
    let total: u64 = by_label.iter().sum();
    let held = |label: Label| -> u64 {
        Label::ALL.iter().filter(|l| l.is_a(label)).map(|l| by_label[*l as usize]).sum()
    };
    let enough = |label: &Label| {
        u128::from(held(*label)) * 100 >= u128::from(total) * u128::from(DERIVED_PERCENT)
    };
    // Since 70 % is more than half, the labels that hold enough time form one lineage.
    let deepest = Label::ALL.into_iter().filter(enough).max_by_key(|label| label.lineage().count());
    (total > 0).then_some(deepest)
}

/// Merges the derived labels of two groups of ranks: the result must hold on every rank that has
/// the context.
pub fn agreed(ours: Option<Option<Label>>, theirs: Option<Option<Label>>) -> Option<Option<Label>> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(ours.zip(theirs).and_then(|(a, b)| a.common(b))),
        (one, None) | (None, one) => one,
    }
}

/// Returns the label to show: the derived label, unless it is less specific than the initial one. A
/// wrapped call keeps its purpose; a function of the program takes the label of its time.
pub fn shown(context_class: ContextClass, derived: Option<Option<Label>>) -> Label {
    match derived.flatten() {
        Some(label) if context_class.polling => {
            label.common(context_class.label).unwrap_or(context_class.label)
        }
        Some(label)
            if context_class.label == Label::Computation || label.is_a(context_class.label) =>
        {
            label
        }
        _ => context_class.label,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_collector::profile::NodeId;

    use super::*;
    use crate::synthetic_run::Contexts;

    fn class_of(path: &str, rules: &str) -> ContextClass {
        let mut contexts = Contexts::default();
        let node = contexts.node(path);
        context_classes(&contexts.tree, &Rules::from(rules.to_owned()))[node as usize]
    }

    #[test]
    fn calls_mean_what_they_wait_for() {
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
            ("main/sem_wait", Label::WaitPartner),
            ("main/sem_timedwait", Label::WaitPartner),
            ("main/gomp_team_barrier_wait_end/do_spin", Label::WaitPartner),
            ("main/__memmove_avx_unaligned", Label::Computation),
            ("main/do_wait_for_input", Label::Computation),
            ("main/MPI_Recv/opal_progress/mca_btl_vader_poll_handle_frag", Label::Message),
            ("main/MPI_Pack/opal_convertor_pack", Label::MemoryCopy),
            ("main/gomp_team_barrier_wait/gomp_barrier_handle_tasks/task", Label::Computation),
            // Code without a name in a thread runtime: it waits for threads, and runs their part of
            // the program.
            ("main/GOMP_parallel/libgomp.so.1+0x1f780", Label::WaitPartner),
            ("libgomp.so.1+0x1d320/libgomp.so.1+0x1f5e0", Label::WaitPartner),
            ("libgomp.so.1+0x1d320/main._omp_fn.0", Label::Computation),
            ("libgomp.so.1+0x1d320/main._omp_fn.0/app+0x10", Label::Computation),
            ("main/MPI_Bcast/libgomp.so.1+0x1f780", Label::Communication),
            ("blas_thread_server", Label::WaitPartner),
            ("blas_thread_server/__sched_yield", Label::WaitPartner),
            ("blas_thread_server/inner_thread/dgemm_kernel", Label::Computation),
            ("main/dgemm/exec_blas_async_wait", Label::WaitPartner),
            ("main/libgomp.so.1+0x1f780/MPI_Bcast", Label::Communication),
        ] {
            assert_eq!(class_of(path, "").label, label, "{path}");
        }
    }

    #[test]
    fn images_wait_for_each_other_in_the_locks_of_coarrays() {
        let mut contexts = Contexts::default();
        let lock = contexts.node("MAIN__/mutex_lock");
        let pause = contexts.node("MAIN__/mutex_lock/usleep");
        let class_of = |contexts: &Contexts, node: NodeId| {
            let class = context_classes(&contexts.tree, &Rules::default())[node as usize];
            (class.label, class.is_work())
        };
        // A function of the program may have the same name.
        assert_eq!(class_of(&contexts, lock), (Label::Computation, true));
        contexts.node("MAIN__/_gfortran_caf_sync_all/MPI_Barrier");
        assert_eq!(class_of(&contexts, lock), (Label::WaitPartner, false));
        assert_eq!(class_of(&contexts, pause), (Label::WaitPartner, false));
    }

    #[test]
    fn functions_of_the_c_library_are_its_calls() {
        let class_in = |module: &str, path: &str| {
            let mut contexts = Contexts::default();
            let node = contexts.node(path);
            let frame = contexts.tree.nodes[node as usize].frame as usize;
            contexts.tree.frames[frame].module = module.to_owned();
            contexts.tree.frames[frame].call = None;
            context_classes(&contexts.tree, &Rules::default())[node as usize].label
        };
        for (path, label) in [
            ("main/fwrite/__write", Label::Io),
            ("main/__read_nocancel", Label::Io),
            ("main/__libc_pread", Label::Io),
            ("main/__GI___read_chk", Label::Io),
            ("main/fsync", Label::Io),
            ("main/___pthread_mutex_lock", Label::WaitLock),
            ("main/pthread_join", Label::WaitPartner),
            ("main/__poll", Label::WaitResource),
            ("main/MPI_Recv/__poll", Label::WaitPartner),
            ("main/clock_nanosleep", Label::Computation),
            ("main/MPI_Recv/clock_nanosleep", Label::WaitPartner),
            ("main/fwrite", Label::Io),
            ("main/fputs", Label::Computation),
        ] {
            assert_eq!(class_in("libc.so.6", path), label, "{path}");
        }
        // The program may have a function of the same name.
        assert_eq!(class_in("app", "main/__write"), Label::Computation);
    }

    #[test]
    fn rules_come_before_what_we_know() {
        let rules = "spin = wait_partner\nexchange = communication\npack = memory_copy\n\
                     do_wait = computation\nopal_progress = message\npoll = io\nusleep = wait\n\
                     MPI_Bcast = collective_synchronisation\nMPI_Test = wait_partner\n\
                     reduce_op = computation\nunlock = wait_lock\nrelax = computation";
        for (path, label, is_work) in [
            ("main/solve", Label::Computation, true),
            ("main/spin", Label::WaitPartner, false),
            // Contexts below belong to the function, also those that would be work elsewhere.
            ("main/spin/pause", Label::WaitPartner, false),
            ("main/spin/pthread_mutex_lock", Label::WaitLock, false),
            ("main/spin/select", Label::WaitPartner, false),
            ("main/exchange/nanosleep", Label::WaitPartner, false),
            ("main/exchange/memcpy", Label::MemoryCopy, false),
            ("main/exchange/MPI_Barrier", Label::CollectiveSynchronisation, false),
            // A more specific rule has priority.
            ("main/exchange/pack", Label::MemoryCopy, true),
            ("main/exchange/solve/relax/kernel", Label::Computation, true),
            ("main/unlock", Label::WaitLock, true),
            // Rules have priority over names that we know, and over calls.
            ("main/do_wait", Label::Computation, true),
            ("main/poll", Label::Io, true),
            ("main/usleep", Label::Wait, false),
            ("main/MPI_Send/opal_progress", Label::Message, false),
            ("main/MPI_Bcast", Label::CollectiveSynchronisation, false),
            ("main/MPI_Test", Label::WaitPartner, false),
            ("main/MPI_Test/opal_progress", Label::WaitPartner, false),
            // MPI stays MPI.
            ("main/MPI_Allreduce/reduce_op", Label::Computation, false),
        ] {
            let context_class = class_of(path, rules);
            assert_eq!((context_class.label, context_class.is_work()), (label, is_work), "{path}");
        }
        assert!(class_of("main/MPI_Test", rules).polling);
        assert!(class_of("main/MPI_Allreduce/reduce_op", rules).in_mpi);
    }

    #[test]
    fn parts_of_a_function_mean_what_it_means() {
        let mut contexts = Contexts::default();
        let node = contexts.node("main/do_wait/do_wait@1");
        let part = contexts.tree.nodes[node as usize].frame as usize;
        contexts.tree.frames.push(contexts.tree.frames[part].clone());
        contexts.tree.nodes[node as usize].frame = contexts.tree.frames.len() as u32 - 1;
        for kind in [FrameKind::Loop, FrameKind::Line] {
            contexts.tree.frames.last_mut().unwrap().kind = kind;
            let context_classes =
                context_classes(&contexts.tree, &Rules::from("do_wait = io".to_owned()));
            assert_eq!(context_classes[node as usize].label, Label::Io);
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
        let context_classes = context_classes(&contexts.tree, &Rules::default());
        let derived = derived(&contexts.tree, &context_classes, &own);
        let shown = |node: usize| shown(context_classes[node], derived[node]);
        assert_eq!(shown(send), Label::WaitPartner);
        assert_eq!(shown(exchange), Label::WaitPartner, "all 100 of 120 in MPI_Send");
        assert_eq!(shown(barrier), Label::CollectiveSynchronisation);
        assert_eq!(derived[barrier], Some(Some(Label::MemoryCopy)));
        // 84 of 120 are exactly 70 %.
        let shown_of = |sent: u64, alone: u64| {
            let mut own = vec![0; contexts.tree.nodes.len()];
            (own[exchange], own[progress]) = (alone, sent);
            super::shown(
                context_classes[exchange],
                super::derived(&contexts.tree, &context_classes, &own)[exchange],
            )
        };
        assert_eq!(shown_of(84, 36), Label::WaitPartner);
        assert_eq!(shown_of(83, 37), Label::Computation);
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
