//! The courses of all threads of a process: followed while threads live, and what they have come to.

use plimsoll_wire::sync::{MAX_COURSES, unfollowed};

use super::{Course, Crew, Keys, passed};
use crate::tree::{RawId, Tree};
use plimsoll_trees::Node;

/// Parts of the memory for a history that the course of the communicating thread may take, and of any
/// other thread.
const MAIN_PART: u64 = 4;
const OTHERS_PART: u64 = 64;

/// The courses of a process.
pub(crate) struct Courses {
    /// What the keys of all of them stand for.
    pub(crate) keys: Keys,
    /// The one of the communicating thread, when it is over.
    pub(crate) main: Option<Node>,
    /// Those of the others.
    pub(crate) crew: Crew,
    /// They are followed.
    pub(crate) are_followed: bool,
    /// [`unfollowed::COURSES`] if one was not since the run began, else 0.
    pub(crate) unfollowed: u32,
    /// Of how many threads now.
    followed: usize,
    /// Threads that were seen, in the run and before it.
    seen: u32,
    begin: u64,
    /// How many times the run has begun anew.
    runs: u32,
    memory_bytes: u64,
}

/// A thread's part in them.
pub(crate) struct ThreadCourse {
    /// In which order it was seen among the process's threads.
    number: u32,
    /// The run that its course belongs to.
    run: u32,
    pub(crate) course: Option<Course>,
}

impl ThreadCourse {
    /// Some of what the thread did is not known.
    pub(crate) fn lose(&mut self) {
        if let Some(course) = &mut self.course {
            course.lose();
        }
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.course.as_ref().map_or(0, Course::bytes)
    }
}

impl Courses {
    /// Of a run that begins at a stamp, with a bound on the memory for its history; unless `are_followed`,
    /// only from where it begins anew.
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

    /// The run begins anew at a stamp.
    pub(crate) fn restart(&mut self, begin: u64) {
        self.main = None;
        self.crew = Crew::default();
        self.are_followed = true;
        self.unfollowed = 0;
        self.begin = begin;
        self.runs += 1;
    }

    /// A thread begins, which was born at a stamp, if that is known.
    pub(crate) fn thread(&mut self, born: Option<u64>) -> ThreadCourse {
        let mut thread = ThreadCourse { number: self.seen, run: self.runs, course: None };
        self.seen += 1;
        if self.are_followed {
            self.follow(&mut thread, false, born);
        }
        thread
    }

    /// The thread is the communicating one, from the begin of the run.
    pub(crate) fn make_main(&mut self, thread: &mut ThreadCourse) {
        if self.are_followed {
            self.follow(thread, true, None);
        }
    }

    /// Follows a thread through the run that has begun since. `booked`: up to where its time is known.
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

    /// A thread has ended, or the run has, at a stamp.
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

    /// All threads have ended.
    pub(crate) fn finish(&mut self) {
        self.crew.compare(&self.keys);
    }

    /// The raw contexts that finished courses have passed through.
    pub(crate) fn passed(&self, tree: &Tree) -> Vec<RawId> {
        let crew = self.crew.clusters().iter().map(|cluster| &cluster.tree);
        passed(self.main.iter().chain(crew), &self.keys, tree)
    }

    /// Memory in use, roughly, beside what threads have that live.
    pub(crate) fn bytes(&self) -> u64 {
        let main = self.main.as_ref().map_or(0, |course| course.bytes() as u64);
        main + self.keys.bytes() + self.crew.bytes()
    }
}
