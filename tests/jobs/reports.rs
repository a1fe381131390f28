//! Output of a run for the user: a few lines on stderr, nothing on stdout, files with known names.

use std::path::Path;

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::per_rank_check::PerRank;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::truth::assert_within;

/// Returns an imbalanced job for each MPI. Where samples do not matter it sleeps, which needs no
/// core.
fn jobs(mode: &str) -> impl Iterator<Item = Job> {
    let arguments = format!("{mode} 30 10 3");
    each_mpi()
        .map(move |mpi| Job::ranks("imbalance", mpi, 2).arguments(&arguments).watch(Watch::Run))
}

#[test]
#[ignore = "long: scripts/test --all"]
fn few_lines_on_stderr_end_with_the_report() {
    for job in jobs("sleep") {
        let job = job.run_until(|job| {
            let verdict = job.plimsoll_messages().join("\n");
            assert!(verdict.contains("work_uneven"), "no cause is named:\n{verdict}");
        });
        let lines = job.plimsoll_lines();
        assert!((1..=20).contains(&lines.len()), "{} lines: {}", lines.len(), job.transcript());
        let report = job.files_ending(".plimsoll.txt").remove(0);
        let name = report.file_name().expect("a file has a name").to_string_lossy();
        assert!(
            lines.last().is_some_and(|last| last.contains(&*name)),
            "the last line does not name {name}: {}",
            job.transcript()
        );
    }
}

#[test]
fn the_text_puts_the_verdict_first_and_fits_a_screen() {
    for job in jobs("sleep") {
        let job = job.run_until(|job| {
            let text = job.text();
            let beginning = text.lines().take(12).collect::<Vec<_>>().join("\n");
            for word in ["imbalance", "work_uneven", "MPI_Allreduce"] {
                assert!(beginning.contains(word), "{word} is not at the beginning:\n{text}");
            }
        });
        let text = job.text();
        assert!(text.lines().count() <= 50, "more than a screen:\n{text}");
        // A batch log shows escape sequences as garbage.
        assert!(!text.contains('\x1b'), "escape sequences in a file:\n{text}");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn files_are_named_after_program_job_ranks_and_time() {
    for job in jobs("sleep") {
        let job = job.shares_cores().run().succeeded();
        for ending in ["txt", "json"] {
            let files = job.files_ending(&format!(".plimsoll.{ending}"));
            assert_eq!(files.len(), 1, "{}", job.transcript());
            let name = files[0].file_name().expect("a file has a name").to_string_lossy();
            let parts: Vec<_> = name.split('.').next().unwrap_or_default().split('_').collect();
            let [program, job_id, ranks, time] = parts[..] else { panic!("{name}") };
            assert_eq!((program, ranks), ("imbalance", "2p"), "{name}");
            assert!(!job_id.is_empty() && is_time(time), "{name}");
        }
    }
}

/// YYYYMMDDThhmmss
fn is_time(text: &str) -> bool {
    let digits =
        |part: &str, count| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('T').is_some_and(|(day, time)| digits(day, 8) && digits(time, 6))
}

#[test]
fn a_second_run_overwrites_nothing() {
    let name = "named-%e-%n";
    let job = Job::alone("plain").arguments("burn 10 10").watch(Watch::Run);
    let job = job.variable("PLIMSOLL_OUTPUT", name).shares_cores();
    let first = job.run().succeeded();
    let (before, read) = (first.files(), |path: &Path| std::fs::read(path).ok());
    let contents: Vec<_> = before.iter().map(|path| read(path)).collect();
    assert!(
        before.iter().any(|path| path.to_string_lossy().contains("named-plain-1")),
        "{before:?}"
    );
    let second = job.run_in(first.into_scratch()).succeeded();
    assert!(second.files().len() > before.len(), "the second run left no report of its own");
    for (path, content) in before.iter().zip(&contents) {
        assert_eq!(&read(path), content, "{} was overwritten", path.display());
    }
}

/// Returns the per-rank file. Reading it has checked that it agrees with the tree.
fn per_rank(job: &Outcome) -> &PerRank {
    job.summary().per_rank().expect("there is a file")
}

#[test]
fn the_times_of_single_ranks_are_beside_the_summary() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 20 10 3");
    let job = job.watch(Watch::Run).run_until(|job| {
        let mut work_s = [0.0; 4];
        for function in ["work_even", "work_uneven"] {
            for node in job.summary().of_function(function).nodes {
                let times = per_rank(job).of(node as u64, "inclusive_s");
                let times = times.expect("all are in it");
                work_s.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
            }
        }
        let truth = job.truth().numbers("work_s");
        for (rank, (work_s, true_s)) in work_s.iter().zip(truth).enumerate() {
            assert_within(&format!("work of rank {rank}"), *work_s, true_s, 0.05);
        }
    });
    assert_eq!(per_rank(&job).ranks(), [0, 1, 2, 3]);
    let file = job.files_ending(".plimsoll.npz").remove(0);
    assert_eq!(file.file_name(), Some(job.summary().text("/per_rank/file").as_ref()));
    assert!(file.with_extension("json").is_file(), "{}", job.transcript());
}

#[test]
fn its_own_cost_is_told_and_small() {
    for job in jobs("burn") {
        job.run_until(|job| {
            let of = |name: &str| job.summary().number(name);
            let elapsed_s = of("/run/elapsed_s");
            let collector_s = of("/collection/collector_cpu_s");
            let sampling_s = of("/collection/sampling_cpu_s");
            let both_s = 2.0 * elapsed_s;
            assert!(sampling_s > 0.0 && sampling_s < 0.05 * both_s, "{sampling_s} s sampling");
            assert!(
                collector_s > 0.0 && collector_s < 0.2 * elapsed_s,
                "{collector_s} s collecting"
            );
            assert!(of("/collection/finalize_s") < 10.0);
        });
    }
}
