//! Words in the texts of a row, in whatever case. Long texts lie in `blobs`: each of those is looked
//! at once, and not more of them than can be read in a moment.

use std::collections::HashMap;

use memchr::memmem::Finder;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::{StoreError, blobs};

/// Bytes of long texts that one search reads.
const MOST_BYTES: usize = 128 * 1024 * 1024;
/// Words that are looked for; more are as good as these.
const MOST_WORDS: usize = 32;

/// A search for words.
pub(super) struct Search<'a> {
    connection: &'a Connection,
    words: Vec<Word>,
    /// No word has a letter besides the English ones.
    is_ascii: bool,
    folded: Vec<u8>,
    /// Which words are in the long texts that were looked at.
    known: HashMap<i64, u32>,
    room: usize,
    /// Whether a long text was left out because there are too many.
    pub(super) is_cut: bool,
}

/// A word as it stands in a text, and as it stands in JSON.
struct Word {
    plain: Finder<'static>,
    escaped: Finder<'static>,
}

impl<'a> Search<'a> {
    pub(super) fn new(connection: &'a Connection, words: &str) -> Search<'a> {
        let lower = words.to_lowercase();
        let words = lower.split_whitespace().take(MOST_WORDS).map(|it| {
            let escaped = serde_json::Value::from(it).to_string();
            let escaped = escaped.get(1..escaped.len() - 1).unwrap_or(it);
            Word {
                plain: Finder::new(it.as_bytes()).into_owned(),
                escaped: Finder::new(escaped.as_bytes()).into_owned(),
            }
        });
        Search {
            connection,
            words: words.collect(),
            is_ascii: lower.is_ascii(),
            folded: Vec::new(),
            known: HashMap::new(),
            room: MOST_BYTES,
            is_cut: false,
        }
    }

    /// Whether each word is in one of the columns `plain`, in the JSON of the column `json.0`, in
    /// the texts that `json.1` says lie beside it, or in the long text whose number is in `long`.
    pub(super) fn fits(
        &mut self,
        row: &Row<'_>,
        plain: &[usize],
        json: (usize, usize),
        long: Option<usize>,
    ) -> Result<bool, StoreError> {
        let all = self.all();
        let mut found = 0;
        for column in plain.iter().chain([&json.0]) {
            if let ValueRef::Text(text) = row.get_ref(*column)? {
                found |= self.marks(text, *column == json.0);
            }
            if found == all {
                return Ok(true);
            }
        }
        let refs: Option<String> = row.get(json.1)?;
        let refs: Vec<(String, i64)> =
            refs.map_or(Ok(Vec::new()), |it| serde_json::from_str(&it))?;
        let long = match long {
            Some(column) => row.get::<_, Option<i64>>(column)?,
            None => None,
        };
        for id in refs.into_iter().map(|(_, id)| id).chain(long) {
            found |= self.in_blob(id)?;
        }
        Ok(found == all)
    }

    /// Whether each word is in that text.
    pub(super) fn is_in(&mut self, text: &str) -> bool {
        self.marks(text.as_bytes(), false) == self.all()
    }

    /// A bit for each word.
    fn all(&self) -> u32 {
        self.words.iter().fold(0, |all, _| all << 1 | 1)
    }

    fn in_blob(&mut self, id: i64) -> Result<u32, StoreError> {
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let bytes = match blobs::get(self.connection, id) {
            Ok(bytes) => bytes,
            Err(StoreError::NoSuchSession) => return Ok(0),
            Err(error) => return Err(error),
        };
        let Some(room) = self.room.checked_sub(bytes.len()) else {
            self.is_cut = true;
            return Ok(0);
        };
        self.room = room;
        let marks = self.marks(&bytes, false);
        self.known.insert(id, marks);
        Ok(marks)
    }

    /// Which words are in a text.
    fn marks(&mut self, text: &[u8], is_json: bool) -> u32 {
        if self.words.is_empty() {
            return 0;
        }
        self.folded.clear();
        if self.is_ascii || text.is_ascii() {
            self.folded.extend_from_slice(text);
            self.folded.make_ascii_lowercase();
        } else {
            let lower = String::from_utf8_lossy(text).to_lowercase();
            self.folded.extend_from_slice(lower.as_bytes());
        }
        let mut marks = 0;
        for (number, word) in self.words.iter().enumerate() {
            let finder = if is_json { &word.escaped } else { &word.plain };
            if finder.find(&self.folded).is_some() {
                marks |= 1 << number;
            }
        }
        marks
    }
}
