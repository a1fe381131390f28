//! Values of registers along a few blocks, as far as a jump through a table needs them: constants,
//! a multiple of an unknown plus a constant, and an element of a table.

use std::collections::HashMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// Number of an unknown, which has kept its value since it was numbered.
pub(super) type Unknown = u32;

/// `constant + scale * unknown`, or one element of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    Sum { constant: u64, term: Option<(Unknown, u64)> },
    Element(Element),
}

/// The element of a table at `table + scale * index`, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Element {
    pub(super) table: u64,
    /// `table` without the constant part of the index: entry 0, if the code does not check the
    /// index.
    pub(super) base: u64,
    pub(super) index: Unknown,
    /// Bytes of an element.
    pub(super) width: u64,
    pub(super) is_signed: bool,
    pub(super) plus: u64,
}

impl Value {
    pub(super) fn constant(constant: u64) -> Self {
        Self::Sum { constant, term: None }
    }

    fn plus(self, other: Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Sum { constant, term }, Self::Sum { constant: more, term: other }) => {
                let term = match (term, other) {
                    (Some((a, scale)), Some((b, more))) if a == b => {
                        Some((a, scale.wrapping_add(more)))
                    }
                    (Some(_), Some(_)) => return None,
                    (term, other) => term.or(other),
                };
                Self::Sum { constant: constant.wrapping_add(more), term }
            }
            (Self::Element(element), Self::Sum { constant, term: None })
            | (Self::Sum { constant, term: None }, Self::Element(element)) => {
                Self::Element(Element { plus: element.plus.wrapping_add(constant), ..element })
            }
            _ => return None,
        })
    }

    fn times(self, factor: u64) -> Option<Self> {
        let Self::Sum { constant, term } = self else { return None };
        let term = term.map(|(unknown, scale)| (unknown, scale.wrapping_mul(factor)));
        Some(Self::Sum { constant: constant.wrapping_mul(factor), term })
    }
}

/// `unknown * scale + constant` is at most `most`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) constant: u64,
    pub(super) unknown: Unknown,
    pub(super) scale: u64,
    pub(super) most: u64,
}

/// Registers and stack slots during the evaluation of single instructions.
pub(super) struct State {
    registers: [Value; 16],
    memory: HashMap<Value, Value>,
    next: Unknown,
    /// The two sides of the last comparison.
    compared: Option<(Value, u64)>,
    pub(super) bounds: Vec<Bound>,
    effects: InstructionInfoFactory,
}

impl State {
    /// Creates a state in which only the registers in `known` are known, by register number.
    pub(super) fn new(known: &[Option<u64>; 16]) -> Self {
        let mut registers = [Value::constant(0); 16];
        for (number, register) in registers.iter_mut().enumerate() {
            *register = match known[number] {
                Some(constant) => Value::constant(constant),
                None => Value::Sum { constant: 0, term: Some((number as Unknown, 1)) },
            };
        }
        Self {
            registers,
            memory: HashMap::new(),
            next: 16,
            compared: None,
            bounds: Vec::new(),
            effects: InstructionInfoFactory::new(),
        }
    }

    fn unknown(&mut self) -> Value {
        self.next += 1;
        Value::Sum { constant: 0, term: Some((self.next - 1, 1)) }
    }

