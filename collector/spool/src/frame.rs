//! Frames: a payload, compressed, behind a header of its own that a reader finds again anywhere in
//! a file.

use std::io;

use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, SafeResult, compress_bound,
    get_error_name, get_frame_content_size,
};

use super::payload::Payload;
use super::stored::store;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 32;

/// Largest payload, in bytes, before compression: what a reader may have to allocate.
pub const MAX_RAW_BYTES: usize = 16 << 20;

/// Largest payload after compression: zstd's bound, and the ends of blocks between columns.
pub const MAX_PACKED_BYTES: usize = MAX_RAW_BYTES + (MAX_RAW_BYTES >> 7) + (1 << 12);

/// First bytes of a frame. Invalid as UTF-8, so that no text within a frame looks like one.
const MAGIC: [u8; 4] = *b"\xf5PLF";

/// Level of zstd's compression: on what is left when columns are made of records, the lowest is not
/// only the fastest, but also the best up to level 9 ([`super::columns`]).
const ZSTD_LEVEL: i32 = 1;

/// Kind of a frame's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// JSON of one value.
    Meta = 1,
    /// Interned addresses of one process.
    Addresses = 2,
    /// Records of one thread.
    Records = 3,
    /// Where the frames before it are.
    Index = 4,
    /// Records of one thread as they stood in its ring.
    Ring = 5,
}

impl Kind {
    pub(super) fn from_u8(value: u8) -> Option<Self> {
        [Self::Meta, Self::Addresses, Self::Records, Self::Index, Self::Ring]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }
}

/// A sequence of frames of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Kind of its frames' content.
    pub kind: Kind,
    /// Number of the stream, chosen by the writer; streams of different kinds may share a number.
    pub number: u32,
}

/// A frame's header, without its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stream: Stream,
    /// Counts the frames of the stream.
    pub(super) sequence: u32,
    /// Bytes of the payload before and after compression.
    pub(super) raw_bytes: u32,
    pub(super) packed_bytes: u32,
    /// CRC-32 of the compressed payload.
    pub(super) payload_check: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.stream.kind as u8;
        let numbers = [
            self.stream.number,
            self.sequence,
            self.raw_bytes,
            self.packed_bytes,
            self.payload_check,
        ];
        for (place, number) in bytes[8..28].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let check = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Returns the header at the beginning of `bytes`, if it is whole and its checksum and lengths
    /// are valid.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        let mut numbers = [0; 6];
        for (number, place) in numbers.iter_mut().zip(bytes[8..].chunks_exact(4)) {
            *number = u32::from_le_bytes(place.try_into().ok()?);
        }
        let [stream, sequence, raw_bytes, packed_bytes, payload_check, check] = numbers;
        let valid = check == crc32fast::hash(&bytes[..28])
            && bytes[5..8] == [0; 3]
            && raw_bytes as usize <= MAX_RAW_BYTES
            && packed_bytes as usize <= MAX_PACKED_BYTES;
        let kind = Kind::from_u8(bytes[4]).filter(|_| valid)?;
        let stream = Stream { kind, number: stream };
        Some(Self { stream, sequence, raw_bytes, packed_bytes, payload_check })
    }

    /// Returns whether `packed` is the compressed payload of the header.
    pub(super) fn fits(&self, packed: &[u8]) -> bool {
        crc32fast::hash(packed) == self.payload_check
    }

    /// Returns the offset in `bytes` at which the next header may begin; `None` without one.
    pub(super) fn find_magic(bytes: &[u8]) -> Option<usize> {
        bytes.windows(MAGIC.len()).position(|window| window == MAGIC)
    }

    /// Returns the bytes of the frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.packed_bytes)
    }
}

/// A payload after compression.
pub(super) struct Packed {
    raw_bytes: u32,
    check: u32,
    bytes: Vec<u8>,
}

impl Packed {
    /// Creates a payload of `raw_bytes` bytes that was compressed to `bytes`.
    pub(super) fn new(raw_bytes: usize, bytes: Vec<u8>) -> Self {
        Self { raw_bytes: raw_bytes as u32, check: crc32fast::hash(&bytes), bytes }
    }

