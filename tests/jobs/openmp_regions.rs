//! Parallel regions of OpenMP under GCC's runtime: found with their source lines, with the work and
//! the idle time of each thread.

use serde_json::Value;

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::number;
use plimsoll_tests::truth::assert_within;

/// GCC with its OpenMP runtime.
const GCC: Form = Form::By("mpicc", &["-O2", "-fopenmp"]);

const TOLERANCE: f64 = 0.10;

fn job(ranks: u32, threads: u32, how: &str) -> Job {
    Job::ranks("openmp_regions", Mpi::OpenMpi, ranks)
        .form(GCC)
        .arguments(&format!("sleep 30 10 3 {how}"))
        .variable("OMP_NUM_THREADS", threads.to_string())
        .watch(Watch::Run)
}

/// Returns the regions of the summary.
fn regions(job: &Outcome) -> &[Value] {
    job.summary().at("/openmp/regions").as_array().expect("a list")
}

/// Returns the function above a context in the tree of call paths.
fn caller(job: &Outcome, node: u64) -> &str {
    let parent = job.summary().number(&format!("/tree/nodes/{node}/parent"));
    let frame = job.summary().number(&format!("/tree/nodes/{parent}/frame"));
    job.summary().text(&format!("/tree/frames/{frame}/function"))
}

/// Returns the line of the subject with the first pragma after the beginning of `function`.
fn pragma_line(function: &str) -> u64 {
    let source = include_str!("../programs/openmp_regions.c");
    let lines = || source.lines().zip(1..);
    let begins = |line: &str| line.contains(&format!("SHOWN void {function}("));
    let (_, begin) = lines().find(|(line, _)| begins(line)).expect("the function exists");
    let is_pragma = |(line, at): &(&str, u64)| *at > begin && line.starts_with("#pragma omp");
    lines().find(is_pragma).expect("it has a region").1
}

/// Asserts that the only region is that of `function`, with the threads, instances and times that
/// the subject reports.
fn assert_region(job: &Outcome, function: &str) -> Value {
    let truth = job.truth();
    let [region] = regions(job) else { panic!("{:#?}", regions(job)) };
    assert_eq!(region["function"], format!("{function}._omp_fn.0"));
    assert!(
        region["file"].as_str().is_some_and(|file| file.ends_with("openmp_regions.c")),
        "{region}"
    );
    assert_eq!(region["line"], pragma_line(function), "{region}");
    assert_eq!(number(region, "threads"), truth.number("threads"));
    assert_eq!(number(region, "instances"), truth.number("instances"));
    assert_within("elapsed", number(region, "elapsed_s"), truth.number("region_s"), TOLERANCE);
    assert_within("work", number(region, "work_s"), truth.number("work_s"), TOLERANCE);
    let idle_s = number(region, "thread_s") - number(region, "work_s");
    let parts = number(region, "scheduling_s") + number(region, "load_balance_s");
    assert!((parts - idle_s).abs() < 1e-6, "{region}");
    let shares = region["shares"].as_array().expect("a list");
    let work = truth.numbers("work_by_thread_s");
    assert_eq!(shares.len(), work.len());
    for (share, work_s) in shares.iter().zip(work) {
        assert_within("work of a thread", number(share, "work_s"), work_s, TOLERANCE);
    }
    region.clone()
}

#[test]
fn uneven_threads_of_a_static_loop_are_found_with_their_line() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "static").run_until(|job| {
        let region = assert_region(job, "uneven_static");
        let (found, truth) = (number(&region, "imbalance_s"), job.truth());
        assert_within("imbalance", found, truth.number("imbalance_s"), TOLERANCE);
        assert_within(
            "load balance",
            number(&region, "load_balance_s"),
            truth.number("idle_s"),
            TOLERANCE,
        );
    });
}

#[test]
fn uneven_threads_of_a_dynamic_loop_are_found() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "dynamic").run_until(|job| {
        let region = assert_region(job, "uneven_dynamic");
        let (found, truth) = (number(&region, "imbalance_s"), job.truth());
        assert_within("imbalance", found, truth.number("imbalance_s"), TOLERANCE);
    });
}

#[test]
fn waits_in_a_barrier_are_no_work() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "barrier").run_until(|job| {
        let region = assert_region(job, "uneven_before_barrier");
        let (found, truth) = (number(&region, "barrier_s"), job.truth());
        assert_within("barriers", found, truth.number("idle_s"), TOLERANCE);
        let waits = job.summary().of_function("GOMP_barrier");
        assert!(waits.calls >= 4.0 * truth.number("instances"), "{}", job.text());
    });
}

