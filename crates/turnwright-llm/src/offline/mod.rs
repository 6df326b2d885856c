//! The built-in model: compiled in, deterministic, no network. It is no language model; it
//! understands a handful of plain requests and drives the real tools through the real turn.

mod intent;

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{Batch, Delta, End, LlmError, Model, Reply, ReplyCall, ReplyStream, Request};
use turnwright_types::message::{Arguments, Echo, Message, Part, ToolMessage, UserMessage};
use intent::Intent;

/// Between two words, so that streaming can be seen.
const PACE: Duration = Duration::from_millis(8);

/// The model. It has no settings.
#[derive(Debug, Default)]
pub struct Offline;

impl Model for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async { Ok(Box::new(script(request)) as Box<dyn ReplyStream>) })
    }
}

/// What is left to say, and the call to end with.
struct Script {
    words: VecDeque<String>,
    call: Option<(&'static str, Value)>,
}

impl ReplyStream for Script {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if !self.words.is_empty() {
                tokio::time::sleep(PACE).await;
                if let Some(word) = self.words.pop_front() {
                    batch.text(&word);
                }
                return Ok(None);
            }
            let calls = match self.call.take() {
                None => Vec::new(),
                Some((name, arguments)) => {
                    batch.deltas.push(Delta::CallNamed { slot: 0, name: name.to_owned() });
                    let arguments = Arguments::Object(arguments);
                    let name = name.to_owned();
                    vec![ReplyCall {
                        slot: 0,
                        provider_id: String::new(),
                        name,
                        arguments,
                        extra: None,
                    }]
                }
            };
            Ok(Some(Reply { end: End::Complete, calls, usage: None, echo: Echo::default() }))
        })
    }
}

/// Decides from the conversation alone: the same conversation gets the same answer.
fn script(request: &Request) -> Script {
    let last_user = request.messages.iter().rposition(|it| matches!(**it, Message::User(_)));
    let (prompt, since) = match last_user {
        None => (String::new(), &request.messages[..]),
        Some(position) => {
            let prompt = match request.messages[position].as_ref() {
                Message::User(user) => words_of(user),
                _ => String::new(),
            };
            (prompt, &request.messages[position + 1..])
        }
    };
    let intent = Intent::of(&prompt);
    let result = since.iter().rev().find_map(|it| match it.as_ref() {
        Message::Tool(tool) => Some(tool),
        _ => None,
    });
    match result {
        Some(result) => Script { words: words(&intent.report(result)), call: None },
        None => match intent.call() {
            Some(call) => Script { words: words(&intent.announcement()), call: Some(call) },
            None => Script { words: words(intent::HELP), call: None },
        },
    }
}

/// The user's own words.
fn words_of(user: &UserMessage) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Link { .. }
        | Part::Resource { .. }
        | Part::Context(_)
        | Part::Image(_)
        | Part::Audio(_) => None,
    };
    user.parts.iter().filter_map(text).collect()
}

/// Cuts after each space and, for scripts without spaces, after each few characters.
fn words(text: &str) -> VecDeque<String> {
    let mut words = VecDeque::new();
    let mut word = String::new();
    for char in text.chars() {
        word.push(char);
        if char.is_whitespace() || (!char.is_ascii() && word.chars().count() >= 3) {
            words.push_back(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push_back(word);
    }
    words
}

/// The text of a result without its header and line numbers, at most `limit` lines.
fn lines(result: &ToolMessage, limit: usize) -> Vec<&str> {
    let bare = |line| {
        let numbered: Option<(&str, &str)> = str::split_once(line, "| ");
        match numbered {
            Some((number, rest)) if number.trim().parse::<u64>().is_ok() => rest,
            _ => line,
        }
    };
    result
        .text
        .lines()
        .filter(|it| !it.starts_with("[File: "))
        .map(bare)
        .filter(|it| !it.trim().is_empty())
        .take(limit)
        .collect()
}
