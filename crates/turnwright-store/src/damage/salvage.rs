//! Copies every readable row of a damaged database into a new one. A session whose own row cannot be read
//! is lost; other sessions may lack parts. Both are named.
//!
//! A database whose schema is damaged is made readable by giving a copy of it the schema of a new one. The first
//! page of a file leads to its schema, and the schema to the first page of each table. Since every database of ours
//! has its tables and indexes in the same order of creation, these are the same in all: with `auto_vacuum`, SQLite puts
//! them at the beginning of the file, in that order.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};
use serde::de::IgnoredAny;

use crate::database::journal::Journal;
use crate::health::StorageFault;
use crate::{Result, StoreError, blobs, database};

/// A table to copy. Its rows are read in the order of its own b-tree and found by an integer.
struct SalvagedTable {
    name: &'static str,
    key: &'static str,
    /// The column that decides between rows with the same key.
    second_key: Option<&'static str>,
}

const fn table(name: &'static str, key: &'static str) -> SalvagedTable {
    SalvagedTable { name, key, second_key: None }
}

const SESSIONS: SalvagedTable = table("sessions", "key");
const BLOBS: SalvagedTable = table("blobs", "id");
const TURNS: SalvagedTable =
    SalvagedTable { name: "turns", key: "session", second_key: Some("number") };
const BLOB_USES: SalvagedTable =
    SalvagedTable { name: "blob_uses", key: "session", second_key: Some("blob") };
/// The index of `blob_uses`, which has all its columns.
const BLOB_USES_INDEX: SalvagedTable =
    SalvagedTable { name: "blob_uses", key: "blob", second_key: Some("session") };
/// The tables with an index on `session`, which tells whose rows are missing.
const INDEXED_BY_SESSION: [SalvagedTable; 6] = [
    table("entries", "rowid"),
    table("calls", "id"),
    table("drafts", "id"),
    table("file_versions", "id"),
    table("permissions", "id"),
    table("usage", "id"),
];
/// The columns that hold JSON.
const JSON_COLUMNS: &str =
    "body refs arguments arguments_refs card card_refs spawn_task before after start facts";
/// How often copying a table starts again behind a row that cannot be read.
const MAX_RESTARTS: usize = 1_000;

/// The outcome of a salvage.
#[derive(Debug, Default)]
pub(crate) struct SalvageReport {
    /// The number of sessions in the new database.
    pub(crate) sessions: usize,
    /// Sessions in the new database that lack parts, by id and first prompt.
    pub(crate) incomplete: BTreeSet<String>,
    /// Sessions that are not in the new database.
    pub(crate) lost: BTreeSet<String>,
    /// True if there may be more of both.
    pub(crate) may_miss_others: bool,
}

/// Creates the database `new` and copies what can be read of the database `damaged`. If its
/// schema is damaged, a copy with a new schema is made at `copy` and read instead.
pub(crate) fn salvage(
    damaged: &Path,
    new: &Path,
    copy: &Path,
    journal: Journal,
) -> Result<SalvageReport> {
    let target = database::open_writer_with_journal(new, database::BUSY_TIMEOUT, journal)?;
    // A rollback journal does not hold the new rows, unlike a write-ahead log.
    target.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA foreign_keys = OFF;")?;
    let mut from = damaged;
    let mut report = SalvageReport::default();
    if !attach(&target, from)? {
        copy_with_schema(damaged, new, copy)?;
        from = copy;
        report.may_miss_others = !attach(&target, from)?;
    }
    if !report.may_miss_others {
        let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        source.busy_timeout(database::BUSY_TIMEOUT)?;
        // One transaction, for speed. A connection that reads damage in one can no longer write.
        target.execute_batch("BEGIN")?;
        let missing = copy_all(&source, &target)?;
        target.execute_batch("COMMIT")?;
        make_consistent(&target, &missing, &mut report)?;
        target.execute_batch("DETACH damaged")?;
    }
    if journal == Journal::WriteAhead {
        target.execute_batch("PRAGMA journal_mode = WAL")?;
    }
    Ok(report)
}

/// Attaches the damaged database. Returns false if its schema cannot be read.
fn attach(connection: &Connection, damaged: &Path) -> Result<bool> {
    if !is_readable(connection.execute("ATTACH ? AS damaged", [damaged.to_string_lossy()]))? {
        return Ok(false);
    }
    let query = "SELECT count(*) FROM damaged.sqlite_master";
    let tables = connection.query_row(query, [], |row| row.get::<_, i64>(0));
    if is_readable(tables)? {
        return Ok(true);
    }
    connection.execute_batch("DETACH damaged")?;
    Ok(false)
}

/// Fails with [`StoreError::Damaged`] if a row that SQLite can read holds something else than what
/// was stored.
pub(crate) fn check_rows(connection: &Connection) -> Result<()> {
    let others = [SESSIONS, TURNS, BLOBS];
    for table in others.iter().chain(&INDEXED_BY_SESSION) {
        let mut find = connection.prepare(&format!("SELECT * FROM {}", table.name))?;
        let columns: Vec<_> = find.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = find.query([])?;
        while let Some(row) = rows.next()? {
            if !is_row_valid(table, row, &columns, 0) {
                return Err(StoreError::Damaged(format!("a row of {}", table.name)));
            }
        }
    }
    Ok(())
}

