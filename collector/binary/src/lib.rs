//! Functions, loops, inlined calls and source lines of ELF modules.
//!
//! [`Structures`] is the entry point: [`Structures::module`] registers a module by path and
//! build-id, and [`Structures::place`] returns the [`SourcePosition`] of an [`Address`]: its
//! [`Function`], the [steps](Step) inwards through loops and inlined calls, and the source line.
//! Structure is recovered from machine code and debug information, one function at a time, on the
//! first lookup of one of its addresses. A [`Function`] answers which loop two addresses have in
//! common, and which address can follow which without a back edge (ICS18, Algorithm 1).
//!
//! ```text
//! binary (headers, frames) -> explore (parts, switches, values) -> graph -> loops -> function
//! debug_file -> lines -> place                                               order /
//!                                                                  module <-> cache (recovered)
//! ```
//!
//! All addresses are addresses in the module's file: the runtime address less the load bias.
//!
//! # Design constraints
//! - No input makes the crate panic or exceed its bounds: files may be damaged, truncated or
//!   hostile. Code and data that cannot be decoded are reported as unknown ([`Absent`],
//!   [`Function::is_complete`]).
//! - Files are read, never mapped: a file that shrinks would raise SIGBUS in the application.
//! - Debug information is read unit by unit and dropped by [`Structures::release`]: its whole would
//!   take more memory than the application grants.
//! - A name is never guessed: an address that no symbol covers has none. A wrong name in a report
//!   is worse than an address.
//! - Time is bounded by a deadline ([`Limit`]), since names are looked up while MPI_Finalize waits;
//!   functions that were not looked up in time are counted, and their symbols stand for them.

#![cfg_attr(not(test), forbid(unsafe_code))]

mod binary;
mod bytes;
mod cache;
mod code;
mod code_order;
mod debug_file;
mod explore;
mod function;
mod given_up;
mod graph;
mod headers;
mod limit;
mod lines;
mod module;
mod names;
mod natural_loops;
mod nesting;
mod parts;
mod recovered;
mod register_values;
mod switches;
mod symbols;
#[cfg(test)]
mod tests;
mod units;
mod unwind_tables;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use cache::default_folder as default_cache_folder;
pub use code::{Code, Extent, LandingPad};
pub use debug_file::SYSTEM_DEBUG_FOLDER;
pub use explore::MAX_INSTRUCTIONS;
pub use function::{Absent, Child, Function, Inlined, Lines, Location, Loop, LoopId, LoopSource};
pub use given_up::GivenUp;
pub use graph::{Block, Graph};
pub use limit::Limit;
pub use nesting::Step;
pub use parts::MAX_CODE_BYTES;
pub use recovered::Recovered;

use plimsoll_sys::memory_kind::{MemoryKind, count_as, request_trim};

use plimsoll_sys::posix_clocks::thread_cpu_ns;

use lines::Strings;
use module::Module;

/// Time beyond the deadline for lookups in data read before it. Each lookup takes microseconds, so
/// the grace time serves nodes of many processes, in which each has seen other addresses of one
/// function.
const GRACE: Duration = Duration::from_millis(50);

/// Index of a registered module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(usize);

/// An address in a module's file, by its origin on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Program counter at which a thread was interrupted.
    Leaf(u64),
    /// Return address. It may lie in the next line or the next function, so that it is looked up at
    /// its call, which ends one byte before.
    Return(u64),
}

impl Address {
    /// Returns an address within the interrupted instruction or the call.
    pub fn instruction(self) -> u64 {
        match self {
            Self::Leaf(address) => address,
            Self::Return(address) => address.wrapping_sub(1),
        }
    }
}

/// Position of an address in the source.
#[derive(Clone, Debug)]
pub struct SourcePosition {
    /// Function that contains the address.
    pub function: Result<Arc<Function>, Absent>,
    /// Loops and inlined calls from the function inwards to the address, in their order of nesting.
    pub steps: Vec<Step>,
    /// Line in the innermost function, inlined ones included; `None` if unknown.
    pub location: Option<Location>,
}

impl SourcePosition {
    /// Returns the innermost loop that holds the address.
    pub fn innermost_loop(&self) -> Option<LoopId> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Loop(id) => Some(*id),
            Step::Inlined(_) => None,
        })
    }
}

