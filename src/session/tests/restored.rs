//! Tests that a stored session is restored as it was shown, wherever its log was cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::session;
use crate::session::open::restore::{RestoredSession, restore_session};
use crate::session::prompts::UnfinishedTurn;
use crate::turn::Turn;
use crate::turn::fixture::store_with_session;
use crate::turn::fixture::{ScriptedReply, TurnFixture, turn_fixture};
use turnwright_policy::permission::Mode;
use turnwright_store::{Audience, CallOutcome, Durability, Entry, SessionLog, Store, TurnKind};
use turnwright_types::effect::{CallContent, CallView, ToolKind};
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    AssistantMessage, History, Message, ProviderState, StopReason, ToolCall, UserMessage, repair,
};
use turnwright_types::update::{PlanEntry, PlanPriority, PlanStatus, Update};

/// A fixture whose session is stored.
async fn stored_fixture(plays: Vec<ScriptedReply>) -> (TurnFixture, Store) {
    let (store, log) = store_with_session().await;
    let mut fixture = turn_fixture(plays, false, None);
    Arc::get_mut(&mut fixture.conversation.env).unwrap().log = log;
    (fixture, store)
}

/// The updates since the last call.
fn take_updates(fixture: &TurnFixture) -> Vec<Update> {
    std::mem::take(&mut *fixture.client.updates.lock())
}

async fn restored(fixture: &TurnFixture, store: &Store) -> (RestoredSession, Vec<Update>) {
    take_updates(fixture);
    let id = fixture.conversation.env.session.clone();
    let restored_session =
        restore_session(store, &fixture.conversation, &id, true, &fixture.cancel).await.unwrap();
    (restored_session, take_updates(fixture))
}

/// The conversation as the user sees it in the end, in the order of arrival.
fn fold(updates: &[Update]) -> Vec<(String, Value)> {
    let mut order = Vec::new();
    let mut shown = BTreeMap::<String, Value>::new();
    for update in updates {
        let (key, fields) = match update {
            Update::AgentText { message, text } => {
                (format!("text {message}"), json!({ "+": text }))
            }
            Update::AgentThought { message, text } => {
                (format!("thought {message}"), json!({ "+": text }))
            }
            Update::ToolCall { id, view, name, .. } => {
                (format!("card {id}"), json!({ "name": name, "view": format!("{view:?}") }))
            }
            Update::CallUpdate(call) => {
                let mut fields = json!({ "status": format!("{:?}", call.status) });
                let parts = [
                    ("view", call.view.as_ref().map(|view| format!("{view:?}").into())),
                    ("content", call.content.as_ref().map(|content| format!("{content:?}").into())),
                    ("raw", call.raw_output.clone()),
                ];
                for (name, part) in parts {
                    if let Some(part) = part {
                        fields[name] = part;
                    }
                }
                (format!("card {}", call.id), fields)
            }
            Update::Plan(entries) => ("plan".to_owned(), format!("{entries:?}").into()),
            _ => continue,
        };
        if !shown.contains_key(&key) || key == "plan" {
            order.retain(|known| *known != key);
            order.push(key.clone());
            shown.insert(key, fields);
            continue;
        }
        let so_far = shown.get_mut(&key).unwrap();
        for (name, field) in fields.as_object().unwrap() {
            so_far[name] = match (name.as_str(), so_far[name].as_str()) {
                ("+", Some(words)) => format!("{words}{}", field.as_str().unwrap()).into(),
                _ => field.clone(),
            };
        }
    }
    order.into_iter().map(|key| (key.clone(), shown.remove(&key).unwrap())).collect()
}

#[tokio::test]
async fn a_restored_session_looks_as_it_was_shown() {
    let first = vec![
        ("plan", json!({ "entries": [{ "content": "a", "status": "in_progress" }] })),
        ("write_file", json!({ "path": "a", "content": "one\ntwo\n" })),
        ("read_file", json!({ "path": "a" })),
        ("read_file", json!({ "path": "missing" })),
        ("no_such_tool", json!({})),
        ("edit_file", json!({ "path": 7 })),
    ];
    let second = vec![
        ("edit_file", json!({ "path": "a", "edits": [{ "old_text": "one", "new_text": "1" }] })),
        ("plan", json!({ "entries": [{ "content": "a", "status": "completed" }] })),
    ];
    let plays = vec![
        ScriptedReply::Calls(first),
        ScriptedReply::Calls(second),
        ScriptedReply::Text("Done."),
    ];
    let (fixture, store) = stored_fixture(plays).await;
    fixture.conversation.mode().set(Mode::AutoEdit);
    let prompt = UserMessage::text("Do it.");
    let history = History::default();
    let turn = Turn::new(fixture.conversation.clone(), history, prompt, fixture.cancel.clone());
    let finished = turn.run().await;
    let live = fold(&take_updates(&fixture));
    let (restored_session, updates) = restored(&fixture, &store).await;
    assert_eq!(fold(&updates), live);
    assert_eq!(restored_session.history.messages, finished.history.messages);
    assert_eq!(restored_session.history.minted, finished.history.minted);
    assert_eq!(restored_session.unfinished, None);
}

