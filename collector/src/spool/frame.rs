//! Payloads of frames.

/// A payload before compression.
#[derive(Default)]
pub struct Payload {
    bytes: Vec<u8>,
}

impl Payload {
    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends bytes that are unlike those before.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}
