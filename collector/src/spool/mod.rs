//! The spool: what the collector of one node sees, in a form that takes few bytes.

pub mod columns;
mod error;
mod frame;
mod numbers;
#[cfg(test)]
mod tests;

pub use error::PayloadError;
pub use frame::Payload;
