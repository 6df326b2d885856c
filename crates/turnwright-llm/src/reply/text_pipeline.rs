//! Processes the text of a reply: separates inline reasoning, holds back leaked tool calls and
//! detects endless repetition.

use std::sync::Arc;

use super::leaked_calls::{LeakFilter, LeakedCall};
use super::repetition::{LONG_UNIT, RepetitionDetector};
use super::think_tags::{ReplyPiece, ThinkSplitter};
use crate::DeltaBatch;
use crate::exchange::RenderedTools;
use crate::quirks::{LeakedCallHandling, Quirks, ThinkTags};

/// Processes the text of one reply.
#[derive(Debug)]
pub(crate) struct TextPipeline {
    /// `None` if the text cannot contain reasoning.
    splitter: Option<ThinkSplitter>,
    sink: TextSink,
}

/// Consumes text and reasoning after they have been separated.
#[derive(Debug)]
struct TextSink {
    /// `None` if the model does not leak calls or has no tools.
    filter: Option<LeakFilter>,
    tools: Option<Arc<RenderedTools>>,
    /// `None` if repetition is not to be stopped.
    repetition: Option<RepetitionDetector>,
    /// The reasoning so far, for models that may put their whole answer into it.
    fallback_answer: Option<String>,
    /// The length of the text so far, in bytes.
    text_len: usize,
    has_thought: bool,
    is_inline: bool,
    is_stuck: bool,
}

impl TextPipeline {
    pub(crate) fn new(quirks: &Quirks, tools: Option<Arc<RenderedTools>>) -> TextPipeline {
        let splitter = (quirks.think != ThinkTags::Off)
            .then(|| ThinkSplitter::new(quirks.think == ThinkTags::Implicit));
        let parses_leaked_calls = quirks.leaked == LeakedCallHandling::Parse;
        let sink = TextSink {
            filter: tools
                .as_ref()
                .filter(|_| parses_leaked_calls)
                .map(|tools| LeakFilter::new(tools.wire_names())),
            tools,
            // The models that leak calls are also those that get stuck in a word.
            repetition: quirks
                .loops
                .then(|| RepetitionDetector::new(if parses_leaked_calls { 1 } else { LONG_UNIT })),
            fallback_answer: quirks.thought_is_answer.then(String::new),
            text_len: 0,
            has_thought: false,
            is_inline: false,
            is_stuck: false,
        };
        TextPipeline { splitter, sink }
    }

    /// Adds text as the server sent it.
    pub(crate) fn push_text(&mut self, text: &str, batch: &mut DeltaBatch) {
        if text.is_empty() {
            return;
        }
        match &mut self.splitter {
            None => self.sink.push_text(text, batch),
            Some(splitter) => splitter.push(text, &mut |piece| self.sink.push_piece(piece, batch)),
        }
    }

    /// Adds reasoning that the server sent in a field of its own.
    pub(crate) fn push_thought(&mut self, text: &str, batch: &mut DeltaBatch) {
        if text.is_empty() {
            return;
        }
        if self.splitter.as_ref().is_some_and(ThinkSplitter::is_unused) {
            // A server with a separate reasoning field does not use tags as well.
            self.splitter = None;
        }
        self.sink.push_thought(text, batch);
    }

    /// Emits everything that was held back, because a regular tool call has started and so it
    /// cannot be a leaked call.
    pub(crate) fn release(&mut self, batch: &mut DeltaBatch) {
        if let Some(mut splitter) = self.splitter.take() {
            splitter.finish(&mut |piece| self.sink.push_piece(piece, batch));
        }
        if let Some(mut filter) = self.sink.filter.take() {
            let (rest, _) = filter.finish(&[]);
            self.sink.text_len += rest.len();
            batch.push_text(rest);
        }
    }

    /// Ends the text: emits what was held back and returns the leaked calls found in it.
    pub(crate) fn finish(&mut self, batch: &mut DeltaBatch) -> Vec<LeakedCall> {
        if let Some(splitter) = &mut self.splitter {
            splitter.finish(&mut |piece| self.sink.push_piece(piece, batch));
        }
        let TextSink { filter: Some(filter), tools: Some(tools), .. } = &mut self.sink else {
            return Vec::new();
        };
        let (rest, calls) = {
            let names = tools.wire_names();
            let schemas = tools.specs.iter().map(|spec| &spec.parameters);
            let declared: Vec<_> = names.iter().map(String::as_str).zip(schemas).collect();
            filter.finish(&declared)
        };
        batch.push_text(rest);
        let rest_len = rest.len();
        self.sink.text_len += rest_len;
        calls
    }

    /// Emits the reasoning as text if the reply consists of nothing else and the model is known to
    /// do that.
    pub(crate) fn answer_with_thought(&mut self, batch: &mut DeltaBatch) {
        let fallback_answer = self.sink.fallback_answer.take().unwrap_or_default();
        self.sink.text_len += fallback_answer.len();
        batch.push_text(&fallback_answer);
    }

    pub(crate) fn has_text(&self) -> bool {
        self.sink.text_len > 0
    }

    pub(crate) fn text_len(&self) -> usize {
        self.sink.text_len
    }

    pub(crate) fn has_thought(&self) -> bool {
        self.sink.has_thought
    }

    /// True if reasoning was found inside the text.
    pub(crate) fn is_inline(&self) -> bool {
        self.sink.is_inline
    }

    /// True if the reply has repeated itself for so long that it is not going to end (quirk C.1
    /// #28b).
    pub(crate) fn is_stuck(&self) -> bool {
        self.sink.is_stuck
    }
}

impl TextSink {
    fn push_piece(&mut self, piece: ReplyPiece<'_>, batch: &mut DeltaBatch) {
        match piece {
            ReplyPiece::Text(text) => self.push_text(text, batch),
            ReplyPiece::Thought(text) => {
                self.is_inline = true;
                self.push_thought(text, batch);
            }
        }
    }

    fn push_text(&mut self, text: &str, batch: &mut DeltaBatch) {
        self.check_repetition(text);
        let text = self.filter.as_mut().map_or(text, |filter| filter.push(text));
        self.text_len += text.len();
        batch.push_text(text);
    }

    fn check_repetition(&mut self, text: &str) {
        self.is_stuck |= self.repetition.as_mut().is_some_and(|detector| detector.push(text));
    }

    fn push_thought(&mut self, text: &str, batch: &mut DeltaBatch) {
        self.check_repetition(text);
        self.has_thought = true;
        if let Some(fallback_answer) = &mut self.fallback_answer {
            fallback_answer.push_str(text);
        }
        batch.push_thought(text);
    }
}
