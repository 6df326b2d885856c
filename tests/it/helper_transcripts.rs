//! The transcripts of `docs/helpers.md`: all that a client and the agent say about a helper that the user cancels, in
//! both versions of the protocol. The story is played over a pipe, and each line is checked against the schema.

use std::path::Path;

use expect_test::expect_file;
use serde_json::{Value, json};
use turnwright_testing::cards::call;
use turnwright_testing::schema;

use crate::agent::{TestAgent, prompt, says};
use crate::source_files::read;

/// The task of the helper.
const TASK: &str = "Read notes.txt and everything that it refers to.";
/// The card of the call before the client cancels the helper.
const PROGRESS: &str = "Writing\n\n1 tool call, 0 tokens";
/// The updates that the page has.
const SHOWN_UPDATES: [&str; 7] = [
    "agent_message_chunk",
    "session_message",
    "state_update",
    "subagent_update",
    "tool_call",
    "tool_call_update",
    "user_message",
];
/// The fields that the page has of an answer.
const SHOWN_FIELDS: [&str; 4] = ["messageId", "protocolVersion", "sessionId", "stopReason"];

/// A conversation between a client and the agent.
struct HelperStory {
    agent: TestAgent,
    version: usize,
    /// Each message to the agent, and the number of messages from it by then.
    sent: Vec<(usize, Value)>,
    /// The session of the helper.
    child: String,
}

impl HelperStory {
    /// Starts an agent whose helper reads a file and never comes to an end.
    fn start(version: usize) -> HelperStory {
        let task = json!({ "description": "Read the notes", "prompt": TASK, "type": "explore" });
        let reads = json!([call("read_file", &json!({ "path": "notes.txt" }))]);
        let goes_on = json!([{ "text": "The notes are short. I read on." }, { "hang": true }]);
        let replies = json!([
            [call("agent", &task)],
            says("You have stopped the helper, so I cannot say more."),
            { "when": TASK, "steps": reads },
            { "when": TASK, "steps": goes_on },
        ]);
        let first = TestAgent::builder().file("notes.txt", "hello\nthere\n").model(replies);
        let builder = if version == 2 { first.v2() } else { first };
        HelperStory { agent: builder.spawn(), version, sent: Vec::new(), child: String::new() }
    }

    /// Plays the story from `initialize` to the end of the turn.
    fn play(version: usize) -> HelperStory {
        let mut story = HelperStory::start(version);
        story.open_session();
        let words = prompt(&story.agent.session, "What do the notes say?");
        let id = story.request("session/prompt", &words);
        let announced = story.agent.wait_for_update("subagent_update");
        story.child = announced["sessionId"].as_str().unwrap().to_owned();
        story.agent.wait_for("the progress of the helper", |message| {
            message["params"]["update"]["content"][0]["content"]["text"] == PROGRESS
        });
        story.cancel_helper();
        assert_eq!(story.agent.stop_reason(&id), "end_turn");
        story
    }

    fn open_session(&mut self) {
        let client = if self.version == 2 {
            let info = json!({ "name": "client", "version": "1" });
            json!({ "protocolVersion": 2, "info": info, "capabilities": {} })
        } else {
            json!({ "protocolVersion": 1, "clientCapabilities": { "subagents": {} } })
        };
        let initialized = self.request("initialize", &client);
        self.agent.answer_to(&initialized);
        let session = json!({ "cwd": self.agent.workspace(), "mcpServers": [] });
        let opened = self.request("session/new", &session);
        let answer = self.agent.answer_to(&opened);
        answer["result"]["sessionId"].as_str().unwrap().clone_into(&mut self.agent.session);
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let received = self.agent.log.len();
        let id = self.agent.request(method, params);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.note_sent(received, message);
        id
    }

    fn cancel_helper(&mut self) {
        let received = self.agent.log.len();
        let method = "session/cancel";
        let params = json!({ "sessionId": self.child });
        self.agent.notify(method, &params);
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.note_sent(received, message);
    }

