//! Frame rules of code without unwind information: kernels in assembly, such as those of OpenBLAS,
//! have none, and use rbp for data.
//!
//! Wherever a thread stands in a function, every way to the function's return ends with the stack
//! pointer at the return address and with the caller's rbp. One such way is followed instruction by
//! instruction. It needs neither the begin of the function nor a symbol. Values are expressed by
//! the registers at its begin, as call frame information does.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::cfi::{FrameRule, Value};

/// Maximum number of instructions that are followed: kernels are unrolled to thousands. Each costs
/// about 25 ns, once for an address.
const MAX_INSTRUCTIONS: usize = 16_384;
/// Maximum number of branches not taken that are kept, for ways that end elsewhere.
const MAX_BRANCHES: usize = 8;
/// Number of general-purpose registers.
const REGISTERS: usize = 16;
/// Registers by their DWARF number (System V ABI for x86-64, 3.6.2).
const BY_DWARF_NUMBER: [Register; REGISTERS] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const RBP: usize = 6;
const RSP: usize = 7;
/// Registers that a called function need not preserve: rax, rdx, rcx, rsi, rdi, r8 to r11.
const CALL_CLOBBERED: [usize; 9] = [0, 1, 2, 4, 5, 8, 9, 10, 11];

/// Makes the decoder's tables. That allocates, so the signal handler must not do it, and takes half
/// a millisecond. On another thread it would come too late for the first samples.
pub fn prepare() {
    let mut nop = Decoder::with_ip(64, &[0x90], 0, DecoderOptions::NONE);
    core::hint::black_box(nop.decode());
}

