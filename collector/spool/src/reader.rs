//! Reader of a spool with any bytes: reports damage, and reads everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::vec::IntoIter;

use serde::de::DeserializeOwned;

use super::address_columns::Addresses;
use super::columns::Records;
use super::frame::{HEADER_BYTES, Header, Kind, Stream, Unpacker};
use super::index::{self, FrameInfo, TRAILER_BYTES, read_trailer};
use super::spool_error::SpoolError;
use super::{PREAMBLE_BYTES, scan, version};
use plimsoll_sys::own_files::open_regular;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a spool that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin in the file.
    pub offset: u64,
    /// Stream and sequence number of the frame that is lost, if its header could be read. Else the
    /// next frame of its stream tells, by its number.
    pub frame: Option<(Stream, u32)>,
    /// Kind of damage.
    pub cause: Cause,
}

/// Kind of damage in a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No frame begins here; the number of bytes up to the next one.
    NoHeader(u64),
    /// The file ends inside the frame.
    CutOff,
    /// Another frame begins inside the frame: bytes of it are missing.
    Overlapped,
    /// The frame's payload is not what was written.
    Payload,
    /// The frame is not the one that the index names here.
    NotAsIndexed,
    /// The frame is one that has been before, or should have been.
    OutOfOrder,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeader(bytes) => write!(f, "{bytes} bytes are not those of a frame"),
            Self::CutOff => write!(f, "the file ends inside the frame"),
            Self::Overlapped => write!(f, "another frame begins inside the frame"),
            Self::Payload => write!(f, "the frame's payload is damaged"),
            Self::NotAsIndexed => write!(f, "the frame is not the one that the index names"),
            Self::OutOfOrder => write!(f, "the frame is out of order"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.offset)?;
        if let Some((Stream { kind, number }, sequence)) = self.frame {
            write!(f, " (frame {sequence} of stream {number} of {kind:?})")?;
        }
        write!(f, ": {}; what it held is lost, the rest is read", self.cause)
    }
}

/// A whole frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Which one it is.
    pub info: FrameInfo,
    payload: &'a [u8],
    packed: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the uncompressed payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the payload as stored in the file.
    pub(super) fn packed(&self) -> &'a [u8] {
        self.packed
    }

    /// Returns the records of a frame of [`Kind::Records`].
    pub fn records(&self) -> Result<Records<'a>, SpoolError> {
        Ok(Records::new(self.payload)?)
    }

    /// Returns the addresses of a frame of [`Kind::Addresses`].
    pub fn addresses(&self) -> Result<Addresses<'a>, SpoolError> {
        Ok(Addresses::new(self.payload)?)
    }

    /// Returns the value of a frame of [`Kind::Meta`].
    pub fn meta<T: DeserializeOwned>(&self) -> Result<T, SpoolError> {
        Ok(serde_json::from_slice(self.payload)?)
    }
}

/// Next part of a spool.
#[derive(Debug)]
pub enum Step<'a> {
    /// A whole frame.
    Frame(Frame<'a>),
    /// Frames of this stream are missing here, those with these sequence numbers: a replay of its
    /// records must forget the stack.
    Missing(Stream, Range<u64>),
    /// Something cannot be read. If it names a frame, that one is missing, too.
    Damaged(Damage),
}

/// Reads a spool.
pub struct SpoolReader<R> {
    source: Source<R>,
    unpacker: Unpacker,
    frames: Vec<FrameInfo>,
    damages: Vec<Damage>,
    streams: BTreeMap<Stream, Parts>,
    orderly: bool,
}

/// Parts of a spool in file order, as indices into [`SpoolReader`]'s lists. Each stream has its
/// own, so that reading all streams one by one takes no longer for many of them.
#[derive(Clone, Default)]
struct Parts {
    frames: Vec<usize>,
    damages: Vec<usize>,
}

impl Parts {
    /// Returns the parts of each stream. Damage that names no frame is in no stream.
    fn by_stream(frames: &[FrameInfo], damages: &[Damage]) -> BTreeMap<Stream, Self> {
        let mut streams = BTreeMap::<Stream, Self>::new();
        for (at, frame) in frames.iter().enumerate() {
            streams.entry(frame.stream).or_default().frames.push(at);
        }
        for (at, damage) in damages.iter().enumerate() {
            if let Some((stream, _)) = damage.frame {
                streams.entry(stream).or_default().damages.push(at);
            }
        }
        streams
    }
}

