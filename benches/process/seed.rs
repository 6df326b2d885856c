//! Writes a long session into a store, with the functions that the agent itself uses.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use turnwright_store::{Audience, CallOutcome, Entry, SessionLog, SessionRow, Store, TurnKind};
use turnwright_types::effect::{CallContent, CallView, FileFate, ToolKind};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{
    AssistantMessage, Media, Message, PromptPart, ToolCall, UserMessage,
};

/// The interval in turns at which a prompt has an image.
const PICTURE_EVERY: usize = 50;
/// The size of an image in bytes of base64.
const PICTURE_SIZE: usize = 100_000;

/// The result of [`seed`].
#[derive(Debug, Default)]
pub(crate) struct Seeded {
    /// The total size of all different texts in bytes.
    pub(crate) unique: usize,
    known: HashSet<String>,
}

impl Seeded {
    /// Returns a pseudo-random text of `length` bytes. If it is new, adds its size to `unique`.
    fn text(&mut self, words: &str, number: usize, length: usize) -> String {
        let mut text = format!("{words} {number}: ");
        let mut noise = number as u64 + 1;
        while text.len() < length {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(&format!("{:x} ", noise >> 40));
        }
        text.truncate(length);
        if self.known.insert(text.clone()) {
            self.unique += text.len();
        }
        text
    }
}

/// Writes a session. Each turn is a prompt, a message with a read and an edit, their results and a
/// final message.
pub(crate) fn seed(store: &Store, id: &SessionId, cwd: &Path, turns: usize) -> io::Result<Seeded> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(write(store, id, cwd, turns))
}

async fn write(store: &Store, id: &SessionId, cwd: &Path, turns: usize) -> io::Result<Seeded> {
    let log = SessionLog::new(store.clone(), id.clone());
    let mut seeded = Seeded::default();
    log.create_session(row(id, cwd)).written().await;
    let mut file = seeded.text("the file before turn", 0, 3_000);
    for number in 1..=turns {
        let words = seeded.text("a prompt", number, 300);
        log.begin_turn(TurnKind::Prompt, words.clone());
        let mut parts = vec![PromptPart::Text(words)];
        if number.is_multiple_of(PICTURE_EVERY) {
            let data = seeded.text("picture", number, PICTURE_SIZE).replace([' ', ':'], "A");
            parts.push(PromptPart::Image(Media { mime: "image/png".to_owned(), data }));
        }
        add_message(&log, number * 10, Message::User(UserMessage::new(parts)));
        let calls = [
            call(number * 10 + 2, "read_file", json!({ "path": format!("src/{number}.rs") })),
            call(number * 10 + 3, "edit_file", json!({ "path": "src/a.rs", "edits": number })),
        ];
        let first = AssistantMessage {
            thought: seeded.text("a thought", number, 200),
            text: seeded.text("an answer", number, 300),
            calls: calls.to_vec(),
            ..empty_message(number * 10 + 1)
        };
        add_message(&log, number * 10 + 1, Message::Assistant(first));
        let read = CallOutcome {
            is_success: true,
            tool: "read_file".to_owned(),
            text: seeded.text("the text of a file", number, 2_000),
            view: Some(view("Read src/a.rs", ToolKind::Read)),
            duration: Some(Duration::from_millis(1)),
            ..CallOutcome::default()
        };
        drop(log.finish_call(&calls[0].id, read));
        let new = seeded.text("the file after turn", number, 3_000);
        let path = cwd.join("src/a.rs");
        let diff =
            CallContent::Diff { path, old: Some(file), new: new.clone(), fate: FileFate::Kept };
        let edit = CallOutcome {
            is_success: true,
            tool: "edit_file".to_owned(),
            text: seeded.text("Changed src/a.rs in turn", number, 60),
            view: Some(view("Edit src/a.rs", ToolKind::Edit)),
            content: vec![diff],
            raw_output: json!({ "lines": number }),
            duration: Some(Duration::from_millis(2)),
            ..CallOutcome::default()
        };
        drop(log.finish_call(&calls[1].id, edit));
        file = new;
        let text = seeded.text("the end of turn", number, 800);
        let last = AssistantMessage { text, ..empty_message(number * 10 + 4) };
        add_message(&log, number * 10 + 4, Message::Assistant(last));
        log.end_turn("end_turn", number as u64 * 10 + 5, None, None).written().await;
    }
    match log.take_notices().first() {
        Some(notice) => Err(io::Error::other(notice.clone())),
        None => Ok(seeded),
    }
}

fn add_message(log: &SessionLog, number: usize, message: Message) {
    let id = format!("msg-{number}").into();
    log.add_entry(Entry::Message { id, message: Arc::new(message), audience: Audience::Both });
}

fn call(number: usize, name: &str, arguments: Value) -> ToolCall {
    ToolCall::new(format!("call-{number}"), format!("call_{number}"), name, arguments)
}

fn empty_message(number: usize) -> AssistantMessage {
    AssistantMessage::new(format!("msg-{number}"), "", Vec::new())
}

fn view(title: &str, kind: ToolKind) -> CallView {
    CallView { title: title.to_owned(), kind, locations: Vec::new() }
}

fn row(id: &SessionId, cwd: &Path) -> SessionRow {
    let now = SystemTime::now();
    SessionRow {
        id: id.clone(),
        cwd: cwd.to_path_buf(),
        real_cwd: cwd.to_path_buf(),
        additional_folders: Vec::new(),
        title: Some("A long session".to_owned()),
        title_is_final: false,
        created_at: now,
        updated_at: now,
        is_archived: false,
        parent: None,
        helper_of: None,
        mode: Some("ask".to_owned()),
        model: Some("bench".to_owned()),
        effort: None,
        last_id_number: 0,
        cost_usd: None,
    }
}