    fn note_sent(&mut self, received: usize, message: Value) {
        schema::check_version(self.version, &message, None);
        self.sent.push((received, message));
    }

    /// Returns true if each card came with its arguments. On a busy machine one may be shown before them, and they
    /// come with an update.
    fn has_complete_cards(&self) -> bool {
        let mut updates = self.agent.log.iter().map(|message| &message["params"]["update"]);
        updates.all(|update| update["name"].is_null() || update["rawInput"].is_object())
    }

    /// Returns the messages in their order, one a line.
    fn transcript(&self) -> String {
        let mut lines = String::new();
        let mut sent = self.sent.iter().peekable();
        for (number, message) in self.agent.log.iter().enumerate() {
            while let Some((_, request)) = sent.next_if(|next| next.0 <= number) {
                lines.push_str(&self.line("→", request));
            }
            if self.is_shown(number, message) {
                lines.push_str(&self.line("←", &shortened(message)));
            }
        }
        lines
    }

    /// Returns true if the page has this message of the agent. The progress of a card comes at fixed intervals, so of
    /// those updates it has only the one before the cancel, which the client has waited for.
    fn is_shown(&self, number: usize, message: &Value) -> bool {
        let update = &message["params"]["update"];
        let Some(kind) = update["sessionUpdate"].as_str() else {
            return message.get("method").is_none();
        };
        let is_progress = update["status"] == "in_progress" && update["content"].is_array();
        let is_before_cancel = self.sent.last().is_some_and(|cancel| cancel.0 == number + 1);
        SHOWN_UPDATES.contains(&kind) && (!is_progress || is_before_cancel)
    }

    /// Returns the line of a message, with names for the folder and the sessions.
    fn line(&self, arrow: &str, message: &Value) -> String {
        let mut text = message.to_string();
        let real = self.agent.workspace().canonicalize().unwrap();
        for folder in [real.as_path(), self.agent.workspace()] {
            text = text.replace(&path_in_json(folder), "/project");
        }
        // Windows separates the names of a path by a backslash, which JSON doubles.
        let named = text
            .replace(r"/project\\", "/project/")
            .replace(&self.agent.session, "parent")
            .replace(&self.child, "child");
        format!("{arrow} {named}\n")
    }
}

/// Returns a message with only those fields of a result that the page has.
fn shortened(message: &Value) -> Value {
    let mut shortened = message.clone();
    if let Some(result) = shortened.get_mut("result").and_then(Value::as_object_mut) {
        result.retain(|field, _| SHOWN_FIELDS.contains(&field.as_str()));
    }
    shortened
}

/// Returns a path as it is in a string of JSON.
fn path_in_json(path: &Path) -> String {
    let name = path.display().to_string();
    let quoted = json!(name.trim_start_matches(r"\\?\")).to_string();
    quoted.trim_matches('"').to_owned()
}

/// Returns the page with another transcript of this version.
fn with_transcript(page: &str, version: usize, transcript: &str) -> String {
    let mark = format!("<!-- transcript: version {version} -->\n\n```text\n");
    let (before, rest) = page.split_once(&mark).unwrap_or_else(|| panic!("no {mark}"));
    let (_, after) = rest.split_once("\n```\n").expect("the end of the transcript");
    format!("{before}{mark}{transcript}```\n{after}")
}

/// Run the test with `UPDATE_EXPECT=1` to renew the transcripts.
#[test]
fn the_page_has_the_transcripts_of_a_helper_that_is_cancelled() {
    let mut page = read("docs/helpers.md");
    for version in [1, 2] {
        let mut played = std::iter::repeat_with(|| HelperStory::play(version)).take(5);
        let story = played.find(HelperStory::has_complete_cards).expect("cards with arguments");
        page = with_transcript(&page, version, &story.transcript());
    }
    expect_file!["../../docs/helpers.md"].assert_eq(&page);
}
