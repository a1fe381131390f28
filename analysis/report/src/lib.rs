//! Reports: views of a [`plimsoll_summary::Summary`] for people.
//!
//! Texts are plain ASCII, so that they survive terminals, batch logs and mail.

mod brief;
mod cluster_sentences;
mod counter_lines;
mod files;
mod html_page;
mod loop_sentences;
pub mod output;
mod page;
mod patterns;
mod population_sentences;
mod region_lines;
mod sentence;
mod text;
mod tree_text;

pub use brief::{BRIEF_LINES, brief};
pub use files::Files;
pub use html_page::{json_block, write_page, write_shell};
pub use page::Page;
pub use text::{TEXT_LINES, text};
pub use tree_text::tree;

/// Columns of every report.
pub const WIDTH: usize = 100;
