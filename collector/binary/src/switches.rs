//! Jumps through tables, as compilers make them of `switch`: the address of the table, its size by
//! the comparison before the jump, and its entries.
//!
//! Both forms of gcc and clang are understood, optimised or not: tables of addresses (`jmp
//! *table(,%rdi,8)`), and tables of offsets to themselves, in position-independent code (`movslq
//! (%rdx,%rdi,4),%rax; add %rdx,%rax; jmp *%rax`).

use std::collections::{HashMap, HashSet};

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::explore::Explorer;
use super::graph::{Block, Graph};
use super::register_values::{Bound, CLOBBERED, Element, State, Value, slot};

/// Maximum number of entries of a table.
const MAX_ENTRIES: u64 = 1 << 14;

/// Maximum number of blocks before a jump that are searched for the comparison.
const MAX_BLOCKS: usize = 8;

/// Maximum number of blocks that are searched for the value of a register.
const MAX_SEARCHED: usize = 4096;

/// Targets of an indirect jump.
pub(super) enum Target {
    /// Addresses of the function.
    Table(Vec<u64>),
    /// Code outside the function, through a pointer set by the loader.
    Outside,
    /// Unknown.
    Unknown,
}

/// Finds the targets of some of a function's indirect jumps.
pub(super) fn resolve(explorer: &mut Explorer<'_>, graph: &Graph, jumps: &[u64]) -> Vec<Target> {
    let mut paths = Paths {
        explorer,
        graph,
        predecessors: predecessors(graph),
        settings: HashMap::new(),
        before: HashMap::new(),
        effects: InstructionInfoFactory::new(),
    };
    let mut found = Vec::with_capacity(jumps.len());
    for jump in jumps {
        let mut instruction = Instruction::default();
        let target = match graph.block_at(*jump) {
            Some(block) if paths.explorer.decode_one(*jump, &mut instruction) => {
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.is_ip_rel_memory_operand()
                {
                    Target::Outside
                } else {
                    paths.resolve(block)
                }
            }
            _ => Target::Unknown,
        };
        found.push(target);
    }
    found
}

/// Returns the predecessors of each block.
fn predecessors(graph: &Graph) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); graph.blocks().len()];
    for from in 0..graph.blocks().len() as u32 {
        for to in graph.successors(from) {
            lists[*to as usize].push(from);
        }
    }
    lists
}

struct Paths<'a, 'c> {
    explorer: &'a mut Explorer<'c>,
    graph: &'a Graph,
    predecessors: Vec<Vec<u32>>,
    /// Effect of each block on the registers.
    settings: HashMap<u32, [Setting; 16]>,
    /// Registers with a constant value at the begin of a block.
    before: HashMap<u32, [Option<u64>; 16]>,
    effects: InstructionInfoFactory,
}

/// Effect of a block on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Kept,
    Unknown,
    Constant(u64),
}

impl Paths<'_, '_> {
    /// Tries longer and longer paths to the jump, until one holds the comparison that bounds the
    /// index.
    fn resolve(&mut self, jump: u32) -> Target {
        let mut path = vec![jump];
        let mut unbounded = None;
        loop {
            for known in [[None; 16], self.registers_before(path[0])] {
                let (element, bound) = self.follow(&path, &known);
                let Some(element) = element else { continue };
                if let Some(bound) = bound {
                    return self.table(&element, Some(&bound));
                }
                unbounded = Some(element);
            }
            let first = path[0];
            let Some(before) = self.predecessors[first as usize].iter().find(|b| !path.contains(b))
            else {
                break;
            };
            if path.len() == MAX_BLOCKS {
                break;
            }
            path.insert(0, *before);
        }
        match unbounded {
            // The compiler knew that the index is in range.
            Some(element) => self.table(&element, None),
            None => Target::Unknown,
        }
    }

    /// Evaluates a path; returns the table element that the jump at its end goes to, and the bound
    /// of its index.
    fn follow(
        &mut self,
        path: &[u32],
        known: &[Option<u64>; 16],
    ) -> (Option<Element>, Option<Bound>) {
        let mut state = State::new(known);
        let mut instruction = Instruction::default();
        for (place, block) in path.iter().enumerate() {
            let block = &self.graph.blocks()[*block as usize];
            let mut at = block.start;
            while at < block.end && self.explorer.decode_again(at, &mut instruction) {
                match instruction.flow_control() {
                    FlowControl::ConditionalBranch => {
                        let next = path
                            .get(place + 1)
                            .map(|next| self.graph.blocks()[*next as usize].start);
                        let target = instruction.near_branch_target();
                        if target != instruction.next_ip() {
                            state.branch(&instruction, next == Some(target));
                        }
                    }
                    FlowControl::IndirectBranch if place + 1 == path.len() => {
                        let Value::Element(element) = state.operand(&instruction, 0) else {
                            return (None, None);
                        };
                        let bounds = state.bounds.iter();
                        let bound = bounds
                            .filter(|b| b.unknown == element.index && b.scale == 1)
                            .filter(|bound| bound.most < MAX_ENTRIES)
                            .min_by_key(|bound| bound.most);
                        return (Some(element), bound.copied());
                    }
                    _ => state.step(&instruction),
                }
                at = instruction.next_ip();
            }
        }
        (None, None)
    }

