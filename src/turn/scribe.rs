//! Keeps the words of an answer while they come, so that they outlive the process. Each word is
//! written once; whoever listens only hands over a copy now and then.

use std::time::Duration;

use tokio::time::Instant;

use turnwright_types::ids::MessageId;
use turnwright_types::redact;
use turnwright_store::{Log, Ticket};

/// Words that the user sees for longer than this are kept.
const EVERY: Duration = Duration::from_millis(250);
/// How long a disk that is not done with the last words is left alone.
const BUSY: Duration = Duration::from_millis(50);

/// What is kept of one answer so far.
#[derive(Debug)]
pub(super) struct Scribe {
    log: Log,
    id: MessageId,
    /// The place of its entry, once there are words.
    seq: Option<u64>,
    /// Bytes that were handed over.
    text: usize,
    thought: usize,
    next: Option<Instant>,
    /// What is on its way.
    under_way: Vec<Ticket>,
}

impl Scribe {
    pub(super) fn new(log: Log, id: MessageId) -> Scribe {
        Scribe { log, id, seq: None, text: 0, thought: 0, next: None, under_way: Vec::new() }
    }

    /// When there is something to be kept; in the past means now.
    pub(super) fn due(&self, text: &str, thought: &str) -> Option<Instant> {
        let waits = text.len() > self.text || thought.len() > self.thought;
        waits.then(|| self.next.unwrap_or_else(Instant::now))
    }

    /// Keeps what is new, if it is time for that.
    pub(super) fn keep(&mut self, text: &str, thought: &str, now: Instant) {
        let is_late = self.next.is_none_or(|it| it <= now);
        if !is_late || self.due(text, thought).is_none() {
            return;
        }
        self.under_way.retain(|it| !it.is_done());
        if !self.under_way.is_empty() {
            self.next = Some(now + BUSY);
            return;
        }
        self.next = Some(now + EVERY);
        // A key that is in two pieces would not be found.
        let whole = |it: &str| {
            let mut end = it.len() - redact::unfinished(it);
            while !it.is_char_boundary(end) {
                end -= 1;
            }
            end
        };
        self.write(true, thought, self.thought + whole(&thought[self.thought..]));
        self.write(false, text, self.text + whole(&text[self.text..]));
    }

    /// Keeps all of it: the turn has died.
    pub(super) fn keep_all(&mut self, text: &str, thought: &str) {
        self.write(true, thought, thought.len());
        self.write(false, text, text.len());
    }

    /// The number of the answer's entry.
    pub(super) fn seq(&self) -> Option<u64> {
        self.seq
    }

    fn write(&mut self, is_thought: bool, words: &str, end: usize) {
        let kept = if is_thought { &mut self.thought } else { &mut self.text };
        if end <= *kept {
            return;
        }
        let piece = words[*kept..end].to_owned();
        *kept = end;
        let seq = *self.seq.get_or_insert_with(|| self.log.reserve());
        self.under_way.push(self.log.draft(seq, &self.id, is_thought, piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_store::Store;
    use turnwright_store::broken::broken;

    #[tokio::test]
    async fn each_word_is_written_once_and_no_more_often_than_four_times_a_second() {
        let (store, log) = crate::turn::stage::store_with_session().await;
        let mut scribe = Scribe::new(log.clone(), "msg-1".into());
        let begun = Instant::now();
        assert_eq!(scribe.due("", ""), None);
        scribe.keep("", "äö", begun);
        log.flush().written().await;
        scribe.keep("", "äöä", begun + EVERY / 2);
        assert_eq!(scribe.due("", "äöä"), Some(begun + EVERY));
        scribe.keep("é", "äöäöü", begun + EVERY);
        log.flush().written().await;
        scribe.keep("éñ", "äöäöü", begun + EVERY * 2);
        log.flush().written().await;
        let (drafts, pieces) = drafts(&store).await;
        assert_eq!((drafts[0].thought.as_str(), drafts[0].text.as_str()), ("äöäöü", "éñ"));
        assert_eq!((drafts.len(), pieces), (1, 4));
        assert_eq!(scribe.seq(), Some(drafts[0].seq));
    }

    async fn drafts(store: &Store) -> (Vec<turnwright_store::broken::Draft>, u64) {
        let count = |it: &rusqlite::Connection| {
            let pieces = it.query_row("SELECT count(*) FROM drafts", [], |it| it.get(0))?;
            Ok((broken(it, 1)?.drafts, pieces))
        };
        store.read(count).await.unwrap()
    }
}
