//! The comparison as a page: one self-contained HTML file.

use std::io::{self, Write};

use plimsoll_report::{json_block, write_shell};

use crate::comparison::Comparison;

/// Page without data; built from `analysis/report/page/`.
const SHELL: &str = include_str!("../../report/page/dist/diff.html");

/// Writes the page of a comparison.
///
/// # Errors
/// Errors of `to`.
pub fn write_page(comparison: &Comparison, to: &mut dyn Write) -> io::Result<()> {
    write_shell(SHELL, to, |to| json_block(to, "comparison", comparison))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_has_a_place_for_the_data() {
        let mut page = Vec::new();
        write_shell(SHELL, &mut page, |to| to.write_all(b"<i>data</i>")).expect("memory has room");
        let page = String::from_utf8(page).expect("UTF-8");
        assert_eq!(page.matches("<i>data</i>").count(), 1);
        assert!(page.contains("Content-Security-Policy") && !page.contains("<!--data-->"));
    }
}
