//! The client of a session in version 2: updates, the session's state, and questions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::diffs::{self, ShownPreview};
use super::encode::{self, cancel_capability};
use super::prompts::PromptLedger;
use crate::acp::capabilities::ClientCaps;
use crate::acp::schema;
use crate::acp::subagents::ChildSession;
use crate::acp::user_question::UserQuestions;
use crate::acp::versions::Version;
use turnwright_rpc::Peer;
use turnwright_types::client::{
    Client, ElicitationModes, FormOutcome, HelperView, PermissionAnswer, PermissionRequest,
    ServerForm, StartedHelper, TerminalExit, UserQuestion, UserReply,
};
use turnwright_types::effect::{CallContent, escape_hidden};
use turnwright_types::ids::{CallId, SessionId, TerminalId};
use turnwright_types::message::PromptPart;
use turnwright_types::redact;
use turnwright_types::update::{
    COMMAND_TOOL, CallUpdate, PromptKey, TerminalDelta, ToolCallStatus, Update,
};

/// The client of one session.
pub(in crate::acp) struct AcpClientV2 {
    peer: Peer,
    session: SessionId,
    cwd: PathBuf,
    caps: ClientCaps,
    questions: UserQuestions,
    prompts: PromptLedger,
    /// The tasks of the host.
    tasks: TaskTracker,
    /// The prompt whose turn has begun last; no prompt has the key 0.
    running_prompt: AtomicU64,
    /// The calls whose cards are not final.
    // Held only to look something up, and to compare a text with its beginning.
    calls: Mutex<HashMap<CallId, ShownCall>>,
}

/// Why a call without an answer is not executed.
const DISMISSED: &str = "the question was dismissed";

/// The client's knowledge of a call.
#[derive(Debug, Default)]
struct ShownCall {
    /// The terminal of a command; `None` for any other call.
    terminal: Option<ShownTerminal>,
    /// The line of a command.
    line: Option<String>,
    /// True if a command runs in the session's folder.
    is_in_cwd: bool,
    /// True if the client was told that it can cancel the call.
    can_cancel: bool,
    /// The part that it shows of the file that the call is going to write.
    preview: Option<ShownPreview>,
}

/// The client's knowledge of a command's terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ShownTerminal {
    #[default]
    Unknown,
    Running,
    /// The client knows the end of the command, or that it goes on after its card is final.
    Settled,
}

impl AcpClientV2 {
    pub(in crate::acp) fn new(
        peer: Peer,
        session: &SessionId,
        cwd: PathBuf,
        caps: ClientCaps,
        prompts: PromptLedger,
        tasks: TaskTracker,
    ) -> AcpClientV2 {
        let wire_id = schema::SessionId::new(session.to_arc());
        AcpClientV2 {
            questions: UserQuestions::new(peer.clone(), wire_id, Version::V2, caps.elicitation),
            peer,
            session: session.clone(),
            cwd,
            caps,
            prompts,
            tasks,
            running_prompt: AtomicU64::new(0),
            calls: Mutex::default(),
        }
    }

    /// Tells the client that no turn runs, unless it has taken over a running turn.
    pub(in crate::acp) fn report_idle(&self) {
        if !self.prompts.is_running(self.running_prompt.load(Ordering::Relaxed)) {
            self.send_state("idle");
        }
    }

    fn send_state(&self, state: &str) {
        let state = json!({ "state": state });
        self.prompts.told.send_state(self.peer.outbox(), &self.session, state);
    }

    /// Tells the client that a turn runs, after the tasks that are ready now: one of them sends the turn's request
    /// to the model, which need not wait for the client to read this.
    fn report_running(&self) {
        let batch = self.peer.outbox().batch();
        self.send_state("running");
        self.tasks.spawn(async move {
            tokio::task::yield_now().await;
            drop(batch);
        });
    }

    fn send(&self, update: &Value) {
        encode::send_update(self.peer.outbox(), &self.session, update);
    }