/// Returns the rule to step out of the code at `offset` in `text`, by what the code does until it
/// returns; `None` if no way to a return is found or it cannot be expressed.
pub fn rule_by_code(text: &[u8], offset: usize) -> Option<FrameRule> {
    let mut branches = Branches::default();
    let mut way = Way::beginning(offset);
    let mut decoder = Decoder::with_ip(64, text, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    for _ in 0..MAX_INSTRUCTIONS {
        let in_text = decoder.set_position(way.at).is_ok() && decoder.can_decode();
        decoder.set_ip(way.at as u64);
        if in_text {
            decoder.decode_out(&mut instruction);
        }
        let step = if in_text { way.take(&instruction, &mut branches) } else { Step::DeadEnd };
        match step {
            Step::Next => {}
            Step::Return => return way.rule(),
            Step::DeadEnd => way = branches.take_latest()?,
        }
    }
    None
}

/// Outcome of an instruction.
enum Step {
    Next,
    Return,
    /// The way ends without a return, or repeats itself.
    DeadEnd,
}

/// A way through the code, as far as it has been followed.
#[derive(Clone, Copy)]
struct Way {
    /// Offset of the next instruction.
    at: usize,
    /// Offset of the first instruction since the last jump that was followed.
    run_start: usize,
    /// Values of the registers by those at the begin of the way; `None` if unknown.
    registers: [Option<Value>; REGISTERS],
    /// Place at which the way has stored the caller's rbp.
    callers_rbp_at: Option<Value>,
}

impl Way {
    fn beginning(at: usize) -> Self {
        let registers = core::array::from_fn(|number| Some(Value::Sum(number as u16, 0)));
        Self { at, run_start: at, registers, callers_rbp_at: None }
    }

    /// Follows one instruction.
    fn take(&mut self, instruction: &Instruction, branches: &mut Branches) -> Step {
        let from = self.at;
        self.at = instruction.next_ip() as usize;
        match instruction.flow_control() {
            FlowControl::Next => self.execute(instruction),
            FlowControl::Return => {
                let is_plain = matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16);
                return if is_plain { Step::Return } else { Step::DeadEnd };
            }
            FlowControl::ConditionalBranch => {
                branches.keep(self.jumping_to(instruction.near_branch_target()));
            }
            FlowControl::UnconditionalBranch => {
                let target = instruction.near_branch_target();
                if (self.run_start as u64..=from as u64).contains(&target) {
                    return Step::DeadEnd;
                }
                *self = self.jumping_to(target);
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                // A call to the next instruction reads the program counter.
                if instruction.near_branch_target() == instruction.next_ip() {
                    self.shift(RSP, -8);
                } else {
                    for number in CALL_CLOBBERED {
                        self.registers[number] = None;
                    }
                }
            }
            _ => return Step::DeadEnd,
        }
        Step::Next
    }

    fn jumping_to(&self, target: u64) -> Self {
        Self { at: target as usize, run_start: target as usize, ..*self }
    }

    fn execute(&mut self, instruction: &Instruction) {
        let target = number(instruction.op0_register());
        match instruction.mnemonic() {
            Mnemonic::Push => {
                self.shift(RSP, -8);
                if instruction.op0_register() == Register::RBP {
                    self.store_rbp(self.registers[RSP]);
                }
            }
            Mnemonic::Pop => {
                let value = self.load(self.registers[RSP]);
                self.shift(RSP, 8);
                self.set(target, value);
            }
            Mnemonic::Leave => {
                self.registers[RSP] = self.registers[RBP];
                self.registers[RBP] = self.load(self.registers[RSP]);
                self.shift(RSP, 8);
            }
            Mnemonic::Pushfq => self.shift(RSP, -8),
            Mnemonic::Popfq => self.shift(RSP, 8),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => {}
            Mnemonic::Add | Mnemonic::Sub if target.is_some() && adds_constant(instruction) => {
                let bytes = instruction.immediate(1) as i64;
                let is_sum = instruction.mnemonic() == Mnemonic::Add;
                let before = target.and_then(|target| self.registers[target]);
                self.set(target, plus(before, if is_sum { bytes } else { bytes.wrapping_neg() }));
            }
            Mnemonic::Lea => self.set(target, self.address(instruction)),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register && target.is_some() => {
                let source = number(instruction.op1_register());
                self.set(target, source.and_then(|source| self.registers[source]));
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory && target.is_some() => {
                self.set(target, self.load(self.address(instruction)));
            }
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => {
                if instruction.op1_register() == Register::RBP {
                    self.store_rbp(self.address(instruction));
                }
            }
            mnemonic => {
                self.set(written(instruction.op0_register()), None);
                if matches!(mnemonic, Mnemonic::Xchg | Mnemonic::Xadd) {
                    self.set(written(instruction.op1_register()), None);
                }
                if mnemonic == Mnemonic::Cpuid {
                    // rax, rdx, rcx, rbx
                    self.registers[..4].fill(None);
                }
            }
        }
    }

    fn set(&mut self, target: Option<usize>, value: Option<Value>) {
        if let Some(target) = target {
            self.registers[target] = value;
        }
    }

    fn shift(&mut self, number: usize, bytes: i64) {
        self.registers[number] = plus(self.registers[number], bytes);
    }

    /// Notes a store of rbp, which holds the caller's value in the prologue and data later.
    fn store_rbp(&mut self, place: Option<Value>) {
        let is_callers = self.registers[RBP] == Some(Value::Sum(RBP as u16, 0));
        if is_callers && place.is_some() {
            self.callers_rbp_at = place;
        } else if place == self.callers_rbp_at {
            self.callers_rbp_at = None;
        }
    }

    /// Returns the word at an address: the caller's rbp where the way has stored it, else the word
    /// at the begin of the way.
    fn load(&self, place: Option<Value>) -> Option<Value> {
        match (place?, self.callers_rbp_at) {
            (place, Some(stored)) if place == stored => Some(Value::Sum(RBP as u16, 0)),
            // The way itself writes below the stack pointer of its begin.
            (Value::Sum(register, bytes), _) if register == RSP as u16 && bytes < 0 => None,
            (Value::Sum(register, bytes), _) => Some(Value::At(register, bytes)),
            _ => None,
        }
    }

    /// Returns the address of a memory operand of the form `displacement(register)`.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let is_plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None;
        let base = number(instruction.memory_base()).filter(|_| is_plain)?;
        plus(self.registers[base], instruction.memory_displacement64() as i64)
    }

    /// Returns the rule of the frame at the begin of the way, where the way has come to a return.
    fn rule(&self) -> Option<FrameRule> {
        let cfa = plus(self.registers[RSP], 8)?;
        let rbp = match self.registers[RBP]? {
            Value::Sum(register, 0) if register == RBP as u16 => None,
            saved @ Value::At(..) => Some(saved),
            _ => return None,
        };
        Some(FrameRule { cfa, rbp })
    }
}

/// Branches not taken, the latest ones.
#[derive(Default)]
struct Branches {
    ways: [Option<Way>; MAX_BRANCHES],
    kept: usize,
}

impl Branches {
    fn keep(&mut self, way: Way) {
        self.ways[self.kept % MAX_BRANCHES] = Some(way);
        self.kept += 1;
    }

    fn take_latest(&mut self) -> Option<Way> {
        self.kept = self.kept.checked_sub(1)?;
        self.ways[self.kept % MAX_BRANCHES].take()
    }
}

fn plus(value: Option<Value>, bytes: i64) -> Option<Value> {
    match value? {
        Value::Sum(register, sum) => Some(Value::Sum(register, sum.wrapping_add(bytes))),
        _ => None,
    }
}

fn adds_constant(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

/// Returns the DWARF number of a 64-bit register.
fn number(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| BY_DWARF_NUMBER.iter().position(|it| *it == register)).flatten()
}

