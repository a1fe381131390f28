//! Lines and inlined calls of addresses, from DWARF: unit by unit, as they are asked for.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::Reader;

use super::bytes::Bytes;
use super::debug_file::{DebugFile, dwarf, package, supplement};
use super::function::{Inlined, Lines, Location};
use crate::symbols::{Source, demangle};

/// Most inlined calls around one address that are told; inner ones are left out.
const MOST_INLINED: usize = 64;

/// Most bytes of debug information that are read before it is closed and opened anew; what is made of
/// them takes about as much again.
const MOST_HELD_BYTES: u64 = 8 << 20;

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
}

impl Debug {
    /// Opens the debug information of a module in `file`; `None` if it cannot be read.
    pub(super) fn open(module: &Path, file: &DebugFile, folders: &[PathBuf]) -> Option<Self> {
        let mut dwarf = dwarf(&file.source, false)?;
        if let Some(supplement) = supplement(file, folders) {
            dwarf.set_sup(supplement);
        }
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
        })
    }

    /// Whether anything that was asked for is in a file that is missing.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial.get()
    }

    /// Whether so much was read since it was opened that it should be opened anew.
    pub(super) fn is_swollen(&self) -> bool {
        self.source.held() - self.held_at_first > MOST_HELD_BYTES
    }

    /// Where an address stands in the source.
    pub(super) fn lines(&self, address: u64, strings: &mut Strings) -> Lines {
        self.try_lines(address, strings).unwrap_or_default()
    }

    fn try_lines(&self, address: u64, strings: &mut Strings) -> Option<Lines> {
        if address == u64::MAX {
            return None;
        }
        let frames = self.complete(self.context.find_frames(address)).ok()?;
        let mut lines = Lines::default();
        let mut frames = frames;
        // Innermost first: each frame's place is where the one before was called.
        let mut inner: Option<Arc<str>> = None;
        while let Ok(Some(frame)) = frames.next() {
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
        lines.inlined.truncate(MOST_INLINED);
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
            sources.find_map(|source| package(&source))
        });
        if let Some(package) = packed
            && let Ok(Some(found)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(found));
        }
        let folder = load.comp_dir.as_ref().and_then(path_of).unwrap_or_default();
        let path = folder.join(path_of(load.path.as_ref()?)?);
        let mut found = dwarf(&Source::open(&path)?, true)?;
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
