//! Hashes of contents and names, and their hexadecimal digits.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::io::{self, Read};

use ring::digest::{Context, Digest, SHA256, digest};

/// The bytes of a reader that are hashed at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Hashes bytes with SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    to_array(digest(&SHA256, bytes))
}

/// Hashes bytes with SHA-256 and formats the hash as hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// Hashes everything that a reader returns with SHA-256. Returns the number of bytes, too.
pub fn sha256_of_reader(mut reader: impl Read) -> io::Result<([u8; 32], u64)> {
    let mut context = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut size = 0;
    loop {
        let count = reader.read(&mut chunk)?;
        if count == 0 {
            return Ok((to_array(context.finish()), size));
        }
        context.update(&chunk[..count]);
        size += count as u64;
    }
}

fn to_array(digest: Digest) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Formats bytes, such as a hash, as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [hex_digit(byte >> 4), hex_digit(byte & 15)]).collect()
}

fn hex_digit(value: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(value)])
}

/// Parses pairs of hexadecimal digits. Returns `None` if one of them is not a number; a single character at the end
/// is ignored.
pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = (0..text.len() / 2).map(|index| text.get(index * 2..index * 2 + 2));
    pairs.map(|digits| u8::from_str_radix(digits?, 16).ok()).collect()
}

/// Hashes bytes with FNV-1a, which is the same in every version and on every platform.
pub fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Like [`fnv1a`], with 32 bits.
pub fn fnv1a_32<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u32 {
    bytes
        .into_iter()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Hashes a value with the standard library's hasher, without a random state. Another version of the standard
/// library may hash in another way.
pub fn std_hash(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    #[test]
    fn contents_have_their_sha_256_whether_they_are_in_memory_or_read() {
        for (bytes, expected) in [
            (Vec::new(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc".to_vec(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                vec![b'x'; 200_000],
                "91e3faafd322bcdf160f3f0ce886acb092b9b9e2a1e8526b40f21a8898a8700b",
            ),
        ] {
            assert_eq!(sha256_hex(&bytes), expected);
            let (first, second) = bytes.split_at(bytes.len() / 3);
            let (hash, size) = sha256_of_reader(first.chain(second)).unwrap();
            assert_eq!((hash, size), (sha256(&bytes), bytes.len() as u64));
        }
    }

    #[test]
    fn hexadecimal_digits_are_written_in_lower_case_and_read_in_both() {
        for (bytes, digits) in
            [(&b""[..], ""), (&b"\0"[..], "00"), (&b"\x0a\xff\x10"[..], "0aff10")]
        {
            assert_eq!(hex(bytes), digits);
            assert_eq!(parse_hex(digits).as_deref(), Some(bytes));
            assert_eq!(parse_hex(&digits.to_uppercase()).as_deref(), Some(bytes));
        }
        for (text, expected) in [
            ("a", Some(vec![])),
            ("0aff1", Some(vec![0x0a, 0xff])),
            ("0x", None),
            (" 0", None),
            ("é", None),
            ("aé0", None),
        ] {
            assert_eq!(parse_hex(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_have_the_published_hashes_of_fnv() {
        for (text, long, short) in [
            ("", 0xcbf2_9ce4_8422_2325, 0x811c_9dc5),
            ("a", 0xaf63_dc4c_8601_ec8c, 0xe40c_292c),
            ("foobar", 0x8594_4171_f739_67e8, 0xbf9c_f968),
        ] {
            assert_eq!((fnv1a(text.as_bytes()), fnv1a_32(text.as_bytes())), (long, short));
        }
    }

    #[test]
    fn the_hash_of_a_value_is_that_of_the_standard_library() {
        let mut hasher = DefaultHasher::new();
        assert_eq!(std_hash(()), hasher.finish());
        ("a", 1_u8).hash(&mut hasher);
        assert_eq!(std_hash(("a", 1_u8)), hasher.finish());
        assert_eq!(std_hash("a".to_owned()), std_hash("a"));
        assert_ne!(std_hash("a"), std_hash("b"));
    }
}
