//! Rules for frames that framehop cannot step over: frames with a canonical frame address (CFA)
//! that is not a stack or frame pointer plus an offset.
//!
//! GCC realigns a stack through a "dynamic realign argument pointer" (DRAP). In the prologue the
//! CFA is r10 (or another register) plus an offset; afterwards it is loaded from the frame. The
//! DWARF CFI states that by an expression that dereferences (DW_CFA_def_cfa_expression: DW_OP_breg6
//! -8; DW_OP_deref). framehop 0.16 evaluates neither and silently guesses instead. Such addresses
//! are therefore recognised once, when they are interned, and stepped over here (DWARF 5, 6.4).

use framehop::x86_64::{Reg, UnwindRegsX86_64};
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian,
    Operation, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression,
    UnwindSection, UnwindTableRow,
};

use crate::code_rules::rule_by_code;
use crate::modules::{LoadedModule, UnwindTables};

type Bytes = EndianSlice<'static, LittleEndian>;

/// DWARF numbers of registers (System V ABI, 3.6.2).
const RAX: Register = Register(0);
const RDX: Register = Register(1);
const RBP: Register = Register(6);
const RSP: Register = Register(7);

/// Rule to step out of a frame: the CFA, and the caller's rbp if the frame has saved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRule {
    pub(crate) cfa: Value,
    pub(crate) rbp: Option<Value>,
}

/// A value: `register + offset`, the word at that address, or the word at an offset from the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Sum(u16, i64),
    At(u16, i64),
    AtCfa(i64),
}

/// Buffer for reading one row of a CFI table without allocating.
pub struct CfiScratch(UnwindContext<usize, Inline>);

struct Inline;

impl UnwindContextStorage<usize> for Inline {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl Default for CfiScratch {
    fn default() -> Self {
        Self(UnwindContext::new_in())
    }
}

/// Properties of a code address according to its call frame information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Rule to step out of the frame; `None` if it is left to framehop.
    pub rule: Option<FrameRule>,
    /// Whether return addresses around the code must not be marked. Either the function saves the
    /// registers in which a landing pad finds its exception (rax and rdx, which no other function
    /// saves): then it is an exception unwinder, such as a statically linked libgcc. Or the frame
    /// has no unwind information, like code with a runtime that walks its own stacks.
    pub delicate: bool,
}

/// Returns the properties of the code at runtime address `address`, which is a return address
/// unless it `is_leaf`.
pub fn judge(
    module: &LoadedModule,
    address: u64,
    is_leaf: bool,
    scratch: &mut CfiScratch,
) -> Judgement {
    // The call before a return address may be the last instruction of its function.
    let in_function = address - u64::from(!is_leaf);
    let by_code = || {
        let (code, offset) = module.code_at(address)?;
        rule_by_code(code, offset)
    };
    let described = module.unwind.and_then(|tables| {
        let described = row_for(&tables, in_function.wrapping_sub(module.bias), scratch)?;
        Some((tables, described))
    });
    let Some((tables, Described { row, is_bare })) = described else {
        return Judgement { rule: by_code(), delicate: true };
    };
    // Assembly with directives for the begin and the end of a function alone says that its stack
    // pointer never moves. That is true of leaf functions of compilers, not of OpenBLAS's kernels.
    if is_bare
        && let Some(rule) = by_code()
        && rule != FrameRule::BARE
    {
        return Judgement { rule: Some(rule), delicate: true };
    }
    let saved = |register| matches!(row.register(register), Some(RegisterRule::Offset(_)));
    Judgement { rule: special_rule(&tables, row), delicate: saved(RAX) && saved(RDX) }
}

fn special_rule(tables: &UnwindTables, row: &UnwindTableRow<usize, Inline>) -> Option<FrameRule> {
    let frames = section(tables);
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register != RBP && *register != RSP => {
            Value::Sum(register.0, *offset)
        }
        CfaRule::RegisterAndOffset { .. } => return None,
        // Only expressions that load from memory: framehop evaluates the others (PLT entries).
        CfaRule::Expression(expression) => match value_of(expression, &frames)? {
            (register, offset, true) => Value::At(register, offset),
            _ => return None,
        },
    };
    let rbp = match row.register(RBP) {
        Some(RegisterRule::Offset(offset)) => Some(Value::AtCfa(offset)),
        Some(RegisterRule::Expression(expression)) => match value_of(&expression, &frames)? {
            (register, offset, false) => Some(Value::At(register, offset)),
            _ => return None,
        },
        _ => None,
    };
    Some(FrameRule { cfa, rbp })
}

