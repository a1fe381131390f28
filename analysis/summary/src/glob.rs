//! Glob patterns for names of programs and of functions.

use std::fmt;
use std::path::Path;

/// A glob pattern: `*` matches any text, `?` any character, `[a-c]` one of these, `[!a-c]` any
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: Vec<char>,
    classes: bool,
}

impl Glob {
    /// Makes a pattern for programs. Every text is a valid pattern.
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.chars().collect(), classes: true }
    }

    /// Makes a pattern for functions. Brackets match themselves, because users copy names such as
    /// `operator[]` and `f[abi:cxx11]` from a report.
    pub fn of_functions(pattern: &str) -> Self {
        Self { classes: false, ..Self::new(pattern) }
    }

    /// Returns whether the pattern matches the program: its whole path if the pattern contains a
    /// `/`, else its file name.
    pub fn matches(&self, program: &Path) -> bool {
        let subject = if self.pattern.contains(&'/') {
            program.to_string_lossy()
        } else {
            program.file_name().unwrap_or_default().to_string_lossy()
        };
        self.fits(&subject.chars().collect::<Vec<_>>())
    }

    /// Backtracks to the last `*` only: once a later one is reached, other matches of an earlier
    /// one cannot help. The time is bounded by the product of the lengths.
    pub fn fits(&self, subject: &[char]) -> bool {
        let pattern = &self.pattern[..];
        let (mut p, mut s) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while s < subject.len() {
            if pattern.get(p) == Some(&'*') {
                star = Some((p, s));
                p += 1;
            } else if let Some(width) = self.one(p, subject[s]) {
                p += width;
                s += 1;
            } else if let Some((star_p, star_s)) = star {
                (p, s) = (star_p + 1, star_s + 1);
                star = Some((star_p, s));
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|&c| c == '*')
    }

    /// Compares the pattern's element at `at` with a character. Returns the element's width in
    /// characters if they match.
    fn one(&self, at: usize, c: char) -> Option<usize> {
        let pattern = self.pattern.get(at..)?;
        match pattern.first()? {
            '?' => Some(1),
            '[' if self.classes => match class(pattern, c) {
                Some((width, true)) => Some(width),
                Some((_, false)) => None,
                // An unclosed bracket matches itself.
                None => (c == '[').then_some(1),
            },
            &literal => (literal == c).then_some(1),
        }
    }
}

/// Writes the pattern as the user wrote it.
impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.iter().try_for_each(|c| write!(formatter, "{c}"))
    }
}

/// Returns the width of a `[...]` and whether it contains `c`; `None` if it is not closed.
fn class(pattern: &[char], c: char) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let start = if negated { 2 } else { 1 };
    // A closing bracket in first place is a member.
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|&c| c == ']')?;
    let (mut found, mut at) = (false, start);
    while at < end {
        if at + 2 < end && pattern[at + 1] == '-' {
            found |= (pattern[at]..=pattern[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= pattern[at] == c;
            at += 1;
        }
    }
    Some((end + 1, found != negated))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_fit() {
        for (pattern, program, fits) in [
            ("lmp*", "/usr/bin/lmp_mpi", true),
            ("lmp*", "/usr/lmp/bin/cp", false),
            ("/usr/*/lmp", "/usr/local/bin/lmp", true),
            ("*", "x", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("run[0-9]", "run7", true),
            ("run[!0-9]", "run7", false),
            ("run[]x]", "run]", true),
            ("run[7", "run[7", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxxcx", false),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(Path::new(program)), fits, "{pattern} {program}");
        }
    }

    #[test]
    fn brackets_are_parts_of_functions() {
        for (pattern, function, fits) in [
            ("operator[]", "operator[]", true),
            ("*::name[abi:cxx11]", "app::name[abi:cxx11]", true),
            ("run[0-9]", "run7", false),
            ("<[T]>::sort*", "<[T]>::sort_by", true),
            ("a?c", "abc", true),
        ] {
            let subject: Vec<char> = function.chars().collect();
            let glob = Glob::of_functions(pattern);
            assert_eq!(glob.fits(&subject), fits, "{pattern} {function}");
            assert_eq!(glob.to_string(), pattern);
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!Glob::new(&pattern).matches(Path::new(&"a".repeat(4000))));
    }

    proptest! {
        #[test]
        fn nothing_panics(pattern in "[-a\\[\\]!*?^/]{0,12}", program in "[-a\\[\\]/]{0,12}") {
            Glob::new(&pattern).matches(Path::new(&program));
        }
    }
}
