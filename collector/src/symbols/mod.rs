//! Symbol tables of modules, and the names in them as the user wrote them.

mod demangle;
mod source;
mod table;

pub(crate) use demangle::demangle;
pub(crate) use source::Source;
pub(crate) use table::{Names, Table};
