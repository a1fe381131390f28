//! Location of a module's debug information: in the module, or in a separate file.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object, ObjectSection, ReadRef};
use plimsoll_sys::path_lookup::real_path;

use super::binary;
use super::bytes::Bytes;
use super::headers::Headers;
use super::limit::Limit;
use crate::symbols::Source;

/// Maximum size in bytes of an uncompressed section, which is needed as a whole.
const MAX_SECTION_BYTES: u64 = 512 << 20;

/// Folder in which distributions install debug files.
pub const SYSTEM_DEBUG_FOLDER: &str = "/usr/lib/debug";

type Elf<'d, R> = ElfFile64<'d, Endianness, R>;

/// A file with debug information.
#[derive(Clone)]
pub(super) struct DebugFile {
    pub(super) path: PathBuf,
    pub(super) source: Arc<Source>,
}

impl DebugFile {
    /// Returns a text that identifies one state of one file: path, size and time of modification.
    pub(super) fn identity(&self) -> String {
        let modified = self.path.metadata().and_then(|metadata| metadata.modified()).ok();
        let modified = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let nanoseconds = modified.map_or(0, |since| since.as_nanos());
        format!("{} {} {nanoseconds}", self.path.display(), self.source.len())
    }
}

/// Finds the debug information of a module, in this order: the module itself, a file by its
/// build-id in one of `folders`, one by its `.gnu_debuglink` beside it or in `folders`.
pub(super) fn find<'d, R: ReadRef<'d>>(
    headers: &Headers<'d, R>,
    path: &Path,
    source: &Arc<Source>,
    folders: &[PathBuf],
) -> Option<DebugFile> {
    if headers.range(".debug_info").is_some() {
        return Some(DebugFile { path: path.to_owned(), source: source.clone() });
    }
    let build_id = headers.build_id();
    let link = headers.debug_link();
    let mut candidates = Vec::new();
    if let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) {
        let name = format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest));
        candidates.extend(folders.iter().map(|folder| folder.join(&name)));
    }
    if let Some((name, _)) = link
        && let Ok(path) = real_path(path)
        && let Some(folder) = path.parent()
    {
        let name = Path::new(OsStr::from_bytes(name));
        candidates.push(folder.join(name));
        candidates.push(folder.join(".debug").join(name));
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        candidates.extend(folders.iter().map(|root| root.join(inside).join(name)));
    }
    // A link may have the name of the module itself, for a file of that name in another folder.
    let is_module = |candidate: &Path| {
        let file = |path: &Path| Some((path.metadata().ok()?.dev(), path.metadata().ok()?.ino()));
        file(candidate).is_some_and(|it| file(path) == Some(it))
    };
    candidates.into_iter().filter(|candidate| !is_module(candidate)).find_map(|path| {
        let source = Source::open(&path)?;
        belongs(&source, build_id, link.map(|(_, checksum)| checksum))
            .then_some(DebugFile { path, source })
    })
}

/// Returns whether a debug file was split off from the module: by build-id, or by checksum if there
/// is no build-id.
fn belongs(source: &Arc<Source>, build_id: &[u8], checksum: Option<u32>) -> bool {
    let Some(facts) = binary::facts(source) else { return false };
    if !build_id.is_empty() || !facts.build_id.is_empty() {
        return facts.build_id == build_id;
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut offset = 0;
    while offset < source.len() {
        let count = (source.len() - offset).min(buffer.len() as u64) as usize;
        if !source.read(offset, &mut buffer[..count]) {
            return false;
        }
        hasher.update(&buffer[..count]);
        offset += count as u64;
    }
    checksum == Some(hasher.finalize())
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads one section of a file, decompressed; empty if the file has none.
pub(super) fn section<'d, R: ReadRef<'d>>(
    elf: &Elf<'d, R>,
    source: &Arc<Source>,
    name: &str,
    limit: &Limit,
) -> Bytes {
    let load = || {
        let section = elf.section_by_name(name)?;
        let range = section.compressed_file_range().ok()?;
        let end = range.offset.checked_add(range.compressed_size)?;
        let compressed = |most: u64| {
            // Decompression is slow and cannot be interrupted.
            if range.uncompressed_size > most || end > source.len() || limit.interrupts_now() {
                return None;
            }
            let mut bytes = vec![0; usize::try_from(range.compressed_size).ok()?];
            source.read(range.offset, &mut bytes).then_some(bytes)
        };
        let size = usize::try_from(range.uncompressed_size).ok()?;
        match range.format {
            CompressionFormat::None => Bytes::paged(source, range.offset..end, limit),
            CompressionFormat::Zlib => {
                let bytes = compressed(MAX_SECTION_BYTES)?;
                let whole = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&bytes, size);
                Some(Bytes::whole(whole.ok()?, limit))
            }
            CompressionFormat::Zstandard => {
                let bytes = compressed(MAX_SECTION_BYTES)?;
                Some(Bytes::whole(zstd::bulk::decompress(&bytes, size).ok()?, limit))
            }
            _ => None,
        }
    };
    load().unwrap_or_default()
}

/// Reads all DWARF sections of a file: by their names in a module, or in a file of split debug
/// information.
pub(super) fn dwarf(
    source: &Arc<Source>,
    is_split: bool,
    limit: &Limit,
) -> Option<gimli::Dwarf<Bytes>> {
    let cache = source.cache();
    let elf = Elf::parse(&cache).ok()?;
    gimli::Dwarf::load(|id| {
        let name = if is_split { id.dwo_name() } else { Some(id.name()) };
        let section = |name| section(&elf, source, name, limit);
        Ok::<_, gimli::Error>(name.map_or_else(Bytes::default, section))
    })
    .ok()
}

/// Reads a package of split debug information.
pub(super) fn package(source: &Arc<Source>, limit: &Limit) -> Option<gimli::DwarfPackage<Bytes>> {
    let cache = source.cache();
    let elf = Elf::parse(&cache).ok()?;
    gimli::DwarfPackage::load(
        |id| {
            let section = |name| section(&elf, source, name, limit);
            Ok::<_, gimli::Error>(id.dwo_name().map_or_else(Bytes::default, section))
        },
        Bytes::default(),
    )
    .ok()
}

/// Reads the debug information that several files share (dwz).
pub(super) fn supplement(
    debug: &DebugFile,
    folders: &[PathBuf],
    limit: &Limit,
) -> Option<gimli::Dwarf<Bytes>> {
    let cache = debug.source.cache();
    let elf = Elf::parse(&cache).ok()?;
    let (name, build_id) = elf.gnu_debugaltlink().ok().flatten()?;
    let (first, rest) = build_id.split_first()?;
    let by_id = format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest));
    let beside = debug.path.parent()?.join(OsStr::from_bytes(name));
    std::iter::once(beside).chain(folders.iter().map(|folder| folder.join(&by_id))).find_map(
        |path| {
            let source = Source::open(&path)?;
            (binary::facts(&source)?.build_id == build_id)
                .then(|| dwarf(&source, false, limit))
                .flatten()
        },
    )
}
