use super::*;
use crate::diagnose::diagnose_alone;
use crate::summary::Summary;
use crate::synthetic_run::{MS, Subject, diagnose_on, doing, job};

const BARRIER: &str = "main/MPI_Barrier";
/// Tolerance between the truth and the summary, in microseconds: a few roundings.
const NEAR_US: f64 = 0.01;

/// Steps of 10 ms; the last rank works twice as long.
fn uneven(ranks: u32, steps: u32) -> Subject {
    let mut subject = Subject::new(ranks);
    for _ in 0..steps {
        subject.step(BARRIER, |rank| {
            vec![doing("main/work", (10 + 10 * u64::from(rank + 1 == ranks)) * MS)]
        });
    }
    subject
}

/// Puts the ranks on two nodes; the second node's clock is ahead by `ahead_ns` and drifts by
/// `drift_ppm`.
fn two_nodes(subject: &mut Subject, ahead_ns: i64, drift_ppm: f64) {
    let half = subject.ranks as usize / 2;
    for clock in &mut subject.clocks[half..] {
        clock.known.id = "other".to_owned();
        (clock.ahead_ns, clock.drift_ppm) = (ahead_ns, drift_ppm);
    }
}

fn alone(subject: &Subject) -> Summary {
    diagnose_alone(subject.inputs(), &job()).unwrap()
}

fn assert_near(found: &[f64], truth: &[f64]) {
    let near = |(one, other): (&f64, &f64)| (one - other).abs() <= NEAR_US;
    let same = found.len() == truth.len() && found.iter().zip(truth).all(near);
    assert!(same, "{found:?} is not {truth:?}");
}

#[test]
fn skewed_nodes_are_aligned_whoever_holds_the_ranks() {
    let mut subject = uneven(6, 40);
    two_nodes(&mut subject, -250_000_000, 0.0);
    subject.clocks[2].known.id = "third".to_owned();
    subject.clocks[2].ahead_ns = 3_700_000_000;
    let one = alone(&subject);
    assert_eq!((one.clocks.method, one.clocks.reference), (ClockMethod::Regions, 0));
    assert_near(
        &one.clocks.offsets_us,
        &[0.0, 0.0, 3_700_000.0, -250_000.0, -250_000.0, -250_000.0],
    );
    assert_eq!(one.clocks.drift_ppm, [0.0; 6]);
    assert_eq!(one.clocks.residual_us, Some(0.0));
    for processes in [2, 3, 7] {
        let found = diagnose_on(processes, &subject.inputs(), &job());
        assert_eq!(found, one, "{processes} processes");
    }
    // Except for clocks, the diagnosis equals that of a run with aligned clocks.
    let plain = alone(&uneven(6, 40));
    assert_eq!(Summary { clocks: plain.clocks.clone(), ..one }, plain);
}

#[test]
fn a_clock_that_drifts_is_told_with_its_offset_at_the_begin() {
    // 800 s: 1 ppm of it is 0.8 ms.
    for drift_ppm in [0.0, 1.0, 50.0] {
        let mut subject = uneven(4, 40_000);
        two_nodes(&mut subject, 42_000, drift_ppm);
        let clocks = alone(&subject).clocks;
        assert_near(&clocks.offsets_us, &[0.0, 0.0, 42.0, 42.0]);
        assert_near(&clocks.drift_ppm, &[0.0, 0.0, drift_ppm, drift_ppm]);
    }
}

#[test]
fn a_rank_that_is_ever_later_is_no_clock_that_drifts() {
    let mut subject = uneven(8, 1000);
    two_nodes(&mut subject, -250_000_000, 0.0);
    // Taken alone, the rank's delays look like a clock 50 ppm fast: 1 ms over 20 s of steps.
    subject.clocks[6].late_ns = |index| index * 1000;
    let clocks = alone(&subject).clocks;
    assert_near(&clocks.offsets_us[4..], &[-250_000.0; 4]);
    assert_eq!(clocks.drift_ppm, [0.0; 8]);
}

#[test]
fn the_first_to_return_tells_for_its_clock() {
    let mut subject = uneven(8, 100);
    two_nodes(&mut subject, 3_700_000_000, 0.0);
    // On the reference's node each rank is late in most synchronisations, but in different ones.
    for (rank, clock) in subject.clocks[..4].iter_mut().enumerate() {
        clock.late_ns = match rank {
            0 => |index| if index % 4 == 0 { 0 } else { (1 + index % 7) * MS },
            1 => |index| if index % 4 == 1 { 0 } else { (1 + index % 5) * MS },
            2 => |index| if index % 4 == 2 { 0 } else { (1 + index % 3) * MS },
            _ => |index| if index % 4 == 3 { 0 } else { (1 + index % 6) * MS },
        };
    }
    // On the other node one rank never returns promptly.
    subject.clocks[5].late_ns = |index| (3 + index % 3) * MS;
    let clocks = alone(&subject).clocks;
    assert_near(&clocks.offsets_us[..4], &[0.0; 4]);
    assert_near(&clocks.offsets_us[4..], &[3_700_000.0; 4]);
    // The ranks of the first node share a clock, so their delays show in the residual.
    assert!(clocks.residual_us.is_some_and(|us| (1000.0..4000.0).contains(&us)), "{clocks:?}");
}

