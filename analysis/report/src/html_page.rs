//! The page: one HTML file that shows a summary interactively, without any other file.
//!
//! The program of the page (TypeScript, `analysis/report/page/`) is built beforehand into one
//! asset. A page is that asset with data blocks in the place of a marker. A data block is a
//! `<script>` element of a type that browsers do not run; the element holds base64 of
//! zlib-compressed bytes. Base64 contains no `<`, so no name of the observed program can end the
//! element.
//!
//! | block | content |
//! |---|---|
//! | summary | JSON: the summary without its tree |
//! | frames | JSON: the frames of the tree |
//! | tree | columns of the contexts' values ([`columns`]) |
//! | ranks | times of single ranks, from the file beside the summary ([`page_ranks`]) |
//! | timeline | JSON: the file of the timeline beside the summary, as it is |
//! | sources | JSON: lines of source code around the contexts that matter ([`source_excerpts`]) |
//! | sentences | JSON: sentences of the text report about its cost, biclusters and sampled ranks |
//! | page | JSON: why a block is missing |

mod columns;
mod page_ranks;
mod rest;
mod source_excerpts;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use plimsoll_summary::{SideFile, Summary};
use plimsoll_sys::own_files::open_regular;

use self::rest::Rest;
use super::patterns::pattern;
use super::population_sentences::population;
use super::text::cost;

/// Page without data.
const SHELL: &str = include_str!("../page/dist/page.html");
/// Marker that the data blocks replace.
const MARKER: &str = "<!--data-->";
/// Compression level of zlib, 0 to 9: higher levels cost twice the time for a few percent.
const LEVEL: u32 = 4;
/// Number of bytes that are compressed at once.
const PIECE_BYTES: usize = 32 << 10;
/// Maximum size of a timeline's file that a page includes, in bytes.
const MAX_TIMELINE_BYTES: u64 = 32 << 20;
/// Text near the begin of a timeline's file.
const TIMELINE_SCHEMA: &[u8] = b"\"plimsoll-timeline/";

/// Writes the page of a summary. `beside` is the directory of the summary's file, with the files
/// that the summary names; `None` without such a directory.
///
/// # Errors
/// Errors of `to`. A missing or damaged file is no error: the page states it.
pub fn write_page(summary: &Summary, beside: Option<&Path>, to: &mut dyn Write) -> io::Result<()> {
    write_shell(SHELL, to, |to| summary_blocks(summary, beside, to))
}

/// Writes a page: `shell`, with what `blocks` writes in the place of its marker.
///
/// # Errors
/// Errors of `to` and of `blocks`.
pub fn write_shell(
    shell: &str,
    to: &mut dyn Write,
    blocks: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let (head, tail) = shell.split_once(MARKER).unwrap_or((shell, ""));
    to.write_all(head.as_bytes())?;
    blocks(to)?;
    to.write_all(tail.as_bytes())
}

/// Writes a value as JSON into the data block `name` of a page.
///
/// # Errors
/// Errors of `to`.
pub fn json_block(to: &mut dyn Write, name: &str, value: &impl Serialize) -> io::Result<()> {
    block(to, name, |to| json(to, value))
}

fn summary_blocks(summary: &Summary, beside: Option<&Path>, to: &mut dyn Write) -> io::Result<()> {
    json_block(to, "summary", &Rest::of(summary))?;
    json_block(to, "frames", &summary.tree.frames)?;
    block(to, "tree", |to| columns::write(&summary.tree, to))?;
    let mut missing = Missing::default();
    match side(&summary.per_rank, beside).and_then(|file| page_ranks::read(file, summary)) {
        Ok(rows) => block(to, "ranks", |to| rows.write(to))?,
        Err(reason) => missing.ranks = Some(reason.to_string()),
    }
    match side(&summary.timeline, beside).and_then(timeline) {
        Ok(mut content) => block(to, "timeline", |to| io::copy(&mut content, to).map(drop))?,
        Err(reason) => missing.timeline = Some(reason.to_string()),
    }
    let sources = source_excerpts::read(summary);
    if !sources.is_empty() {
        json_block(to, "sources", &sources)?;
    }
    json_block(to, "sentences", &Sentences::of(summary))?;
    json_block(to, "page", &missing)
}

/// Sentences of the text report that the page repeats, so that both have one wording.
#[derive(Serialize)]
struct Sentences {
    /// The cost of the measurement.
    cost: String,
    /// One sentence per bicluster, in the summary's order.
    biclusters: Vec<String>,
    /// The sampled ranks; `None` if no ranks were sampled.
    population: Option<String>,
}

impl Sentences {
    fn of(summary: &Summary) -> Self {
        Self {
            cost: cost(summary),
            biclusters: summary.biclusters.iter().map(|it| pattern(summary, it)).collect(),
            population: population(summary),
        }
    }
}

/// Reasons for missing blocks, as sentences.
#[derive(Default, Serialize)]
struct Missing {
    ranks: Option<String>,
    timeline: Option<String>,
}

/// Writes one data block.
fn block(
    to: &mut dyn Write,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write!(to, "<script type=\"application/x-plimsoll\" id=\"data-{name}\">")?;
    let encoded = EncoderWriter::new(&mut *to, &STANDARD);
    let deflated = ZlibEncoder::new(encoded, Compression::new(LEVEL));
    let mut pieces = BufWriter::with_capacity(PIECE_BYTES, deflated);
    content(&mut pieces)?;
    let deflated = pieces.into_inner().map_err(io::IntoInnerError::into_error)?;
    deflated.finish()?.finish()?;
    to.write_all(b"</script>\n")
}

fn json(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    Ok(serde_json::to_writer(to, value)?)
}

/// Opens a file that a summary names. The name must be one of the summary's own directory: a
/// summary from elsewhere must not bring other files of the user into a page.
fn side(named: &SideFile, beside: Option<&Path>) -> io::Result<File> {
    let other = |reason: &str| io::Error::other(reason.to_owned());
    let name = named.file.as_deref().ok_or_else(|| other("The run wrote no such file."))?;
    let directory = beside.ok_or_else(|| other("The page was made without that file."))?;
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => {}
        _ => return Err(other("The summary names a file of another directory.")),
    }
    open_regular(&directory.join(name)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => other("The file was not there when the page was made."),
        _ => io::Error::other(format!("The file could not be read: {error}.")),
    })
}

/// Checks that a file holds a timeline of a bounded size. Returns the file's content.
fn timeline(file: File) -> io::Result<impl Read> {
    let bytes = file.metadata()?.len();
    if bytes > MAX_TIMELINE_BYTES {
        return Err(io::Error::other(format!("The file is too large for a page: {bytes} bytes.")));
    }
    let mut begin = Vec::new();
    file.try_clone()?.take(64).read_to_end(&mut begin)?;
    if !begin.windows(TIMELINE_SCHEMA.len()).any(|part| part == TIMELINE_SCHEMA) {
        return Err(io::Error::other("The file holds no timeline."));
    }
    // Both handles share one position: what follows is the rest.
    Ok(io::Cursor::new(begin).chain(file.take(MAX_TIMELINE_BYTES)))
}

#[cfg(test)]
mod tests;
