//! Started requests: the point-to-point requests of a thread and their partners, until they are
//! complete, freed or cancelled.
//!
//! The table is bounded, and so is the number of requests followed per call. A request that another
//! thread completes stays in the table until its handle is reused or the table is full. A full
//! table forgets all requests but persistent ones, and their partners stay unknown.

use core::mem::offset_of;
use core::ops::Range;

use crate::channels::{Channel, Direction};

/// Maximum number of requests followed at the same time.
const MAX_REQUESTS: usize = 1024;
/// Number of places of the hash table, a power of two.
const PLACES: usize = 2 * MAX_REQUESTS;
/// Maximum number of requests followed per list of a completion call.
pub const MAX_LISTED: usize = 1024;

/// Communication that a request has started or, if persistent, will start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// Destination of the message, a rank among all ranks; `None` if there is none.
    pub to: Option<u32>,
    /// Source of the message; `None` if there is none.
    pub from: Option<Source>,
    /// Bytes of the sent message.
    pub bytes: u64,
    /// Whether the request is persistent and can be started again.
    pub is_persistent: bool,
    /// Whether the request is partitioned. Partitioned messages match each other alone, in the
    /// order in which their requests are made, and are sent after their requests are started
    /// (MPI-4.1, 4.2): neither a number of a channel nor a time of sending is known.
    pub is_partitioned: bool,
    /// Whether the request is started.
    pub is_active: bool,
    /// Numbering of the message in its channel.
    pub numbering: Numbering,
    /// Tag of the message; negative if a wildcard.
    pub tag: i32,
    /// Number of the communicator among those with known ranks.
    pub communicator: u32,
    /// Time stamp counter at the begin of the call that started the request.
    pub posted: u64,
}

/// Numbering of a message in its channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The message is not exemplary.
    #[default]
    None,
    /// The message is exemplary and has this number.
    Number(u32),
    /// The message takes its number when it arrives: sender or tag is a wildcard.
    AtCompletion,
}

/// Where the message of a request takes its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberedBy {
    /// The message takes the next number of this channel when the request starts.
    Start(Channel),
    /// The message takes its number when it arrives: sender or tag is a wildcard.
    Arrival,
    /// The message takes no number.
    Nothing,
}

impl Started {
    /// Returns where the message of the request takes its number. Of a request that also sends,
    /// only the received message is meant.
    #[inline(always)]
    pub fn numbered_by(&self) -> NumberedBy {
        let Self { communicator, tag, .. } = *self;
        let (direction, partner) = match (self.from, self.to) {
            _ if self.is_partitioned => return NumberedBy::Nothing,
            (Some(Source::Rank(from)), _) if tag >= 0 => (Direction::Received, from),
            (Some(_), _) => return NumberedBy::Arrival,
            (None, Some(to)) => (Direction::Sent, to),
            (None, None) => return NumberedBy::Nothing,
        };
        NumberedBy::Start(Channel { direction, partner, communicator, tag })
    }

    /// Returns whether the request receives a message that takes its number when it arrives.
    #[inline]
    pub fn is_wildcard_receive(&self) -> bool {
        self.from.is_some() && self.numbering == Numbering::AtCompletion
    }
}

/// Outcome of inserting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The request was added.
    Added,
    /// The request has replaced one with the same handle.
    Replaced(Started),
    /// The table was full: requests were forgotten.
    Forgotten,
}

/// Source of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank among all ranks.
    Rank(u32),
    /// Any rank of a communicator, given by its number among the communicators with known ranks.
    /// The status names the rank.
    Any(u32),
}

#[derive(Clone, Copy)]
struct RequestSlot {
    /// The request's handle plus one; 0: free.
    key: u64,
    started: Started,
}

/// Place of a request in the table.
#[derive(Clone, Copy, Debug)]
pub struct RequestPlace(usize);

/// A thread's table of started requests. Zeroed memory is an empty table.
pub struct StartedRequests {
    places: [RequestSlot; PLACES],
    used: usize,
    listed: [u64; MAX_LISTED],
    listed_count: usize,
}