/// Name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Demangled name; `None` if there is no symbol.
    pub name: Option<Arc<str>>,
    /// First address of the function, or of a part that the compiler split off.
    pub entry: u64,
}

/// Folders of debug files and of the cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders of separate debug files, such as [`SYSTEM_DEBUG_FOLDER`].
    pub debug_folders: Vec<PathBuf>,
    /// Folder of results for later jobs, see [`default_cache_folder`]; `None`: no cache.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { debug_folders: vec![PathBuf::from(SYSTEM_DEBUG_FOLDER)], cache: None }
    }
}

/// A stretch of a function's code, in addresses of the module's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionPart {
    /// The code.
    pub range: std::ops::Range<u64>,
    /// First address of the function.
    pub entry: u64,
}

/// Structure of all modules of a node, as far as it was looked up.
#[derive(Default)]
pub struct Structures {
    options: Options,
    modules: Vec<Module>,
    ids: HashMap<(PathBuf, Vec<u8>), ModuleId>,
    strings: Strings,
    cpu_ns: u64,
    limit: Limit,
    /// Functions that stay without structure in all processes, by entry address.
    given_up: HashSet<(ModuleId, u64)>,
}

impl Structures {
    /// Creates an empty instance without a deadline.
    pub fn new(options: Options) -> Self {
        Self::with_limit(options, Limit::default())
    }

    /// Creates an empty instance with a deadline: lookups that do not complete by it return
    /// [`Absent::Late`] and may be repeated.
    pub fn with_limit(options: Options, limit: Limit) -> Self {
        Self { options, limit, ..Self::default() }
    }

    /// Sets the time beyond the deadline that lookups of functions may take from now on.
    pub fn set_grace(&mut self, grace: Duration) {
        self.limit.set_grace(grace);
    }

    /// Registers a module by its path and its build-id, which is empty if unknown. The file is not
    /// opened before the first lookup; `[vdso]` is the kernel's code in this process.
    pub fn module(&mut self, path: PathBuf, build_id: Vec<u8>) -> ModuleId {
        let Self { modules, limit, .. } = self;
        count_as(MemoryKind::Structure, || {
            *self.ids.entry((path, build_id)).or_insert_with_key(|(path, build_id)| {
                modules.push(Module::new(path.clone(), build_id.clone(), limit.clone()));
                ModuleId(modules.len() - 1)
            })
        })
    }

    /// Adds a function that another process has recovered, unless one is known at its entry.
    /// Returns whether it was sound.
    pub fn give(&mut self, module: ModuleId, name: Option<&str>, code: Recovered) -> bool {
        let name = name.map(|name| self.strings.intern(name));
        let function = code.restore(name).map(Arc::new);
        let given = function.map(|function| self.modules[module.0].give(function));
        given.is_some()
    }

    /// Returns the function that holds an address. The source positions of its loops are not looked
    /// up: [`Structures::place`] does that, and can take a hundred times as long.
    pub fn function(
        &mut self,
        module: ModuleId,
        address: Address,
    ) -> Result<Arc<Function>, Absent> {
        let at = address.instruction();
        if let Some(known) = self.modules[module.0].known(at) {
            return Ok(known); // sooner than a clock is read
        }
        self.ask(module, |module, options, strings| module.function(at, options, strings))
    }

    /// Returns the symbol of the function that holds an address, for callers that need no
    /// structure: hardly any code is decoded, and no debug information is read.
    pub fn symbol(&mut self, module: ModuleId, address: Address) -> Result<Symbol, Absent> {
        let at = address.instruction();
        if let Some(known) = self.modules[module.0].known_symbol(at) {
            return Ok(known);
        }
        self.ask(module, |module, options, strings| module.symbol(at, options, strings))
    }

