//! Steps that run side by side, and start further steps.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A step of a longer work.
pub struct Step<'a> {
    /// Part of the capacity that the step takes.
    load: usize,
    /// Does the step, and returns the steps that follow it.
    work: Box<dyn FnOnce() -> Vec<Self> + Send + 'a>,
}

impl<'a> Step<'a> {
    /// Makes a step of this load. `work` must not panic.
    pub fn new(load: usize, work: impl FnOnce() -> Vec<Self> + Send + 'a) -> Self {
        Self { load, work: Box::new(work) }
    }
}

/// Steps that wait, and what is left of the capacity.
struct Queue<'a> {
    waiting: VecDeque<Step<'a>>,
    running: usize,
    free: usize,
}

/// Runs `steps` and all that follow, as many side by side as `capacity` allows. A step starts when
/// all steps before it have started; steps that follow another one are put in front, so that a
/// work that is begun ends soon. A load above the capacity takes all of it.
pub fn run_steps(capacity: usize, steps: Vec<Step<'_>>) {
    let queue = Queue { waiting: steps.into(), running: 0, free: capacity };
    let (queue, changed) = (Mutex::new(queue), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..capacity {
            scope.spawn(|| {
                while let Some((load, step)) = next(&queue, &changed, capacity) {
                    let followers = (step.work)();
                    let mut queue = lock(&queue);
                    followers.into_iter().rev().for_each(|step| queue.waiting.push_front(step));
                    queue.running -= 1;
                    queue.free += load;
                    changed.notify_all();
                }
            });
        }
    });
}

/// Waits for a step that may start, and takes it and its load; `None` when all are done.
fn next<'a>(
    queue: &Mutex<Queue<'a>>,
    changed: &Condvar,
    capacity: usize,
) -> Option<(usize, Step<'a>)> {
    let mut queue = lock(queue);
    loop {
        match queue.waiting.front().map(|step| step.load.clamp(1, capacity)) {
            Some(load) if load <= queue.free => {
                queue.free -= load;
                queue.running += 1;
                return queue.waiting.pop_front().map(|step| (load, step));
            }
            None if queue.running == 0 => return None,
            _ => queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn lock<'q, 'a>(queue: &'q Mutex<Queue<'a>>) -> MutexGuard<'q, Queue<'a>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn steps_fill_the_capacity_and_never_exceed_it() {
        let (running, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::default());
        let work = |load: usize, name: String| {
            most.fetch_max(running.fetch_add(load, Ordering::SeqCst) + load, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            running.fetch_sub(load, Ordering::SeqCst);
            let mut done: MutexGuard<'_, Vec<String>> = done.lock().unwrap();
            done.push(name);
        };
        let work = &work;
        let first = (0..6).map(|at| {
            // More than the capacity takes all of it.
            let load = if at == 3 { 9 } else { 1 + at % 2 };
            Step::new(load, move || {
                work(load.min(3), format!("{at}"));
                let follow = |after: usize| {
                    Step::new(1, move || {
                        work(1, format!("{at}.{after}"));
                        Vec::new()
                    })
                };
                (0..2).map(follow).collect()
            })
        });
        run_steps(3, first.collect());
        let mut done = done.lock().unwrap().clone();
        assert_eq!((done.len(), most.load(Ordering::SeqCst)), (18, 3), "{done:?}");
        let place = |name: &str| done.iter().position(|other| other == name).unwrap();
        assert!((0..6).all(|at| place(&format!("{at}")) < place(&format!("{at}.0"))), "{done:?}");
        done.sort();
        done.dedup();
        assert_eq!(done.len(), 18);
    }

    #[test]
    fn what_follows_a_step_comes_before_later_steps() {
        let done = Mutex::new(Vec::new());
        let note = |name: &'static str| done.lock().unwrap().push(name);
        let note = &note;
        let end = |name| {
            Step::new(1, move || {
                note(name);
                Vec::new()
            })
        };
        let first = Step::new(1, move || {
            note("a");
            vec![end("b"), end("c")]
        });
        run_steps(1, vec![first, end("d")]);
        assert_eq!(*done.lock().unwrap(), ["a", "b", "c", "d"]);
    }
}
