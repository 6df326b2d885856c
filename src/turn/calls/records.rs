//! The records of calls: their cards in the client, of which each gets its final status exactly once, also when the
//! turn dies; the lines in the audit log about what was decided; and the recorded answers. If a recording answers,
//! no part of the tool runs that could touch a file, a command or a server.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::CancellableCalls;
use super::runner::CallRunner;
use crate::tools::{ToolCtx, ToolOutcome};
use turnwright_policy::permission::{
    self, ApprovalRequest, AuditEntry, AuditEvent, Confinement, Decision, Denial, Mode, Pass,
    Verdict, decide,
};
use turnwright_recording::outside::{AnswerKind, Outside};
use turnwright_store::{CallOutcome, Entry, SessionLog};
use turnwright_types::client::{ChoiceKind, Client, PermissionAnswer};
use turnwright_types::effect::{CallContent, CallView, Effect, FileFate, ToolKind};
use turnwright_types::ids::CallId;
use turnwright_types::message::{Media, ToolCall};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text::json_len;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};

/// The most bytes of arguments that a card shows in full.
const MAX_INPUT_BYTES: usize = 64 * 1024;
/// In longer arguments, a string of more bytes than this is replaced by its length.
const MAX_STRING_BYTES: usize = 1024;

/// The error of a call whose turn has died.
const TURN_DIED: &str = "Failed: The turn crashed";
/// The error of a call whose process has ended.
pub(in crate::turn) const AGENT_ENDED: &str =
    "Failed: The agent ended before the call was complete";

pub(in crate::turn) struct OpenCards {
    client: Arc<dyn Client>,
    log: SessionLog,
    open: Vec<OpenCard>,
    cancellable: CancellableCalls,
}

#[derive(Debug)]
struct OpenCard {
    id: CallId,
    name: String,
    /// How the client shows it now.
    view: CallView,
    /// The number of the log entry that stands for the call until its answer is recorded.
    seq: Option<u64>,
    /// True if the client shows it.
    is_shown: bool,
}

impl fmt::Debug for OpenCards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenCards").field("open", &self.open).finish_non_exhaustive()
    }
}

impl OpenCards {
    pub(in crate::turn) fn new(
        client: Arc<dyn Client>,
        log: SessionLog,
        cancellable: CancellableCalls,
    ) -> OpenCards {
        OpenCards { client, log, open: Vec::new(), cancellable }
    }

    /// Lets the user cancel the call of a card with this token until the card has its final status. The
    /// client is told of this with the call's arguments.
    pub(in crate::turn) fn make_cancellable(&self, id: &CallId, cancel: CancellationToken) {
        if self.view(id).is_some() {
            self.cancellable.add(id, cancel);
        }
    }

    /// Opens a card. The client shows it from the first call of [`OpenCards::show`],
    /// [`OpenCards::show_arguments`] or [`OpenCards::finish`] on.
    pub(in crate::turn) fn open(&mut self, id: &CallId, name: String, view: CallView) {
        self.open.push(OpenCard { id: id.clone(), name, view, seq: None, is_shown: false });
    }

    /// Shows a card whose arguments are not complete.
    pub(in crate::turn) fn show(&mut self, id: &CallId) {
        self.show_up_to(id, None);
    }

    /// Shows a card with its complete arguments.
    pub(in crate::turn) fn show_arguments(&mut self, id: &CallId, raw_input: Value) {
        match self.open.iter().find(|card| card.id == *id) {
            Some(card) if card.is_shown => {
                let mut update = CallUpdate::new(id.clone(), ToolCallStatus::Pending);
                update.view = Some(card.view.clone());
                update.raw_input = Some(raw_input);
                update.can_cancel = self.cancellable.contains(id);
                self.client.update(update.into());
            }
            _ => {
                self.show_up_to(id, Some(raw_input));
            }
        }
    }

