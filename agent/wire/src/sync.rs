//! Synchronisations of ranks, as records name them.

/// Ranks that synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Which ranks; `None`: all of them.
    pub part: Option<Part>,
    /// How many synchronisations of these ranks came before: the same on each of them.
    pub index: u64,
}

/// Some of the ranks: the members of a communicator that is not the world's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// What its members call it: a hash of their ranks.
    pub name: u32,
    /// How many they are: one at least.
    pub ranks: u32,
}

/// The ranks that a call has synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All of them.
    All,
    /// All of them, in a collective that was started when it was its turn to get this index.
    AllSince(u64),
    /// Some, and how many synchronisations of theirs came before.
    Part(Part, u64),
}

/// Number of groups of ranks whose synchronisations a process follows; further groups are left out.
pub const MAX_PARTS: usize = 1024;

/// Number of threads of a process that may live at the same time with their course followed.
pub const MAX_COURSES: usize = 64;

/// What is not followed, as bits.
pub mod unfollowed {
    /// Synchronisations of further parts of the ranks: there are too many.
    pub const PARTS: u32 = 1;
    /// Those by other threads than the one that called MPI_Init.
    pub const OTHER_THREADS: u32 = 2;
    /// What further threads did: too many live at the same time.
    pub const COURSES: u32 = 4;
}

/// The level of a synchronisation: level l holds one in 2^l, spread by a hash, so that no rhythm of
/// the program decides which are kept.
pub fn level(index: u64) -> u32 {
    let mut hash = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).trailing_zeros()
}

/// So many synchronisations of a part are followed one by one; of as many more, then of each number twice
/// as large, so many again.
const FOLLOWED_PER_BLOCK: u64 = 4096;

/// The least level of the synchronisations of a part that are followed where this one is: solvers
/// synchronise rows and columns of ranks a million times, and a record of each would cost more than it
/// says. The same on all members, since it is by the index alone.
pub fn least_level(index: u64) -> u32 {
    (index / FOLLOWED_PER_BLOCK + 1).ilog2()
}

/// Whether a synchronisation of a part is followed, so that all of its members can be compared.
pub fn is_followed(index: u64) -> bool {
    level(index) >= least_level(index)
}

/// Whether it is recorded: it is followed, or what is followed begins after it.
pub fn is_recorded(index: u64) -> bool {
    is_followed(index) || is_followed(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_followed_one_by_one_and_of_the_rest_ever_fewer() {
        assert!((0..FOLLOWED_PER_BLOCK).all(is_followed));
        let followed = |from: u64, to: u64| (from..to).filter(|index| is_followed(*index)).count();
        for octave in 1..8 {
            let begin = FOLLOWED_PER_BLOCK * ((1 << octave) - 1);
            let found = followed(begin, begin + (FOLLOWED_PER_BLOCK << octave));
            assert!(
                found.abs_diff(FOLLOWED_PER_BLOCK as usize) < FOLLOWED_PER_BLOCK as usize / 10,
                "{octave}: {found}"
            );
        }
    }

    #[test]
    fn what_is_followed_begins_at_a_record() {
        let late = 1_000_000..1_100_000;
        assert!(
            late.clone().filter(|index| is_followed(*index)).all(|index| is_recorded(index - 1))
        );
        assert!(late.filter(|index| is_recorded(*index)).count() < 2_000);
    }
}
