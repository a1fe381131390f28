//! From the bytes of a function to its basic blocks: decodes along all paths from its entry.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Code as Op, FlowControl, Instruction, Mnemonic, Register};

use super::code::Code;
use super::graph::{Block, Found, Graph};
use super::parts::{CALL, END, LEADER, MAX_CODE_BYTES, Parts, decoder};
use super::switches;
use rustc_hash::FxHashMap;

/// Maximum number of instructions of a function that is recovered.
pub const MAX_INSTRUCTIONS: usize = 1_000_000;

/// Maximum number of rounds that resolve indirect jumps: a jump within a case of a switch is found
/// only once that switch is resolved.
const MAX_ROUNDS: usize = 32;

/// Maximum work on the indirect jumps of one function, in instructions and table entries.
const MAX_JUMP_STEPS: usize = 1_000_000;

/// Successors of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Exit {
    /// Jump targets within the function.
    pub(super) targets: Vec<u64>,
    /// Whether control may continue at the next instruction.
    pub(super) falls_through: bool,
}

/// A function's blocks, as far as its code shows them.
pub(super) struct Explored {
    pub(super) graph: Graph,
    /// Address ranges of the function, ascending.
    pub(super) parts: Vec<Range<u64>>,
    /// Addresses of the calls, ascending, without tail calls.
    pub(super) calls: Vec<u64>,
    /// Whether the targets of all indirect jumps are known.
    pub(super) is_complete: bool,
    /// Whether a path leads to a return, or out of the function by a jump.
    pub(super) returns: bool,
}

/// Reason why a function cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The file does not have the function's bytes.
    Code,
    /// Too many bytes or instructions.
    Size,
}

/// Decodes the function that begins at `entry` and extends over `range`.
pub(super) fn explore(
    code: &dyn Code,
    entry: u64,
    range: &Range<u64>,
) -> Result<Explored, Failure> {
    if range.end.saturating_sub(range.start) > MAX_CODE_BYTES {
        return Err(Failure::Size);
    }
    let mut search = Explorer::new(code);
    if !range.contains(&entry) || !search.parts.add(code, range) {
        return Err(Failure::Code);
    }
    search.add_landing_pads(range);
    search.follow(entry)?;
    search.resolve_jumps(entry)?;
    search.fill_gaps()?;
    search.finish(entry).ok_or(Failure::Code)
}

pub(super) struct Explorer<'c> {
    pub(super) code: &'c dyn Code,
    pub(super) parts: Parts,
    pub(super) exits: FxHashMap<u64, Exit>,
    /// Indirect jumps with unknown targets.
    unresolved: Vec<u64>,
    work: Vec<u64>,
    /// Ranges of calls, and the landing pad of each.
    pads: Vec<(Range<u64>, u64)>,
    /// Addresses of data that the code in `parts` names; `None` until needed.
    named: Option<BTreeSet<u64>>,
    instructions: usize,
    jump_steps: usize,
    is_complete: bool,
    returns: bool,
}

impl<'c> Explorer<'c> {
    fn new(code: &'c dyn Code) -> Self {
        Self {
            code,
            parts: Parts::default(),
            exits: FxHashMap::default(),
            unresolved: Vec::new(),
            work: Vec::new(),
            pads: Vec::new(),
            named: None,
            instructions: 0,
            jump_steps: 0,
            is_complete: true,
            returns: false,
        }
    }

    fn add_landing_pads(&mut self, range: &Range<u64>) {
        for pad in self.code.landing_pads(range) {
            self.pads.push((pad.calls, pad.pad));
        }
        self.pads.sort_unstable_by_key(|(calls, pad)| (calls.start, calls.end, *pad));
    }

    /// Decodes along all paths from an address.
    fn follow(&mut self, from: u64) -> Result<(), Failure> {
        self.work.push(from);
        while let Some(leader) = self.work.pop() {
            if self.parts.contains(leader) {
                self.decode(leader)?;
            }
        }
        Ok(())
    }

