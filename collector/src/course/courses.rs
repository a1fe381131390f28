//! Temporal context trees of all threads of a process: under construction for live threads,
//! clustered for finished ones.

use plimsoll_wire::sync::{MAX_COURSES, unfollowed};

use super::{Course, Crew, Keys, passed};
use crate::tree::{RawId, Tree};
use plimsoll_trees::Node;

/// The tree of the communicating thread may use `1 / MAIN_PART` of the memory for a history, the
/// tree of any other thread `1 / OTHERS_PART`.
const MAIN_PART: u64 = 4;
const OTHERS_PART: u64 = 64;

/// Temporal context trees of a process.
pub(crate) struct Courses {
    /// Meaning of the keys in all trees.
    pub(crate) keys: Keys,
    /// Finished tree of the communicating thread; `None` until that thread has ended.
    pub(crate) main: Option<Node>,
    /// Finished trees of the other threads.
    pub(crate) crew: Crew,
    /// Set while trees are built.
    pub(crate) are_followed: bool,
    /// [`unfollowed::COURSES`] if a thread had no tree since the run began, else 0.
    pub(crate) unfollowed: u32,
    /// Number of live threads with a tree.
    followed: usize,
    /// Number of threads seen, during the run and before.
    seen: u32,
    begin: u64,
    /// Number of times the run was restarted.
    runs: u32,
    memory_bytes: u64,
}

/// Temporal context tree of one thread.
pub(crate) struct ThreadCourse {
    /// Position in the order in which the process's threads were seen.
    number: u32,
    /// Value of [`Courses::runs`] for which the tree is built.
    run: u32,
    pub(crate) course: Option<Course>,
}

impl ThreadCourse {
    /// Notes a gap in the records of the thread.
    pub(crate) fn lose(&mut self) {
        if let Some(course) = &mut self.course {
            course.lose();
        }
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.course.as_ref().map_or(0, Course::bytes)
    }
}

impl Courses {
    /// Creates the trees of a run that begins at stamp `begin`; `memory_bytes` is the bound for the
    /// whole history. Without `are_followed`, trees are built only after [`Courses::restart`].
    pub(crate) fn new(begin: u64, memory_bytes: u64, are_followed: bool) -> Self {
        Self {
            keys: Keys::default(),
            main: None,
            crew: Crew::default(),
            are_followed,
            unfollowed: 0,
            followed: 0,
            seen: 0,
            begin,
            runs: 0,
            memory_bytes,
        }
    }

    /// Discards all trees and starts a new run at stamp `begin`.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.main = None;
        self.crew = Crew::default();
        self.are_followed = true;
        self.unfollowed = 0;
        self.begin = begin;
        self.runs += 1;
    }

    /// Registers a new thread, born at stamp `born` if that is known.
    pub(crate) fn thread(&mut self, born: Option<u64>) -> ThreadCourse {
        let mut thread = ThreadCourse { number: self.seen, run: self.runs, course: None };
        self.seen += 1;
        if self.are_followed {
            self.follow(&mut thread, false, born);
        }
        thread
    }

    /// Marks the thread as the communicating one from the begin of the run.
    pub(crate) fn make_main(&mut self, thread: &mut ThreadCourse) {
        if self.are_followed {
            self.follow(thread, true, None);
        }
    }

    /// Starts a new tree for the thread if the run was restarted. `booked`: stamp up to which the
    /// time of the thread is accounted for.
    pub(crate) fn keep_up(
        &mut self,
        thread: &mut ThreadCourse,
        is_main: bool,
        booked: Option<u64>,
    ) {
        if self.are_followed && thread.run != self.runs {
            self.follow(thread, is_main, booked.filter(|_| !is_main));
        }
    }

    fn follow(&mut self, thread: &mut ThreadCourse, is_main: bool, since: Option<u64>) {
        let begin = since.map_or(self.begin, |since| since.max(self.begin));
        self.followed -= usize::from(thread.course.is_some());
        let is_followed = is_main || self.followed < MAX_COURSES;
        self.followed += usize::from(is_followed);
        self.unfollowed |= if is_followed { 0 } else { unfollowed::COURSES };
        let part = if is_main { MAIN_PART } else { OTHERS_PART };
        thread.run = self.runs;
        thread.course = is_followed.then(|| Course::new(begin, self.memory_bytes / part));
    }

    /// Finishes the tree of a thread at stamp `end`, because the thread or the run has ended.
    pub(crate) fn end(&mut self, thread: &mut ThreadCourse, is_main: bool, end: u64) {
        let Some(mut course) = thread.course.take() else { return };
        self.followed -= 1;
        let course = course.finish(end, &self.keys).filter(|_| thread.run == self.runs);
        match course {
            Some(course) if is_main => self.main = Some(course),
            Some(course) => self.crew.add(thread.number, course, &self.keys),
            None => {}
        }
    }

    /// Clusters the remaining threads, after all of them have ended.
    pub(crate) fn finish(&mut self) {
        self.crew.compare(&self.keys);
    }

    /// Returns the raw contexts that the finished trees pass through.
    pub(crate) fn passed(&self, tree: &Tree) -> Vec<RawId> {
        let crew = self.crew.clusters().iter().map(|cluster| &cluster.tree);
        passed(self.main.iter().chain(crew), &self.keys, tree)
    }

    /// Approximate memory use in bytes, without the trees of live threads.
    pub(crate) fn bytes(&self) -> u64 {
        let main = self.main.as_ref().map_or(0, |course| course.bytes() as u64);
        main + self.keys.bytes() + self.crew.bytes()
    }
}
