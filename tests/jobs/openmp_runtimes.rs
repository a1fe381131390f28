//! Parallel regions under each OpenMP runtime: found with their source lines, threads and times, in
//! C, C++ and Fortran, and left to another tool where there is one.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use plimsoll_tests::artifacts::target_dir;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime, team};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::number;
use plimsoll_tests::truth::{Truth, assert_within};

/// Maximum difference between a time in the summary and the subject's own.
const TOLERANCE: f64 = 0.10;

fn watched(subject: &str, language: Language, runtime: OpenMpRuntime, arguments: &str) -> Job {
    let job = Job::alone(subject).form(Form::OpenMp(language, runtime)).arguments(arguments);
    team(job.variable("OMP_CANCELLATION", "true"), 4).watch(Watch::Run)
}

/// Returns the sum of a number over the entries for the region that the truth names.
fn sum(job: &Outcome, truth: &Truth, key: &str) -> f64 {
    regions(job, truth).iter().map(|region| number(region, key)).sum()
}

/// Returns the entries for the region that the truth names: one for each call path. GCC gives some
/// regions the line of their first statement, below the directive.
fn regions<'j>(job: &'j Outcome, truth: &Truth) -> Vec<&'j Value> {
    let file = truth.text("file").expect("a subject with OpenMP names its file");
    let all = job.summary().at("/openmp/regions").as_array().expect("a list");
    let is_it = |region: &&Value| {
        region["file"].as_str().is_some_and(|path| path.ends_with(file))
            && [0.0, 1.0].contains(&(number(region, "line") - truth.number("line")))
    };
    let found: Vec<_> = all.iter().filter(is_it).collect();
    assert!(!found.is_empty(), "no region at {file}:{}: {all:#?}", truth.number("line"));
    found
}

/// Asserts that the summary has the region that the subject names, with its threads and times.
fn assert_region(job: &Outcome, runtime: OpenMpRuntime) {
    let truth = job.truth();
    assert_eq!(job.summary().text("/openmp/runtime"), runtime.name());
    assert_eq!(job.summary().number("/openmp/unmeasured"), 0.0);
    let ranks = truth.number("ranks");
    assert_eq!(sum(job, &truth, "instances"), ranks * truth.number("instances"));
    let threads = regions(job, &truth).iter().map(|it| number(it, "threads")).fold(0.0, f64::max);
    assert_eq!(threads, truth.number("threads"));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn regions_under_each_runtime_have_their_line_threads_and_imbalance() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for language in Language::ALL {
            for kind in ["static", "dynamic", "guided"] {
                let arguments = format!("sleep 20 10 3 {kind}");
                let job = watched("openmp_kinds", language, runtime, &arguments);
                job.run_until(|job| {
                    assert_region(job, runtime);
                    let truth = job.truth();
                    let of = |key| sum(job, &truth, key);
                    let what = format!("{kind}, {language:?}, {runtime}");
                    let imbalance_s = truth.number("imbalance_s");
                    assert_within(&what, of("imbalance_s"), imbalance_s, TOLERANCE);
                    assert_within(&what, of("elapsed_s"), truth.number("region_s"), TOLERANCE);
                    let [region] = regions(job, &truth)[..] else { panic!("{what}: several") };
                    let shares = region["shares"].as_array().expect("a list");
                    for (share, work_s) in shares.iter().zip(truth.numbers("work_s")) {
                        assert_within(&what, number(share, "work_s"), work_s, TOLERANCE);
                    }
                });
            }
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waits_for_sections_and_locks_are_no_work() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for (subject, kind) in [
            ("openmp_kinds", "critical"),
            ("openmp_kinds", "convoy"),
            ("openmp_shapes", "ordered"),
            ("openmp_shapes", "nest_lock"),
        ] {
            let arguments = format!("sleep 20 10 3 {kind}");
            watched(subject, Language::C, runtime, &arguments).run_until(|job| {
                assert_region(job, runtime);
                let truth = job.truth();
                let waited_s = truth.number("waited_s") * truth.number("threads");
                let found_s = sum(job, &truth, "lock_s");
                assert_within(&format!("{kind}, {runtime}"), found_s, waited_s, TOLERANCE);
            });
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn regions_of_unusual_shapes_are_counted() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for shape in ["cancel", "changes", "in_tasks", "target", "sections", "single"] {
            let arguments = format!("sleep 10 5 3 {shape}");
            let job = watched("openmp_shapes", Language::C, runtime, &arguments);
            assert_region(&job.shares_cores().run().succeeded(), runtime);
        }
        // GCC gives an outlined function of one call the line of that call, not of its pragma.
        let kinds = if runtime == OpenMpRuntime::Gomp { 1 } else { 2 };
        for kind in &["nested", "regions"][..kinds] {
            let job = watched("openmp_kinds", Language::C, runtime, &format!("sleep 2 5 1 {kind}"));
            assert_region(&job.shares_cores().run().succeeded(), runtime);
        }
        let job = watched("openmp_shapes", Language::C, runtime, "sleep 10 5 3 stop");
        let job = job.shares_cores().run().succeeded();
        assert_eq!(job.summary().text("/openmp/runtime"), runtime.name());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn four_ranks_with_threads_add_up() {
    needs!(Mpi::OpenMpi);
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        let job = Job::ranks("openmp_kinds", Mpi::OpenMpi, 4)
            .form(Form::OpenMp(Language::C, runtime))
            .arguments("sleep 20 20 3 static");
        team(job, 4).watch(Watch::Run).run_until(|job| {
            assert_region(job, runtime);
            let truth = job.truth();
            // The truth is the mean over ranks.
            let imbalance_s = truth.number("ranks") * truth.number("imbalance_s");
            let found_s = sum(job, &truth, "imbalance_s");
            assert_within(&format!("imbalance, {runtime}"), found_s, imbalance_s, TOLERANCE);
        });
    }
}

#[test]
fn spinning_threads_wait_as_sleeping_ones() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        let job = Job::alone("openmp_kinds")
            .form(Form::OpenMp(Language::C, runtime))
            .arguments("burn 20 10 3 static")
            .variable("OMP_NUM_THREADS", "2")
            .variable("OMP_WAIT_POLICY", "active")
            .watch(Watch::Run);
        job.run_until(|job| {
            assert_region(job, runtime);
            let truth = job.truth();
            let found_s = sum(job, &truth, "imbalance_s");
            assert_within("imbalance", found_s, truth.number("imbalance_s"), TOLERANCE);
        });
    }
}

