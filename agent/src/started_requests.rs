//! Requests of point-to-point communication that a thread has started: with whom, until they are
//! complete, freed or cancelled.
//!
//! The table is bounded, and so is the list of requests of one call that is followed. What another
//! thread completes stays in the table until its handle comes back, or until the table is full:
//! then all requests but persistent ones are forgotten, and their partners stay unknown.

/// Requests that are followed at the same time.
const MAX_REQUESTS: usize = 1024;
/// Places of the table, a power of two.
const PLACES: usize = 2 * MAX_REQUESTS;
/// Requests of one list that are followed.
pub const MAX_LISTED: usize = 1024;

/// What a request has started, or will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// Rank that the message goes to, among all ranks.
    pub to: Option<u32>,
    /// Where the message comes from.
    pub from: Option<Source>,
    /// Bytes of the message that is sent.
    pub bytes: u64,
    /// The request can be started again.
    pub is_persistent: bool,
    /// The request is started.
    pub is_active: bool,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank among all ranks.
    Rank(u32),
    /// Any rank of a communicator, by its number among those whose ranks are known; the status tells.
    Any(u32),
}

#[derive(Clone, Copy)]
struct Place {
    /// The request's handle plus one; 0: free.
    key: u64,
    started: Started,
}

/// A thread's requests. Zeros are an empty table.
pub struct StartedRequests {
    places: [Place; PLACES],
    used: usize,
    listed: [u64; MAX_LISTED],
    listed_count: usize,
}

impl StartedRequests {
    /// Makes an empty table of zeros.
    ///
    /// # Safety
    /// The table's memory is zeroed, and the caller's alone.
    pub unsafe fn begin(table: *mut Self) {
        // SAFETY: as the caller promises; places without a key are not read.
        unsafe { ((&raw mut (*table).used).write(0), (&raw mut (*table).listed_count).write(0)) };
    }

    /// A request was started or made; one that has the handle already is no more.
    pub fn insert(&mut self, handle: u64, started: Started) {
        let key = key_of(handle);
        if let Some(place) = self.find(key) {
            self.places[place].started = started;
            return;
        }
        if self.used == MAX_REQUESTS {
            self.forget_single_ones();
            if self.used == MAX_REQUESTS {
                return;
            }
        }
        let mut place = home(key);
        while self.places[place].key != 0 {
            place = (place + 1) % PLACES;
        }
        self.places[place] = Place { key, started };
        self.used += 1;
    }

    /// What a request has started.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<&Started> {
        self.find(key_of(handle)).map(|place| &self.places[place].started)
    }

    /// A persistent request was started: what it has started now.
    pub fn start(&mut self, handle: u64) -> Option<Started> {
        let place = self.find(key_of(handle))?;
        let started = &mut self.places[place].started;
        started.is_active = true;
        Some(*started)
    }

    /// A request is complete, or what it has started was cancelled: what that was, if it was started.
    /// Persistent ones stay.
    #[inline]
    pub fn complete(&mut self, handle: u64) -> Option<Started> {
        let place = self.find(key_of(handle))?;
        let found = self.places[place].started;
        match found.is_persistent {
            true => self.places[place].started.is_active = false,
            false => self.free(place),
        }
        found.is_active.then_some(found)
    }

    /// A request was freed, or its handle is that of something else now.
    pub fn remove(&mut self, handle: u64) {
        if let Some(place) = self.find(key_of(handle)) {
            self.free(place);
        }
    }

    /// Notes the handles of the requests that a call may complete; those beyond [`MAX_LISTED`] are not
    /// followed.
    #[inline]
    pub fn list(&mut self, handles: impl ExactSizeIterator<Item = u64>) {
        self.listed_count = 0;
        for (place, handle) in self.listed.iter_mut().zip(handles) {
            *place = handle;
            self.listed_count += 1;
        }
    }

    /// How many handles are noted.
    #[inline]
    pub fn listed(&self) -> usize {
        self.listed_count
    }

    /// A handle that was noted.
    #[inline]
    pub fn listed_handle(&self, at: usize) -> Option<u64> {
        self.listed[..self.listed_count].get(at).copied()
    }

    /// All requests are forgotten.
    pub fn clear(&mut self) {
        if self.used > 0 {
            self.places.iter_mut().for_each(|place| place.key = 0);
        }
        (self.used, self.listed_count) = (0, 0);
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let mut place = home(key);
        loop {
            match self.places[place].key {
                0 => return None,
                found if found == key => return Some(place),
                _ => place = (place + 1) % PLACES,
            }
        }
    }

    /// Frees a place, and moves those behind it up (Knuth, TAOCP 3, 6.4, Algorithm R).
    fn free(&mut self, mut gap: usize) {
        let mut place = gap;
        loop {
            place = (place + 1) % PLACES;
            let key = self.places[place].key;
            if key == 0 {
                break;
            }
            let distance = |from: usize| place.wrapping_sub(from) % PLACES;
            if distance(home(key)) >= distance(gap) {
                self.places[gap] = self.places[place];
                gap = place;
            }
        }
        self.places[gap].key = 0;
        self.used -= 1;
    }

    #[cold]
    #[inline(never)]
    fn forget_single_ones(&mut self) {
        let mut place = 0;
        while place < PLACES {
            let Place { key, started } = self.places[place];
            if key != 0 && !started.is_persistent {
                // Another one may have moved here.
                self.free(place);
            } else {
                place += 1;
            }
        }
    }
}

