//! Lookup of single addresses: the function, the loops and inlined calls around the address, and
//! the role of the function in the program.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_calls::{CallId, FIRST_CODE_ADDRESS, Provider, call};
use plimsoll_sys::path_lookup::real_path;
use plimsoll_sys::vdso::VDSO;
use plimsoll_wire::segment::{ADDRESS_IS_LEAF, script_place};
use serde::{Deserialize, Serialize};

use super::{Addresses, Detail, Named, Raw};
use crate::profile::{Frame, FrameKind};
use crate::tables::{ScriptInfo, Tables};

use plimsoll_binary::{
    Absent, Address, Function, Location, LoopId, ModuleId, SourcePosition, Step, Structures,
};

/// Role of a frame at the outer end of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Program's entry into libc; the frame outside it is `_start`, under any name.
    ProgramStart,
    /// Code that starts threads.
    ThreadStart,
    /// Other code of the C library, the loader or this library, which does not belong to the
    /// program if it is outermost.
    Outside,
    /// The function `main`.
    Main,
    /// Any other code.
    Inside,
}

/// Module, as needed to name its addresses.
pub(super) struct Module {
    name: String,
    bias: u64,
    key: ModuleId,
}

impl Module {
    /// Returns the address in the module's file for an address in memory, and its kind: leaf or
    /// return address.
    fn address(&self, value: u64, is_leaf: bool) -> (u64, Address) {
        let offset = value.wrapping_sub(self.bias);
        (offset, if is_leaf { Address::Leaf(offset) } else { Address::Return(offset) })
    }
}

