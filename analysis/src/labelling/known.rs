//! Functions inside of communication and threading libraries with a purpose that is known from
//! their names (PPoPP20, 5.2, Table 1).
//!
//! The names are those that the libraries export or keep in their symbol tables: Open MPI 4.1 and
//! 5.0, UCX 1.13, libfabric 1.17 and GNU OpenMP 12 as built by Debian or contained in Python
//! wheels, OpenCoarrays 2.10, Intel MPI 2021 (with its whole symbol table and the internals of
//! MPICH 4), and glibc 2.36. The names of MPICH's channel ch3, PSM2, CUDA, HIP and LLVM's OpenMP
//! come from their sources and headers. A name is listed only if contexts below it are not labelled
//! better otherwise: inside a wrapped call every context has that call's label.

use plimsoll_collector::profile::{Frame, FrameKind};

use crate::label::Label;

/// Labels by the beginning of function names; the first match counts.
const BEGINNINGS: &[(&str, Label)] = &[
    // Open MPI: waiting
    ("opal_progress", Label::WaitPartner),
    ("ompi_sync_wait_mt", Label::WaitPartner),
    ("ompi_request_default_wait", Label::WaitPartner),
    ("ompi_request_wait_completion", Label::WaitPartner),
    ("opal_thread_internal_cond_wait", Label::WaitPartner),
    ("opal_cond_wait", Label::WaitPartner),
    // Open MPI: messages that have arrived or go out, also from within its progress
    ("mca_btl_vader_poll_handle_frag", Label::Message),
    ("mca_btl_sm_poll_handle_frag", Label::Message),
    ("mca_btl_vader_get_cma", Label::Message),
    ("mca_btl_vader_put_cma", Label::Message),
    ("mca_smsc_cma_copy_", Label::Message),
    ("mca_pml_ob1_recv_frag_callback_", Label::Message),
    ("mca_pml_ob1_recv_request_progress_", Label::Message),
    ("mca_pml_ob1_send_request_schedule_once", Label::Message),
    // MPICH, Intel MPI
    ("MPIDI_CH3I_Progress", Label::WaitPartner),
    ("MPID_Progress_wait", Label::WaitPartner),
    ("MPIDI_Progress_test", Label::WaitPartner),
    ("MPID_Progress_test", Label::WaitPartner),
    ("MPIR_Wait", Label::WaitPartner),
    ("MPIC_Wait", Label::WaitPartner),
    ("MPIDI_progress_test", Label::WaitPartner),
    ("MPIDI_OFI_progress", Label::WaitPartner),
    ("MPIDI_SHMI_progress", Label::WaitPartner),
    ("MPID_nem_lmt_shm_start_send", Label::Message),
    ("MPID_nem_lmt_shm_start_recv", Label::Message),
    ("impi_shm_cma_read", Label::Message),
    // Transports
    ("ucp_worker_progress", Label::WaitPartner),
    ("ucp_worker_wait", Label::WaitPartner),
    ("uct_worker_progress", Label::WaitPartner),
    ("uct_mm_ep_am_", Label::Message),
    ("uct_cma_ep_tx", Label::Message),
    ("uct_scopy_ep_", Label::Message),
    ("psm2_mq_ipeek", Label::WaitPartner),
    ("psm3_mq_ipeek", Label::WaitPartner),
    ("ofi_cq_read", Label::WaitPartner),
    ("ofi_cq_sread", Label::WaitPartner),
    ("ofi_cq_progress", Label::WaitPartner),
    ("ofi_cntr_wait", Label::WaitPartner),
    ("process_vm_readv", Label::Message),
    ("process_vm_writev", Label::Message),
    // Accelerators
    ("cudaMemcpy", Label::Device),
    ("cuMemcpy", Label::Device),
    ("hipMemcpy", Label::Device),
    // OpenMP: GNU. Waiting threads meanwhile run tasks of the program.
    ("gomp_barrier_handle_tasks", Label::Computation),
    ("gomp_mutex_lock", Label::WaitLock),
    ("GOMP_critical_start", Label::WaitLock),
    ("GOMP_critical_name_start", Label::WaitLock),
    ("GOMP_atomic_start", Label::WaitLock),
    ("omp_set_lock", Label::WaitLock),
    ("omp_set_nest_lock", Label::WaitLock),
    ("GOMP_ordered_start", Label::WaitPartner),
    ("GOMP_doacross_wait", Label::WaitPartner),
    ("GOMP_doacross_ull_wait", Label::WaitPartner),
    ("gomp_barrier_wait", Label::WaitPartner),
    ("gomp_team_barrier_wait", Label::WaitPartner),
    ("gomp_sem_wait", Label::WaitPartner),
    ("gomp_ptrlock_get_slow", Label::WaitLock),
    // OpenMP: LLVM, Intel
    ("__kmp_invoke_task", Label::Computation),
    ("__kmp_wait_", Label::WaitPartner),
    ("__kmp_barrier", Label::WaitPartner),
    ("__kmp_join_barrier", Label::WaitPartner),
    ("__kmp_fork_barrier", Label::WaitPartner),
    ("__kmp_hyper_barrier", Label::WaitPartner),
    ("__kmp_acquire_", Label::WaitLock),
    ("__kmpc_critical", Label::WaitLock),
    // OpenBLAS: the thread that called waits for its workers.
    ("exec_blas_async_wait", Label::WaitPartner),
    // The C library
    ("__futex_abstimed_wait", Label::WaitPartner),
    ("__lll_lock_wait", Label::WaitLock),
];

