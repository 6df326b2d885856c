//! Stores the text of an answer while it streams, so that it survives a crash. Each byte is written
//! once; the listener only hands over new text at intervals.

use std::time::Duration;

use tokio::time::Instant;

use turnwright_store::{PendingWrite, SessionLog};
use turnwright_types::ids::MessageId;
use turnwright_types::redact;

/// The interval at which new text is stored.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// How long to wait when the last write is not done yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The part of one answer that was stored so far.
#[derive(Debug)]
pub(super) struct DraftWriter {
    log: SessionLog,
    id: MessageId,
    /// The number of its log entry, once there is text or a card.
    seq: Option<u64>,
    /// The bytes that were handed to the store.
    text: usize,
    thought: usize,
    next: Option<Instant>,
    in_flight: Vec<PendingWrite>,
}

impl DraftWriter {
    pub(in crate::turn) fn new(log: SessionLog, id: MessageId) -> DraftWriter {
        DraftWriter { log, id, seq: None, text: 0, thought: 0, next: None, in_flight: Vec::new() }
    }

    /// When the next write is due. A time in the past means now; `None` means that there is nothing new.
    pub(in crate::turn) fn due(&self, text: &str, thought: &str) -> Option<Instant> {
        let waits = text.len() > self.text || thought.len() > self.thought;
        waits.then(|| self.next.unwrap_or_else(Instant::now))
    }

    /// Stores the new text if a write is due.
    pub(super) fn write_due(&mut self, text: &str, thought: &str, now: Instant) {
        let is_late = self.next.is_none_or(|next| next <= now);
        if !is_late || self.due(text, thought).is_none() {
            return;
        }
        self.in_flight.retain(|write| !write.is_done());
        if !self.in_flight.is_empty() {
            self.next = Some(now + RETRY_INTERVAL);
            return;
        }
        self.next = Some(now + WRITE_INTERVAL);
        // A secret that is split between two writes would not be redacted.
        self.write(true, thought, self.thought + complete_len(&thought[self.thought..]));
        self.write(false, text, self.text + complete_len(&text[self.text..]));
    }

    /// Stores the rest: the turn has died.
    pub(super) fn write_all(&mut self, text: &str, thought: &str) {
        self.write(true, thought, thought.len());
        self.write(false, text, text.len());
    }

    /// The number of the answer's log entry.
    pub(super) fn seq(&self) -> Option<u64> {
        self.seq
    }

    /// Reserves the number of the answer's log entry, which comes before those of its cards.
    pub(super) fn reserve_seq(&mut self) -> u64 {
        *self.seq.get_or_insert_with(|| self.log.reserve_seq())
    }

    fn write(&mut self, is_thought: bool, content: &str, end: usize) {
        let written = if is_thought { &mut self.thought } else { &mut self.text };
        if end <= *written {
            return;
        }
        let piece = content[*written..end].to_owned();
        *written = end;
        let seq = self.reserve_seq();
        self.in_flight.push(self.log.append_draft(seq, &self.id, is_thought, piece));
    }
}

/// The length of a text without a key that may be incomplete at its end.
fn complete_len(rest: &str) -> usize {
    redact::without_partial_key(rest).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_store::Store;
    use turnwright_store::recovery::find_unfinished;

    #[tokio::test]
    async fn each_byte_is_written_once_at_most_four_times_a_second() {
        let (store, log) = crate::turn::fixture::store_with_session().await;
        let mut writer = DraftWriter::new(log.clone(), "msg-1".into());
        let begun = Instant::now();
        assert_eq!(writer.due("", ""), None);
        writer.write_due("", "äö", begun);
        log.flush().written().await;
        writer.write_due("", "äöä", begun + WRITE_INTERVAL / 2);
        assert_eq!(writer.due("", "äöä"), Some(begun + WRITE_INTERVAL));
        writer.write_due("é", "äöäöü", begun + WRITE_INTERVAL);
        log.flush().written().await;
        writer.write_due("éñ", "äöäöü", begun + WRITE_INTERVAL * 2);
        log.flush().written().await;
        let (drafts, pieces) = drafts(&store).await;
        assert_eq!((drafts[0].reasoning.as_str(), drafts[0].text.as_str()), ("äöäöü", "éñ"));
        assert_eq!((drafts.len(), pieces), (1, 4));
        assert_eq!(writer.seq(), Some(drafts[0].seq));
    }

    async fn drafts(store: &Store) -> (Vec<turnwright_store::recovery::AnswerDraft>, u64) {
        let counting = store.read(|connection| {
            let pieces =
                connection.query_row("SELECT count(*) FROM drafts", [], |row| row.get(0))?;
            Ok((find_unfinished(connection, 1)?.drafts, pieces))
        });
        counting.await.unwrap()
    }
}
