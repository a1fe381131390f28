//! Plimsoll's collecting side: the rings of all threads of a node in, temporal context trees out.

pub mod profile;
