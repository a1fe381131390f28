//! Columns of the contexts' values: a quarter of the size of their JSON, read in a hundredth of the
//! time.
//!
//! One line of JSON names the columns; the columns follow one after the other. A column is written
//! in planes: the lowest byte of every number, then the next byte, and so on. Bytes of one
//! significance are similar, so they compress well.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;

use plimsoll_summary::label::Label;
use plimsoll_summary::{Metric, Tree, TreeNode};

/// Storage of a column's numbers, little-endian.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    U8,
    U32,
    U64,
    /// An unknown value is NaN.
    F32,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U32 | Self::F32 => 4,
            Self::U64 => 8,
        }
    }
}

/// Column: its name, and the bits of its number in a context.
struct Column<'t> {
    name: String,
    kind: Kind,
    bits: Box<dyn Fn(&TreeNode) -> u64 + 't>,
}

#[derive(Serialize)]
struct Header<'t> {
    nodes: usize,
    labels: Vec<&'static str>,
    columns: Vec<(&'t str, Kind)>,
}

/// Value of `parent` for a context without a caller.
const NO_PARENT: u32 = u32::MAX;
/// Value of `balanced` if unknown.
const UNKNOWN: u8 = 255;

/// Writes the values of all contexts.
pub fn write(tree: &Tree, to: &mut dyn Write) -> io::Result<()> {
    let columns = columns(tree);
    let header = Header {
        nodes: tree.nodes.len(),
        labels: Label::ALL.iter().map(|label| label.name()).collect(),
        columns: columns.iter().map(|column| (&*column.name, column.kind)).collect(),
    };
    serde_json::to_writer(&mut *to, &header)?;
    to.write_all(b"\n")?;
    for column in &columns {
        for byte in 0..column.kind.bytes() {
            for node in &tree.nodes {
                to.write_all(&[((column.bits)(node) >> (8 * byte)) as u8])?;
            }
        }
    }
    Ok(())
}

fn columns(tree: &Tree) -> Vec<Column<'_>> {
    let mut columns = vec![
        number("parent", Kind::U32, |node| u64::from(node.parent.unwrap_or(NO_PARENT))),
        number("frame", Kind::U32, |node| u64::from(node.frame)),
        number("label", Kind::U8, |node| place(node.label)),
        number("calls", Kind::U64, |node| node.calls),
        number("calls_exact", Kind::U8, |node| u64::from(node.calls_exact)),
        number("balanced", Kind::U8, |node| node.balanced.map_or(u64::from(UNKNOWN), u64::from)),
    ];
    columns.extend(metric("inclusive", |node| &node.inclusive));
    columns.extend(metric("exclusive", |node| &node.exclusive));
    columns.extend([
        seconds("idle_s", |node| node.idle_s),
        seconds("imb_s", |node| node.imb_s),
        seconds("wait_s", |node| node.wait_s),
        seconds("sum_imb_s", |node| node.sum_imb_s),
        seconds("sum_wait_s", |node| node.sum_wait_s),
        seconds("blame_inclusive_s", |node| node.blame_inclusive_s),
        seconds("blame_exclusive_s", |node| node.blame_exclusive_s),
    ]);
    let counters: BTreeSet<&str> =
        tree.nodes.iter().flat_map(|node| node.counters.keys().map(String::as_str)).collect();
    columns.extend(counters.into_iter().map(|counter| {
        seconds(format!("counters.{counter}"), move |node| node.counters.get(counter).copied())
    }));
    columns
}

fn number<'t>(
    name: impl Into<String>,
    kind: Kind,
    bits: impl Fn(&TreeNode) -> u64 + 't,
) -> Column<'t> {
    Column { name: name.into(), kind, bits: Box::new(bits) }
}

fn seconds<'t>(
    name: impl Into<String>,
    value: impl Fn(&TreeNode) -> Option<f64> + 't,
) -> Column<'t> {
    number(name, Kind::F32, move |node| {
        u64::from(value(node).map_or(f32::NAN, |value| value as f32).to_bits())
    })
}

/// Adds the columns of a time over all ranks. The page computes two values: the sum is the mean
/// times the number of ranks, and the minimum is 0 if a rank lacks the context.
fn metric<'t>(
    name: &'t str,
    of: impl Fn(&TreeNode) -> &Metric + Copy + 't,
) -> impl Iterator<Item = Column<'t>> {
    [
        seconds(format!("{name}.mean_s"), move |node| Some(of(node).mean_s)),
        seconds(format!("{name}.min_observed_s"), move |node| of(node).min_observed_s),
        seconds(format!("{name}.max_s"), move |node| Some(of(node).max_s)),
        seconds(format!("{name}.stddev_s"), move |node| Some(of(node).stddev_s)),
        number(format!("{name}.ranks"), Kind::U32, move |node| u64::from(of(node).ranks)),
    ]
    .into_iter()
}

fn place(label: Label) -> u64 {
    Label::ALL.iter().position(|other| *other == label).unwrap_or(0) as u64
}
