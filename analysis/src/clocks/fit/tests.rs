use proptest::prelude::*;

use super::*;

/// One second, one millisecond and one microsecond, in nanoseconds.
const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
const US: i64 = 1000;

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    /// Returns a number in [0, 1).
    fn throw(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a sample of noise around 0 with a standard deviation of about `ns`.
    fn noise(&mut self, ns: i64) -> i64 {
        let sum: f64 = (0..12).map(|_| self.throw()).sum();
        ((sum - 6.0) * ns as f64) as i64
    }
}

/// A run with synchronisations and a clock of known lead and drift.
struct Run {
    length_ns: i64,
    syncs: usize,
    ahead_ns: i64,
    ppm: f64,
}

impl Run {
    fn gaps(&self, mut delay: impl FnMut(f64) -> i64) -> Vec<(i64, i64)> {
        let gap = |sync: usize| {
            let part = (sync as f64 + 0.5) / self.syncs as f64;
            let at = (part * self.length_ns as f64) as i64;
            let drifted = (self.ppm / 1e6 * at as f64) as i64;
            (at, self.ahead_ns + drifted + delay(part))
        };
        (0..self.syncs).map(gap).collect()
    }

    fn fit(&self, delay: impl FnMut(f64) -> i64) -> Fit {
        fit(&self.gaps(delay), self.length_ns / 2).unwrap()
    }

    /// Returns the error of a fit in the middle of the run, in nanoseconds.
    fn error_ns(&self, fit: &Fit) -> u64 {
        let truth = self.ahead_ns + (self.ppm / 1e6 * (self.length_ns / 2) as f64) as i64;
        fit.middle_ns.abs_diff(truth)
    }
}

const HOUR: Run = Run { length_ns: 3600 * S, syncs: 1000, ahead_ns: -3_700 * MS, ppm: 1.0 };

#[test]
fn offsets_and_drifts_are_found_under_noise() {
    for ppm in [0.0, 1.0, -1.0, 50.0] {
        for (length_ns, syncs) in [(3600 * S, 1000), (60 * S, 600), (60 * S, 30)] {
            let run = Run { length_ns, syncs, ahead_ns: 3_700 * MS, ppm };
            let mut dice = Dice(7);
            let fit = run.fit(|_| dice.noise(3 * US));
            assert!(run.error_ns(&fit) < 3 * US as u64, "{ppm} ppm: {fit:?}");
            let wrong_ppm = (fit.drift_ppt as f64 / 1e6 - ppm).abs();
            // Drift that the noise hides over the run.
            let hidden_ppm = 3.0 * US as f64 / length_ns as f64 * 1e6;
            assert!(wrong_ppm < hidden_ppm, "{ppm} ppm over {length_ns} ns: {fit:?}");
            assert!(fit.spread_ns < 3 * US as u64, "{fit:?}");
        }
    }
}

/// Noise around the truth; one-sided delays; both together, with every second gap delayed by much.
const NOISES: [fn(&mut Dice) -> i64; 3] = [
    |dice| dice.noise(20 * US),
    |dice| (-(1.0 - dice.throw()).ln() * (20 * US) as f64) as i64,
    |dice| {
        let delayed = dice.throw() < 0.5;
        dice.noise(20 * US) + if delayed { (dice.throw() * (4 * MS) as f64) as i64 } else { 0 }
    },
];

/// Returns in how many of 100 runs of 100 s a drift is reported.
fn detections(syncs: usize, drifted_ns: i64, noise: fn(&mut Dice) -> i64) -> usize {
    let run = Run { length_ns: 100 * S, syncs, ahead_ns: 5 * MS, ppm: drifted_ns as f64 / 1e5 };
    let is_detected = |seed: &u64| {
        let mut dice = Dice(seed * 77 + syncs as u64);
        run.fit(|_| noise(&mut dice)).drift_ppt != 0
    };
    (0..100).filter(is_detected).count()
}

#[test]
fn a_drift_that_noise_could_feign_is_not_told() {
    for noise in NOISES {
        for syncs in [MIN_GAPS_FOR_DRIFT, 20, MANY_GAPS, 300] {
            assert!(detections(syncs, 0, noise) <= 1, "{syncs}");
        }
        assert!(detections(300, 12 * 20 * US, noise) >= 99);
        assert!(detections(20, 200 * 20 * US, noise) >= 85);
        assert_eq!(detections(MIN_GAPS_FOR_DRIFT - 1, 200 * 20 * US, noise), 0);
    }
}

#[test]
fn delays_of_one_side_do_not_move_the_line() {
    // An increasing fraction of synchronisations from which one of the two ranks returns late by up
    // to a time slice.
    for (late, delayed) in [(0.2, 1), (0.4, 1), (0.4, -1), (0.6, 1), (0.6, -1)] {
        let mut dice = Dice(3);
        let fit = HOUR.fit(|_| {
            let slice =
                if dice.throw() < late { (dice.throw() * 4.0 * MS as f64) as i64 } else { 0 };
            delayed * slice + dice.noise(2 * US)
        });
        assert!(HOUR.error_ns(&fit) < 10 * US as u64, "{late} of {delayed}: {fit:?}");
        assert!(fit.drift_ppt.abs_diff(1_000_000) < 10_000, "{late} of {delayed}: {fit:?}");
    }
}

