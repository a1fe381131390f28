//! The function `main` of a stripped program: the begin of the program passes its address to the C
//! library.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind, Register};
use object::ReadRef;
use object::read::elf::{FileHeader as _, Sym as _};

use super::candidates::{Candidate, Elf, Names};
use super::source::Source;
use crate::headers::Headers;
use crate::unwind_tables::Frames;

/// The C library's function that calls `main`, which is its first argument. Its name ends with that
/// of `main`, so that one entry of the string table holds both.
const CALLER: &str = "__libc_start_main";
const NAME: &str = "main";
/// Maximum number of bytes at the begin of a program before its call of [`CALLER`].
const START_BYTES: u64 = 64;

/// Returns `main` as if the file had a symbol for it; `None` if the file is no program for the GNU
/// C library, or has no unwind information for it.
pub(super) fn main_function<'d, R: ReadRef<'d>>(
    elf: &Elf<'d, R>,
    headers: &Headers<'d, R>,
    source: &Arc<Source>,
) -> Option<Candidate<'d>> {
    let (endian, symbols) = (elf.endian(), elf.elf_dynamic_symbol_table());
    let names = Names::of(elf, symbols);
    let imports = symbols.iter().filter(|symbol| symbol.is_undefined(endian));
    let mut places = imports.map(|symbol| symbol.st_name(endian));
    let caller_at = places.find(|at| names.name(*at) == Some(CALLER))?;
    let start = first_argument(&code_at(elf.elf_header().e_entry(endian), headers, source)?)?;
    let range = Frames::of(headers, source)?.range(start).filter(|range| range.start == start)?;
    Some(Candidate {
        start,
        size: range.end - range.start,
        section_end: range.end,
        local: false,
        name: NAME,
        name_at: caller_at + (CALLER.len() - NAME.len()) as u32,
        is_dynamic: true,
    })
}

/// Code with its address in the file.
struct CodeAt {
    address: u64,
    bytes: Vec<u8>,
}

fn code_at<'d, R: ReadRef<'d>>(
    address: u64,
    headers: &Headers<'d, R>,
    source: &Source,
) -> Option<CodeAt> {
    let mut loads = headers.loads();
    let (load, from) = loads.find_map(|load| {
        let from = address.checked_sub(load.address)?;
        (from < load.size).then_some((load, from))
    })?;
    let mut bytes = vec![0; (load.size - from).min(START_BYTES) as usize];
    source.read(load.offset.checked_add(from)?, &mut bytes).then_some(CodeAt { address, bytes })
}

/// Returns the address that the code passes to the first function that it calls (System V ABI for
/// x86-64, 3.2.3: in rdi).
fn first_argument(code: &CodeAt) -> Option<u64> {
    let mut argument = None;
    for instruction in Decoder::with_ip(64, &code.bytes, code.address, DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall => return argument,
            _ => return None,
        }
        if !matches!(instruction.op0_register(), Register::RDI | Register::EDI) {
            continue;
        }
        argument = if instruction.is_ip_rel_memory_operand()
            && instruction.mnemonic() == iced_x86::Mnemonic::Lea
        {
            Some(instruction.ip_rel_memory_address())
        } else if matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64) {
            Some(instruction.immediate(1))
        } else {
            None
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(bytes: &[u8]) -> Option<u64> {
        first_argument(&CodeAt { address: 0x1000, bytes: bytes.to_vec() })
    }

    #[test]
    fn the_first_argument_of_the_first_call_is_found() {
        let relative = [0x48, 0x8d, 0x3d, 0x10, 0, 0, 0, 0xff, 0x15, 0, 0, 0, 0];
        assert_eq!(argument(&relative), Some(0x1017), "lea 0x10(%rip), %rdi; call *0(%rip)");
        let absolute = [0x31, 0xed, 0x48, 0xc7, 0xc7, 0x36, 0x11, 0x40, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(argument(&absolute), Some(0x40_1136), "mov $0x401136, %rdi; call");
        let short = [0xbf, 0x36, 0x11, 0x40, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(argument(&short), Some(0x40_1136), "mov $0x401136, %edi; call");
        let loaded = [0x48, 0x8b, 0x3d, 0x10, 0, 0, 0, 0xff, 0x15, 0, 0, 0, 0];
        assert_eq!(argument(&loaded), None, "mov 0x10(%rip), %rdi");
        assert_eq!(argument(&relative[..7]), None, "no call");
        assert_eq!(argument(&[0xc3]), None);
    }
}