#[tokio::test]
async fn a_turn_that_dies_is_forgotten_by_the_model_and_not_by_the_user() {
    let write = ("write_file", json!({ "path": "a", "content": "x" }));
    let plays = vec![
        ScriptedReply::Calls(vec![write]),
        ScriptedReply::HalfCall("read_file"),
        ScriptedReply::Text("Fine."),
    ];
    let (fixture, store) = stored_fixture(plays).await;
    fixture.conversation.mode().set(Mode::AutoEdit);
    let mut session = session(&fixture);
    session.prompt("1").await.unwrap().unwrap_err();
    let live = fold(&take_updates(&fixture));
    assert_eq!(live.len(), 2, "{live:?}");
    assert_eq!(fold(&restored(&fixture, &store).await.1), live);
    assert_eq!(session.prompt("2").await.unwrap().unwrap(), StopReason::EndTurn);
    let (restored_session, _) = restored(&fixture, &store).await;
    let said = restored_session
        .history
        .messages
        .iter()
        .filter(|message| matches!(***message, Message::User(_)));
    assert_eq!((said.count(), restored_session.history.messages.len()), (1, 2));
}

/// One write to the log.
#[derive(Clone, Debug)]
enum LogOp {
    Prompt,
    Answer(u8),
    Intend(u8),
    Settle(u8),
    Draft,
    Note,
    Plan,
    Cleared,
    Compacted(u8),
    Pruned(u8),
    ImagesLeftOut,
    SomeImagesLeftOut(u8),
    Refused,
    Rewound(u8),
    RewindUndone(u8),
    End,
}

fn op() -> impl Strategy<Value = LogOp> {
    prop_oneof![
        3 => Just(LogOp::Prompt),
        5 => (0..4_u8).prop_map(LogOp::Answer),
        3 => (0..3_u8).prop_map(LogOp::Intend),
        5 => (0..3_u8).prop_map(LogOp::Settle),
        2 => Just(LogOp::Draft),
        2 => Just(LogOp::Note),
        1 => Just(LogOp::Plan),
        1 => Just(LogOp::Cleared),
        2 => (0..5_u8).prop_map(LogOp::Compacted),
        1 => (0..5_u8).prop_map(LogOp::Pruned),
        1 => Just(LogOp::ImagesLeftOut),
        1 => (0..5_u8).prop_map(LogOp::SomeImagesLeftOut),
        1 => Just(LogOp::Refused),
        1 => (1..9_u8).prop_map(LogOp::Rewound),
        1 => (1..30_u8).prop_map(LogOp::RewindUndone),
        2 => Just(LogOp::End),
    ]
}

/// Writes to the log like a session.
#[derive(Default)]
struct LogWriter {
    minted: u64,
    open: Vec<CallId>,
}

impl LogWriter {
    fn mint(&mut self, word: &str) -> String {
        self.minted += 1;
        format!("{word}-{}", self.minted)
    }

    fn write(&mut self, log: &SessionLog, op: &LogOp) {
        match op {
            LogOp::Prompt => {
                log.begin_turn(TurnKind::Prompt, "words".to_owned());
                let message = Arc::new(Message::User(UserMessage::text("hello")));
                let id = self.mint("msg").into();
                log.add_entry(Entry::Message { id, message, audience: Audience::Both });
            }
            LogOp::Answer(count) => self.answer(log, *count),
            LogOp::Intend(number) => {
                if let Some(call) = self.open.get(usize::from(*number)) {
                    let path = "/w/a".into();
                    let before = FileState::Absent;
                    let files = vec![FileChange { path, before, after: None }];
                    let intent = ChangeIntent { files, bytes: Vec::new() };
                    log.record_intent(call, intent, Durability::ProcessCrash).in_background();
                }
            }
            LogOp::Settle(number) => {
                if usize::from(*number) < self.open.len() {
                    let call = self.open.remove(usize::from(*number));
                    let text = "result".to_owned();
                    let tool = "write_file".to_owned();
                    let view = Some(view());
                    let content = vec![CallContent::Text(text.clone())];
                    let ok = true;
                    let settled = CallOutcome {
                        is_success: ok,
                        tool,
                        text,
                        view,
                        content,
                        ..CallOutcome::default()
                    };
                    log.finish_call(&call, settled).in_background();
                }
            }
            LogOp::Draft => {
                let seq = log.reserve_seq();
                let id = self.mint("msg").into();
                log.append_draft(seq, &id, true, "thinking".to_owned()).in_background();
                log.append_draft(seq, &id, false, "some ".to_owned()).in_background();
                log.append_draft(seq, &id, false, "words".to_owned()).in_background();
            }
            LogOp::Note => {
                let id = self.mint("msg").into();
                log.add_entry(Entry::Note { id, text: "a note".to_owned() });
            }
            LogOp::Plan => {
                let priority = PlanPriority::Medium;
                let status = PlanStatus::Pending;
                let entry = PlanEntry { content: "a".to_owned(), priority, status };
                log.add_entry(Entry::Plan { entries: vec![entry] });
            }
            LogOp::Cleared => drop(log.add_entry(Entry::Cleared)),
            LogOp::Compacted(kept) => {
                let replacement = Arc::new(Message::User(UserMessage::text("a summary")));
                let id = self.mint("sum").into();
                let kept = usize::from(*kept);
                log.add_entry(Entry::Compacted { id, replacement, kept, max_result: 3 });
            }
            LogOp::Pruned(kept) => drop(log.add_entry(Entry::Pruned { kept: usize::from(*kept) })),
            LogOp::ImagesLeftOut => drop(log.add_entry(Entry::ImagesLeftOut)),
            LogOp::SomeImagesLeftOut(image) => {
                log.add_entry(Entry::SomeImagesLeftOut { images: vec![usize::from(*image)] });
            }
            LogOp::Refused => drop(log.add_entry(Entry::Refused)),
            LogOp::Rewound(to) => drop(log.add_entry(Entry::Rewound { to: u64::from(*to) })),
            LogOp::RewindUndone(rewind) => {
                log.add_entry(Entry::RewindUndone { rewind: u64::from(*rewind) });
            }
            LogOp::End => drop(log.end_turn("end_turn", self.minted, None, None)),
        }
    }

