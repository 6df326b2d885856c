//! The facts that a compacted conversation begins with. They come from the session itself, so that
//! they do not depend on what the model has thought of in its summary.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::handoff::{self, FILES_READ};
use crate::turn::Conversation;
use crate::turn::prompt::date_line;
use turnwright_store::file_versions::{self, UndoableTurn};
use turnwright_store::read;
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line};
use turnwright_types::message::{Arguments, Message, ToolMessage};
use turnwright_types::text;
use turnwright_types::update::{PlanEntry, PlanStatus};
use turnwright_undo::UndoHistory;

/// The most files of each kind that are named.
const MAX_FILES: usize = 30;
/// The most undone turns that are named.
const MAX_UNDONE: usize = 5;
/// Only errors among the newest results are still open.
const NEWEST_RESULTS: usize = 10;
/// How much of an error is told.
const MAX_ERROR_BYTES: usize = 300;
/// The tool whose paths are the files that were read.
const READ_TOOL: &str = "read_file";

/// The facts that the store has about a session.
#[derive(Debug, Default)]
struct StoredFacts {
    plan: Vec<PlanEntry>,
    changed: Vec<(PathBuf, u64)>,
    turns: Vec<UndoableTurn>,
}

/// The facts about a session, one or more lines each. `old` are the messages that the model no
/// longer gets.
pub(super) async fn gather(conversation: &Conversation, old: &[Arc<Message>]) -> String {
    let stored = stored_facts(conversation).await;
    let env = &conversation.env;
    let mut text = date_line() + &conversation.mode_line();
    plan(&stored.plan, &mut text);
    let roots = env.files.roots();
    let changed: Vec<_> = stored
        .changed
        .into_iter()
        .map(|(path, count)| {
            let path = roots.display_path(&ResolvedPath { path, scope: PathScope::Workspace });
            format!("{path} ({count})")
        })
        .collect();
    list("Files changed in this session, with the number of calls: ", &changed, &mut text);
    list(FILES_READ, &files_read(old), &mut text);
    let undone = undone(&stored.turns);
    list("The user has undone the file changes of: ", &undone, &mut text);
    if !env.jobs.running_ids().is_empty() {
        text.push_str(&env.jobs.describe());
        text.push('\n');
    }
    list("Skills in use; load them again: ", &env.skills.loaded_names(), &mut text);
    for error in open_errors(old) {
        let words = text::clip_middle(&escape_hidden_line(&error.text), MAX_ERROR_BYTES);
        text.push_str(&format!("Not solved yet: {} failed: {words}\n", error.name));
    }
    text
}

async fn stored_facts(conversation: &Conversation) -> StoredFacts {
    let Some(store) = conversation.log().store().cloned() else { return StoredFacts::default() };
    // Changes by the last calls may still be on their way into the store.
    conversation.log().flush().written().await;
    let session = conversation.env.session.clone();
    // The changes of a helper belong to the session that has started it.
    let (changed_in, prefix) =
        conversation.log().recorded_elsewhere().unwrap_or_else(|| (session.clone(), String::new()));
    let reading = store.read(move |connection| {
        let key = read::session_key(connection, &session)?;
        let changed_in = read::session_key(connection, &changed_in)?;
        Ok(StoredFacts {
            plan: read::current_plan(connection, key)?,
            changed: file_versions::changed_files(connection, changed_in, &prefix, MAX_FILES)?,
            turns: file_versions::undoable_turns(connection, key)?,
        })
    });
    reading.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the facts of the session could not be read");
        StoredFacts::default()
    })
}

fn plan(entries: &[PlanEntry], text: &mut String) {
    if entries.iter().all(|entry| entry.status == PlanStatus::Completed) {
        return;
    }
    text.push_str("Plan:\n");
    for entry in entries {
        let mark = match entry.status {
            PlanStatus::Pending => " ",
            PlanStatus::InProgress => ">",
            PlanStatus::Completed => "x",
        };
        text.push_str(&format!("- [{mark}] {}\n", escape_hidden_line(&entry.content)));
    }
}