    /// Shows a card after those that were opened before it, so that a replay can keep the order.
    /// Returns its place.
    fn show_up_to(&mut self, id: &CallId, mut raw_input: Option<Value>) -> Option<usize> {
        let place = self.open.iter().position(|card| card.id == *id)?;
        for card in self.open.iter_mut().take(place + 1).filter(|card| !card.is_shown) {
            card.is_shown = true;
            let name = card.name.clone();
            let view = card.view.clone();
            let raw_input = raw_input.take_if(|_| card.id == *id);
            let can_cancel = raw_input.is_some() && self.cancellable.contains(id);
            let id = card.id.clone();
            self.client.update(Update::ToolCall { id, name, view, raw_input, can_cancel });
        }
        Some(place)
    }

    fn find(&mut self, id: &CallId) -> Option<&mut OpenCard> {
        self.open.iter_mut().find(|card| card.id == *id)
    }

    /// Sets the name of the tool, unless the client shows the card already.
    pub(in crate::turn) fn set_name(&mut self, id: &CallId, name: &str) {
        if let Some(card) = self.find(id).filter(|card| !card.is_shown) {
            name.clone_into(&mut card.name);
        }
    }

    /// Sets how the client shows the card, or will show it.
    pub(in crate::turn) fn set_view(&mut self, id: &CallId, view: &CallView) {
        if let Some(card) = self.find(id) {
            card.view.clone_from(view);
        }
    }

    /// How the client shows a card; `None` if there is no such card.
    pub(in crate::turn) fn view(&self, id: &CallId) -> Option<&CallView> {
        self.open.iter().find(|card| card.id == *id).map(|card| &card.view)
    }

    /// Logs the card of a call whose arguments were never complete, or have not arrived yet, so that it is not lost
    /// if the process is killed.
    pub(in crate::turn) fn log_incomplete(&mut self, id: &CallId, why: &str) {
        if let Some(card) = self.open.iter_mut().find(|card| card.id == *id) {
            let name = card.name.clone();
            let view = card.view.clone();
            let call = id.clone();
            let reason = why.to_owned();
            let seq = *card.seq.get_or_insert_with(|| self.log.reserve_seq());
            self.log.write_entry(seq, Entry::IncompleteCall { call, name, view, reason });
        }
    }

    /// Takes the numbers of the log entries that an answer with these calls replaces.
    pub(in crate::turn) fn take_announced(&mut self, calls: &[ToolCall]) -> Vec<u64> {
        let announced =
            self.open.iter_mut().filter(|card| calls.iter().any(|call| call.id == card.id));
        announced.filter_map(|card| card.seq.take()).collect()
    }

    /// Sends the final status of a card. Does nothing if the card is not open.
    pub(in crate::turn) fn finish(&mut self, last: CallUpdate) {
        if let Some(place) = self.show_up_to(&last.id, None) {
            self.open.remove(place);
            self.cancellable.remove(&last.id);
            self.client.update(last.into());
        }
    }

    /// Closes the card of a call that has not run. `why` is for the user.
    pub(in crate::turn) fn fail(&mut self, id: &CallId, why: &str) {
        self.finish(failed_update(id, why));
    }
}

impl Drop for OpenCards {
    fn drop(&mut self) {
        while let Some(card) = self.open.last() {
            let id = card.id.clone();
            let seq = card.seq.unwrap_or_else(|| self.log.reserve_seq());
            let why = ToolRefusal::new(TURN_DIED, TURN_DIED);
            let outcome = not_run(&card.name, Some(&card.view), why);
            self.fail(&id, TURN_DIED);
            self.log.abort_call(&id, seq, outcome);
        }
    }
}

/// The final update of a card whose call has not run.
pub(crate) fn failed_update(id: &CallId, why: &str) -> CallUpdate {
    ToolOutcome::failed(ToolRefusal::new(why, why)).settle().final_update(id)
}

/// The stored outcome of a call that has not run.
pub(crate) fn not_run(tool: &str, view: Option<&CallView>, why: ToolRefusal) -> CallOutcome {
    ToolOutcome::failed(why).settle().to_stored(tool, view)
}

/// The arguments as a card shows them. Long strings of very long arguments are replaced by their
/// length; the diff shows them.
pub(crate) fn abridged_arguments(arguments: &Value) -> Value {
    if json_len(arguments) <= MAX_INPUT_BYTES {
        return arguments.clone();
    }
    let abridged = without_contents(arguments);
    match json_len(&abridged) {
        ..=MAX_INPUT_BYTES => abridged,
        left => json!({ "omitted": format!("{left} bytes") }),
    }
}

