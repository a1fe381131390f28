//! The reduction alone, at numbers of ranks that no test can start: the cost of merging two blocks
//! of ranks, level by level of the binary tree, as messages and as memory.
//!
//! The ranks of the lowest levels are all generated, each with its own noise. Above, a block is
//! merged with a copy that has other rank numbers and other nodes: data that grows with ranks
//! grows, only the noise repeats.

use std::time::Instant;

use plimsoll_analysis::canonical::path;
use plimsoll_analysis::clusters::Finished;
use plimsoll_analysis::conclusion::Conclusion;
use plimsoll_analysis::context_order::ordered;
use plimsoll_analysis::mpmd::Groups;
use plimsoll_analysis::pairs::Pairs;
use plimsoll_analysis::rank::Rank;
use plimsoll_analysis::timeline::TimelineTotals;
use plimsoll_analysis::totals::Totals;
use plimsoll_collector::profile::ProcessProfile;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::finalize::lammps;
use crate::generated;
use crate::ranks::{Ranks, moved, moved_pairs, recorded};
use crate::row::Row;
use crate::statistics::median;

/// Number of levels between two rows: rows are for 2^4, 2^8, 2^12, ... ranks.
const LEVELS_OF_A_ROW: u32 = 4;

/// Binary logarithm of the maximum number of ranks that are made for the matrix and the windows.
const MAX_MADE_FOR_VIEWS: u32 = 10;

const MIB: f64 = (1 << 20) as f64;

/// One level of the binary tree: the merges of two blocks there.
#[derive(Default)]
struct Level {
    combine_ms: Vec<f64>,
    /// Time to write and read the message, in milliseconds.
    travel_ms: Vec<f64>,
    message_bytes: usize,
    /// Memory of the first merged block, in bytes; `None` if not measured.
    memory_bytes: Option<usize>,
}

impl Level {
    /// Merges two blocks: the lower ranks receive the higher ones, as in a reduction.
    fn meet<T: Block>(&mut self, lower: T, higher: T) -> T {
        let begin = Instant::now();
        let message = postcard::to_stdvec(&higher).expect("a block can be sent");
        let mut travel_ms = ms(begin);
        drop(higher);
        let begin = Instant::now();
        let higher: T = postcard::from_bytes(&message).expect("a block can be read");
        travel_ms += ms(begin);
        self.message_bytes = self.message_bytes.max(message.len());
        drop(message);
        let begin = Instant::now();
        let both = lower.combine(higher);
        self.combine_ms.push(ms(begin));
        self.travel_ms.push(travel_ms);
        both
    }
}

/// Values of a block of ranks that are added up in a reduction.
trait Block: Clone + Serialize + DeserializeOwned {
    /// Adds the values of the ranks that follow.
    fn combine(self, higher: Self) -> Self;

    /// Returns the values of ranks with numbers higher by `by`.
    fn moved(&self, by: u32) -> Self;
}

impl Block for Totals {
    fn combine(self, higher: Self) -> Self {
        self.combine(higher)
    }

    fn moved(&self, by: u32) -> Self {
        moved(self, by)
    }
}

impl Block for Pairs {
    fn combine(self, higher: Self) -> Self {
        self.combine(higher)
    }

    fn moved(&self, by: u32) -> Self {
        moved_pairs(self, by)
    }
}

/// The made ranks are spread over all rows, so that blocks of other ranks have the same rows.
impl Block for TimelineTotals {
    fn combine(self, higher: Self) -> Self {
        self.combine(higher)
    }

    fn moved(&self, _: u32) -> Self {
        self.clone()
    }
}

