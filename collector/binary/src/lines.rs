//! Source lines and inlined calls of addresses, from DWARF, read one unit at a time on demand.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::Reader;
use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::bytes::Bytes;
use super::debug_file::{DebugFile, dwarf, package, supplement};
use super::function::{Inlined, Lines, Location};
use super::limit::Limit;
use super::units::Units;
use crate::symbols::{Source, demangle};

/// Maximum number of inlined calls reported around one address; inner ones are left out.
const MAX_INLINED: usize = 64;

/// Number of bytes read after which the debug information is closed, and reopened for the next
/// unit; the structures parsed from it take about the same again. A larger unit is still read only
/// once.
const MAX_HELD_BYTES: u64 = 8 << 20;

/// Interned strings, each stored once.
#[derive(Default)]
pub(super) struct Strings {
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Strings {
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.known.insert(new.clone());
        self.bytes += text.len() + 3 * size_of::<usize>();
        new
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.known.capacity() * size_of::<Arc<str>>()
    }
}

/// Returns whether a file is a header of the C++ library.
fn is_of_language(file: &str) -> bool {
    file.contains("/include/c++/")
}

/// Returns the name of a function of the C++ library with its namespace. Instances for types that
/// are local to a function, such as lambdas, have no mangled name, which alone has the namespace.
fn with_namespace(name: Cow<'_, str>) -> String {
    match name.starts_with("_Z") {
        true => name.into_owned(),
        false => format!("std::{name}"),
    }
}

/// Open debug information of one module.
pub(super) struct Debug {
    context: Context<Bytes>,
    /// Paths at which a package of split debug information may be.
    packages: Vec<PathBuf>,
    package: OnceCell<Option<gimli::DwarfPackage<Bytes>>>,
    /// Whether split debug information was missing in a lookup.
    is_partial: Cell<bool>,
    source: Arc<Source>,
    /// Bytes of the file held right after opening: finding the units reads a part of each.
    held_at_first: u64,
    units: Units,
    /// Offsets of the units read so far, and of the one looked up last.
    read: RefCell<HashSet<u64>>,
    last: Cell<Option<u64>>,
    /// Whether the deadline has interrupted a read: the parsed unit stays incomplete until the
    /// debug information is reopened.
    has_failed: bool,
    limit: Limit,
}

