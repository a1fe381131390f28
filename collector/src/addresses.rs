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
use crate::structure::{Address, Function, LoopId, ModuleId, Place, Step, Structures};
use crate::tables::Tables;
use crate::tree::{IdMap, RawId, Tree};

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

/// How much is to be known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Detail {
    /// Which function it is in: of code inside wrapped calls, which is not the user's.
    Symbol,
    /// The loops and inlined calls around it, too, where it is the user's code.
    Structure,
}

impl Detail {
    /// Of what stands directly inside a context.
    pub(crate) fn of(tree: &Tree, outer: RawId) -> Self {
        if tree.in_call(outer) { Self::Symbol } else { Self::Structure }
    }
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
    /// How much of it was looked up.
    pub(crate) detail: Detail,
}

#[derive(Clone, Copy)]
struct Raw {
    value: u64,
    module: u32,
    leaf: bool,
    detail: Detail,
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
    put_off: IdMap<u32, Raw>,
    named: IdMap<u32, Named>,
    /// Their ids, in the order in which they were named.
    order: Vec<u32>,
    frames: Vec<Frame>,
    frame_ids: std::collections::HashMap<Frame, u32>,
    modules: IdMap<u32, Option<Module>>,
}

impl Addresses {
    /// What `id` stands for, of which so much is to be known; `None` if it was never announced or is a
    /// call that this build does not know.
    pub(crate) fn kind(&mut self, id: u32, detail: Detail, tables: &dyn Tables) -> Option<Kind> {
        let raw = match self.seen.get_mut(&id) {
            Some(raw) => {
                if raw.detail < detail {
                    raw.detail = detail;
                    self.waiting.push(id);
                }
                *raw
            }
            None => {
                let (value, module, flags) = tables.address(id)?;
                let raw = Raw { value, module, leaf: flags & ADDRESS_IS_LEAF != 0, detail };
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
        self.kind(id, Detail::Symbol, tables) == Some(Kind::Code)
    }

    /// Whether there are addresses without a name, or of which more is to be known.
    pub(crate) fn has_nameless(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Names addresses that have no name yet, for so long at most.
    pub(crate) fn name_some(
        &mut self,
        limit: Duration,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        let begin = Instant::now();
        while begin.elapsed() < limit
            && let Some(id) = self.waiting.pop()
        {
            self.name(id, tables, structures);
        }
    }

    /// Names these addresses, and lets exactly so much be known of each: what else was known of one was
    /// so by chance.
    pub(crate) fn name_all(
        &mut self,
        ids: impl IntoIterator<Item = (u32, Detail)>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) {
        self.waiting.clear();
        for (id, detail) in ids {
            if let Some(raw) = self.seen.get_mut(&id).or_else(|| self.put_off.get_mut(&id)) {
                raw.detail = detail;
            }
            self.name(id, tables, structures);
            if let Some(named) = self.named.get_mut(&id).filter(|named| named.detail > detail) {
                named.steps = Box::default();
            }
        }
    }

    /// Leaves addresses without a name until they are seen again, or all are named.
    pub(crate) fn put_off(&mut self) {
        for id in self.waiting.drain(..) {
            if !self.named.contains_key(&id) {
                self.put_off.extend(self.seen.remove(&id).map(|raw| (id, raw)));
            }
        }
    }

    fn name(&mut self, id: u32, tables: &dyn Tables, structures: &mut Structures) {
        let Some(raw) = self.seen.get(&id).or_else(|| self.put_off.get(&id)).copied() else {
            return;
        };
        if self.named.get(&id).is_none_or(|named| named.detail < raw.detail) {
            let named = self.look_up(raw, tables, structures);
            self.named.insert(id, named);
            self.order.push(id);
        }
    }

    /// Takes the name of an address from who has looked it up before.
    pub(crate) fn learn(&mut self, name: &NameMeta) {
        let frame = self.intern(name.frame.clone());
        let steps = name.steps.iter().map(|step| self.intern(step.clone())).collect();
        let NameMeta { offset, role, detail, .. } = *name;
        self.named.insert(name.id, Named { frame, steps, offset, role, detail });
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
                detail: named.detail,
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

    fn look_up(&mut self, raw: Raw, tables: &dyn Tables, structures: &mut Structures) -> Named {
        if raw.value < FIRST_CODE_ADDRESS {
            return self.name_call(raw.value as CallId, tables);
        }
        let module = self
            .modules
            .entry(raw.module)
            .or_insert_with(|| describe(raw.module, tables, structures));
        let Some(module) = module else {
            return self.name_nowhere(raw);
        };
        let offset = raw.value.wrapping_sub(module.bias);
        let address = if raw.leaf { Address::Leaf(offset) } else { Address::Return(offset) };
        let (key, module) = (module.key, module.name.clone());
        let has_steps = raw.detail == Detail::Structure && !is_outside(&module);
        let place = has_steps.then(|| structures.place(key, address));
        let symbol = match &place {
            Some(Place { function: Ok(known), .. }) => Some((known.name.clone(), known.entry)),
            Some(_) => None,
            None => structures.symbol(key, address).ok().map(|symbol| (symbol.name, symbol.entry)),
        };
        let function = match symbol {
            Some((Some(name), _)) => name.to_string(),
            Some((None, entry)) => format!("{module}+{entry:#x}"),
            // The kernel's page has no file to read symbols from.
            None if module == VDSO => module.clone(),
            None => format!("{module}+{:#x}", address.instruction()),
        };
        let steps = place.map_or_else(Box::default, |it| self.steps(&it, &function, &module));
        let role = role(&function, &module);
        let frame = self.intern(plain(function, module));
        Named { frame, steps, offset, role, detail: raw.detail }
    }

    /// Loops and inlined calls around a place in a function.
    fn steps(&mut self, place: &Place, function: &str, module: &str) -> Box<[u32]> {
        let mut steps = Vec::with_capacity(place.steps.len());
        let mut holder = function.to_owned();
        for step in &place.steps {
            let frame = match (step, &place.function) {
                (Step::Loop(id), Ok(known)) => loop_frame(known, *id, &holder, module),
                (Step::Loop(_), Err(_)) => continue,
                (Step::Inlined(inlined), _) => {
                    holder = inlined.function.to_string();
                    let (file, line) = match &inlined.call {
                        Some(call) => (Some(call.file.to_string()), Some(call.line)),
                        None => (None, None),
                    };
                    let (kind, function) = (FrameKind::Inlined, holder.clone());
                    Frame { kind, file, line, ..plain(function, module.to_owned()) }
                }
            };
            steps.push(self.intern(frame));
        }
        steps.into()
    }

    /// Code that is in no module that is known.
    fn name_nowhere(&mut self, raw: Raw) -> Named {
        let Raw { value, detail, .. } = raw;
        let frame = self.intern(plain(format!("{value:#x}"), String::from("[unknown]")));
        Named { frame, steps: Box::default(), offset: value, role: Role::Inside, detail }
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
        let (frame, detail) = (self.intern(frame), Detail::Structure);
        Named { frame, steps: Box::default(), offset: 0, role: Role::Inside, detail }
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
    let source = function.source_of(id);
    let it = function.loop_at(source.map_or(id, |source| source.original));
    let (file, line) = match source.and_then(|source| source.lines.location.as_ref()) {
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
    if is_outside(module) { Role::Outside } else { Role::Inside }
}

/// Whether a module is the C library, the loader or this library: where it is outermost it is no part of
/// the program, and its loops are not the user's anywhere.
fn is_outside(module: &str) -> bool {
    let outside = ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "libplimsoll."];
    outside.iter().any(|prefix| module.starts_with(prefix))
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