    /// Decodes a block and the code that follows it without a jump.
    fn decode(&mut self, leader: u64) -> Result<(), Failure> {
        self.parts.set(leader, LEADER);
        let mut at = leader;
        let mut instruction = Instruction::default();
        // One decoder per part: creating one takes as long as decoding an instruction.
        while let Some(part) = self.parts.part(at) {
            let (bytes, end) = (part.bytes.clone(), part.end());
            let mut decoder = decoder(&bytes[(at - part.base) as usize..], at);
            while at < end {
                if self.parts.length(at) != 0 {
                    // Another path was decoded from here on: both join.
                    self.parts.set(at, LEADER);
                    return Ok(());
                }
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    return Ok(());
                }
                self.instructions += 1;
                if self.instructions > MAX_INSTRUCTIONS {
                    return Err(Failure::Size);
                }
                self.parts.set(at, instruction.len() as u8);
                let next = instruction.next_ip();
                if let Some(exit) = self.exit(&instruction) {
                    self.parts.set(at, END);
                    if exit.falls_through {
                        self.work.push(next);
                    }
                    self.work.extend(&exit.targets);
                    self.exits.insert(at, exit);
                    return Ok(());
                }
                at = next;
            }
        }
        Ok(())
    }

    /// Decodes the instruction at an address of the function; false if there is no complete one.
    pub(super) fn decode_one(&self, at: u64, into: &mut Instruction) -> bool {
        let Some(part) = self.parts.part(at) else { return false };
        decoder(&part.bytes[(at - part.base) as usize..], at).decode_out(into);
        !into.is_invalid()
    }

    /// Decodes an instruction for the search for targets of indirect jumps; false also once the
    /// budget for that search is spent ([`MAX_JUMP_STEPS`]).
    pub(super) fn decode_again(&mut self, at: u64, into: &mut Instruction) -> bool {
        self.afford(1) && self.decode_one(at, into)
    }

    /// Counts work on indirect jumps; returns false once it exceeds [`MAX_JUMP_STEPS`].
    pub(super) fn afford(&mut self, steps: usize) -> bool {
        self.jump_steps += steps;
        self.jump_steps <= MAX_JUMP_STEPS
    }

    /// Returns the begin of the next object that the function's code names after the one at
    /// `address`, `u64::MAX` without one; `None` if the code does not name `address`.
    pub(super) fn end_of_object(&mut self, address: u64) -> Option<u64> {
        let named = self.named.take().unwrap_or_else(|| self.find_named());
        let mut from = named.range(address..).copied();
        let is_named = from.next() == Some(address);
        let end = is_named.then(|| from.next().unwrap_or(u64::MAX));
        self.named = Some(named);
        end
    }

    /// Returns the addresses that instructions name: relative to the instruction pointer, or as the
    /// base of an indexed access. All code is read, also what no known path reaches: a table may
    /// belong to a switch within a case that is not decoded yet.
    fn find_named(&mut self) -> BTreeSet<u64> {
        let parts: Vec<_> = self.parts.iter().map(|part| part.base..part.end()).collect();
        let mut instruction = Instruction::default();
        let mut named = BTreeSet::new();
        for Range { start: mut at, end } in parts {
            while at < end {
                if !self.decode_again(at, &mut instruction) {
                    at += 1;
                    continue;
                }
                let (base, index) = (instruction.memory_base(), instruction.memory_index());
                if base == Register::RIP || (base == Register::None && index != Register::None) {
                    named.insert(instruction.memory_displacement64());
                }
                at = instruction.next_ip();
            }
        }
        named
    }

    /// Returns the successors of an instruction that ends a block; `None` if control always
    /// continues at the next instruction.
    fn exit(&mut self, instruction: &Instruction) -> Option<Exit> {
        match instruction.flow_control() {
            FlowControl::Next => (instruction.mnemonic() == Mnemonic::Hlt).then(Exit::default),
            FlowControl::UnconditionalBranch => Some(self.jump(instruction, false)),
            FlowControl::ConditionalBranch => Some(self.jump(instruction, true)),
            // The abort handler of a transaction is a branch target.
            FlowControl::XbeginXabortXend => matches!(instruction.mnemonic(), Mnemonic::Xbegin)
                .then(|| self.jump(instruction, true)),
            FlowControl::IndirectBranch => {
                self.unresolved.push(instruction.ip());
                Some(Exit::default())
            }
            FlowControl::Return => {
                self.returns = true;
                Some(Exit::default())
            }
            FlowControl::Call | FlowControl::IndirectCall => self.call(instruction),
            FlowControl::Interrupt => {
                matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Int1)
                    .then(Exit::default)
            }
            FlowControl::Exception => Some(Exit::default()),
        }
    }

    fn jump(&mut self, instruction: &Instruction, falls_through: bool) -> Exit {
        let target = instruction.near_branch_target();
        let within = self.admit(target);
        // A jump out of the function is a tail call: the function returns if its target does.
        self.returns |= !within && self.code.returns(target);
        Exit { targets: if within { vec![target] } else { Vec::new() }, falls_through }
    }

    fn call(&mut self, instruction: &Instruction) -> Option<Exit> {
        let op = instruction.code();
        let near = instruction.is_call_near();
        if !near && !instruction.is_call_near_indirect() {
            return None; // the kernel's calls, and others that are no calls of functions
        }
        if near && instruction.near_branch_target() == instruction.next_ip() {
            return None; // reads its own address
        }
        self.parts.set(instruction.ip(), CALL);
        let returns = match op {
            Op::Call_rm64 if instruction.memory_base() == Register::RIP => {
                self.code.slot_returns(instruction.memory_displacement64())
            }
            _ if near => self.code.returns(instruction.near_branch_target()),
            _ => true,
        };
        (!returns).then(Exit::default)
    }

    /// Returns whether an address lies within the function; adds the split-off part that holds it.
    pub(super) fn admit(&mut self, target: u64) -> bool {
        if self.parts.contains(target) {
            return true;
        }
        match self.code.extent(target) {
            Some(extent) if extent.is_part && extent.range.contains(&target) => {
                if !self.parts.add(self.code, &extent.range) {
                    return false;
                }
                self.named = None;
                self.add_landing_pads(&extent.range);
                true
            }
            _ => false,
        }
    }

    /// Finds the targets of indirect jumps and decodes from there, until a round finds nothing new.
    fn resolve_jumps(&mut self, entry: u64) -> Result<(), Failure> {
        for _ in 0..MAX_ROUNDS {
            self.follow_pads()?;
            let jumps = std::mem::take(&mut self.unresolved);
            if jumps.is_empty() {
                return Ok(());
            }
            let Some(graph) = self.graph(entry) else { return Ok(()) };
            let found = switches::resolve(self, &graph, &jumps);
            let mut left = Vec::new();
            let mut is_new = false;
            for (jump, found) in jumps.into_iter().zip(found) {
                match found {
                    switches::Target::Table(targets) => {
                        is_new = true;
                        self.work.extend(&targets);
                        self.exits.insert(jump, Exit { targets, falls_through: false });
                    }
                    switches::Target::Outside => self.returns = true,
                    switches::Target::Unknown => left.push(jump),
                }
            }
            while let Some(leader) = self.work.pop() {
                self.decode(leader)?;
            }
            let before = self.unresolved.len();
            self.unresolved.extend(left);
            if !is_new && before == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Decodes the landing pads within the function.
    fn follow_pads(&mut self) -> Result<(), Failure> {
        let pads: Vec<u64> = self.pads.iter().map(|(_, pad)| *pad).collect();
        for pad in pads {
            if self.admit(pad) {
                self.follow(pad)?;
            }
        }
        Ok(())
    }

    /// Decodes the code that no known path reaches, so that its addresses have blocks. Without
    /// unknown jumps, that is padding and data.
    fn fill_gaps(&mut self) -> Result<(), Failure> {
        let mut found = false;
        for gap in self.parts.gaps() {
            found |= self.fill_gap(gap)?;
        }
        // If no code is left unreached, the unresolved indirect jumps are tail calls.
        if !self.unresolved.is_empty() {
            self.is_complete = !found;
            self.returns = true;
        }
        Ok(())
    }

    /// Decodes one gap; returns false if it is only padding.
    fn fill_gap(&mut self, gap: Range<u64>) -> Result<bool, Failure> {
        let mut instruction = Instruction::default();
        let mut found = false;
        let mut at = gap.start;
        while at < gap.end {
            let known = self.parts.length(at);
            if known != 0 {
                at += known;
                continue;
            }
            if !self.decode_one(at, &mut instruction) || instruction.next_ip() > gap.end {
                at += 1;
                continue;
            }
            let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
                || self.parts.is_zero(at);
            if is_padding {
                at = instruction.next_ip();
            } else {
                found = true;
                self.follow(at)?;
            }
        }
        Ok(found)
    }

    /// Returns the blocks decoded so far.
    fn blocks(&self) -> Vec<Found> {
        let mut found = Vec::new();
        for start in self.parts.marked(LEADER) {
            let (mut last, mut end) = (start, start);
            while self.parts.length(end) != 0
                && (end == start || self.parts.mark(end) & LEADER == 0)
            {
                last = end;
                end += self.parts.length(end);
                if self.parts.mark(last) & END != 0 {
                    break;
                }
            }
            if end == start {
                continue;
            }
            let exit = self.exits.get(&last);
            let mut successors = exit.map_or_else(Vec::new, |exit| exit.targets.clone());
            if exit.is_none_or(|exit| exit.falls_through) {
                successors.push(end);
            }
            let block = Block { start, end, last };
            let first = self.pads.partition_point(|(calls, _)| calls.end <= start);
            for (calls, pad) in self.pads[first..].iter().take_while(|pad| pad.0.start < end) {
                if self.calls_within(&block, calls) {
                    successors.push(*pad);
                }
            }
            found.push(Found { block, successors });
        }
        found
    }

    /// Returns whether a block makes a call at one of these addresses.
    fn calls_within(&self, block: &Block, calls: &Range<u64>) -> bool {
        let mut at = block.start;
        while at < block.end {
            if calls.contains(&at) && self.parts.mark(at) & CALL != 0 {
                return true;
            }
            at += self.parts.length(at).max(1);
        }
        false
    }

    fn graph(&self, entry: u64) -> Option<Graph> {
        Graph::new(self.blocks(), entry)
    }

    fn finish(self, entry: u64) -> Option<Explored> {
        let graph = self.graph(entry)?;
        let mut parts: Vec<_> = self.parts.iter().map(|part| part.base..part.end()).collect();
        parts.sort_by_key(|part| part.start);
        let calls = self.parts.marked(CALL);
        let Self { is_complete, returns, .. } = self;
        Some(Explored { graph, parts, calls, is_complete, returns })
    }
}
