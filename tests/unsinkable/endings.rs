//! Endings: each way to end at each place, with and without Plimsoll.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::side_by_side::side_by_side;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

use crate::LATER_S;

const WAYS: [&str; 13] = [
    "exit0",
    "exit3",
    "_exit3",
    "abort",
    "mpi_abort",
    "fault",
    "fpe",
    "bus",
    "terminated",
    "usr1",
    "xcpu",
    "kill",
    "stop",
];
const PLACES: [&str; 6] = ["computing", "collective", "init", "finalize", "reduction", "thread"];
const SHORT_WAYS: [&str; 4] = ["exit3", "abort", "terminated", "kill"];
const SHORT_PLACES: [&str; 2] = ["computing", "finalize"];

/// Maximum duration of a job: MPICH's launcher spins for ever if a rank ends in MPI_Init.
const LIMIT: Duration = Duration::from_secs(15);

/// Maximum number of further runs without Plimsoll that may show another status or a longer
/// duration.
const REPEATS: usize = 4;

/// One row of the table.
#[derive(Clone)]
struct Ending {
    mpi: Mpi,
    way: &'static str,
    place: &'static str,
    who: String,
}

/// Prints the table with `at_once` jobs at a time and returns the number of its red rows.
pub fn table(is_short: bool, at_once: usize) -> usize {
    println!(
        "{:<10} {:<11} {:<11} {:<4} {:>8} {:>8} {:>7} {:<9} red because",
        "MPI", "way", "place", "who", "without", "with", "later_s", "recovered"
    );
    let rows = rows(is_short);
    let (mut red, mut late) = (0, Vec::new());
    let print_row = |(ending, row): (&Ending, Row)| {
        // Delays by other jobs on the same cores say nothing, nor do those of launchers, which
        // sometimes wait for a second or two more, with and without Plimsoll.
        if row.red == [LATE] {
            return late.push(ending.clone());
        }
        red += usize::from(!row.red.is_empty());
        println!("{}", row.text);
    };
    side_by_side(&rows, at_once, |ending| (ending, ending.row()), print_row);
    for ending in late {
        let row = ending.row();
        red += usize::from(!row.red.is_empty());
        println!("{}", row.text);
    }
    red
}

fn rows(is_short: bool) -> Vec<Ending> {
    let (ways, places) =
        if is_short { (&SHORT_WAYS[..], &SHORT_PLACES[..]) } else { (&WAYS[..], &PLACES[..]) };
    let mut rows = Vec::new();
    for mpi in each_mpi() {
        let last = (mpi.ranks() - 1).to_string();
        for place in places {
            for way in ways {
                let leader = (!is_short).then(|| "0".to_owned());
                let all = (!is_short && *place == "computing").then(|| "all".to_owned());
                let whos = [Some(last.clone()), leader, all].into_iter().flatten();
                rows.extend(whos.map(|who| Ending { mpi, way, place, who }));
            }
        }
    }
    rows
}

/// Entry of a job that does not end.
const HANGS: &str = "hangs";

/// Entry of a row that is only late.
const LATE: &str = "late";

/// Job that has ended, or the reason why not.
type Ended = Result<Outcome, String>;

/// Result of a row.
struct Row {
    /// Reasons why the row is red.
    red: Vec<&'static str>,
    text: String,
}

impl Ending {
    fn run(&self, watch: Watch) -> Ended {
        let arguments = format!("{} {} {}", self.way, self.place, self.who);
        let job =
            Job::ranks("sinks", self.mpi, self.mpi.ranks()).arguments(&arguments).limit(LIMIT);
        catch_unwind(AssertUnwindSafe(|| job.shares_cores().watch(watch).run())).map_err(|panic| {
            panic.downcast_ref::<String>().map_or("unknown", String::as_str).to_owned()
        })
    }