impl SpoolReader<File> {
    /// Opens a spool and finds its frames.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        Self::new(open_regular(path)?)
    }
}

impl<R: Read + Seek> SpoolReader<R> {
    /// Finds the frames of a spool: by its index if that is whole, else by their headers.
    pub fn new(source: R) -> Result<Self, SpoolError> {
        let mut source = Source::new(source)?;
        version(source.available(0, PREAMBLE_BYTES)?)?;
        let mut unpacker = Unpacker::new()?;
        let indexed = by_index(&mut source, &mut unpacker)?;
        let orderly = indexed.is_some();
        let (frames, damages) = match indexed {
            Some(frames) => (frames, Vec::new()),
            None => scan::frames(&mut source)?,
        };
        let streams = Parts::by_stream(&frames, &damages);
        Ok(Self { source, unpacker, frames, damages, streams, orderly })
    }

    /// Returns whether the spool was ended in order, and its index is whole. Else the last frames
    /// of each stream may be missing.
    pub fn orderly(&self) -> bool {
        self.orderly
    }

    /// Returns all frames in file order, without indices. Damage shows when a frame is read.
    pub fn frames(&self) -> &[FrameInfo] {
        &self.frames
    }

    /// Returns all streams, with the number of their frames.
    pub fn streams(&self) -> BTreeMap<Stream, u64> {
        let counts = self.streams.iter().map(|(stream, it)| (*stream, it.frames.len() as u64));
        counts.filter(|(_, frames)| *frames > 0).collect()
    }

    /// Reads all streams in file order.
    pub fn walk(&mut self) -> Walk<'_, R> {
        let (frames, damages) = (0..self.frames.len(), 0..self.damages.len());
        self.walk_parts(Parts { frames: frames.collect(), damages: damages.collect() })
    }

    /// Reads some streams in file order.
    pub fn walk_streams(&mut self, streams: BTreeSet<Stream>) -> Walk<'_, R> {
        let mut parts = Parts::default();
        for it in streams.iter().filter_map(|stream| self.streams.get(stream)) {
            parts.frames.extend(&it.frames);
            parts.damages.extend(&it.damages);
        }
        parts.frames.sort_unstable();
        parts.damages.sort_unstable();
        self.walk_parts(parts)
    }

    /// Reads one stream.
    pub fn walk_stream(&mut self, stream: Stream) -> Walk<'_, R> {
        let parts = self.streams.get(&stream).cloned().unwrap_or_default();
        self.walk_parts(parts)
    }

    fn walk_parts(&mut self, parts: Parts) -> Walk<'_, R> {
        let (frames, damages) = (parts.frames.into_iter(), parts.damages.into_iter());
        let (frames, damages) = (frames.peekable(), damages.peekable());
        Walk { reader: self, frames, damages, expected: BTreeMap::new() }
    }

    fn frame(&mut self, info: FrameInfo) -> Result<Result<Frame<'_>, Cause>, SpoolError> {
        // What an index says is bounded by the file only; what a header says, by the format.
        let head = self.source.available(info.offset, HEADER_BYTES)?;
        let header = Header::parse(head).filter(|header| {
            (header.stream, header.sequence, header.frame_bytes())
                == (info.stream, info.sequence, info.bytes)
        });
        let Some(header) = header else { return Ok(Err(Cause::NotAsIndexed)) };
        let bytes = self.source.available(info.offset, info.bytes as usize)?;
        let Some(packed) = bytes.get(HEADER_BYTES..info.bytes as usize) else {
            return Ok(Err(Cause::CutOff));
        };
        let payload = self.unpacker.unpack(&header, packed).ok_or(Cause::Payload);
        Ok(payload.map(|payload| Frame { info, payload, packed }))
    }
}

