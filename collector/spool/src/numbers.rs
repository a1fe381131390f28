//! Integers as bytes: LEB128, signed differences folded to small ones, and a cursor that reads them
//! back from bytes of any origin.

use plimsoll_wire::leb128;

use super::spool_error::PayloadError;

/// Appends an integer.
pub(super) fn put(bytes: &mut Vec<u8>, value: u64) {
    leb128::write(value, |byte| bytes.push(byte));
}

/// Folds a difference modulo 2^64 so that small ones of either sign become small integers.
pub(super) fn fold(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// Returns the inverse of [`fold`].
pub(super) fn unfold(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

/// Reads integers from bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the beginning of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, PayloadError> {
        let (byte, rest) = self.bytes.split_first().ok_or(PayloadError::Truncated)?;
        self.bytes = rest;
        Ok(*byte)
    }

    /// Returns the next `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], PayloadError> {
        let count = usize::try_from(count).map_err(|_| PayloadError::Truncated)?;
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(PayloadError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Returns an integer that [`put`] wrote.
    #[inline]
    pub(super) fn long(&mut self) -> Result<u64, PayloadError> {
        // Most integers have one byte.
        if let Some((byte @ ..0x80, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            return Ok(u64::from(*byte));
        }
        self.longer()
    }

    fn longer(&mut self) -> Result<u64, PayloadError> {
        leb128::read(|| self.byte(), PayloadError::Overflow)
    }

    /// Returns an integer of 32 bits.
    #[inline]
    pub(super) fn short(&mut self) -> Result<u32, PayloadError> {
        u32::try_from(self.long()?).map_err(|_| PayloadError::Overflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_are_read_back(
            values in prop::collection::vec(any::<u64>(), 0..50),
            shift in 0u32..64,
        ) {
            let mut bytes = Vec::new();
            for value in &values {
                put(&mut bytes, value >> shift);
                put(&mut bytes, fold(*value));
            }
            let mut cursor = Cursor::new(&bytes);
            for value in &values {
                prop_assert_eq!(cursor.long().unwrap(), value >> shift);
                prop_assert_eq!(unfold(cursor.long().unwrap()), *value);
            }
            prop_assert_eq!(cursor.left(), 0);
            prop_assert!(matches!(cursor.long(), Err(PayloadError::Truncated)));
        }
    }

    #[test]
    fn small_differences_of_either_sign_are_small() {
        assert_eq!([0, 1, 2, 3].map(unfold), [0, 1u64.wrapping_neg(), 1, 2u64.wrapping_neg()]);
        assert_eq!(fold(u64::MAX), 1);
        assert_eq!(fold(1 << 63), u64::MAX);
    }

    #[test]
    fn an_integer_that_is_too_long_is_refused() {
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert!(matches!(Cursor::new(&bytes).long(), Err(PayloadError::Overflow)));
        assert!(matches!(Cursor::new(&[0x80; 11]).long(), Err(PayloadError::Overflow)));
        assert!(matches!(Cursor::new(&[0xff; 5]).long(), Err(PayloadError::Truncated)));
        let mut bytes = Vec::new();
        put(&mut bytes, 1 << 32);
        assert!(matches!(Cursor::new(&bytes).short(), Err(PayloadError::Overflow)));
        assert!(matches!(Cursor::new(&bytes).take(u64::MAX), Err(PayloadError::Truncated)));
    }
}
