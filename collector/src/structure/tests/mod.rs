//! Structure against what others say of the same code.

mod addr2line;
mod compiled;
mod flow;
mod shapes;
mod sweep;
