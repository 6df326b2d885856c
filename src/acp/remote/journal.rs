//! The updates that the client of the running turn was told, for a client that takes over in the middle of it.
//! Updates that are in the store too need not stay here: of a long turn only the newest are kept.

use std::mem::discriminant;

use crate::session::Replayed;
use turnwright_types::effect::CallContent;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::PromptPart;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, PromptKey, TerminalDelta, ToolCallStatus, Update};

/// The most bytes that are kept, about. What is not finished is kept in any case.
const MAX_BYTES: usize = 512 * 1024;
/// Above this a turn without a client waits for one: only what is not finished, and so not stored, takes so much.
const MAX_UNFINISHED: usize = 1024 * 1024;
/// The size of an entry besides its text, about.
const ENTRY_BYTES: usize = 200;
/// The most bytes of a terminal's output that are kept. What a command shows while it runs is less, unless it
/// runs for hours.
const MAX_TERMINAL: usize = 256 * 1024;
/// Stands for the output before what is kept.
const CUT_OUTPUT: &str = "[… the output before this is not shown …]\n";
/// The notice that comes first for a client that wants no replay and cannot be sent everything it has missed.
const MISSING: &str =
    "Some of what happened without this client is not shown. Load the session to see all of it.";

/// The updates of a turn, one entry for each message and each call.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The prompt whose turn this is.
    turn: Option<PromptKey>,
    /// True if that prompt has become a message of the conversation.
    has_prompt: bool,
    entries: Vec<JournalEntry>,
    bytes: usize,
    /// True if something was dropped that no client was told.
    has_dropped_untold: bool,
}

/// Updates about the same thing, as one.
#[derive(Debug)]
struct JournalEntry {
    /// The whole of a text until now, the first update of a call, or anything else as it is.
    update: Update,
    /// The message that it is a piece of, or all of.
    message: Option<MessageId>,
    /// All changes of a call since.
    changes: Option<Box<CallUpdate>>,
    /// The turn whose own prompt this is, if it is one.
    turn: Option<PromptKey>,
    bytes: usize,
    /// How many bytes of its text the client that is gone was told; `None` if it was told nothing of this.
    told: Option<usize>,
}

impl Journal {
    /// The prompt of the turn, until it has become a message of the conversation.
    pub(super) fn turn_without_prompt(&self) -> Option<PromptKey> {
        self.turn.filter(|_| !self.has_prompt)
    }

    /// Notes an update that the client gets, or would get if there was one.
    pub(super) fn note(&mut self, update: &Update, has_client: bool) {
        match update {
            Update::TurnBegan(prompt) => {
                if has_client {
                    // Everything before is stored, and the client was told all of it.
                    *self = Journal::default();
                }
                self.turn = Some(*prompt);
                self.has_prompt = false;
            }
            Update::AgentText { message, text }
            | Update::AgentThought { message, text }
            | Update::CompactionSummary { id: message, text } => {
                self.append(update, message, text);
            }
            Update::UserMessage { prompt, parts, .. } => {
                let turn = self.turn_without_prompt().filter(|_| prompt.is_none());
                self.has_prompt |= prompt.is_none();
                self.push(update, turn, parts.iter().map(PromptPart::size).sum());
            }
            Update::CallUpdate(change) => self.change_call(change),
            Update::Notice(text) => self.push(update, None, text.len()),
            // `TerminalEnded` is of a command that an earlier call has left running.
            Update::ToolCall { .. } | Update::TerminalEnded { .. } | Update::Cursor { .. } => {
                self.push(update, None, 0);
            }
            // The request is of a client that is about to take over.
            Update::KnownPrompt { .. } if !has_client => self.push(update, None, 0),
            Update::UserChunk { .. } | Update::KnownPrompt { .. } | Update::ReplayComplete => {}
            // For its next client, a session starts without any.
            Update::Suggestions(_) => {}
            // An update of one of these kinds replaces the earlier one of its kind.
            Update::Plan(_)
            | Update::Commands(_)
            | Update::SessionInfo { .. }
            | Update::Mode(_)
            | Update::ContextUsage { .. }
            | Update::ConfigOptions(_)
            | Update::Compaction { .. } => {
                let kind = discriminant(update);
                let mut known = self.entries.iter();
                if let Some(at) = known.position(|entry| discriminant(&entry.update) == kind) {
                    self.bytes -= self.entries.remove(at).bytes;
                }
                self.push(update, None, 0);
            }
        }
        self.shorten(has_client);
    }

