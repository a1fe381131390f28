//! On-disk cache of what is known of a module, for later jobs: one file per build-id.
//!
//! ```text
//! magic "PLST", version, CRC-32 of the rest, length of the rest unpacked;
//! the rest: postcard, packed by zstd
//! ```
//!
//! Files appear complete, by a rename, so concurrent writers of one file do no harm: the last one
//! stays. A file that cannot be read, is of another version, or was made with other debug
//! information counts as missing and is written anew.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use plimsoll_sys::own::Own;
use serde::{Deserialize, Serialize};

use super::Symbol;
use super::debug_file::hexadecimal;
use super::function::{Function, Inlined, Lines, Location, LoopId, LoopSource};
use super::lines::Strings;
use super::names::Symbols;
use super::recovered::Recovered;
use plimsoll_sys::own_files;
use plimsoll_sys::path_lookup::names_in;

/// Version of the format; to be raised whenever the format changes, or the results for the same
/// code.
const VERSION: u32 = 8;

const MAGIC: &[u8; 4] = b"PLST";
const HEADER_BYTES: usize = 16;

/// Maximum size in bytes of one file, uncompressed. A module's file is read as a whole, so this
/// bounds the memory for it.
const MAX_BYTES: usize = 8 << 20;

/// Maximum size in bytes of all files; the oldest are removed beyond it.
const MAX_FOLDER_BYTES: u64 = 256 << 20;

/// Age from which an unfinished file counts as left by a job that has died.
const ABANDONED: Duration = Duration::from_secs(3600);

const UNFINISHED: &str = "unfinished";

/// Subfolder of the cache folder that holds the files.
const STRUCTURE: &str = "structure";

/// Returns the user's cache folder: `$XDG_CACHE_HOME/plimsoll`, else `~/.cache/plimsoll`; `None`
/// without a home.
pub fn default_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("plimsoll"))
}

type KeptLocation = Option<(u32, u32)>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptLines {
    inlined: Vec<(u32, KeptLocation)>,
    location: KeptLocation,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptFunction {
    name: Option<u32>,
    code: Recovered,
    /// Lines and original of each loop; `None` if not looked up.
    sources: Option<Vec<(KeptLines, u32)>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct CachedStructure {
    /// Identity of the debug information in use ([`super::debug_file::DebugFile::identity`]).
    debug: String,
    strings: Vec<String>,
    functions: Vec<KeptFunction>,
    lines: Vec<(u64, KeptLines)>,
    symbols: Vec<KeptSymbol>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptSymbol {
    start: u64,
    end: u64,
    name: Option<u32>,
    entry: u64,
}

/// All results for a module.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) functions: Vec<Arc<Function>>,
    pub(super) lines: HashMap<u64, Lines>,
    pub(super) symbols: Symbols,
}

/// Returns the path of a build's file in a cache folder.
pub(super) fn path(folder: &Path, build_id: &[u8]) -> PathBuf {
    folder.join(STRUCTURE).join(hexadecimal(build_id))
}

/// Reads the results for a module; empty if there is no valid file.
pub(super) fn read(path: &Path, debug: &str, strings: &mut Strings) -> Known {
    let kept = read_kept(path).filter(|kept| kept.debug == debug);
    kept.and_then(|kept| kept.restore(strings)).unwrap_or_default()
}

fn read_kept(path: &Path) -> Option<CachedStructure> {
    let file = own_files::open_own(path).ok()?;
    let metadata = file.get().ok()?.metadata().ok()?;
    if metadata.len() > MAX_BYTES as u64 {
        return None;
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, MAX_BYTES as u64), &mut bytes).ok()?;
    let (header, packed) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| {
        header.get(at..at + 4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    };
    let size = number(12)? as usize;
    let is_right = header.starts_with(MAGIC)
        && number(4)? == VERSION
        && number(8)? == crc32fast::hash(packed)
        && size <= MAX_BYTES;
    if !is_right {
        return None;
    }
    postcard::from_bytes(&zstd::bulk::decompress(packed, size).ok()?).ok()
}

/// Writes the results for a module, merged with those that another job has written meanwhile.
pub(super) fn write(path: &Path, debug: &str, known: &Known) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if let Some(base) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    }
    own_files::create_own_folder(folder)?;
    let mut bytes = pack(debug, &[known, &read(path, debug, &mut Strings::default())])?;
    if bytes.len() > MAX_BYTES {
        // Drop the other jobs' results: a file that only grows would come to cost more than it
        // saves.
        bytes = pack(debug, &[known])?;
    }
    if bytes.len() > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let packed = zstd::bulk::compress(&bytes, 1)?;
    let numbers = [VERSION, crc32fast::hash(&packed), bytes.len() as u32];
    replace(path, |file| {
        file.write_all(MAGIC)?;
        numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
        file.write_all(&packed)
    })
}

fn pack(debug: &str, known: &[&Known]) -> io::Result<Vec<u8>> {
    let mut writer = Writer::default();
    for known in known {
        known.functions.iter().for_each(|function| writer.function(function));
        known.lines.iter().for_each(|(address, lines)| writer.address(*address, lines));
        known.symbols.stretches().for_each(|(stretch, symbol)| writer.symbol(stretch, symbol));
    }
    writer.kept.debug = debug.to_owned();
    postcard::to_allocvec(&writer.kept).map_err(io::Error::other)
}

