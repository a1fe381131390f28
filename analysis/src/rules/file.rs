//! Reading of the file of the user's rules, and the sentence that describes the errors in the file.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use plimsoll_sys::own_files::open_regular;

use super::{BadLine, Fault, Rules};
use crate::error::reason;
use crate::label::Label;
use crate::printable::{Printable, cut};

/// Maximum file size in bytes: thousands of rules. The rules go to all nodes and into each of their
/// spools.
pub const MAX_BYTES: u64 = 64 << 10;
/// Maximum length of the shown part of a bad line, in characters.
const MAX_SHOWN_CHARS: usize = 60;
/// Maximum number of further bad lines listed by number.
const NUMBERS: usize = 5;

/// Error in a file of rules. The sentence does not name the file.
#[derive(Debug)]
pub enum Trouble {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The path is a directory, a pipe or a device: reading could block for ever.
    NoFile,
    /// The file is larger than [`MAX_BYTES`].
    TooLarge,
    /// The file contains zero bytes.
    Binary,
    /// The first line that is not a rule, and the numbers of the others. All other lines are valid
    /// rules.
    BadLines(BadLine, Vec<usize>),
}

impl Trouble {
    /// Returns whether no rule of the file is used.
    pub fn is_of_all(&self) -> bool {
        !matches!(self, Self::BadLines(..))
    }
}

/// Reads a file. Returns the valid rules, and the error if there is one.
pub fn read(path: &Path) -> (Rules, Option<Trouble>) {
    let bytes = match contents(path) {
        Ok(bytes) => bytes,
        Err(trouble) => return (Rules::default(), Some(trouble)),
    };
    let (rules, bad) = Rules::parse(&bytes);
    let mut bad = bad.into_iter();
    let first = bad.next();
    let others = bad.map(|line| line.number).collect();
    (rules, first.map(|first| Trouble::BadLines(first, others)))
}

fn contents(path: &Path) -> Result<Vec<u8>, Trouble> {
    // Checked before opening, because opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(Trouble::Unreadable)?.is_file() {
        return Err(Trouble::NoFile);
    }
    let mut bytes = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(Trouble::Unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Trouble::TooLarge);
    }
    if bytes.contains(&0) {
        return Err(Trouble::Binary);
    }
    Ok(bytes)
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => {
                write!(formatter, "the file cannot be read ({}).", reason(error))
            }
            Self::NoFile => write!(formatter, "this is no regular file."),
            Self::TooLarge => write!(
                formatter,
                "the file is larger than {} KiB, so that it is hardly the one that was meant.",
                MAX_BYTES >> 10
            ),
            Self::Binary => write!(formatter, "the file is no text in UTF-8."),
            Self::BadLines(first, others) => {
                let BadLine { number, text, fault } = first;
                write!(formatter, "line {number}, `{}`, is ignored: {fault}.", excerpt(text))?;
                let named: Vec<String> =
                    others.iter().take(NUMBERS).map(usize::to_string).collect();
                match (&named[..], others.len() - named.len()) {
                    ([], _) => Ok(()),
                    ([only], _) => write!(formatter, " So is line {only}."),
                    ([init @ .., last], 0) => {
                        write!(formatter, " So are lines {} and {last}.", init.join(", "))
                    }
                    (all, more) => {
                        write!(formatter, " So are lines {} and {more} more.", all.join(", "))
                    }
                }
            }
        }
    }
}

/// Formats the fault as the end of "is ignored: ...".
impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => formatter.write_str("it is no text in UTF-8"),
            Self::NoLabel => formatter.write_str(
                "expected PATTERN = LABEL or MODULE:PATTERN = LABEL, such as my_wait = \
                wait_partner",
            ),
            Self::UnknownLabel(label) => {
                let labels = Label::ALL.map(Label::name).join(", ");
                write!(formatter, "`{}` is no label; expected one of {labels}", excerpt(label))
            }
            Self::NoPattern => {
                formatter.write_str("expected the name of a function before the label")
            }
            Self::NoModule => formatter.write_str(
                "expected the name of a program or library before the colon, such as libm.so*:sin",
            ),
        }
    }
}

/// Returns the beginning of a text, safe to print on a terminal.
fn excerpt(text: &str) -> Printable<'_> {
    cut(text, MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(content: &[u8]) -> (String, Option<String>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("labels");
        fs::write(&path, content).unwrap();
        let (rules, trouble) = read(&path);
        (rules.into(), trouble.map(|trouble| trouble.to_string()))
    }

    #[test]
    fn good_files_give_no_trouble() {
        assert_eq!(reading(b""), (String::new(), None));
        assert_eq!(reading(b"# nothing\r\n\r\n"), (String::new(), None));
        assert_eq!(reading(b"spin=wait_partner"), ("spin = wait_partner\n".into(), None));
        let longest = [&b"spin=wait\n#"[..], &[b'x'; (64 << 10) - 11]].concat();
        assert_eq!(reading(&longest), ("spin = wait\n".into(), None));
    }

    #[test]
    fn the_first_bad_line_is_told_and_the_others_counted() {
        let (rules, trouble) = reading(b"spin wait_partner\nspin = wait\n");
        assert_eq!(rules, "spin = wait\n");
        assert_eq!(
            trouble.unwrap(),
            "line 1, `spin wait_partner`, is ignored: expected PATTERN = LABEL or MODULE:PATTERN = \
             LABEL, such as my_wait = wait_partner."
        );
        let ending = |lines: usize| {
            let (_, trouble) = reading("# begin\n\u{1b}[31mspin\n".repeat(lines).as_bytes());
            let trouble = trouble.unwrap();
            assert!(trouble.starts_with("line 2, `\\u{1b}[31mspin`, is "), "{trouble}");
            trouble.split_once("wait_partner.").unwrap().1.to_owned()
        };
        assert_eq!(ending(2), " So is line 4.");
        assert_eq!(ending(3), " So are lines 4 and 6.");
        assert_eq!(ending(6), " So are lines 4, 6, 8, 10 and 12.");
        assert_eq!(ending(9), " So are lines 4, 6, 8, 10, 12 and 3 more.");
        let (_, trouble) = reading(&[b'x'; 1000]);
        assert!(trouble.unwrap().len() < 250);
    }

    #[test]
    fn what_is_no_list_of_rules_is_refused_as_a_whole() {
        for (content, reason) in [
            (&b"spin = wait\n\0"[..], "no text"),
            (b"s\0p\0i\0n\0 \0=\0 \0w\0a\0i\0t\0\n\0", "no text"),
            (&[b'#'; (64 << 10) + 1], "larger than 64 KiB"),
        ] {
            let (rules, trouble) = reading(content);
            assert_eq!(rules, "");
            assert!(trouble.unwrap().contains(reason), "{reason}");
        }
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, reason) in [
            (directory.path(), "no regular file"),
            (&pipe, "no regular file"),
            (&directory.path().join("nowhere"), "cannot be read (it does not exist)"),
        ] {
            let (rules, trouble) = read(path);
            assert!(rules.is_empty());
            let trouble = trouble.unwrap();
            assert!(trouble.is_of_all() && trouble.to_string().contains(reason), "{trouble}");
        }
    }
}