    /// Returns true if too much is kept for a turn to go on without a client.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MAX_UNFINISHED
    }

    /// Forgets the turn of this prompt, because it is stored.
    pub(super) fn forget(&mut self, prompt: PromptKey) {
        if self.turn == Some(prompt) {
            *self = Journal::default();
        }
    }

    /// The client is gone, and has been told everything until now.
    pub(super) fn mark_told(&mut self) {
        for entry in &mut self.entries {
            let (_, text) = message_and_text(&mut entry.update);
            entry.told = Some(text.map_or(0, |whole| whole.len()));
        }
    }

    /// The updates for a client to which this part of the stored conversation was replayed. Without a replay
    /// it gets what the previous client was not told. With a turn's own prompt comes the key of that prompt.
    pub(super) fn updates(&self, replayed: Option<&Replayed>) -> Vec<(Option<PromptKey>, Update)> {
        let mut all = Vec::new();
        if replayed.is_none() && self.has_dropped_untold {
            all.push((None, Update::Notice(MISSING.to_owned())));
        }
        for entry in &self.entries {
            let updates = match replayed {
                Some(replayed) => entry.updates_unless(replayed),
                None => entry.untold(),
            };
            all.extend(updates.into_iter().map(|update| (entry.turn, update)));
        }
        all
    }

    /// Appends a piece of a text.
    fn append(&mut self, piece: &Update, message: &MessageId, more: &str) {
        let kind = discriminant(piece);
        let known = self.entries.iter_mut().rev().find(|entry| {
            discriminant(&entry.update) == kind && entry.message.as_ref() == Some(message)
        });
        let Some(entry) = known else { return self.push(piece, None, more.len()) };
        if let (_, Some(text)) = message_and_text(&mut entry.update) {
            text.push_str(more);
        }
        entry.bytes += more.len();
        self.bytes += more.len();
    }

    fn change_call(&mut self, change: &CallUpdate) {
        let known = self.entries.iter_mut().rev().find(|entry| entry.is_of_call(&change.id));
        let Some(entry) = known else { return };
        entry.told = None;
        let changes = entry
            .changes
            .get_or_insert_with(|| Box::new(CallUpdate::new(change.id.clone(), change.status)));
        merge(changes, change);
        let bytes = call_bytes(changes) + ENTRY_BYTES;
        self.bytes = self.bytes + bytes - entry.bytes;
        entry.bytes = bytes;
    }

    fn push(&mut self, update: &Update, turn: Option<PromptKey>, text: usize) {
        let bytes = text + ENTRY_BYTES;
        self.bytes += bytes;
        let mut update = update.clone();
        let message = message_and_text(&mut update).0.cloned();
        self.entries.push(JournalEntry { update, message, changes: None, turn, bytes, told: None });
    }

    /// Drops the oldest entries that are in the store.
    fn shorten(&mut self, has_client: bool) {
        while self.bytes > MAX_BYTES {
            let Some(oldest) = (0..self.entries.len()).find(|index| self.is_stored(*index)) else {
                return;
            };
            let entry = self.entries.remove(oldest);
            self.bytes -= entry.bytes;
            self.has_dropped_untold |= !has_client && !entry.untold().is_empty();
        }
    }

    /// Returns true if an entry is in the store. A message is stored once something follows that only comes after it.
    fn is_stored(&self, index: usize) -> bool {
        let Some((entry, later)) = self.entries[index..].split_first() else { return false };
        match &entry.update {
            Update::ToolCall { .. } => !later.is_empty() && entry.is_final_call(),
            Update::UserMessage { .. }
            | Update::Notice(_)
            | Update::TerminalEnded { .. }
            | Update::Cursor { .. } => !later.is_empty(),
            _ => entry
                .message
                .as_ref()
                .is_some_and(|message| later.iter().any(|entry| entry.comes_after(message))),
        }
    }
}

impl JournalEntry {
    fn is_of_call(&self, call: &CallId) -> bool {
        matches!(&self.update, Update::ToolCall { id, .. } if id == call)
    }

    fn is_final_call(&self) -> bool {
        self.changes.as_deref().is_some_and(|call| call.status.is_final())
    }

