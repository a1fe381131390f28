//! Hashes that are equal on every machine and in every build, so that processes can compare values
//! without sending them: FNV-1a of 64 bits, by Fowler, Noll and Vo.

/// Hash of the empty text, with which every hash begins.
pub const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Extends a hash by further bytes.
pub fn extended(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the hash of a text.
pub fn fingerprint(text: &str) -> u64 {
    extended(BASIS, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_its_authors_give() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fingerprint(text), hash, "{text}");
        }
        assert_eq!(extended(fingerprint("foo"), b"bar"), fingerprint("foobar"));
    }
}
