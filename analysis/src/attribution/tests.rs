//! Worked examples of ICS18 and SC10, on small trees with similar numbers.

use plimsoll_collector::profile::{Frame, FrameKind, Node};

use super::*;
use crate::labelling::context_classes;
use crate::rules::Rules;
use crate::synthetic_run::Contexts;

const S: u64 = 1_000_000_000;

fn time(of_ranks: &[u64]) -> Accumulator {
    of_ranks.iter().map(|seconds| seconds * S).collect()
}

fn seconds(it: Inefficiency) -> (f64, f64) {
    (it.imb_ns / S as f64, it.wait_ns / S as f64)
}

fn tree(parents: &[Option<NodeId>]) -> ContextTree {
    let frame = Frame::new(FrameKind::Function, "f", "app");
    let node = |parent: &Option<NodeId>| Node { parent: *parent, frame: 0, site: 0 };
    ContextTree { frames: vec![frame], nodes: parents.iter().map(node).collect() }
}

/// ICS18, Figure 9: ranks wait in a synchronisation for uneven work. Evening out the work saves its
/// imbalance, 4 s; the remaining wait is the minimum over ranks.
#[test]
fn evening_out_work_saves_what_the_synchronisation_shows() {
    // 4, 6 and 11 s of work, 7 s on average; all ranks leave the synchronisation after 13 s.
    let work = inefficiency(Category::Computation, &time(&[4, 6, 11]), 3);
    assert_eq!(seconds(work), (4.0, 0.0));
    let sync = inefficiency(Category::Synchronisation, &time(&[9, 7, 2]), 3);
    assert_eq!(seconds(sync), (4.0, 2.0), "the one causes what shows in the other");
    // Imbalance and wait add up to the longest waiting: removing the waiting saves that.
    let wait = inefficiency(Category::Wait, &time(&[1, 2, 6]), 3);
    assert_eq!(seconds(wait), (3.0, 3.0));
}

/// ICS18, 4.3.1: barriers that threads leave together are synchronisation; waiting of a single
/// thread is wait.
#[test]
fn barriers_of_threads_synchronise_and_locks_and_joins_wait() {
    let mut contexts = Contexts::default();
    let paths = [
        ("main/solve", Category::Computation),
        ("main/solve/pthread_barrier_wait", Category::Synchronisation),
        ("main/solve/pthread_barrier_wait/futex_wait", Category::Synchronisation),
        ("main/solve/gomp_team_barrier_wait_end/do_wait", Category::Synchronisation),
        ("main/solve/gomp_team_barrier_wait/gomp_barrier_handle_tasks", Category::Computation),
        ("main/solve/GOMP_parallel/libgomp.so.1+0x1f780", Category::Synchronisation),
        ("libomp.so.5+0x10/__kmp_join_barrier/__kmp_wait_template", Category::Synchronisation),
        ("libomp.so.5+0x10/work._omp_fn", Category::Computation),
        ("main/pthread_join", Category::Wait),
        ("main/pthread_cond_wait", Category::Wait),
        ("main/pthread_mutex_lock", Category::Wait),
        ("main/omp_set_lock", Category::Wait),
        ("main/MPI_Barrier/opal_progress", Category::Synchronisation),
        ("main/MPI_Send", Category::Wait),
        ("main/MPI_Send/opal_progress", Category::Wait),
        ("main/usleep", Category::Computation),
    ];
    let nodes = paths.map(|(path, _)| contexts.node(path) as usize);
    let context_classes = context_classes(&contexts.tree, &Rules::default());
    let categories = Category::of_all(&contexts.tree, &context_classes);
    for (node, (path, truth)) in nodes.into_iter().zip(paths) {
        assert_eq!(categories[node], truth, "{path}");
    }
    let works = works_inside(&contexts.tree, &categories);
    let runtime = contexts.node("libomp.so.5+0x10") as usize;
    assert!(
        context_classes[runtime].in_thread_runtime && works[runtime],
        "its inclusive time is the program's"
    );
}

/// ICS18, Figure 10: parts with imbalances that cancel each other have a larger sum than the whole.
#[test]
fn sums_of_parts_that_even_out_exceed_the_whole() {
    // A calls X, Y and Z.
    let parents = [None, Some(0), Some(0), Some(0)];
    let of = |ranks: &[u64]| inefficiency(Category::Computation, &time(ranks), 3);
    let parts = [of(&[4, 6, 11]), of(&[9, 7, 2]), of(&[3, 3, 3])];
    let own = [vec![of(&[16, 16, 16])], parts.to_vec()].concat();
    let alone = vec![Inefficiency::default(); 4];
    let sums = sums(&tree(&parents), &own, &alone);
    assert_eq!(seconds(own[0]), (0.0, 0.0));
    assert_eq!(seconds(sums[0]), (4.0 + 3.0, 0.0));
    assert_eq!(seconds(sums[1]), (4.0, 0.0));
}

