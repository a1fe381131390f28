//! Values of a process's threads other than the communicating one: each thread's own account as far
//! as the aggregation needs it, and one account per start routine for all others (ESPT15, 4).

use std::collections::BTreeMap;

use plimsoll_wire::sync_id::MAX_TEMPORAL_TREES;

use crate::account::Account;
use crate::profile::Aggregation;
use crate::raw_tree::{IdMap, RawId};
use crate::time_series::{Grouping, Resolution, TimeSeries};

/// Maximum number of ended threads with an account of their own, if the aggregation keeps only a
/// few of the threads in the end.
const MAX_ENDED_CANDIDATES: usize = 64;

/// Number of ended threads at each end of the order by work that keep an account of their own once
/// [`MAX_ENDED_CANDIDATES`] is exceeded. More than one, because the work is estimated here and
/// determined when all names are known.
const MAX_EXTREMES: usize = 8;

/// Maximum number of ended threads with an account of their own, if the aggregation compares all
/// threads.
const MAX_SEPARATE_THREADS: usize = 1024;

/// Threads with a number below this one have a time series. Bounded by the number, so that when the
/// rings were read decides nothing; and the same number of threads has temporal context trees, by
/// which a series groups contexts.
const MAX_TIMED_THREADS: u32 = MAX_TEMPORAL_TREES as u32;

/// Account of one thread.
pub(crate) struct ThreadAccount {
    /// Address id of the start routine; 0 if unknown.
    pub(crate) routine: u32,
    pub(crate) account: Account,
    /// The thread's time by bins of the run; `None` beyond [`MAX_TIMED_THREADS`], or if the
    /// aggregation keeps no single threads.
    pub(crate) times: Option<Box<TimeSeries>>,
    has_ended: bool,
}

/// Accounts of all threads but the communicating one.
pub(crate) struct ThreadAccounts {
    aggregation: Aggregation,
    /// Stamp at which the run begins.
    begin: u64,
    /// Threads with an account of their own, by number.
    separate: IdMap<u32, ThreadAccount>,
    /// Number of ended threads in `separate`.
    ended: usize,
    /// Values of the other threads, by the address id of their start routine.
    merged: IdMap<u32, Account>,
    /// Number of threads in `merged`; not counted under [`Aggregation::Sum`].
    merged_threads: u64,
}

impl ThreadAccounts {
    /// Creates the accounts of a run without threads that begins at a stamp.
    pub(crate) fn new(begin: u64, aggregation: Aggregation) -> Self {
        Self {
            aggregation,
            begin,
            separate: IdMap::default(),
            ended: 0,
            merged: IdMap::default(),
            merged_threads: 0,
        }
    }

    /// Returns the aggregation that the accounts are kept for.
    pub(crate) fn aggregation(&self) -> Aggregation {
        self.aggregation
    }

    /// Discards all values and starts a new run at stamp `begin`.
    pub(crate) fn restart(&mut self, begin: u64) {
        *self = Self::new(begin, self.aggregation);
    }

    /// Returns the account and the time series that values of a thread are charged to. `number` is
    /// the position of the thread in the order in which threads were first seen.
    pub(crate) fn of_thread(
        &mut self,
        number: u32,
        routine: u32,
    ) -> (&mut Account, Option<&mut TimeSeries>) {
        if self.aggregation == Aggregation::Sum {
            return (self.merged.entry(routine).or_default(), None);
        }
        let shows_threads = matches!(self.aggregation, Aggregation::Key | Aggregation::All);
        let new = || ThreadAccount {
            routine,
            account: Account::default(),
            times: (shows_threads && number < MAX_TIMED_THREADS)
                .then(|| Box::new(TimeSeries::new(self.begin, Resolution::OTHER))),
            has_ended: false,
        };
        let thread = self.separate.entry(number).or_insert_with(new);
        (&mut thread.account, thread.times.as_deref_mut())
    }

    /// Ends all time series and merges what is not needed, after all threads have ended.
    pub(crate) fn finish(&mut self, grouping: Grouping<'_>, works: impl Fn(RawId) -> bool) {
        if self.aggregation == Aggregation::Key && self.merged_threads > 0 {
            // Otherwise the threads that are merged would depend on the order in which ends were
            // read, and with them what rounding makes of their times.
            self.merge_middle(works);
        }
        let threads = self.separate.values_mut();
        threads.filter_map(|thread| thread.times.as_mut()).for_each(|it| it.finish(grouping));
    }

