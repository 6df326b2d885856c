//! The words of an answer: reasoning that stands among them is told apart, calls that leak into
//! them are held back, and an answer that only repeats itself is noticed.

use std::sync::Arc;

use crate::Batch;
use crate::leaked::{Gate, LeakedCall};
use crate::manner::Tools;
use crate::quirks::{Leaked, Quirks, Think};
use crate::repetition::Repetition;
use crate::think::{Mode, Piece, Splitter};

/// The words of one answer.
#[derive(Debug)]
pub(super) struct Speech {
    /// `None` where words are words.
    splitter: Option<Splitter>,
    heard: Heard,
}

/// What came of the words.
#[derive(Debug)]
struct Heard {
    /// `None` where calls do not leak, or where there is nothing to call.
    gate: Option<Gate>,
    tools: Option<Arc<Tools>>,
    /// `None` where answers do not repeat themselves.
    repetition: Option<Repetition>,
    /// The reasoning, where it may turn out to be the answer.
    spare: Option<String>,
    has_text: bool,
    has_thought: bool,
    is_inline: bool,
    is_stuck: bool,
}

impl Speech {
    pub(super) fn new(quirks: &Quirks, tools: Option<Arc<Tools>>) -> Speech {
        let splitter = match quirks.think {
            Think::Off => None,
            Think::Tagged => Some(Splitter::new(Mode::Plain)),
            Think::Implicit => Some(Splitter::new(Mode::Implicit)),
        };
        let leaks = quirks.leaked == Leaked::Parse;
        let heard = Heard {
            gate: tools.as_ref().filter(|_| leaks).map(|it| Gate::new(it.wire_names())),
            tools,
            repetition: quirks.loops.then(Repetition::default),
            spare: quirks.thought_is_answer.then(String::new),
            has_text: false,
            has_thought: false,
            is_inline: false,
            is_stuck: false,
        };
        Speech { splitter, heard }
    }

    /// Takes words as the server sent them.
    pub(super) fn words(&mut self, text: &str, batch: &mut Batch) {
        if text.is_empty() {
            return;
        }
        match &mut self.splitter {
            None => self.heard.text(text, batch),
            Some(splitter) => splitter.push(text, &mut |piece| self.heard.piece(piece, batch)),
        }
    }

    /// Takes reasoning that the server has told apart.
    pub(super) fn thought(&mut self, text: &str, batch: &mut Batch) {
        if text.is_empty() {
            return;
        }
        if self.splitter.as_ref().is_some_and(Splitter::is_unused) {
            // Who tells reasoning apart does not put it into tags as well.
            self.splitter = None;
        }
        self.heard.thought(text, batch);
    }

    /// A real call has begun: what was held back before it is no call.
    pub(super) fn release(&mut self, batch: &mut Batch) {
        if let Some(mut splitter) = self.splitter.take() {
            splitter.finish(&mut |piece| self.heard.piece(piece, batch));
        }
        if let Some(mut gate) = self.heard.gate.take() {
            let (rest, _) = gate.finish(&[]);
            self.heard.has_text |= !rest.is_empty();
            batch.text(rest);
        }
    }

    /// The end: what was held back comes out. Returns the calls that were found in it.
    pub(super) fn finish(&mut self, batch: &mut Batch) -> Vec<LeakedCall> {
        if let Some(splitter) = &mut self.splitter {
            splitter.finish(&mut |piece| self.heard.piece(piece, batch));
        }
        let Heard { gate: Some(gate), tools: Some(tools), .. } = &mut self.heard else {
            return Vec::new();
        };
        let (rest, calls) = {
            let names = tools.wire_names();
            let schemas = tools.specs.iter().map(|it| &it.parameters);
            let declared: Vec<_> = names.iter().map(String::as_str).zip(schemas).collect();
            gate.finish(&declared)
        };
        batch.text(rest);
        let has_rest = !rest.is_empty();
        self.heard.has_text |= has_rest;
        calls
    }

    /// Nothing but reasoning has come, and that was all: says it as words where it is the answer.
    pub(super) fn answer_with_thought(&mut self, batch: &mut Batch) {
        let spare = self.heard.spare.take().unwrap_or_default();
        self.heard.has_text |= !spare.is_empty();
        batch.text(&spare);
    }

    /// Whether there were words.
    pub(super) fn has_text(&self) -> bool {
        self.heard.has_text
    }

    /// Whether there was reasoning.
    pub(super) fn has_thought(&self) -> bool {
        self.heard.has_thought
    }

    /// Whether reasoning stood among the words.
    pub(super) fn is_inline(&self) -> bool {
        self.heard.is_inline
    }

    /// Whether the answer has been repeating itself for so long that it will not end (quirk
    /// C.1 #28b).
    pub(super) fn is_stuck(&self) -> bool {
        self.heard.is_stuck
    }
}

impl Heard {
    fn piece(&mut self, piece: Piece<'_>, batch: &mut Batch) {
        match piece {
            Piece::Text(text) => self.text(text, batch),
            Piece::Thought(text) => {
                self.is_inline = true;
                self.thought(text, batch);
            }
        }
    }

    fn text(&mut self, text: &str, batch: &mut Batch) {
        self.watch(text);
        let text = self.gate.as_mut().map_or(text, |gate| gate.push(text));
        self.has_text |= !text.is_empty();
        batch.text(text);
    }

    fn watch(&mut self, text: &str) {
        self.is_stuck |= self.repetition.as_mut().is_some_and(|it| it.push(text));
    }

    fn thought(&mut self, text: &str, batch: &mut Batch) {
        self.watch(text);
        self.has_thought = true;
        if let Some(spare) = &mut self.spare {
            spare.push_str(text);
        }
        batch.thought(text);
    }
}
