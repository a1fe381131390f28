//! Synchronisations (collectives that release all their ranks together), as records name them.

/// Identity of a synchronisation: its ranks and its index among theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncId {
    /// Subgroup of ranks that synchronised; `None`: all ranks of the job.
    pub subgroup: Option<Subgroup>,
    /// Number of earlier synchronisations of these ranks. All of the ranks agree on the number.
    pub index: u64,
}

/// Subgroup of ranks: the members of a communicator other than the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subgroup {
    /// Name that all members use: a hash of their ranks.
    pub name: u32,
    /// Number of members, at least 1.
    pub ranks: u32,
}

/// Ranks that a wrapped call has synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// All ranks; the index is assigned when the call is recorded.
    All,
    /// All ranks, in a collective that took this index when it was started.
    AllSince(u64),
    /// Members of a subgroup, and the number of their earlier synchronisations.
    Subgroup(Subgroup, u64),
}

/// Maximum number of subgroups per process with synchronisations that are followed; those of
/// further subgroups are left out.
pub const MAX_SUBGROUPS: usize = 1024;

/// Maximum number of simultaneously live threads of a process with a temporal context tree.
pub const MAX_TEMPORAL_TREES: usize = 64;

/// Bits for what a process does not follow.
pub mod unfollowed {
    /// Synchronisations of further subgroups, beyond [`MAX_SUBGROUPS`](super::MAX_SUBGROUPS).
    pub const SUBGROUPS: u32 = 1;
    /// Synchronisations by threads other than the one that communicates.
    pub const OTHER_THREADS: u32 = 2;
    /// Temporal context trees of further threads, beyond
    /// [`MAX_TEMPORAL_TREES`](super::MAX_TEMPORAL_TREES) live at the same time.
    pub const TEMPORAL_TREES: u32 = 4;
    /// Returns of functions that a rule declares to synchronise, because return addresses must not
    /// be replaced.
    pub const DECLARED: u32 = 8;
}

/// Returns the level of a synchronisation. A fraction 1/2^l of all indices has level l or higher,
/// chosen by a hash, so that no periodicity of the program decides which of them are kept.
pub fn level(index: u64) -> u32 {
    let mut hash = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).trailing_zeros()
}

/// Number of synchronisations of a subgroup that are followed per block. The first 4096 are all
/// followed; each later block is twice as long as the one before and contributes about 4096 more.
const FOLLOWED_PER_BLOCK: u64 = 4096;

/// Returns the minimum [`level`] at which a subgroup's synchronisation with this index is followed.
/// Solvers synchronise rows and columns of ranks a million times, and a record of each would cost
/// more than it is worth. All members agree, since the level depends on the index alone.
pub fn least_level(index: u64) -> u32 {
    (index / FOLLOWED_PER_BLOCK + 1).ilog2()
}

/// Returns whether a subgroup's synchronisation is followed. All members follow the same ones, so
/// that they can be compared.
pub fn is_followed(index: u64) -> bool {
    level(index) >= least_level(index)
}

/// Returns whether a subgroup's synchronisation is recorded: if it is followed itself, or if the
/// next one is, because the interval of the next one begins here.
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
