//! The ranks that the user wants to watch.

/// Ranks as the user wrote them: `all`, or ranges like `0-3,8,16-30:2`. The ranges are not
/// expanded: the number of ranks is not known before MPI_Init, and a user may write `0-999999999`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFilter {
    // `None`: all ranks.
    ranges: Option<Vec<Range>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    step: u32,
}

impl RankFilter {
    /// Parses a rank list; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("all") {
            return Some(Self::default());
        }
        let ranges =
            text.split(',').map(|part| Range::parse(part.trim())).collect::<Option<_>>()?;
        Some(Self { ranges: Some(ranges) })
    }

    /// Returns whether a rank is watched.
    pub fn contains(&self, rank: u32) -> bool {
        let Some(ranges) = &self.ranges else { return true };
        ranges.iter().any(|range| {
            (range.first..=range.last).contains(&rank)
                && (rank - range.first).is_multiple_of(range.step)
        })
    }

    /// Returns whether all ranks are watched.
    pub fn is_all(&self) -> bool {
        self.ranges.is_none()
    }
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (range, step) = match text.split_once(':') {
            Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
            None => (text, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(Self { first, last, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_steps_are_kept() {
        let filter = RankFilter::parse("0-3, 8,16-30:2,40-4294967295").unwrap();
        let watched: Vec<u32> = (0..42).filter(|rank| filter.contains(*rank)).collect();
        assert_eq!(watched, [0, 1, 2, 3, 8, 16, 18, 20, 22, 24, 26, 28, 30, 40, 41]);
        assert!(!filter.is_all());
        assert!(RankFilter::parse("All").is_some_and(|filter| filter.is_all()));
    }

    #[test]
    fn an_invalid_rank_list_is_refused() {
        for text in ["", "some", "1-", "-1", "3-1", "0-4:0", "1,,2", "1;2", "99999999999"] {
            assert_eq!(RankFilter::parse(text), None, "{text}");
        }
    }
}
