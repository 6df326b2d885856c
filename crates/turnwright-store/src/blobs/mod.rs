//! Stores long texts and file contents once each by their SHA-256, however many calls, cards and
//! sessions refer to them. A loaded key in the content of a file is left out, and put back when the
//! content is read while the key is loaded.

pub(crate) mod packed_json;
pub(crate) mod result_places;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use memchr::memmem;
use rusqlite::{Connection, OptionalExtension, Row, params};
use secrecy::ExposeSecret;

use super::{Result, StoreError};
use crate::database::execute;
use turnwright_types::hash::{hex, sha256};
use turnwright_types::redact;

/// The bits of the column `is_zlib`.
const COMPRESSED: i64 = 1;
const WITHOUT_KEYS: i64 = 2;
/// Stands before the digits and the NUL that mark the place of a key.
const KEY_MARK: &[u8] = b"\0turnwright-key:";
/// The length of these digits.
const KEY_DIGITS: usize = 16;

/// How the bytes of a blob are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlobFormat {
    /// Unchanged, because other programs read them through the view `tool_conversations`.
    Plain,
    /// Compressed, if that saves enough.
    Compressed,
    /// Compressed, with marks in place of the keys.
    WithoutKeys,
}

/// Stores the content of a file, which an undo restores.
pub(super) fn put_file_content(connection: &Connection, session: i64, bytes: &[u8]) -> Result<()> {
    if redact::bytes(bytes).is_none() {
        put(connection, session, bytes, BlobFormat::Compressed)?;
    } else if without_keys(bytes).is_some_and(|text| with_keys(&text).as_deref() == Some(bytes)) {
        put(connection, session, bytes, BlobFormat::WithoutKeys)?;
    }
    Ok(())
}

/// Replaces each key by its mark. Returns `None` if keys overlap.
fn without_keys(bytes: &[u8]) -> Option<Vec<u8>> {
    redact::replace_keys(bytes, |key| [KEY_MARK, key_digits(key).as_bytes(), b"\0"].concat())
}

/// Replaces each mark by its key. Returns `None` if the key is not loaded.
fn with_keys(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(bytes.len());
    let mut from = 0;
    let mut keys = HashMap::new();
    for start in memmem::find_iter(bytes, KEY_MARK) {
        let digits = start + KEY_MARK.len()..start + KEY_MARK.len() + KEY_DIGITS;
        let wanted = bytes.get(digits.clone())?;
        let key = keys
            .entry(wanted)
            .or_insert_with(|| redact::find_key(|key| key_digits(key).as_bytes() == wanted))
            .as_ref()?;
        whole.extend_from_slice(&bytes[from..start]);
        whole.extend_from_slice(key.expose_secret().as_bytes());
        from = digits.end + 1;
    }
    whole.extend_from_slice(bytes.get(from..)?);
    Some(whole)
}

/// Returns digits by which a key is found again. They reveal no more of it than the hash of the whole
/// content, which is stored beside them.
fn key_digits(key: &[u8]) -> String {
    hex(&sha256(key)[..KEY_DIGITS / 2])
}

