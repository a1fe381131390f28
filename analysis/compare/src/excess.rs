//! Excess work: difference between the cost of a calling context and its expectation.
//!
//! Source: Fowler, *Scalability and Scaling of Performance Tools*, slides "Relative Scalability"
//! and "Ensemble of Parallel Experiments". The slides expect linear speedup; here the expectation
//! is a factor, so that weak scaling, equal runs and known amounts of work follow from the same
//! sums.

/// Cost of a context in one experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// p C_p(m): the time of the context, the sum over ranks, in seconds.
    pub total_s: f64,
    /// p T_p: ranks times elapsed time, in seconds.
    pub run_s: f64,
    /// Expected total of the context as a multiple of the first experiment's: 1 under strong
    /// scaling, p / p_1 under weak scaling (constant time).
    pub factor: f64,
}

/// Returns EW(m) = (q C_q(m) - p C_p(m)) / (q T_q) for experiments on p and q ranks under strong
/// scaling; under other expectations p C_p(m) is multiplied by the factor. `None` if the second run
/// took no time.
pub fn pair(first: Cost, second: Cost) -> Option<f64> {
    let excess_s = second.total_s - second.factor / first.factor * first.total_s;
    (second.run_s > 0.0).then(|| excess_s / second.run_s)
}

/// Returns EW(m) = sum over i = 1..n of (p_i C_i(m) - p_1 C_1(m)) / sum over i = 2..n of p_i T_i.
/// `None` with fewer than two experiments, or if the later runs took no time.
pub fn ensemble(costs: &[Cost]) -> Option<f64> {
    let (first, later) = costs.split_first()?;
    let run_s: f64 = later.iter().map(|cost| cost.run_s).sum();
    let excess_s: f64 =
        costs.iter().map(|cost| cost.total_s - cost.factor / first.factor * first.total_s).sum();
    (run_s > 0.0).then(|| excess_s / run_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strong(total_s: f64, run_s: f64) -> Cost {
        Cost { total_s, run_s, factor: 1.0 }
    }

    fn near(found: Option<f64>, expected: f64) {
        let found = found.expect("a value");
        assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
    }

    /// 2 ranks: the context takes 3 s on each, the run 10 s. 8 ranks: 1.5 s on each, the run 4 s.
    /// Strong: (8 x 1.5 - 2 x 3) / (8 x 4) = 6 / 32.
    #[test]
    fn a_pair_under_strong_scaling() {
        near(pair(strong(6.0, 20.0), strong(12.0, 32.0)), 6.0 / 32.0);
    }

    /// A pair under weak scaling: the expectation is 3 s on each of 8 ranks, so
    /// (8 x 1.5 - 8 x 3) / (8 x 4) = -12 / 32: less than expected.
    #[test]
    fn a_pair_under_weak_scaling() {
        let first = Cost { total_s: 6.0, run_s: 20.0, factor: 1.0 };
        let second = Cost { total_s: 12.0, run_s: 32.0, factor: 4.0 };
        near(pair(first, second), -12.0 / 32.0);
    }

    /// Three experiments on 1, 2, 4 ranks with per-rank times 8, 5, 3 s and runs of 10, 6, 4 s:
    /// ((8 - 8) + (10 - 8) + (12 - 8)) / (12 + 16) = 6 / 28.
    #[test]
    fn an_ensemble_under_strong_scaling() {
        let costs = [strong(8.0, 10.0), strong(10.0, 12.0), strong(12.0, 16.0)];
        near(ensemble(&costs), 6.0 / 28.0);
    }

    /// Three experiments under weak scaling: ((8 - 8) + (10 - 16) + (12 - 32)) / 28 = -26 / 28.
    #[test]
    fn an_ensemble_under_weak_scaling() {
        let mut costs = [strong(8.0, 10.0), strong(10.0, 12.0), strong(12.0, 16.0)];
        costs[1].factor = 2.0;
        costs[2].factor = 4.0;
        near(ensemble(&costs), -26.0 / 28.0);
    }

    #[test]
    fn an_ensemble_of_two_is_a_pair() {
        let costs = [strong(6.0, 20.0), strong(12.0, 32.0)];
        assert_eq!(ensemble(&costs), pair(costs[0], costs[1]));
    }

    #[test]
    fn runs_without_time_have_no_excess() {
        assert_eq!(pair(strong(1.0, 1.0), strong(1.0, 0.0)), None);
        assert_eq!(ensemble(&[strong(1.0, 1.0)]), None);
        assert_eq!(ensemble(&[]), None);
    }
}
