//! Makes untrusted text (values of variables, names of files, names in files) safe for a terminal.
//!
//! Characters that a terminal interprets, that are invisible, or that change the order of others
//! (control, format and bidirectional characters, line separators) appear as escapes such as
//! `\u{1b}`.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

/// Maximum length of one name or value in a message, in characters.
const MAX_EXCERPT: usize = 200;
/// Maximum length of a whole message, in characters.
const MAX_LINE: usize = 2000;

/// Text that is escaped and truncated (`...`) when it is written. Writing allocates nothing.
#[derive(Debug)]
pub struct Printable<'a> {
    text: Cow<'a, str>,
    max_chars: usize,
}

/// Returns a name or a value for a message, at most 200 characters of it.
pub fn excerpt(text: &str) -> Printable<'_> {
    cut(text, MAX_EXCERPT)
}

/// Returns the first `max_chars` characters of a text.
pub fn cut(text: &str, max_chars: usize) -> Printable<'_> {
    Printable { text: text.into(), max_chars }
}

/// Returns the path of a file for a message, at most 200 characters of it.
pub fn path(path: &Path) -> Printable<'_> {
    Printable { text: path.to_string_lossy(), max_chars: MAX_EXCERPT }
}

/// Returns a message as one line: line ends within quoted names are escaped.
pub fn line(text: &str) -> Printable<'_> {
    cut(text, MAX_LINE)
}

/// Returns the whole path of a file, for a user who copies it.
pub fn whole_path(path: &Path) -> Printable<'_> {
    Printable { text: path.to_string_lossy(), max_chars: usize::MAX }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.max_chars;
        for char in self.text.chars() {
            let escape = char.escape_debug();
            let is_plain = is_plain(char);
            let width = if is_plain { 1 } else { escape.len() };
            if width > left {
                return formatter.write_str("...");
            }
            left -= width;
            if is_plain {
                formatter.write_char(char)?;
            } else {
                write!(formatter, "{escape}")?;
            }
        }
        Ok(())
    }
}

/// Returns whether a terminal shows a character unchanged.
pub fn is_plain(char: char) -> bool {
    // Quotes and backslashes harm no terminal.
    matches!(char, ' '..='~') || char.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_commands_are_escaped() {
        let escaped = [
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("two\nlines\r\t", "two\\nlines\\r\\t"),
            // C1: eight-bit terminals read it as ESC [.
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            // Right-to-left override, isolate, zero width, line separator, tag.
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("a\u{200b}\u{feff}\u{2028}\u{e0041}", "a\\u{200b}\\u{feff}\\u{2028}\\u{e0041}"),
        ];
        for (text, shown) in escaped {
            assert_eq!(excerpt(text).to_string(), shown);
        }
        for plain in ["", "/home/jürgen/测试/it's \"here\"\\"] {
            assert_eq!(excerpt(plain).to_string(), plain);
            assert_eq!(path(Path::new(plain)).to_string(), plain);
        }
    }

    #[test]
    fn a_path_for_a_user_to_copy_is_not_cut() {
        let long = format!("{}\u{1b}", "/folder".repeat(100));
        let whole = whole_path(Path::new(&long)).to_string();
        assert_eq!(whole, format!("{}\\u{{1b}}", "/folder".repeat(100)));
    }

    proptest! {
        #[test]
        fn any_text_becomes_short_and_plain(text in any::<String>(), times in 1usize..100) {
            let shown = excerpt(&text.repeat(times)).to_string();
            prop_assert!(shown.chars().count() <= MAX_EXCERPT + 3);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
