//! Structure against what others say of the same code.

mod sweep;