#[test]
fn cores_that_fill_up_in_mid_run_are_no_drift() {
    let run = Run { ppm: 0.0, ..HOUR };
    for delayed in [1, -1] {
        let mut dice = Dice(11);
        let fit = run.fit(|part| {
            let slice = if part > 0.5 { (dice.throw() * 4.0 * MS as f64) as i64 } else { 0 };
            delayed * slice + dice.noise(2 * US)
        });
        assert_eq!(fit.drift_ppt, 0, "{fit:?}");
        assert!(run.error_ns(&fit) < 5 * US as u64, "{fit:?}");
    }
}

#[test]
fn a_few_gaps_outvote_a_wrong_one() {
    for syncs in MIN_SYNCS..9 {
        for wrong in 0..syncs {
            let run = Run { length_ns: S, syncs, ahead_ns: 250 * MS, ppm: 0.0 };
            let mut gaps = run.gaps(|part| (part * 10.0) as i64 * US);
            gaps[wrong].1 += 40 * MS;
            let fit = fit(&gaps, S / 2).unwrap();
            assert!(run.error_ns(&fit) <= 10 * US as u64, "{wrong} of {syncs}: {fit:?}");
        }
    }
    assert_eq!(fit(&[(0, 1), (1, 1)], 0), None);
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let gaps = [i64::MIN, i64::MAX, 0, 1, 2].map(|number| (number, number));
    assert!(fit(&gaps, i64::MIN).is_some());
    assert!(fit(&gaps.repeat(20), i64::MAX).is_some());
    assert!(fit(&[(5, 5); 400], 0).is_some_and(|fit| fit.middle_ns == 5));
}

fn delays() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![3 => 0..5 * US, 1 => -4 * MS..4 * MS], 3..150)
}

fn gaps(delays: &[i64], ppm: f64) -> Vec<(i64, i64)> {
    let run = Run { length_ns: 600 * S, syncs: delays.len(), ahead_ns: 0, ppm };
    let mut delays = delays.iter();
    run.gaps(|_| *delays.next().unwrap())
}

proptest! {
    #[test]
    fn a_shift_of_the_clock_shifts_the_line(delays in delays(), by in -(1i64 << 60)..1 << 60) {
        let gaps = gaps(&delays, 2.0);
        let shifted: Vec<_> = gaps.iter().map(|(at, gap)| (*at, gap + by)).collect();
        let (one, other) = (fit(&gaps, 300 * S).unwrap(), fit(&shifted, 300 * S).unwrap());
        prop_assert_eq!(other, Fit { middle_ns: one.middle_ns + by, ..one });
    }

    #[test]
    fn the_begin_of_time_is_of_no_account(delays in delays(), by in -(1i64 << 60)..1 << 60) {
        let gaps = gaps(&delays, 2.0);
        let later: Vec<_> = gaps.iter().map(|(at, gap)| (at + by, *gap)).collect();
        prop_assert_eq!(fit(&gaps, 300 * S), fit(&later, 300 * S + by));
    }

    #[test]
    fn time_and_gaps_in_another_unit_give_the_same_drift(delays in delays(), factor in 2i64..20) {
        // Gaps large enough that the accuracy of anchors has no influence.
        let gaps: Vec<_> = gaps(&delays, 2.0).iter().map(|(at, gap)| (*at, gap * 1000)).collect();
        let scaled: Vec<_> = gaps.iter().map(|(at, gap)| (at * factor, gap * factor)).collect();
        let (one, other) = (fit(&gaps, 300 * S).unwrap(), fit(&scaled, 300 * S * factor).unwrap());
        let near = |one: i64, other: i64| one.abs_diff(other) <= 2 * factor as u64;
        if gaps.iter().map(|(_, gap)| gap).max() > gaps.iter().map(|(_, gap)| gap).min() {
            prop_assert!(near(one.middle_ns * factor, other.middle_ns), "{one:?} {other:?}");
            prop_assert!(near(one.drift_ppt, other.drift_ppt), "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_quarter_of_any_gaps_moves_the_line_no_further_than_the_noise(
        wrong in prop::collection::vec(-S..S, 0..25), seed in 0u64..1000,
    ) {
        let mut dice = Dice(seed);
        let run = Run { length_ns: 600 * S, syncs: 100, ahead_ns: 40 * MS, ppm: 5.0 };
        let mut gaps = run.gaps(|_| dice.noise(2 * US));
        for wrong in wrong {
            let place = (dice.throw() * 100.0) as usize;
            gaps[place].1 += wrong;
        }
        let fit = fit(&gaps, 300 * S).unwrap();
        prop_assert!(run.error_ns(&fit) < 8 * US as u64, "{fit:?}");
        prop_assert!(fit.drift_ppt.abs_diff(5_000_000) < 50_000, "{fit:?}");
    }
}
