//! Makes a database readable whose schema is damaged, by giving a copy of it the schema of a new
//! one. The first page of a file leads to its schema, and the schema to the first page of each
//! table. Since every database of ours was made by the same migrations, these are the same in all:
//! with `auto_vacuum`, SQLite puts them at the beginning of the file, in the order of creation.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use rusqlite::Connection;

use crate::StoreError;

/// Places in the first page, in bytes: the page size, the two numbers that say how the file is
/// written, the size of the database in pages, and the first free page with their count.
const PAGE_SIZE_AT: usize = 16;
const FORMAT_AT: usize = 18;
const PAGE_COUNT_AT: usize = 28;
const FREE_PAGES_AT: usize = 32;
/// The format of a file with a write-ahead log.
const WAL_FORMAT: [u8; 2] = [2, 2];
/// The format of a file without one, which can be read on every file system.
const ROLLBACK_FORMAT: [u8; 2] = [1, 1];
/// The root page of the schema follows the header of the file. Its first byte says whether it is an
/// interior page; then the count of its cells, its last child and the places of its cells.
const SCHEMA_AT: usize = 100;
const INTERIOR_PAGE: u8 = 5;

/// Copies the database `damaged` to `copy`, with the schema of the database `new`.
pub(crate) fn copy_with_schema(damaged: &Path, new: &Path, copy: &Path) -> Result<(), StoreError> {
    fs::copy(damaged, copy)?;
    let log = super::with_suffix(copy, "-wal");
    let has_log = fs::copy(super::with_suffix(damaged, "-wal"), log).is_ok();
    if has_log {
        // The log must not hide the new schema. Where it cannot be emptied, it has no first page.
        let connection = Connection::open(copy)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
    }
    let mut file = File::options().write(true).open(copy)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let SchemaPages { first, others, end } = schema_pages(&fs::read(new)?, length, has_log)
        .ok_or_else(|| StoreError::Damaged("the schema of a new database".to_owned()))?;
    file.write_all(&first)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(&others)?;
    Ok(())
}

/// The pages of a schema, to be written into another file.
struct SchemaPages {
    first: Vec<u8>,
    /// The other pages, which go to the end of that file.
    others: Vec<u8>,
    end: u64,
}

/// Takes the schema from a database, for a file of this length. Returns `None` if it is none.
fn schema_pages(database: &[u8], length: usize, has_log: bool) -> Option<SchemaPages> {
    let page_size = usize::from(u16_at(database, PAGE_SIZE_AT)?);
    let mut first = database.get(..page_size)?.to_vec();
    let mut count = length.div_ceil(page_size).max(1);
    let end = u64::try_from(count * page_size).ok()?;
    let mut others = Vec::new();
    for place in child_places(&first)? {
        let child = usize::try_from(u32_at(&first, place)?).ok()?;
        let from = child.checked_sub(1)? * page_size;
        others.extend_from_slice(database.get(from..from + page_size)?);
        count += 1;
        write_u32(&mut first, place, count)?;
    }
    let format = if has_log { WAL_FORMAT } else { ROLLBACK_FORMAT };
    first.get_mut(FORMAT_AT..FORMAT_AT + 2)?.copy_from_slice(&format);
    write_u32(&mut first, PAGE_COUNT_AT, count)?;
    write_u32(&mut first, FREE_PAGES_AT, 0)?;
    write_u32(&mut first, FREE_PAGES_AT + 4, 0)?;
    Some(SchemaPages { first, others, end })
}

/// The places in the first page that hold the number of another page of the schema.
fn child_places(first: &[u8]) -> Option<Vec<usize>> {
    if *first.get(SCHEMA_AT)? != INTERIOR_PAGE {
        return Some(Vec::new());
    }
    let cells = usize::from(u16_at(first, SCHEMA_AT + 3)?);
    let last = SCHEMA_AT + 8;
    let places = (0..cells).map(|index| u16_at(first, last + 4 + 2 * index).map(usize::from));
    places.chain([Some(last)]).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn write_u32(bytes: &mut [u8], at: usize, number: usize) -> Option<()> {
    let number = u32::try_from(number).ok()?;
    bytes.get_mut(at..at + 4)?.copy_from_slice(&number.to_be_bytes());
    Some(())
}