/// Adds a line with these items, if there are any.
fn list(start: &str, items: &[String], text: &mut String) {
    if !items.is_empty() {
        text.push_str(&format!("{start}{}\n", items.join(", ")));
    }
}

/// The files that the model has read, the newest last. Files from an earlier compaction come first.
fn files_read(old: &[Arc<Message>]) -> Vec<String> {
    let earlier = old.first().and_then(|message| handoff::files_read(message)).unwrap_or_default();
    let mut files: Vec<String> = earlier.split(", ").map(str::to_owned).collect();
    for message in old {
        let Some(answer) = message.as_assistant() else { continue };
        for call in answer.calls.iter().filter(|call| call.name == READ_TOOL) {
            let Arguments::Object(arguments) = &call.arguments else { continue };
            let one = arguments.get("path").and_then(|value| value.as_str());
            let paths = arguments.get("paths").and_then(|value| value.as_array());
            let more = paths.into_iter().flatten().filter_map(|value| value.as_str());
            for path in one.into_iter().chain(more) {
                let path = escape_hidden_line(path);
                files.retain(|known| *known != path);
                files.push(path);
            }
        }
    }
    files.retain(|file| !file.is_empty());
    files.split_off(files.len().saturating_sub(MAX_FILES))
}

/// The prompts whose file changes the user has undone.
fn undone(turns: &[UndoableTurn]) -> Vec<String> {
    let in_force = UndoHistory::from_turns(turns).undoable;
    let undone = turns.iter().rev().filter(|turn| {
        turn.has_file_changes && turn.target_turns.is_empty() && !in_force.contains(&turn.number)
    });
    undone
        .take(MAX_UNDONE)
        .map(|turn| {
            format!("“{}”", text::clip_middle(&escape_hidden_line(&turn.prompt_excerpt), 100))
        })
        .collect()
}

/// The newest failed results that no later call of the same tool has made good.
fn open_errors(old: &[Arc<Message>]) -> Vec<&ToolMessage> {
    let newest = old.iter().rev().filter_map(|message| message.as_tool()).take(NEWEST_RESULTS);
    // A result that comes after counts instead of those of the same tool before.
    let mut known = HashSet::new();
    newest.filter(|result| known.insert(&result.name) && !result.ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::{AssistantMessage, ToolCall};

    fn read(arguments: serde_json::Value) -> Arc<Message> {
        let call = ToolCall::new("c", "p", READ_TOOL, arguments);
        Arc::new(Message::Assistant(AssistantMessage::new("m", "", vec![call])))
    }

    fn result(name: &str, ok: bool) -> Arc<Message> {
        Arc::new(Message::Tool(ToolMessage {
            call: "c".into(),
            provider_id: "p".to_owned(),
            name: name.to_owned(),
            text: "text".to_owned(),
            ok,
            images: Vec::new(),
        }))
    }

    #[test]
    fn each_file_is_named_once_and_the_newest_are_named() {
        let calls = ["a", "b", "a"].map(|path| read(serde_json::json!({ "path": path })));
        assert_eq!(files_read(&calls), ["b", "a"]);
        assert_eq!(files_read(&[read(serde_json::json!({ "paths": ["x", "y"] }))]), ["x", "y"]);
        let many: Vec<_> =
            (0..50).map(|number| read(serde_json::json!({ "path": number.to_string() }))).collect();
        assert_eq!(files_read(&many).len(), MAX_FILES);
        assert_eq!(files_read(&many).last().unwrap(), "49");
        assert!(files_read(&[]).is_empty());
    }

    #[test]
    fn an_error_is_open_until_the_tool_succeeds() {
        let open = |results: &[Arc<Message>]| {
            open_errors(results).iter().map(|error| error.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(open(&[result("exec", false), result("exec", false)]), ["exec"]);
        assert!(open(&[result("exec", false), result("exec", true)]).is_empty());
        assert_eq!(open(&[result("exec", true), result("exec", false)]), ["exec"]);
    }
}
