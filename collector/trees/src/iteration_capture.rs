//! Capture of single iterations while a tree is built: an iteration that is later summed up in its
//! cluster is kept as it was, within the call path of its loop.

use std::cell::RefCell;

use super::open::Open;
use super::tree_node::{Boundary, Content, Kind, Node};

/// Maximum number of iterations captured for one description.
const MAX_CAPTURED: usize = 4;

/// Description of an iteration to be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedIteration {
    /// Number of the iteration in its execution of the loop, from 0.
    pub number: u64,
    /// Minimum duration, in the tree's unit of time.
    pub min_duration: u64,
    /// Maximum duration, in the tree's unit of time.
    pub max_duration: u64,
}

/// A captured iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedIteration {
    /// Number of the iteration in its execution of the loop, from 0.
    pub number: u64,
    /// Duration, in the tree's unit of time.
    pub duration: u64,
    /// The tree's root with the call path to the loop, one child in each node. The loop has the
    /// children of the iteration. The time of a node on the path is that of the iteration.
    pub path: Node,
}

/// Iterations to be captured, and those that were.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture {
    wanted: Vec<WantedIteration>,
    /// Iterations that closed during the present change of the stack, with their numbers.
    closed: RefCell<Vec<(u64, Node)>>,
    captured: RefCell<Vec<CapturedIteration>>,
}

impl Capture {
    /// Creates the capture of these iterations.
    pub(super) fn new(wanted: Vec<WantedIteration>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Copies an iteration that closes, if the iteration is wanted.
    pub(super) fn iteration_closed(&self, number: u64, iteration: &Node) {
        let fits = |wanted: &WantedIteration| {
            wanted.number == number
                && (wanted.min_duration..=wanted.max_duration).contains(&iteration.duration)
        };
        let alike =
            |it: &&CapturedIteration| it.number == number && it.duration == iteration.duration;
        if self.wanted.iter().any(fits)
            && self.captured.borrow().iter().filter(alike).count() < MAX_CAPTURED
        {
            self.closed.borrow_mut().push((number, iteration.clone()));
        }
    }

    /// Puts the iterations that have just closed into the call path of their loop; `around` are the
    /// open frames around the loop.
    pub(super) fn place(&self, around: &[Open]) {
        for (number, iteration) in self.closed.borrow_mut().drain(..) {
            let duration = iteration.duration;
            let outer = |inner: Node, frame: &Open| Node {
                key: frame.key,
                kind: frame.kind,
                count: 1,
                before: 0,
                duration,
                own: 0,
                begin: Boundary::default(),
                end: Boundary::default(),
                content: Content::Ordered(vec![inner]),
            };
            let innermost = Node { kind: Kind::Loop, ..iteration };
            let path = around.iter().rev().fold(innermost, outer);
            self.captured.borrow_mut().push(CapturedIteration { number, duration, path });
        }
    }

    /// Returns the captured iterations.
    pub(super) fn into_captured(self) -> Vec<CapturedIteration> {
        self.captured.into_inner()
    }
}
