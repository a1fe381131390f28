//! The ranks that the user wants to watch.

use crate::ranks::RankSet;

/// Ranks as the user wrote them: `all`, or ranges like `0-3,8,16-30:2`. The ranges are kept apart:
/// together, large ones with different steps would take memory for each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFilter {
    // `None`: all ranks.
    ranges: Option<Vec<RankSet>>,
}

impl RankFilter {
    /// Parses a rank list; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("all") {
            return Some(Self::default());
        }
        let range = |part: &str| part.parse().ok().filter(|range: &RankSet| !range.is_empty());
        Some(Self { ranges: Some(text.split(',').map(range).collect::<Option<_>>()?) })
    }

    /// Returns whether a rank is watched.
    pub fn contains(&self, rank: u32) -> bool {
        self.ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(rank)))
    }

    /// Returns whether all ranks are watched.
    pub fn is_all(&self) -> bool {
        self.ranges.is_none()
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
        let large = RankFilter::parse("0-4294967294:2,0-4294967295:3").unwrap();
        assert!(large.contains(3) && large.contains(4) && !large.contains(5));
        assert!(RankFilter::parse("All").is_some_and(|filter| filter.is_all()));
    }

    #[test]
    fn an_invalid_rank_list_is_refused() {
        for text in ["", "some", "1-", "-1", "3-1", "0-4:0", "1,,2", "1;2", "99999999999"] {
            assert_eq!(RankFilter::parse(text), None, "{text}");
        }
    }
}
