//! Teams of OpenMP threads: bounds of what a thread records of its parallel regions.

/// Maximum number of thread numbers that a region tells apart. The last one also stands for all
/// higher numbers.
pub const MAX_SHARES: usize = 64;