    /// Returns the registers with one constant value at the begin of a block on all paths:
    /// compilers load a table's address before the loop around the switch.
    fn registers_before(&mut self, block: u32) -> [Option<u64>; 16] {
        if let Some(known) = self.before.get(&block) {
            return *known;
        }
        let mut known = [None; 16];
        for (number, value) in known.iter_mut().enumerate() {
            if Some(number) != slot(Register::RSP) {
                *value = self.constant_before(block, number);
            }
        }
        self.before.insert(block, known);
        known
    }

    fn constant_before(&mut self, block: u32, register: usize) -> Option<u64> {
        if block == self.graph.entry() {
            return None;
        }
        let mut seen = HashSet::from([block]);
        let mut work: Vec<u32> = self.predecessors[block as usize].clone();
        let mut found = None;
        while let Some(block) = work.pop() {
            match self.settings(block)?[register] {
                Setting::Constant(constant) if found.is_none_or(|found| found == constant) => {
                    found = Some(constant);
                }
                Setting::Kept if block != self.graph.entry() => {
                    let before = self.predecessors[block as usize].iter();
                    work.extend(before.filter(|before| seen.insert(**before)));
                    if seen.len() > MAX_SEARCHED {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        found
    }

    /// Returns a block's effect on the registers; `None` once the budget is spent.
    fn settings(&mut self, block: u32) -> Option<[Setting; 16]> {
        if !self.explorer.afford(1) {
            return None;
        }
        if let Some(known) = self.settings.get(&block) {
            return Some(*known);
        }
        let mut settings = [Setting::Kept; 16];
        let Block { start: mut at, end, .. } = self.graph.blocks()[block as usize];
        let mut instruction = Instruction::default();
        while at < end && self.explorer.decode_again(at, &mut instruction) {
            at = instruction.next_ip();
            if instruction.mnemonic() == Mnemonic::Call {
                CLOBBERED.iter().for_each(|slot| settings[*slot] = Setting::Unknown);
            }
            for used in self.effects.info(&instruction).used_registers() {
                let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                if let Some(slot) = slot(used.register()).filter(|_| !is_read) {
                    settings[slot] = Setting::Unknown;
                }
            }
            if instruction.mnemonic() == Mnemonic::Lea
                && instruction.is_ip_rel_memory_operand()
                && let Some(slot) = slot(instruction.op0_register())
            {
                settings[slot] = Setting::Constant(instruction.ip_rel_memory_address());
            }
        }
        self.settings.insert(block, settings);
        Some(settings)
    }

    /// Reads a table. Without a bound it ends at the first invalid entry, or where the next object
    /// begins that the code names: entries of the function's next table may be valid, too.
    fn table(&mut self, element: &Element, bound: Option<&Bound>) -> Target {
        let (start, entries) = match bound {
            // The index is `x - constant` for an x from 0 to the bound.
            Some(bound) => {
                let before = bound.constant.wrapping_mul(element.width);
                (element.table.wrapping_sub(before), bound.most + 1)
            }
            None => {
                let Some(end) = self.explorer.end_of_object(element.base) else {
                    return Target::Unknown;
                };
                (element.base, ((end - element.base) / element.width).min(MAX_ENTRIES))
            }
        };
        let mut targets = Vec::new();
        let mut chunk = Chunk::default();
        for entry in 0..entries {
            let Some(address) =
                entry.checked_mul(element.width).and_then(|at| start.checked_add(at))
            else {
                break;
            };
            let left = (entries - entry) * element.width;
            let Some(bytes) = chunk.read(self.explorer, address, element.width, left) else {
                break;
            };
            let value = match (<[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
                (Ok(bytes), _) if element.is_signed => i32::from_le_bytes(bytes) as i64 as u64,
                (Ok(bytes), _) => u64::from(u32::from_le_bytes(bytes)),
                (_, Ok(bytes)) => u64::from_le_bytes(bytes),
                _ => break,
            };
            let target = value.wrapping_add(element.plus);
            if self.explorer.admit(target) {
                targets.push(target);
            } else if bound.is_none() {
                break;
            }
            // A bounded table may lead elsewhere for values that do not occur.
        }
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() { Target::Unknown } else { Target::Table(targets) }
    }
}

/// Bytes of a table, read ahead.
#[derive(Default)]
struct Chunk {
    start: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    /// Number of bytes read at once.
    const BYTES: u64 = 256;

    /// Returns the `width` bytes at an address, in a table with `left` bytes from there on.
    fn read(
        &mut self,
        explorer: &mut Explorer<'_>,
        address: u64,
        width: u64,
        left: u64,
    ) -> Option<&[u8]> {
        let within = |chunk: &Self| {
            let from = address.checked_sub(chunk.start)?;
            let to = from.checked_add(width)?;
            (to <= chunk.bytes.len() as u64).then_some(from as usize..to as usize)
        };
        if within(self).is_none() {
            for size in [left.min(Self::BYTES), width] {
                if !explorer.afford(1) {
                    return None;
                }
                self.start = address;
                self.bytes.resize(size as usize, 0);
                if explorer.code.read(address, &mut self.bytes) {
                    break;
                }
                self.bytes.clear();
            }
        }
        explorer.afford(1).then(|| within(self)).flatten().map(|range| &self.bytes[range])
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::code::{Code, Extent, LandingPad};
    use super::super::function::Function;

    /// Bytes at their addresses; the first piece is a function.
    struct Memory(Vec<(u64, Vec<u8>)>);

    impl Memory {
        fn function(&self) -> Range<u64> {
            let (start, bytes) = &self.0[0];
            *start..start + bytes.len() as u64
        }
    }

    impl Code for Memory {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let bytes = self.0.iter().find_map(|(start, bytes)| {
                bytes.get(address.checked_sub(*start)? as usize..)?.get(..into.len())
            });
            bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
        }

        fn extent(&self, address: u64) -> Option<Extent> {
            let range = self.function();
            range.contains(&address).then_some(Extent { range, is_part: false })
        }

        fn returns(&self, _: u64) -> bool {
            true
        }

        fn slot_returns(&self, _: u64) -> bool {
            true
        }

        fn landing_pads(&self, _: &Range<u64>) -> Vec<LandingPad> {
            Vec::new()
        }
    }

    /// Returns the code of a switch without a check of its range: `index` is the last byte of the
    /// instruction that loads an entry.
    fn switch(at: u64, table: u64, index: u8) -> Vec<u8> {
        let mut code = vec![0x48, 0x8d, 0x0d]; // lea table(%rip),%rcx
        code.extend(((table - (at + 7)) as u32).to_le_bytes());
        code.extend([0x48, 0x63, 0x04, index]); // movslq (%rcx,index,4),%rax
        code.extend([0x48, 0x01, 0xc8, 0xff, 0xe0]); // add %rcx,%rax; jmp *%rax
        code
    }

    #[test]
    fn a_table_without_a_bound_ends_where_the_next_one_begins() {
        let [entry, one, other, outer, inner] = [0x1000, 0x1008, 0x1009, 0x1010, 0x1020];
        let tables = [(0x2000, [inner, other]), (0x2008, [one, other])];
        let mut code = vec![0xcc; 0x10];
        code[..2].copy_from_slice(&[0xeb, 0x0e]); // jmp outer
        code[8..10].copy_from_slice(&[0xc3, 0xc3]); // ret
        code.extend(switch(outer, tables[0].0, 0xb9)); // by %rdi
        code.extend([0x83, 0xc6, 0xfd]); // add $-3,%esi
        code.extend(switch(inner + 3, tables[1].0, 0xb1)); // by %rsi
        let offsets = |(table, cases): (u64, [u64; 2])| {
            cases.map(|case| (case as i32 - table as i32).to_le_bytes()).concat()
        };
        let memory = Memory(vec![(entry, code), (tables[0].0, tables.map(offsets).concat())]);
        let function = Function::recover(&memory, None, entry, &memory.function());
        let graph = function.graph().unwrap();
        let successors = |address: u64| -> Vec<u64> {
            let next = graph.successors(graph.block_at(address).unwrap());
            next.iter().map(|block| graph.blocks()[*block as usize].start).collect()
        };
        assert_eq!(successors(outer), [other, inner]);
        assert_eq!(successors(inner), [one, other]);
        // As an entry of the first table, the second one's first entry would lead to `entry`.
        assert!(function.is_complete() && function.loops().is_empty());
    }
}