    /// Appends a frame of it to `frames`.
    pub(super) fn frame(&self, stream: Stream, sequence: u32, frames: &mut Vec<u8>) {
        let header = Header {
            stream,
            sequence,
            raw_bytes: self.raw_bytes,
            packed_bytes: self.bytes.len() as u32,
            payload_check: self.check,
        };
        frames.extend_from_slice(&header.to_bytes());
        frames.extend_from_slice(&self.bytes);
    }
}

/// Compresses payloads.
pub(super) struct Packer {
    /// Compressor with the memory of its largest frame; `None` if it was released.
    zstd: Option<CCtx<'static>>,
    packed: Vec<u8>,
}

impl Packer {
    /// Creates a packer, or the error that there is no memory for it.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { zstd: Some(compressor()?), packed: Vec::new() })
    }

    /// Releases the memory of earlier frames.
    pub(super) fn release(&mut self) {
        *self = Self { zstd: None, packed: Vec::new() };
    }

    /// Compresses a payload, which has at most [`MAX_RAW_BYTES`].
    pub(super) fn pack(&mut self, payload: &Payload) -> io::Result<Packed> {
        self.compress(payload)?;
        Ok(Packed::new(payload.bytes().len(), std::mem::take(&mut self.packed)))
    }

    /// Takes a payload as it is, which has at most [`MAX_RAW_BYTES`].
    pub(super) fn store(&mut self, payload: &[u8]) -> Packed {
        store(payload, std::mem::take(&mut self.packed))
    }

    /// Takes back the memory of what was compressed, for the next one.
    pub(super) fn reuse(&mut self, packed: Packed) {
        self.packed = packed.bytes;
    }

    /// Compresses a payload to one zstd frame, with a block per part: each block has entropy codes
    /// of its own.
    fn compress(&mut self, payload: &Payload) -> io::Result<()> {
        let raw_bytes = payload.bytes().len();
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            released => released.insert(compressor()?),
        };
        check(zstd.reset(ResetDirective::SessionOnly))?;
        check(zstd.set_pledged_src_size(Some(raw_bytes as u64)))?;
        self.packed.clear();
        self.packed.reserve(compress_bound(raw_bytes) + 16 * (payload.cuts() + 1));
        let mut output = OutBuffer::around(&mut self.packed);
        // There is room for all, so each call does all that it is asked for.
        let mut done = true;
        for part in payload.parts() {
            if output.pos() > 0 {
                done &= check(zstd.flush_stream(&mut output))? == 0;
            }
            let mut input = InBuffer::around(part);
            check(zstd.compress_stream(&mut output, &mut input))?;
            done &= input.pos() == part.len();
        }
        done &= check(zstd.end_stream(&mut output))? == 0;
        if !done {
            return Err(io::Error::other("zstd takes more room than it says"));
        }
        Ok(())
    }
}

/// Creates a compressor, or the error that there is no memory for it.
fn compressor() -> io::Result<CCtx<'static>> {
    let mut zstd = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    check(zstd.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)))?;
    Ok(zstd)
}

fn check(result: SafeResult) -> io::Result<usize> {
    result
        .map_err(|code| io::Error::other(format!("zstd cannot compress: {}", get_error_name(code))))
}

/// Takes payloads out of frames.
pub(super) struct Unpacker {
    zstd: DCtx<'static>,
    raw: Vec<u8>,
}