impl Debug {
    /// Opens the debug information of a module in `file`; `None` if it cannot be read.
    pub(super) fn open(
        module: &Path,
        file: &DebugFile,
        folders: &[PathBuf],
        limit: &Limit,
    ) -> Option<Self> {
        let mut dwarf = dwarf(&file.source, false, limit)?;
        if let Some(supplement) = supplement(file, folders, limit) {
            dwarf.set_sup(supplement);
        }
        let units = Units::of(&dwarf);
        let context = Context::from_dwarf(dwarf).ok()?;
        let packages = [module, &file.path].map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            PathBuf::from(name)
        });
        Some(Self {
            context,
            packages: packages.to_vec(),
            package: OnceCell::new(),
            is_partial: Cell::new(false),
            source: file.source.clone(),
            held_at_first: file.source.held(),
            units,
            read: RefCell::default(),
            last: Cell::new(None),
            has_failed: false,
            limit: limit.clone(),
        })
    }

    /// Returns whether a lookup needed a file that is missing.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial.get()
    }

    /// Returns whether to reopen the debug information for an address: after more than
    /// [`MAX_HELD_BYTES`], for a unit other than the last; after an interrupted read, for a unit
    /// not read completely.
    pub(super) fn is_spent_for(&self, address: u64) -> bool {
        let is_swollen = self.source.held() - self.held_at_first > MAX_HELD_BYTES;
        is_swollen && self.units.unit(address) != self.last.get()
            || self.has_failed && !self.is_at_hand(address)
    }

    /// Notes that the deadline has passed during the last lookup.
    pub(super) fn note_failure(&mut self) {
        self.has_failed = true;
        if let Some(unit) = self.last.get() {
            self.read.get_mut().remove(&unit);
        }
    }

    /// Returns the offset of the unit that describes an address.
    pub(super) fn unit(&self, address: u64) -> Option<u64> {
        self.units.unit(address)
    }

    /// Returns whether the unit that describes an address was read: a lookup then takes
    /// microseconds.
    pub(super) fn is_at_hand(&self, address: u64) -> bool {
        self.unit(address).is_some_and(|unit| self.read.borrow().contains(&unit))
    }

    /// Returns the source position of an address.
    pub(super) fn lines(&self, address: u64, strings: &mut Strings) -> Lines {
        let unit = self.unit(address);
        self.last.set(unit);
        let lines = self.try_lines(address, strings).unwrap_or_default();
        count_as(MemoryKind::DebugInfo, || self.read.borrow_mut().extend(unit));
        lines
    }

    fn try_lines(&self, address: u64, strings: &mut Strings) -> Option<Lines> {
        if address == u64::MAX {
            return None;
        }
        let find = || self.complete(self.context.find_frames(address)).ok();
        let find = || self.limit.with_bounded_stack(find);
        let frames = count_as(MemoryKind::DebugInfo, find)?;
        let mut lines = Lines::default();
        let mut frames = frames;
        // Frames come innermost first: the location of each is the call site of the frame before.
        let mut inner: Option<String> = None;
        while let Ok(Some(frame)) = count_as(MemoryKind::DebugInfo, || frames.next()) {
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let file = frame.location.as_ref().and_then(|location| location.file);
            let name = match name {
                Some(name) if file.is_some_and(is_of_language) => with_namespace(name),
                name => name.map_or_else(|| String::from("[unknown]"), Cow::into_owned),
            };
            if inner.as_ref() == Some(&name) {
                // A recursive call, or a rest of the function that the compiler split off.
                continue;
            }
            let location = frame.location.and_then(|location| {
                let line = location.line.filter(|line| *line != 0)?;
                Some(Location { file: strings.intern(location.file?), line })
            });
            match inner.replace(name) {
                None => lines.location = location,
                Some(name) => {
                    let function = strings.intern(&demangle(&name));
                    lines.inlined.push(Inlined { function, call: location });
                }
            }
        }
        lines.inlined.reverse();
        lines.inlined.truncate(MAX_INLINED);
        Some(lines)
    }

    /// Completes a lookup, with split debug information where needed.
    fn complete<L: LookupContinuation<Buf = Bytes>>(
        &self,
        mut result: LookupResult<L>,
    ) -> L::Output {
        loop {
            result = match result {
                LookupResult::Output(output) => return output,
                LookupResult::Load { load, continuation } => {
                    let found = self.split(&load);
                    if found.is_none() {
                        self.is_partial.set(true);
                    }
                    continuation.resume(found)
                }
            }
        }
    }

    fn split(&self, load: &SplitDwarfLoad<Bytes>) -> Option<Arc<gimli::Dwarf<Bytes>>> {
        let packed = self.package.get_or_init(|| {
            let mut sources = self.packages.iter().filter_map(|path| Source::open(path));
            sources.find_map(|source| package(&source, &self.limit))
        });
        if let Some(package) = packed
            && let Ok(Some(found)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(found));
        }
        let folder = load.comp_dir.as_ref().and_then(path_of).unwrap_or_default();
        let path = folder.join(path_of(load.path.as_ref()?)?);
        let mut found = dwarf(&Source::open(&path)?, true, &self.limit)?;
        let header = found.units().next().ok()??;
        // A file that was compiled again since does not match.
        if found.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
            return None;
        }
        found.make_dwo(&load.parent);
        Some(Arc::new(found))
    }
}

fn path_of(bytes: &Bytes) -> Option<PathBuf> {
    Some(PathBuf::from(OsString::from_vec(bytes.to_slice().ok()?.into_owned())))
}