impl Addresses {
    /// Returns the name of an address in the detail of `raw`; `known` is the result of an earlier
    /// lookup. Returns `None` if the deadline passed before the lookup was complete.
    pub(super) fn look_up(
        &mut self,
        raw: Raw,
        known: Option<Named>,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> Option<Named> {
        if raw.value < FIRST_CODE_ADDRESS {
            return Some(self.name_call(raw.value as CallId, tables));
        }
        if let Some(place) = script_place(raw.value) {
            return Some(known.unwrap_or_else(|| self.name_script(place, tables)));
        }
        let Some((key, address, module)) = self.find(raw, tables, structures) else {
            return Some(self.name_nowhere(raw));
        };
        // A declared function stands for all of its code, not for its first address. An interpreter
        // is shown by the functions that it executes.
        let has_steps = raw.detail == Detail::Structure
            && !raw.declared
            && !is_outside(&module)
            && !self.interpreters.contains(&raw.module);
        if has_steps
            && known
                .as_ref()
                .and_then(|it| it.function)
                .is_some_and(|function| structures.is_given_up(function))
        {
            return None;
        }
        let place = has_steps.then(|| structures.place(key, address));
        let symbol = match &place {
            Some(SourcePosition { function: Ok(known), .. }) => {
                Some((known.name.clone(), known.entry))
            }
            Some(SourcePosition { function: Err(Absent::Late), .. }) => return None,
            Some(_) => None,
            None => match structures.symbol(key, address) {
                Ok(symbol) => Some((symbol.name, symbol.entry)),
                Err(Absent::Late) => return None,
                Err(_) => None,
            },
        };
        if let (None, Some(known)) = (&symbol, known) {
            // The earlier lookup (possibly recorded in a spool) had access to the module's file.
            return Some(Named { detail: raw.detail, ..known });
        }
        Some(self.named_as(raw, (key, address, module), symbol, place.as_ref()))
    }

    /// Returns a name for an address made from its module alone.
    pub(super) fn look_up_module(
        &mut self,
        raw: Raw,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> Named {
        if let Some(place) = script_place(raw.value) {
            return self.name_script(place, tables);
        }
        match self.find(raw, tables, structures) {
            Some(found) => self.named_as(Raw { detail: Detail::Symbol, ..raw }, found, None, None),
            None => self.name_nowhere(raw),
        }
    }

    /// Returns the module and file address of code; `None` for wrapped calls, unknown modules, and
    /// modules that do not belong to the program.
    pub(super) fn locate(
        &mut self,
        raw: Raw,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> Option<(ModuleId, Address)> {
        if raw.value < FIRST_CODE_ADDRESS || script_place(raw.value).is_some() {
            return None;
        }
        let (module, address, name) = self.find(raw, tables, structures)?;
        (!is_outside(&name)).then_some((module, address))
    }

    /// Returns the module, file address and module name of code; `None` if the module is unknown.
    fn find(
        &mut self,
        raw: Raw,
        tables: &dyn Tables,
        structures: &mut Structures,
    ) -> Option<(ModuleId, Address, String)> {
        let module = self
            .modules
            .entry(raw.module)
            .or_insert_with(|| describe(raw.module, tables, structures));
        let module = module.as_ref()?;
        Some((module.key, module.address(raw.value, raw.leaf).1, module.name.clone()))
    }

    /// Builds the name of an address in a module from the results of the lookups.
    fn named_as(
        &mut self,
        raw: Raw,
        (key, address, module): (ModuleId, Address, String),
        symbol: Option<(Option<Arc<str>>, u64)>,
        place: Option<&SourcePosition>,
    ) -> Named {
        let (Address::Leaf(offset) | Address::Return(offset)) = address;
        let entry = symbol.as_ref().map(|(_, entry)| (key, *entry));
        let function = match symbol {
            Some((Some(name), _)) => name.to_string(),
            Some((None, entry)) => format!("{module}+{entry:#x}"),
            // The vDSO has no file to read symbols from.
            None if module == VDSO => module.clone(),
            None => format!("{module}+{:#x}", address.instruction()),
        };
        let steps = place.map_or_else(Box::default, |it| self.steps(it, &function, &module));
        let role = role(&function, &module);
        let frame = self.intern(plain(function, module));
        let is_begin = raw.leaf && entry.is_some_and(|(_, entry)| entry == offset);
        let begin = place.and_then(|place| match raw.construct {
            _ if is_begin => begin_line(place),
            true => place.location.clone(),
            false => None,
        });
        let call_line = place.filter(|_| !raw.leaf).and_then(|place| place.location.clone());
        Named { frame, steps, offset, role, detail: raw.detail, function: entry, begin, call_line }
    }

    /// Returns the frames of loops and inlined calls around a place in a function, outermost first.
    fn steps(&mut self, place: &SourcePosition, function: &str, module: &str) -> Box<[u32]> {
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

    /// Names code outside all known modules by its address.
    fn name_nowhere(&mut self, raw: Raw) -> Named {
        let Raw { value, detail, .. } = raw;
        let frame = self.intern(plain(format!("{value:#x}"), String::from("[unknown]")));
        outside_functions(frame, value, detail)
    }

    /// Names a line of a function of a script. The frame has the line at which the function begins.
    fn name_script(&mut self, (index, line): (usize, u32), tables: &dyn Tables) -> Named {
        let unknown = || ScriptInfo { name: "[unknown]".into(), file: String::new(), line: 0 };
        let script = tables.script_function(index).unwrap_or_else(unknown);
        let has_file = script.line > 0;
        let frame = Frame {
            file: Some(script.file.clone()).filter(|_| has_file),
            line: Some(script.line).filter(|_| has_file),
            ..plain(script.name, file_name(script.file.as_bytes()))
        };
        let call_line = has_file.then(|| Location { file: Arc::from(script.file), line });
        let frame = self.intern(frame);
        Named { call_line, ..outside_functions(frame, line.into(), Detail::Structure) }
    }

    fn name_call(&mut self, id: CallId, tables: &dyn Tables) -> Named {
        let entry = call(id);
        let provider = entry.map(|entry| entry.provider);
        let mpi = provider.is_some_and(Provider::is_mpi);
        let frame = Frame {
            kind: if mpi { FrameKind::Mpi } else { FrameKind::Function },
            function: entry.map_or("[unknown]", |entry| entry.name).to_owned(),
            file: None,
            line: None,
            offset: None,
            module: match provider {
                _ if mpi => mpi_library(tables),
                Some(Provider::Gomp) => {
                    loaded_library(&["libgomp", "libiomp5", "libomp"], tables, "libgomp.so.1")
                }
                Some(Provider::Ompt) => calling_runtime(tables),
                _ => String::from("libc.so.6"),
            },
            call: Some(id),
        };
        let (frame, detail) = (self.intern(frame), Detail::Structure);
        outside_functions(frame, 0, detail)
    }
}

/// Returns the name of an address outside of all functions.
fn outside_functions(frame: u32, offset: u64, detail: Detail) -> Named {
    let (steps, role) = (Box::default(), Role::Inside);
    let (function, begin, call_line) = (None, None, None);
    Named { frame, steps, offset, role, detail, function, begin, call_line }
}

/// Returns the line of the first address of a function. If the function begins with an inlined
/// call, that is the line of the call.
fn begin_line(place: &SourcePosition) -> Option<Location> {
    let inlined = place.steps.iter().find_map(|step| match step {
        Step::Inlined(inlined) => Some(inlined.call.clone()),
        Step::Loop(_) => None,
    });
    inlined.unwrap_or_else(|| place.location.clone())
}

/// Returns the frame of a procedure.
fn plain(function: String, module: String) -> Frame {
    Frame::new(FrameKind::Function, function, module)
}

/// Returns the frame of a loop, equal for all copies of the loop; `holder` is the procedure with
/// the loop in its source.
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

/// Returns the module of a code address, and the address in the module's file.
pub(crate) fn locate(
    id: u32,
    tables: &dyn Tables,
    structures: &mut Structures,
) -> Option<(ModuleId, Address)> {
    let (value, module, flags) = tables.address(id)?;
    if script_place(value).is_some() {
        return None;
    }
    let module = describe(module, tables, structures)?;
    Some((module.key, module.address(value, flags & ADDRESS_IS_LEAF != 0).1))
}

/// Returns whether a module with an interpreter is a program or library of the interpreter itself,
/// not a program that it is linked into.
pub(crate) fn is_only_interpreter(number: u32, tables: &dyn Tables) -> bool {
    let module = number.checked_sub(1).and_then(|index| tables.module(index as usize));
    module.is_some_and(|module| file_name(&module.path).contains("python"))
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

/// Returns the file name of the loaded MPI library. Its language bindings are no candidates,
/// because they load that library, too.
fn mpi_library(tables: &dyn Tables) -> String {
    loaded_library(&["libmpi.so", "libmpich.so", "libmpi_abi.so"], tables, "mpi")
}

/// Returns the file name of the loaded OpenMP runtime that reports its constructs. Such a runtime
/// may be loaded by a link with the name of GCC's runtime.
fn calling_runtime(tables: &dyn Tables) -> String {
    let name = loaded_library(&["libiomp5", "libomp."], tables, "libomp.so.5");
    let paths = (0..tables.modules()).filter_map(|index| tables.module(index)).map(|it| it.path);
    let mut links = paths.filter(|path| file_name(path).starts_with("libgomp"));
    let real = links.find_map(|path| {
        let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        let name = file_name(real_path(&path).ok()?.as_os_str().as_bytes());
        (!name.starts_with("libgomp")).then_some(name)
    });
    real.unwrap_or(name)
}

/// Returns the file name of the first loaded library with a name that begins with one of the
/// `prefixes`, tried in order; `otherwise` if there is none.
fn loaded_library(prefixes: &[&str], tables: &dyn Tables, otherwise: &str) -> String {
    let names: Vec<String> = (0..tables.modules())
        .filter_map(|index| tables.module(index))
        .map(|module| file_name(&module.path))
        .collect();
    prefixes
        .iter()
        .find_map(|prefix| names.iter().find(|name| name.starts_with(prefix)))
        .cloned()
        .unwrap_or_else(|| otherwise.to_owned())
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

/// Begin of the names of this library's files: a copy may carry a version.
pub(crate) const OWN_LIBRARY: &str = "libplimsoll";

/// Returns whether a module is the C library, the loader or this library. Such a module does not
/// belong to the program where it is outermost, and its loops are never the user's.
fn is_outside(module: &str) -> bool {
    let outside = ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", OWN_LIBRARY];
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
        assert_eq!(role("trampoline", "libplimsoll-0.1.so"), Role::Outside);
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
