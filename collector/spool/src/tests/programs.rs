//! Streams like those of real programs, made up: a thread that computes, and one that also talks.

use plimsoll_wire::record::{Delta, Record, Stamp, delay_shift};
use plimsoll_wire::sync_id::SyncId;
use std::collections::HashMap;

use super::Owned;

/// Numbers that look random (Marsaglia, *Xorshift RNGs*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Below `bound`, small ones more often.
    fn skewed(&mut self, bound: usize) -> usize {
        let tries = (0..bound - 1).take_while(|_| self.below(100) < 55);
        tries.count()
    }

    /// Around `middle`, with a long tail.
    fn around(&mut self, middle: u64) -> u64 {
        let tail = 1 << self.below(12).saturating_sub(6);
        middle / 2 + self.below(middle / 2 + 1) + self.below(middle / 2 + 1) * tail
    }
}

const FUNCTIONS: usize = 40;
const SITES: usize = 3;
const LEAVES: usize = 7;

/// A program of 40 functions, each with three places where it calls and seven where it computes;
/// what it prefers changes every 500 ticks. So a thread is in about 50 of 400 places at a time.
pub(super) struct Program {
    random: Random,
    callees: Vec<[usize; SITES]>,
    preferred: Vec<(usize, usize)>,
    /// Ids in the order of their first use.
    ids: HashMap<(usize, usize, bool), u32>,
    /// Functions on the stack, and the one that runs.
    callers: Vec<usize>,
    function: usize,
    ticks: u64,
    added: Vec<u32>,
}

impl Program {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let callee = |from: usize, random: &mut Random| {
            std::array::from_fn(|_| (from + 1 + random.below(6) as usize).min(FUNCTIONS - 1))
        };
        let callees = (0..FUNCTIONS).map(|from| callee(from, &mut random)).collect();
        Self {
            random,
            callees,
            preferred: vec![(0, 0); FUNCTIONS],
            ids: HashMap::new(),
            callers: Vec::new(),
            function: 0,
            ticks: 0,
            added: Vec::new(),
        }
    }

    fn id(&mut self, key: (usize, usize, bool)) -> u32 {
        let next = self.ids.len() as u32 + 1;
        *self.ids.entry(key).or_insert(next)
    }

    /// Moves to the next stack: how many frames are dropped; the new ones are in `self.added`.
    fn step(&mut self) -> u32 {
        if self.ticks.is_multiple_of(500) {
            for preferred in &mut self.preferred {
                let random = &mut self.random;
                *preferred =
                    (random.below(SITES as u64) as usize, random.below(LEAVES as u64) as usize);
            }
        }
        let first = self.ticks == 0;
        self.ticks += 1;
        let (mut returns, mut calls) = (0, 0);
        if self.random.below(100) < 40 {
            returns = (self.random.below(4) as usize).min(self.callers.len());
            calls = self.random.below(4) as usize;
        }
        if self.callers.len() - returns + calls < 5 {
            calls = 8 - (self.callers.len() - returns);
        }
        for _ in 0..returns {
            self.function = self.callers.pop().unwrap();
        }
        self.added.clear();
        for _ in 0..calls {
            if self.function == FUNCTIONS - 1 {
                break;
            }
            let site = (self.preferred[self.function].0 + self.random.skewed(SITES)) % SITES;
            let id = self.id((self.function, site, false));
            self.added.push(id);
            self.callers.push(self.function);
            self.function = self.callees[self.function][site];
        }
        let leaf = (self.preferred[self.function].1 + self.random.skewed(LEAVES)) % LEAVES;
        let id = self.id((self.function, leaf, true));
        self.added.push(id);
        returns as u32 + u32::from(!first)
    }

    /// The next tick: a few bits of noise in its delay, rarely more.
    pub(super) fn tick(&mut self) -> Owned {
        let dropped = self.step();
        let random = &mut self.random;
        let delay = match random.below(100) {
            0..5 => random.below(100) as i8,
            _ => (random.below(4) + random.below(4)) as i8,
        };
        Owned::new(&Record::Tick { delay, stack: Delta { dropped, added: &self.added } })
    }
}

/// Sampling period of these programs: 4 ms, in stamps of 20 ns.
pub(super) const PERIOD: u64 = 200_000;

/// Ticks of a thread that computes.
pub(super) fn computing(ticks: usize, seed: u64) -> Vec<Owned> {
    let mut program = Program::new(seed);
    (0..ticks).map(|_| program.tick()).collect()
}

/// Records of a thread with iterations of 2 ms: exchanges with neighbours in calls too short to be
/// recorded alone, waits for them, and sums over all ranks.
pub(super) fn talking(records: usize, seed: u64) -> Vec<Owned> {
    let mut program = Program::new(seed);
    let mut all = Vec::new();
    let mut calls = [0u64; 6];
    let mut since = 0;
    program.step();
    let stamp = Stamp::Resync(1 << 45);
    let stack = Delta { dropped: 0, added: &program.added.clone() };
    let (entered, off_cpu) = (None, None);
    all.push(Owned::new(&Record::Sample { stamp, stack, entered, off_cpu, truncated: false }));
    for slot in 0..8 {
        let stack = Delta { dropped: 2, added: &[200 + slot, 210 + slot] };
        all.push(Owned::new(&Record::Slot { slot, stack }));
    }
    for iteration in 0.. {
        if all.len() >= records {
            break;
        }
        for count in &mut calls {
            *count += 4;
        }
        let random = &mut program.random;
        let mut left = random.around(PERIOD / 4);
        for (slot, sync) in [(6, None), (7, Some(SyncId { subgroup: None, index: iteration }))] {
            let (work, duration) = (random.around(PERIOD / 8), random.around(left));
            let (kept, bytes) = (3 + slot % 2, if sync.is_some() { 8 } else { 65_536 });
            since += work + duration;
            let stamp = Stamp::Delta(work + duration);
            all.push(Owned::new(&Record::Exit {
                stamp,
                slot,
                common: kept,
                duration,
                bytes,
                sync,
                off_cpu,
            }));
            left /= 2;
        }
        if since > PERIOD {
            for (slot, calls) in calls.iter_mut().enumerate() {
                let (slot, count) = (slot as u32, std::mem::take(calls));
                let (sum, bytes) =
                    (count * (20 + random.below(8)) + random.around(count * 20), count * 32_768);
                all.push(Owned::new(&Record::Tally { slot, count, sum, bytes }));
            }
            since = 0;
            let dropped = program.step();
            let stack = Delta { dropped, added: &program.added };
            let unit = delay_shift(PERIOD);
            let stamp = Stamp::Delta(program.random.around(PERIOD / 8) >> unit << unit);
            all.push(Owned::new(&Record::Sample {
                stamp,
                stack,
                entered,
                off_cpu,
                truncated: false,
            }));
        }
    }
    all.truncate(records);
    all
}