    /// The turn waits for the user until the returned value is dropped (R-TWO-8). As long as anything else of it runs,
    /// it does not wait for the answer to a helper in the background.
    fn wait_for_user(&self, in_background: bool) -> UserWait<'_> {
        let running = self.running_prompt.load(Ordering::Relaxed);
        let is_blocked = !in_background && self.prompts.is_running(running);
        if is_blocked {
            self.send_state("requires_action");
        }
        UserWait { client: self, is_blocked }
    }

    /// Records that a call is a command, and its line and its folder, which the update of its terminal contains.
    fn note_command(&self, id: &CallId, arguments: Option<&Value>) {
        let mut calls = self.calls.lock();
        let call = calls.entry(id.clone()).or_default();
        call.terminal.get_or_insert_default();
        let Some(arguments) = arguments else { return };
        call.line = arguments["command"].as_str().map(str::to_owned);
        let folder = arguments["workdir"].as_str().or_else(|| arguments["cwd"].as_str());
        call.is_in_cwd = folder.is_none();
    }

    /// Sends an update of a card, after that of the terminal that it shows.
    fn update_call(&self, mut update: CallUpdate) {
        let is_command =
            self.calls.lock().get(&update.id).is_some_and(|call| call.terminal.is_some());
        if is_command {
            self.note_command(&update.id, update.raw_input.as_ref());
        }
        for content in update.content.iter().flatten() {
            if let CallContent::Terminal(terminal) = content {
                self.announce_terminal(&update.id, terminal);
            }
        }
        let capabilities = if update.status.is_final() {
            let ended = self.calls.lock().remove(&update.id).unwrap_or_default();
            if ended.terminal == Some(ShownTerminal::Running) {
                // Nothing has told the end, because the turn has crashed.
                self.end_terminal(&update.id, &TerminalExit::default());
            }
            leave_out_shown_output(&mut update);
            // It can no longer be cancelled.
            ended.can_cancel.then_some(Value::Null)
        } else {
            self.note_cancel(&update.id, update.can_cancel)
        };
        if let Some(delta) = &update.terminal {
            // Nothing else of the card changes together with its terminal's output.
            return self.update_terminal(&update.id, delta);
        }
        let call = update.id.clone();
        let more = self.take_more_of_preview(&mut update);
        encode::send_call_update(self.peer.outbox(), &self.session, update, capabilities);
        if let Some(content) = more {
            self.send(&json!({
                "sessionUpdate": "tool_call_content_chunk", "toolCallId": call.as_str(),
                "content": content,
            }));
        }
    }

    /// The new capabilities of a call, if an update says that it can be cancelled from now on.
    fn note_cancel(&self, id: &CallId, can_cancel: bool) -> Option<Value> {
        if !can_cancel {
            return None;
        }
        self.calls.lock().entry(id.clone()).or_default().can_cancel = true;
        Some(cancel_capability())
    }

    /// Like [`diffs::take_more`].
    fn take_more_of_preview(&self, update: &mut CallUpdate) -> Option<Value> {
        let mut calls = self.calls.lock();
        if update.status == ToolCallStatus::Pending {
            calls.entry(update.id.clone()).or_default();
        }
        diffs::take_more(&mut calls.get_mut(&update.id)?.preview, update)
    }

    fn announce_terminal(&self, call: &CallId, terminal: &TerminalId) {
        let mut calls = self.calls.lock();
        let Some(known) = calls.get_mut(call) else { return };
        if known.terminal != Some(ShownTerminal::Unknown) {
            return;
        }
        known.terminal = Some(ShownTerminal::Running);
        let mut update = json!({
            "sessionUpdate": "terminal_update", "terminalId": terminal.to_arc().as_ref(),
            "capabilities": cancel_capability(),
        });
        if let Some(line) = &known.line {
            update["command"] = escape_hidden(line).into();
        }
        if known.is_in_cwd {
            update["cwd"] = self.cwd.to_string_lossy().into();
        }
        drop(calls);
        self.send(&update);
    }

    fn update_terminal(&self, call: &CallId, delta: &TerminalDelta) {
        if !delta.text.is_empty() {
            // Nobody can redact it once it is encoded.
            let bytes = BASE64.encode(redact::text(&delta.text).as_bytes());
            let kind = if delta.is_snapshot { "terminal_update" } else { "terminal_output_chunk" };
            let mut update = json!({ "sessionUpdate": kind, "terminalId": call.as_str() });
            if delta.is_snapshot {
                update["output"]["data"] = bytes.into();
            } else {
                update["data"] = bytes.into();
            }
            self.send(&update);
        }
        let Some(exit) = &delta.exit else { return };
        let mut calls = self.calls.lock();
        let known =
            calls.get_mut(call).and_then(|card| card.terminal.replace(ShownTerminal::Settled));
        drop(calls);
        if !delta.goes_on {
            return self.end_terminal(call, exit);
        }
        if known.is_none() {
            // This client has taken over the session.
            self.send(&json!({
                "sessionUpdate": "terminal_update", "terminalId": call.as_str(),
                "capabilities": cancel_capability(),
            }));
        }
        self.set_background(call, true);
    }

    fn end_terminal(&self, call: &CallId, exit: &TerminalExit) {
        self.send(&json!({
            "sessionUpdate": "terminal_update", "terminalId": call.as_str(),
            "exitStatus": { "exitCode": exit.code, "signal": exit.signal }, "capabilities": null,
        }));
        self.set_background(call, false);
    }

    /// Notes that the command in the terminal of a call goes on in the background, or that it has ended.
    fn set_background(&self, call: &CallId, goes_on: bool) {
        let work = json!({ "type": "terminal", "terminalId": call.as_str() });
        self.prompts.told.set_background(self.peer.outbox(), &self.session, work, goes_on);
    }
}