/// Stores bytes and records that the session uses them. Returns the blob's id.
pub(super) fn put(
    connection: &Connection,
    session: i64,
    bytes: &[u8],
    format: BlobFormat,
) -> Result<i64> {
    let hash = sha256(bytes);
    let mut find = connection.prepare_cached("SELECT id, is_zlib FROM blobs WHERE hash = ?")?;
    let found =
        find.query_row([hash.as_slice()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let id = match found.optional()? {
        Some((id, flags)) => {
            if flags == COMPRESSED && format == BlobFormat::Plain {
                let update = "UPDATE blobs SET is_zlib = 0, bytes = ? WHERE id = ?";
                execute(connection, update, params![bytes, id])?;
            }
            id
        }
        None => {
            let (kept, mut flags) = match format {
                BlobFormat::WithoutKeys => {
                    (Cow::from(without_keys(bytes).unwrap_or_default()), WITHOUT_KEYS)
                }
                BlobFormat::Plain | BlobFormat::Compressed => (Cow::from(bytes), 0),
            };
            let compressed = if format == BlobFormat::Plain { None } else { compress(&kept) };
            flags |= if compressed.is_some() { COMPRESSED } else { 0 };
            connection
                .prepare_cached("INSERT INTO blobs (hash, is_zlib, bytes) VALUES (?, ?, ?)")?
                .insert(params![hash.as_slice(), flags, compressed.as_deref().unwrap_or(&kept)])?
        }
    };
    let insert = "INSERT OR IGNORE INTO blob_uses (session, blob) VALUES (?, ?)";
    execute(connection, insert, [session, id])?;
    Ok(id)
}

/// Stands in for a text that was lost when a damaged database was replaced.
const LOST_TEXT: &str = "[This text was lost: the session store was damaged.]";

/// The bytes of the blob with this id; `None` if they were lost with a damaged database.
pub(super) fn get(connection: &Connection, id: i64) -> Result<Option<Vec<u8>>> {
    let mut find =
        connection.prepare_cached("SELECT hash, is_zlib, bytes FROM blobs WHERE id = ?")?;
    Ok(find.query_row([id], |row| Ok(content(row))).optional()?.transpose()?.flatten())
}

/// The text of the blob with this id.
pub(super) fn get_text(connection: &Connection, id: i64) -> Result<String> {
    let Some(bytes) = get(connection, id)? else { return Ok(LOST_TEXT.to_owned()) };
    // Almost all texts are valid, and checking that is faster than replacing invalid bytes.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A text that is either in a column or in the blob with this id.
pub(super) fn text(
    connection: &Connection,
    text: Option<String>,
    id: Option<i64>,
) -> Result<Option<String>> {
    match (text, id) {
        (None, Some(id)) => Ok(Some(get_text(connection, id)?)),
        (text, _) => Ok(text),
    }
}

/// Returns the bytes with this SHA-256, if they are stored and the keys in them are loaded.
pub(super) fn by_hash(connection: &Connection, hash: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut find =
        connection.prepare_cached("SELECT hash, is_zlib, bytes FROM blobs WHERE hash = ?")?;
    Ok(find.query_row([hash], |row| Ok(content(row))).optional()?.transpose()?.flatten())
}

/// Returns true if the bytes with this SHA-256 are stored and the keys in them are loaded.
pub(super) fn is_readable(connection: &Connection, hash: &[u8]) -> Result<bool> {
    let mut find = connection.prepare_cached("SELECT is_zlib FROM blobs WHERE hash = ?")?;
    let flags: Option<i64> = find.query_row([hash], |row| row.get(0)).optional()?;
    match flags {
        Some(flags) if flags & WITHOUT_KEYS != 0 => Ok(by_hash(connection, hash)?.is_some()),
        flags => Ok(flags.is_some()),
    }
}

/// Returns the content of a row of `blobs`; `None` if a key in it is not loaded now. An undo writes it
/// into a file, so it must be what was stored.
pub(super) fn content(row: &Row<'_>) -> Result<Option<Vec<u8>>> {
    let hash: Vec<u8> = row.get("hash")?;
    let flags: i64 = row.get("is_zlib")?;
    let mut bytes = decompress(flags & COMPRESSED != 0, row.get("bytes")?)?;
    if flags & WITHOUT_KEYS != 0 {
        let Some(whole) = with_keys(&bytes) else { return Ok(None) };
        bytes = whole;
    }
    if hash == sha256(&bytes) {
        return Ok(Some(bytes));
    }
    Err(StoreError::Damaged("a long text differs from its hash".to_owned()))
}

/// Compresses the bytes; `None` if that saves little.
fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() + packed.len() / 8 < bytes.len())
}

fn decompress(is_compressed: bool, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !is_compressed {
        return Ok(bytes);
    }
    let mut whole = Vec::with_capacity(bytes.len() * 3);
    let read = ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut whole);
    read.map_err(|error| StoreError::Damaged(format!("a long text ({error})")))?;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database;

    #[test]
    fn bytes_come_back_whatever_form_they_lie_in() {
        let connection = database::open_in_memory().unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions (key, id, cwd, real_cwd, created_at, updated_at) \
                 VALUES (1, 's', '/', '/', 0, 0)",
            )
            .unwrap();
        let text = "a line of a file\n".repeat(1_000);
        let noise: Vec<u8> = (0..500_u64)
            .flat_map(|number| (number * number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .collect();
        for bytes in [text.as_bytes(), &noise, b""] {
            let id = put(&connection, 1, bytes, BlobFormat::Compressed).unwrap();
            assert_eq!(get(&connection, id).unwrap().unwrap(), bytes);
            assert_eq!(put(&connection, 1, bytes, BlobFormat::Plain).unwrap(), id);
            let kept: Vec<u8> = connection
                .query_row("SELECT bytes FROM blobs WHERE id = ?", [id], |row| row.get(0))
                .unwrap();
            assert_eq!(kept, bytes);
            assert_eq!(put(&connection, 1, bytes, BlobFormat::Compressed).unwrap(), id);
            assert_eq!(by_hash(&connection, &sha256(bytes)).unwrap().unwrap(), bytes);
        }
    }

    #[test]
    fn the_content_of_a_file_is_stored_without_keys_and_comes_back_with_them() {
        let connection = database::open_in_memory().unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions (key, id, cwd, real_cwd, created_at, updated_at) \
                 VALUES (1, 's', '/', '/', 0, 0)",
            )
            .unwrap();
        let key = "sk-canary-in-a-file-0123456789";
        redact::register_keys([key.to_owned()]).unwrap();
        for text in [
            format!("key = {key}\n"),
            format!("{key}{key}"),
            format!("\0\u{ff}{key}"),
            format!("{}{key} and [hidden:3fa2]", "many words ".repeat(100)),
        ] {
            put_file_content(&connection, 1, text.as_bytes()).unwrap();
            let stored: Vec<u8> = connection
                .query_row("SELECT bytes FROM blobs ORDER BY id DESC", [], |row| row.get(0))
                .unwrap();
            assert!(redact::bytes(&stored).is_none());
            let hash = sha256(text.as_bytes());
            assert_eq!(by_hash(&connection, &hash).unwrap().unwrap(), text.as_bytes());
        }
        let other = without_keys(format!("a {key}").as_bytes()).unwrap();
        let unknown = String::from_utf8(other)
            .unwrap()
            .replace(&key_digits(key.as_bytes()), "0".repeat(16).as_str());
        assert_eq!(with_keys(unknown.as_bytes()), None, "the key is not loaded");
    }
}
