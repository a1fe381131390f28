//! Uncompressed payloads: zstd frames of raw blocks (RFC 8878, 3.1.1), for every reader of
//! compressed ones.

use super::frame::Packed;

const MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();
/// A content's size of four bytes, one segment, no checksum, no dictionary.
const DESCRIPTOR: u8 = 0b1010_0000;
/// Most bytes of a block.
const BLOCK_BYTES: usize = 128 << 10;
/// Type of a raw block, in the bits above the flag of the last block.
const RAW: u32 = 0;

/// Stores the payload uncompressed in `memory`; the former content of `memory` is discarded.
pub(super) fn store(payload: &[u8], mut memory: Vec<u8>) -> Packed {
    memory.clear();
    memory.reserve(payload.len() + 3 * (payload.len() / BLOCK_BYTES + 1) + 9);
    memory.extend_from_slice(&MAGIC);
    memory.push(DESCRIPTOR);
    memory.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let mut rest = payload;
    loop {
        let (block, left) = rest.split_at(rest.len().min(BLOCK_BYTES));
        let header = (block.len() as u32) << 3 | RAW << 1 | u32::from(left.is_empty());
        memory.extend_from_slice(&header.to_le_bytes()[..3]);
        memory.extend_from_slice(block);
        rest = left;
        if rest.is_empty() {
            return Packed::new(payload.len(), memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn zstd_reads_what_is_stored(
            length in prop_oneof![0..300usize, 2 * BLOCK_BYTES - 3..2 * BLOCK_BYTES + 3],
            salt in any::<u32>(),
        ) {
            let payload: Vec<u8> =
                (0..length as u32).map(|i| (i.wrapping_mul(salt) >> 24) as u8).collect();
            let packed = store(&payload, vec![1; 7]);
            let mut frame = Vec::new();
            let stream = super::super::Stream { kind: super::super::Kind::Ring, number: 1 };
            packed.frame(stream, 0, &mut frame);
            let stored = &frame[super::super::HEADER_BYTES..];
            let size = zstd::zstd_safe::get_frame_content_size(stored).ok().flatten();
            prop_assert_eq!(size, Some(length as u64));
            prop_assert_eq!(zstd::decode_all(stored).unwrap(), payload);
        }
    }
}
