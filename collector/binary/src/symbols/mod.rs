//! Symbol tables of modules, and the names in them as the user wrote them.

mod candidates;
mod demangle;
mod main_function;
mod noreturn;
mod source;
mod symbol_table;

pub(crate) use candidates::Names;
pub(crate) use demangle::demangle;
pub(crate) use noreturn::never_returns;
pub(crate) use source::Source;
pub(crate) use symbol_table::{Found, PART, Table};