/// Handles are never all ones.
fn key_of(handle: u64) -> u64 {
    handle.wrapping_add(1)
}

fn home(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn table() -> Box<StartedRequests> {
        // SAFETY: zeros are an empty table, and what is not read.
        unsafe {
            let mut table = Box::<StartedRequests>::new_zeroed();
            StartedRequests::begin(table.as_mut_ptr());
            table.assume_init()
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u64, bool),
        Start(u64),
        Complete(u64),
        Remove(u64),
    }

    /// Handles as heaps give them and as MPICH counts them; few of them, so that they come back.
    fn handle() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0u64..300).prop_map(|at| 0x55d0_1234_5680 + at * 0x170),
            (0u64..300).prop_map(|at| 0x9800_0000 + at),
            Just(u64::MAX - 1),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (handle(), any::<bool>()).prop_map(|(handle, again)| Step::Insert(handle, again)),
            1 => handle().prop_map(Step::Start),
            2 => handle().prop_map(Step::Complete),
            1 => handle().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn requests_are_those_of_a_map(steps in prop::collection::vec(step(), 0..600)) {
            let (mut table, mut truth) = (table(), HashMap::<u64, Started>::new());
            for (at, step) in (0u32..).zip(steps) {
                match step {
                    Step::Insert(handle, is_persistent) => {
                        let from = Some(Source::Rank(at));
                        let is_active = !is_persistent;
                        let it = Started { from, is_persistent, is_active, ..Started::default() };
                        table.insert(handle, it);
                        truth.insert(handle, it);
                    }
                    Step::Start(handle) => {
                        if let Some(it) = truth.get_mut(&handle) {
                            it.is_active = true;
                        }
                        prop_assert_eq!(table.start(handle), truth.get(&handle).copied());
                    }
                    Step::Complete(handle) => {
                        let known = truth.get(&handle).copied();
                        match truth.get_mut(&handle) {
                            Some(it) if it.is_persistent => it.is_active = false,
                            _ => drop(truth.remove(&handle)),
                        }
                        let known = known.filter(|known| known.is_active);
                        prop_assert_eq!(table.complete(handle), known);
                    }
                    Step::Remove(handle) => {
                        table.remove(handle);
                        truth.remove(&handle);
                    }
                }
                prop_assert_eq!(table.used, truth.len());
            }
            for (handle, it) in &truth {
                prop_assert_eq!(table.get(*handle), Some(it));
            }
        }
    }

    #[test]
    fn a_full_table_forgets_all_but_persistent_requests() {
        let mut table = table();
        let once = Started { to: Some(1), is_active: true, ..Started::default() };
        let again = Started { is_persistent: true, ..once };
        for handle in 0..MAX_REQUESTS as u64 {
            table.insert(handle, if handle % 4 == 0 { again } else { once });
        }
        table.insert(1 << 40, once);
        assert_eq!(table.used, MAX_REQUESTS / 4 + 1);
        assert_eq!([table.get(8), table.get(1 << 40)], [Some(&again), Some(&once)]);
        assert_eq!([table.get(9), table.get(1 << 41)], [None, None]);
        (0..2 * MAX_REQUESTS as u64).for_each(|handle| table.insert(handle, again));
        assert_eq!(table.used, MAX_REQUESTS, "what more there are is not followed");
    }

    #[test]
    fn long_lists_are_followed_at_their_begin() {
        let mut table = table();
        table.list([7, 8].into_iter());
        assert_eq!([table.listed_handle(1), table.listed_handle(2)], [Some(8), None]);
        let long: Vec<u64> = (0..2000).collect();
        table.list(long.into_iter());
        assert_eq!((table.listed(), table.listed_handle(1023)), (MAX_LISTED, Some(1023)));
    }
}