    /// Returns true if this is told only when the message is complete, and so stored.
    fn comes_after(&self, message: &MessageId) -> bool {
        match &self.message {
            Some(of) => of != message,
            None => self.is_final_call(),
        }
    }

    fn untold(&self) -> Vec<Update> {
        let Some(told) = self.told else { return self.updates() };
        let mut update = self.update.clone();
        match message_and_text(&mut update) {
            (_, Some(text)) if told < text.len() => {
                text.drain(..told);
                vec![update]
            }
            _ => self.cancel_reminder().into_iter().collect(),
        }
    }

    fn updates_unless(&self, replayed: &Replayed) -> Vec<Update> {
        let is_known = match &self.update {
            Update::ToolCall { id, .. } => replayed.calls.contains(id),
            Update::Compaction { id, .. } => replayed.messages.contains(id),
            // The replay leaves out the messages that were rewound.
            Update::Cursor { at, can_fork, .. } => replayed.messages.contains(at) == *can_fork,
            _ => self.message.as_ref().is_some_and(|id| replayed.messages.contains(id)),
        };
        if is_known { Vec::new() } else { self.updates() }
    }

    /// Tells a client that already knows an open call that it can cancel it: its connection is another one.
    fn cancel_reminder(&self) -> Option<Update> {
        let Update::ToolCall { id, can_cancel, .. } = &self.update else { return None };
        let changes = self.changes.as_deref();
        let status = changes.map_or(ToolCallStatus::Pending, |changes| changes.status);
        let mut update = CallUpdate::new(id.clone(), status);
        update.can_cancel = *can_cancel || changes.is_some_and(|changes| changes.can_cancel);
        let is_needed = update.can_cancel && !status.is_final();
        is_needed.then(|| update.into())
    }

    /// The updates that say this.
    fn updates(&self) -> Vec<Update> {
        let changes = self.changes.iter().flat_map(|changes| call_updates(changes));
        std::iter::once(self.update.clone()).chain(changes).collect()
    }
}

/// The message that an update is a piece of, or all of, and the text of that message if it grows. A kind that is
/// stored, or replayed, in another way is also in `is_stored`, or in `updates_unless`.
fn message_and_text(update: &mut Update) -> (Option<&MessageId>, Option<&mut String>) {
    match update {
        Update::AgentText { message, text }
        | Update::AgentThought { message, text }
        | Update::CompactionSummary { id: message, text } => (Some(message), Some(text)),
        Update::UserMessage { message, .. } => (Some(message), None),
        Update::UserChunk { .. }
        | Update::TurnBegan(_)
        | Update::KnownPrompt { .. }
        | Update::ToolCall { .. }
        | Update::CallUpdate(_)
        | Update::TerminalEnded { .. }
        | Update::Plan(_)
        | Update::Commands(_)
        | Update::Suggestions(_)
        | Update::Notice(_)
        | Update::SessionInfo { .. }
        | Update::Mode(_)
        | Update::ContextUsage { .. }
        | Update::ConfigOptions(_)
        | Update::Compaction { .. }
        | Update::Cursor { .. }
        | Update::ReplayComplete => (None, None),
    }
}

/// The updates that say how a call has changed. The terminal comes before its card is final.
fn call_updates(changes: &CallUpdate) -> Vec<Update> {
    let mut last = changes.clone();
    let mut updates = Vec::new();
    if let Some(output) = last.terminal.take() {
        let running = || CallUpdate::new(last.id.clone(), ToolCallStatus::InProgress);
        let mut shown = running();
        shown.raw_input.clone_from(&last.raw_input);
        shown.content = Some(vec![CallContent::Terminal(last.id.as_str().into())]);
        let mut drawn = running();
        drawn.terminal = Some(output);
        updates.extend([shown, drawn].map(Update::from));
    }
    updates.push(last.into());
    updates
}

/// Appends output to what a terminal shows.
fn append_output(known: &mut TerminalDelta, more: &TerminalDelta) {
    known.is_snapshot = true;
    known.text.push_str(&more.text);
    if known.text.len() > MAX_TERMINAL {
        let kept = text::floor(&known.text, known.text.len() - MAX_TERMINAL / 2);
        known.text.drain(..kept);
        known.text.insert_str(0, CUT_OUTPUT);
    }
    if more.exit.is_some() {
        known.exit.clone_from(&more.exit);
        known.goes_on = more.goes_on;
    }
}