    /// Discards the account of a thread, because it is the communicating one.
    pub(crate) fn remove(&mut self, number: u32) {
        let removed = self.separate.remove(&number);
        self.ended -= usize::from(removed.is_some_and(|thread| thread.has_ended));
    }

    /// Notes the end of a thread. When many threads have ended, merges those that the aggregation
    /// will not need by themselves. `works` says whether the time in a context is work.
    pub(crate) fn end(&mut self, number: u32, works: impl Fn(RawId) -> bool) {
        let Some(thread) = self.separate.get_mut(&number) else { return };
        self.ended += usize::from(!std::mem::replace(&mut thread.has_ended, true));
        match self.aggregation {
            Aggregation::Key if self.ended > MAX_ENDED_CANDIDATES => self.merge_middle(works),
            Aggregation::Key | Aggregation::Sum => {}
            Aggregation::Set | Aggregation::Calltree | Aggregation::All => {
                if self.ended > MAX_SEPARATE_THREADS {
                    self.merge_last();
                }
            }
        }
    }

    /// Merges all ended threads but those with the most and the least work.
    fn merge_middle(&mut self, works: impl Fn(RawId) -> bool) {
        let ended = self.separate.iter().filter(|(_, thread)| thread.has_ended);
        let mut by_work: Vec<(u64, u32)> = ended
            .map(|(number, thread)| (estimated_work(&thread.account, &works), *number))
            .collect();
        by_work.sort_unstable();
        let middle = by_work.len().saturating_sub(2 * MAX_EXTREMES);
        for (_, number) in by_work.iter().skip(MAX_EXTREMES).take(middle) {
            self.merge(*number);
        }
    }

    /// Merges the ended thread with the highest number, so that the order in which ends are read
    /// does not matter.
    fn merge_last(&mut self) {
        let ended = self.separate.iter().filter(|(_, thread)| thread.has_ended);
        if let Some(last) = ended.map(|(number, _)| *number).max() {
            self.merge(last);
        }
    }

    fn merge(&mut self, number: u32) {
        if let Some(mut thread) = self.separate.remove(&number) {
            self.merged.entry(thread.routine).or_default().absorb(&mut thread.account);
            self.merged_threads += 1;
            self.ended -= usize::from(thread.has_ended);
        }
    }

    /// Returns the accounts of single threads, by number.
    pub(crate) fn separate(&self) -> BTreeMap<u32, &ThreadAccount> {
        self.separate.iter().map(|(number, thread)| (*number, thread)).collect()
    }

    /// Returns the accounts of all threads that have none of their own, by the address id of their
    /// start routine.
    pub(crate) fn merged(&self) -> BTreeMap<u32, &Account> {
        self.merged.iter().map(|(routine, account)| (*routine, account)).collect()
    }

    /// Returns the number of threads in [`ThreadAccounts::merged`]; 0 under [`Aggregation::Sum`].
    pub(crate) fn merged_threads(&self) -> u64 {
        self.merged_threads
    }

    /// Returns all accounts, each with the address id of a start routine, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Account)> {
        let separate = self.separate.values().map(|thread| (thread.routine, &thread.account));
        separate.chain(self.merged.iter().map(|(routine, account)| (*routine, account)))
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let times = self.separate.values().filter_map(|thread| thread.times.as_ref());
        let accounts = self.iter().map(|(_, account)| account.bytes()).sum::<u64>();
        accounts + times.map(|times| times.bytes()).sum::<u64>()
    }
}