/// Copies all tables. Returns the names of those in which something is missing.
fn copy_all(source: &Connection, target: &Connection) -> Result<Vec<&'static str>> {
    let others = [SESSIONS, TURNS, BLOBS];
    let mut missing = Vec::new();
    for table in others.iter().chain(&INDEXED_BY_SESSION) {
        if !copy_table(source, target, table)? {
            missing.push(table.name);
        }
    }
    if !copy_table(source, target, &BLOB_USES)? && !copy_table(source, target, &BLOB_USES_INDEX)? {
        missing.push(BLOB_USES.name);
    }
    Ok(missing)
}

/// Makes the copied rows consistent, and finds the missing ones.
fn make_consistent(
    connection: &Connection,
    missing: &[&str],
    report: &mut SalvageReport,
) -> Result<()> {
    let mut gaps = BTreeSet::new();
    for SalvagedTable { name, key, .. } in
        INDEXED_BY_SESSION.iter().filter(|table| missing.contains(&table.name))
    {
        let query = format!(
            "SELECT DISTINCT session FROM damaged.{name} AS old WHERE NOT EXISTS \
             (SELECT 1 FROM main.{name} AS new WHERE new.{key} = old.{key}) ORDER BY session"
        );
        report.may_miss_others |= !add_values(connection, &query, &mut gaps)?;
    }
    report.may_miss_others |= missing.contains(&BLOB_USES.name);
    if missing.contains(&TURNS.name) {
        restore_turns(connection, &mut gaps)?;
    }
    if missing.contains(&BLOBS.name) {
        let missing = "FROM main.blob_uses WHERE blob NOT IN (SELECT id FROM main.blobs)";
        add_values(connection, &format!("SELECT DISTINCT session {missing}"), &mut gaps)?;
        connection.execute(&format!("DELETE {missing}"), [])?;
    }
    if missing.contains(&SESSIONS.name) {
        let query = session_names_query(
            "damaged.sessions AS old WHERE NOT EXISTS (SELECT 1 FROM main.sessions AS new WHERE \
             new.key = old.key) ORDER BY id",
        );
        report.may_miss_others |= !add_values(connection, &query, &mut report.lost)?;
        delete_orphans(connection)?;
    }
    for session in gaps {
        let query = session_names_query(&format!("main.sessions WHERE key = {session}"));
        add_values(connection, &query, &mut report.incomplete)?;
    }
    report.sessions =
        connection.query_row("SELECT count(*) FROM main.sessions", [], |row| row.get(0))?;
    Ok(())
}

/// A query for the id of sessions, each with the beginning of its first prompt.
fn session_names_query(from: &str) -> String {
    format!(
        "SELECT id || coalesce((SELECT ' (' || nullif(substr(words, 1, 40), '') || ')' FROM \
         main.turns WHERE session = key ORDER BY number LIMIT 1), '') FROM {from}"
    )
}

/// Inserts the turns that are missing, as far as the entries tell.
fn restore_turns(connection: &Connection, gaps: &mut BTreeSet<i64>) -> Result<()> {
    let missing = "FROM main.entries WHERE turn > 0 AND NOT EXISTS (SELECT 1 FROM main.turns WHERE \
                   turns.session = entries.session AND number = turn)";
    add_values(connection, &format!("SELECT DISTINCT session {missing}"), gaps)?;
    let insert = format!(
        "INSERT INTO main.turns (session, number, kind, begun_at, ended_at, stop) SELECT session, \
         turn, 'prompt', min(at), max(at), 'end_turn' {missing} GROUP BY session, turn"
    );
    connection.execute(&insert, [])?;
    Ok(())
}

/// Deletes the rows of sessions that are lost.
fn delete_orphans(connection: &Connection) -> Result<()> {
    let others = [TURNS, BLOB_USES];
    for SalvagedTable { name, .. } in others.iter().chain(&INDEXED_BY_SESSION) {
        let delete =
            format!("DELETE FROM main.{name} WHERE session NOT IN (SELECT key FROM main.sessions)");
        connection.execute(&delete, [])?;
    }
    Ok(())
}

/// Adds the values of a query to a set. Returns false if not all could be read.
fn add_values<T: FromSql + Ord>(
    connection: &Connection,
    query: &str,
    values: &mut BTreeSet<T>,
) -> Result<bool> {
    let mut find = connection.prepare(query)?;
    let mut rows = find.query([])?;
    loop {
        match rows.next() {
            Ok(Some(row)) => values.extend(row.get(0)),
            Ok(None) => return Ok(true),
            result => return is_readable(result),
        }
    }
}