/// Applies a change to what is known of a call.
fn merge(known: &mut CallUpdate, change: &CallUpdate) {
    known.status = change.status;
    known.can_cancel |= change.can_cancel;
    known.view = change.view.clone().or(known.view.take());
    known.content = change.content.clone().or(known.content.take());
    known.locations = change.locations.clone().or(known.locations.take());
    known.raw_input = change.raw_input.clone().or(known.raw_input.take());
    known.raw_output = change.raw_output.clone().or(known.raw_output.take());
    if let Some(more) = &change.terminal {
        append_output(known.terminal.get_or_insert_default(), more);
    }
}

/// The size of a call's texts, about.
fn call_bytes(call: &CallUpdate) -> usize {
    let content = call.content.iter().flatten().map(|block| format!("{block:?}").len());
    let output = call.terminal.as_ref().map_or(0, |terminal| terminal.text.len());
    content.sum::<usize>()
        + call.raw_input.as_ref().map_or(0, text::json_len)
        + call.raw_output.as_ref().map_or(0, text::json_len)
        + output
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::client::TerminalExit;
    use turnwright_types::effect::{CallView, ToolKind};

    fn text(message: &str, text: &str) -> Update {
        Update::AgentText { message: message.into(), text: text.to_owned() }
    }

    fn call(id: &str) -> Update {
        let title = "make".to_owned();
        let kind = ToolKind::Execute;
        let view = CallView::new(title, kind);
        Update::ToolCall {
            id: id.into(),
            name: "exec".to_owned(),
            view,
            raw_input: None,
            can_cancel: false,
        }
    }

    fn change(id: &str, status: ToolCallStatus) -> Update {
        CallUpdate::new(id.into(), status).into()
    }

    fn journal(updates: &[Update]) -> Journal {
        let mut journal = Journal::default();
        for update in updates {
            journal.note(update, true);
        }
        journal
    }

    fn updates(journal: &Journal, replayed: Option<&Replayed>) -> Vec<Update> {
        journal.updates(replayed).into_iter().map(|(_, update)| update).collect()
    }

    #[test]
    fn pieces_of_a_message_and_changes_of_a_call_become_one() {
        let pending = ToolCallStatus::InProgress;
        let done = ToolCallStatus::Completed;
        let noted =
            [text("1", "a"), call("c"), change("c", pending), text("1", "b"), change("c", done)];
        let journal = journal(&noted);
        let expected = [text("1", "ab"), call("c"), change("c", done)];
        assert_eq!(updates(&journal, Some(&Replayed::default())), expected);
        let messages = [MessageId::from("1")].into();
        let replayed = Replayed { messages, ..Replayed::default() };
        assert_eq!(updates(&journal, Some(&replayed)), expected[1..]);
    }

    #[test]
    fn a_client_that_wants_no_replay_gets_what_the_last_one_was_not_told() {
        let mut journal = journal(&[text("1", "a"), call("c")]);
        journal.mark_told();
        assert_eq!(updates(&journal, None), []);
        let done = change("c", ToolCallStatus::Completed);
        for update in [text("1", "b"), done.clone(), text("2", "c")] {
            journal.note(&update, false);
        }
        assert_eq!(updates(&journal, None), [text("1", "b"), call("c"), done, text("2", "c")]);
    }

    #[test]
    fn a_turn_begins_with_nothing() {
        let mut journal = journal(&[text("1", "a"), Update::TurnBegan(1)]);
        assert_eq!(updates(&journal, None), []);
        journal.note(&text("2", "b"), false);
        journal.note(&Update::TurnBegan(2), false);
        assert_eq!(updates(&journal, None), [text("2", "b")], "nobody has got it");
    }

    #[test]
    fn an_answer_that_is_not_stored_is_kept_whatever_is_told_beside_it() {
        let long = "x".repeat(MAX_BYTES);
        let thought = Update::AgentThought { message: "1".into(), text: long.clone() };
        let mode = Update::Mode("plan");
        let call = call("c");
        let mut journal = journal(&[thought.clone(), text("1", &long), mode.clone(), call.clone()]);
        journal.note(&text("1", &long), true);
        let answer = text("1", &long.repeat(2));
        let told = [thought, answer, mode.clone(), call.clone()];
        assert_eq!(updates(&journal, Some(&Replayed::default())), told);
        // The call has run when its message is stored.
        let done = change("c", ToolCallStatus::Completed);
        journal.note(&done, true);
        assert_eq!(updates(&journal, Some(&Replayed::default())), [mode, call, done]);
    }

    #[test]
    fn a_client_that_wants_no_replay_is_told_that_something_is_missing() {
        let long = "x".repeat(MAX_BYTES);
        let mut journal = journal(&[text("1", "a")]);
        journal.mark_told();
        for message in ["1", "2", "3"] {
            journal.note(&text(message, &long), false);
        }
        let missing = Update::Notice(MISSING.to_owned());
        assert_eq!(updates(&journal, None), [missing, text("3", &long)]);
        assert_eq!(updates(&journal, Some(&Replayed::default())), [text("3", &long)]);
    }

    #[test]
    fn of_a_long_turn_the_newest_and_what_is_not_finished_is_kept() {
        let mut journal = journal(&[call("open")]);
        let long = "x".repeat(MAX_BYTES / 4);
        (0..10).for_each(|number| journal.note(&text(&number.to_string(), &long), true));
        let kept = updates(&journal, None);
        assert_eq!(kept[0], call("open"));
        assert_eq!(kept.last(), Some(&text("9", &long)));
        assert_eq!((kept.len(), journal.bytes <= MAX_BYTES), (4, true));
    }

    #[test]
    fn the_output_of_a_terminal_is_kept_as_a_whole_and_shown_before_its_card_is_final() {
        let output = |text: &str, exit: Option<TerminalExit>| {
            let mut update = CallUpdate::new("c".into(), ToolCallStatus::InProgress);
            update.terminal =
                Some(TerminalDelta { text: text.to_owned(), exit, ..TerminalDelta::default() });
            Update::CallUpdate(Box::new(update))
        };
        let exit = TerminalExit { code: Some(0), signal: None };
        let mut journal = journal(&[call("c"), output("a\n", None)]);
        journal.mark_told();
        journal.note(&output("b\n", Some(exit.clone())), false);
        journal.note(&change("c", ToolCallStatus::Completed), false);
        let told = updates(&journal, None);
        let shown = told.iter().skip(1).map(|update| match update {
            Update::CallUpdate(update) => {
                (update.status, update.content.clone(), update.terminal.clone())
            }
            other => panic!("{other:?}"),
        });
        let shown = shown.collect::<Vec<_>>();
        let running = ToolCallStatus::InProgress;
        let text = "a\nb\n".to_owned();
        let exit = Some(exit);
        let is_snapshot = true;
        let all = TerminalDelta { text, exit, is_snapshot, ..TerminalDelta::default() };
        let expected = [
            (running, Some(vec![CallContent::Terminal("c".into())]), None),
            (running, None, Some(all)),
            (ToolCallStatus::Completed, None, None),
        ];
        assert_eq!(shown, expected);

        let mut long = TerminalDelta::default();
        for number in 0..MAX_TERMINAL {
            let text = format!("{number} ä\n");
            append_output(&mut long, &TerminalDelta { text, ..TerminalDelta::default() });
            assert!(long.text.len() <= MAX_TERMINAL);
        }
        assert!(
            long.text.starts_with(CUT_OUTPUT)
                && long.text.ends_with(&format!("{} ä\n", MAX_TERMINAL - 1))
        );
    }

    #[test]
    fn a_client_that_knows_an_open_call_is_told_again_that_it_can_be_cancelled() {
        let mut offered = CallUpdate::new("c".into(), ToolCallStatus::InProgress);
        offered.can_cancel = true;
        let offered = Update::CallUpdate(Box::new(offered));
        let mut journal = journal(&[call("c"), offered.clone(), call("other")]);
        journal.mark_told();
        assert_eq!(updates(&journal, None), [offered]);
        journal.note(&change("c", ToolCallStatus::Completed), true);
        journal.mark_told();
        assert_eq!(updates(&journal, None), []);
    }

    #[test]
    fn updates_that_replace_each_other_do_not_fill_the_journal() {
        let mut journal = Journal::default();
        for _ in 0..10_000 {
            journal.note(&Update::Commands(Vec::new()), false);
        }
        assert!(!journal.is_full());
        assert_eq!(journal.entries.len(), 1);
        assert_eq!(journal.bytes, journal.entries[0].bytes);
    }
}