/// Time in work, in stamps; work without samples included.
fn estimated_work(account: &Account, works: impl Fn(RawId) -> bool) -> u64 {
    let working = account.values().iter().filter(|(raw, _)| works(*raw));
    let unsampled: u64 = account.unsampled().values().sum();
    working.map(|(_, value)| value.time).sum::<u64>().saturating_add(unsampled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_tree::{ROOT, Tree};
    use crate::temporal::KeyInterner;

    fn accounts(aggregation: Aggregation, threads: u32, tree: &mut Tree) -> ThreadAccounts {
        ended_in_order(aggregation, threads, 0..threads, tree)
    }

    fn ended_in_order(
        aggregation: Aggregation,
        threads: u32,
        order: impl Iterator<Item = u32>,
        tree: &mut Tree,
    ) -> ThreadAccounts {
        let mut accounts = ThreadAccounts::new(0, aggregation);
        let work = tree.child(ROOT, 7, false).unwrap();
        let wait = tree.child(work, 1, true).unwrap();
        for number in order {
            let (account, times) = accounts.of_thread(number, number % 3);
            assert!(times.is_none() || number < MAX_TIMED_THREADS);
            // The order by work is not the order of ending.
            account.work(work, 1000 + u64::from(number * 7 % threads), 0);
            account.spend(wait, 1 << 20);
            accounts.end(number, |raw| !tree.in_call(raw));
        }
        accounts
    }

    fn whole(accounts: &ThreadAccounts) -> u64 {
        let values = accounts.iter().flat_map(|(_, account)| account.values().iter());
        values.map(|(_, value)| value.time).sum()
    }

    #[test]
    fn ended_threads_keep_the_extremes_and_lose_no_time() {
        let threads = 500;
        let mut tree = Tree::new(100);
        let accounts = accounts(Aggregation::Key, threads, &mut tree);
        let kept = accounts.separate();
        assert!(kept.len() <= MAX_ENDED_CANDIDATES, "{}", kept.len());
        let worked = |number: &u32| number * 7 % threads;
        let slowest = (0..threads).max_by_key(worked).unwrap();
        let fastest = (0..threads).min_by_key(worked).unwrap();
        assert!(kept.contains_key(&slowest) && kept.contains_key(&fastest));
        assert_eq!(accounts.merged_threads() + kept.len() as u64, u64::from(threads));
        let n = u64::from(threads);
        assert_eq!(whole(&accounts), n * (1000 + (1 << 20)) + n * (n - 1) / 2);
        assert_eq!(accounts.merged().len(), 3, "by start routine");
    }

    #[test]
    fn each_aggregation_keeps_what_it_needs() {
        for (aggregation, separate) in [
            (Aggregation::Sum, 0),
            (Aggregation::Set, MAX_SEPARATE_THREADS),
            (Aggregation::Calltree, MAX_SEPARATE_THREADS),
            (Aggregation::All, MAX_SEPARATE_THREADS),
        ] {
            let mut tree = Tree::new(100);
            let accounts = accounts(aggregation, 1100, &mut tree);
            assert_eq!(accounts.separate().len(), separate, "{aggregation:?}");
            let n = 1100;
            assert_eq!(whole(&accounts), n * (1000 + (1 << 20)) + n * (n - 1) / 2);
        }
    }

    #[test]
    fn the_order_in_which_ends_are_read_does_not_matter() {
        let threads = 1500;
        for aggregation in [Aggregation::Key, Aggregation::Set, Aggregation::All] {
            let accounts = [1, 7, 611].map(|step| {
                let mut tree = Tree::new(100);
                let order = (0..threads).map(|index| index * step % threads);
                let mut accounts = ended_in_order(aggregation, threads, order, &mut tree);
                let keys = KeyInterner::default();
                let grouping = Grouping { tree: &tree, keys: &keys };
                accounts.finish(grouping, |raw| !tree.in_call(raw));
                let merged = accounts.merged().into_iter().map(|(routine, account)| {
                    let mut values: Vec<_> = account.values().iter().collect();
                    values.sort_by_key(|(raw, _)| *raw);
                    (routine, values)
                });
                let separate: Vec<u32> = accounts.separate().into_keys().collect();
                (separate, accounts.merged_threads(), merged.collect::<Vec<_>>())
            });
            assert!(accounts[0].1 > 0, "{aggregation:?}: some are merged");
            assert_eq!(accounts[0], accounts[1], "{aggregation:?}");
            assert_eq!(accounts[0], accounts[2], "{aggregation:?}");
        }
    }

    #[test]
    fn a_thread_that_communicates_has_no_account_here() {
        let mut tree = Tree::new(100);
        let mut accounts = accounts(Aggregation::Key, 2, &mut tree);
        accounts.remove(1);
        accounts.remove(5);
        assert_eq!(accounts.separate().into_keys().collect::<Vec<_>>(), [0]);
        assert_eq!(accounts.ended, 1);
    }
}
