//! Reads pack files: finds the offset of an object in the pack index, reads the entry there and applies deltas.
//! Compressed objects, loose ones too, are inflated with a size limit. Nothing is trusted: numbers are checked
//! before they are used.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use flate2::read::ZlibDecoder;

use super::{MAX_OBJECT_BYTES, ObjectId};
use turnwright_types::bounded_read::read_at_most;

/// The offset of the object ids in a pack index, after the header and the fan-out table.
const IDS_OFFSET: u64 = 8 + 256 * 4;
/// The most bytes before the compressed data: the size, and the offset or id of the base.
const MAX_HEADER_BYTES: usize = 48;

/// Reads from an offset until the buffer is full.
fn fill(file: &mut (impl Read + Seek), offset: u64, bytes: &mut [u8]) -> Option<()> {
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(bytes).ok()
}

/// Reads a fixed number of bytes.
fn read_array<const COUNT: usize>(
    file: &mut (impl Read + Seek),
    offset: u64,
) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    fill(file, offset, &mut bytes)?;
    Some(bytes)
}

/// The base of a pack entry that is a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaBase {
    /// It is not a delta but a blob.
    None,
    /// The entry at this offset of the same pack.
    Offset(u64),
    Id(ObjectId),
}

/// Finds the offset of an object in a pack index of version 2.
pub(crate) fn find_offset(index: &mut (impl Read + Seek), hash: &ObjectId) -> Option<u64> {
    let range = id_range(index, hash)?;
    let count = read_number(index, 8 + 255 * 4)?;
    if range.end > count {
        return None;
    }
    let position = find_id(index, hash, range)?;
    // After the ids follow 4-byte checksums, then 4-byte offsets, then 8-byte offsets.
    let places = IDS_OFFSET + count * 24;
    let place = read_number(index, places + position * 4)?;
    if place >> 31 == 0 {
        return Some(place);
    }
    let far = places + count * 4 + (place & 0x7fff_ffff) * 8;
    Some(u64::from_be_bytes(read_array(index, far)?))
}

/// Returns true if a pack index of version 2 lists the object with this id of 20 or 32 bytes. Blocks.
pub fn pack_index_lists(mut index: &File, id: &[u8]) -> bool {
    let range = id_range(&mut index, id);
    range.is_some_and(|range| find_id(&mut index, id, range).is_some())
}

/// Reads the positions of the ids that begin with the same byte.
fn id_range(index: &mut (impl Read + Seek), id: &[u8]) -> Option<Range<u64>> {
    if read_array(index, 0)? != *b"\xfftOc\0\0\0\x02" {
        return None;
    }
    let first = u64::from(*id.first()?);
    let start = if first == 0 { 0 } else { read_number(index, 8 + (first - 1) * 4)? };
    Some(start..read_number(index, 8 + first * 4)?)
}

/// Finds the position of an id. The ids are sorted.
fn find_id(index: &mut (impl Read + Seek), id: &[u8], mut range: Range<u64>) -> Option<u64> {
    let mut found = vec![0; id.len()];
    while range.start < range.end {
        let middle = u64::midpoint(range.start, range.end);
        fill(index, IDS_OFFSET + middle * id.len() as u64, &mut found)?;
        match found.as_slice().cmp(id) {
            Ordering::Less => range.start = middle + 1,
            Ordering::Greater => range.end = middle,
            Ordering::Equal => return Some(middle),
        }
    }
    None
}

fn read_number(index: &mut (impl Read + Seek), at: u64) -> Option<u64> {
    Some(u64::from(u32::from_be_bytes(read_array(index, at)?)))
}

/// Reads an entry of a pack: a blob, or a delta.
pub(crate) fn read_entry(
    pack: &mut (impl Read + Seek),
    offset: u64,
) -> Option<(DeltaBase, Vec<u8>)> {
    let mut head = Vec::new();
    pack.seek(SeekFrom::Start(offset)).ok()?;
    pack.by_ref().take(MAX_HEADER_BYTES as u64).read_to_end(&mut head).ok()?;
    let first = *head.first()?;
    let mut size = u64::from(first & 15);
    let mut length = 1;
    if first & 0x80 != 0 {
        let (more, taken) = read_varint(head.get(1..)?)?;
        size |= more.checked_mul(16)?;
        length += taken;
    }
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_OBJECT_BYTES)?;
    let rest = head.get(length..)?;
    let base = match first >> 4 & 7 {
        3 => DeltaBase::None,
        6 => {
            let (back, taken) = read_offset_varint(rest)?;
            length += taken;
            DeltaBase::Offset(offset.checked_sub(back).filter(|_| back > 0)?)
        }
        7 => {
            length += 20;
            DeltaBase::Id(*rest.first_chunk()?)
        }
        _ => return None,
    };
    pack.seek(SeekFrom::Start(offset.checked_add(length as u64)?)).ok()?;
    let bytes = inflate(BufReader::new(pack), size)?;
    (bytes.len() == size).then_some((base, bytes))
}

/// The bytes at the start that are a base-128 number.
fn varint_bytes(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    bytes.get(..=last)
}

/// Reads a little-endian base-128 number. Also returns its length.
fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let number = varint_bytes(bytes)?;
    let groups = number.iter().rev().map(|byte| u64::from(byte & 0x7f));
    Some((groups.fold(0, |value, group| value << 7 | group), number.len()))
}

