//! Lines and inlined calls of addresses, from DWARF: unit by unit, as they are asked for.

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

/// Most inlined calls around one address that are told; inner ones are left out.
const MAX_INLINED: usize = 64;

/// Bytes of debug information after which it is closed, and opened anew for the next unit; what is made
/// of them takes about as much again. A unit that is larger is still read once only.
const MAX_HELD_BYTES: u64 = 8 << 20;

/// Strings, each kept once.
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

    /// Memory in use, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.known.capacity() * size_of::<Arc<str>>()
    }
}

/// The debug information of one module, open.
pub(super) struct Debug {
    context: Context<Bytes>,
    /// Where a package of split debug information may be.
    packages: Vec<PathBuf>,
    package: OnceCell<Option<gimli::DwarfPackage<Bytes>>>,
    /// Whether split debug information was not found.
    is_partial: Cell<bool>,
    source: Arc<Source>,
    /// What the file held when this was opened: to find the units takes a part of each.
    held_at_first: u64,
    units: Units,
    /// The units that were read, and the last of them.
    read: RefCell<HashSet<u64>>,
    last: Cell<Option<u64>>,
    /// A read has failed, which the unit that it was for remembers.
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

    /// Whether anything that was asked for is in a file that is missing.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial.get()
    }

    /// Whether it should be opened anew for an address: of another unit than the last, after much was
    /// read, or of a unit that was not read as a whole, after a read has failed.
    pub(super) fn is_spent_for(&self, address: u64) -> bool {
        let is_swollen = self.source.held() - self.held_at_first > MAX_HELD_BYTES;
        is_swollen && self.units.unit(address) != self.last.get()
            || self.has_failed && !self.is_at_hand(address)
    }

    /// The deadline has passed during the last lookup.
    pub(super) fn note_failure(&mut self) {
        self.has_failed = true;
        if let Some(unit) = self.last.get() {
            self.read.get_mut().remove(&unit);
        }
    }

    /// The unit that describes an address, by its offset.
    pub(super) fn unit(&self, address: u64) -> Option<u64> {
        self.units.unit(address)
    }

    /// Whether the unit that describes an address was read, so that a lookup takes microseconds.
    pub(super) fn is_at_hand(&self, address: u64) -> bool {
        self.unit(address).is_some_and(|unit| self.read.borrow().contains(&unit))
    }

    /// Where an address stands in the source.
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
        let frames = count_as(MemoryKind::DebugInfo, find)?;
        let mut lines = Lines::default();
        let mut frames = frames;
        // Innermost first: each frame's place is where the one before was called.
        let mut inner: Option<Arc<str>> = None;
        while let Ok(Some(frame)) = count_as(MemoryKind::DebugInfo, || frames.next()) {
            let location = frame.location.and_then(|location| {
                let line = location.line.filter(|line| *line != 0)?;
                Some(Location { file: strings.intern(location.file?), line })
            });
            match inner.take() {
                None => lines.location = location,
                Some(function) => lines.inlined.push(Inlined { function, call: location }),
            }
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let name = name.map_or_else(|| String::from("[unknown]"), |name| demangle(&name));
            inner = Some(strings.intern(&name));
        }
        lines.inlined.reverse();
        lines.inlined.truncate(MAX_INLINED);
        Some(lines)
    }

    /// Brings a lookup to its end, with split debug information where it needs that.
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
        // A file that was compiled again does not fit.
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