#[test]
fn ranks_of_one_clock_are_together_without_synchronisations() {
    let clocks = alone(&uneven(3, 2)).clocks;
    assert_eq!((clocks.offsets_us, clocks.method), (vec![0.0; 3], ClockMethod::None));
    assert_eq!(clocks.residual_us, None);
    // Ranks with unknown clocks cannot be aligned.
    let mut subject = uneven(3, 2);
    subject.clocks.iter_mut().for_each(|clock| clock.known.id.clear());
    assert_eq!(alone(&subject).clocks.offsets_us, [0.0; 0]);
    let mut subject = uneven(3, 3);
    subject.clocks.iter_mut().for_each(|clock| clock.known.id.clear());
    assert_eq!(alone(&subject).clocks.method, ClockMethod::Regions);
}

/// Sets the exchanges of two processes 1 s and 101 s after the begin.
fn tell(subject: &mut Subject, gaps_ns: [i64; 2], error_ns: u64) {
    for clock in &mut subject.clocks {
        let ahead = |gap: i64| if clock.known.id == "other" { gap } else { 0 };
        let begin_ns = crate::synthetic_run::BEGIN_NS as i64 + 1_000_000_000;
        clock.known.exchanges = [(begin_ns, gaps_ns[0]), (begin_ns + 100_000_000_000, gaps_ns[1])]
            .map(|(at_ns, gap)| Exchange { at_ns, ahead_ns: ahead(gap), error_ns })
            .to_vec();
    }
}

#[test]
fn messages_stand_in_where_synchronisations_are_few() {
    let mut subject = uneven(4, 2);
    two_nodes(&mut subject, 777, 0.0);
    assert_eq!(alone(&subject).clocks.method, ClockMethod::None);
    tell(&mut subject, [5_001_000, 5_101_000], 4000);
    let clocks = alone(&subject).clocks;
    assert_eq!(clocks.method, ClockMethod::PingPong);
    // 100 us in 100 s.
    assert_near(&clocks.offsets_us, &[0.0, 0.0, 5000.0, 5000.0]);
    assert_near(&clocks.drift_ppm, &[0.0, 0.0, 1.0, 1.0]);
    assert_eq!(clocks.residual_us, Some(8.0));
    // A drift within the error of the messages is reported as none.
    tell(&mut subject, [5_001_000, 5_011_000], 4000);
    assert_eq!(alone(&subject).clocks.drift_ppm, [0.0; 4]);
    // Clocks without an exchange at the end keep the offset of the first one; without any exchange
    // there is no result.
    for clock in &mut subject.clocks {
        clock.known.exchanges.truncate(1);
    }
    assert_near(&alone(&subject).clocks.offsets_us, &[0.0, 0.0, 5001.0, 5001.0]);
    for clock in &mut subject.clocks[2..] {
        clock.known.exchanges.clear();
    }
    assert_eq!(alone(&subject).clocks.method, ClockMethod::None);
}

#[test]
fn messages_are_believed_where_all_are_late_from_all_synchronisations() {
    let mut subject = uneven(4, 40);
    two_nodes(&mut subject, 3_700_000_000, 0.0);
    for clock in &mut subject.clocks[2..] {
        clock.late_ns = |index| (15 + index % 3) * MS;
    }
    tell(&mut subject, [3_700_000_000, 3_700_000_500], 1000);
    let clocks = alone(&subject).clocks;
    assert_eq!((clocks.method, clocks.residual_us), (ClockMethod::PingPong, Some(2.0)));
    assert!(clocks.offsets_us[3] >= 3_700_000.0 && clocks.offsets_us[3] <= 3_700_000.5);
    // Delays vary, so that the median rank is further off the line than the line's error.
    for clock in &mut subject.clocks[2..] {
        clock.late_ns = |index| (5 + index * 7 % 20) * MS;
    }
    assert_eq!(alone(&subject).clocks.method, ClockMethod::PingPong);
    // Differences below the precision of samples are no contradiction.
    for clock in &mut subject.clocks[2..] {
        clock.late_ns = |_| 3 * MS;
    }
    let clocks = alone(&subject).clocks;
    assert_eq!(clocks.method, ClockMethod::Regions);
    assert_near(&clocks.offsets_us, &[0.0, 0.0, 3_703_000.0, 3_703_000.0]);
    // Differences within the error of the messages are none either.
    for clock in &mut subject.clocks[2..] {
        clock.late_ns = |index| (15 + index % 3) * MS;
    }
    tell(&mut subject, [3_700_000_000, 3_700_000_500], 10_000_000);
    assert_eq!(alone(&subject).clocks.method, ClockMethod::Regions);
}
