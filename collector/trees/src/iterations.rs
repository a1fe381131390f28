//! Telling the iterations of a loop apart (ICS18, 3.2, Algorithm 1), and when to believe it.

use super::ControlFlow;
use super::tree_node::{Key, Kind};

/// CHILD_NUM_ACC: a stretch with so many children is one iteration.
pub const ACCEPTED_CHILDREN: usize = 5;

/// CHILD_DUR_ACC: so is one with a child that lasts so many sampling periods.
pub const ACCEPTED_PERIODS: u64 = 5;

/// Algorithm 1 as its loop's children begin: the loop, and the last of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct IterationSplitter {
    parent: Key,
    previous: Option<(Kind, Key)>,
}

impl IterationSplitter {
    /// Of a loop that begins.
    pub fn new(parent: Key) -> Self {
        Self { parent, previous: None }
    }

    /// An instance of a child begins: whether a back edge must have been taken since the one before
    /// it began, so that this is another iteration.
    ///
    /// The first child follows the loop's entry. A child that repeats, as a new instance, needs a
    /// back edge whatever the flow says. Two stretches of one iteration cannot be told apart if they
    /// do not repeat or go back; several short iterations can look like one.
    pub fn begins(&mut self, kind: Kind, child: Key, flow: &dyn ControlFlow) -> bool {
        match self.previous.replace((kind, child)) {
            None => false,
            Some((_, previous)) if previous == child => kind != Kind::Leaf,
            Some((_, previous)) => !flow.precedes(self.parent, previous, child),
        }
    }
}

/// Algorithm 1 over all children of a loop by time: the identifier of each.
pub fn identifiers(parent: Key, children: &[(Kind, Key)], flow: &dyn ControlFlow) -> Vec<u64> {
    let mut identifier = IterationSplitter::new(parent);
    let mut number = 0;
    let tags = children.iter().map(|(kind, child)| {
        number += u64::from(identifier.begins(*kind, *child, flow));
        number
    });
    tags.collect()
}

/// What speaks for it that all children with one identifier belong to one iteration.
///
/// A call that lasts is one: its frame has stayed. That a loop lasts, of which no iterations are known, is
/// only as sure as its samples: if nothing else happened to be sampled, it may have run a thousand times,
/// each in another iteration of the loop around it. So beyond ICS18 that is believed only where two
/// such loops took turns, each of them for long, or where a call in the iteration is recorded, which would
/// have been seen each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationEvidence {
    /// Calls and loops. Places in the code do not count, as they may be hit by chance.
    children: usize,
    /// Of calls, and of loops with iterations.
    longest: u64,
    /// Of loops without, and the second longest of these.
    loops: [u64; 2],
}

impl IterationEvidence {
    /// Another child, and whether it is a profile node.
    pub fn add(&mut self, kind: Kind, duration: u64, is_profile: bool) {
        match kind {
            Kind::Leaf => return,
            Kind::Loop if is_profile => {
                let [first, second] = self.loops;
                self.loops = [first.max(duration), second.max(duration.min(first))];
            }
            _ => self.longest = self.longest.max(duration),
        }
        self.children += 1;
    }

    /// Whether they are believed to; `is_recorded` tells whether any call in the iteration is recorded.
    pub fn is_accepted(&self, period: u64, is_recorded: impl FnOnce() -> bool) -> bool {
        let least = period.saturating_mul(ACCEPTED_PERIODS);
        let [first, second] = self.loops;
        self.children >= ACCEPTED_CHILDREN
            || self.longest >= least
            || second >= least
            || (first >= least && is_recorded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in the order of their keys; of two in one ten only one runs.
    struct Branches;

    impl ControlFlow for Branches {
        fn precedes(&self, _: Key, one: Key, other: Key) -> bool {
            one.0 / 10 < other.0 / 10
        }
    }

    fn tags(children: &[u32]) -> Vec<u64> {
        let children: Vec<_> = children.iter().map(|key| (Kind::Call, Key(*key))).collect();
        identifiers(Key(1), &children, &Branches)
    }

    /// ICS18, Figures 3 to 6: three iterations of a loop that calls A, B and C, in which samples
    /// saw A B C, A (B and C not), and A again as a new instance.
    #[test]
    fn the_paper_s_example_has_three_iterations() {
        assert_eq!(tags(&[10, 20, 30, 10, 10, 20]), [0, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn branches_and_missing_children_need_a_back_edge() {
        // A switch: one case after another is another iteration.
        assert_eq!(tags(&[11, 12, 13, 11]), [0, 1, 2, 3]);
        // `continue`: the rest of the body is missing.
        assert_eq!(tags(&[10, 30, 10, 20, 10]), [0, 0, 1, 1, 2]);
        // The seeds' limit: A in one iteration, C in a later one.
        assert_eq!(tags(&[10, 30]), [0, 0]);
        assert_eq!(tags(&[]), [0; 0]);
    }

    #[test]
    fn a_place_in_the_code_does_not_repeat() {
        let leaf = (Kind::Leaf, Key(10));
        assert_eq!(identifiers(Key(1), &[leaf, leaf, leaf], &Branches), [0, 0, 0]);
    }

    /// With a period of 4, and without recorded calls or with one.
    fn accepted(children: &[(Kind, u64)]) -> (bool, bool) {
        let mut evidence = IterationEvidence::default();
        let is_loop = |kind: Kind| kind == Kind::Loop;
        children.iter().for_each(|(kind, duration)| evidence.add(*kind, *duration, is_loop(*kind)));
        (evidence.is_accepted(4, || false), evidence.is_accepted(4, || true))
    }

    #[test]
    fn what_is_accepted() {
        const CALL: Kind = Kind::Call;
        assert_eq!(accepted(&[(CALL, 1); 5]), (true, true));
        assert_eq!(accepted(&[(CALL, 1); 4]), (false, false));
        assert_eq!(accepted(&[(CALL, 20)]), (true, true));
        assert_eq!(accepted(&[(CALL, 19)]), (false, false));
    }

    #[test]
    fn what_samples_may_have_hit_by_chance_is_no_evidence() {
        let places = [(Kind::Leaf, 20); 9];
        assert_eq!(accepted(&places), (false, false));
        // One loop that seems to go on, with a short call after it.
        assert_eq!(accepted(&[(Kind::Loop, 90), (Kind::Call, 4)]), (false, true));
        // Two that took turns.
        assert_eq!(accepted(&[(Kind::Loop, 90), (Kind::Loop, 20)]), (true, true));
        assert_eq!(accepted(&[(Kind::Loop, 19), (Kind::Loop, 90)]), (false, true));
    }
}
