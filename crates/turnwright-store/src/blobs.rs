//! Stores long texts and file contents once each by their SHA-256, however many calls, cards and
//! sessions refer to them.

use std::io::{Read, Write};
use std::string::FromUtf8Error;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ring::digest::{SHA256, digest};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::StoreError;

/// How the bytes of a blob are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlobFormat {
    /// Unchanged, because other programs read them through the view `tool_conversations`.
    Plain,
    /// Compressed, if that saves enough.
    Compressed,
}

/// Stores bytes and records that the session uses them. Returns the blob's id.
pub(super) fn put(
    connection: &Connection,
    session: i64,
    bytes: &[u8],
    format: BlobFormat,
) -> Result<i64, StoreError> {
    let hash = digest(&SHA256, bytes);
    let mut find = connection.prepare_cached("SELECT id, is_zlib FROM blobs WHERE hash = ?")?;
    let row = |it: &Row<'_>| Ok((it.get(0)?, it.get(1)?));
    let id = match find.query_row([hash.as_ref()], row).optional()? {
        Some((id, is_compressed)) => {
            if is_compressed && format == BlobFormat::Plain {
                connection
                    .prepare_cached("UPDATE blobs SET is_zlib = 0, bytes = ? WHERE id = ?")?
                    .execute(params![bytes, id])?;
            }
            id
        }
        None => {
            let compressed = if format == BlobFormat::Compressed { compress(bytes) } else { None };
            let (is_compressed, kept) =
                (compressed.is_some(), compressed.as_deref().unwrap_or(bytes));
            connection
                .prepare_cached("INSERT INTO blobs (hash, is_zlib, bytes) VALUES (?, ?, ?)")?
                .insert(params![hash.as_ref(), is_compressed, kept])?
        }
    };
    connection
        .prepare_cached("INSERT OR IGNORE INTO blob_uses (session, blob) VALUES (?, ?)")?
        .execute([session, id])?;
    Ok(id)
}

/// What is read in the place of a text that was lost when a damaged database was replaced.
const LOST_TEXT: &str = "[This text was lost: the session store was damaged.]";

/// The bytes of the blob with this id; `None` if they were lost with a damaged database.
pub(super) fn get(connection: &Connection, id: i64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut find =
        connection.prepare_cached("SELECT hash, is_zlib, bytes FROM blobs WHERE id = ?")?;
    find.query_row([id], |it| Ok(content(it))).optional()?.transpose()
}

/// The text of the blob with this id.
pub(super) fn get_text(connection: &Connection, id: i64) -> Result<String, StoreError> {
    let Some(bytes) = get(connection, id)? else { return Ok(LOST_TEXT.to_owned()) };
    // Almost all texts are valid, and to find that out is faster than to replace what is not.
    let lossy = |it: FromUtf8Error| String::from_utf8_lossy(it.as_bytes()).into_owned();
    Ok(String::from_utf8(bytes).unwrap_or_else(lossy))
}

/// A text that is either in a column or in the blob with this id.
pub(super) fn text(
    connection: &Connection,
    text: Option<String>,
    id: Option<i64>,
) -> Result<Option<String>, StoreError> {
    match (text, id) {
        (None, Some(id)) => Ok(Some(get_text(connection, id)?)),
        (text, _) => Ok(text),
    }
}

/// The bytes of a hash in hexadecimal.
pub(super) fn parse_hash(hash: &str) -> Option<Vec<u8>> {
    let digit = |it: usize| u8::from_str_radix(hash.get(it * 2..it * 2 + 2)?, 16).ok();
    (0..hash.len() / 2).map(digit).collect()
}

/// The bytes with this SHA-256, if they are stored.
pub(super) fn by_hash(connection: &Connection, hash: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let mut find =
        connection.prepare_cached("SELECT hash, is_zlib, bytes FROM blobs WHERE hash = ?")?;
    find.query_row([hash], |it| Ok(content(it))).optional()?.transpose()
}

/// The content of a row of `blobs`. An undo writes it into a file, so it must be what was stored.
pub(super) fn content(row: &Row<'_>) -> Result<Vec<u8>, StoreError> {
    let hash: Vec<u8> = row.get("hash")?;
    let bytes = decompress(row.get("is_zlib")?, row.get("bytes")?)?;
    if digest(&SHA256, &bytes).as_ref() == hash {
        return Ok(bytes);
    }
    Err(StoreError::Damaged("a long text differs from its hash".to_owned()))
}

/// Compresses the bytes; `None` if that saves little.
fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|it| it.len() + it.len() / 8 < bytes.len())
}

fn decompress(is_compressed: bool, bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if !is_compressed {
        return Ok(bytes);
    }
    let mut whole = Vec::with_capacity(bytes.len() * 3);
    let read = ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut whole);
    read.map_err(|it| StoreError::Damaged(format!("a long text ({it})")))?;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn bytes_come_back_whatever_form_they_lie_in() {
        let connection = schema::open_writer(None).unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions (key, id, cwd, real_cwd, created_at, updated_at) \
                 VALUES (1, 's', '/', '/', 0, 0)",
            )
            .unwrap();
        let text = "a line of a file\n".repeat(1_000);
        let noise: Vec<u8> = (0..500_u64)
            .flat_map(|it| (it * it).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .collect();
        for bytes in [text.as_bytes(), &noise, b""] {
            let id = put(&connection, 1, bytes, BlobFormat::Compressed).unwrap();
            assert_eq!(get(&connection, id).unwrap().unwrap(), bytes);
            assert_eq!(put(&connection, 1, bytes, BlobFormat::Plain).unwrap(), id);
            let kept: Vec<u8> = connection
                .query_row("SELECT bytes FROM blobs WHERE id = ?", [id], |it| it.get(0))
                .unwrap();
            assert_eq!(kept, bytes);
            assert_eq!(put(&connection, 1, bytes, BlobFormat::Compressed).unwrap(), id);
            let hash = digest(&SHA256, bytes);
            assert_eq!(by_hash(&connection, hash.as_ref()).unwrap().unwrap(), bytes);
        }
    }
}