    fn answer(&mut self, log: &SessionLog, count: u8) {
        let calls: Vec<ToolCall> = (0..count)
            .map(|number| {
                ToolCall::new(
                    self.mint("call"),
                    format!("p{}", self.minted),
                    if number == 2 { "exec" } else { "write_file" },
                    json!({ "path": "a", "content": "x" }),
                )
            })
            .collect();
        self.open.extend(calls.iter().map(|call| call.id.clone()));
        let id = self.mint("msg");
        let message = Arc::new(Message::Assistant(AssistantMessage {
            id: id.as_str().into(),
            text: "words".to_owned(),
            thought: "thoughts".to_owned(),
            calls,
            interrupted: false,
            provider_state: ProviderState::default(),
        }));
        log.add_entry(Entry::Message { id: id.into(), message, audience: Audience::Both });
    }
}

fn view() -> CallView {
    CallView::new("Write a", ToolKind::Edit)
}

/// Checks what is restored after these writes and no others.
async fn check(ops: &[LogOp]) {
    let (fixture, store) = stored_fixture(Vec::new()).await;
    let mut writer = LogWriter::default();
    for op in ops {
        writer.write(fixture.conversation.log(), op);
    }
    let (restored_session, updates) = restored(&fixture, &store).await;
    let messages = &restored_session.history.messages;
    // Every call is followed by its result, for providers by their own ids.
    assert_eq!(&repair(messages), messages);
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for message in messages {
        match message.as_ref() {
            Message::Assistant(answer) => {
                calls.extend(answer.calls.iter().map(|call| &call.provider_id));
            }
            Message::Tool(tool) => results.push(&tool.provider_id),
            Message::User(_) => {}
        }
    }
    assert_eq!(calls, results);
    assert!(restored_session.history.minted >= writer.minted);
    let first = |update: &Update| match update {
        Update::ToolCall { id, .. } => Some(id.to_string()),
        Update::AgentText { message, .. } => Some(format!("text {message}")),
        Update::AgentThought { message, .. } => Some(format!("thought {message}")),
        Update::UserChunk { message, .. } => Some(format!("user {message}")),
        _ => None,
    };
    let mut keys: Vec<_> = updates.iter().filter_map(first).collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "{updates:?}");
    // The recovery is stored, so it must be the same the next time.
    let (again, same) = restored(&fixture, &store).await;
    assert_eq!((again.history.messages, same), (restored_session.history.messages, updates));
    assert_eq!(again.history.minted, restored_session.history.minted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_prefix_of_a_log_is_restored_as_a_valid_conversation(
        ops in proptest::collection::vec(op(), 0..14),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for end in 0..=ops.len() {
            runtime.block_on(check(&ops[..end]));
        }
    }
}

#[tokio::test]
async fn identifiers_are_skipped_only_after_an_interrupted_turn() {
    let (fixture, store) = stored_fixture(Vec::new()).await;
    let mut writer = LogWriter::default();
    let log = fixture.conversation.log().clone();
    for op in [LogOp::Prompt, LogOp::Answer(2), LogOp::Settle(0), LogOp::Settle(0), LogOp::End] {
        writer.write(&log, &op);
    }
    assert_eq!(restored(&fixture, &store).await.0.history.minted, writer.minted);
    for op in [LogOp::Prompt, LogOp::Answer(1)] {
        writer.write(&log, &op);
    }
    let (restored_session, _) = restored(&fixture, &store).await;
    assert!(
        restored_session.unfinished == Some(UnfinishedTurn::Interrupted)
            && restored_session.history.minted > writer.minted + 1_000
    );
    assert_eq!(restored(&fixture, &store).await.0.history.minted, restored_session.history.minted);
    assert!(SystemTime::now() >= restored_session.row.created_at);
}
