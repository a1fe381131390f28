//! The interned addresses of one process, as columns: what the ids of its records stand for.

use super::numbers::{Cursor, fold, put, unfold};
use super::payload::Payload;
use super::spool_error::PayloadError;

/// Maximum number of addresses in a frame: far below the size limit of a frame for any values.
pub(super) const MAX_PER_FRAME: usize = 1 << 16;

/// An interned address, as in [`plimsoll_wire::segment::Address`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// A return address, a program counter, or a wrapped call's id; 0 if it was not announced.
    pub value: u64,
    /// Number of its module; 0 for wrapped calls.
    pub module: u32,
    /// [`plimsoll_wire::segment::ADDRESS_IS_LEAF`].
    pub flags: u32,
}

/// Replaces `payload` by addresses with ids from `first` on: that id, the length of each column,
/// then values and modules as differences to the previous one, and flags.
pub(super) fn write(first: u32, addresses: &[Address], payload: &mut Payload) {
    let mut columns = [Vec::new(), Vec::new(), Vec::new()];
    let [values, modules, flags] = &mut columns;
    let mut last = Address::default();
    for address in addresses {
        put(values, fold(address.value.wrapping_sub(last.value)));
        put(modules, fold(u64::from(address.module).wrapping_sub(u64::from(last.module))));
        put(flags, u64::from(address.flags));
        last = *address;
    }
    let mut head = Vec::new();
    put(&mut head, u64::from(first));
    for column in &columns {
        put(&mut head, column.len() as u64);
    }
    payload.clear();
    payload.part(&head);
    for column in &columns {
        payload.part(column);
    }
}

/// Reads the addresses of one frame.
pub struct Addresses<'a> {
    values: Cursor<'a>,
    modules: Cursor<'a>,
    flags: Cursor<'a>,
    id: u32,
    last: Address,
}

impl<'a> Addresses<'a> {
    /// Creates the addresses of a payload.
    pub fn new(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let mut cursor = Cursor::new(payload);
        let id = cursor.short()?;
        let lengths = [cursor.long()?, cursor.long()?, cursor.long()?];
        let mut column = |length| Ok::<_, PayloadError>(Cursor::new(cursor.take(length)?));
        let [values, modules, flags] = lengths;
        let (values, modules, flags) = (column(values)?, column(modules)?, column(flags)?);
        if cursor.left() > 0 {
            return Err(PayloadError::Leftover);
        }
        Ok(Self { values, modules, flags, id, last: Address::default() })
    }

    fn read(&mut self) -> Result<Option<(u32, Address)>, PayloadError> {
        if self.values.left() == 0 {
            let read = self.modules.left() == 0 && self.flags.left() == 0;
            return if read { Ok(None) } else { Err(PayloadError::Leftover) };
        }
        let value = self.last.value.wrapping_add(unfold(self.values.long()?));
        let module = u64::from(self.last.module).wrapping_add(unfold(self.modules.long()?));
        let module = u32::try_from(module).map_err(|_| PayloadError::Overflow)?;
        self.last = Address { value, module, flags: self.flags.short()? };
        let id = self.id;
        if self.values.left() > 0 {
            self.id = id.checked_add(1).ok_or(PayloadError::Overflow)?;
        }
        Ok(Some((id, self.last)))
    }
}

/// The ids and what they stand for. Nothing comes after an error.
impl Iterator for Addresses<'_> {
    type Item = Result<(u32, Address), PayloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if let Some(Err(_)) = next {
            [self.values, self.modules, self.flags] = Default::default();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_are_read_back(
            first in 0u32..1 << 20,
            addresses in prop::collection::vec(any::<(u64, u32, u32)>(), 0..200),
        ) {
            let address = |(value, module, flags)| Address { value, module, flags };
            let addresses: Vec<_> = addresses.into_iter().map(address).collect();
            let mut payload = Payload::default();
            write(first, &addresses, &mut payload);
            let read: Result<Vec<_>, _> = Addresses::new(payload.bytes()).unwrap().collect();
            let listed: Vec<_> = (first..).zip(addresses).collect();
            prop_assert_eq!(read.unwrap(), listed);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(addresses) = Addresses::new(&bytes) {
                prop_assert!(addresses.count() <= bytes.len());
            }
        }
    }

    #[test]
    fn the_last_id_is_a_good_one() {
        let mut payload = Payload::default();
        write(u32::MAX, &[Address::default()], &mut payload);
        let last: Vec<_> = Addresses::new(payload.bytes()).unwrap().flatten().collect();
        assert_eq!(last, [(u32::MAX, Address::default())]);
        write(u32::MAX, &[Address::default(); 2], &mut payload);
        let mut too_many = Addresses::new(payload.bytes()).unwrap();
        assert!(matches!(too_many.next(), Some(Err(PayloadError::Overflow))));
        assert!(too_many.next().is_none());
    }
}
