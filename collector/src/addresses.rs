//! The addresses of one process: what each id stands for, and the names of those that were seen.
//!
//! Kinds are needed at once, when a stack arrives; names are looked up between, so that neither
//! the drain nor the end of the run waits for symbol tables.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use plimsoll_agent::calls::{CallId, FIRST_CODE_ADDRESS, Provider, call};
use plimsoll_agent::segment::{ADDRESS_IS_LEAF, VDSO};

use serde::{Deserialize, Serialize};

use crate::profile::{Frame, FrameKind};
use crate::symbols::{ModuleKey, Symbols};
use crate::tables::Tables;
use crate::tree::IdMap;

/// What an address id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code.
    Code,
    /// A wrapped call.
    Call,
}

/// Where a frame stands at the outer end of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A program's entry into libc: what is outside it is `_start`, whatever its name.
    ProgramStart,
    /// Code that starts threads.
    ThreadStart,
    /// Other code of the C library, the loader or this library, which is no part of the program
    /// where it is outermost.
    Outside,
    /// `main`.
    Main,
    /// Anything else.
    Inside,
}

/// A frame with its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Index into [`Addresses::frames`].
    pub(crate) frame: u32,
    /// The address in its module's file; 0 for wrapped calls.
    pub(crate) offset: u64,
    /// Its role.
    pub(crate) role: Role,
}

#[derive(Clone, Copy)]
struct Raw {
    value: u64,
    module: u32,
    leaf: bool,
}

struct Module {
    name: String,
    bias: u64,
    key: ModuleKey,
}

/// All addresses of a process that were seen.
#[derive(Default)]
pub(crate) struct Addresses {
    seen: IdMap<u32, Raw>,
    waiting: Vec<u32>,
    named: IdMap<u32, Named>,
    /// Their ids, in the order in which they were named.
    order: Vec<u32>,
    frames: Vec<Frame>,
    frame_ids: std::collections::HashMap<Frame, u32>,
    modules: IdMap<u32, Option<Module>>,
}

impl Addresses {
    /// What `id` stands for; `None` if it was never announced or is a call that this build does
    /// not know.
    pub(crate) fn kind(&mut self, id: u32, tables: &dyn Tables) -> Option<Kind> {
        let raw = match self.seen.get(&id) {
            Some(raw) => *raw,
            None => {
                let (value, module, flags) = tables.address(id)?;
                let raw = Raw { value, module, leaf: flags & ADDRESS_IS_LEAF != 0 };
                if value < FIRST_CODE_ADDRESS {
                    call(value as CallId)?;
                }
                self.seen.insert(id, raw);
                self.waiting.push(id);
                raw
            }
        };
        Some(if raw.value < FIRST_CODE_ADDRESS { Kind::Call } else { Kind::Code })
    }

    /// Whether `id` was announced as code.
    pub(crate) fn is_code(&mut self, id: u32, tables: &dyn Tables) -> bool {
        self.kind(id, tables) == Some(Kind::Code)
    }

    /// Names up to `limit` of the addresses that have none yet; false when all have one.
    pub(crate) fn name_some(
        &mut self,
        limit: usize,
        tables: &dyn Tables,
        symbols: &mut Symbols,
    ) -> bool {
        for _ in 0..limit {
            let Some(id) = self.waiting.pop() else { return false };
            if let (Some(raw), false) = (self.seen.get(&id).copied(), self.named.contains_key(&id))
            {
                let named = self.name(raw, tables, symbols);
                self.named.insert(id, named);
                self.order.push(id);
            }
        }
        !self.waiting.is_empty()
    }

    /// Takes the name of an address from who has looked it up before.
    pub(crate) fn learn(&mut self, id: u32, frame: Frame, offset: u64, role: Role) {
        let frame = self.intern(frame);
        self.named.insert(id, Named { frame, offset, role });
    }

    /// All names but the first `known`.
    pub(crate) fn named_since(&self, known: usize) -> impl Iterator<Item = (u32, &Named, &Frame)> {
        let new = self.order.get(known..).unwrap_or_default().iter();
        new.filter_map(|id| {
            let named = self.named.get(id)?;
            Some((*id, named, self.frame(named.frame)))
        })
    }

    /// The frame of an address that has been named.
    pub(crate) fn named(&self, id: u32) -> Option<&Named> {
        self.named.get(&id)
    }

    /// A distinct frame, by its index.
    pub(crate) fn frame(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let frames: usize = self.frames.iter().map(|f| f.function.len() + f.module.len()).sum();
        (self.seen.capacity() * size_of::<(u32, Raw)>()
            + self.named.capacity() * size_of::<(u32, Named)>()
            + 2 * (frames + self.frames.capacity() * size_of::<Frame>())) as u64
    }

