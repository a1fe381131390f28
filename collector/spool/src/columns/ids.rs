//! Coding of frame ids as positions in a move-to-front list (Bentley, Sleator, Tarjan and Wei, *A
//! Locally Adaptive Data Compression Scheme*, CACM 29(4), 1986). The list begins with all ids of
//! the payload in ascending order, which take little more than a byte each.
//!
//! Only the first [`WINDOW`] positions move: an id from further back changes places with the last
//! of these. A step therefore takes bounded time for any bytes.

use super::super::numbers::{Cursor, put};
use super::super::spool_error::PayloadError;

/// Places that move.
const WINDOW: usize = 256;

/// Places that are searched at a time.
const CHUNK: usize = 16;

/// Places from this one on take more than a byte: its value, then the rest as an integer.
const FAR: u8 = 255;

/// Takes the id at `place` to the front.
#[inline]
fn to_front(list: &mut [u32], place: usize) {
    let id = list[place];
    let last = place.min(WINDOW - 1);
    list[place] = list[last];
    list.copy_within(..last, 1);
    list[0] = id;
}

/// Returns the position of an id in a list. Searches a chunk at a time, by one vector comparison.
fn find(list: &[u32], id: u32) -> Option<usize> {
    let chunk = list.chunks(CHUNK).position(|chunk| chunk.contains(&id))?;
    let rest = &list[chunk * CHUNK..];
    Some(chunk * CHUNK + rest.iter().position(|other| *other == id)?)
}

/// Writes ids as places, and the list that they begin with.
pub(super) fn write(ids: &[u32]) -> (Vec<u8>, Vec<u8>) {
    let (mut places, mut listed) = (Vec::with_capacity(ids.len()), Vec::new());
    let mut list = ids.to_vec();
    list.sort_unstable();
    list.dedup();
    let mut before = 0;
    for id in &list {
        put(&mut listed, u64::from(id - before));
        before = *id;
    }
    // Where the ids are that lie behind the window, by their order.
    let order = if list.len() > WINDOW { list.clone() } else { Vec::new() };
    let mut far: Vec<u32> = (0..order.len() as u32).collect();
    let index = |id: u32| order.partition_point(|other| *other < id);
    for id in ids {
        let window = list.len().min(WINDOW);
        let place = match find(&list[..window], *id) {
            Some(place) => place,
            None => {
                let place = far[index(*id)] as usize;
                far[index(list[WINDOW - 1])] = place as u32;
                place
            }
        };
        match u8::try_from(place) {
            Ok(near) if near < FAR => places.push(near),
            _ => {
                places.push(FAR);
                put(&mut places, (place - usize::from(FAR)) as u64);
            }
        }
        to_front(&mut list, place);
    }
    (places, listed)
}

/// Reads ids that [`write()`] wrote.
pub(super) struct Ids<'a> {
    places: Cursor<'a>,
    list: Vec<u32>,
}

impl<'a> Ids<'a> {
    /// Reads the list; it takes at most four times the memory that its bytes take.
    pub(super) fn new(places: Cursor<'a>, mut listed: Cursor<'a>) -> Result<Self, PayloadError> {
        let mut list = Vec::with_capacity(listed.left());
        let mut id = 0u32;
        while listed.left() > 0 {
            id = id.checked_add(listed.short()?).ok_or(PayloadError::Overflow)?;
            list.push(id);
        }
        Ok(Self { places, list })
    }

    /// Returns the next id.
    #[inline]
    pub(super) fn next(&mut self) -> Result<u32, PayloadError> {
        let place = match self.places.byte()? {
            FAR => usize::try_from(self.places.long()?)
                .ok()
                .and_then(|place| place.checked_add(usize::from(FAR)))
                .ok_or(PayloadError::UnknownId)?,
            near => usize::from(near),
        };
        let id = *self.list.get(place).ok_or(PayloadError::UnknownId)?;
        if place > 0 {
            to_front(&mut self.list, place);
        }
        Ok(id)
    }

    /// Returns whether all ids have been read.
    pub(super) fn at_end(&self) -> bool {
        self.places.left() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(ids: &[u32]) {
        let (places, listed) = write(ids);
        let mut read = Ids::new(Cursor::new(&places), Cursor::new(&listed)).unwrap();
        for id in ids {
            assert_eq!(read.next().unwrap(), *id);
        }
        assert!(read.at_end());
        assert!(read.next().is_err());
    }

    proptest! {
        #[test]
        fn ids_are_read_back(ids in prop::collection::vec(0u32..600, 0..3000)) {
            check(&ids);
        }

        #[test]
        fn any_ids_are_read_back(ids in prop::collection::vec(any::<u32>(), 0..900)) {
            check(&ids);
        }
    }

    #[test]
    fn extreme_ids_are_read_back() {
        check(&[u32::MAX, 0, u32::MAX, 1, 0]);
        let round: Vec<u32> = (0..2000).chain((0..2000).rev()).collect();
        check(&round);
    }

    #[test]
    fn a_place_that_is_not_listed_is_refused() {
        let mut ids = Ids::new(Cursor::new(&[1]), Cursor::new(&[7])).unwrap();
        assert!(matches!(ids.next(), Err(PayloadError::UnknownId)));
        let mut far = vec![FAR];
        put(&mut far, u64::MAX);
        let mut ids = Ids::new(Cursor::new(&far), Cursor::new(&[7])).unwrap();
        assert!(matches!(ids.next(), Err(PayloadError::UnknownId)));
    }
}
