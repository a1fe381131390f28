//! Limits and descriptors belong to the program: Plimsoll's own writes raise no signal and go to
//! none of the program's files.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Runs a job unwatched and watched, and compares both.
#[track_caller]
fn watched(job: &Job) -> Outcome {
    let job = job.clone().shares_cores();
    let plain = job.run();
    assert!(plain.status().success(), "{}", plain.transcript());
    let watched = job.watch(Watch::Run).run();
    watched.assert_same_as(&plain);
    watched
}

/// Returns the subject alone, and in one and in two ranks.
fn each(arguments: &str) -> impl Iterator<Item = Job> {
    let ranks = each_mpi().flat_map(|mpi| [1, 2].map(|ranks| Job::ranks("limits", mpi, ranks)));
    let jobs: Vec<Job> = [Job::alone("limits")].into_iter().chain(ranks).collect();
    let arguments = arguments.to_owned();
    jobs.into_iter().map(move |job| job.arguments(&arguments))
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_limit_on_the_size_of_files_leaves_fewer_threads_to_be_sampled() {
    // A limit of 18 MiB per file leaves room for 15 of 25 threads at a time.
    let job = watched(&Job::alone("limits").arguments("size 18432"));
    let summary = job.summary();
    assert!(summary.number("/collection/unsampled_threads") > 0.0, "{}", job.transcript());
    assert!(summary.of_function("work_of_many").mean_s > 0.0, "{}", job.transcript());
    assert_eq!(watched(&Job::alone("limits").arguments("size 102400")).summaries().len(), 1);
}

#[test]
fn a_program_whose_files_may_be_too_small_for_the_measurement_is_left_alone() {
    for kibibytes in [4, 1024, 12000] {
        let job = watched(&Job::alone("limits").arguments(&format!("size {kibibytes}")));
        let lines = job.plimsoll_lines();
        assert!(
            lines.len() == 1 && lines[0].contains("raise `ulimit -f` to 148"),
            "{}",
            job.transcript()
        );
        assert!(job.files().is_empty(), "{}", job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_program_with_little_address_space_is_left_alone() {
    // MPICH needs 100 MB for itself, Open MPI more.
    for kibibytes in [250_000, 400_000] {
        for job in each(&format!("space {kibibytes}")) {
            let job = watched(&job);
            let lines = job.plimsoll_lines();
            let says = |what: &str| lines.iter().any(|line| line.contains(what));
            let left_alone = says("raise `ulimit -v` to ");
            // With 400 MB, what Open MPI needs varies about what is left beside the measurement.
            let gave_up = says("the program has little or no address space left");
            let reports = !job.files().is_empty();
            assert!(gave_up || left_alone != reports, "{}", job.transcript());
            assert!(left_alone || kibibytes > 300_000, "{}", job.transcript());
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_report_that_is_too_large_for_the_limit_harms_nobody() {
    let spread = Job::ranks("limits", Mpi::Mpich, 2).nodes(2).arguments("late 1000");
    // Ranks that gather over several nodes write on the program's own thread.
    for job in each("late 1000").chain(Mpi::Mpich.available().then_some(spread)) {
        let job = watched(&job);
        let messages = job.plimsoll_messages();
        let says = messages.iter().any(|message| message.contains("File too large"));
        assert!(says, "{}", job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn lines_that_nobody_reads_harm_nobody() {
    for job in each("unread") {
        // With a warning, which is written on the program's own thread.
        let job =
            watched(&job.variable("PLIMSOLL_PERIOD", "soon").variable("PLIMSOLL_VERBOSE", "2"));
        assert!(!job.summaries().is_empty(), "{}", job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn lines_do_not_go_to_a_file_that_has_the_number_of_stderr() {
    for job in each("stderr") {
        let job = watched(&job.variable("PLIMSOLL_VERBOSE", "2"));
        assert!(!job.summaries().is_empty(), "{}", job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn files_under_the_numbers_of_closed_descriptors_are_left_alone() {
    for job in each("descriptors") {
        let job = watched(&job);
        for summary in job.summaries() {
            // A new thread is sampled, and the existing ones still are.
            for function in ["work_of_late", "work_later", "work_of_waiter"] {
                let found_s = summary.of_function(function).mean_s;
                assert!(found_s > 0.0, "{function}: {}", job.transcript());
            }
        }
    }
}

#[test]
fn a_thread_may_forbid_itself_system_calls() {
    let of = |arguments| Job::alone("strict").arguments(arguments).shares_cores();
    for (arguments, status) in [("alone", 5), ("beside", 0)] {
        let (plain, watched) = (of(arguments).run(), of(arguments).watch(Watch::Run).run());
        assert_eq!(plain.status().code(), Some(status), "{}", plain.transcript());
        watched.assert_same_as(&plain);
        assert_eq!(watched.summaries().len(), 1, "{}", watched.transcript());
    }
}

/// Runs the subject of filters unwatched and watched. The watched one must end in the same way, and
/// report in one line that it is measured until the filter is set.
#[track_caller]
fn filtered(job: &Job, reports: usize) {
    let job = job.clone().shares_cores();
    let (plain, watched) = (job.run(), job.clone().watch(Watch::Run).run());
    watched.assert_same_as(&plain);
    let lines = watched.plimsoll_lines();
    let said = lines.iter().filter(|line| line.contains("(seccomp)")).count();
    assert_eq!((said, watched.summaries().len()), (reports, reports), "{}", watched.transcript());
    for summary in watched.summaries() {
        assert_eq!(summary.text("/run/ended"), "seccomp filter", "{}", watched.transcript());
        let seconds = |function| summary.of_function(function).mean_s;
        assert!(seconds("work_before") > 0.0, "{}", watched.transcript());
        // Another rank may be ahead of the one that ends the run.
        assert!(seconds("work_after") == 0.0 || job.has_ranks(), "{}", watched.transcript());
    }
}

#[test]
fn a_program_that_forbids_itself_the_time_stamp_counter_is_measured_until_then() {
    for (arguments, status) in [("return", 4), ("exit", 3)] {
        let job = Job::alone("clockless").arguments(arguments).shares_cores();
        let (plain, watched) = (job.run(), job.watch(Watch::Run).options("--period 200us").run());
        assert_eq!(plain.status().code(), Some(status), "{}", plain.transcript());
        watched.assert_same_as(&plain);
        let lines = watched.plimsoll_lines();
        let said = lines.iter().filter(|line| line.contains("(PR_SET_TSC)")).count();
        assert_eq!(said, 1, "{}", watched.transcript());
        let summary = watched.summary();
        assert_eq!(summary.text("/run/ended"), "time stamp counter forbidden");
        let seconds = |function| summary.of_function(function).mean_s;
        assert!(seconds("work_before") > 0.0, "{}", watched.transcript());
        assert_eq!(seconds("work_blindly"), 0.0, "{}", watched.transcript());
    }
}

/// Filters of system calls, as arguments of their subject.
const FILTERS: [&str; 4] = ["prctl kill", "syscall kill", "all kill", "syscall errno"];
/// Ends of a program with a filter.
const ENDS: [&str; 4] = ["return", "exit_group", "fault", "become"];

fn filtered_alone(filter: &str, end: &str) {
    filtered(&Job::alone("filters").arguments(&format!("{filter} {end}")), 1);
}

#[test]
fn a_program_that_filters_its_system_calls_is_measured_until_then() {
    FILTERS.into_iter().for_each(|filter| filtered_alone(filter, ENDS[0]));
    ENDS[1..].iter().for_each(|end| filtered_alone(FILTERS[0], end));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_program_with_any_filter_is_measured_until_then_however_it_ends() {
    for filter in &FILTERS[1..] {
        ENDS[1..].iter().for_each(|end| filtered_alone(filter, end));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_filter_their_system_calls_are_measured_until_then() {
    for mpi in each_mpi() {
        let of = |arguments| Job::ranks("filters", mpi, 2).arguments(arguments);
        for arguments in ["all kill return", "syscall errno return", "syscall kill return 0"] {
            filtered(&of(arguments), 1);
        }
        filtered(&of("prctl kill return 1"), 1);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn nobody_waits_for_a_rank_of_another_node_that_filters_its_system_calls() {
    needs!(Mpi::Mpich);
    for rank in ["1", "2", ""] {
        let job = Job::ranks("filters", Mpi::Mpich, 4).nodes(2);
        let job = job.arguments(&format!("syscall kill return {rank}")).shares_cores();
        let (plain, watched) = (job.run(), job.watch(Watch::Run).run());
        watched.assert_same_as(&plain);
        assert!(!watched.files_ending(".plimsoll.json").is_empty(), "{}", watched.transcript());
    }
}

#[test]
fn a_report_is_waited_for_while_the_disk_is_busy() {
    let job = watched(&Job::alone("limits").arguments("disk 1500"));
    assert_eq!(job.summaries().len(), 1, "{}", job.transcript());
}

#[test]
fn threads_of_ours_make_room_for_those_of_the_program() {
    let job = watched(&Job::alone("limits").arguments("processes 4"));
    if !job.stdout().contains("limits: no user") {
        let lines = job.plimsoll_lines();
        let said = lines.iter().filter(|line| line.contains("Raise `ulimit -u`")).count();
        assert_eq!(said, 1, "{}", job.transcript());
        assert!(job.summary().of_function("work_of_many").mean_s > 0.0, "{}", job.transcript());
    }
    // With room for all processes, nothing ends early and nothing is reported.
    let job = watched(&Job::alone("limits").arguments("processes 8"));
    assert!(
        !job.plimsoll_lines().iter().any(|line| line.contains("ulimit -u")),
        "{}",
        job.transcript()
    );
}

#[test]
#[ignore = "long: scripts/test --all"]
fn threads_of_ours_have_no_heap_of_the_c_library() {
    // Each such heap takes 64 MiB of the address space, which may be limited.
    let job = watched(&Job::alone("limits").arguments("arenas"));
    assert!(job.stdout().contains("limits: 0 arenas"), "{}", job.transcript());
    assert!(job.summary().number("/collection/samples") > 0.0, "{}", job.transcript());
}

#[test]
#[ignore = "long: scripts/test --all"]
fn memory_that_runs_out_ends_the_measurement_and_not_the_program() {
    // An MPI needs some memory itself, also without Plimsoll.
    let alone = [0, 1024].map(|kib| Job::alone("limits").arguments(&format!("memory {kib}")));
    for job in alone.into_iter().chain(each("memory 4096")) {
        let job = watched(&job);
        let lines = job.plimsoll_lines();
        let said = lines.iter().filter(|line| line.contains("address space left")).count();
        assert!(said > 0, "{}", job.transcript());
        assert!(job.files_ending(".plimsoll.json").is_empty(), "{}", job.transcript());
    }
}
