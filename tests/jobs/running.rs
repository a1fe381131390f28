//! `plimsoll top`: a job is shown while it runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_summary::Summary;
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject_job::{Job, Watch};

/// Maximum time until a job has samples on disk.
const MAX_START: Duration = Duration::from_secs(20);

/// Maximum duration of the job, which ends when enough views were seen.
const LIMIT: Duration = Duration::from_secs(120);

const RUNNING: &str = "RUNNING: this is what was measured so far.";
const MIN_VIEWS: usize = 3;

fn top(directory: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(&artifacts().command);
    command.arg("top").arg(directory).args(options);
    command
}

fn top_once(directory: &Path, options: &[&str]) -> Output {
    top(directory, &[&["--once"], options].concat()).output().expect("the command starts")
}

/// Returns the first summary of the running job that names a loss.
fn first_loss(directory: &Path) -> Summary {
    let begin = Instant::now();
    loop {
        let output = top_once(directory, &["--json"]);
        match Summary::from_json(&output.stdout) {
            Ok(summary) if !summary.losses.is_empty() => return summary,
            _ if begin.elapsed() > MAX_START => panic!("no loss is shown: {output:?}"),
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Watches the job until it ends, and ends it after [`MIN_VIEWS`] views of a running job. Returns
/// the number of these views, and the outcome with the rest of stdout.
fn watch(directory: &Path) -> (usize, Output) {
    let mut command = top(directory, &["--every", "300ms"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = command.spawn().expect("the command starts");
    let stdout = watching.stdout.take().expect("stdout is a pipe");
    let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("the views are text"));
    let views = lines.by_ref().filter(|line| line.contains(RUNNING)).take(MIN_VIEWS).count();
    fs::write(directory.join("stop"), "").expect("the job's directory can be written");
    lines.for_each(drop);
    (views, watching.wait_with_output().expect("the command was started"))
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_running_job_is_shown_with_its_losses_until_it_ends() {
    needs!(Mpi::OpenMpi);
    // Built before the job begins.
    artifacts();
    let scratch = Scratch::new("running");
    let directory = scratch.path().to_owned();
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 1200 20 3 stop");
    let job = job.watch(Watch::Run).shares_cores().limit(LIMIT);
    let (job, so_far, (views, watched)) = thread::scope(|scope| {
        let job = scope.spawn(|| job.run_in(scratch).succeeded());
        // Other jobs come first, for any time.
        while !directory.join("stdout").exists() && !job.is_finished() {
            thread::sleep(Duration::from_millis(100));
        }
        let so_far = first_loss(&directory);
        let watched = watch(&directory);
        (job.join().expect("the job succeeds"), so_far, watched)
    });
    assert_eq!(so_far.run.ended, "running");
    assert!(!so_far.run.complete && so_far.run.ranks == 4);
    assert_eq!(so_far.losses[0].slow_ranks, "3", "{so_far:#?}");
    assert!(so_far.run.elapsed_s < job.summary().number("/run/elapsed_s"));

    assert!(watched.status.success(), "{watched:?}");
    assert_eq!(views, MIN_VIEWS, "{watched:?}");
    let said = String::from_utf8_lossy(&watched.stderr);
    assert!(said.contains("the run has ended; its report: "), "{said}");

    let ended = top_once(&directory, &[]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
}
