//! The bytes of a function, and marks for where its instructions begin and how long they are.

use std::ops::Range;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions};

use super::code::Code;

/// Maximum number of code bytes of a function that is recovered.
pub const MAX_CODE_BYTES: u64 = 4 << 20;

/// Maximum number of address ranges of one function.
const MAX_PARTS: usize = 16;

/// Mask of a mark: length of the instruction, in bytes.
const LENGTH: u8 = 0x0f;
/// Mark: a block begins at this instruction.
pub(super) const LEADER: u8 = 0x10;
/// Mark: a block ends with this instruction.
pub(super) const END: u8 = 0x20;
/// Mark: the instruction is a call.
pub(super) const CALL: u8 = 0x40;

/// One contiguous address range of a function.
pub(super) struct Part {
    pub(super) base: u64,
    /// Code bytes; shared with the code that decodes them.
    pub(super) bytes: Rc<[u8]>,
    /// Mark of each byte: 0 where no instruction begins.
    marks: Vec<u8>,
}

impl Part {
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }
}

/// Returns a decoder of bytes that begin at address `at`.
pub(super) fn decoder(bytes: &[u8], at: u64) -> Decoder<'_> {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
}

/// All address ranges of a function; the first holds its entry.
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
}

impl Parts {
    /// Adds an address range; returns false if the function gets too large or the file lacks the
    /// bytes.
    pub(super) fn add(&mut self, code: &dyn Code, range: &Range<u64>) -> bool {
        let size = range.end.saturating_sub(range.start);
        let others: u64 = self.parts.iter().map(|part| part.bytes.len() as u64).sum();
        if size == 0 || size + others > MAX_CODE_BYTES || self.parts.len() == MAX_PARTS {
            return false;
        }
        let mut bytes = vec![0; size as usize];
        if !code.read(range.start, &mut bytes) {
            return false;
        }
        self.parts.push(Part {
            base: range.start,
            marks: vec![0; bytes.len()],
            bytes: bytes.into(),
        });
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// Returns the part that holds an address.
    pub(super) fn part(&self, address: u64) -> Option<&Part> {
        self.parts.iter().find(|part| (part.base..part.end()).contains(&address))
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.part(address).is_some()
    }

    /// Returns the mark of an address; 0 if no instruction begins there.
    pub(super) fn mark(&self, address: u64) -> u8 {
        self.part(address).map_or(0, |part| part.marks[(address - part.base) as usize])
    }

    /// Sets bits in the mark of an address of the function.
    pub(super) fn set(&mut self, address: u64, bits: u8) {
        let part = self.parts.iter_mut().find(|part| (part.base..part.end()).contains(&address));
        if let Some(part) = part {
            part.marks[(address - part.base) as usize] |= bits;
        }
    }

    /// Returns the length of the instruction at an address; 0 if none begins there.
    pub(super) fn length(&self, address: u64) -> u64 {
        u64::from(self.mark(address) & LENGTH)
    }

    /// Returns the addresses with any of `bits`, ascending.
    pub(super) fn marked(&self, bits: u8) -> Vec<u64> {
        let mut found: Vec<u64> = self
            .parts
            .iter()
            .flat_map(|part| {
                let marks = part.marks.iter().zip(part.base..);
                marks.filter_map(|(mark, address)| (mark & bits != 0).then_some(address))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the address ranges that no instruction covers.
    pub(super) fn gaps(&self) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        for part in &self.parts {
            let (mut at, mut gap) = (0, None);
            while let Some(mark) = part.marks.get(at) {
                let length = mark & LENGTH;
                if length == 0 {
                    gap.get_or_insert(at);
                    at += 1;
                } else {
                    gaps.extend(gap.take().map(|from| (from, at, part.base)));
                    at += usize::from(length);
                }
            }
            gaps.extend(gap.map(|from| (from, part.bytes.len(), part.base)));
        }
        gaps.iter().map(|(from, to, base)| base + *from as u64..base + *to as u64).collect()
    }

    /// Returns whether two zero bytes are at an address: padding, though they decode as an
    /// instruction.
    pub(super) fn is_zero(&self, address: u64) -> bool {
        self.part(address).is_some_and(|part| {
            let from = (address - part.base) as usize;
            part.bytes[from..].iter().take(2).all(|byte| *byte == 0)
        })
    }
}