/// In version 2 the outcome `cancelled` also says that the user dismissed the question, or that the client
/// declined it. What ends the turn is `session/cancel` (R-TWO-13).
fn not_cancelled(answer: PermissionAnswer) -> PermissionAnswer {
    match answer {
        PermissionAnswer::Cancelled => PermissionAnswer::Unclear(DISMISSED.to_owned()),
        other => other,
    }
}

/// Removes the output from the result if a terminal shows it.
fn leave_out_shown_output(update: &mut CallUpdate) {
    let shows_terminal =
        update.content.iter().flatten().any(|content| matches!(content, CallContent::Terminal(_)));
    if let Some(raw) = update.raw_output.as_mut().and_then(Value::as_object_mut)
        && shows_terminal
    {
        raw.remove("output");
    }
}

/// A question to the user.
struct UserWait<'a> {
    client: &'a AcpClientV2,
    /// True if a turn waits for the answer.
    is_blocked: bool,
}

impl Drop for UserWait<'_> {
    fn drop(&mut self) {
        if self.is_blocked {
            self.client.send_state("running");
        }
    }
}

impl Client for AcpClientV2 {
    fn update(&self, mut update: Update) {
        self.prompts.told.leave_out_unknown(&mut update);
        match update {
            Update::TurnBegan(prompt) => {
                self.prompts.begin(prompt);
                self.running_prompt.store(prompt, Ordering::Relaxed);
                self.report_running();
            }
            Update::UserMessage { prompt, message, parts } => {
                let own = parts.into_iter().filter(|part| !matches!(part, PromptPart::Context(_)));
                // One write has the message and the answer.
                let _batch = self.peer.outbox().batch();
                self.send(&encode::user_message(&message, own));
                let prompt: PromptKey =
                    prompt.unwrap_or_else(|| self.running_prompt.load(Ordering::Relaxed));
                self.prompts.answer(prompt, &message);
            }
            Update::ToolCall { ref id, ref name, ref raw_input, can_cancel, .. } => {
                if name == COMMAND_TOOL {
                    self.note_command(id, raw_input.as_ref());
                }
                let capabilities = self.note_cancel(id, can_cancel);
                encode::send_new_call(self.peer.outbox(), &self.session, update, capabilities);
            }
            Update::CallUpdate(update) => self.update_call(*update),
            Update::TerminalEnded { call, exit } => self.end_terminal(&call, &exit),
            Update::KnownPrompt { prompt, message } => self.prompts.answer(prompt, &message),
            Update::ReplayComplete => self.send(&json!({ "sessionUpdate": "replay_complete" })),
            other => encode::send(self.peer.outbox(), &self.session, other, self.caps),
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.peer.outbox().wait_for_capacity())
    }

    fn follows_prompts(&self) -> bool {
        true
    }

    fn draws_terminals(&self) -> bool {
        true
    }

    fn shows_suggestions(&self) -> bool {
        self.caps.suggestions
    }

    fn report_open_questions(&self) {
        if self.prompts.is_running(self.running_prompt.load(Ordering::Relaxed)) {
            self.send_state("requires_action");
        }
    }

