//! The addresses of one process: what each id stands for, and the names of those that were seen.
//!
//! Kinds are needed at once, when a stack arrives; names are looked up between, so that neither
//! the drain nor the end of the run waits for symbol tables.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_agent::calls::{CallId, FIRST_CODE_ADDRESS, Provider, call};
use plimsoll_agent::segment::{ADDRESS_IS_LEAF, VDSO};

use serde::{Deserialize, Serialize};

use crate::profile::{Frame, FrameKind};
use crate::spool::meta::NameMeta;
use crate::structure::{Address, Function, LoopId, ModuleId, Step, Structures};
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
    /// Frames between it and the address: loops and inlined calls, outermost first; likewise.
    pub(crate) steps: Box<[u32]>,
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
    key: ModuleId,
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

    /// Names addresses that have no name yet, for so long at most; says whether there were any.
    pub(crate) fn name_some(
        &mut self,
        limit: Option<Duration>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> bool {
        let begin = Instant::now();
        let mut found = false;
        while limit.is_none_or(|limit| begin.elapsed() < limit)
            && let Some(id) = self.waiting.pop()
        {
            if let (Some(raw), false) = (self.seen.get(&id).copied(), self.named.contains_key(&id))
            {
                let named = self.name(raw, tables, structures);
                self.named.insert(id, named);
                self.order.push(id);
                found = true;
            }
        }
        found
    }

    /// Takes the name of an address from who has looked it up before.
    pub(crate) fn learn(&mut self, name: &NameMeta) {
        let frame = self.intern(name.frame.clone());
        let steps = name.steps.iter().map(|step| self.intern(step.clone())).collect();
        let (offset, role) = (name.offset, name.role);
        self.named.insert(name.id, Named { frame, steps, offset, role });
    }

    /// All names but the first `known`.
    pub(crate) fn named_since(&self, process: u32, known: usize) -> impl Iterator<Item = NameMeta> {
        let new = self.order.get(known..).unwrap_or_default().iter();
        new.filter_map(move |id| {
            let named = self.named.get(id)?;
            Some(NameMeta {
                process,
                id: *id,
                offset: named.offset,
                role: named.role,
                frame: self.frame(named.frame).clone(),
                steps: named.steps.iter().map(|step| self.frame(*step).clone()).collect(),
            })
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

    fn name(&mut self, raw: Raw, tables: &dyn Tables, structures: &mut Structures) -> Named {
        if raw.value < FIRST_CODE_ADDRESS {
            return self.name_call(raw.value as CallId, tables);
        }
        let module = self
            .modules
            .entry(raw.module)
            .or_insert_with(|| describe(raw.module, tables, structures));
        let Some(module) = module else {
            return self.name_nowhere(raw.value);
        };
        let offset = raw.value.wrapping_sub(module.bias);
        let address = if raw.leaf { Address::Leaf(offset) } else { Address::Return(offset) };
        let place = structures.place(module.key, address);
        let module = module.name.clone();
        let function = match &place.function {
            Ok(known) => match &known.name {
                Some(name) => name.to_string(),
                None => format!("{module}+{:#x}", known.entry),
            },
            // The kernel's page has no file to read symbols from.
            Err(_) if module == VDSO => module.clone(),
            Err(_) => format!("{module}+{:#x}", address.instruction()),
        };
        let role = role(&function, &module);
        let mut steps = Vec::with_capacity(place.steps.len());
        let mut holder = function.clone();
        for step in &place.steps {
            let frame = match (step, &place.function) {
                (Step::Loop(id), Ok(known)) => loop_frame(known, *id, &holder, &module),
                (Step::Loop(_), Err(_)) => continue,
                (Step::Inlined(inlined), _) => {
                    holder = inlined.function.to_string();
                    let (file, line) = match &inlined.call {
                        Some(call) => (Some(call.file.to_string()), Some(call.line)),
                        None => (None, None),
                    };
                    let (kind, function) = (FrameKind::Inlined, holder.clone());
                    Frame { kind, file, line, ..plain(function, module.clone()) }
                }
            };
            steps.push(self.intern(frame));
        }
        let frame = self.intern(plain(function, module));
        Named { frame, steps: steps.into(), offset, role }
    }

    /// Code that is in no module that is known.
    fn name_nowhere(&mut self, value: u64) -> Named {
        let frame = self.intern(plain(format!("{value:#x}"), String::from("[unknown]")));
        Named { frame, steps: Box::default(), offset: value, role: Role::Inside }
    }

    fn name_call(&mut self, id: CallId, tables: &dyn Tables) -> Named {
        let entry = call(id);
        let mpi = entry.is_some_and(|entry| entry.provider != Provider::Libc);
        let frame = Frame {
            kind: if mpi { FrameKind::Mpi } else { FrameKind::Function },
            function: entry.map_or("[unknown]", |entry| entry.name).to_owned(),
            file: None,
            line: None,
            offset: None,
            module: if mpi { mpi_library(tables) } else { String::from("libc.so.6") },
            call: Some(id),
        };
        Named { frame: self.intern(frame), steps: Box::default(), offset: 0, role: Role::Inside }
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

/// A procedure's frame.
fn plain(function: String, module: String) -> Frame {
    Frame {
        kind: FrameKind::Function,
        function,
        file: None,
        line: None,
        offset: None,
        module,
        call: None,
    }
}

/// A loop's frame, the same for all its copies; `holder` is the procedure that it was written in.
fn loop_frame(function: &Function, id: LoopId, holder: &str, module: &str) -> Frame {
    let it = function.loop_at(function.loop_at(id).original);
    let (file, line) = match &it.lines.location {
        Some(location) => (Some(location.file.to_string()), Some(location.line)),
        None => (None, None),
    };
    let offset = line.is_none().then(|| it.header.wrapping_sub(function.entry));
    let frame = plain(holder.to_owned(), module.to_owned());
    Frame { kind: FrameKind::Loop, file, line, offset, ..frame }
}

/// The module of a code address, and its address in the module's file.
pub(crate) fn locate(
    id: u32,
    tables: &dyn Tables,
    structures: &mut Structures,
) -> Option<(ModuleId, Address)> {
    let (value, module, flags) = tables.address(id)?;
    let info = tables.module(module.checked_sub(1)? as usize)?;
    let offset = value.wrapping_sub(info.bias);
    let module = structures.module(PathBuf::from(OsStr::from_bytes(&info.path)), info.build_id);
    let is_leaf = flags & ADDRESS_IS_LEAF != 0;
    Some((module, if is_leaf { Address::Leaf(offset) } else { Address::Return(offset) }))
}

fn describe(number: u32, tables: &dyn Tables, structures: &mut Structures) -> Option<Module> {
    let info = tables.module(number.checked_sub(1)? as usize)?;
    let name = file_name(&info.path);
    let path = PathBuf::from(OsStr::from_bytes(&info.path));
    Some(Module { name, bias: info.bias, key: structures.module(path, info.build_id) })
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
