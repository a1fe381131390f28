//! The period of a cluster's iterations: equal distances between its members.

use super::members::Members;

/// Minimum number of members with equal distances that are a rhythm.
const MIN_PERIODIC: u64 = 3;

/// Minimum fraction of the members at equal distances: a disturbed iteration may be in another
/// cluster, and interrupts the rhythm.
const MIN_PERIODIC_FRACTION: f64 = 0.75;

impl Members {
    /// Returns the distance between successive members if it is constant and larger than 1: 10 if
    /// every tenth iteration is a member. `None` without such a rhythm, and for approximate sets.
    pub fn period(&self) -> Option<u64> {
        if self.is_approximate() {
            return None;
        }
        let mut steps: Vec<u64> = self.runs().iter().map(|run| run.step).collect();
        steps.sort_unstable();
        steps.dedup();
        steps.into_iter().filter(|step| *step > 1).find(|step| self.repeats_every(*step))
    }

    fn repeats_every(&self, step: u64) -> bool {
        let of_step = || self.runs().iter().filter(|run| run.step == step);
        // Runs within each other, such as 0-99:3 and 1-100:3, have several members in a period.
        let mut ends = of_step().zip(of_step().skip(1));
        if ends.any(|(run, next)| next.first <= run.last) {
            return false;
        }
        let periodic: u64 = of_step().map(|run| run.count()).sum();
        periodic >= MIN_PERIODIC && periodic as f64 >= MIN_PERIODIC_FRACTION * self.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(is_member: impl Fn(u64) -> bool, count: u64) -> Option<u64> {
        let mut members = Members::default();
        (0..count).filter(|it| is_member(*it)).for_each(|it| members.insert_all(&Members::one(it)));
        members.period()
    }

    #[test]
    fn members_at_equal_distances_have_a_period() {
        for every in 2..20 {
            assert_eq!(period(|number| number % every == every / 2, 60 * every), Some(every));
        }
        assert_eq!(period(|number| number % 10 == 9, 30), Some(10));
        assert_eq!(period(|number| number % 10 == 9, 20), None, "two are no rhythm");
    }

    #[test]
    fn a_missing_member_does_not_hide_the_period() {
        assert_eq!(period(|number| number % 10 == 0 && number != 50, 200), Some(10));
        assert_eq!(period(|number| number % 10 == 0 || number == 33, 200), Some(10));
    }

    #[test]
    fn all_others_and_drifts_have_none() {
        assert_eq!(period(|number| number % 10 != 0, 200), None);
        assert_eq!(period(|number| number % 3 != 0, 200), None);
        assert_eq!(period(|number| number < 70, 200), None);
        assert_eq!(period(|number| number == 7, 200), None);
    }
}
