//! Worked facts of ICS18, on trees of this project: the paper prints no numbers for its figures.

use super::*;
use crate::flatten::flattened;
use crate::{difference, merged, ratio};

const PERIOD: u64 = 4_000_000;

/// Two instances of one call, of seven periods each: A runs a period longer in the second, D a
/// period shorter.
fn figure_7() -> (Node, Node) {
    let tree = |a: u64, d: u64| {
        regular(
            2,
            Kind::Call,
            vec![
                Part::Own(PERIOD),
                call(10, a * PERIOD),
                call(20, PERIOD),
                Part::Own(PERIOD),
                call(30, PERIOD),
                call(40, d * PERIOD),
            ],
        )
    };
    (tree(1, 2), tree(2, 1))
}

#[test]
fn figure_7_two_periods_of_fourteen() {
    let (one, other) = figure_7();
    assert_eq!(one.duration() + other.duration(), 14 * PERIOD);
    assert_eq!(difference(&one, &other, &Decades), 2.0 * PERIOD as f64);
    assert!((ratio(&one, &other, &Decades) - 0.143).abs() < 0.0005);
}

#[test]
fn figure_7_is_within_what_sampling_can_tell() {
    let (one, other) = figure_7();
    let (one, other) = (sampled(one, PERIOD), sampled(other, PERIOD));
    assert_eq!(difference(&one, &other, &Decades), 0.0);
}

fn leaf(samples: u64) -> Node {
    sampled(regular(2, Kind::Call, vec![Part::Own(samples * PERIOD)]), PERIOD)
}

#[test]
fn figure_8_a_perfect_match_is_possible_up_to_two_periods() {
    for (one, other, periods) in [(3, 3, 0), (3, 4, 0), (3, 5, 0), (3, 6, 1), (3, 10, 5)] {
        let truth = (periods * PERIOD) as f64;
        assert_eq!(difference(&leaf(one), &leaf(other), &Decades), truth);
        assert_eq!(difference(&leaf(other), &leaf(one), &Decades), truth);
    }
}

/// Boundaries known to the stamp (entry and return of wrapped calls) have no deduction.
#[test]
fn exact_boundaries_are_taken_at_their_word() {
    let exact = |duration| regular(2, Kind::Call, vec![Part::Own(duration)]);
    assert_eq!(difference(&exact(1000), &exact(1001), &Decades), 1.0);
    // Began within the period before its first sample, returned at a known stamp.
    let half = |duration| Node {
        begin: Boundary { earlier: PERIOD, later: 0 },
        ..regular(2, Kind::Call, vec![Part::Own(duration)])
    };
    assert_eq!(difference(&half(10 * PERIOD), &half(11 * PERIOD), &Decades), 0.0);
    assert_eq!(difference(&half(10 * PERIOD), &half(12 * PERIOD), &Decades), PERIOD as f64);
}

/// Algorithm 2, lines 13 to 22: children without a partner are compared to nothing, and the gaps
/// around them count as one.
#[test]
fn children_without_partner_count_in_full() {
    let whole = iteration(&[(10, 5), (20, 7), (30, 11)]);
    let without = iteration(&[(10, 5), (30, 11)]);
    assert_eq!(difference(&whole, &without, &Decades), 7.0);
    let nothing = iteration(&[]);
    assert_eq!(difference(&whole, &nothing, &Decades), 23.0);
    // Each tree has another of two branches: neither precedes the other, and the next child still
    // matches.
    let (one, other) = (iteration(&[(21, 7), (30, 11)]), iteration(&[(22, 9), (30, 10)]));
    assert_eq!(difference(&one, &other, &Decades), 7.0 + 9.0 + 1.0);
    let own = |before, after| {
        regular(1, Kind::Iteration, vec![Part::Own(before), call(20, 7), Part::Own(after)])
    };
    let only_own = regular(1, Kind::Iteration, vec![Part::Own(10)]);
    assert_eq!(difference(&own(4, 6), &only_own, &Decades), 7.0);
    assert_eq!(difference(&own(4, 5), &own(5, 4), &Decades), 2.0);
}

/// A call of two samples without a partner: of its two periods one may exceed its true duration,
/// and one may have run unseen in the other tree.
#[test]
fn a_call_that_was_hardly_seen_is_no_difference() {
    let tree = |samples: u64| {
        let mut parts = vec![call(10, 20 * PERIOD)];
        parts.extend((samples > 0).then(|| call(20, samples * PERIOD)));
        parts.push(call(30, 20 * PERIOD));
        sampled(regular(1, Kind::Iteration, parts), PERIOD)
    };
    for (samples, periods) in [(1, 0), (2, 0), (3, 1), (9, 7)] {
        let truth = (periods * PERIOD) as f64;
        assert_eq!(difference(&tree(samples), &tree(0), &Decades), truth, "{samples}");
    }
}

/// Equal children find each other without control flow.
#[test]
fn without_control_flow_what_comes_later_decides() {
    struct Unknown;
    impl ControlFlow for Unknown {
        fn precedes(&self, _: Key, _: Key, _: Key) -> Option<bool> {
            None
        }
    }
    let one = iteration(&[(50, 3), (10, 5), (20, 7)]);
    let other = iteration(&[(10, 5), (20, 7)]);
    assert_eq!(difference(&one, &other, &Unknown), 3.0);
    assert_eq!(difference(&other, &one, &Unknown), 3.0);
}

/// Errors of the instances in a profile are independent: of 100 calls with one sample each, ten
/// periods may be error, not a hundred. ICS18 deducts two periods from such a sum, for any number
/// of instances.
#[test]
fn errors_of_many_instances_grow_with_the_root_of_their_number() {
    let tree = |calls: u64| {
        let calls = (0..calls).map(|_| call(10, PERIOD)).collect();
        flattened(&sampled(regular(2, Kind::Call, calls), PERIOD))
    };
    // 144 less its error of 12, against 64 with its error of 8; each error is half a period either
    // side.
    let truth = (144 - 12 - (64 + 8)) * PERIOD;
    assert_eq!(difference(&tree(144), &tree(64), &Decades), truth as f64);
    assert_eq!(difference(&tree(100), &tree(110), &Decades), 0.0);
}

/// The order of two trees makes no difference to their merge.
#[test]
fn a_merge_has_no_first_and_second() {
    let one = iteration(&[(10, 5), (22, 7), (30, 11), (52, 3)]);
    let other = iteration(&[(21, 9), (30, 10), (51, 2)]);
    let both = merged(one.clone(), other.clone(), &Decades);
    assert_eq!(both, merged(other, one, &Decades));
    let keys: Vec<u32> = both.children_by_time().map(|(_, child)| child.key().0).collect();
    assert_eq!(keys, [10, 21, 22, 30, 51, 52]);
    let begins: Vec<u64> = both.children_by_time().map(|(begin, _)| begin).collect();
    assert_eq!(begins, [0, 5, 14, 21, 42, 44]);
}
