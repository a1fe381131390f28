//! Temporal context trees of all threads of a process: under construction for live threads,
//! clustered for finished ones.

use plimsoll_wire::sync_id::{MAX_TEMPORAL_TREES, unfollowed};

use super::{KeyInterner, TemporalTree, WorkerThreads, passed};
use crate::raw_tree::{RawId, Tree};
use plimsoll_trees::{CapturedIteration, Node, WantedIteration};

/// The tree of the communicating thread may use `1 / MAIN_PART` of the memory for a history, the
/// tree of any other thread `1 / OTHERS_PART`.
const MAIN_MEMORY_DIVISOR: u64 = 4;
const OTHERS_MEMORY_DIVISOR: u64 = 64;

/// Temporal context trees of a process.
pub(crate) struct TemporalTrees {
    /// Meaning of the keys in all trees.
    pub(crate) keys: KeyInterner,
    /// Finished tree of the communicating thread; `None` until that thread has ended.
    pub(crate) main: Option<Node>,
    /// Finished trees of the other threads.
    pub(crate) workers: WorkerThreads,
    /// Set while trees are built.
    pub(crate) are_followed: bool,
    /// [`unfollowed::TEMPORAL_TREES`] if a thread had no tree since the run began, else 0.
    pub(crate) unfollowed: u32,
    /// Number of live threads with a tree.
    followed: usize,
    /// Number of threads seen, during the run and before.
    seen: u32,
    begin: u64,
    /// Number of times the run was restarted.
    runs: u32,
    memory_bytes: u64,
    /// Iterations of the communicating thread to be captured.
    wanted: Vec<WantedIteration>,
    /// Captured iterations of the communicating thread.
    pub(crate) captured: Vec<CapturedIteration>,
}

/// Temporal context tree of one thread.
pub(crate) struct ThreadTree {
    /// Position in the order in which the process's threads were seen.
    number: u32,
    /// Value of [`TemporalTrees::runs`] for which the tree is built.
    run: u32,
    /// Set if there is no tree, because too many other threads had one.
    is_unfollowed: bool,
    pub(crate) temporal_tree: Option<TemporalTree>,
}

impl ThreadTree {
    /// Notes a gap in the records of the thread.
    pub(crate) fn mark_gap(&mut self) {
        if let Some(temporal_tree) = &mut self.temporal_tree {
            temporal_tree.mark_gap();
        }
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.temporal_tree.as_ref().map_or(0, TemporalTree::bytes)
    }
}

impl TemporalTrees {
    /// Creates the trees of a run that begins at stamp `begin`; `memory_bytes` is the bound for the
    /// whole history. Without `are_followed`, trees are built only after
    /// [`TemporalTrees::restart`].
    pub(crate) fn new(begin: u64, memory_bytes: u64, are_followed: bool) -> Self {
        Self {
            keys: KeyInterner::default(),
            main: None,
            workers: WorkerThreads::default(),
            are_followed,
            unfollowed: 0,
            followed: 0,
            seen: 0,
            begin,
            runs: 0,
            memory_bytes,
            wanted: Vec::new(),
            captured: Vec::new(),
        }
    }

    /// Captures these iterations of the communicating thread; called before that thread is known.
    pub(crate) fn capture(&mut self, wanted: Vec<WantedIteration>) {
        self.wanted = wanted;
    }