impl StartedRequests {
    /// Bytes of a table without requests that need no initial value: the places of such a table
    /// have no keys.
    pub(crate) const UNREAD: Range<usize> =
        offset_of!(Self, places)..offset_of!(Self, places) + size_of::<[RequestSlot; PLACES]>();

    /// Turns zeroed memory into an empty table.
    ///
    /// # Safety
    /// The table's memory is zeroed, and nothing but the caller uses it.
    pub unsafe fn begin(table: *mut Self) {
        // SAFETY: as the caller promises; places without a key are not read.
        unsafe { ((&raw mut (*table).used).write(0), (&raw mut (*table).listed_count).write(0)) };
    }

    /// Adds a request that was started or created. Returns false, and adds nothing, if there is one
    /// with the same handle or no room: [`Self::insert`] is for these.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, handle: u64, started: Started) -> bool {
        let key = key_of(handle);
        let place = self.search(key);
        if self.places[place].key == key || self.used == MAX_REQUESTS {
            return false;
        }
        self.places[place] = RequestSlot { key, started };
        self.used += 1;
        true
    }

    /// Inserts a request that was started or created. Replaces a request with the same handle,
    /// which no longer exists or shares the handle, as sends do that are complete at once.
    pub fn insert(&mut self, handle: u64, started: Started) -> Inserted {
        if self.add(handle, started) {
            return Inserted::Added;
        }
        let key = key_of(handle);
        let place = self.search(key);
        if self.places[place].key == key {
            let before = std::mem::replace(&mut self.places[place].started, started);
            return Inserted::Replaced(before);
        }
        self.insert_in_full_table(RequestSlot { key, started })
    }

    #[cold]
    #[inline(never)]
    fn insert_in_full_table(&mut self, slot: RequestSlot) -> Inserted {
        self.forget_single_ones();
        if self.used < MAX_REQUESTS {
            let place = self.search(slot.key);
            self.places[place] = slot;
            self.used += 1;
        }
        Inserted::Forgotten
    }

    /// Returns the place of a key, or the place that the key would take. The search ends, since
    /// half of the places are free.
    #[inline(always)]
    fn search(&self, key: u64) -> usize {
        let mut place = home(key);
        while self.places[place].key != key && self.places[place].key != 0 {
            place = (place + 1) % PLACES;
        }
        place
    }

    /// Returns the communication of a request; `None` if the request is not followed.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<&Started> {
        self.find(key_of(handle)).map(|place| &self.places[place].started)
    }

    /// Marks a persistent request as started and returns its communication.
    pub fn start(&mut self, handle: u64) -> Option<Started> {
        let place = self.find(key_of(handle))?;
        let started = &mut self.places[place].started;
        started.is_active = true;
        Some(*started)
    }

    /// Takes note that a request is complete or cancelled. Returns its communication if it was
    /// started. Persistent requests stay in the table.
    pub fn complete(&mut self, handle: u64) -> Option<Started> {
        let place = self.place(handle)?;
        let found = *self.at(place);
        self.complete_at(place);
        found.is_active.then_some(found)
    }

    /// Returns the place of a request; `None` if the request is not followed.
    #[inline(always)]
    pub fn place(&self, handle: u64) -> Option<RequestPlace> {
        self.find(key_of(handle)).map(RequestPlace)
    }

    /// Returns the communication of the request at a place.
    #[inline(always)]
    pub fn at(&self, place: RequestPlace) -> &Started {
        &self.places[place.0 % PLACES].started
    }

    /// Takes note that the request at a place is complete or cancelled. Persistent requests stay in
    /// the table; other places become invalid.
    #[inline(always)]
    pub fn complete_at(&mut self, place: RequestPlace) {
        let started = &mut self.places[place.0 % PLACES].started;
        match started.is_persistent {
            true => started.is_active = false,
            false => self.free(place.0 % PLACES),
        }
    }

    /// Removes a request that was freed or that has a handle now in use for something else.
    pub fn remove(&mut self, handle: u64) {
        if let Some(place) = self.find(key_of(handle)) {
            self.free(place);
        }
    }

    /// Begins a list of the requests that a call may complete. Returns the places for their
    /// handles. Handles beyond [`MAX_LISTED`] are not followed.
    #[inline]
    pub fn list(&mut self, count: usize) -> &mut [u64] {
        self.listed_count = count.min(MAX_LISTED);
        &mut self.listed[..self.listed_count]
    }

    /// Returns the number of stored handles.
    #[inline]
    pub fn listed(&self) -> usize {
        self.listed_count
    }

    /// Returns whether the list contains a partitioned request, complete or not.
    pub fn lists_partitioned(&self) -> bool {
        let mut listed = self.listed[..self.listed_count].iter();
        listed.any(|handle| self.get(*handle).is_some_and(|started| started.is_partitioned))
    }

    /// Returns a stored handle by its position in the list.
    #[inline]
    pub fn listed_handle(&self, at: usize) -> Option<u64> {
        self.listed[..self.listed_count].get(at).copied()
    }

    /// Returns whether the table holds requests.
    pub(crate) fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Removes all requests and stored handles.
    pub fn clear(&mut self) {
        if self.used > 0 {
            self.places.iter_mut().for_each(|place| place.key = 0);
        }
        (self.used, self.listed_count) = (0, 0);
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        // Reading an unused table would allocate pages.
        if self.used == 0 {
            return None;
        }
        let place = self.search(key);
        (self.places[place].key == key).then_some(place)
    }

    /// Frees a place and moves later entries of the probe sequence into the gap (Knuth, TAOCP 3,
    /// 6.4, Algorithm R).
    #[inline]
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
            let RequestSlot { key, started } = self.places[place];
            if key != 0 && !started.is_persistent {
                // Another entry may have moved here.
                self.free(place);
            } else {
                place += 1;
            }
        }
    }
}

