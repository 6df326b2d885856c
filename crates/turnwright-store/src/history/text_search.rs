//! Searches the texts of a row for words, regardless of case. Long texts are in `blobs`: each is
//! searched once, and only as many as can be read in a moment.

use std::collections::HashMap;

use memchr::memmem::Finder;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::Result;
use crate::blobs;

/// The limit for the blobs that one search reads.
const MAX_BLOB_BYTES: usize = 128 * 1024 * 1024;
/// The maximum number of words; further ones are ignored.
const MAX_WORDS: usize = 32;

/// A search for words.
pub(crate) struct TextSearch<'a> {
    connection: &'a Connection,
    words: Vec<SearchWord>,
    /// All words are ASCII.
    is_ascii: bool,
    lowercase_buffer: Vec<u8>,
    /// The words that occur in each searched blob, as a bit set.
    blob_matches: HashMap<i64, u32>,
    remaining_bytes: usize,
    /// True if a blob was skipped because there are too many.
    pub(crate) is_truncated: bool,
}

/// A word as it occurs in plain text and in JSON.
struct SearchWord {
    plain: Finder<'static>,
    escaped: Finder<'static>,
}

impl<'a> TextSearch<'a> {
    pub(crate) fn new(connection: &'a Connection, words: &str) -> TextSearch<'a> {
        let lower = words.to_lowercase();
        let words = lower.split_whitespace().take(MAX_WORDS).map(|word| {
            let quoted = serde_json::Value::from(word).to_string();
            let escaped = quoted.get(1..quoted.len() - 1).unwrap_or(word);
            SearchWord {
                plain: Finder::new(word.as_bytes()).into_owned(),
                escaped: Finder::new(escaped.as_bytes()).into_owned(),
            }
        });
        TextSearch {
            connection,
            words: words.collect(),
            is_ascii: lower.is_ascii(),
            lowercase_buffer: Vec::new(),
            blob_matches: HashMap::new(),
            remaining_bytes: MAX_BLOB_BYTES,
            is_truncated: false,
        }
    }

    /// True if each word occurs in `text`, in one of the columns `plain`, in the JSON of column `json.0`,
    /// in the blobs that column `json.1` refers to, or in the blob whose id is in column `blob_id`.
    pub(crate) fn matches_row(
        &mut self,
        row: &Row<'_>,
        text: &str,
        plain: &[usize],
        json: (usize, usize),
        blob_id: Option<usize>,
    ) -> Result<bool> {
        let all = self.all_words();
        let mut found = self.words_in(text.as_bytes(), false);
        for column in plain.iter().chain([&json.0]) {
            if let ValueRef::Text(text) = row.get_ref(*column)? {
                found |= self.words_in(text, *column == json.0);
            }
            if found == all {
                return Ok(true);
            }
        }
        let stored: Option<String> = row.get(json.1)?;
        let refs: Vec<(String, i64)> =
            stored.map_or(Ok(Vec::new()), |text| serde_json::from_str(&text))?;
        let blob_id = blob_id.map(|column| row.get::<_, Option<i64>>(column)).transpose()?;
        for id in refs.into_iter().map(|(_, id)| id).chain(blob_id.flatten()) {
            found |= self.words_in_blob(id)?;
        }
        Ok(found == all)
    }

    /// True if each word occurs in the text.
    pub(crate) fn matches_text(&mut self, text: &str) -> bool {
        self.words_in(text.as_bytes(), false) == self.all_words()
    }

    /// The bit set of all words.
    fn all_words(&self) -> u32 {
        self.words.iter().fold(0, |all, _| all << 1 | 1)
    }

    fn words_in_blob(&mut self, id: i64) -> Result<u32> {
        if let Some(blob_matches) = self.blob_matches.get(&id) {
            return Ok(*blob_matches);
        }
        let Some(bytes) = blobs::get(self.connection, id)? else { return Ok(0) };
        let Some(remaining_bytes) = self.remaining_bytes.checked_sub(bytes.len()) else {
            self.is_truncated = true;
            return Ok(0);
        };
        self.remaining_bytes = remaining_bytes;
        let found_words = self.words_in(&bytes, false);
        self.blob_matches.insert(id, found_words);
        Ok(found_words)
    }

    /// The bit set of the words that occur in a text.
    fn words_in(&mut self, text: &[u8], is_json: bool) -> u32 {
        if self.words.is_empty() {
            return 0;
        }
        self.lowercase_buffer.clear();
        if self.is_ascii || text.is_ascii() {
            self.lowercase_buffer.extend_from_slice(text);
            self.lowercase_buffer.make_ascii_lowercase();
        } else {
            let lower = String::from_utf8_lossy(text).to_lowercase();
            self.lowercase_buffer.extend_from_slice(lower.as_bytes());
        }
        let mut found_words = 0;
        for (number, word) in self.words.iter().enumerate() {
            let finder = if is_json { &word.escaped } else { &word.plain };
            if finder.find(&self.lowercase_buffer).is_some() {
                found_words |= 1 << number;
            }
        }
        found_words
    }
}
