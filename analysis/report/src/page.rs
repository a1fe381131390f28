//! Lines of bounded width that contain only characters that every terminal shows unchanged.

pub use plimsoll_summary::phrase::TIED;
use plimsoll_summary::printable::is_plain;

/// Lines under construction.
#[derive(Debug)]
pub struct Page {
    width: usize,
    lines: Vec<String>,
}

impl Page {
    /// Builds an empty page with this number of columns.
    pub fn new(width: usize) -> Self {
        Self { width, lines: Vec::new() }
    }

    /// Appends one line, cut at the width.
    pub fn line(&mut self, text: &str) {
        let mut line = printable(text).replace(TIED, " ");
        if columns(&line) > self.width {
            line.truncate(words_in(&line, self.width.saturating_sub(4)));
            line.push_str(" ...");
        }
        self.lines.push(line.trim_end().to_owned());
    }

    /// Appends a paragraph after a label, broken between words, with further lines indented like
    /// the first word. Uses at most `most` lines; if the text is cut, the last line ends in `...`.
    pub fn paragraph(&mut self, label: &str, text: &str, most: usize) {
        let indent = label.chars().count();
        let room = self.width.saturating_sub(indent);
        let mut lines: Vec<String> = Vec::new();
        for word in printable(text).split_ascii_whitespace().map(|word| word.replace(TIED, " ")) {
            match lines.last_mut() {
                Some(line) if columns(line) + 1 + columns(&word) <= room => {
                    line.push(' ');
                    line.push_str(&word);
                }
                _ => lines.push(word),
            }
        }
        if lines.len() > most {
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                last.truncate(words_in(last, room.saturating_sub(4)));
                last.push_str(" ...");
            }
        }
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            self.line(&format!("{label:indent$}{line}"));
        }
    }

    /// Appends all lines of another page.
    pub fn append(&mut self, mut other: Self) {
        self.lines.append(&mut other.lines);
    }

    /// Keeps the first `lines` lines.
    pub fn truncate(&mut self, lines: usize) {
        self.lines.truncate(lines);
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns all lines, each after a prefix.
    pub fn text(&self, prefix: &str) -> String {
        self.lines.iter().map(|line| format!("{prefix}{line}\n")).collect()
    }
}

/// Returns how many columns of a terminal a text takes at most: a character beyond ASCII may take
/// two.
fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

fn width(char: char) -> usize {
    if char.is_ascii() { 1 } else { 2 }
}

/// Returns the length in bytes of the longest beginning of a line that fits into `room` columns and
/// ends with a word; all that fits if the first word is longer.
fn words_in(line: &str, room: usize) -> usize {
    let mut used = 0;
    let exceeds = |(_, char): &(usize, char)| {
        used += width(*char);
        used > room
    };
    let Some((fits, next)) = line.char_indices().find(exceeds) else { return line.len() };
    let of_words = if next == ' ' { Some(fits) } else { line[..fits].rfind(' ') };
    let end = line[..of_words.unwrap_or(0)].trim_end().len();
    if end > 0 { end } else { fits }
}

/// Replaces characters that a terminal must not interpret by `?`: names come from binaries,
/// arguments and files.
fn printable(text: &str) -> String {
    let shown = |char: char| match char {
        '\n' | '\t' => ' ',
        _ if char == TIED || is_plain(char) => char,
        _ => '?',
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: usize = 100;

    proptest! {
        #[test]
        fn pages_are_narrow_and_printable(
            label in "[a-z ]{0,20}",
            text in any::<String>(),
            most in 1usize..5,
        ) {
            let mut page = Page::new(WIDTH);
            page.paragraph(&label, &text, most);
            page.line(&text);
            prop_assert!(page.len() <= most + 1);
            for line in page.text("").lines() {
                prop_assert!(columns(line) <= WIDTH);
                prop_assert!(line.chars().all(is_plain));
            }
        }
    }

    #[test]
    fn paragraphs_hang_behind_their_label() {
        let mut page = Page::new(WIDTH);
        page.paragraph("do  ", &"word ".repeat(40), 2);
        let lines: Vec<String> = page.text("").lines().map(str::to_owned).collect();
        assert_eq!(lines[0], format!("do  {}", "word ".repeat(19).trim_end()));
        assert!(lines[1].starts_with("    word") && lines[1].ends_with(" ..."), "{lines:?}");
    }

    #[test]
    fn names_in_all_languages_stay_readable() {
        let mut page = Page::new(20);
        page.line("caf\u{e9} \u{540d}\u{524d}\u{1b}[31m\u{202e}");
        page.line(
            "\u{540d}\u{524d}\u{540d}\u{524d} \u{540d}\u{524d}\u{540d}\u{524d}\u{540d}\u{524d}",
        );
        let cut = "\u{540d}\u{524d}\u{540d}\u{524d} ...";
        assert_eq!(page.text(""), format!("caf\u{e9} \u{540d}\u{524d}?[31m?\n{cut}\n"));
    }

    #[test]
    fn texts_are_cut_between_words() {
        let mut page = Page::new(30);
        page.line(&"words ".repeat(9));
        page.paragraph("do ", &"words ".repeat(9), 1);
        page.line(&"w".repeat(40));
        let cut = "words words words words ...\ndo words words words words ...\n";
        assert_eq!(page.text(""), format!("{cut}{} ...\n", "w".repeat(26)));
    }
}
