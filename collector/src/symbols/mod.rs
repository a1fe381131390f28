//! Symbol tables of modules, and the names in them as the user wrote them.

mod demangle;
mod table;

pub(crate) use demangle::demangle;
pub(crate) use table::{Table, vdso};
