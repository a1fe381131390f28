//! Arrays of numbers in one file, as `numpy.savez` writes and `numpy.load` reads them: a ZIP
//! archive, without compression, of one file in numpy's form `.npy` (version 1.0) for each array.
//! The first index of an array varies fastest.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rawzip::{CompressionMethod, ErrorKind, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveWriter};

/// Size of a number, in bytes.
pub const NUMBER_BYTES: usize = 4;
/// Last part of the names of files in the archive; the part before it is the array's name.
const SUFFIX: &str = ".npy";
/// Begin of a file in numpy's form.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// The numbers of an array begin at a multiple of this offset in its file, in bytes.
const ALIGNMENT: usize = 64;
/// Maximum number of integers in a list.
const MAX_LISTED: u64 = 64 << 20;
/// Number of bytes that are copied at once.
const PIECE_BYTES: u64 = 256 << 10;

/// Type of an array's numbers, of [`NUMBER_BYTES`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Little-endian floats.
    Float,
    /// Little-endian integers without sign.
    Integer,
}

/// Place of the numbers of an array that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// The numbers themselves.
    Given(Vec<u8>),
    /// Offset at which the numbers begin in the file of kept numbers, in bytes.
    Kept(u64),
}

/// An array that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Name by which a script finds the array.
    pub name: String,
    /// Type of the numbers.
    pub kind: Kind,
    /// Sizes, the fastest index first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub numbers: Numbers,
}

impl Array {
    /// Builds an array of floats.
    pub fn floats(name: &str, shape: &[usize], numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self::new(name, Kind::Float, shape, Numbers::Given(bytes))
    }

    /// Builds a list of integers.
    pub fn integers(name: &str, numbers: impl Iterator<Item = u32>) -> Self {
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        let shape = [bytes.len() / NUMBER_BYTES];
        Self::new(name, Kind::Integer, &shape, Numbers::Given(bytes))
    }

    /// Builds an array.
    pub fn new(name: &str, kind: Kind, shape: &[usize], numbers: Numbers) -> Self {
        Self { name: name.to_owned(), kind, shape: shape.to_vec(), numbers }
    }
}

/// Writes arrays; `kept` holds their kept numbers.
///
/// # Errors
/// Those of reading and writing.
pub fn write(to: &mut dyn Write, arrays: &[Array], kept: Option<&File>) -> io::Result<()> {
    let mut archive = ZipArchiveWriter::new(to);
    for array in arrays {
        let (mut entry, config) =
            archive.new_file(format!("{}{SUFFIX}", array.name)).start().map_err(error)?;
        let mut file = config.wrap(&mut entry);
        file.write_all(&header(array.kind, &array.shape))?;
        match (&array.numbers, kept) {
            (Numbers::Given(bytes), _) => file.write_all(bytes)?,
            (Numbers::Kept(begin), Some(kept)) => {
                let bytes = array.shape.iter().product::<usize>() * NUMBER_BYTES;
                copy(kept, *begin..begin + bytes as u64, &mut file)?;
            }
            (Numbers::Kept(_), None) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let (_, descriptor) = file.finish().map_err(error)?;
        entry.finish(descriptor).map_err(error)?;
    }
    archive.finish().map_err(error)?;
    Ok(())
}

fn copy(from: &File, range: Range<u64>, to: &mut dyn Write) -> io::Result<()> {
    let mut piece = Vec::new();
    let mut begin = range.start;
    while begin < range.end {
        piece.resize((range.end - begin).min(PIECE_BYTES) as usize, 0);
        from.read_exact_at(&mut piece, begin)?;
        to.write_all(&piece)?;
        begin += piece.len() as u64;
    }
    Ok(())
}

/// Returns what a file in numpy's form holds before its numbers.
fn header(kind: Kind, shape: &[usize]) -> Vec<u8> {
    let kind = match kind {
        Kind::Float => "<f4",
        Kind::Integer => "<u4",
    };
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let mut text =
        format!("{{'descr': '{kind}', 'fortran_order': True, 'shape': ({}), }}", sizes.trim_end());
    let length_bytes = size_of::<u16>();
    let before = MAGIC.len() + length_bytes;
    let whole = (before + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.extend(std::iter::repeat_n(' ', whole - before - text.len() - 1));
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, &length, text.as_bytes()].concat()
}

/// The arrays of a file that [`write()`] has written.
#[derive(Debug)]
pub struct Arrays {
    file: File,
    /// Name of each array and range of its file in the archive, in bytes.
    found: Vec<(String, Range<u64>)>,
}

impl Arrays {
    /// Finds the arrays of a file.
    ///
    /// # Errors
    /// Those of the file. A file that holds no such arrays is [`io::ErrorKind::InvalidData`], with
    /// the end of a sentence.
    pub fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer).map_err(error)?;
        let mut found = Vec::new();
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(error)? {
            let path = std::str::from_utf8(entry.file_path().as_bytes()).ok();
            let name = path.and_then(|path| path.strip_suffix(SUFFIX));
            let name = name.ok_or_else(|| damaged("it holds other files than arrays"))?;
            if entry.compression_method() != CompressionMethod::STORE {
                return Err(damaged("its arrays are compressed"));
            }
            let (begin, end) =
                archive.get_entry(entry.wayfinder()).map_err(error)?.compressed_data_range();
            if begin > end || end > length {
                return Err(damaged("it ends early"));
            }
            found.push((name.to_owned(), begin..end));
        }
        Ok(Self { file: archive.into_inner().into_inner(), found })
    }

    /// Returns the names of the arrays in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|(name, _)| name.as_str())
    }

    /// Reads a list of integers.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn integers(&self, name: &str) -> io::Result<Vec<u32>> {
        let range = self.range(name)?;
        let mut begin = [0; MAGIC.len() + size_of::<u16>()];
        self.file.read_exact_at(&mut begin, range.start)?;
        let [.., low, high] = begin;
        let before = begin.len() as u64 + u64::from(u16::from_le_bytes([low, high]));
        let count = (range.end - range.start).saturating_sub(before) / NUMBER_BYTES as u64;
        if count > MAX_LISTED {
            return Err(strange(name));
        }
        let begin = self.numbers(name, Kind::Integer, &[count as usize])?;
        let mut bytes = vec![0; count as usize * NUMBER_BYTES];
        self.file.read_exact_at(&mut bytes, begin)?;
        let (words, _) = bytes.as_chunks::<NUMBER_BYTES>();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Returns the offset of an array's numbers in the file, in bytes.
    ///
    /// # Errors
    /// As of [`Self::open`], also if the array has another type or other sizes.
    pub fn numbers(&self, name: &str, kind: Kind, shape: &[usize]) -> io::Result<u64> {
        let range = self.range(name)?;
        let expected = header(kind, shape);
        let numbers = shape.iter().try_fold(NUMBER_BYTES, |bytes, size| bytes.checked_mul(*size));
        let whole = numbers.and_then(|bytes| bytes.checked_add(expected.len()));
        if whole.is_none_or(|whole| whole as u64 != range.end - range.start) {
            return Err(strange(name));
        }
        let mut found = vec![0; expected.len()];
        self.file.read_exact_at(&mut found, range.start)?;
        match found == expected {
            true => Ok(range.start + expected.len() as u64),
            false => Err(strange(name)),
        }
    }

    /// Reads floats that begin at an offset of the file, in bytes.
    ///
    /// # Errors
    /// Those of the file.
    pub fn floats(&self, begin: u64, floats: &mut [f32]) -> io::Result<()> {
        let mut bytes = vec![0; size_of_val(floats)];
        self.file.read_exact_at(&mut bytes, begin)?;
        let (words, _) = bytes.as_chunks::<NUMBER_BYTES>();
        for (float, word) in floats.iter_mut().zip(words) {
            *float = f32::from_le_bytes(*word);
        }
        Ok(())
    }

    fn range(&self, name: &str) -> io::Result<Range<u64>> {
        let found = self.found.iter().find(|(it, _)| it == name);
        found.map(|(_, range)| range.clone()).ok_or_else(|| damaged(&format!("it has no {name}")))
    }
}