fn without_contents(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > MAX_STRING_BYTES => {
            format!("[{} bytes]", text.len()).into()
        }
        Value::Array(items) => items.iter().map(without_contents).collect(),
        Value::Object(fields) => {
            let abridged = fields.iter().map(|(key, field)| (key.clone(), without_contents(field)));
            Value::Object(abridged.collect())
        }
        value => value.clone(),
    }
}

impl CallRunner {
    /// Records a denial.
    pub(super) fn deny(&self, denial: Denial) -> ToolRefusal {
        self.record(AuditEvent::Denied, &denial.effects, &denial.decision, |_| {});
        denial.refusal
    }

    /// Records a call that is about to run. Of a conversation's calls only commands and remote tools are
    /// recorded; the store has the others.
    pub(super) fn audit_run(&self, pass: &Pass) {
        let is_command = pass.effects().iter().any(|effect| matches!(effect, Effect::Exec(_)));
        let is_sandboxed = matches!(pass.confinement(), Confinement::Sandboxed { .. });
        let sandbox = is_command.then_some(is_sandboxed);
        let is_remote = pass.effects().iter().any(|effect| matches!(effect, Effect::Remote(_)));
        if self.is_for_mcp_client || sandbox.is_some() || is_remote {
            self.record(AuditEvent::Ran, pass.effects(), pass.decision(), |entry| {
                entry.sandbox = sandbox;
            });
        }
    }

    pub(super) fn audit_answer(&self, request: &ApprovalRequest, answer: &PermissionAnswer) {
        self.record(AuditEvent::Asked, request.effects(), request.decision(), |entry| {
            entry.answer = Some(answer_word(answer).to_owned());
        });
    }

    /// Records what hooks have decided about a call.
    pub(super) fn audit_hook(&self, effects: &[Effect], decision: &Decision, is_allowed: bool) {
        let event = if is_allowed { AuditEvent::Asked } else { AuditEvent::Denied };
        self.record(event, effects, decision, |entry| {
            let word = if is_allowed { "allowed by a hook" } else { "denied by a hook" };
            entry.answer = Some(word.to_owned());
        });
    }

    fn record(
        &self,
        event: AuditEvent,
        effects: &[Effect],
        decision: &Decision,
        complete: impl FnOnce(&mut AuditEntry),
    ) {
        let policy = self.env.shared.rules.get();
        let mode = self.env.mode();
        let session = self.env.session.as_str();
        let mut entry = AuditEntry::new(event, session, (&policy, mode), effects, decision);
        complete(&mut entry);
        self.env.log.record_permission(entry.to_json());
        self.env.shared.process.audit.record(entry);
        self.env.report_audit_loss();
    }

    /// The mode or rule that would have allowed the call, as a hint for the user of an MCP client that cannot ask.
    pub(super) fn allow_hint(&self, request: &ApprovalRequest) -> String {
        let policy = self.env.shared.rules.get();
        let now = self.env.mode();
        let allowing = Mode::ALL.into_iter().find(|mode| {
            *mode > now
                && *mode <= self.env.shared.mode.max_mode()
                && decide(&policy, *mode, &self.grants.lock(), request.effects()).verdict()
                    == Verdict::Allow
        });
        let mode = allowing
            .map(|mode| format!("the mode `{}` allows it (`--mode {}`)", mode.id(), mode.id()));
        match (mode, request.lasting_rules()) {
            (Some(mode), Some(rule)) => {
                format!(" For the user: {mode}, so does the rule {rule} in the settings.")
            }
            (Some(mode), None) => format!(" For the user: {mode}."),
            (None, Some(rule)) => {
                format!(" For the user: allow it by {rule} in the settings.")
            }
            (None, None) => " No mode and no rule allows it unasked.".to_owned(),
        }
    }
}

