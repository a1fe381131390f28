//! Plausibility check of return addresses found on the stack.
//!
//! framehop guesses a frame pointer if it has no unwind information. Every address that framehop
//! finds is therefore checked: it must lie in executable code and follow a call instruction.

/// Length in bytes of the longest recognised indirect call: prefix, opcode, ModRM, SIB, 32-bit
/// displacement.
const MAX_CALL_BYTES: usize = 8;

/// Returns whether `code` ends with a call instruction (Intel SDM, volume 2, CALL): `E8 rel32`, or
/// `FF /2` with any ModRM form.
pub fn follows_call(code: &[u8]) -> bool {
    let end = code.len();
    if end >= 5 && code[end - 5] == 0xe8 {
        return true;
    }
    (2..MAX_CALL_BYTES.min(end + 1)).any(|length| {
        let at = end - length;
        code[at] == 0xff
            && code[at + 1] & 0x38 == 0x10
            && form_bytes(&code[at + 1..]) == Some(length - 1)
    })
}

/// Returns whether `code` begins with the jump of an import: `jmp [rip + disp32]`, also after
/// `endbr64` or with the prefix `bnd` (System V ABI for x86-64, 5.2).
pub fn jumps_to_import(code: &[u8]) -> bool {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    code.strip_prefix(&[0xf2]).unwrap_or(code).starts_with(&[0xff, 0x25])
}

/// Returns the number of bytes of ModRM, SIB and displacement at the beginning of `code`, in 64-bit
/// mode.
fn form_bytes(code: &[u8]) -> Option<usize> {
    let modrm = *code.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let sib = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 => 4,
        0 if sib && code.get(1)? & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + usize::from(sib) + displacement)
}

/// Code of the kernel's signal return: `mov $15, %rax; syscall`. A signal handler returns to this
/// code, which therefore follows no call.
pub const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognised_and_other_code_is_not() {
        let calls: [&[u8]; 9] = [
            &[0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x10],                   // call *(%rax)
            &[0xff, 0x50, 0x18],             // call *0x18(%rax)
            &[0xff, 0x90, 0, 1, 0, 0],       // call *0x100(%rax)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *0x4030201(%rip)
            &[0x41, 0xff, 0x14, 0xc4],       // call *(%r12,%rax,8)
            &[0xff, 0x94, 0xc3, 0, 1, 0, 0], // call *0x100(%rbx,%rax,8)
        ];
        for call in calls {
            let mut code = vec![0x90; 8];
            code.extend_from_slice(call);
            assert!(follows_call(&code), "{call:x?}");
        }
        let others: [&[u8]; 5] = [
            &[0x90; 8],
            &[0xff, 0xe0],       // jmp *%rax
            &[0xff, 0x30],       // push (%rax)
            &[0xff, 0xd0, 0x90], // a call, but not at the end
            &[],
        ];
        for code in others {
            assert!(!follows_call(code), "{code:x?}");
        }
    }

    #[test]
    fn jumps_of_imports_are_recognised() {
        let jump = [0xff, 0x25, 1, 2, 3, 4];
        let prefixes: [&[u8]; 4] =
            [&[], &[0xf2], &[0xf3, 0x0f, 0x1e, 0xfa], &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2]];
        for prefix in prefixes {
            assert!(jumps_to_import(&[prefix, &jump].concat()), "{prefix:x?}");
        }
        for other in [&[0xff, 0x15, 1, 2, 3, 4][..], &[0x90, 0xff, 0x25], &[]] {
            assert!(!jumps_to_import(other), "{other:x?}");
        }
    }
}