fn error(error: rawzip::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::IO(error) => error,
        kind => damaged(&format!("it is no archive ({kind})")),
    }
}

fn strange(name: &str) -> io::Error {
    damaged(&format!("its array {name} has another type or size"))
}

fn damaged(how: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, how)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn written() -> Vec<u8> {
        let kept = file(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0].map(f32::to_le_bytes).concat());
        let arrays = [
            Array::integers("list", [7, 1 << 31].into_iter()),
            Array::floats("none", &[3, 0], &[]),
            Array::new("kept", Kind::Float, &[2, 2], Numbers::Kept(8)),
        ];
        let mut bytes = Vec::new();
        write(&mut bytes, &arrays, Some(&kept)).unwrap();
        bytes
    }

    fn floats(arrays: &Arrays) -> io::Result<[f32; 4]> {
        let mut floats = [0.0; 4];
        arrays.floats(arrays.numbers("kept", Kind::Float, &[2, 2])?, &mut floats)?;
        Ok(floats)
    }

    #[test]
    fn what_is_written_is_read() {
        let arrays = Arrays::open(file(&written())).unwrap();
        assert!(arrays.names().eq(["list", "none", "kept"]));
        assert_eq!(arrays.integers("list").unwrap(), [7, 1 << 31]);
        assert!(arrays.numbers("none", Kind::Float, &[3, 0]).is_ok());
        assert_eq!(floats(&arrays).unwrap(), [2.0, 3.0, 4.0, 5.0]);
        for (name, kind, shape) in [
            ("kept", Kind::Float, [4, 1]),
            ("kept", Kind::Integer, [2, 2]),
            ("kept", Kind::Float, [usize::MAX, 2]),
            ("lost", Kind::Float, [2, 2]),
        ] {
            let error = arrays.numbers(name, kind, &shape).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        assert!(arrays.integers("kept").is_err());
    }

    #[test]
    fn damage_is_an_error_or_another_number() {
        let whole = written();
        let read = |bytes: &[u8]| -> io::Result<()> {
            let arrays = Arrays::open(file(bytes))?;
            arrays.integers("list")?;
            floats(&arrays).map(drop)
        };
        for at in 0..whole.len() {
            assert!(read(&whole[..at]).is_err(), "{at}");
            for change in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                // Nothing is said of the outcome: some bytes are numbers.
                drop(read(&bytes));
            }
        }
    }
}
