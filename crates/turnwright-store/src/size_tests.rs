//! Data that is shown in several places is stored in one.

use std::sync::Arc;

use serde_json::{Value, json};
use turnwright_types::effect::CallContent;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{AssistantMessage, Message, PromptPart, ToolCall, UserMessage};

use super::*;

const SESSION: &str = "s";

fn log(store: &Store) -> SessionLog {
    let log = SessionLog::new(store.clone(), SESSION.into());
    log.set_session_row(SessionRow::new(SESSION.into(), "/w".into()));
    log
}

/// A text that occurs nowhere else.
fn text(number: usize, length: usize) -> String {
    let mut text = String::new();
    for line in number * 10_000.. {
        if text.len() >= length {
            break;
        }
        text.push_str(&format!("{line}: é\n"));
    }
    text
}

fn add_prompt(log: &SessionLog, text: &str) {
    log.begin_turn(TurnKind::Prompt, text.chars().take(100).collect());
    add_message(log, Message::User(UserMessage::text(text)));
}

fn add_message(log: &SessionLog, message: Message) {
    let id = MessageId::from("m");
    let message = Arc::new(message);
    log.add_entry(Entry::Message { id, message, audience: Audience::Both });
}

fn add_call(log: &SessionLog, id: &CallId) {
    let call = ToolCall::new(id.clone(), "p", "read_file", json!({}));
    add_message(log, Message::Assistant(AssistantMessage::new("m", "", vec![call])));
}

fn entries(store: &Store) -> Vec<StoredEntry> {
    let read = store.write_blocking(|connection| {
        let key = read::session_key(connection, &SESSION.into())?;
        read::entries_page(connection, key, (0, 1_000), &RewoundEntries::default())
    });
    read.unwrap().0
}

fn number(store: &Store, query: &'static str) -> usize {
    store
        .write_blocking(move |connection| Ok(connection.query_row(query, [], |row| row.get(0))?))
        .unwrap()
}

/// A store with a call that has no result yet.
fn store_with_call() -> (Store, SessionLog, CallId) {
    let store = Store::in_memory();
    let call = CallId::from("call-1");
    let log = log(&store);
    add_prompt(&log, "read it");
    add_call(&log, &call);
    (store, log, call)
}

/// The outcome of a read whose card shows the result.
fn shown_result(result: String, raw_output: Value) -> CallOutcome {
    CallOutcome {
        is_success: true,
        tool: "read_file".to_owned(),
        content: vec![CallContent::Text(format!("```\n{result}```"))],
        raw_output,
        text: result,
        ..CallOutcome::default()
    }
}

#[test]
fn a_result_is_stored_once_however_often_its_card_shows_it() {
    for length in [200, 5_000, 50_000] {
        let (store, log, call) = store_with_call();
        let result = text(1, length);
        let raw_output = json!({ "files": 1, "result": format!("{}\n[… more]", &result[..100]) });
        let outcome = shown_result(result, raw_output);
        drop(log.finish_call(&call, outcome.clone()));
        assert_eq!(entries(&store)[1].calls[0].outcome, outcome);
        let stored = "SELECT length(card) + coalesce(length(result), 0) + \
                      (SELECT coalesce(sum(length(CAST(bytes AS BLOB))), 0) FROM blobs) FROM calls";
        let stored = number(&store, stored);
        assert!(stored < outcome.text.len() + 200, "{stored} bytes for {length}");
    }
}

