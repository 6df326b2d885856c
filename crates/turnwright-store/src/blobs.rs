//! Long texts and the contents of files: each once, by its SHA-256, whatever the number of calls,
//! cards and sessions that hold it.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ring::digest::{SHA256, digest};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::StoreError;

/// How bytes lie in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are: other programs read them through `tool_conversations`.
    Plain,
    /// Smaller, where that is worth it.
    Small,
}

/// Keeps bytes, and notes that the session needs them.
pub(super) fn put(
    connection: &Connection,
    session: i64,
    bytes: &[u8],
    form: Form,
) -> Result<i64, StoreError> {
    let hash = digest(&SHA256, bytes);
    let mut find = connection.prepare_cached("SELECT id, is_zlib FROM blobs WHERE hash = ?")?;
    let row = |it: &Row<'_>| Ok((it.get(0)?, it.get(1)?));
    let id = match find.query_row([hash.as_ref()], row).optional()? {
        Some((id, is_small)) => {
            if is_small && form == Form::Plain {
                connection
                    .prepare_cached("UPDATE blobs SET is_zlib = 0, bytes = ? WHERE id = ?")?
                    .execute(params![bytes, id])?;
            }
            id
        }
        None => {
            let small = if form == Form::Small { small(bytes) } else { None };
            let (is_small, kept) = (small.is_some(), small.as_deref().unwrap_or(bytes));
            connection
                .prepare_cached("INSERT INTO blobs (hash, is_zlib, bytes) VALUES (?, ?, ?)")?
                .insert(params![hash.as_ref(), is_small, kept])?
        }
    };
    connection
        .prepare_cached("INSERT OR IGNORE INTO blob_uses (session, blob) VALUES (?, ?)")?
        .execute([session, id])?;
    Ok(id)
}

/// The bytes of that number.
pub(super) fn get(connection: &Connection, id: i64) -> Result<Vec<u8>, StoreError> {
    let mut find = connection.prepare_cached("SELECT is_zlib, bytes FROM blobs WHERE id = ?")?;
    let (is_small, bytes) = find.query_row([id], |it| Ok((it.get(0)?, it.get(1)?)))?;
    whole(is_small, bytes)
}

/// The bytes with that SHA-256, if they are there.
pub(super) fn by_hash(connection: &Connection, hash: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let mut find = connection.prepare_cached("SELECT is_zlib, bytes FROM blobs WHERE hash = ?")?;
    let found = find.query_row([hash], |it| Ok((it.get(0)?, it.get(1)?))).optional()?;
    found.map(|(is_small, bytes)| whole(is_small, bytes)).transpose()
}

/// The bytes in less room; `None` if it would not be much less.
fn small(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|it| it.len() + it.len() / 8 < bytes.len())
}

fn whole(is_small: bool, bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if !is_small {
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
        let connection = schema::writer(None).unwrap();
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
            let id = put(&connection, 1, bytes, Form::Small).unwrap();
            assert_eq!(get(&connection, id).unwrap(), bytes);
            assert_eq!(put(&connection, 1, bytes, Form::Plain).unwrap(), id);
            let kept: Vec<u8> = connection
                .query_row("SELECT bytes FROM blobs WHERE id = ?", [id], |it| it.get(0))
                .unwrap();
            assert_eq!(kept, bytes);
            assert_eq!(put(&connection, 1, bytes, Form::Small).unwrap(), id);
            let hash = digest(&SHA256, bytes);
            assert_eq!(by_hash(&connection, hash.as_ref()).unwrap().unwrap(), bytes);
        }
    }
}
