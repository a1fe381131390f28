//! The view of a module that the recovery of a function's structure needs.

use std::ops::Range;

/// Contiguous code of a function, or of a part that the compiler split off from a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Addresses in the module's file.
    pub range: Range<u64>,
    /// Whether the code is a split-off part (`.cold`), which its function jumps to, and not a
    /// function.
    pub is_part: bool,
}

/// Calls with a common landing pad, which catches their exceptions or cleans up after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingPad {
    /// Addresses of the calls.
    pub calls: Range<u64>,
    /// Address at which the unwinder resumes.
    pub pad: u64,
}

/// A module, as the recovery of a function's structure sees it. Addresses are those in the file.
pub trait Code {
    /// Fills `into` with the bytes at an address; returns false if the file does not have all of
    /// them.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Returns the extent of the function, or the split-off part, that holds an address.
    fn extent(&self, address: u64) -> Option<Extent>;

    /// Returns whether the function at an address returns; true if that is unknown.
    fn returns(&self, function: u64) -> bool;

    /// Returns whether the function returns that the loader binds to `slot`; true if that is
    /// unknown.
    fn slot_returns(&self, slot: u64) -> bool;

    /// Returns the landing pads of the calls within a range of code.
    fn landing_pads(&self, within: &Range<u64>) -> Vec<LandingPad>;
}
