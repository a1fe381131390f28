//! Parallel work with results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `work` for each item, `at_once` at a time. Calls `report` with each result as soon as
/// possible, in the order of the items.
pub fn side_by_side<'a, T: Sync, R: Send>(
    items: &'a [T],
    at_once: usize,
    work: impl Fn(&'a T) -> R + Sync,
    mut report: impl FnMut(R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, items.len().max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((at, item)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    // The receiver stays until all senders are gone.
                    let _ = sender.send((at, work(item)));
                }
            });
        }
        drop(sender);
        let (mut early, mut reported) = (BTreeMap::new(), 0);
        for (at, result) in receiver {
            early.insert(at, result);
            while let Some(result) = early.remove(&reported) {
                report(result);
                reported += 1;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_are_reported_in_order_with_bounded_parallelism() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items: Vec<u64> = (0..20).collect();
        let mut reported = Vec::new();
        let work = |item: &u64| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis((20 - item) / 4));
            running.fetch_sub(1, Ordering::SeqCst);
            item * 2
        };
        side_by_side(&items, 3, work, |result| reported.push(result));
        assert_eq!(reported, (0..20).map(|item| item * 2).collect::<Vec<u64>>());
        assert!((2..=3).contains(&most.into_inner()));
    }

    #[test]
    fn an_empty_list_needs_no_work() {
        side_by_side(&[] as &[u8], 0, |_| (), |()| panic!("nothing was done"));
    }
}