fn section(tables: &UnwindTables) -> EhFrame<Bytes> {
    let mut frames = EhFrame::new(tables.frames, LittleEndian);
    frames.set_address_size(8);
    frames
}

/// Call frame information of an address.
struct Described<'s> {
    row: &'s UnwindTableRow<usize, Inline>,
    /// Whether the information of its whole function is that of the function's first instruction.
    is_bare: bool,
}

fn row_for<'s>(
    tables: &UnwindTables,
    file_address: u64,
    scratch: &'s mut CfiScratch,
) -> Option<Described<'s>> {
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(tables.header_address)
        .set_eh_frame(tables.frames_address);
    let header = EhFrameHdr::new(tables.header, LittleEndian).parse(&bases, 8).ok()?;
    let table = header.table()?;
    let entry = table.lookup(file_address, &bases).ok()?;
    let offset = table.pointer_to_offset(entry).ok()?;
    let frames = section(tables);
    let fde = frames.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    let mut instructions = fde.instructions(&frames, &bases);
    let is_bare = loop {
        match instructions.next() {
            Ok(None) => break true,
            Ok(Some(CallFrameInstruction::Nop)) => {}
            Ok(Some(_)) | Err(_) => break false,
        }
    };
    let row = fde.unwind_info_for_address(&frames, &bases, &mut scratch.0, file_address).ok()?;
    Some(Described { row, is_bare })
}

/// Reads `DW_OP_bregN offset`, optionally followed by `DW_OP_deref`. Returns register, offset, and
/// whether the expression dereferences; `None` for any other expression.
fn value_of(
    expression: &UnwindExpression<usize>,
    frames: &EhFrame<Bytes>,
) -> Option<(u16, i64, bool)> {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let mut operations = expression.get(frames).ok()?.operations(encoding);
    let Operation::RegisterOffset { register, offset, .. } = operations.next().ok()?? else {
        return None;
    };
    let dereferences = match operations.next().ok()? {
        None => return Some((register.0, offset, false)),
        Some(Operation::Deref { size: 8, .. }) => true,
        Some(_) => return None,
    };
    operations.next().ok()?.is_none().then_some((register.0, offset, dereferences))
}

/// Registers by their DWARF number.
const REGISTERS: [Reg; 16] = [
    Reg::RAX,
    Reg::RDX,
    Reg::RCX,
    Reg::RBX,
    Reg::RSI,
    Reg::RDI,
    Reg::RBP,
    Reg::RSP,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

impl FrameRule {
    /// The rule at the first instruction of each function, where the return address is on top of
    /// the stack.
    const BARE: Self = Self { cfa: Value::Sum(RSP.0, 8), rbp: None };

    /// Steps out of the frame: sets the caller's rsp and rbp and returns the return address.
    /// `innermost` says that all of `regs` is known, not only rsp and rbp.
    pub fn step(
        &self,
        innermost: bool,
        regs: &mut UnwindRegsX86_64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Result<u64, ()> {
        let register = |number: u16| {
            if !innermost && number != RBP.0 && number != RSP.0 {
                return Err(());
            }
            REGISTERS.get(usize::from(number)).map(|register| regs.get(*register)).ok_or(())
        };
        let mut value = |value: Value, cfa: u64| match value {
            Value::Sum(number, offset) => Ok(register(number)?.wrapping_add_signed(offset)),
            Value::At(number, offset) => read(register(number)?.wrapping_add_signed(offset)),
            Value::AtCfa(offset) => read(cfa.wrapping_add_signed(offset)),
        };
        let cfa = value(self.cfa, 0)?;
        let rbp = self.rbp.map(|rbp| value(rbp, cfa)).transpose()?;
        let return_address = read(cfa.wrapping_sub(8))?;
        regs.set_sp(cfa);
        if let Some(rbp) = rbp {
            regs.set_bp(rbp);
        }
        regs.set_ip(return_address);
        Ok(return_address)
    }
}