/// Replaces a file by a complete new one.
fn replace(path: &Path, write: impl FnOnce(&mut Own<File>) -> io::Result<()>) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Processes on several nodes may share the folder and have the same process number.
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    let name = format!("{}-{number}-{now:x}.{UNFINISHED}", std::process::id());
    let unfinished = path.with_file_name(name);
    let mut file = own_files::create(&unfinished)?;
    let written = write(&mut file).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Removes unfinished files of dead jobs from a cache folder, and the oldest files beyond
/// [`MAX_FOLDER_BYTES`].
pub(super) fn tidy(folder: &Path) {
    let folder = folder.join(STRUCTURE);
    let Ok(names) = names_in(&folder) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    let facts = |path: PathBuf| {
        let metadata = path.symlink_metadata().ok().filter(|metadata| metadata.is_file())?;
        Some((metadata.modified().ok()?, metadata.len(), path))
    };
    let paths = names.into_iter().map(|name| folder.join(name));
    for (modified, size, path) in paths.filter_map(facts) {
        let is_unfinished = path.extension().is_some_and(|extension| extension == UNFINISHED);
        if !is_unfinished {
            files.push((modified, size, path));
        } else if modified.elapsed().is_ok_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(path);
        }
    }
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    files.sort();
    for (_, size, path) in files {
        if total <= MAX_FOLDER_BYTES {
            break;
        }
        total -= size;
        let _ = fs::remove_file(path);
    }
}

/// Collects the results to write, each function and address once.
#[derive(Default)]
struct Writer {
    kept: CachedStructure,
    numbers: HashMap<Arc<str>, u32>,
    seen_functions: std::collections::HashSet<u64>,
    seen_addresses: std::collections::HashSet<u64>,
    seen_symbols: std::collections::HashSet<u64>,
}

impl Writer {
    fn string(&mut self, text: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.kept.strings.len() as u32;
        self.kept.strings.push(text.to_string());
        self.numbers.insert(text.clone(), number);
        number
    }

    fn location(&mut self, location: Option<&Location>) -> KeptLocation {
        location.map(|location| (self.string(&location.file), location.line))
    }

    fn lines(&mut self, lines: &Lines) -> KeptLines {
        let inlined = lines
            .inlined
            .iter()
            .map(|each| (self.string(&each.function), self.location(each.call.as_ref())))
            .collect();
        KeptLines { inlined, location: self.location(lines.location.as_ref()) }
    }

    fn address(&mut self, address: u64, lines: &Lines) {
        if self.seen_addresses.insert(address) {
            let lines = self.lines(lines);
            self.kept.lines.push((address, lines));
        }
    }

    fn symbol(&mut self, stretch: Range<u64>, symbol: &Symbol) {
        if self.seen_symbols.insert(stretch.start) {
            let name = symbol.name.as_ref().map(|name| self.string(name));
            let (Range { start, end }, entry) = (stretch, symbol.entry);
            self.kept.symbols.push(KeptSymbol { start, end, name, entry });
        }
    }

    fn function(&mut self, function: &Function) {
        // Functions without structure are recovered again: another build of Plimsoll may succeed.
        let Some(code) = Recovered::of(function) else { return };
        if !self.seen_functions.insert(function.entry) {
            return;
        }
        let kept = KeptFunction {
            name: function.name.as_ref().map(|name| self.string(name)),
            code,
            sources: function.sources().map(|sources| {
                sources.iter().map(|each| (self.lines(&each.lines), each.original.0)).collect()
            }),
        };
        self.kept.functions.push(kept);
    }
}

impl CachedStructure {
    /// Restores the results; `None` if any index is out of range: a valid checksum does not prove a
    /// valid writer.
    fn restore(self, strings: &mut Strings) -> Option<Known> {
        let texts: Vec<Arc<str>> = self.strings.iter().map(|text| strings.intern(text)).collect();
        let functions: Option<Vec<_>> =
            self.functions.into_iter().map(|each| Some(Arc::new(each.restore(&texts)?))).collect();
        let lines = self
            .lines
            .into_iter()
            .map(|(address, lines)| Some((address, lines.restore(&texts)?)))
            .collect::<Option<_>>();
        let mut symbols = Symbols::default();
        for KeptSymbol { start, end, name, entry } in self.symbols {
            let name = match name {
                Some(number) => Some(texts.get(number as usize)?.clone()),
                None => None,
            };
            symbols.add(start..end, Symbol { name, entry });
        }
        Some(Known { functions: functions?, lines: lines?, symbols })
    }
}

impl KeptLines {
    fn restore(self, texts: &[Arc<str>]) -> Option<Lines> {
        let text = |number: u32| texts.get(number as usize).cloned();
        let location = |kept: KeptLocation| match kept {
            Some((file, line)) => Some(Some(Location { file: text(file)?, line })),
            None => Some(None),
        };
        let inlined = self
            .inlined
            .into_iter()
            .map(|(function, call)| {
                Some(Inlined { function: text(function)?, call: location(call)? })
            })
            .collect::<Option<_>>()?;
        Some(Lines { inlined, location: location(self.location)? })
    }
}

impl KeptFunction {
    fn restore(self, texts: &[Arc<str>]) -> Option<Function> {
        let name = match self.name {
            Some(number) => Some(texts.get(number as usize)?.clone()),
            None => None,
        };
        let function = self.code.restore(name)?;
        if let Some(sources) = self.sources {
            let count = function.loops().len();
            let each = sources.into_iter().map(|(lines, original)| {
                let original = Some(original).filter(|original| (*original as usize) < count)?;
                Some(LoopSource { lines: lines.restore(texts)?, original: LoopId(original) })
            });
            let sources = each.collect::<Option<Vec<_>>>().filter(|all| all.len() == count)?;
            function.locate(|| sources);
        }
        Some(function)
    }
}
