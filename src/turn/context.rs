//! History → request. Pure, and mends what is broken: for every prefix of every history the
//! request is one that a strict server accepts.

use turnwright_llm::{Effort, Request};
use turnwright_types::message::{History, Message, Specs};
use turnwright_types::repair::repair;

/// What the model is told first. Always the same bytes; everything that changes comes with the
/// user's messages.
pub const SYSTEM_PROMPT: &str = include_str!("system.md");

/// The request for the next answer.
pub(super) fn request(history: &History, tools: Specs, effort: Effort) -> Request {
    let messages = repair(&history.messages);
    let has_media = history.has_media;
    Request { system: SYSTEM_PROMPT.into(), messages, tools, effort, has_media }
}

/// An identifier for the model's call that no other call of the conversation has. The model's
/// own is kept if possible: some models break when theirs come back changed.
pub(super) fn unique_provider_id(history: &History, wanted: &str, ours: &str) -> String {
    let is_taken = |id: &str| {
        history.messages.iter().any(|it| match it.as_ref() {
            Message::Assistant(it) => it.calls.iter().any(|it| it.provider_id == id),
            Message::User(_) | Message::Tool(_) => false,
        })
    };
    if !wanted.is_empty() && !is_taken(wanted) {
        return wanted.to_owned();
    }
    // A model may have made up one that looks like ours.
    let more = (1..).map(|it| format!("{ours}-{it}"));
    let mut free = std::iter::once(ours.to_owned()).chain(more).filter(|it| !is_taken(it));
    free.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::{Arguments, AssistantMessage, Echo, ToolCall};

    #[test]
    fn an_identifier_of_ours_is_not_one_of_the_model_s_either() {
        let mut history = History::default();
        let call = ToolCall {
            id: "1".into(),
            provider_id: "call-7".to_owned(),
            name: "read_file".to_owned(),
            arguments: Arguments::Object(serde_json::json!({})),
            extra: None,
        };
        history.push(Message::Assistant(AssistantMessage {
            id: "m".into(),
            text: String::new(),
            thought: String::new(),
            calls: vec![call],
            interrupted: false,
            echo: Echo::default(),
        }));
        assert_ne!(unique_provider_id(&history, "", "call-7"), "call-7");
    }
}
