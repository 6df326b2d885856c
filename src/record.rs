//! What the sessions of this process have done, call by call, for whoever asks later. Bounded:
//! the oldest is forgotten first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::ids::{CallId, SessionId};

/// Bytes of all rows.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that are kept of one text.
const LONGEST_TEXT: usize = 4 * 1024;

/// One call.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which session.
    pub session: SessionId,
    /// Which call.
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// The arguments as JSON.
    pub arguments: String,
    /// What it came to, as the model has read it.
    pub result: String,
    /// Whether it did what was asked.
    pub ok: bool,
    /// When it ended.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// The words of the user that it was made for.
    pub prompt: String,
}

/// The rows of all sessions.
#[derive(Debug, Default)]
// A std mutex: held to copy a few rows.
pub struct Record(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    rows: VecDeque<Row>,
    bytes: usize,
}

impl Record {
    /// Adds a row.
    pub fn add(&self, mut row: Row) {
        for text in [&mut row.arguments, &mut row.result, &mut row.prompt] {
            clip(text);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.bytes += row.bytes();
        all.rows.push_back(row);
        while all.bytes > MOST_BYTES {
            let Some(oldest) = all.rows.pop_front() else { break };
            all.bytes -= oldest.bytes();
        }
    }

    /// The newest rows that match, the newest first.
    pub fn newest(&self, limit: usize, matches: impl Fn(&Row) -> bool) -> Vec<Row> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.rows.iter().rev().filter(|it| matches(it)).take(limit).cloned().collect()
    }
}

impl Row {
    fn bytes(&self) -> usize {
        size_of::<Row>() + self.arguments.len() + self.result.len() + self.prompt.len()
    }
}

fn clip(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|it| text.is_char_boundary(*it));
        text.truncate(end.unwrap_or(0));
        text.push('…');
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize) -> Row {
        Row {
            session: SessionId::from("s"),
            call: CallId::from(format!("call-{number}")),
            tool: "exec".to_owned(),
            arguments: "x".repeat(10_000),
            result: "é".repeat(10_000),
            ok: number.is_multiple_of(2),
            at: SystemTime::UNIX_EPOCH,
            took: Duration::ZERO,
            prompt: String::new(),
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_newest_comes_first() {
        let record = Record::default();
        (0..3_000).for_each(|it| record.add(row(it)));
        let newest = record.newest(2, |it| it.ok);
        assert_eq!(newest[0].call.as_str(), "call-2998");
        assert_eq!(newest[1].call.as_str(), "call-2996");
        let all = record.newest(usize::MAX, |_| true);
        assert!(all.len() < 600 && !all.is_empty(), "{}", all.len());
    }
}