fn answer_word(answer: &PermissionAnswer) -> &'static str {
    match answer {
        PermissionAnswer::Chosen(ChoiceKind::AllowOnce) => permission::ALLOW_ONCE_ANSWER,
        PermissionAnswer::Chosen(ChoiceKind::AllowSession) => "allow in this session",
        PermissionAnswer::Chosen(ChoiceKind::AllowSessionForAll) => {
            "allow for all commands in this session"
        }
        PermissionAnswer::Chosen(ChoiceKind::AllowAllCommands) => {
            "allow all commands in the sandbox in this session"
        }
        PermissionAnswer::Chosen(ChoiceKind::RejectOnce) => "reject",
        PermissionAnswer::Chosen(ChoiceKind::RejectSession) => "reject in this session",
        PermissionAnswer::Cancelled => "withdrawn",
        PermissionAnswer::Unclear(_) => "unclear",
    }
}

/// A call, and the answers to it that are recorded or replayed.
pub(super) struct RecordedCall<'a> {
    answers: &'a dyn Outside,
    tool: &'a str,
    arguments: &'a Value,
}

impl<'a> RecordedCall<'a> {
    pub(super) fn of(ctx: &'a ToolCtx, tool: &'a str, arguments: &'a Value) -> RecordedCall<'a> {
        RecordedCall { answers: ctx.env.shared.process.outside.as_ref(), tool, arguments }
    }

    /// Returns true if a recording answers in place of the tool.
    pub(super) fn is_played(&self) -> bool {
        self.answers.is_played(self.tool)
    }

    /// The view of the call: the recorded one in a replay, else `now`, which is recorded if answers are.
    pub(super) fn view(&self, now: CallView) -> CallView {
        if self.is_played() {
            return self.recorded_answer(AnswerKind::View).map_or(now, |view| read_view(&view));
        }
        self.record_answer(AnswerKind::View, &|| json!(now));
        now
    }

    /// The recorded preview of the call; `None` if the tool itself makes the preview.
    pub(super) fn recorded_preview(&self) -> Option<Result<Vec<CallContent>, ToolRefusal>> {
        let recorded = self.is_played().then(|| self.recorded_answer(AnswerKind::Preview))?;
        Some(recorded.map_or(Ok(Vec::new()), |preview| read_preview(&preview)))
    }

    /// The recorded outcome of the call.
    pub(super) async fn recorded_outcome(&self) -> ToolOutcome {
        let recorded = self.answers.recorded_result(self.tool, self.arguments).await;
        recorded.map_or_else(ToolOutcome::failed, |outcome| read_outcome(&outcome))
    }

    pub(super) fn record_preview(&self, preview: &Result<Vec<CallContent>, ToolRefusal>) {
        // Most tools have nothing to show before they run.
        if preview.as_ref().map_or(true, |content| !content.is_empty()) {
            self.record_answer(AnswerKind::Preview, &|| preview_json(preview));
        }
    }

    pub(super) fn record_outcome(&self, outcome: &ToolOutcome) {
        self.record_answer(AnswerKind::Result, &|| outcome_json(outcome));
    }

    fn recorded_answer(&self, kind: AnswerKind) -> Option<Value> {
        self.answers.recorded_answer(kind, self.tool, self.arguments)
    }

    fn record_answer(&self, kind: AnswerKind, answer: &dyn Fn() -> Value) {
        self.answers.record_answer(kind, self.tool, self.arguments, answer);
    }
}

fn outcome_json(outcome: &ToolOutcome) -> Value {
    json!({
        "ok": outcome.ok,
        "text": outcome.text,
        "view": outcome.view,
        "content": contents_json(&outcome.content),
        "raw": outcome.raw,
        "images": outcome.images,
    })
}

fn read_outcome(value: &Value) -> ToolOutcome {
    ToolOutcome {
        ok: value["ok"] == true,
        text: text(&value["text"]),
        view: Some(&value["view"]).filter(|view| view.is_object()).map(read_view),
        content: read_contents(&value["content"]),
        raw: value["raw"].clone(),
        images: Vec::deserialize(&value["images"]).unwrap_or_default(),
    }
}

fn preview_json(preview: &Result<Vec<CallContent>, ToolRefusal>) -> Value {
    match preview {
        Ok(content) => json!({ "content": contents_json(content) }),
        Err(ToolRefusal { for_model, for_user }) => {
            json!({ "refusal": { "for_model": for_model, "for_user": for_user } })
        }
    }
}

fn read_preview(value: &Value) -> Result<Vec<CallContent>, ToolRefusal> {
    match value.get("refusal") {
        Some(refusal) => {
            Err(ToolRefusal::new(text(&refusal["for_model"]), text(&refusal["for_user"])))
        }
        None => Ok(read_contents(&value["content"])),
    }
}

fn contents_json(contents: &[CallContent]) -> Value {
    contents.iter().map(content_json).collect()
}

fn content_json(content: &CallContent) -> Value {
    match content {
        CallContent::Text(_) | CallContent::Terminal(_) | CallContent::Session(_) => json!(content),
        CallContent::Image(media) => json!(media),
        CallContent::Diff { path, old, new, fate } => {
            let mut diff = json!({ "path": path.to_string_lossy(), "old": old, "new": new });
            match fate {
                FileFate::Kept => {}
                FileFate::Deleted => diff["deleted"] = true.into(),
                FileFate::MovedFrom(before) => diff["moved_from"] = before.to_string_lossy().into(),
            }
            diff
        }
    }
}

fn read_contents(value: &Value) -> Vec<CallContent> {
    value.as_array().into_iter().flatten().map(read_content).collect()
}

fn read_content(value: &Value) -> CallContent {
    if let Ok(content) = CallContent::deserialize(value) {
        return content;
    }
    if let Ok(media) = Media::deserialize(value) {
        return CallContent::Image(media);
    }
    let old = value["old"].as_str().map(str::to_owned);
    let fate = match (&value["deleted"], value["moved_from"].as_str()) {
        (Value::Bool(true), _) => FileFate::Deleted,
        (_, Some(before)) => FileFate::MovedFrom(before.into()),
        (_, None) => FileFate::Kept,
    };
    let path = text(&value["path"]).into();
    CallContent::Diff { path, old, new: text(&value["new"]), fate }
}

fn read_view(value: &Value) -> CallView {
    CallView::deserialize(value)
        .unwrap_or_else(|_| CallView::new(text(&value["title"]), ToolKind::Other))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::Location;
    use turnwright_types::ids::{SessionId, TerminalId};

    #[test]
    fn long_contents_are_told_by_their_length() {
        let short = json!({ "path": "a", "content": "x".repeat(60_000) });
        assert_eq!(abridged_arguments(&short), short);
        let long = json!({ "path": "a", "edits": [{ "new_text": "x".repeat(70_000) }], "n": 1 });
        let expected = json!({ "path": "a", "edits": [{ "new_text": "[70000 bytes]" }], "n": 1 });
        assert_eq!(abridged_arguments(&long), expected);
        let endless = json!({ "paths": vec!["some/path"; 10_000] });
        assert_eq!(abridged_arguments(&endless), json!({ "omitted": "120013 bytes" }));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let media = Media { mime: "image/png".to_owned(), data: "AA==".to_owned() };
        let diff = |fate| {
            let path = "/w/a".into();
            let new = "n".to_owned();
            CallContent::Diff { path, old: None, new, fate }
        };
        let outcome = ToolOutcome {
            ok: true,
            text: "done".to_owned(),
            view: Some(CallView {
                title: "Edit a".to_owned(),
                kind: ToolKind::Edit,
                locations: vec![Location { path: "/w/a".into(), line: Some(3) }],
            }),
            content: vec![
                CallContent::Text("t".to_owned()),
                diff(FileFate::Kept),
                diff(FileFate::Deleted),
                diff(FileFate::MovedFrom("/w/b".into())),
                CallContent::Image(media.clone()),
                CallContent::Terminal(TerminalId::from("t1")),
                CallContent::Session(SessionId::from("s1")),
            ],
            raw: json!({ "exitCode": 0 }),
            images: vec![media],
        };
        assert_eq!(read_outcome(&outcome_json(&outcome)), outcome);
        let refusal = Err(ToolRefusal::new("model", "user"));
        assert_eq!(read_preview(&preview_json(&refusal)), refusal);
        let preview = Ok(outcome.content);
        assert_eq!(read_preview(&preview_json(&preview)), preview);
    }
}
