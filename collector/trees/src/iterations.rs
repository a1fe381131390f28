//! Splitting of a loop's execution into iterations (ICS18, 3.2, Algorithm 1), and their acceptance.

use super::ControlFlow;
use super::tree_node::{Key, Kind};

/// Minimum number of children of an accepted iteration (CHILD_NUM_ACC).
pub const ACCEPTED_CHILDREN: usize = 5;

/// Minimum duration, in sampling periods, of one child of an accepted iteration (CHILD_DUR_ACC).
pub const ACCEPTED_PERIODS: u64 = 5;

/// State of Algorithm 1 while a loop's children begin: the loop and the children that have begun in
/// the open iteration.
#[derive(Clone, Debug, Default)]
pub struct IterationSplitter {
    parent: Key,
    /// Each child once, in order of time.
    begun: Vec<Key>,
}

impl IterationSplitter {
    /// Creates the state for a loop that begins.
    pub fn new(parent: Key) -> Self {
        Self { parent, begun: Vec::new() }
    }

    /// Begins another loop.
    pub(super) fn restart(&mut self, parent: Key) {
        self.parent = parent;
        self.begun.clear();
    }

    /// Takes the begin of a child. Returns whether a back edge was taken since the previous child
    /// began, so that the child belongs to a new iteration.
    ///
    /// The first child follows the loop's entry. A new instance of a child that has already run
    /// needs a back edge. Two iterations look like one if the second neither repeats a child nor
    /// goes back; several short iterations can look like one. Beyond ICS18: where the control flow
    /// from the previous child is unknown, a child needs a back edge only if it repeats, or must
    /// precede, a child of the open iteration.
    pub fn begins(&mut self, kind: Kind, child: Key, flow: &dyn ControlFlow) -> bool {
        let follows = |before: &Key| flow.precedes(self.parent, *before, child);
        let is_back = match self.begun.last() {
            None => false,
            Some(previous) if *previous == child && kind == Kind::Leaf => return false,
            Some(previous) => !follows(previous).unwrap_or_else(|| {
                let mut begun = self.begun.iter();
                begun.all(|before| *before != child && follows(before) != Some(false))
            }),
        };
        if is_back {
            self.begun.clear();
        }
        self.begun.push(child);
        is_back
    }
}

/// Returns the identifier of each child of a loop, in order of time (Algorithm 1).
pub fn identifiers(parent: Key, children: &[(Kind, Key)], flow: &dyn ControlFlow) -> Vec<u64> {
    let mut identifier = IterationSplitter::new(parent);
    let mut number = 0;
    let tags = children.iter().map(|(kind, child)| {
        number += u64::from(identifier.begins(*kind, *child, flow));
        number
    });
    tags.collect()
}

/// Evidence that all children with one identifier belong to one iteration.
///
/// A long call is evidence: its frame stayed on the stack. A long loop without known iterations is
/// weak evidence: if no sample hit anything else, that loop may have run in a thousand iterations
/// of the outer loop. Beyond ICS18, such a loop therefore counts only if two of them alternated,
/// each for long, or if a call in the iteration is recorded, which would have been seen in each
/// iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationEvidence {
    /// Number of calls and loops. Leaves do not count: samples hit them by chance.
    children: usize,
    /// Longest call or loop with iterations.
    longest: u64,
    /// Longest and second longest loop without iterations.
    loops: [u64; 2],
}

impl IterationEvidence {
    /// Adds a child; `is_profile`: the child is a profile node.
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

    /// Returns whether the iteration is accepted; `is_recorded` tells whether any call in it is
    /// recorded.
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

    /// Order of keys; of two keys in one decade only one runs in a pass. From 100 on, nothing is
    /// known.
    struct Branches;

    impl ControlFlow for Branches {
        fn precedes(&self, _: Key, one: Key, other: Key) -> Option<bool> {
            (one.0.max(other.0) < 100).then_some(one.0 / 10 < other.0 / 10)
        }
    }

    fn tags(children: &[u32]) -> Vec<u64> {
        let children: Vec<_> = children.iter().map(|key| (Kind::Call, Key(*key))).collect();
        identifiers(Key(1), &children, &Branches)
    }

    /// ICS18, Figures 3 to 6: three iterations of a loop that calls A, B and C. Samples saw A B C,
    /// then A alone, then A as a new instance.
    #[test]
    fn the_paper_s_example_has_three_iterations() {
        assert_eq!(tags(&[10, 20, 30, 10, 10, 20]), [0, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn branches_and_missing_children_need_a_back_edge() {
        // A switch: each further case is another iteration.
        assert_eq!(tags(&[11, 12, 13, 11]), [0, 1, 2, 3]);
        // `continue`: the rest of the body does not run.
        assert_eq!(tags(&[10, 30, 10, 20, 10]), [0, 0, 1, 1, 2]);
        // Known limit: A in one iteration and C in a later one look like one iteration.
        assert_eq!(tags(&[10, 30]), [0, 0]);
        assert_eq!(tags(&[]), [0; 0]);
    }

    #[test]
    fn where_the_flow_is_unknown_a_child_that_runs_again_needs_a_back_edge() {
        assert_eq!(tags(&[100, 101, 102, 100, 101, 101]), [0, 0, 0, 1, 1, 2]);
        // Known children keep their order.
        assert_eq!(tags(&[10, 100, 20, 101, 10, 100]), [0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_place_in_the_code_does_not_repeat() {
        let leaf = (Kind::Leaf, Key(10));
        assert_eq!(identifiers(Key(1), &[leaf, leaf, leaf], &Branches), [0, 0, 0]);
    }

    /// Acceptance with a period of 4, without and with recorded calls.
    fn accepted(children: &[(Kind, u64)]) -> (bool, bool) {
        let mut evidence = IterationEvidence::default();
        let is_loop = |kind: Kind| kind == Kind::Loop;
        children.iter().for_each(|(kind, duration)| evidence.add(*kind, *duration, is_loop(*kind)));
        (evidence.is_accepted(4, || false), evidence.is_accepted(4, || true))
    }

    #[test]
    fn accepted_iterations() {
        const CALL: Kind = Kind::Call;
        assert_eq!(accepted(&[(CALL, 1); 5]), (true, true));
        assert_eq!(accepted(&[(CALL, 1); 4]), (false, false));
        assert_eq!(accepted(&[(CALL, 20)]), (true, true));
        assert_eq!(accepted(&[(CALL, 19)]), (false, false));
    }

    #[test]
    fn leaves_and_loops_without_iterations_are_weak_evidence() {
        let places = [(Kind::Leaf, 20); 9];
        assert_eq!(accepted(&places), (false, false));
        // One loop that seems to continue, and a short call after it.
        assert_eq!(accepted(&[(Kind::Loop, 90), (Kind::Call, 4)]), (false, true));
        // Two loops that alternated.
        assert_eq!(accepted(&[(Kind::Loop, 90), (Kind::Loop, 20)]), (true, true));
        assert_eq!(accepted(&[(Kind::Loop, 19), (Kind::Loop, 90)]), (false, true));
    }
}
