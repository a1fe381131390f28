//! Payload of a frame before compression.

/// Size in bytes below which parts of a payload share an entropy code: zstd does not code fewer
/// literals than this, and the end of a block takes three bytes. 128 and 256 were not better.
const MIN_PART_BYTES: usize = 64;

/// A payload before compression: bytes, and the places between which they are alike.
#[derive(Default)]
pub struct Payload {
    bytes: Vec<u8>,
    cuts: Vec<usize>,
}

impl Payload {
    /// Returns the bytes of all parts.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.cuts.clear();
    }

    /// Appends bytes that are unlike those before.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        let last = self.cuts.last().copied().unwrap_or(0);
        if self.bytes.len() - last >= MIN_PART_BYTES && bytes.len() >= MIN_PART_BYTES {
            self.cuts.push(self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of cuts.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// Returns the bytes, cut into parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain(std::iter::once(self.bytes.len()));
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }
}