/// Labels by whole function names: a user's own `do_wait_for_input` must not be taken for a
/// function of GNU OpenMP.
const WHOLE: &[(&str, Label)] =
    &[("do_wait", Label::WaitPartner), ("futex_wait", Label::WaitPartner)];

/// Functions of OpenCoarrays in which an image looks again and again whether another one has done
/// something. `_gfortran_caf_lock` jumps to `mutex_lock`.
const WAITS_FOR_IMAGES: &[&str] = &["_gfortran_caf_event_wait", "_gfortran_caf_lock", "mutex_lock"];

/// Functions that copy memory: a transfer if called by communication, otherwise work of the
/// program.
const COPIES: &[&str] = &[
    "memcpy",
    "memmove",
    "__memcpy",
    "__memmove",
    // Open MPI
    "opal_memcpy",
    "opal_convertor_pack",
    "opal_convertor_unpack",
    "opal_datatype_copy_content",
    "opal_generic_simple_pack",
    "opal_generic_simple_unpack",
    // MPICH, Intel MPI
    "MPIR_Localcopy",
    "MPIR_Typerep_copy",
    "MPIR_Typerep_pack",
    "MPIR_Typerep_unpack",
    "I_MPI_memcpy",
    "__I_MPI___intel_memcpy",
    "__I_MPI__intel_fast_memcpy",
    "__I_MPI__intel_fast_memmove",
    // UCX
    "ucs_cpu_builtin_memcpy",
    "ucs_x86_memcpy",
];

/// Functions in which the threads of a team wait for each other, by the beginning of the name:
/// POSIX threads, and GNU, LLVM and Intel OpenMP.
const THREAD_BARRIERS: &[&str] = &[
    "pthread_barrier_wait",
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "__kmp_barrier",
    "__kmp_join_barrier",
    "__kmp_fork_barrier",
    "__kmp_hyper_barrier",
];

/// Returns whether threads leave a function together. Assumed for a runtime without names: it
/// mostly waits for the end of parallel regions and loops.
pub fn is_thread_barrier(frame: &Frame) -> bool {
    THREAD_BARRIERS.iter().any(|beginning| frame.function.starts_with(beginning))
        || is_thread_runtime(frame)
}

/// Returns whether a frame is unnamed code of a thread runtime: distributions strip these of the
/// names above. Its own time is waiting; functions called by it belong to the program.
fn is_thread_runtime(frame: &Frame) -> bool {
    let is_nameless =
        frame.function.strip_prefix(&frame.module).is_some_and(|it| it.starts_with('+'));
    is_nameless && frame.is_of_thread_runtime()
}

/// Returns whether a thread waits in the own time of a frame, while the functions called there
/// belong to the program.
pub(super) fn waits_for_work(frame: &Frame) -> bool {
    is_thread_runtime(frame) || frame.is_pool_loop()
}

/// Returns whether some of the frames belong to a program with coarrays: its images are the ranks.
pub(super) fn have_images(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| frame.function.starts_with("_gfortran_caf_"))
}

/// Returns whether an image waits for others in a function of a program with coarrays.
pub(super) fn waits_for_images(frame: &Frame) -> bool {
    frame.kind == FrameKind::Function && WAITS_FOR_IMAGES.contains(&&*frame.function)
}

/// Returns the label of a function known by its name. `communicates` is whether its caller
/// communicates.
pub(super) fn label(name: &str, communicates: bool) -> Option<Label> {
    if communicates && COPIES.iter().any(|beginning| name.starts_with(beginning)) {
        return Some(Label::MemoryCopy);
    }
    let beginning = BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning));
    let known = beginning.or_else(|| WHOLE.iter().find(|(whole, _)| name == *whole));
    known.map(|(_, label)| *label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A beginning listed after a shorter one would never match.
    #[test]
    fn every_name_counts() {
        for (known, truth) in BEGINNINGS.iter().chain(WHOLE) {
            assert_eq!(label(known, false), Some(*truth), "{known}");
        }
        for (at, (later, _)) in BEGINNINGS.iter().enumerate() {
            let hidden = BEGINNINGS[..at].iter().any(|(earlier, _)| later.starts_with(earlier));
            assert!(!hidden, "{later} says nothing more");
        }
    }

    #[test]
    fn barriers_of_threads_are_known_as_waiting() {
        let calls = THREAD_BARRIERS.iter().filter(|name| !name.starts_with("pthread_"));
        for name in calls {
            assert_eq!(label(name, false), Some(Label::WaitPartner), "{name}");
        }
    }

    #[test]
    fn copies_to_devices_have_a_label_of_their_own() {
        for name in ["cudaMemcpyAsync", "cuMemcpyHtoD_v2", "hipMemcpy"] {
            assert_eq!(label(name, false), Some(Label::Device), "{name}");
        }
    }

    #[test]
    fn copies_are_transfers_where_something_communicates() {
        for name in COPIES {
            assert_eq!(label(name, true), Some(Label::MemoryCopy));
            assert_eq!(label(name, false), None);
        }
    }
}
