//! Sections for `gimli`: whole, or read page by page on demand.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use gimli::{LittleEndian, ReaderOffsetId};
use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::limit::Limit;
use crate::symbols::Source;

const PAGE: u64 = 4096;

/// A section, whole or read page by page on demand.
#[derive(Debug)]
enum Store {
    Whole(Vec<u8>),
    Paged { source: Arc<Source>, offset: u64, pages: Vec<OnceLock<Box<[u8]>>>, len: u64 },
}

impl Store {
    /// Returns the contiguous bytes from a position on, at least one.
    fn at(&self, position: u64) -> &[u8] {
        match self {
            Self::Whole(bytes) => &bytes[position as usize..],
            Self::Paged { source, offset, pages, len } => {
                let page = position / PAGE;
                let bytes = pages[page as usize].get_or_init(|| {
                    let size = (len - page * PAGE).min(PAGE);
                    let mut bytes = count_as(MemoryKind::DebugInfo, || vec![0; size as usize]);
                    // A file that has shrunk yields zeros: they end every list and are no valid
                    // entry.
                    source.read(offset + page * PAGE, &mut bytes);
                    source.hold(size);
                    bytes.into()
                });
                &bytes[(position % PAGE) as usize..]
            }
        }
    }
}

#[derive(Debug)]
struct Section {
    store: Store,
    limit: Limit,
}

/// A part of a section, read by `gimli`. Reads beyond its limit fail.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    section: Arc<Section>,
    start: u64,
    len: u64,
}

impl Default for Bytes {
    fn default() -> Self {
        Self::whole(Vec::new(), &Limit::default())
    }
}

impl Bytes {
    /// Creates a reader of bytes in memory.
    pub(super) fn whole(bytes: Vec<u8>, limit: &Limit) -> Self {
        let len = bytes.len() as u64;
        Self::all(Store::Whole(bytes), len, limit)
    }

    fn all(store: Store, len: u64, limit: &Limit) -> Self {
        Self { section: Arc::new(Section { store, limit: limit.clone() }), start: 0, len }
    }

    /// Creates a reader of a range of a file.
    pub(super) fn paged(source: &Arc<Source>, range: Range<u64>, limit: &Limit) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        if range.end > source.len() {
            return None;
        }
        let pages = (0..len.div_ceil(PAGE)).map(|_| OnceLock::new()).collect();
        let store = Store::Paged { source: source.clone(), offset: range.start, pages, len };
        Some(Self::all(store, len, limit))
    }

    /// Calls `with` for all bytes, piece by piece, until it returns a result.
    fn pieces<T>(&self, mut with: impl FnMut(u64, &[u8]) -> Option<T>) -> Option<T> {
        let mut done = 0;
        while done < self.len {
            let piece = self.section.store.at(self.start + done);
            let piece = &piece[..piece.len().min((self.len - done) as usize)];
            if let Some(found) = with(done, piece) {
                return Some(found);
            }
            done += piece.len() as u64;
        }
        None
    }

    fn end_of_section<T>(&self) -> gimli::Result<T> {
        Err(gimli::Error::UnexpectedEof(ReaderOffsetId(self.start)))
    }
}

impl gimli::Reader for Bytes {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn empty(&mut self) {
        self.start += self.len;
        self.len = 0;
    }

    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        if len as u64 > self.len {
            return self.end_of_section();
        }
        self.len = len as u64;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.start.wrapping_sub(base.start) as usize
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.start)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = id.0.checked_sub(self.start)?;
        (offset <= self.len).then_some(offset as usize)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let place = self.pieces(|done, piece| {
            piece.iter().position(|each| *each == byte).map(|at| done as usize + at)
        });
        place.map_or_else(|| self.end_of_section(), Ok)
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        if len as u64 > self.len {
            return self.end_of_section();
        }
        self.start += len as u64;
        self.len -= len as u64;
        Ok(())
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        let mut front = self.clone();
        front.truncate(len)?;
        self.skip(len)?;
        Ok(front)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        if self.len == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let first = self.section.store.at(self.start);
        if let Some(all) = first.get(..self.len as usize) {
            return Ok(Cow::Borrowed(all));
        }
        let mut all = Vec::with_capacity(self.len as usize);
        self.pieces(|_, piece| {
            all.extend_from_slice(piece);
            None::<()>
        });
        Ok(Cow::Owned(all))
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        match self.to_slice()? {
            Cow::Borrowed(bytes) => {
                std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| gimli::Error::BadUtf8)
            }
            Cow::Owned(bytes) => {
                String::from_utf8(bytes).map(Cow::Owned).map_err(|_| gimli::Error::BadUtf8)
            }
        }
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Ok(match self.to_slice()? {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    fn read_slice(&mut self, into: &mut [u8]) -> gimli::Result<()> {
        if into.len() as u64 > self.len {
            return self.end_of_section();
        }
        if self.section.limit.interrupts() || self.section.limit.is_too_deep() {
            return Err(gimli::Error::Io);
        }
        let mut done = 0;
        while done < into.len() {
            let piece = self.section.store.at(self.start + done as u64);
            let count = piece.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        self.skip(into.len())
    }
}
