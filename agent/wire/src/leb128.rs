//! LEB128: an integer of 64 bits as one to ten bytes, seven bits in each, low ones first.

/// Passes the bytes of an integer to `put`, in order.
#[inline]
pub fn write(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// Reads an integer from the bytes that `next` returns one by one.
///
/// # Errors
/// Those of `next`; `overflow` if the integer has more than 64 bits.
#[inline]
pub fn read<E>(mut next: impl FnMut() -> Result<u8, E>, overflow: E) -> Result<u64, E> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(overflow)
}
