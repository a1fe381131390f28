//! Code objects of an interpreter: each is numbered and named once per process.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layouts::{Layout, STRING_KIND, STRING_LENGTH};
use crate::addresses::Published;
use crate::stack_memory::CheckedMemory;
use plimsoll_sys::mapping;
use plimsoll_wire::segment::{
    ADDRESS_IS_LEAF, MAX_SCRIPT_FILE, MAX_SCRIPT_FUNCTIONS, MAX_SCRIPT_NAME, SCRIPT_VALUE,
    ScriptFunction,
};

/// Number of entries of the table of code objects: twice the functions that can be named.
const TABLE: usize = 2 * MAX_SCRIPT_FUNCTIONS;
/// Maximum number of probes before a code object is not shown.
const PROBES: usize = 32;

/// Code objects by their address: id, with a check in the upper half, since another function may
/// get the memory of one that was freed. Lives in zeroed memory.
struct Known([(AtomicU64, AtomicU64); TABLE]);

/// Code objects of a process.
pub struct CodeObjects {
    layout: &'static Layout,
    known: &'static Known,
    functions: &'static [ScriptFunction],
    used: &'static AtomicU32,
}

impl CodeObjects {
    /// Creates an empty table. Names are written to `functions`; `used` counts those in use.
    pub fn new(
        layout: &'static Layout,
        functions: &'static [ScriptFunction],
        used: &'static AtomicU32,
    ) -> Option<Self> {
        let known = mapping::private(size_of::<Known>());
        if known.is_null() {
            return None;
        }
        // SAFETY: zeroed memory is an empty table, and never unmapped.
        Some(Self { layout, known: unsafe { &*known.cast::<Known>() }, functions, used })
    }

    /// Returns the address id of a code object, numbered and named on first use; `None` if it
    /// cannot be read, or if there is no room for its name. `module` is the number of the
    /// interpreter's module.
    pub fn intern(
        &self,
        code: u64,
        memory: &mut CheckedMemory,
        published: &Published<'_>,
        module: u32,
    ) -> Option<u32> {
        let name = memory.read(code + self.layout.code_name).ok()?;
        let line = memory.read_part(code + self.layout.code_line, 4).ok()? as u32;
        let check = ((name ^ u64::from(line) << 20).wrapping_mul(SPREAD) >> 32).max(1);
        let first = (code.wrapping_mul(SPREAD) >> 40) as usize;
        let entry = (first..first + PROBES).map(|at| &self.known.0[at % TABLE]).find(|(key, _)| {
            let found = key.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
            found.map_or_else(|other| other == code, |_| true)
        });
        let (_, payload) = entry?;
        let known = payload.load(Ordering::Acquire);
        if known >> 32 == check {
            return Some(known as u32);
        }
        // Another thread may name the same function meanwhile: it then has two ids.
        let function = self.name(code, (name, line), memory)?;
        let value = SCRIPT_VALUE + u64::from(function);
        let id = published.announce(value, module, ADDRESS_IS_LEAF).ok()?;
        payload.store(check << 32 | u64::from(id), Ordering::Release);
        Some(id)
    }

    /// Writes the name and the first line of a code object, and returns the function's number.
    fn name(&self, code: u64, (name, line): (u64, u32), memory: &mut CheckedMemory) -> Option<u32> {
        let file = memory.read(code + self.layout.code_file).ok()?;
        let [mut name_text, mut file_text] = [Text::default(), Text::default()];
        self.copy(name, memory, &mut name_text);
        self.copy(file, memory, &mut file_text);
        let taken = |used: u32| (used < self.functions.len() as u32).then_some(used + 1);
        let number = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).ok()?;
        let entry = &self.functions[number as usize];
        entry.line.store(line, Ordering::Relaxed);
        // The end of a path says more than its begin.
        let (name, file) = (name_text.begin(MAX_SCRIPT_NAME), file_text.end(MAX_SCRIPT_FILE));
        for (text, room, bytes) in
            [(name, &entry.name[..], &entry.name_bytes), (file, &entry.file[..], &entry.file_bytes)]
        {
            for (byte, place) in text.iter().zip(room) {
                place.store(*byte, Ordering::Relaxed);
            }
            bytes.store(text.len() as u32, Ordering::Release);
        }
        Some(number)
    }

    /// Copies a string of the interpreter as UTF-8; nothing of a string that cannot be read.
    fn copy(&self, string: u64, memory: &mut CheckedMemory, text: &mut Text) {
        let (Ok(length), Ok(kind)) =
            (memory.read(string + STRING_LENGTH), memory.read(string + STRING_KIND))
        else {
            return;
        };
        // Bit fields: two bits of interning, three of the bytes per character, one of a string in
        // one piece, one of ASCII.
        let (width, is_compact, is_ascii) = (kind >> 2 & 7, kind >> 5 & 1 != 0, kind >> 6 & 1 != 0);
        if !is_compact || ![1, 2, 4].contains(&width) {
            return;
        }
        let begin = string + if is_ascii { self.layout.ascii } else { self.layout.wide };
        for index in 0..length.min(MAX_TEXT as u64) {
            let Ok(character) = memory.read_part(begin + index * width, width) else { return };
            text.push(char::from_u32(character as u32).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maximum length of a text that is copied, in bytes.
const MAX_TEXT: usize = 1024;

/// A text in UTF-8.
struct Text {
    bytes: [u8; MAX_TEXT],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; MAX_TEXT], length: 0 }
    }
}

impl Text {
    fn push(&mut self, character: char) {
        let room = &mut self.bytes[self.length..];
        if character.len_utf8() <= room.len() {
            self.length += character.encode_utf8(room).len();
        }
    }

    /// Returns the first characters in at most `most` bytes.
    fn begin(&self, most: usize) -> &[u8] {
        let text = &self.bytes[..self.length];
        let end = (0..=most.min(text.len())).rev().find(|at| is_boundary(text, *at));
        &text[..end.unwrap_or(0)]
    }

    /// Returns the last characters in at most `most` bytes.
    fn end(&self, most: usize) -> &[u8] {
        let text = &self.bytes[..self.length];
        let begin =
            (text.len().saturating_sub(most)..=text.len()).find(|at| is_boundary(text, *at));
        &text[begin.unwrap_or(text.len())..]
    }
}

fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
}
