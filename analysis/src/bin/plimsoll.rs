//! The `plimsoll` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(plimsoll_analysis::cli::main(std::env::args_os()))
}