#[test]
fn the_id_of_an_answer_is_in_its_body_once() {
    let store = Store::in_memory();
    let log = log(&store);
    for id in ["m", "another-id"] {
        add_message(&log, Message::Assistant(AssistantMessage::new(id, "Done.", Vec::new())));
    }
    let ids: Vec<_> = entries(&store)
        .into_iter()
        .map(|row| match row.entry {
            Entry::Message { id, message, .. } => match message.as_ref() {
                Message::Assistant(answer) => (id.to_string(), answer.id.to_string()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [("m", "m"), ("m", "another-id")];
    assert_eq!(ids, expected.map(|(one, other)| (one.to_owned(), other.to_owned())));
    let with_id =
        "SELECT count(*) FROM entries WHERE json_extract(body, '$.message.assistant.id') NOT NULL";
    assert_eq!(number(&store, with_id), 1);
}

#[test]
fn a_card_stays_as_it_is_when_the_model_reads_another_result() {
    for length in [200, 5_000] {
        let (store, log, call) = store_with_call();
        let result = text(1, length);
        let raw_output = json!({ "result": result, "beginning": &result[..150] });
        let outcome = shown_result(result.clone(), raw_output);
        drop(log.finish_call(&call, outcome.clone()));
        // News are added to a result, and a long one is cut in its middle.
        for replaced in [format!("{result}[news for the model]"), result[..100].to_owned()] {
            log.replace_result(&call, replaced.clone());
            let expected = CallOutcome { text: replaced, ..outcome.clone() };
            assert_eq!(entries(&store)[1].calls[0].outcome, expected);
        }
    }
}

#[test]
fn compactions_repeat_no_words_of_the_user() {
    let store = Store::in_memory();
    let log = log(&store);
    let prompts: Vec<_> = (1..10).map(|number| text(number, 300 * number)).collect();
    let mut expected = Vec::new();
    for prompt in &prompts {
        add_prompt(&log, prompt);
        let said = prompts.iter().map(|prompt| format!("The user said earlier:\n{prompt}"));
        let parts = said.map(PromptPart::Context).collect();
        let replacement = Arc::new(Message::User(UserMessage::new(parts)));
        let id = MessageId::from("sum-1");
        let compacted = Entry::Compacted { id, replacement, kept: 0, max_result: 0 };
        expected.push(compacted.clone());
        log.add_entry(compacted);
    }
    let read = entries(&store).into_iter().map(|row| row.entry);
    assert!(read.filter(|entry| matches!(entry, Entry::Compacted { .. })).eq(expected));
    assert_eq!(number(&store, "SELECT count(*) FROM blobs"), prompts.len());
}

#[test]
fn the_view_shows_prompts_that_are_not_very_long_as_a_whole_and_a_record_the_beginning_of_each() {
    let store = Store::in_memory();
    let log = log(&store);
    for (number, lengths) in
        [[50, 0], [200, 0], [1_000, 0], [10, 90], [10, 900], [900, 10], [3_000, 0], [10, 3_000]]
            .into_iter()
            .enumerate()
    {
        let call = CallId::from(format!("call-{number}"));
        let [first, second] = lengths.map(|length| text(number, length));
        let prompt = format!("{first}{second}");
        log.begin_turn(TurnKind::Prompt, prompt.chars().take(60).collect());
        let link = PromptPart::Context("a file".to_owned());
        let parts = vec![PromptPart::Text(first), link, PromptPart::Text(second)];
        add_message(&log, Message::User(UserMessage::new(parts)));
        add_call(&log, &call);
        let is_long = lengths.contains(&3_000);
        let shown = prompt.chars().take(if is_long { 60 } else { usize::MAX }).collect();
        let view = store.write_blocking(move |connection| {
            let last = "SELECT user_message FROM tool_conversations ORDER BY id DESC LIMIT 1";
            Ok(connection.query_row(last, [], |row| row.get::<_, String>(0))?)
        });
        assert_eq!(view, Ok(shown));
        // A word from the end of the prompt is found, too.
        let words = prompt.lines().last().unwrap().to_owned();
        let query = history::HistoryQuery { limit: 9, words, ..history::HistoryQuery::default() };
        let found = store
            .write_blocking(move |connection| history::find_calls(connection, &query))
            .unwrap();
        assert_eq!(found.rows[0].call, call);
        assert_eq!(found.rows[0].user_message, prompt.chars().take(1_024).collect::<String>());
    }
    // A turn without entries does not get the prompt of the next one.
    log.begin_turn(TurnKind::Undo, "undo".to_owned());
    drop(log.end_turn("end_turn", 1, None, None));
    add_prompt(&log, &text(9, 200));
    let of_undo = store.write_blocking(|connection| {
        let query = "SELECT words FROM prompts ORDER BY number DESC LIMIT 1 OFFSET 1";
        Ok(connection.query_row(query, [], |row| row.get::<_, String>(0))?)
    });
    assert_eq!(of_undo.as_deref(), Ok("undo"));
}
