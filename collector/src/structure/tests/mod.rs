//! Structure against what others say of the same code.

mod addr2line;
mod cache;
mod compiled;
mod flow;
mod objdump;
mod shapes;
mod sweep;
