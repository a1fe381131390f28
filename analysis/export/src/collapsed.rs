//! Collapsed stacks: `rank 3;main;solve;MPI_Allreduce 1500`, in microseconds. The format of
//! Brendan Gregg's flamegraph.pl, which inferno, speedscope and many others read.

use std::io::Write;

use crate::{CallForest, ExportError};

pub fn write(forest: &CallForest<'_>, to: &mut dyn Write) -> Result<(), ExportError> {
    for lane in &forest.lanes {
        for (node, own_s) in (0..).zip(forest.own_s(lane)?) {
            let microseconds = (own_s * 1e6).round() as u64;
            if microseconds == 0 {
                continue;
            }
            to.write_all(field(&lane.name).as_bytes())?;
            for frame in forest.path(node) {
                write!(to, ";{}", field(&forest.frames[frame as usize].name_with_line))?;
            }
            writeln!(to, " {microseconds}")?;
        }
    }
    Ok(())
}

/// Returns a name without the characters that the format separates with.
fn field(name: &str) -> String {
    name.replace(';', ":").replace(|char: char| char.is_control(), " ")
}
