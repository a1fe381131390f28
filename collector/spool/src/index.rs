//! Where the frames of a spool are: written now and then, so that the writer need not remember all,
//! and found from the end of the file.

use super::frame::{HEADER_BYTES, Kind, Stream};
use super::numbers::{Cursor, put};
use super::payload::Payload;
use super::spool_error::PayloadError;

/// Bytes at the end of a spool that was ended in order.
pub(super) const TRAILER_BYTES: usize = 16;

/// First bytes of the trailer; like those of a frame, not in any text.
const TRAILER_MAGIC: [u8; 4] = *b"\xf5PLE";

/// Entries after which an index frame is written.
const MAX_ENTRIES: usize = 4096;

/// A frame, as far as it is known without reading its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// The stream that it belongs to.
    pub stream: Stream,
    /// Position in the stream.
    pub sequence: u32,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Length of the frame with its header, in bytes.
    pub bytes: u64,
    /// Records, addresses or values in it, if an index says so.
    pub items: Option<u64>,
}

/// The writing end: the frames since the last index frame.
pub(super) struct Index {
    entries: Vec<(Stream, u32, u64, u64)>,
    /// Where the first of them begins.
    start: u64,
    /// Where the index frame before them begins; 0 if there is none.
    previous: u64,
}

impl Index {
    /// Creates the index of a file that begins its first frame at `start`.
    pub(super) fn new(start: u64) -> Self {
        Self { entries: Vec::new(), start, previous: 0 }
    }

    /// Adds a frame; says if an index frame is due.
    pub(super) fn add(&mut self, stream: Stream, sequence: u32, bytes: u64, items: u64) -> bool {
        self.entries.push((stream, sequence, bytes, items));
        self.entries.len() >= MAX_ENTRIES
    }

    /// Replaces `payload` by the index of the frames so far: offset of the index frame before (0 if
    /// there is none), offset of the first frame, and of each frame kind, stream, sequence number,
    /// bytes and items.
    pub(super) fn write(&self, payload: &mut Payload) {
        let mut bytes = Vec::new();
        put(&mut bytes, self.previous);
        put(&mut bytes, self.start);
        for (stream, sequence, length, items) in &self.entries {
            let of_stream = [stream.kind as u64, stream.number.into(), (*sequence).into()];
            for value in of_stream.into_iter().chain([*length, *items]) {
                put(&mut bytes, value);
            }
        }
        payload.clear();
        payload.part(&bytes);
    }

    /// Begins anew behind the index frame that stands from `offset` to `end`.
    pub(super) fn written(&mut self, offset: u64, end: u64) {
        self.entries.clear();
        self.previous = offset;
        self.start = end;
    }

    /// Returns the trailer that points to the last index frame.
    pub(super) fn trailer(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..4].copy_from_slice(&TRAILER_MAGIC);
        bytes[4..12].copy_from_slice(&self.previous.to_le_bytes());
        let check = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&check.to_le_bytes());
        bytes
    }
}

/// Returns the offset of the last index frame, if `bytes` are a whole trailer.
pub(super) fn read_trailer(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; TRAILER_BYTES] = bytes.try_into().ok()?;
    let (checked, check) = bytes.split_last_chunk()?;
    let whole = checked.starts_with(&TRAILER_MAGIC)
        && u32::from_le_bytes(*check) == crc32fast::hash(checked);
    checked.last_chunk().filter(|_| whole).map(|offset| u64::from_le_bytes(*offset))
}

/// The frames that an index frame lists, and what stands before them.
pub(super) struct Listed {
    pub(super) frames: Vec<FrameInfo>,
    /// Offset of the index frame before; 0 if there is none.
    pub(super) previous: u64,
    /// Offset of the first frame.
    pub(super) start: u64,
}

/// Reads the payload of the index frame at `end`: the frames that it lists end there.
pub(super) fn read(payload: &[u8], end: u64) -> Result<Listed, PayloadError> {
    let mut cursor = Cursor::new(payload);
    let (previous, start) = (cursor.long()?, cursor.long()?);
    let mut frames = Vec::new();
    let mut offset = start;
    while cursor.left() > 0 {
        let kind = u8::try_from(cursor.long()?).ok().and_then(Kind::from_u8);
        let stream = Stream { kind: kind.ok_or(PayloadError::Overflow)?, number: cursor.short()? };
        let sequence = cursor.short()?;
        let (bytes, items) = (cursor.long()?, cursor.long()?);
        let next = offset.checked_add(bytes).ok_or(PayloadError::Overflow)?;
        // Bounds the number of entries by the frames that fit the file, for any bytes.
        if bytes < HEADER_BYTES as u64 || next > end {
            return Err(PayloadError::Leftover);
        }
        frames.push(FrameInfo { stream, sequence, offset, bytes, items: Some(items) });
        offset = next;
    }
    if offset != end {
        return Err(PayloadError::Leftover);
    }
    Ok(Listed { frames, previous, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_back() {
        let stream = Stream { kind: Kind::Records, number: u32::MAX };
        let mut index = Index::new(16);
        for sequence in 0..3 {
            assert!(!index.add(stream, sequence, 100, u64::MAX));
        }
        let mut payload = Payload::default();
        index.write(&mut payload);
        let listed = read(payload.bytes(), 316).unwrap();
        let offsets: Vec<u64> = listed.frames.iter().map(|frame| frame.offset).collect();
        assert_eq!((listed.previous, listed.start, offsets), (0, 16, vec![16, 116, 216]));
        assert!(listed.frames.iter().all(|frame| frame.stream == stream));
        for end in [0, 16, 216, 315, 317] {
            assert!(read(payload.bytes(), end).is_err(), "{end}");
        }
    }

    #[test]
    fn an_index_frame_is_due_before_the_writer_remembers_much() {
        let stream = Stream { kind: Kind::Meta, number: 0 };
        let mut index = Index::new(16);
        let due = (0..).position(|sequence| index.add(stream, sequence, 100, 1)).unwrap();
        assert_eq!(due + 1, MAX_ENTRIES);
        index.written(1000, 1100);
        assert!(!index.add(stream, 0, 100, 1));
        assert_eq!(read_trailer(&index.trailer()), Some(1000));
    }
}
