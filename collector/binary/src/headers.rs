//! The headers of a module's file: its facts without the symbols, which can take megabytes.

use object::elf::{
    ELF_NOTE_GNU, EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, ProgramHeader64, SectionHeader64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{Endianness, ReadRef, elf};

type Section = SectionHeader64<Endianness>;

/// The headers of a 64-bit ELF file.
pub(super) struct Headers<'d, R: ReadRef<'d>> {
    data: R,
    header: &'d FileHeader64<Endianness>,
    endian: Endianness,
    segments: &'d [ProgramHeader64<Endianness>],
    sections: SectionTable<'d, FileHeader64<Endianness>, R>,
}

/// A loaded segment of the file.
pub(super) struct Load {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl<'d, R: ReadRef<'d>> Headers<'d, R> {
    /// Reads the headers; `None` if the file is not a 64-bit ELF file.
    pub(super) fn parse(data: R) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let sections = header.sections(endian, data).ok()?;
        Some(Self { data, header, endian, segments, sections })
    }

    /// Returns whether the file is for this machine.
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.header.e_machine(self.endian) == EM_X86_64
    }

    /// Returns the loaded segments.
    pub(super) fn loads(&self) -> impl Iterator<Item = Load> {
        let loads = self.segments.iter().filter(|it| it.p_type(self.endian) == elf::PT_LOAD);
        loads.map(|it| Load {
            address: it.p_vaddr(self.endian),
            offset: it.p_offset(self.endian),
            size: it.p_filesz(self.endian),
        })
    }

    /// Returns the build-id; empty if the file has none.
    pub(super) fn build_id(&self) -> &'d [u8] {
        let (endian, data) = (self.endian, self.data);
        let in_sections = self.sections.iter().filter_map(|it| it.notes(endian, data).ok()?);
        // A file may have been stripped of its section headers.
        let segments = if self.sections.is_empty() { self.segments } else { &[] };
        let in_segments = segments.iter().filter_map(|it| it.notes(endian, data).ok()?);
        for mut notes in in_sections.chain(in_segments) {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                    return note.desc();
                }
            }
        }
        &[]
    }

    /// Returns whether there is a section of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    /// Returns the address, file offset and size of the section of this name; `None` if the file
    /// has no bytes of it.
    pub(super) fn range(&self, name: &str) -> Option<(u64, u64, u64)> {
        let section = self.section(name)?;
        let (offset, size) = section.file_range(self.endian)?;
        Some((section.sh_addr(self.endian), offset, size))
    }

    /// Returns addresses and sizes of all sections with names that begin with `start`.
    pub(super) fn beginning(&self, start: &str) -> impl Iterator<Item = (u64, u64)> {
        let alike = self.sections.iter().filter(move |section| {
            let name = self.sections.section_name(self.endian, section);
            name.is_ok_and(|name| name.starts_with(start.as_bytes()))
        });
        alike.map(|section| (section.sh_addr(self.endian), section.sh_size(self.endian)))
    }

    /// Returns the name and the checksum of the separate file of debug information.
    pub(super) fn debug_link(&self) -> Option<(&'d [u8], u32)> {
        let bytes = self.section(".gnu_debuglink")?.data(self.endian, self.data).ok()?;
        let length = bytes.iter().position(|byte| *byte == 0)?;
        let checksum = bytes.get((length + 1).next_multiple_of(4)..)?.first_chunk()?;
        Some((&bytes[..length], u32::from_le_bytes(*checksum)))
    }

    fn section(&self, name: &str) -> Option<&'d Section> {
        let found = self.sections.section_by_name(self.endian, name.as_bytes());
        found.map(|(_, section)| section)
    }
}