    fn request_permission(
        &self,
        mut request: PermissionRequest,
    ) -> BoxFuture<'_, PermissionAnswer> {
        self.caps.limit_answers(&mut request);
        let offered: Vec<_> = request.choices.iter().map(|choice| choice.kind).collect();
        let in_background = request.in_background;
        let session = schema::SessionId::new(self.session.to_arc());
        let params = encode::permission_request(session, request);
        Box::pin(async move {
            let permission =
                self.questions.permission(&params, &offered, || self.wait_for_user(in_background));
            not_cancelled(permission.await)
        })
    }

    fn ask_user(&self, question: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(self.questions.ask(question, || self.wait_for_user(false)))
    }

    fn show_helper(&self, helper: &StartedHelper) -> Option<Box<dyn HelperView>> {
        let client = AcpClientV2::new(
            self.peer.clone(),
            &helper.session,
            self.cwd.clone(),
            ClientCaps { elicitation: ElicitationModes::default(), ..self.caps },
            PromptLedger::new(self.prompts.told.clone()),
            self.tasks.clone(),
        );
        let parent = self.session.clone();
        let peer = self.peer.clone();
        let told = self.prompts.told.clone();
        let version = Version::V2;
        Some(ChildSession::announce(helper, parent, peer, version, told, Box::new(client)))
    }

    fn elicitation_modes(&self) -> ElicitationModes {
        self.questions.modes
    }

    fn show_form(&self, form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        let in_background = form.in_background;
        Box::pin(self.questions.show_form(form, move || self.wait_for_user(in_background)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::time::Duration;

    use turnwright_rpc::Outbox;
    use turnwright_types::effect::{CallView, ToolKind};
    use turnwright_types::update::ToolCallStatus;

    use super::*;

    /// The messages that a client is sent for these updates, without their envelopes.
    fn sent(updates: Vec<Update>) -> Vec<Value> {
        let (reader, writer) = std::io::pipe().unwrap();
        let outbox = Outbox::start(writer).unwrap();
        let peer = Peer::new(outbox.clone());
        let cwd = PathBuf::from("/w");
        let id = SessionId::random();
        let prompts = PromptLedger::default();
        let caps = ClientCaps::default();
        let client = AcpClientV2::new(peer, &id, cwd, caps, prompts, TaskTracker::new());
        for update in updates {
            client.update(update);
        }
        outbox.close(Duration::from_secs(5));
        drop((client, outbox));
        let lines = BufReader::new(reader).lines().map(Result::unwrap);
        let parse = |line: String| serde_json::from_str::<Value>(&line).unwrap();
        lines.map(|line| parse(line)["params"]["update"].take()).collect()
    }

    fn update(status: ToolCallStatus) -> CallUpdate {
        CallUpdate::new("call-1".into(), status)
    }

    /// A command that has shown its terminal, and what follows.
    fn command_with(terminal: Option<TerminalDelta>) -> Vec<Value> {
        let title = "make".to_owned();
        let kind = ToolKind::Execute;
        let view = CallView::new(title, kind);
        let raw_input = Some(json!({ "command": "make" }));
        let id = "call-1".into();
        let name = COMMAND_TOOL.to_owned();
        let can_cancel = true;
        let first = Update::ToolCall { id, name, view, raw_input, can_cancel };
        let mut shown = update(ToolCallStatus::InProgress);
        shown.content = Some(vec![CallContent::Terminal("call-1".into())]);
        let mut drawn = update(ToolCallStatus::InProgress);
        drawn.terminal = terminal;
        let failed = update(ToolCallStatus::Failed);
        let changes = [shown, drawn, failed].map(Into::into);
        sent(std::iter::once(first).chain(changes).collect())
    }

    #[test]
    fn a_terminal_cannot_be_cancelled_once_its_command_is_gone_or_its_turn_has_crashed() {
        let exit = Some(TerminalExit { code: Some(2), signal: None });
        let goes_on = TerminalDelta { exit: exit.clone(), goes_on: true, ..Default::default() };
        let table = [
            (None, vec![json!({ "exitCode": null, "signal": null })]),
            (
                Some(TerminalDelta { exit, ..Default::default() }),
                vec![json!({ "exitCode": 2, "signal": null })],
            ),
            // It is the command of a job, which the user can still stop.
            (Some(goes_on), vec![]),
        ];
        for (terminal, expected) in table {
            let sent = command_with(terminal.clone());
            let ends: Vec<_> =
                sent.iter().filter(|update| update["exitStatus"].is_object()).collect();
            let exits: Vec<_> = ends.iter().map(|update| update["exitStatus"].clone()).collect();
            assert_eq!(exits, expected, "{terminal:?}");
            assert!(ends.iter().all(|update| update.get("capabilities") == Some(&Value::Null)));
            let last = sent.last().unwrap();
            assert_eq!(
                (&last["status"], last.get("capabilities")),
                (&json!("failed"), Some(&Value::Null))
            );
        }
    }

    #[test]
    fn a_snapshot_replaces_what_a_terminal_shows_and_other_output_is_appended() {
        let delta = |is_snapshot| {
            let mut update = update(ToolCallStatus::InProgress);
            let text = "all\n".to_owned();
            update.terminal = Some(TerminalDelta { text, is_snapshot, ..Default::default() });
            sent(vec![Update::CallUpdate(Box::new(update))]).remove(0)
        };
        let kind = "terminal_update";
        let data = "YWxsCg==";
        let snapshot = json!({
            "sessionUpdate": kind, "terminalId": "call-1", "output": { "data": data },
        });
        assert_eq!(delta(true), snapshot);
        let kind = "terminal_output_chunk";
        let id = "call-1";
        assert_eq!(delta(false), json!({ "sessionUpdate": kind, "terminalId": id, "data": data }));
    }
}