/// ICS18, Figure 11: imbalance arises at the caller if its callees share it, and at the callees if
/// they cancel each other.
#[test]
fn call_paths_are_chosen_at_the_depth_where_imbalance_arises() {
    // 0 calls 1 and 4; 1 calls 2 and 3, which share its imbalance; 4 calls 5 and 6, which differ.
    let parents = [None, Some(0), Some(1), Some(1), Some(0), Some(4), Some(4)];
    let percent =
        [(4.0, 15.2), (5.0, 5.2), (2.6, 2.6), (2.6, 2.6), (3.0, 10.0), (9.95, 9.95), (0.05, 0.05)];
    let found = significant(&parents, |id| percent[id], 100.0);
    assert_eq!(found, [1, 5], "neither what is shared, nor what is insignificant, nor the root");
}

/// With work alone, all callers of one uneven function are as uneven as that function.
#[test]
fn call_paths_go_inwards_as_far_as_one_callee_explains_them() {
    // 0 calls 1, which calls 2 and 4; 2 calls 3.
    let parents = [None, Some(0), Some(1), Some(2), Some(1)];
    let found = |percent: [f64; 5]| significant(&parents, |id| (percent[id], percent[0]), 100.0);
    assert_eq!(found([8.0, 8.0, 8.0, 8.0, 0.0]), [3]);
    assert_eq!(found([8.0, 8.0, 6.0, 6.0, 2.0]), [3], "seven of ten parts explain it");
    assert_eq!(found([8.0, 8.0, 5.5, 5.5, 2.5]), [1], "and fewer do not");
    assert_eq!(found([8.0, 8.0, 6.0, 4.0, 2.0]), [2]);
    // The outermost function, which calls 1 and 2 here, is an exception.
    let parents = [None, Some(0), Some(0)];
    let found = |percent: [f64; 3]| significant(&parents, |id| (percent[id], percent[id]), 100.0);
    assert_eq!(found([8.0, 4.0, 4.0]), [1, 2]);
    assert_eq!(found([8.0, 4.0, 0.0]), [0], "half of it is its own");
    assert_eq!(found([0.11, 0.0, 0.0]), [0]);
    assert!(found([0.09, 0.0, 0.0]).is_empty(), "a thousandth of the run is asked");
}

/// SC10, Figure 2: an uneven function may be evened out by another function of its caller. The
/// caller is then to blame for idleness, not the outermost function.
#[test]
fn blame_goes_to_the_deepest_balanced_caller() {
    // main calls solve and write; solve calls x and y, which both wait.
    let parents = [None, Some(0), Some(1), Some(2), Some(1), Some(4), Some(0), Some(6)];
    let balanced = [true, true, false, false, false, false, true, false];
    let frontier = [3, 5, 7];
    let mut all = vec![Attributed::default(); parents.len()];
    for (call, idle_ns) in frontier.into_iter().zip([3.0, 4.0, 5.0]) {
        all[call].idle_ns = idle_ns;
    }
    blame(&tree(&parents), &mut all, &balanced, |id| frontier.contains(&id));
    let blames: Vec<(f64, f64)> = all.iter().map(|it| it.blame_ns).collect();
    assert_eq!(blames[1], (7.0, 7.0), "solve is balanced, so what it calls is not");
    assert_eq!(blames[6], (5.0, 5.0));
    assert_eq!(blames[0], (12.0, 0.0), "nothing is blamed twice");
    assert!(blames[2..6].iter().all(|blame| *blame == (0.0, 0.0)));
}

/// SC10, footnote 3 and II-C: a procedure's blame includes its loops, and is also given as a
/// fraction of all blame.
#[test]
fn a_procedure_is_blamed_with_its_loops() {
    let mut contexts = Contexts::default();
    let [recv, send] =
        ["main/solve/loop/MPI_Recv", "main/write/MPI_Send"].map(|it| contexts.node(it) as usize);
    let [main, solve, a_loop, write] = ["main", "main/solve", "main/solve/loop", "main/write"]
        .map(|it| contexts.node(it) as usize);
    let mut all = vec![Attributed::default(); contexts.tree.nodes.len()];
    (all[recv].idle_ns, all[send].idle_ns) = (3.0, 1.0);
    let balanced: Vec<bool> = (0..all.len()).map(|id| id != recv && id != send).collect();
    blame(&contexts.tree, &mut all, &balanced, |id| id == recv || id == send);
    let blames = [main, solve, a_loop, write].map(|id| (all[id].blame_ns, all[id].blame_fraction));
    let truth = [((4.0, 0.0), 1.0), ((3.0, 3.0), 0.75), ((3.0, 3.0), 0.75), ((1.0, 1.0), 0.25)];
    assert_eq!(blames, truth);
}