fn ms(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

/// Returns the bytes on the heap.
fn heap_bytes() -> usize {
    // SAFETY: no pointers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Returns the bytes that a value has on the heap.
fn memory_bytes<T: Clone>(value: &T) -> usize {
    let before = heap_bytes();
    let copy = value.clone();
    let bytes = heap_bytes().saturating_sub(before);
    drop(copy);
    bytes
}

/// Reduces 2^`levels` ranks, with 2^`made` of them generated, each by its number.
fn reduced<T: Block>(made: u32, levels: u32, mut of_rank: impl FnMut(u32) -> T) -> (Vec<Level>, T) {
    let mut found: Vec<Level> = (0..levels).map(|_| Level::default()).collect();
    // Blocks that wait for their partner, by level.
    let mut waiting: Vec<Option<T>> = (0..=made).map(|_| None).collect();
    let mut meet = |level: u32, lower, higher| {
        let level_of = &mut found[level as usize];
        let both = level_of.meet(lower, higher);
        let top = level + 1;
        let asked = top.is_multiple_of(LEVELS_OF_A_ROW) || top == levels;
        if asked && level_of.memory_bytes.is_none() {
            level_of.memory_bytes = Some(memory_bytes(&both));
        }
        both
    };
    for rank in 0..1 << made {
        let mut block = of_rank(rank);
        let mut level = 0;
        while let Some(lower) = waiting[level as usize].take() {
            block = meet(level, lower, block);
            level += 1;
        }
        waiting[level as usize] = Some(block);
    }
    let mut all = waiting.pop().flatten().expect("all ranks that were made are one block");
    for level in made..levels {
        let others = all.moved(1 << level);
        all = meet(level, all, others);
    }
    (found, all)
}

/// Returns the rows of a reduction; `one_bytes` is the memory of one rank's values.
fn level_rows(subject: &str, found: &mut [Level], one_bytes: usize) -> Vec<Row> {
    let one = one_bytes as f64 / MIB;
    let combine_ms: Vec<f64> =
        found.iter_mut().map(|level| median(&mut level.combine_ms)).collect();
    let travel_ms: Vec<f64> = found.iter_mut().map(|level| median(&mut level.travel_ms)).collect();
    let row = |name: &str, value, unit, baseline| Row::new(name, subject, value, unit, baseline);
    let mut rows = Vec::new();
    for (last, level) in found.iter().enumerate() {
        let Some(memory_bytes) = level.memory_bytes else { continue };
        let of = |what: &str| format!("{what} 2^{} ranks", last + 1);
        let way = |times: &[f64]| times[..=last].iter().sum::<f64>();
        let way_ms = way(&combine_ms) + way(&travel_ms);
        let (message, memory) = (level.message_bytes as f64 / MIB, memory_bytes as f64 / MIB);
        let least = found[0].message_bytes as f64 / MIB;
        rows.extend([
            row(&of("the last merge of"), combine_ms[last], "ms", combine_ms[0]).target(1e3),
            row(&of("writing and reading its message,"), travel_ms[last], "ms", travel_ms[0]),
            row(&of("its message,"), message, "MiB", least),
            row(&of("merges and messages on the way,"), way_ms, "ms", combine_ms[0] + travel_ms[0]),
            row(&of("memory at the root,"), memory, "MiB", one).target(64.0),
        ]);
    }
    rows
}

fn rows(subject: &str, profiles: Vec<ProcessProfile>, made: u32, levels: u32) -> Vec<Row> {
    let ranks = Ranks::new(profiles, 1 << levels);
    let one_bytes = memory_bytes(&ranks.totals(0));
    let (mut found, all) = reduced(made, levels, |rank| ranks.totals(rank));
    assert_eq!(all.job.ranks.len(), 1 << levels, "each rank counts once");
    let mut rows = level_rows(subject, &mut found, one_bytes);
    let one = one_bytes as f64 / MIB;
    let row = |name: &str, value, unit, baseline| Row::new(name, subject, value, unit, baseline);
    for (what, bytes) in [
        ("clocks", memory_bytes(&all.clocks)),
        ("clusters", memory_bytes(&all.clusters)),
        ("nodes of the job", memory_bytes(&all.job)),
        ("instances", memory_bytes(&all.sums.instances)),
    ] {
        let name = format!("of it {what}, 2^{levels} ranks");
        rows.push(row(&name, bytes as f64 / MIB, "MiB", one));
    }
    let begin = Instant::now();
    let mut conclusion = Conclusion::new(ordered(all), ranks.agreed(), ranks.reference());
    conclusion.find_losses(Groups::new(), None);
    let clusters = conclusion.take_clusters();
    let number = clusters.clusters().len();
    let name = format!("conclusions from 2^{levels} ranks, in {number} clusters");
    rows.push(row(&name, ms(begin), "ms", 0.0));
    let found = (conclusion, &clusters);
    rows.extend(view_rows(subject, &ranks, found, made.min(MAX_MADE_FOR_VIEWS), levels));
    rows
}

/// Measures the reductions that follow the losses: messages by pair of ranks, with both ends of
/// exemplary messages, and the run by windows and cells.
fn view_rows(
    subject: &str,
    ranks: &Ranks,
    (mut conclusion, clusters): (Conclusion, &Finished),
    made: u32,
    levels: u32,
) -> Vec<Row> {
    let mut wanted = conclusion.pairs_wanted(clusters);
    if wanted.losses.is_empty() {
        // Ends of messages are reduced for a loss only.
        let tree = &ranks.talking_input(0, 1 << levels).profile.tree;
        wanted.losses.push(vec![path(tree, 0)]);
    }
    let pairs_of = |rank: u32| {
        let input = ranks.talking_input(rank, 1 << levels);
        Pairs::of(&[Rank::new(&input, ranks.agreed())], &wanted)
    };
    let one_bytes = memory_bytes(&pairs_of(0));
    let (mut found, pairs) = reduced(made, levels, pairs_of);
    let mut rows = level_rows(&format!("{subject}, matrix"), &mut found, one_bytes);
    let begin = Instant::now();
    conclusion.follow_pairs(pairs);
    let name = format!("following the waiting of 2^{levels} ranks");
    rows.push(Row::new(&name, &format!("{subject}, matrix"), ms(begin), "ms", 0.0).target(1e3));

    let (plan, mut tree) = (conclusion.plan(true), conclusion.contexts());
    let mut over_time = |rank: u32| {
        let input = ranks.input(rank << (levels - made));
        TimelineTotals::of_rank(&Rank::new(&input, ranks.agreed()), &mut tree, &plan)
    };
    let one_bytes = memory_bytes(&over_time(0));
    let (mut found, _) = reduced(made, levels, over_time);
    rows.extend(level_rows(&format!("{subject}, windows"), &mut found, one_bytes));
    rows
}

/// Measures ranks of synthetic profiles. The baselines are the costs of two single ranks.
pub fn generated_rows(made: u32, levels: u32) -> Vec<Row> {
    rows("made ranks", (0..generated::KINDS).map(generated::profile).collect(), made, levels)
}

/// Measures ranks with the profiles of a real application.
pub fn lammps_rows(steps: u32, made: u32, levels: u32) -> Vec<Row> {
    let job = lammps(8, steps);
    let profiles = recorded(&job).1.into_iter().map(|input| input.profile).collect();
    rows("lammps droplet", profiles, made, levels)
}
