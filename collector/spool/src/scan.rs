//! Finding frames without an index: from header to header, and where there is none, by searching.

use std::io::{self, Read, Seek};

use super::PREAMBLE_BYTES;
use super::frame::{HEADER_BYTES, Header, Kind};
use super::index::{FrameInfo, read_trailer};
use super::reader::{Cause, Damage, Source};

/// All frames but those of indices, and what cannot be read, each in file order.
///
/// Finds frames by their headers. A header with a correct checksum is accepted; frames do not
/// overlap. If no frame begins at the expected offset, the previous frame may have lost bytes: the
/// search begins behind its header.
pub(super) fn frames<R: Read + Seek>(
    source: &mut Source<R>,
) -> io::Result<(Vec<FrameInfo>, Vec<Damage>)> {
    let mut frames: Vec<FrameInfo> = Vec::new();
    let mut damages = Vec::new();
    let mut at = PREAMBLE_BYTES as u64;
    while at < source.length {
        let left = source.length - at;
        let head = source.available(at, HEADER_BYTES)?;
        let header = Header::parse(head);
        let search_from = match header {
            Some(header) if header.frame_bytes() <= left => {
                let (stream, sequence) = (header.stream, header.sequence);
                let bytes = header.frame_bytes();
                frames.push(FrameInfo { stream, sequence, offset: at, bytes, items: None });
                if stream.kind == Kind::Index && !is_whole(source, at, header)? {
                    // Nobody will read it later.
                    let frame = Some((stream, sequence));
                    damages.push(Damage { offset: at, frame, cause: Cause::Payload });
                }
                at += bytes;
                continue;
            }
            Some(header) => {
                let frame = Some((header.stream, header.sequence));
                damages.push(Damage { offset: at, frame, cause: Cause::CutOff });
                at + HEADER_BYTES as u64
            }
            None if read_trailer(head).is_some() => break,
            None => match frames.last() {
                Some(last) if last.offset + last.bytes == at => last.offset + HEADER_BYTES as u64,
                _ => at,
            },
        };
        let found = find(source, search_from)?;
        let end = found.unwrap_or(source.length);
        if end < at {
            if let Some(last) = frames.pop() {
                let frame = Some((last.stream, last.sequence));
                damages.push(Damage { offset: last.offset, frame, cause: Cause::Overlapped });
            }
        } else if header.is_none() {
            damages.push(Damage { offset: at, frame: None, cause: Cause::NoHeader(end - at) });
        }
        at = end;
    }
    frames.retain(|frame| frame.stream.kind != Kind::Index);
    Ok((frames, damages))
}

fn is_whole<R: Read + Seek>(source: &mut Source<R>, at: u64, header: Header) -> io::Result<bool> {
    let length = header.frame_bytes() as usize;
    let bytes = source.available(at, length)?;
    Ok(bytes.get(HEADER_BYTES..length).is_some_and(|packed| header.fits(packed)))
}

/// Returns the offset of the next header.
fn find<R: Read + Seek>(source: &mut Source<R>, from: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    loop {
        let bytes = source.available(at, HEADER_BYTES)?;
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        match Header::find_magic(bytes) {
            // Its first bytes may be the last of these.
            None => at += (bytes.len() - 3) as u64,
            Some(place) => {
                at += place as u64;
                if Header::parse(source.available(at, HEADER_BYTES)?).is_some() {
                    return Ok(Some(at));
                }
                at += 1;
            }
        }
    }
}