    /// Returns the code of the functions with names that `is_wanted` accepts, split-off parts
    /// included, in the order of their addresses. Names are those of [`Structures::symbol`].
    pub fn functions_named(
        &mut self,
        module: ModuleId,
        is_wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Vec<FunctionPart> {
        let Self { modules, options, .. } = self;
        modules[module.0].functions_named(options, is_wanted)
    }

    /// Returns the offset of the debug information's unit that describes an address; `None` if the
    /// unit is unknown, or the lines of the address are known already. Addresses of one unit are
    /// best looked up in sequence: the unit is read as a whole.
    pub fn unit(&mut self, module: ModuleId, address: Address) -> Option<u64> {
        let at = address.instruction();
        self.ask(module, |module, options, strings| module.unit(at, options, strings))
    }

    /// Returns the position of an address in the source. Past the deadline all of it is absent,
    /// unless the function and its unit have been read before: a function is reported for all of
    /// its addresses or for none.
    pub fn place(&mut self, module: ModuleId, address: Address) -> SourcePosition {
        let at = address.instruction();
        let late =
            || SourcePosition { function: Err(Absent::Late), steps: Vec::new(), location: None };
        let limit = self.limit.clone();
        self.ask(module, |module, options, strings| {
            if module.is_at_hand(at) {
                limit.set_grace(GRACE);
            } else if limit.is_over() {
                return late();
            }
            let place = module.place(at, options, strings);
            limit.set_grace(Duration::ZERO);
            place.unwrap_or_else(late)
        })
    }
}

impl Module {
    /// Returns the position of an address in the source; `None` if the deadline passed first.
    fn place(
        &mut self,
        at: u64,
        options: &Options,
        strings: &mut Strings,
    ) -> Option<SourcePosition> {
        let function = self.function(at, options, strings);
        if let Ok(function) = &function {
            self.locate(function, options, strings)?;
        }
        let lines = self.lines(at, options, strings)?;
        if function.as_ref().err() == Some(&Absent::Late) {
            return None;
        }
        let steps = match &function {
            Ok(function) => nesting::steps(function, at, &lines),
            Err(_) => lines.inlined.iter().cloned().map(Step::Inlined).collect(),
        };
        Some(SourcePosition { function, steps, location: lines.location.clone() })
    }
}

impl Structures {
    fn ask<T>(
        &mut self,
        module: ModuleId,
        what: impl FnOnce(&mut Module, &Options, &mut Strings) -> T,
    ) -> T {
        let begin = thread_cpu_ns();
        let answer = count_as(MemoryKind::Structure, || {
            what(&mut self.modules[module.0], &self.options, &mut self.strings)
        });
        self.cpu_ns += thread_cpu_ns().saturating_sub(begin);
        answer
    }

    /// Returns the CPU time of all lookups so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Writes new results to the on-disk cache, for each module with a build-id; returns the number
    /// of modules written. A failed write only means that the next job has less in the cache.
    pub fn save(&mut self) -> usize {
        count_as(MemoryKind::Structure, || self.save_modules())
    }

    fn save_modules(&mut self) -> usize {
        let options = &self.options;
        let saved = self.modules.iter_mut().filter_map(|module| module.save(options).then_some(()));
        let saved = saved.count();
        if let Some(folder) = options.cache.as_ref().filter(|_| saved > 0) {
            cache::tidy(folder);
        }
        saved
    }

    /// Returns whether there are results that the on-disk cache lacks.
    pub fn has_news(&self) -> bool {
        self.modules.iter().any(Module::has_news)
    }

    /// Returns whether any file is open.
    pub fn is_open(&self) -> bool {
        self.modules.iter().any(Module::is_open)
    }

    /// Closes all files and frees the debug information. Recovered functions stay; later lookups
    /// reopen the files.
    pub fn release(&mut self) {
        let Self { modules, strings, .. } = self;
        count_as(MemoryKind::Structure, || {
            modules.iter_mut().for_each(|module| module.release(strings));
        });
        request_trim();
    }

    /// Drops all modules, once no address will be looked up any more. The CPU time spent stays
    /// counted.
    pub fn forget(&mut self) {
        self.modules = Vec::new();
        self.ids = HashMap::new();
        self.strings = Strings::default();
        self.given_up = HashSet::new();
    }

    /// Returns the approximate memory in use, in bytes, without debug information.
    pub fn bytes(&self) -> u64 {
        let modules: usize = self.modules.iter().map(Module::bytes).sum();
        (modules + self.strings.bytes()) as u64
    }
}