    fn name(&mut self, raw: Raw, tables: &dyn Tables, symbols: &mut Symbols) -> Named {
        if raw.value < FIRST_CODE_ADDRESS {
            return self.name_call(raw.value as CallId, tables);
        }
        let module =
            self.modules.entry(raw.module).or_insert_with(|| describe(raw.module, tables, symbols));
        let (function, module_name, offset) = match module {
            Some(module) => {
                let offset = raw.value.wrapping_sub(module.bias);
                // A return address may already belong to the next function: its call decides.
                let at = if raw.leaf { offset } else { offset.wrapping_sub(1) };
                let function = match symbols.function(module.key, at) {
                    Ok(name) => name,
                    // The kernel's page has no file to read symbols from.
                    Err(_) if module.name == VDSO => module.name.clone(),
                    Err(start) => format!("{}+{start:#x}", module.name),
                };
                (function, module.name.clone(), offset)
            }
            None => (format!("{:#x}", raw.value), String::from("[unknown]"), raw.value),
        };
        let role = role(&function, &module_name);
        let frame = Frame {
            kind: FrameKind::Function,
            function,
            file: None,
            line: None,
            module: module_name,
            call: None,
        };
        Named { frame: self.intern(frame), offset, role }
    }

    fn name_call(&mut self, id: CallId, tables: &dyn Tables) -> Named {
        let entry = call(id);
        let mpi = entry.is_some_and(|entry| entry.provider != Provider::Libc);
        let frame = Frame {
            kind: if mpi { FrameKind::Mpi } else { FrameKind::Function },
            function: entry.map_or("[unknown]", |entry| entry.name).to_owned(),
            file: None,
            line: None,
            module: if mpi { mpi_library(tables) } else { String::from("libc.so.6") },
            call: Some(id),
        };
        Named { frame: self.intern(frame), offset: 0, role: Role::Inside }
    }

    fn intern(&mut self, frame: Frame) -> u32 {
        if let Some(index) = self.frame_ids.get(&frame) {
            return *index;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, index);
        index
    }
}

fn describe(number: u32, tables: &dyn Tables, symbols: &mut Symbols) -> Option<Module> {
    let info = tables.module(number.checked_sub(1)? as usize)?;
    let name = file_name(&info.path);
    let path = PathBuf::from(OsStr::from_bytes(&info.path));
    Some(Module { name, bias: info.bias, key: symbols.module(path, info.build_id) })
}

fn file_name(path: &[u8]) -> String {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if last.is_empty() {
        "[unknown]".to_owned()
    } else {
        String::from_utf8_lossy(last).into_owned()
    }
}

/// File name of the loaded MPI library; its interfaces for other languages load it, too.
fn mpi_library(tables: &dyn Tables) -> String {
    let names: Vec<String> = (0..tables.modules())
        .filter_map(|index| tables.module(index))
        .map(|module| file_name(&module.path))
        .collect();
    ["libmpi.so", "libmpich.so", "libmpi_abi.so"]
        .iter()
        .find_map(|prefix| names.iter().find(|name| name.starts_with(prefix)))
        .cloned()
        .unwrap_or_else(|| "mpi".to_owned())
}

fn role(function: &str, module: &str) -> Role {
    match function {
        "main" => return Role::Main,
        "_start" | "__libc_start_call_main" | "generic_start_main" => return Role::Outside,
        "start_thread" | "clone" | "clone3" => return Role::ThreadStart,
        _ if function.starts_with("__libc_start_main") => return Role::ProgramStart,
        _ => {}
    }
    let outside = ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "libplimsoll."];
    if outside.iter().any(|prefix| module.starts_with(prefix)) {
        Role::Outside
    } else {
        Role::Inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_end_of_stacks_is_known_by_name_and_by_module() {
        assert_eq!(role("main", "app"), Role::Main);
        assert_eq!(role("__libc_start_main_impl", "libc.so.6"), Role::ProgramStart);
        assert_eq!(role("start_thread", "libc.so.6"), Role::ThreadStart);
        assert_eq!(role("libc.so.6+0x23f90", "libc.so.6"), Role::Outside);
        assert_eq!(role("trampoline", "libplimsoll.so"), Role::Outside);
        assert_eq!(role("solve", "libcg.so"), Role::Inside);
        assert_eq!(role("_start", "app"), Role::Outside);
    }

    #[test]
    fn a_module_is_called_by_its_file_name() {
        assert_eq!(file_name(b"/usr/lib/libmpi.so.40"), "libmpi.so.40");
        assert_eq!(file_name(b"[vdso]"), "[vdso]");
        assert_eq!(file_name(b""), "[unknown]");
    }
}