/// Reads a number in the encoding of `OFS_DELTA`: base 128, big-endian, with one added for each
/// further byte so that each number has one encoding only. Also returns its length.
pub(super) fn read_offset_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let number = varint_bytes(bytes)?;
    let groups = number.iter().map(|byte| u64::from(byte & 0x7f));
    Some((groups.reduce(|value, group| (value + 1) << 7 | group)?, number.len()))
}

pub fn apply_delta(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let (from, taken) = read_varint(delta)?;
    let mut rest = delta.get(taken..)?;
    let (to, taken) = read_varint(rest)?;
    rest = rest.get(taken..)?;
    let to = usize::try_from(to).ok().filter(|size| *size <= MAX_OBJECT_BYTES)?;
    if from != base.len() as u64 {
        return None;
    }
    let mut result = Vec::new();
    while let Some(opcode) = rest.split_off_first() {
        if *opcode & 0x80 != 0 {
            let start = read_sparse_number(&mut rest, *opcode, 4)?;
            let length = match read_sparse_number(&mut rest, *opcode >> 4, 3)? {
                0 => 0x1_0000,
                length => length,
            };
            result.extend_from_slice(base.get(start..)?.get(..length)?);
        } else {
            // The instruction 0 is reserved.
            let count = usize::from(*opcode);
            result.extend_from_slice(rest.split_off(..count).filter(|_| count > 0)?);
        }
        if result.len() > to {
            return None;
        }
    }
    (result.len() == to).then_some(result)
}

/// Reads a little-endian number of which only the bytes whose bits are set are present.
fn read_sparse_number(rest: &mut &[u8], bits: u8, count: u8) -> Option<usize> {
    let mut value = 0;
    for at in (0..count).filter(|at| bits >> at & 1 == 1) {
        value |= usize::from(*rest.split_off_first()?) << (8 * at);
    }
    Some(value)
}

/// The most bytes of a loose object: incompressible data grows a little.
pub(super) const MAX_LOOSE_BYTES: u64 = (MAX_OBJECT_BYTES + MAX_OBJECT_BYTES / 64 + 1024) as u64;
/// The most bytes of the header of a loose object.
const MAX_LOOSE_HEADER_BYTES: usize = 32;

/// Parses a loose object that is a blob.
pub fn parse_loose_blob(compressed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = inflate(compressed, MAX_OBJECT_BYTES + MAX_LOOSE_HEADER_BYTES)?;
    let end = memchr::memchr(0, bytes.get(..bytes.len().min(MAX_LOOSE_HEADER_BYTES))?)?;
    let size = std::str::from_utf8(bytes.get(..end)?).ok()?.strip_prefix("blob ")?.parse();
    let content = bytes.split_off(end + 1);
    (size == Ok(content.len()) && content.len() <= MAX_OBJECT_BYTES).then_some(content)
}

/// Inflates data of at most `most` bytes.
fn inflate(compressed: impl Read, limit: usize) -> Option<Vec<u8>> {
    read_at_most(ZlibDecoder::new(compressed), limit as u64).ok()?
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    /// The beginning of an index, up to the ids.
    fn index_of(ids: &[Vec<u8>]) -> Vec<u8> {
        let mut index = b"\xfftOc\0\0\0\x02".to_vec();
        for byte in 0..=255 {
            let count = ids.iter().filter(|id| id[0] <= byte).count();
            index.extend(u32::try_from(count).unwrap().to_be_bytes());
        }
        index.extend(ids.concat());
        index
    }

    #[test]
    fn an_id_is_found_in_an_index_with_names_of_either_length() {
        for length in [20, 32] {
            let id = |first: u8, last: u8| {
                let mut id = vec![first; length];
                id[length - 1] = last;
                id
            };
            let listed = [id(0, 0), id(0, 1), id(7, 7), id(7, 9), id(255, 255)];
            for ids in [&listed[..], &listed[..1], &listed[4..], &[]] {
                let index = index_of(ids);
                let position = |id: &[u8]| {
                    let mut index = Cursor::new(index.as_slice());
                    let range = id_range(&mut index, id)?;
                    find_id(&mut index, id, range)
                };
                for (expected, id) in ids.iter().enumerate() {
                    assert_eq!(position(id), Some(expected as u64), "{id:?}");
                }
                for other in [id(0, 2), id(7, 8), id(8, 8), id(255, 254)] {
                    assert_eq!(position(&other), None, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_index_or_only_a_part_of_one_lists_nothing() {
        let id = vec![7; 20];
        let whole = index_of(std::slice::from_ref(&id));
        let mut newer = whole.clone();
        newer[7] = 3;
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        for (bytes, expected) in [
            (&whole[..], true),
            (&newer[..], false),
            (&whole[..whole.len() - 1], false),
            (&whole[..8], false),
            (&b""[..], false),
        ] {
            File::create(&path).unwrap().write_all(bytes).unwrap();
            let index = File::open(&path).unwrap();
            assert_eq!(pack_index_lists(&index, &id), expected, "{}", bytes.len());
            assert!(!pack_index_lists(&index, &[]));
        }
    }
}