/// Returns the DWARF number of the register that a write to `register` or a part of it changes.
fn written(register: Register) -> Option<usize> {
    if register.is_gpr() { number(register.full_register()) } else { None }
}

#[cfg(test)]
mod tests {
    use core::arch::global_asm;

    use super::*;

    // Functions without unwind information, as assembly without directives for it makes them. Each
    // `nop` is a place at which the rule is expected.
    global_asm!(
        // As OpenBLAS's kernels: rbp and rbx hold data, loops, an early exit.
        "code_rules_kernel:",
        "sub rsp, 0x40",
        "mov [rsp], rbx",
        "nop",
        "mov [rsp + 8], rbp",
        "nop",
        "test rdi, rdi",
        "jle 3f",
        "lea rbp, [rsi + rdi * 8]",
        "mov [rsp + 0x10], rbp",
        "2:",
        "nop",
        "add rbp, 8",
        "xor ebx, ebx",
        "call code_rules_tail",
        "nop",
        "dec rdi",
        "jnz 2b",
        "3:",
        "mov rbx, [rsp]",
        "mov rbp, [rsp + 8]",
        "nop",
        "add rsp, 0x40",
        "nop",
        "ret",
        // A realigned stack: the stack pointer is kept in rbx.
        "code_rules_aligned:",
        "push rbp",
        "push rbx",
        "mov rbx, rsp",
        "sub rsp, 0x1080",
        "and rsp, -4096",
        "nop",
        "mov rbp, rdi",
        "mov rsp, rbx",
        "pop rbx",
        "pop rbp",
        "ret",
        // A frame pointer, and a loop that a branch to later code leaves.
        "code_rules_framed:",
        "nop",
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, rdi",
        "2:",
        "nop",
        "dec rsi",
        "js 3f",
        "jmp 2b",
        "3:",
        "leave",
        "ret",
        // A jump to code that cannot be known.
        "code_rules_tail:",
        "nop",
        "jmp rax",
        "code_rules_end:",
    );

    unsafe extern "C" {
        fn code_rules_kernel();
        fn code_rules_aligned();
        fn code_rules_framed();
        fn code_rules_tail();
        fn code_rules_end();
    }

    /// Returns the rules at the `nop`s of the code between two of the functions above.
    fn rules(begin: unsafe extern "C" fn(), end: unsafe extern "C" fn()) -> Vec<Option<FrameRule>> {
        let (begin, end) = (begin as *const () as usize, end as *const () as usize);
        let all = code_rules_end as *const () as usize;
        // SAFETY: the functions lie one after the other.
        let text = unsafe { core::slice::from_raw_parts(begin as *const u8, all - begin) };
        let decoder = Decoder::with_ip(64, &text[..end - begin], 0, DecoderOptions::NONE);
        let nops = decoder.into_iter().filter(|it| it.mnemonic() == Mnemonic::Nop);
        nops.map(|nop| rule_by_code(text, nop.ip() as usize)).collect()
    }

    fn rule(cfa: Value, rbp: Option<Value>) -> Option<FrameRule> {
        Some(FrameRule { cfa, rbp })
    }

    fn on_stack(cfa: i64, rbp: Option<i64>) -> Option<FrameRule> {
        let stack = RSP as u16;
        rule(Value::Sum(stack, cfa), rbp.map(|rbp| Value::At(stack, rbp)))
    }

    #[test]
    fn a_kernel_in_assembly_is_left_by_its_stack_pointer_with_the_rbp_that_it_has_saved() {
        let saved = on_stack(0x48, Some(8));
        let restored = on_stack(0x48, None);
        let found = rules(code_rules_kernel, code_rules_aligned);
        assert_eq!(found, [restored, saved, saved, saved, restored, on_stack(8, None)]);
    }

    #[test]
    fn a_stack_pointer_that_is_kept_in_another_register_is_found() {
        let kept = 3; // rbx
        let expected = rule(Value::Sum(kept, 24), Some(Value::At(kept, 8)));
        assert_eq!(rules(code_rules_aligned, code_rules_framed), [expected]);
    }

    #[test]
    fn a_frame_pointer_serves_if_the_size_of_the_frame_varies() {
        let frame = RBP as u16;
        let inside = rule(Value::Sum(frame, 16), Some(Value::At(frame, 0)));
        assert_eq!(rules(code_rules_framed, code_rules_tail), [on_stack(8, None), inside]);
    }

    #[test]
    fn code_without_a_way_to_a_return_has_no_rule() {
        assert_eq!(rules(code_rules_tail, code_rules_end), [None]);
        assert_eq!(rule_by_code(&[0x90, 0xeb, 0xfe], 0), None, "an endless loop");
        assert_eq!(rule_by_code(&[0x90], 1), None);
    }
}