/// Returns the key of a handle. Handles are never all ones, so that keys are never 0.
#[inline]
fn key_of(handle: u64) -> u64 {
    handle.wrapping_add(1)
}

#[inline]
fn home(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2())) as usize
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

    #[test]
    fn partitioned_messages_take_no_number_and_are_found_in_lists() {
        let whole = Started { to: Some(3), tag: 5, communicator: 1, ..Started::default() };
        let channel = Channel { direction: Direction::Sent, partner: 3, communicator: 1, tag: 5 };
        assert_eq!(whole.numbered_by(), NumberedBy::Start(channel));
        let parts = Started { is_partitioned: true, is_persistent: true, ..whole };
        let received = Started { to: None, from: Some(Source::Rank(3)), ..parts };
        assert_eq!([parts, received].map(|it| it.numbered_by()), [NumberedBy::Nothing; 2]);

        let mut table = table();
        assert!(table.add(1, whole) && table.add(2, received));
        for (handles, has_parts) in [([1, 7], false), ([1, 2], true)] {
            table.list(2).copy_from_slice(&handles);
            assert_eq!(table.lists_partitioned(), has_parts, "{handles:?}");
        }
        // A persistent request stays in the table when it is complete.
        table.complete(2);
        assert!(table.lists_partitioned());
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
        assert_eq!(table.insert(1 << 40, once), Inserted::Forgotten);
        assert_eq!(table.insert(1 << 40, once), Inserted::Replaced(once));
        assert_eq!(table.used, MAX_REQUESTS / 4 + 1);
        assert_eq!([table.get(8), table.get(1 << 40)], [Some(&again), Some(&once)]);
        assert_eq!([table.get(9), table.get(1 << 41)], [None, None]);
        (0..2 * MAX_REQUESTS as u64).for_each(|handle| {
            table.insert(handle, again);
        });
        assert_eq!(table.used, MAX_REQUESTS, "what more there are is not followed");
    }

    #[test]
    fn long_lists_are_followed_at_their_begin() {
        let mut table = table();
        table.list(2).copy_from_slice(&[7, 8]);
        assert_eq!([table.listed_handle(1), table.listed_handle(2)], [Some(8), None]);
        table.list(2000).iter_mut().zip(0..).for_each(|(place, handle)| *place = handle);
        assert_eq!((table.listed(), table.listed_handle(1023)), (MAX_LISTED, Some(1023)));
    }
}
