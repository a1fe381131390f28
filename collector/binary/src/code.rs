//! What the recovery of a function's structure needs to know of the module around it.

use std::ops::Range;

/// A stretch of code that belongs together: a function, or a part that was split off from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its addresses.
    pub range: Range<u64>,
    /// Whether it is no function of its own but a part of one, which jumps to it (`.cold`).
    pub is_part: bool,
}

/// Calls whose exceptions are caught or cleaned up after at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingPad {
    /// Addresses of the calls.
    pub calls: Range<u64>,
    /// Where the unwinder lands.
    pub pad: u64,
}

/// A module, as the search for a function's structure sees it. Addresses are those in the file.
pub trait Code {
    /// Fills `into` with the bytes at an address; false if the file does not have them all.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// The function, or part of one, that holds an address.
    fn extent(&self, address: u64) -> Option<Extent>;

    /// Whether the function at an address returns. True where that is unknown.
    fn returns(&self, function: u64) -> bool;

    /// Whether the function returns whose address the loader puts at `slot`. True where that is unknown.
    fn slot_returns(&self, slot: u64) -> bool;

    /// Where exceptions of a stretch of code land.
    fn landing_pads(&self, within: &Range<u64>) -> Vec<LandingPad>;
}
