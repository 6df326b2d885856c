//! The built-in model: compiled in, deterministic, without network. It is not a language model; it
//! understands a few plain requests and drives the real tools through real turns.

mod intent;

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{
    Delta, DeltaBatch, EndReason, LlmError, Model, Reply, ReplyCall, ReplyStream, Request,
};
use intent::Intent;
use turnwright_types::message::{
    Arguments, Message, PromptPart, ProviderState, ToolMessage, UserMessage,
};

/// The delay between two words, which makes streaming visible.
const WORD_DELAY: Duration = Duration::from_millis(8);

/// The built-in model. It has no settings.
#[derive(Debug, Default)]
pub struct OfflineModel;

impl Model for OfflineModel {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn open_stream<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async { Ok(Box::new(scripted_reply(request)) as Box<dyn ReplyStream>) })
    }
}

/// The words still to be sent, and the call that ends the reply.
struct ScriptedReply {
    words: VecDeque<String>,
    call: Option<(&'static str, Value)>,
}

impl ReplyStream for ScriptedReply {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if !self.words.is_empty() {
                tokio::time::sleep(WORD_DELAY).await;
                if let Some(word) = self.words.pop_front() {
                    batch.push_text(&word);
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
            Ok(Some(Reply {
                end: EndReason::Complete,
                calls,
                usage: None,
                cost: None,
                provider_state: ProviderState::default(),
            }))
        })
    }
}

/// The reply to a request that the user has not typed, which asks for a summary.
const NO_SUMMARY: &str = "The offline model cannot summarise a conversation.";

/// Depends on the conversation alone: the same conversation gets the same reply.
fn scripted_reply(request: &Request) -> ScriptedReply {
    let last_user =
        request.messages.iter().rposition(|message| matches!(**message, Message::User(_)));
    let (prompt, since) = match last_user {
        None => (String::new(), &request.messages[..]),
        Some(position) => {
            let prompt = match request.messages[position].as_ref() {
                Message::User(user) => user_text(user),
                _ => String::new(),
            };
            (prompt, &request.messages[position + 1..])
        }
    };
    if prompt.is_empty() && last_user.is_some() {
        return ScriptedReply { words: split_words(NO_SUMMARY), call: None };
    }
    let intent = Intent::parse(&prompt);
    let result = since.iter().rev().find_map(|message| match message.as_ref() {
        Message::Tool(tool) => Some(tool),
        _ => None,
    });
    match result {
        Some(result) => ScriptedReply { words: split_words(&intent.report(result)), call: None },
        None => match intent.call() {
            Some(call) => {
                ScriptedReply { words: split_words(&intent.announcement()), call: Some(call) }
            }
            None => ScriptedReply { words: split_words(intent::HELP), call: None },
        },
    }
}

/// The text that the user typed.
fn user_text(user: &UserMessage) -> String {
    let texts = user.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) => Some(text.as_str()),
        PromptPart::Link { .. }
        | PromptPart::Resource { .. }
        | PromptPart::Context(_)
        | PromptPart::Image(_)
        | PromptPart::Audio(_) => None,
    });
    texts.collect()
}

/// Splits after each space and, for scripts without spaces, after every few characters.
fn split_words(text: &str) -> VecDeque<String> {
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
fn result_lines(result: &ToolMessage, limit: usize) -> Vec<&str> {
    result
        .text
        .lines()
        .filter(|line| !line.starts_with("[File: "))
        .map(without_line_number)
        .filter(|line| !line.trim().is_empty())
        .take(limit)
        .collect()
}

fn without_line_number(line: &str) -> &str {
    match line.split_once("| ") {
        Some((number, rest)) if number.trim().parse::<u64>().is_ok() => rest,
        _ => line,
    }
}