impl Unpacker {
    /// Creates an unpacker, or the error that there is no memory for it.
    pub(super) fn new() -> io::Result<Self> {
        let zstd = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { zstd, raw: Vec::new() })
    }

    /// Returns the payload of a frame, or `None` if it is not the one that the header belongs to.
    pub(super) fn unpack(&mut self, header: &Header, packed: &[u8]) -> Option<&[u8]> {
        if !header.fits(packed) {
            return None;
        }
        // Both numbers may be hostile. The header's is bounded; a different one is refused at once.
        let raw_bytes = header.raw_bytes as usize;
        if get_frame_content_size(packed).ok()?? != raw_bytes as u64 {
            return None;
        }
        self.raw.clear();
        self.raw.reserve(raw_bytes);
        let length = self.zstd.decompress(&mut self.raw, packed).ok()?;
        (length == raw_bytes).then_some(&self.raw[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: Stream = Stream { kind: Kind::Records, number: 7 };

    fn payload(parts: &[Vec<u8>]) -> Payload {
        let mut payload = Payload::default();
        for part in parts {
            payload.part(part);
        }
        payload
    }

    fn pack(payload: &Payload) -> Vec<u8> {
        let mut frame = Vec::new();
        Packer::new().unwrap().pack(payload).unwrap().frame(STREAM, 9, &mut frame);
        frame
    }

    proptest! {
        #[test]
        fn payloads_are_read_back(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
            again in 1usize..4,
        ) {
            let payload = payload(&parts);
            let mut packer = Packer::new().unwrap();
            let mut unpacker = Unpacker::new().unwrap();
            for sequence in 0..again as u32 {
                let mut frame = vec![1, 2, 3];
                let packed = packer.pack(&payload).unwrap();
                packed.frame(STREAM, sequence, &mut frame);
                packer.reuse(packed);
                let header = Header::parse(&frame[3..]).unwrap();
                prop_assert_eq!((header.stream, header.sequence), (STREAM, sequence));
                prop_assert_eq!(header.frame_bytes(), frame.len() as u64 - 3);
                let raw = unpacker.unpack(&header, &frame[3 + HEADER_BYTES..]);
                prop_assert_eq!(raw, Some(&parts.concat()[..]));
            }
        }
    }

    #[test]
    fn noise_takes_no_more_than_the_bound() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        let parts: Vec<Vec<u8>> = noise.chunks(1 << 15).map(<[u8]>::to_vec).collect();
        let frame = pack(&payload(&parts));
        assert!(frame.len() > noise.len());
        assert!(frame.len() < noise.len() + (noise.len() >> 7) + (1 << 12));
    }

    /// Returns a frame with correct checksums and wrong lengths.
    fn forged(raw_bytes: u32, packed: &[u8]) -> (Header, Unpacker) {
        let payload_check = crc32fast::hash(packed);
        let packed_bytes = packed.len() as u32;
        let header = Header { stream: STREAM, sequence: 0, raw_bytes, packed_bytes, payload_check };
        (header, Unpacker::new().unwrap())
    }

    #[test]
    fn hostile_lengths_allocate_nothing() {
        let frame = pack(&payload(&[vec![0; 1000]]));
        let packed = &frame[HEADER_BYTES..];
        for raw_bytes in [0, 999, 1001, MAX_RAW_BYTES as u32] {
            let (header, mut unpacker) = forged(raw_bytes, packed);
            assert_eq!(unpacker.unpack(&header, packed), None);
            assert_eq!(unpacker.raw.capacity(), 0);
        }
        let (too_large, _) = forged(MAX_RAW_BYTES as u32 + 1, packed);
        assert_eq!(Header::parse(&too_large.to_bytes()), None);
        let mut too_large = forged(1000, packed).0;
        too_large.packed_bytes = MAX_PACKED_BYTES as u32 + 1;
        assert_eq!(Header::parse(&too_large.to_bytes()), None);
        // Two zstd frames; the first has the announced length.
        let twice = [packed, packed].concat();
        let (header, mut unpacker) = forged(1000, &twice);
        assert_eq!(unpacker.unpack(&header, &twice), None);
        // A zstd frame that announces more than it has: never more than that is allocated.
        let mut lies = packed.to_vec();
        assert_eq!(get_frame_content_size(&lies).unwrap(), Some(1000));
        lies[5..7].copy_from_slice(&(u16::MAX).to_le_bytes());
        let (header, mut unpacker) = forged(u32::from(u16::MAX) + 256, &lies);
        assert_eq!(get_frame_content_size(&lies).unwrap(), Some(u64::from(header.raw_bytes)));
        assert_eq!(unpacker.unpack(&header, &lies), None);
        assert!(unpacker.raw.capacity() <= 2 * header.raw_bytes as usize);
    }

    #[test]
    fn kinds_have_the_numbers_of_the_format() {
        let known: Vec<u8> = (0..=255).filter(|value| Kind::from_u8(*value).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 5]);
    }
}