/// Follows the indices from the trailer back; `None` if one is missing or damaged.
fn by_index<R: Read + Seek>(
    source: &mut Source<R>,
    unpacker: &mut Unpacker,
) -> Result<Option<Vec<FrameInfo>>, SpoolError> {
    let Some(mut end) = source.length.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let Some(mut offset) = read_trailer(source.available(end, TRAILER_BYTES)?) else {
        return Ok(None);
    };
    let mut parts = Vec::new();
    // Each index stands before the one after it, so this comes to an end.
    while offset > 0 {
        let head = source.available(offset, HEADER_BYTES)?;
        let header = Header::parse(head).filter(|header| {
            header.stream.kind == Kind::Index
                && offset.checked_add(header.frame_bytes()) == Some(end)
        });
        let Some(header) = header else { return Ok(None) };
        let length = header.frame_bytes() as usize;
        let bytes = source.available(offset, length)?;
        let payload =
            bytes.get(HEADER_BYTES..length).and_then(|packed| unpacker.unpack(&header, packed));
        let listed = payload.and_then(|payload| index::read(payload, offset).ok());
        let Some(listed) = listed else { return Ok(None) };
        parts.push(listed.frames);
        end = listed.start;
        offset = listed.previous;
    }
    let whole = end == PREAMBLE_BYTES as u64;
    Ok(whole.then(|| parts.into_iter().rev().flatten().collect()))
}

/// A way through the frames of a spool.
pub struct Walk<'r, R> {
    reader: &'r mut SpoolReader<R>,
    /// The next frames, and the next damages that are known from their headers, by index.
    frames: Peekable<IntoIter<usize>>,
    damages: Peekable<IntoIter<usize>>,
    /// The next frame's number in each stream.
    expected: BTreeMap<Stream, u64>,
}

impl<R: Read + Seek> Walk<'_, R> {
    /// Returns the next part, or `None` at the end. After an error of the file, continues with the
    /// next frame.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows from it")]
    pub fn next(&mut self) -> Result<Option<Step<'_>>, SpoolError> {
        let next = self.frames.peek().map(|at| self.reader.frames[*at]);
        let damage = self.damages.peek().map(|at| self.reader.damages[*at]);
        if let Some(damage) = damage
            && next.is_none_or(|frame| damage.offset < frame.offset)
        {
            self.damages.next();
            return Ok(Some(Step::Damaged(self.lose(damage))));
        }
        let Some(info) = next else { return Ok(None) };
        let expected = self.expected.entry(info.stream).or_default();
        let sequence = u64::from(info.sequence);
        if *expected < sequence {
            let missing = *expected..sequence;
            *expected = sequence;
            return Ok(Some(Step::Missing(info.stream, missing)));
        }
        self.frames.next();
        let frame = Some((info.stream, info.sequence));
        if *expected > sequence {
            let cause = Cause::OutOfOrder;
            return Ok(Some(Step::Damaged(Damage { offset: info.offset, frame, cause })));
        }
        *expected = sequence + 1;
        Ok(Some(match self.reader.frame(info)? {
            Ok(frame) => Step::Frame(frame),
            Err(cause) => Step::Damaged(Damage { offset: info.offset, frame, cause }),
        }))
    }

    /// Returns the damage without frames that are already known to be lost.
    fn lose(&mut self, damage: Damage) -> Damage {
        if let Some((stream, sequence)) = damage.frame {
            let expected = self.expected.entry(stream).or_default();
            if *expected == u64::from(sequence) {
                *expected += 1;
            }
        }
        damage
    }
}

/// A file, read in chunks.
pub(super) struct Source<R> {
    file: R,
    /// Bytes of the file.
    pub(super) length: u64,
    chunk: Vec<u8>,
    /// Where the chunk begins in the file.
    start: u64,
}

impl<R: Read + Seek> Source<R> {
    fn new(mut file: R) -> io::Result<Self> {
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, length, chunk: Vec::new(), start: 0 })
    }

    /// Returns bytes of the file from `offset` on, at least `least` unless the file ends before.
    pub(super) fn available(&mut self, offset: u64, least: usize) -> io::Result<&[u8]> {
        let least = self.length.saturating_sub(offset).min(least as u64) as usize;
        let place = offset.checked_sub(self.start).and_then(|place| usize::try_from(place).ok());
        let within = place.filter(|place| {
            place.checked_add(least).is_some_and(|needed| needed <= self.chunk.len())
        });
        match within {
            Some(place) => Ok(&self.chunk[place..]),
            None => {
                self.fill(offset, least)?;
                Ok(&self.chunk)
            }
        }
    }

    fn fill(&mut self, offset: u64, least: usize) -> io::Result<()> {
        self.chunk.clear();
        self.start = offset;
        self.file.seek(SeekFrom::Start(offset))?;
        let rest = self.length.saturating_sub(offset);
        let wanted = rest.min(least.max(CHUNK_BYTES) as u64);
        let read = (&mut self.file).take(wanted).read_to_end(&mut self.chunk)?;
        // The file has become shorter since it was opened.
        if read < least { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
