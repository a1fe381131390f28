//! `plimsoll top`: a job is shown while it runs.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_summary::Summary;
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject_job::{Job, Watch};

/// Maximum time until a job has samples on disk.
const MAX_START: Duration = Duration::from_secs(20);

fn top(directory: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(&artifacts().command);
    command.arg("top").arg(directory).args(options);
    command.output().expect("the command starts")
}

/// Returns the first summary of the running job that names a loss.
fn first_loss(directory: &Path) -> Summary {
    let begin = Instant::now();
    loop {
        let output = top(directory, &["--once", "--json"]);
        match Summary::from_json(&output.stdout) {
            Ok(summary) if !summary.losses.is_empty() => return summary,
            _ if begin.elapsed() > MAX_START => panic!("no loss is shown: {output:?}"),
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_running_job_is_shown_with_its_losses_until_it_ends() {
    needs!(Mpi::OpenMpi);
    // Built before the job begins.
    artifacts();
    let scratch = Scratch::new("running");
    let directory = scratch.path().to_owned();
    let job =
        Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 120 20 3").watch(Watch::Run);
    let (job, so_far, watched) = thread::scope(|scope| {
        let job = scope.spawn(|| job.shares_cores().run_in(scratch).succeeded());
        let so_far = first_loss(&directory);
        let watched = top(&directory, &["--every", "300ms"]);
        (job.join().expect("the job succeeds"), so_far, watched)
    });
    assert_eq!(so_far.run.ended, "running");
    assert!(!so_far.run.complete && so_far.run.ranks == 4);
    assert_eq!(so_far.losses[0].slow_ranks, "3", "{so_far:#?}");
    assert!(so_far.run.elapsed_s < job.summary().number("/run/elapsed_s"));

    let text = String::from_utf8_lossy(&watched.stdout);
    assert!(watched.status.success(), "{watched:?}");
    assert!(text.matches("RUNNING: this is what was measured so far.").count() >= 3, "{text}");
    let said = String::from_utf8_lossy(&watched.stderr);
    assert!(said.contains("the run has ended; its report: "), "{said}");

    let ended = top(&directory, &["--once"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
}
