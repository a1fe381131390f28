//! Comparisons of structure with other tools' results for the same code.

mod addr2line;
mod cache;
pub(crate) mod compiled;
mod corpus;
mod flow;
mod laws;
mod names;
mod objdump;
mod shapes;
mod sweep;
