//! Code objects of an interpreter and their instructions: each is numbered once per process.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layouts::{BYTES, BYTES_LENGTH, Layout, STRING_KIND, STRING_LENGTH};
use crate::addresses::Published;
use crate::stack_memory::CheckedMemory;
use plimsoll_sys::mapping;
use plimsoll_wire::segment::{
    ADDRESS_IS_LEAF, MAX_SCRIPT_FILE, MAX_SCRIPT_FUNCTIONS, MAX_SCRIPT_NAME, ScriptFunction,
    script_value,
};

/// Number of entries of the table of functions: twice those that can be named.
const FUNCTIONS: usize = 2 * MAX_SCRIPT_FUNCTIONS;
/// Number of entries of the table of instructions.
const INSTRUCTIONS: usize = 1 << 14;
/// Maximum number of probes before an address is left out.
const PROBES: usize = 32;

/// Numbers by addresses of objects, each with a check in the upper half, since another object may
/// get the memory of one that was freed. Lives in zeroed memory.
struct Numbers<const ENTRIES: usize>([(AtomicU64, AtomicU64); ENTRIES]);

impl<const ENTRIES: usize> Numbers<ENTRIES> {
    fn new() -> Option<&'static Self> {
        let memory = mapping::private(size_of::<Self>()).cast::<Self>();
        // SAFETY: zeroed memory is an empty table, and never unmapped.
        unsafe { memory.as_ref() }
    }

    /// Returns the number of an object, made by `new` on first use; `None` without room. Another
    /// thread may number the same object meanwhile: it then has two numbers.
    fn get(&self, object: u64, check: u64, new: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let first = (object.wrapping_mul(SPREAD) >> 40) as usize;
        let mut places = (first..first + PROBES).map(|at| &self.0[at % ENTRIES]);
        let (_, number) = places.find(|(key, _)| {
            let found = key.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire);
            found.map_or_else(|other| other == object, |_| true)
        })?;
        let known = number.load(Ordering::Acquire);
        if known >> 32 == check {
            return Some(known as u32);
        }
        let new = new()?;
        number.store(check << 32 | u64::from(new), Ordering::Release);
        Some(new)
    }
}

/// Code objects of a process, and their instructions.
pub struct CodeObjects {
    layout: &'static Layout,
    /// Numbers of functions, by code object.
    numbers: &'static Numbers<FUNCTIONS>,
    /// Address ids, by instruction.
    ids: &'static Numbers<INSTRUCTIONS>,
    functions: &'static [ScriptFunction],
    used: &'static AtomicU32,
}

impl CodeObjects {
    /// Creates empty tables. Names are written to `functions`; `used` counts those in use.
    pub fn new(
        layout: &'static Layout,
        functions: &'static [ScriptFunction],
        used: &'static AtomicU32,
    ) -> Option<Self> {
        Some(Self { layout, numbers: Numbers::new()?, ids: Numbers::new()?, functions, used })
    }

    /// Returns the address id of an instruction of a code object; `None` if it cannot be read, or
    /// if there is no room for it. On first use its line is looked up, and its function numbered
    /// and named. `module` is the number of the interpreter's module.
    pub fn intern(
        &self,
        (code, instruction): (u64, u64),
        memory: &mut CheckedMemory,
        published: &Published<'_>,
        module: u32,
    ) -> Option<u32> {
        let name = memory.read(code + self.layout.code_name).ok()?;
        let line = memory.read_part(code + self.layout.code_line, 4).ok()? as u32;
        let check = ((name ^ u64::from(line) << 20).wrapping_mul(SPREAD) >> 32).max(1);
        self.ids.get(instruction, check, || {
            let function =
                self.numbers.get(code, check, || self.name(code, (name, line), memory))?;
            let line = self.line(code, instruction, line, memory).unwrap_or(line);
            published.announce(script_value(function, line), module, ADDRESS_IS_LEAF).ok()
        })
    }

    /// Returns the line of an instruction of a code object that begins in line `first`; `None` if
    /// it has none. Source: Objects/locations.md of CPython 3.11.
    fn line(
        &self,
        code: u64,
        instruction: u64,
        first: u32,
        memory: &mut CheckedMemory,
    ) -> Option<u32> {
        let table = memory.read(code + self.layout.code_lines).ok()?;
        let length = memory.read(table + BYTES_LENGTH).ok()?.min(MAX_LINES_BYTES);
        let mut at = table + BYTES;
        let end = at + length;
        let mut next = || {
            let byte = (at < end).then(|| memory.read_part(at, 1).ok())??;
            at += 1;
            Some(byte)
        };
        // Instructions are counted in units of two bytes.
        let wanted = instruction.checked_sub(code + self.layout.code_begin)? / 2;
        let (mut passed, mut line) = (0, i64::from(first));
        loop {
            let head = next()?;
            let (kind, units) = (head >> 3 & 15, (head & 7) + 1);
            let (change, rest) = match kind {
                // Columns follow.
                0..=9 => (0, 1),
                10..=12 => (kind as i64 - 10, 2),
                13 | 14 => {
                    let number = variable(&mut next)?;
                    let change = (number >> 1) as i64;
                    if kind == 14 {
                        // The last line and two columns.
                        (0..3).try_for_each(|_| variable(&mut next).map(|_| ()))?;
                    }
                    (if number & 1 != 0 { -change } else { change }, 0)
                }
                _ => (0, 0),
            };
            (0..rest).try_for_each(|_| next().map(|_| ()))?;
            line += change;
            passed += units;
            if wanted < passed {
                return u32::try_from(line).ok().filter(|_| kind != 15);
            }
        }
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

/// Reads a number in groups of six bits, the lowest first; a further bit says that more follow.
fn variable(next: &mut impl FnMut() -> Option<u64>) -> Option<u64> {
    let mut number = 0;
    for group in 0..10 {
        let byte = next()?;
        number |= (byte & 63) << (6 * group);
        if byte & 64 == 0 {
            break;
        }
    }
    Some(number)
}

/// Maximum number of bytes of a table of lines that are searched.
const MAX_LINES_BYTES: u64 = 1 << 16;

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