/// libomp under the name of GCC's runtime, as some distributions of Python install it.
#[test]
#[ignore = "long: scripts/test --all"]
fn a_runtime_is_recognised_under_the_name_of_another_one() {
    for runtime in
        [OpenMpRuntime::Llvm, OpenMpRuntime::Intel].into_iter().filter(|it| it.available())
    {
        let folder = target_dir().join("subjects").join(format!("as-libgomp-{}", runtime.name()));
        fs::create_dir_all(&folder).expect("the target directory can be written");
        let link = folder.join("libgomp.so.1");
        let library = runtime.library().expect("a runtime of its own library");
        if fs::read_link(&link).ok().as_ref() != Some(&library) {
            let _ = fs::remove_file(&link);
            symlink(&library, &link).expect("the folder can be written");
        }
        let job = watched("openmp_kinds", Language::C, OpenMpRuntime::Gomp, "sleep 10 5 3 static");
        let job = job.variable("LD_LIBRARY_PATH", &folder).shares_cores().run().succeeded();
        assert_region(&job, runtime);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_runtime_is_left_to_another_tool() {
    let runtime = OpenMpRuntime::Llvm;
    needs!(runtime);
    let library = {
        let _job_lock = plimsoll_tests::job_lock::lock_exclusively();
        executable("openmp_tool", Form::Library, None)
    };
    let job = watched("openmp_kinds", Language::C, runtime, "sleep 5 5 3 static").shares_cores();
    for variable in ["OMP_TOOL_LIBRARIES", "LD_PRELOAD"] {
        let job = job.clone().variable(variable, &library).run().succeeded();
        assert!(job.other_lines().contains(&"openmp_tool: 5 regions"), "{}", job.transcript());
        let said = job.plimsoll_messages();
        let is_it = |line: &&String| line.contains("has another tool");
        assert_eq!(said.iter().filter(is_it).count(), 1, "{}", job.transcript());
        let summary = job.summary();
        assert!(summary.has_no_openmp(), "{}", job.text());
        // The tool receives return addresses of calls, which must not be those of marks.
        let reason = summary.text("/collection/marks/off_reason");
        assert!(reason.contains("another tool"), "{reason}");
    }
    let unmeasured = job.clone().variable("LD_PRELOAD", &library);
    let unmeasured = unmeasured.variable("PLIMSOLL_OPENMP", "off").run().succeeded();
    let summary = unmeasured.summary();
    let reason = summary.value().pointer("/collection/marks/off_reason");
    assert!(reason.is_some_and(|it| it.to_string().contains("another tool")), "{reason:?}");
    let job = job.variable("OMP_TOOL", "disabled").run().succeeded();
    assert!(job.summary().has_no_openmp(), "{}", job.text());
}

#[test]
fn a_tool_of_the_program_receives_no_address_of_a_mark() {
    for runtime in
        [OpenMpRuntime::Llvm, OpenMpRuntime::Intel].into_iter().filter(|it| it.available())
    {
        let job = watched("openmp_own_tool", Language::C, runtime, "burn 1 50").shares_cores();
        let job = job.variable("PLIMSOLL_PERIOD", "1ms");
        let without = |setting: &str| job.clone().variable(setting, "off");
        for job in [job.clone(), without("PLIMSOLL_OPENMP"), without("PLIMSOLL_REGIONS")] {
            let job = job.run().succeeded();
            let truth = job.truth();
            let found = (truth.number("locks"), truth.number("in_program"));
            assert_eq!(found, (1.0, 1.0), "{}", job.transcript());
            let reason = job.summary().text("/collection/marks/off_reason");
            assert!(reason.contains("another tool"), "{reason}");
        }
    }
}

#[test]
fn without_the_setting_there_is_no_tool() {
    needs!(OpenMpRuntime::Llvm);
    let job = watched("openmp_kinds", Language::C, OpenMpRuntime::Llvm, "sleep 5 5 3 static");
    let job = job.variable("PLIMSOLL_OPENMP", "off").shares_cores().run().succeeded();
    assert!(job.summary().has_no_openmp(), "{}", job.text());
}