    /// Discards all trees and starts a new run at stamp `begin`.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.keys.forget_contexts();
        self.main = None;
        self.workers.restart();
        self.are_followed = true;
        self.unfollowed = 0;
        self.begin = begin;
        self.runs += 1;
    }

    /// Registers a new thread, born at stamp `born` if that is known.
    pub(crate) fn thread(&mut self, born: Option<u64>) -> ThreadTree {
        let (number, run) = (self.seen, self.runs);
        let mut thread = ThreadTree { number, run, is_unfollowed: false, temporal_tree: None };
        self.seen += 1;
        if self.are_followed {
            self.follow(&mut thread, false, born);
        }
        thread
    }

    /// Marks the thread as the communicating one from the begin of the run.
    pub(crate) fn make_main(&mut self, thread: &mut ThreadTree) {
        if self.are_followed {
            self.follow(thread, true, None);
        }
    }

    /// Starts a new tree for the thread if the run was restarted. `booked`: stamp up to which the
    /// time of the thread is accounted for.
    pub(crate) fn keep_up(&mut self, thread: &mut ThreadTree, is_main: bool, booked: Option<u64>) {
        if self.are_followed && thread.run != self.runs {
            self.follow(thread, is_main, booked.filter(|_| !is_main));
        }
    }

    /// Returns whether the thread has no tree in this run, because too many others had one.
    pub(crate) fn is_unfollowed(&self, thread: &ThreadTree) -> bool {
        thread.is_unfollowed && thread.run == self.runs
    }

    /// Drops the tree of a thread that had none when its records were collected: a digest, which
    /// reads one thread after the other, has room for more trees at a time.
    pub(crate) fn unfollow(&mut self, thread: &mut ThreadTree) {
        self.followed -= usize::from(thread.temporal_tree.take().is_some());
        self.unfollowed |= unfollowed::TEMPORAL_TREES;
    }

    fn follow(&mut self, thread: &mut ThreadTree, is_main: bool, since: Option<u64>) {
        let begin = since.map_or(self.begin, |since| since.max(self.begin));
        self.followed -= usize::from(thread.temporal_tree.is_some());
        let is_followed = is_main || self.followed < MAX_TEMPORAL_TREES;
        self.followed += usize::from(is_followed);
        self.unfollowed |= if is_followed { 0 } else { unfollowed::TEMPORAL_TREES };
        thread.is_unfollowed = !is_followed;
        let part = if is_main { MAIN_MEMORY_DIVISOR } else { OTHERS_MEMORY_DIVISOR };
        thread.run = self.runs;
        thread.temporal_tree = is_followed.then(|| {
            let wanted = if is_main { self.wanted.clone() } else { Vec::new() };
            TemporalTree::new(begin, self.memory_bytes / part).capturing(wanted)
        });
    }

    /// Finishes the tree of a thread at stamp `end`, because the thread or the run has ended.
    /// Called once for each thread.
    pub(crate) fn end(&mut self, thread: &mut ThreadTree, is_main: bool, end: u64) {
        let is_of_this_run = thread.run == self.runs;
        let ended = thread.temporal_tree.take().and_then(|mut temporal_tree| {
            self.followed -= 1;
            let finished = temporal_tree.finish(end, &self.keys).filter(|_| is_of_this_run);
            finished.map(|finished| (finished, temporal_tree))
        });
        let worker = match ended {
            Some(((temporal_tree, captured), _)) if is_main => {
                (self.main, self.captured) = (Some(temporal_tree), captured);
                None
            }
            ended => ended.map(|((tree, _), ended)| (tree, ended.short_calls().collect())),
        };
        self.workers.add(thread.number, worker, &self.keys);
    }

    /// Clusters the remaining threads, after all of them have ended.
    pub(crate) fn finish(&mut self) {
        self.workers.finish(&self.keys);
    }

    /// Returns the raw contexts that the finished trees pass through.
    pub(crate) fn passed(&self, tree: &Tree) -> Vec<RawId> {
        let workers = self.workers.clusters().iter().map(|cluster| &cluster.tree);
        passed(self.main.iter().chain(workers), &self.keys, tree)
    }

    /// Returns the approximate memory use in bytes, without the trees of live threads.
    pub(crate) fn bytes(&self) -> u64 {
        let main = self.main.as_ref().map_or(0, |temporal_tree| temporal_tree.bytes() as u64);
        main + self.keys.bytes() + self.workers.bytes()
    }
}
