//! Merges words that come faster than an editor can draw. The first delta goes out at once, and
//! so does one that comes a frame or more after the last; faster ones are merged for the rest of
//! the frame. So a slow model is never delayed and a fast one costs some sixty updates a second.

use std::time::Duration;

use tokio::time::Instant;

use turnwright_types::ids::MessageId;
use turnwright_types::update::Update;

/// One frame at sixty a second.
const FRAME: Duration = Duration::from_millis(16);

/// What words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Text,
    Thought,
}

/// Words of one message that have not been sent yet.
#[derive(Debug)]
pub(super) struct Coalescer {
    message: MessageId,
    sort: Sort,
    words: String,
    last_flush: Option<Instant>,
}

impl Coalescer {
    pub(super) fn new(message: MessageId) -> Coalescer {
        Coalescer { message, sort: Sort::Text, words: String::new(), last_flush: None }
    }

    /// Takes words; returns what must be sent before them, which is what is left of the other
    /// sort.
    pub(super) fn push(&mut self, sort: Sort, words: String) -> Option<Update> {
        let before = if sort == self.sort { None } else { self.take() };
        self.sort = sort;
        if self.words.is_empty() {
            self.words = words;
        } else {
            self.words.push_str(&words);
        }
        before
    }

    /// When what is waiting has to go out; `None` if nothing waits. In the past means now.
    pub(super) fn due(&self) -> Option<Instant> {
        let waits = !self.words.is_empty();
        waits.then(|| self.last_flush.map_or_else(Instant::now, |it| it + FRAME))
    }

    /// What is waiting, if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Update> {
        let is_due = self.last_flush.is_none_or(|it| now >= it + FRAME);
        if is_due && !self.words.is_empty() {
            self.last_flush = Some(now);
            self.take()
        } else {
            None
        }
    }

    /// What is waiting, due or not.
    pub(super) fn take(&mut self) -> Option<Update> {
        if self.words.is_empty() {
            return None;
        }
        let text = std::mem::take(&mut self.words);
        let message = self.message.clone();
        Some(match self.sort {
            Sort::Text => Update::Text { message, text },
            Sort::Thought => Update::Thought { message, text },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(update: Option<Update>) -> String {
        match update {
            Some(Update::Text { text, .. }) => text,
            Some(Update::Thought { text, .. }) => format!("({text})"),
            _ => "-".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_and_the_slow_go_out_at_once_and_the_fast_are_merged() {
        let mut coalescer = Coalescer::new("m".into());
        let mut log = Vec::new();
        for (wait, word) in [(0, "a"), (5, "b"), (5, "c"), (5, "d"), (5, "e"), (40, "f")] {
            tokio::time::advance(Duration::from_millis(wait)).await;
            assert_eq!(coalescer.push(Sort::Text, word.to_owned()), None);
            log.push(words(coalescer.take_due(Instant::now())));
        }
        assert_eq!(log, ["a", "-", "-", "-", "bcde", "f"]);
        assert_eq!(coalescer.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_due_one_frame_after_the_last() {
        let mut coalescer = Coalescer::new("m".into());
        coalescer.push(Sort::Text, "a".to_owned());
        let begun = Instant::now();
        coalescer.take_due(begun);
        coalescer.push(Sort::Text, "b".to_owned());
        assert_eq!(coalescer.due(), Some(begun + FRAME));
    }

    #[tokio::test(start_paused = true)]
    async fn thoughts_and_text_keep_their_order() {
        let mut coalescer = Coalescer::new("m".into());
        coalescer.push(Sort::Thought, "a".to_owned());
        assert_eq!(words(coalescer.push(Sort::Text, "b".to_owned())), "(a)");
        assert_eq!(words(coalescer.take()), "b");
    }
}