#[test]
fn a_barrier_that_a_region_ends_by_a_jump_to_is_no_work() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "end").run_until(|job| {
        let region = assert_region(job, "uneven_before_end");
        let (found, truth) = (number(&region, "barrier_s"), job.truth());
        assert_within("barriers", found, truth.number("idle_s"), TOLERANCE);
        let waits = job.summary().of_function("GOMP_barrier");
        assert!(waits.calls >= 4.0 * truth.number("instances"), "{}", job.text());
        for node in waits.nodes {
            assert_eq!(caller(job, node as u64), "uneven_before_end._omp_fn.0");
        }
    });
}

#[test]
fn waits_of_tasks_for_their_children_are_no_work() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "tasks").run_until(|job| {
        assert_region(job, "waits_in_tasks");
    });
}

#[test]
fn waits_for_a_critical_section_are_no_work() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "critical").run_until(|job| {
        let region = assert_region(job, "one_after_the_other");
        // Of four threads, the first does not wait, and the last waits for three others.
        let truth_s = job.truth().number("critical_s") * 6.0 / 4.0;
        assert_within("locks", number(&region, "lock_s"), truth_s, TOLERANCE);
    });
}

#[test]
fn even_threads_have_no_imbalance() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "even").run_until(|job| {
        let region = assert_region(job, "even");
        let fraction = number(&region, "imbalance_s") / number(&region, "elapsed_s");
        assert!(fraction < 0.1, "{region}");
    });
}

#[test]
fn ranks_with_threads_add_up_and_their_mpi_is_told_apart() {
    needs!(Mpi::OpenMpi);
    job(2, 2, "mpi").run_until(|job| {
        let [region] = regions(job) else { panic!("{:#?}", regions(job)) };
        assert_eq!(region["ranks"], "0-1");
        let instances = job.truth().number("instances");
        assert_eq!(number(region, "instances"), 2.0 * instances);
        // Rank 0 waits in MPI_Barrier for rank 1, which works three times as long.
        assert_within("MPI", number(region, "mpi_s"), instances * 0.030, 0.15);
    });
}

#[test]
fn threads_work_below_the_call_path_that_makes_the_region() {
    needs!(Mpi::OpenMpi);
    job(1, 4, "static").run_until(|job| {
        let outlined = job.summary().of_function("uneven_static._omp_fn.0");
        assert!(!outlined.nodes.is_empty(), "{}", job.text());
        for node in outlined.nodes {
            assert_eq!(caller(job, node as u64), "uneven_static");
        }
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn every_construct_gives_the_same_results() {
    for threads in ["1", "3", "8"] {
        for cancellation in ["true", "false"] {
            let job = Job::alone("openmp_constructs")
                .form(Form::By("gcc", &["-O2", "-fopenmp"]))
                .arguments("sleep 3")
                .variable("OMP_NUM_THREADS", threads)
                .variable("OMP_CANCELLATION", cancellation);
            let alone = job.clone().run().succeeded();
            let watched = job.watch(Watch::Run).run().succeeded();
            watched.assert_same_as(&alone);
            // In each of three passes. Waits for iterations before the first one are no calls.
            for (wait, count) in [("GOMP_doacross_wait", 1112.0), ("GOMP_doacross_ull_wait", 23.0)]
            {
                // The function in the runtime has the name of the call, and its calls are sampled.
                let nodes = watched.summary().of_function(wait).nodes;
                let nodes = nodes.iter().map(|at| &watched.summary().value()["tree"]["nodes"][at]);
                let counted = nodes.filter(|node| node["calls_exact"] == true);
                let calls: f64 = counted.map(|node| number(node, "calls")).sum();
                assert_eq!(calls, 3.0 * count, "{wait}");
            }
            let tasks = watched.summary().at("/openmp/tasks").as_array().expect("a list");
            let of_fib = |task: &&Value| {
                task["function"].as_str().is_some_and(|name| name.starts_with("fib._omp_fn"))
            };
            // Each call of fib(20) with more than one as its argument makes two tasks.
            let count: f64 = tasks.iter().filter(of_fib).map(|task| number(task, "count")).sum();
            assert_eq!(count, 3.0 * 21_890.0, "{tasks:#?}");
        }
    }
}

#[test]
fn without_openmp_nothing_is_redirected() {
    needs!(Mpi::OpenMpi);
    let job = job(1, 2, "static").variable("PLIMSOLL_OPENMP", "off").run().succeeded();
    assert!(job.summary().has_no_openmp(), "{}", job.text());
}