    /// Returns the address of an instruction's memory operand.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let displacement = Value::constant(instruction.memory_displacement64());
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
            return None;
        }
        let mut sum = displacement;
        let base = instruction.memory_base();
        // Relative to the instruction pointer: the displacement is the address already.
        if !matches!(base, Register::None | Register::RIP | Register::EIP) {
            sum = sum.plus(self.registers[slot(base)?])?;
        }
        if let Some(index) = slot(instruction.memory_index()) {
            let scale = u64::from(instruction.memory_index_scale());
            sum = sum.plus(self.registers[index].times(scale)?)?;
        }
        Some(sum)
    }

    /// Returns the sum of the constants that an instruction's memory operand adds up: its
    /// displacement, and registers with a known value.
    fn base(&self, instruction: &Instruction) -> u64 {
        let register = |register| slot(register).and_then(|slot| known(self.registers[slot]));
        let index = register(instruction.memory_index()).unwrap_or(0);
        let scaled = index.wrapping_mul(u64::from(instruction.memory_index_scale()));
        let base = register(instruction.memory_base()).unwrap_or(0);
        instruction.memory_displacement64().wrapping_add(base).wrapping_add(scaled)
    }

    fn load(&mut self, instruction: &Instruction, is_signed: bool) -> Value {
        let width = instruction.memory_size().size() as u64;
        let Some(address) = self.address(instruction) else { return self.unknown() };
        if let Some(known) = self.memory.get(&address) {
            return *known;
        }
        if let Value::Sum { constant: table, term: Some((index, scale)) } = address
            && scale == width
            && matches!(width, 4 | 8)
        {
            let base = self.base(instruction);
            return Value::Element(Element { table, base, index, width, is_signed, plus: 0 });
        }
        let fresh = self.unknown();
        self.memory.insert(address, fresh);
        fresh
    }

    /// Returns the value of an operand that is read.
    pub(super) fn operand(&mut self, instruction: &Instruction, number: u32) -> Value {
        match instruction.op_kind(number) {
            OpKind::Register => match slot(instruction.op_register(number)) {
                Some(slot) => self.registers[slot],
                None => self.unknown(),
            },
            OpKind::Memory => self.load(instruction, false),
            _ => match instruction.try_immediate(number) {
                Ok(constant) => Value::constant(constant),
                Err(_) => self.unknown(),
            },
        }
    }

    /// Evaluates one instruction.
    pub(super) fn step(&mut self, instruction: &Instruction) {
        use Mnemonic::{
            Add, Cdqe, Cmp, Endbr64, Imul, Lea, Mov, Movsx, Movsxd, Movzx, Nop, Pop, Push, Sal,
            Shl, Sub, Xor,
        };
        let result = match instruction.mnemonic() {
            Nop | Endbr64 => return,
            Cmp => return self.compare(instruction),
            Mov | Movzx if instruction.op1_kind() != OpKind::Memory => {
                Some(self.operand(instruction, 1))
            }
            Mov | Movzx => Some(self.load(instruction, false)),
            Movsxd | Movsx if instruction.op1_kind() == OpKind::Memory => {
                Some(self.load(instruction, true))
            }
            Movsxd | Movsx => Some(signed(self.operand(instruction, 1))),
            Cdqe => {
                self.registers[0] = signed(self.registers[0]);
                return;
            }
            Lea => self.address(instruction),
            Add => {
                let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
                a.plus(b)
            }
            Sub => {
                let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
                self.compared = known(b).map(|constant| (a, constant));
                b.times(u64::MAX).filter(|_| known(b).is_some()).and_then(|minus| a.plus(minus))
            }
            Shl | Sal => {
                let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
                known(b).filter(|bits| *bits < 64).and_then(|bits| a.times(1 << bits))
            }
            Imul if instruction.op_count() == 3 => {
                let (a, b) = (self.operand(instruction, 1), self.operand(instruction, 2));
                known(b).and_then(|factor| a.times(factor))
            }
            Xor if instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register() =>
            {
                Some(Value::constant(0))
            }
            Mnemonic::And => {
                let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
                self.masked(a, b)
            }
            Push | Pop | Mnemonic::Call => {
                self.forget(instruction);
                self.forget_after_call(instruction);
                return;
            }
            _ => {
                self.forget(instruction);
                return;
            }
        };
        self.write(instruction, result);
    }

    /// Returns a masked index as an unknown bounded by the mask.
    fn masked(&mut self, _value: Value, mask: Value) -> Option<Value> {
        let most = known(mask)?;
        let fresh = self.unknown();
        if let Value::Sum { term: Some((unknown, scale)), constant } = fresh
            && most < 1 << 16
        {
            self.bounds.push(Bound { constant, unknown, scale, most });
        }
        Some(fresh)
    }

    fn compare(&mut self, instruction: &Instruction) {
        let (a, b) = (self.operand(instruction, 0), self.operand(instruction, 1));
        self.compared = known(b).map(|constant| (a, constant));
    }

    /// Adds the bound on the compared value that a conditional jump implies by being taken or not.
    pub(super) fn branch(&mut self, instruction: &Instruction, is_taken: bool) {
        use iced_x86::ConditionCode::{a, ae, b, be, g, ge, l, le};
        let Some((value, constant)) = self.compared else { return };
        let Value::Sum { constant: offset, term: Some((unknown, scale)) } = value else { return };
        let most = match (instruction.condition_code(), is_taken) {
            (a | g, false) | (be | le, true) => Some(constant),
            (ae | ge, false) | (b | l, true) => constant.checked_sub(1),
            _ => None,
        };
        if let Some(most) = most {
            self.bounds.push(Bound { constant: offset, unknown, scale, most });
        }
    }

    fn write(&mut self, instruction: &Instruction, result: Option<Value>) {
        self.compared = match self.compared {
            // Moves leave the flags alone; any other instruction that changes them, and is no
            // comparison, ends the comparison's effect.
            kept if matches!(
                instruction.mnemonic(),
                Mnemonic::Mov
                    | Mnemonic::Movzx
                    | Mnemonic::Movsx
                    | Mnemonic::Movsxd
                    | Mnemonic::Lea
            ) || instruction.mnemonic() == Mnemonic::Sub =>
            {
                kept
            }
            _ => None,
        };
        match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register();
                let Some(slot) = slot(register) else { return self.forget(instruction) };
                let value = match result {
                    Some(value) if register.size() >= 4 => value,
                    _ => self.unknown(),
                };
                self.registers[slot] = value;
            }
            OpKind::Memory => {
                if let Some(address) = self.address(instruction) {
                    let value = match result {
                        Some(value) => value,
                        None => self.unknown(),
                    };
                    self.memory.insert(address, value);
                } else {
                    self.memory.clear();
                }
            }
            _ => {}
        }
    }

    /// Makes the results of an instruction that is not modelled unknown.
    fn forget(&mut self, instruction: &Instruction) {
        if instruction.rflags_modified() != 0 {
            self.compared = None;
        }
        let written: Vec<usize> = self
            .effects
            .info(instruction)
            .used_registers()
            .iter()
            .filter(|used| {
                matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::ReadWrite
                        | OpAccess::CondWrite
                        | OpAccess::ReadCondWrite
                )
            })
            .filter_map(|used| slot(used.register()))
            .collect();
        for slot in written {
            self.registers[slot] = self.unknown();
        }
    }

    fn forget_after_call(&mut self, instruction: &Instruction) {
        if instruction.mnemonic() == Mnemonic::Call {
            for slot in CLOBBERED {
                self.registers[slot] = self.unknown();
            }
        }
    }
}

/// Registers that a call may change: rax, rcx, rdx, rsi, rdi, r8 to r11.
pub(super) const CLOBBERED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// Returns the number of a general register.
pub(super) fn slot(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn known(value: Value) -> Option<u64> {
    match value {
        Value::Sum { constant, term: None } => Some(constant),
        _ => None,
    }
}

/// Returns an element as sign-extended after its load.
fn signed(value: Value) -> Value {
    match value {
        Value::Element(element) => Value::Element(Element { is_signed: true, ..element }),
        sum => sum,
    }
}
