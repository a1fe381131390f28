//! Source structure: loops, inlined calls and lines of the functions that occur in samples, recovered
//! from their machine code and from debug information, one function at a time.
//!
//! ```text
//! binary (headers, frames, noreturn) -> explore (parts, switches, values) -> graph -> loops -> function
//! debug_file -> lines -> place                                               order /
//!                                                                  module <-> cache (recovered)
//! ```
//!
//! [`Structures`] holds what is known of all modules of a node. For each address it tells the function
//! and the [steps](Step) inwards: loops and inlined calls as they lie within each other. A [`Function`]
//! tells which loop two addresses have in common, and what can follow what without going around a loop
//! once more (ICS18, Algorithm 1).
//!
//! # Design constraints
//! - Any bytes are survived: what is read is bounded, what is not understood is said to be unknown
//!   ([`Absent`], [`Function::is_complete`]).
//! - Nothing is mapped: a file that shrinks must not raise a signal in the application.
//! - Debug information is read as far as it is asked for, and given back by [`Structures::release`].
//! - A name is never guessed: where no symbol holds an address, there is none.
//!
//! All addresses are those in the module's file: what is seen in memory less the load bias.

mod binary;
mod bytes;
mod cache;
mod code;
mod debug_file;
mod explore;
mod frames;
mod function;
mod graph;
mod headers;
mod lines;
mod loops;
mod module;
mod names;
mod noreturn;
mod order;
mod parts;
mod place;
mod recovered;
mod switches;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use cache::default_folder as default_cache_folder;
pub use code::{Code, Extent, LandingPad};
pub use debug_file::SYSTEM_DEBUG_FOLDER;
pub use explore::MOST_INSTRUCTIONS;
pub use function::{Absent, Child, Function, Inlined, Lines, Location, Loop, LoopId, LoopSource};
pub use graph::{Block, Graph};
pub use parts::MOST_CODE_BYTES;
pub use place::Step;
pub use recovered::Recovered;

use crate::clock::thread_cpu_ns;

use lines::Strings;
use module::Module;

/// A module whose functions are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId(usize);

/// An address in a module's file, by what it was on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Where a thread was interrupted.
    Leaf(u64),
    /// Where a call returns to: it may belong to the next function, or to the next line; its call, which
    /// ends one byte before, decides.
    Return(u64),
}

impl Address {
    /// An address within the instruction that is meant.
    pub fn instruction(self) -> u64 {
        match self {
            Self::Leaf(address) => address,
            Self::Return(address) => address.wrapping_sub(1),
        }
    }
}

/// Where an address stands in the source.
#[derive(Clone, Debug)]
pub struct Place {
    /// The function that holds it.
    pub function: Result<Arc<Function>, Absent>,
    /// Loops and inlined calls from the function inwards to the address, as they lie within each other.
    pub steps: Vec<Step>,
    /// The line in the innermost function, inlined ones included.
    pub location: Option<Location>,
}

impl Place {
    /// The innermost loop that holds the address.
    pub fn innermost_loop(&self) -> Option<LoopId> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Loop(id) => Some(*id),
            Step::Inlined(_) => None,
        })
    }
}

/// What a function is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name as the user knows it; `None` if there is no symbol.
    pub name: Option<Arc<str>>,
    /// Where it begins, or the part of it that was split off.
    pub entry: u64,
}

/// Where things are looked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders of debug files, as [`SYSTEM_DEBUG_FOLDER`] is one.
    pub debug_folders: Vec<PathBuf>,
    /// Where results are kept for other jobs; see [`default_cache_folder`]. `None` keeps nothing.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { debug_folders: vec![PathBuf::from(SYSTEM_DEBUG_FOLDER)], cache: None }
    }
}

/// The structure of all modules of a node, as far as it was asked for.
#[derive(Default)]
pub struct Structures {
    options: Options,
    modules: Vec<Module>,
    ids: HashMap<(PathBuf, Vec<u8>), ModuleId>,
    strings: Strings,
    cpu_ns: u64,
}

impl Structures {
    /// Nothing known yet.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// A module by its path and its build-id, which is empty where that is unknown. Its file is not
    /// touched before something is asked of it; `[vdso]` is the kernel's code in this process.
    pub fn module(&mut self, path: PathBuf, build_id: Vec<u8>) -> ModuleId {
        let modules = &mut self.modules;
        *self.ids.entry((path, build_id)).or_insert_with_key(|(path, build_id)| {
            modules.push(Module::new(path.clone(), build_id.clone()));
            ModuleId(modules.len() - 1)
        })
    }

    /// Takes a function from who has its code; what was known of it before stays. Says whether it was sound.
    pub fn give(&mut self, module: ModuleId, name: Option<&str>, code: Recovered) -> bool {
        let name = name.map(|name| self.strings.intern(name));
        let function = code.restore(name).map(Arc::new);
        let given = function.map(|function| self.modules[module.0].give(function));
        given.is_some()
    }

    /// The function that holds an address. Where its loops stand in the source is not looked up:
    /// [`Structures::place`] does, and that can take a hundred times as long.
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

    /// What the function is called that holds an address, for those who ask no more: hardly any code is
    /// decoded, and no debug information is read.
    pub fn symbol(&mut self, module: ModuleId, address: Address) -> Result<Symbol, Absent> {
        let at = address.instruction();
        if let Some(known) = self.modules[module.0].known_symbol(at) {
            return Ok(known);
        }
        self.ask(module, |module, options, strings| module.symbol(at, options, strings))
    }

    /// Where an address stands in the source.
    pub fn place(&mut self, module: ModuleId, address: Address) -> Place {
        let at = address.instruction();
        self.ask(module, |module, options, strings| {
            let function = module.function(at, options, strings);
            if let Ok(function) = &function {
                module.locate(function, options, strings);
            }
            let lines = module.lines(at, options, strings);
            let steps = match &function {
                Ok(function) => place::steps(function, at, &lines),
                Err(_) => lines.inlined.iter().cloned().map(Step::Inlined).collect(),
            };
            Place { function, steps, location: lines.location.clone() }
        })
    }

    fn ask<T>(
        &mut self,
        module: ModuleId,
        what: impl FnOnce(&mut Module, &Options, &mut Strings) -> T,
    ) -> T {
        let begin = thread_cpu_ns();
        let answer = what(&mut self.modules[module.0], &self.options, &mut self.strings);
        self.cpu_ns += thread_cpu_ns().saturating_sub(begin);
        answer
    }

    /// CPU time that questions have taken so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Keeps on disk what was found out since the last time, for each module that has a build-id; tells of
    /// how many. Where that fails there is only less known the next time.
    pub fn save(&mut self) -> usize {
        let options = &self.options;
        let saved = self.modules.iter_mut().filter_map(|module| module.save(options).then_some(()));
        let saved = saved.count();
        if let Some(folder) = options.cache.as_ref().filter(|_| saved > 0) {
            cache::tidy(folder);
        }
        saved
    }

    /// Whether anything was found out since the last time that could be kept.
    pub fn has_news(&self) -> bool {
        self.modules.iter().any(Module::has_news)
    }

    /// Whether files are open.
    pub fn is_open(&self) -> bool {
        self.modules.iter().any(Module::is_open)
    }

    /// Closes all files and gives back the debug information that was read. What is known of functions
    /// stays; what is asked anew opens files again.
    pub fn release(&mut self) {
        self.modules.iter_mut().for_each(Module::release);
    }

    /// Memory in use, roughly, without debug information.
    pub fn bytes(&self) -> u64 {
        let modules: usize = self.modules.iter().map(Module::bytes).sum();
        (modules + self.strings.bytes()) as u64
    }
}
