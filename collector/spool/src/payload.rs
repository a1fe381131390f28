//! What frames hold, before it is packed.

/// Parts of a payload with fewer bytes share their entropy code with others: zstd does not code fewer
/// literals than this, and the end of a block takes three bytes. 128 and 256 were not better.
const MIN_PART_BYTES: usize = 64;

/// A payload before compression: bytes, and the places between which they are alike.
#[derive(Default)]
pub struct Payload {
    bytes: Vec<u8>,
    cuts: Vec<usize>,
}

impl Payload {
    /// All its bytes.
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

    /// In how many places it is cut.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// The bytes, cut into parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain(std::iter::once(self.bytes.len()));
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }
}
