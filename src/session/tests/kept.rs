//! What a session has told comes back: as it was told, whatever was cut off behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::session;
use turnwright_types::effect::{CallView, Content, Kind};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    Arguments, AssistantMessage, Echo, History, Message, Stop, ToolCall, UserMessage,
};
use turnwright_policy::permission::{Grants, Mode};
use crate::session::revive::{Revived, revive};
use crate::turn::stage::store_with_session;
use turnwright_store::{Audience, Durability, Entry, Log, Settled, Store, TurnKind};
use turnwright_types::file_change::{Change, FileState, Intent};
use crate::turn::stage::{Play, Stage, stage};
use crate::turn::Turn;
use turnwright_types::repair::{is_valid, repair};
use turnwright_types::update::{PlanEntry, PlanStatus, Priority, Update};

/// A stage whose session is kept.
async fn kept(plays: Vec<Play>) -> (Stage, Store) {
    let (store, log) = store_with_session().await;
    let mut stage = stage(plays, false, None);
    Arc::get_mut(&mut stage.equipment.bench).unwrap().log = log;
    (stage, store)
}

/// What the client has heard since somebody asked.
fn heard(stage: &Stage) -> Vec<Update> {
    std::mem::take(&mut *stage.client.updates.lock().unwrap())
}

async fn back(stage: &Stage, store: &Store) -> (Revived, Vec<Update>) {
    heard(stage);
    let id = stage.equipment.bench.session.clone();
    let revived = revive(store, &stage.equipment, &id, true, &stage.cancel).await.unwrap();
    (revived, heard(stage))
}

/// What the user sees in the end, in the order of its coming.
fn fold(updates: &[Update]) -> Vec<(String, Value)> {
    let (mut order, mut shown) = (Vec::new(), BTreeMap::<String, Value>::new());
    for update in updates {
        let (key, fields) = match update {
            Update::Text { message, text } => (format!("text {message}"), json!({ "+": text })),
            Update::Thought { message, text } => {
                (format!("thought {message}"), json!({ "+": text }))
            }
            Update::Call { id, view, name } => {
                (format!("card {id}"), json!({ "name": name, "view": format!("{view:?}") }))
            }
            Update::CallUpdate(it) => {
                let mut fields = json!({ "status": format!("{:?}", it.status) });
                let parts = [
                    ("view", it.view.as_ref().map(|it| format!("{it:?}").into())),
                    ("content", it.content.as_ref().map(|it| format!("{it:?}").into())),
                    ("raw", it.raw_output.clone()),
                ];
                for (name, part) in parts {
                    if let Some(part) = part {
                        fields[name] = part;
                    }
                }
                (format!("card {}", it.id), fields)
            }
            Update::Plan(entries) => ("plan".to_owned(), json!(entries)),
            _ => continue,
        };
        if !shown.contains_key(&key) || key == "plan" {
            order.retain(|it| *it != key);
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
    order.into_iter().map(|it| (it.clone(), shown.remove(&it).unwrap())).collect()
}

#[tokio::test]
async fn what_comes_back_is_what_was_shown() {
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
    let plays = vec![Play::Calls(first), Play::Calls(second), Play::Text("Done.")];
    let (stage, store) = kept(plays).await;
    stage.equipment.mode.set(Mode::AutoEdit);
    let prompt = UserMessage::text("Do it.");
    let (history, grants) = (History::default(), Grants::default());
    let turn = Turn::new(stage.equipment.clone(), history, grants, prompt, stage.cancel.clone());
    let finished = turn.run().await;
    let live = fold(&heard(&stage));
    let (revived, updates) = back(&stage, &store).await;
    assert_eq!(fold(&updates), live);
    assert_eq!(revived.history.messages, finished.history.messages);
    assert_eq!(revived.history.minted, finished.history.minted);
    assert!(!revived.was_interrupted);
}

#[tokio::test]
async fn a_turn_that_dies_is_forgotten_by_the_model_and_not_by_the_user() {
    let write = ("write_file", json!({ "path": "a", "content": "x" }));
    let plays = vec![Play::Calls(vec![write]), Play::HalfCall("read_file"), Play::Text("Fine.")];
    let (stage, store) = kept(plays).await;
    stage.equipment.mode.set(Mode::AutoEdit);
    let mut session = session(&stage);
    session.prompt("1").await.unwrap().unwrap_err();
    let live = fold(&heard(&stage));
    assert_eq!(live.len(), 2, "{live:?}");
    assert_eq!(fold(&back(&stage, &store).await.1), live);
    assert_eq!(session.prompt("2").await.unwrap().unwrap(), Stop::EndTurn);
    let (revived, _) = back(&stage, &store).await;
    let said = revived.history.messages.iter().filter(|it| matches!(***it, Message::User(_)));
    assert_eq!((said.count(), revived.history.messages.len()), (1, 2));
}

/// Something that is written.
#[derive(Clone, Debug)]
enum Op {
    Prompt,
    Answer(u8),
    Intend(u8),
    Settle(u8),
    Draft,
    Note,
    Plan,
    Cleared,
    Refused,
    Rewound(u8),
    End,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Prompt),
        5 => (0..4_u8).prop_map(Op::Answer),
        3 => (0..3_u8).prop_map(Op::Intend),
        5 => (0..3_u8).prop_map(Op::Settle),
        2 => Just(Op::Draft),
        2 => Just(Op::Note),
        1 => Just(Op::Plan),
        1 => Just(Op::Cleared),
        1 => Just(Op::Refused),
        1 => (1..9_u8).prop_map(Op::Rewound),
        2 => Just(Op::End),
    ]
}

/// Writes as a session does.
#[derive(Default)]
struct Writer {
    minted: u64,
    open: Vec<CallId>,
}