    fn row(&self) -> Row {
        let (mut plain, watched) = (vec![self.run(Watch::Off)], self.run(Watch::Run));
        while plain.len() <= REPEATS && !self.why_red(&plain, &watched).is_empty() {
            plain.push(self.run(Watch::Off));
        }
        let red = self.why_red(&plain, &watched);
        let recovered = watched.as_ref().map_or("-", recovered);
        let mut text = format!(
            "{:<10} {:<11} {:<11} {:<4} {:>8} {:>8} {:>7.1} {recovered:<9} {}",
            self.mpi.abi(),
            self.way,
            self.place,
            self.who,
            shown(&plain[0]),
            shown(&watched),
            later_s(&plain, &watched),
            red.join(", ")
        );
        if let (Err(reason), false) = (&watched, red.is_empty()) {
            text = format!("{text}\n{reason}");
        }
        Row { red, text }
    }

    fn why_red(&self, plain: &[Ended], watched: &Ended) -> Vec<&'static str> {
        let mut red = Vec::new();
        let same = |plain: &Ended| match (plain, watched) {
            (Ok(plain), Ok(watched)) => {
                plain.status() == watched.status()
                    || self.mpi == Mpi::Mpich && self.is_chance_of_mpich(plain, watched)
            }
            (Err(plain), Err(watched)) => hangs(plain) && hangs(watched),
            _ => false,
        };
        if !plain.iter().any(same) {
            red.push("status");
        }
        if later_s(plain, watched) > LATER_S {
            red.push(LATE);
        }
        if let Ok(watched) = watched {
            if self.place != "init" && recovered(watched) == "nothing" {
                red.push("lost");
            }
            let is_draft = |path: &std::path::PathBuf| path.to_string_lossy().contains(".part");
            if !watched.left_behind().is_empty() || watched.files().iter().any(is_draft) {
                red.push("leftovers");
            }
        }
        red
    }

    /// Returns whether the launcher of MPICH may end the job with either status: it combines the
    /// statuses of all ranks, depending on their order.
    fn is_chance_of_mpich(&self, one: &Outcome, other: &Outcome) -> bool {
        let both = |holds: fn(&Outcome) -> bool| holds(one) && holds(other);
        // It kills the others after a rank that succeeds without MPI_Finalize, and may return their
        // status: in 4 of 150 runs without Plimsoll.
        both(|it| !it.status().success())
            || self.way == "exit0"
                && both(|it| matches!(it.status().code(), Some(0 | libc::SIGKILL)))
    }
}

fn hangs(reason: &str) -> bool {
    reason.contains(" hangs: ")
}

/// Returns by how many seconds the job took longer than all runs without Plimsoll.
fn later_s(plain: &[Ended], watched: &Ended) -> f64 {
    let took_s = |ended: &Ended| ended.as_ref().map_or(0.0, Outcome::took_s);
    took_s(watched) - plain.iter().map(took_s).fold(0.0, f64::max)
}

fn shown(ended: &Ended) -> String {
    use std::os::unix::process::ExitStatusExt;
    match ended {
        Ok(outcome) => match (outcome.status().code(), outcome.status().signal()) {
            (Some(code), _) => code.to_string(),
            (None, Some(signal)) => format!("sig {signal}"),
            (None, None) => "?".to_owned(),
        },
        Err(reason) if hangs(reason) => HANGS.to_owned(),
        Err(reason) => reason.split_whitespace().next().unwrap_or("?").to_owned(),
    }
}

/// Returns the source of the results: report, digest, or none.
fn recovered(watched: &Outcome) -> &'static str {
    if !watched.files_ending(".plimsoll.json").is_empty() {
        "report"
    } else if watched.files_ending(".spool").first().is_some_and(|spool| can_be_digested(spool)) {
        "digest"
    } else {
        "nothing"
    }
}

/// Returns whether the spools in the folder of this one can be digested.
fn can_be_digested(spool: &Path) -> bool {
    let Some(folder) = spool.parent() else { return false };
    let scratch = Scratch::new("unsinkable-digest");
    let mut command = Command::new(&artifacts().command);
    command.arg("digest").arg(folder).arg("--output").arg(scratch.path());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
