//! Merges text deltas that arrive faster than an editor can draw. A delta is sent at once if the
//! last one was sent a frame or more ago; others are merged until the end of the frame. So a slow
//! model is never delayed, and a fast one causes about sixty updates a second.

use std::time::Duration;

use tokio::time::Instant;

use turnwright_types::ids::MessageId;
use turnwright_types::update::Update;

/// The length of one frame at sixty frames a second.
const FRAME: Duration = Duration::from_millis(16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Thought,
}

#[derive(Debug)]
pub(super) struct TextCoalescer {
    message: MessageId,
    kind: TextKind,
    text: String,
    last_flush: Option<Instant>,
}

impl TextCoalescer {
    pub(in crate::turn) fn new(message: MessageId) -> TextCoalescer {
        TextCoalescer { message, kind: TextKind::Text, text: String::new(), last_flush: None }
    }

    /// Adds a delta. Returns the pending text of the other kind, which must be sent before it.
    pub(in crate::turn) fn push(&mut self, kind: TextKind, text: String) -> Option<Update> {
        let before = if kind == self.kind { None } else { self.take() };
        self.kind = kind;
        if self.text.is_empty() {
            self.text = text;
        } else {
            self.text.push_str(&text);
        }
        before
    }

    /// When the pending text is due; `None` if there is none. A time in the past means now.
    pub(in crate::turn) fn due(&self) -> Option<Instant> {
        let waits = !self.text.is_empty();
        waits.then(|| self.last_flush.map_or_else(Instant::now, |flushed| flushed + FRAME))
    }

    /// Takes the pending text if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Update> {
        let is_due = self.last_flush.is_none_or(|flushed| now >= flushed + FRAME);
        if is_due && !self.text.is_empty() {
            self.last_flush = Some(now);
            self.take()
        } else {
            None
        }
    }

    /// Takes the pending text.
    pub(super) fn take(&mut self) -> Option<Update> {
        if self.text.is_empty() {
            return None;
        }
        let text = std::mem::take(&mut self.text);
        let message = self.message.clone();
        Some(match self.kind {
            TextKind::Text => Update::AgentText { message, text },
            TextKind::Thought => Update::AgentThought { message, text },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(update: Option<Update>) -> String {
        match update {
            Some(Update::AgentText { text, .. }) => text,
            Some(Update::AgentThought { text, .. }) => format!("({text})"),
            _ => "-".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_and_the_slow_go_out_at_once_and_the_fast_are_merged() {
        let mut coalescer = TextCoalescer::new("m".into());
        let mut log = Vec::new();
        for (wait, word) in [(0, "a"), (5, "b"), (5, "c"), (5, "d"), (5, "e"), (40, "f")] {
            tokio::time::advance(Duration::from_millis(wait)).await;
            assert_eq!(coalescer.push(TextKind::Text, word.to_owned()), None);
            log.push(text(coalescer.take_due(Instant::now())));
        }
        assert_eq!(log, ["a", "-", "-", "-", "bcde", "f"]);
        assert_eq!(coalescer.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_due_one_frame_after_the_last() {
        let mut coalescer = TextCoalescer::new("m".into());
        coalescer.push(TextKind::Text, "a".to_owned());
        let begun = Instant::now();
        coalescer.take_due(begun);
        coalescer.push(TextKind::Text, "b".to_owned());
        assert_eq!(coalescer.due(), Some(begun + FRAME));
    }

    #[tokio::test(start_paused = true)]
    async fn thoughts_and_text_keep_their_order() {
        let mut coalescer = TextCoalescer::new("m".into());
        coalescer.push(TextKind::Thought, "a".to_owned());
        assert_eq!(text(coalescer.push(TextKind::Text, "b".to_owned())), "(a)");
        assert_eq!(text(coalescer.take()), "b");
    }
}