impl Writer {
    fn mint(&mut self, word: &str) -> String {
        self.minted += 1;
        format!("{word}-{}", self.minted)
    }

    fn write(&mut self, log: &Log, op: &Op) {
        match op {
            Op::Prompt => {
                log.begin(TurnKind::Prompt, "words".to_owned());
                let message = Arc::new(Message::User(UserMessage::text("hello")));
                let id = self.mint("msg").into();
                log.add(Entry::Message { id, message, audience: Audience::Both });
            }
            Op::Answer(count) => self.answer(log, *count),
            Op::Intend(number) => {
                if let Some(call) = self.open.get(usize::from(*number)) {
                    let (path, before) = ("/w/a".into(), FileState::Absent);
                    let files = vec![Change { path, before, after: None }];
                    let intent = Intent { files, bytes: Vec::new() };
                    drop(log.intend(call, intent, Durability::Process));
                }
            }
            Op::Settle(number) => {
                if usize::from(*number) < self.open.len() {
                    let call = self.open.remove(usize::from(*number));
                    let (text, tool) = ("result".to_owned(), "write_file".to_owned());
                    let view = Some(view());
                    let content = vec![Content::Text(text.clone())];
                    let ok = true;
                    let settled = Settled { ok, tool, text, view, content, ..Settled::default() };
                    drop(log.settle(&call, settled));
                }
            }
            Op::Draft => {
                let (seq, id) = (log.reserve(), self.mint("msg").into());
                drop(log.draft(seq, &id, true, "thinking".to_owned()));
                drop(log.draft(seq, &id, false, "some ".to_owned()));
                drop(log.draft(seq, &id, false, "words".to_owned()));
            }
            Op::Note => {
                let id = self.mint("msg").into();
                log.add(Entry::Note { id, text: "a note".to_owned() });
            }
            Op::Plan => {
                let (priority, status) = (Priority::Medium, PlanStatus::Pending);
                let entry = PlanEntry { content: "a".to_owned(), priority, status };
                log.add(Entry::Plan { entries: vec![entry] });
            }
            Op::Cleared => drop(log.add(Entry::Cleared)),
            Op::Refused => drop(log.add(Entry::Refused)),
            Op::Rewound(to) => drop(log.add(Entry::Rewound { to: u64::from(*to) })),
            Op::End => drop(log.end("end_turn", self.minted, None)),
        }
    }

    fn answer(&mut self, log: &Log, count: u8) {
        let calls: Vec<ToolCall> = (0..count)
            .map(|number| ToolCall {
                id: self.mint("call").into(),
                provider_id: format!("p{}", self.minted),
                name: if number == 2 { "exec" } else { "write_file" }.to_owned(),
                arguments: Arguments::Object(json!({ "path": "a", "content": "x" })),
                extra: None,
            })
            .collect();
        self.open.extend(calls.iter().map(|it| it.id.clone()));
        let id = self.mint("msg");
        let message = Arc::new(Message::Assistant(AssistantMessage {
            id: id.as_str().into(),
            text: "words".to_owned(),
            thought: "thoughts".to_owned(),
            calls,
            interrupted: false,
            echo: Echo::default(),
        }));
        log.add(Entry::Message { id: id.into(), message, audience: Audience::Both });
    }
}

fn view() -> CallView {
    CallView { title: "Write a".to_owned(), kind: Kind::Edit, locations: Vec::new() }
}

/// What comes back after these, and nothing else, have been written.
async fn check(ops: &[Op]) {
    let (stage, store) = kept(Vec::new()).await;
    let mut writer = Writer::default();
    for op in ops {
        writer.write(stage.equipment.log(), op);
    }
    let (revived, updates) = back(&stage, &store).await;
    let messages = &revived.history.messages;
    assert!(is_valid(messages), "{messages:?}");
    assert_eq!(&repair(messages), messages);
    assert!(revived.history.minted >= writer.minted);
    let first = |it: &Update| match it {
        Update::Call { id, .. } => Some(id.to_string()),
        Update::Text { message, .. } => Some(format!("text {message}")),
        Update::Thought { message, .. } => Some(format!("thought {message}")),
        Update::User { message, .. } => Some(format!("user {message}")),
        _ => None,
    };
    let mut keys: Vec<_> = updates.iter().filter_map(first).collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "{updates:?}");
    // Written down once, so it is the same for ever.
    let (again, same) = back(&stage, &store).await;
    assert_eq!((again.history.messages, same), (revived.history.messages, updates));
    assert_eq!(again.history.minted, revived.history.minted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_prefix_of_every_log_comes_back_as_a_valid_conversation(
        ops in proptest::collection::vec(op(), 0..14),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for end in 0..=ops.len() {
            runtime.block_on(check(&ops[..end]));
        }
    }
}

#[tokio::test]
async fn what_nobody_has_used_is_not_skipped_unless_a_turn_has_no_end() {
    let (stage, store) = kept(Vec::new()).await;
    let (mut writer, log) = (Writer::default(), stage.equipment.log().clone());
    for op in [Op::Prompt, Op::Answer(2), Op::Settle(0), Op::Settle(0), Op::End] {
        writer.write(&log, &op);
    }
    assert_eq!(back(&stage, &store).await.0.history.minted, writer.minted);
    for op in [Op::Prompt, Op::Answer(1)] {
        writer.write(&log, &op);
    }
    let (revived, _) = back(&stage, &store).await;
    assert!(revived.was_interrupted && revived.history.minted > writer.minted + 1_000);
    assert_eq!(back(&stage, &store).await.0.history.minted, revived.history.minted);
    assert!(SystemTime::now() >= revived.row.created);
}
