//! Tables for the ids in a process's records.

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleInfo {
    /// Runtime address minus address in the file.
    pub(crate) bias: u64,
    /// GNU build-id, empty if it has none.
    pub(crate) build_id: Vec<u8>,
    /// Path; not UTF-8 by promise.
    pub(crate) path: Vec<u8>,
}

/// A function of a script that an interpreter executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptInfo {
    /// Name, with the classes and functions around it.
    pub(crate) name: String,
    /// File as the interpreter knows it.
    pub(crate) file: String,
    /// First line.
    pub(crate) line: u32,
}

/// Interned addresses and modules of a process: its segment, while it runs.
pub(crate) trait Tables {
    /// Returns value, module number (index plus one) and flags of an interned address; `None` for
    /// an id that was never announced.
    fn address(&self, id: u32) -> Option<(u64, u32, u32)>;

    /// Returns the number of entries of the module table that may be in use.
    fn modules(&self) -> usize;

    /// Returns an entry of the module table.
    fn module(&self, index: usize) -> Option<ModuleInfo>;

    /// Returns a function of a script; `None` if it is unknown here. Spools have the names of
    /// addresses instead.
    fn script_function(&self, _index: usize) -> Option<ScriptInfo> {
        None
    }
}
