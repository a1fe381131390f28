//! Every MPI with every language: one library finds the same load imbalance in each combination.
//! The table of results is printed, and stands in the README.

use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::{env, fs};

use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::mpi::{Mpi, skip};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::{message_of, retry_on_noise};
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

/// Variable that, if set, writes the table into the README instead of comparing it.
const WRITE_VARIABLE: &str = "PLIMSOLL_TESTS_WRITE_MATRIX";

const LANGUAGES: [(Form, &str); 7] = [
    (Form::C, "C"),
    (Form::Cxx, "C++"),
    (Form::MpifH, "mpif.h"),
    (Form::UseMpi, "use mpi"),
    (Form::UseMpiF08, "use mpi_f08"),
    (Form::Rust, "Rust"),
    (Form::Python, "Python"),
];

/// Cell of an MPI without an interface for the language.
const NONE: &str = "–";

/// Cell of a combination in which the loss and its ranks were found, but no function can be named.
const UNNAMED: &str = "✓";

/// Returns whether an MPI has an interface for a language. The wheels have no Fortran modules; the
/// Rust bindings need the headers of a complete installation; mpi4py's wheel supports the ABIs of
/// MPICH and Open MPI.
const fn exists(mpi: Mpi, form: Form) -> bool {
    match form {
        Form::MpifH | Form::UseMpi | Form::UseMpiF08 | Form::Rust => {
            matches!(mpi, Mpi::Mpich | Mpi::OpenMpi)
        }
        Form::Python => !matches!(mpi, Mpi::MpichWheelStandard | Mpi::IntelStandard),
        _ => true,
    }
}

/// One cell of the table, after its job.
enum Cell {
    None,
    /// The library and the cause named in the summary.
    Found {
        library: String,
        cause: String,
    },
    Skipped(String),
    Failed(String),
}

/// Runs a job and asserts its diagnosis. Returns the library's name and the function to blame.
fn diagnose(mpi: Mpi, form: Form) -> (String, String) {
    let job = Job::ranks("imbalance", mpi, mpi.ranks()).form(form).arguments("sleep 40 10 3");
    let job = job.watch(Watch::Run);
    let run = || {
        let job = job.run().succeeded();
        let summary = job.summary();
        assert_eq!(summary.text("/run/mpi/abi"), mpi.abi());
        let library = summary.text("/run/mpi/library");
        assert!(library.starts_with(mpi.library()), "{library} for {mpi}");
        assert_eq!(summary.number("/run/ranks"), job.truth().number("ranks"));
        assert_eq!(summary.at("/run/complete"), true);
        job
    };
    let job = retry_on_noise(run, assert_found);
    // Functions of a script have no names in an unknown interpreter.
    let cause = job.summary().worst().first_cause();
    let cause = cause.map_or(UNNAMED.to_owned(), |cause| format!("`{cause}`"));
    (job.summary().text("/run/mpi/library").to_owned(), cause)
}

/// Compares a summary with the truth.
fn assert_found(job: &Outcome) {
    let (worst, truth) = (job.summary().worst(), job.truth());
    assert_eq!(worst.kind(), "load_imbalance", "{worst:?}");
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.10);
    // mpi4py calls the functions with large counts (MPI-4, 2.5.8) where its MPI has them.
    let symptom = worst.symptom_path().last().map(|name| name.strip_suffix("_c").unwrap_or(name));
    assert_eq!(symptom, truth.text("symptom"), "{worst:?}");
    assert_eq!(worst.field("slow_ranks").as_str(), truth.text("slow_ranks"), "{worst:?}");
    assert_eq!(worst.first_cause(), truth.text("cause"), "{worst:?}");
    assert!(!worst.cause_path().is_empty(), "{worst:?}");
}

fn cell(mpi: Mpi, form: Form) -> Cell {
    if !exists(mpi, form) {
        return Cell::None;
    }
    let no_python = || if form == Form::Python { mpi.why_no_python() } else { None };
    if let Some(reason) = mpi.why_unavailable().or_else(no_python) {
        return Cell::Skipped(reason);
    }
    match catch_unwind(|| diagnose(mpi, form)) {
        Ok((library, cause)) => Cell::Found { library, cause },
        Err(panic) => Cell::Failed(message_of(&*panic).to_owned()),
    }
}

/// Returns the table in the README's format: one row per MPI, one column per language.
fn table(rows: &[(Mpi, Vec<Cell>)]) -> String {
    let mut text = String::from("| |");
    for (_, language) in LANGUAGES {
        let _ = write!(text, " {language} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(LANGUAGES.len()));
    for (mpi, cells) in rows {
        let _ = write!(text, "\n| {mpi} |");
        for cell in cells {
            let shown = match cell {
                Cell::None => NONE.to_owned(),
                Cell::Found { cause, .. } => cause.clone(),
                Cell::Skipped(_) => "SKIPPED".to_owned(),
                Cell::Failed(_) => "FAILED".to_owned(),
            };
            let _ = write!(text, " {shown} |");
        }
    }
    text.push('\n');
    text
}

/// Asserts that the README's table equals the results, cell by cell; skipped cells are not
/// compared.
fn assert_current(found: &str) {
    let path = workspace_dir().join("README.md");
    let readme = fs::read_to_string(&path).expect("the project has a README");
    let (begin, end) = ("<!-- matrix -->\n", "<!-- end of matrix -->");
    let (before, rest) = readme.split_once(begin).expect("the README has a place for the table");
    let (written, after) = rest.split_once(end).expect("the table in the README ends");
    if env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&path, format!("{before}{begin}{found}{end}{after}"))
            .expect("the README can be written");
        return;
    }
    let cells = |table: &str| -> Vec<Vec<String>> {
        let row = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        table.lines().map(row).collect()
    };
    let (found_cells, written_cells) = (cells(found), cells(written));
    let same = found_cells.len() == written_cells.len()
        && found_cells
            .iter()
            .flatten()
            .zip(written_cells.iter().flatten())
            .all(|(new, old)| new == old || new == "SKIPPED" || new == UNNAMED);
    assert!(same, "the README shows another table; {WRITE_VARIABLE}=1 writes this one:\n{found}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn one_library_serves_every_mpi_in_every_language() {
    let mut rows = Vec::new();
    for mpi in Mpi::ALL {
        let cells: Vec<Cell> = LANGUAGES.iter().map(|(form, _)| cell(mpi, *form)).collect();
        rows.push((mpi, cells));
    }
    let table = table(&rows);
    let mut failures = String::new();
    let mut libraries = String::new();
    for (mpi, cells) in &rows {
        for (cell, (_, language)) in cells.iter().zip(LANGUAGES) {
            match cell {
                Cell::Failed(message) => {
                    let _ = writeln!(failures, "\n== {mpi}, {language}: {message}");
                }
                Cell::Skipped(reason) => skip(&format!("{mpi}, {language}: {reason}")),
                Cell::Found { .. } | Cell::None => {}
            }
        }
        let library = cells.iter().find_map(|cell| match cell {
            Cell::Found { library, .. } => Some(library.as_str()),
            _ => None,
        });
        let _ = writeln!(libraries, "{mpi}: {}", library.unwrap_or("nothing found"));
    }
    plimsoll_tests::mpi::print_line(&format!("{table}{libraries}"));
    assert!(failures.is_empty(), "{failures}");
    assert_current(&table);
}