/// Copies the rows of a table that can be read. Returns whether these are all.
fn copy_table(source: &Connection, target: &Connection, table: &SalvagedTable) -> Result<bool> {
    let known = columns(source, table.name)?;
    let mut columns = columns(target, table.name)?;
    // The damaged database may be of an older version.
    columns.retain(|column| known.contains(column));
    if columns.is_empty() {
        return Ok(true);
    }
    let copy = TableCopy { source, target, table, columns };
    let mut is_complete = true;
    let mut restarts = 0;
    let mut ranges = VecDeque::from([(i64::MIN, i64::MAX)]);
    while let Some((first, last)) = ranges.pop_front() {
        let Some(low) = copy.copy_range((first, last), "ASC", &mut is_complete)? else { continue };
        let Some(high) = copy.copy_range((low, last), "DESC", &mut is_complete)? else { continue };
        restarts += 1;
        // Tries the range between the two in halves.
        let is_bounded = low > i64::MIN && high < i64::MAX;
        let first = low.saturating_add(1);
        let last = high.saturating_sub(1);
        if is_bounded && first <= last && restarts < MAX_RESTARTS {
            let middle = first.midpoint(last);
            ranges.push_back((first, middle));
            ranges.extend((middle < last).then_some((middle + 1, last)));
        }
    }
    Ok(is_complete)
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>> {
    let mut find = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
    let names = find.query_map([table], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Copies one table.
struct TableCopy<'a> {
    source: &'a Connection,
    target: &'a Connection,
    table: &'a SalvagedTable,
    columns: Vec<String>,
}

impl TableCopy<'_> {
    /// Copies the rows of a range of keys up to one that cannot be read. Returns the last key before
    /// that one, or `None` at the end of the range.
    fn copy_range(
        &self,
        (first, last): (i64, i64),
        direction: &str,
        is_complete: &mut bool,
    ) -> Result<Option<i64>> {
        let mut reached = if direction == "ASC" { first } else { last };
        let SalvagedTable { name, key, second_key } = self.table;
        let list = self.column_list();
        let second_key = second_key.map(|key| format!(", {key} {direction}")).unwrap_or_default();
        let select = format!(
            "SELECT {key}, {list} FROM {name} NOT INDEXED WHERE {key} BETWEEN ? AND ? ORDER \
             BY {key} {direction}{second_key}"
        );
        let places = vec!["?"; list.split(',').count()].join(", ");
        let statement = format!("INSERT OR IGNORE INTO {name} ({list}) VALUES ({places})");
        let mut insert = self.target.prepare_cached(&statement)?;
        let mut find = self.source.prepare(&select)?;
        let mut rows = find.query([first, last])?;
        loop {
            match rows.next() {
                Ok(None) => return Ok(None),
                Ok(Some(row)) => {
                    reached = row.get(0).unwrap_or(reached);
                    if is_row_valid(self.table, row, &self.columns, 1) {
                        let values = (1..=insert.parameter_count())
                            .map(|index| row.get_ref(index).map(ToSqlOutput::Borrowed));
                        let values = values.collect::<Result<Vec<_>, _>>()?;
                        insert.execute(params_from_iter(values))?;
                    } else {
                        *is_complete = false;
                    }
                }
                result => {
                    is_readable(result)?;
                    *is_complete = false;
                    return Ok(Some(reached));
                }
            }
        }
    }

    /// The columns to copy. A key that is no column is the last.
    fn column_list(&self) -> String {
        let list = self.columns.join(", ");
        if self.table.key == "rowid" { list + ", rowid" } else { list }
    }
}

/// True if the texts of a row, whose columns begin at `offset`, are what was stored.
fn is_row_valid(table: &SalvagedTable, row: &Row<'_>, columns: &[String], offset: usize) -> bool {
    if table.name == BLOBS.name {
        return blobs::content(row).is_ok();
    }
    columns.iter().zip(offset..).all(|(name, number)| match row.get_ref(number) {
        Ok(ValueRef::Text(text)) => is_text_valid(name, text),
        value => value.is_ok(),
    })
}

fn is_text_valid(column: &str, text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let is_json = JSON_COLUMNS.split_whitespace().any(|name| name == column);
    !is_json || serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Returns false if the damage has prevented it, and any other error.
fn is_readable<T>(result: rusqlite::Result<T>) -> Result<bool> {
    match result.map_err(StoreError::from) {
        Ok(_) => Ok(true),
        Err(error) if error.fault() == Some(StorageFault::Corrupt) => Ok(false),
        Err(error) => Err(error),
    }
}

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
fn copy_with_schema(damaged: &Path, new: &Path, copy: &Path) -> Result<()> {
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
    let pages = schema_pages(&fs::read(new)?, length, has_log)
        .ok_or_else(|| StoreError::Damaged("the schema of a new database".to_owned()))?;
    for (at, bytes) in pages {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// Takes the pages of the schema from a database, to be written into a file of this length: the first page and, at
/// the end of the file, the others. Returns `None` if it is no database.
fn schema_pages(database: &[u8], length: usize, has_log: bool) -> Option<[(u64, Vec<u8>); 2]> {
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
    Some([(0, first), (end, others)])
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
