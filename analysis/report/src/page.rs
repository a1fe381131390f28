//! Lines of bounded width that contain only printable ASCII.

pub use plimsoll_summary::phrase::TIED;

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
        if line.len() > self.width {
            line.truncate(words_in(&line, self.width.saturating_sub(4)));
            line.push_str(" ...");
        }
        self.lines.push(line.trim_end().to_owned());
    }

    /// Appends a paragraph after a label, broken between words, with further lines indented like
    /// the first word. Uses at most `most` lines; if the text is cut, the last line ends in `...`.
    pub fn paragraph(&mut self, label: &str, text: &str, most: usize) {
        let indent = label.len();
        let room = self.width.saturating_sub(indent);
        let mut lines: Vec<String> = Vec::new();
        for word in printable(text).split_ascii_whitespace().map(|word| word.replace(TIED, " ")) {
            match lines.last_mut() {
                Some(line) if line.len() + 1 + word.len() <= room => {
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

/// Returns the length of the longest beginning of an ASCII line that fits into `room` columns and
/// ends with a word; `room` if the first word is longer.
fn words_in(line: &str, room: usize) -> usize {
    if line.len() <= room {
        return line.len();
    }
    let end = line[..=room].rfind(' ').map_or(0, |end| line[..end].trim_end().len());
    if end > 0 { end } else { room }
}

/// Replaces characters that a terminal must not interpret by `?`: names come from binaries,
/// arguments and files.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        ' '..='~' | TIED => c,
        '\n' | '\t' => ' ',
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
                prop_assert!(line.len() <= WIDTH);
                prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
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
    fn texts_are_cut_between_words() {
        let mut page = Page::new(30);
        page.line(&"words ".repeat(9));
        page.paragraph("do ", &"words ".repeat(9), 1);
        page.line(&"w".repeat(40));
        let cut = "words words words words ...\ndo words words words words ...\n";
        assert_eq!(page.text(""), format!("{cut}{} ...\n", "w".repeat(26)));
    }
}
