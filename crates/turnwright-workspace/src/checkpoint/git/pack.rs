//! The pieces of a pack: where its index says that one is, what it holds, and what a delta makes of
//! another. Nothing is taken for true: numbers are looked at before they are used.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use super::zlib::unpack;
use super::{Hash, MOST};

/// Where the names begin in an index of a pack: behind its head and 256 sums.
const NAMES: u64 = 8 + 256 * 4;
/// Bytes before what is packed: the size, and how far back the base is or its name.
const MOST_HEAD: usize = 48;

/// Something that is read from anywhere.
pub(crate) trait Bytes {
    /// From this byte on.
    fn read_from(&self, offset: u64) -> Option<impl Read>;

    /// That many bytes.
    fn at<const COUNT: usize>(&self, offset: u64) -> Option<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.read_from(offset)?.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

impl Bytes for File {
    fn read_from(&self, offset: u64) -> Option<impl Read> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset)).ok()?;
        Some(file)
    }
}

impl Bytes for &[u8] {
    fn read_from(&self, offset: u64) -> Option<impl Read> {
        self.get(usize::try_from(offset).ok()?..)
    }
}

/// What a piece is a change of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Of nothing: it is the content of a file.
    None,
    /// Of what lies at this place of the same pack.
    At(u64),
    /// Of the object of this name.
    Named(Hash),
}

/// Where an index, of version 2, says that an object is.
pub(crate) fn offset(index: &impl Bytes, hash: &Hash) -> Option<u64> {
    if index.at(0)? != *b"\xfftOc\0\0\0\x02" {
        return None;
    }
    let number = |at: u64| Some(u64::from(u32::from_be_bytes(index.at(at)?)));
    let first = u64::from(hash[0]);
    let mut low = if first == 0 { 0 } else { number(8 + (first - 1) * 4)? };
    let mut high = number(8 + first * 4)?;
    let count = number(8 + 255 * 4)?;
    if high > count {
        return None;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        let found: Hash = index.at(NAMES + middle * 20)?;
        match found.cmp(hash) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                // Behind the names stand sums of four bytes, then places of four, then of eight.
                let places = NAMES + count * 24;
                let place = number(places + middle * 4)?;
                if place >> 31 == 0 {
                    return Some(place);
                }
                let far = places + count * 4 + (place & 0x7fff_ffff) * 8;
                return Some(u64::from_be_bytes(index.at(far)?));
            }
        }
    }
    None
}

/// What lies at a place of a pack: the content of a file, or the delta of one.
pub(crate) fn piece(pack: &impl Bytes, offset: u64) -> Option<(Base, Vec<u8>)> {
    let mut head = Vec::new();
    pack.read_from(offset)?.take(MOST_HEAD as u64).read_to_end(&mut head).ok()?;
    let first = *head.first()?;
    let (mut size, mut length) = (u64::from(first & 15), 1);
    if first & 0x80 != 0 {
        let (more, taken) = varint(head.get(1..)?)?;
        size |= more.checked_mul(16)?;
        length += taken;
    }
    let size = usize::try_from(size).ok().filter(|it| *it <= MOST)?;
    let rest = head.get(length..)?;
    let base = match first >> 4 & 7 {
        3 => Base::None,
        6 => {
            let (back, taken) = distance(rest)?;
            length += taken;
            Base::At(offset.checked_sub(back).filter(|_| back > 0)?)
        }
        7 => {
            length += 20;
            Base::Named(*rest.first_chunk()?)
        }
        _ => return None,
    };
    let packed = pack.read_from(offset.checked_add(length as u64)?)?;
    let bytes = unpack(BufReader::new(packed), size)?;
    (bytes.len() == size).then_some((base, bytes))
}

/// Seven bits a byte, the lowest first; and how many bytes that were.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// Seven bits a byte, the highest first, and each further byte counts one more, so that no number
/// can be written twice; and how many bytes that were.
pub(super) fn distance(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        let above = if at == 0 { 0 } else { (value + 1) << 7 };
        value = above | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// What a delta makes of its base.
pub(crate) fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let (from, taken) = varint(delta)?;
    let mut rest = delta.get(taken..)?;
    let (to, taken) = varint(rest)?;
    rest = rest.get(taken..)?;
    let to = usize::try_from(to).ok().filter(|it| *it <= MOST)?;
    if from != base.len() as u64 {
        return None;
    }
    let mut made = Vec::new();
    while let Some((order, after)) = rest.split_first() {
        rest = after;
        if *order & 0x80 != 0 {
            let start = field(&mut rest, *order, 4)?;
            let length = match field(&mut rest, *order >> 4, 3)? {
                0 => 0x1_0000,
                length => length,
            };
            made.extend_from_slice(base.get(start..)?.get(..length)?);
        } else {
            // A zero is kept for later.
            let count = usize::from(*order);
            let (new, after) = rest.split_at_checked(count).filter(|_| count > 0)?;
            made.extend_from_slice(new);
            rest = after;
        }
        if made.len() > to {
            return None;
        }
    }
    (made.len() == to).then_some(made)
}

/// A number of which only the bytes are there whose bits are set.
fn field(rest: &mut &[u8], bits: u8, count: u8) -> Option<usize> {
    let mut value = 0;
    for at in (0..count).filter(|at| bits >> at & 1 == 1) {
        let (byte, after) = rest.split_first()?;
        value |= usize::from(*byte) << (8 * at);
        *rest = after;
    }
    Some(value)
}
