//! Lines of whole functions, looked up before their units are dropped.
//!
//! Samples of a busy function keep coming at new addresses. Each would read its unit again, which
//! takes a thousand times as long as looking up all instructions of the function at once.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::{MAX_LINES, Module, Open};
use crate::code::Code;
use crate::function::{Function, Lines};
use crate::lines::Strings;

/// Maximum size in bytes of a function that is looked up as a whole.
const MAX_BYTES: u64 = 1 << 14;

/// Maximum size in bytes of debug information that is quick to read again.
const MAX_QUICK_BYTES: u64 = 1 << 20;

impl Module {
    /// Looks up the instructions of all known functions in the units read so far; skipped after the
    /// end of the run, when no more samples follow.
    pub(super) fn fill(&mut self, strings: &mut Strings) {
        let Some(Open { debug_file: Some(file), debug: Some(Some(debug)), .. }) = &self.open else {
            return;
        };
        if self.limit.is_set() || file.source.held() < MAX_QUICK_BYTES {
            return;
        }
        let is_new = |function: &&Arc<Function>| {
            let bytes: u64 = function.parts.iter().map(|part| part.end - part.start).sum();
            bytes <= MAX_BYTES
                && !self.filled.contains(&function.entry)
                && debug.is_at_hand(function.entry)
        };
        let functions: Vec<Arc<Function>> = self.functions().filter(is_new).cloned().collect();
        for function in functions {
            let Some(found) = self.lines_of(&function, strings) else { return };
            if self.lines.len() + found.len() > MAX_LINES / 2 {
                return; // they would be forgotten soon
            }
            self.lines.extend(found);
            self.filled.insert(function.entry);
            self.note_news();
        }
    }

    /// Returns the lines of all addresses in a function that a stack can show: of instructions, and
    /// within calls.
    fn lines_of(&self, function: &Function, strings: &mut Strings) -> Option<Vec<(u64, Lines)>> {
        let Open { binary, debug: Some(Some(debug)), .. } = self.open.as_ref()? else {
            return None;
        };
        let mut found = Vec::new();
        for part in &function.parts {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            if !binary.read(part.start, &mut bytes) {
                continue;
            }
            for instruction in Decoder::with_ip(64, &bytes, part.start, DecoderOptions::NONE) {
                let is_call = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                let last = instruction.next_ip().wrapping_sub(1);
                for address in [Some(instruction.ip()), Some(last).filter(|_| is_call)] {
                    let Some(address) = address.filter(|it| !self.lines.contains_key(it)) else {
                        continue;
                    };
                    let lines = debug.lines(address, strings);
                    if self.limit.take_interruption() {
                        return None;
                    }
                    found.push((address, lines));
                }
            }
        }
        Some(found)
    }
}
