//! Repairs a conversation whose tool calls and results do not match, because providers reject such
//! requests. No I/O.

use std::sync::Arc;

use crate::message::{Message, ToolMessage};

/// Returns the conversation with exactly one result for each tool call, directly after the message that
/// made it. A call without a result gets one that says it was interrupted; a result without a call is
/// dropped.
pub fn repair(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut repaired = Vec::with_capacity(messages.len());
    let mut rest = messages.iter().peekable();
    while let Some(message) = rest.next() {
        let Message::Assistant(assistant) = message.as_ref() else {
            if !matches!(message.as_ref(), Message::Tool(_)) {
                repaired.push(Arc::clone(message));
            }
            continue;
        };
        repaired.push(Arc::clone(message));
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|next| matches!(next.as_ref(), Message::Tool(_))) {
            results.push(Arc::clone(result));
        }
        for call in &assistant.calls {
            let answer = results.iter().find(|result| match result.as_ref() {
                Message::Tool(tool) => tool.call == call.id,
                _ => false,
            });
            repaired.push(answer.cloned().unwrap_or_else(|| {
                Arc::new(Message::Tool(ToolMessage {
                    call: call.id.clone(),
                    provider_id: call.provider_id.clone(),
                    name: call.name.clone(),
                    text: "Interrupted before a result was there. It may have run partly: check \
                           before repeating it."
                        .to_owned(),
                    ok: false,
                    images: Vec::new(),
                }))
            }));
        }
    }
    repaired
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{AssistantMessage, ToolCall, UserMessage};

    fn user() -> Message {
        Message::User(UserMessage::text("hello"))
    }

    fn assistant(calls: &[u32]) -> Message {
        let call = |number: &u32| {
            ToolCall::new(
                number.to_string(),
                format!("p{number}"),
                "read_file",
                serde_json::json!({}),
            )
        };
        Message::Assistant(AssistantMessage::new("m", "", calls.iter().map(call).collect()))
    }

    fn tool(number: u32) -> Message {
        Message::Tool(ToolMessage {
            call: number.to_string().into(),
            provider_id: format!("p{number}"),
            name: "read_file".to_owned(),
            text: "result".to_owned(),
            ok: true,
            images: Vec::new(),
        })
    }

    /// True if every tool call is followed by its result and there are no other results, as strict
    /// providers require.
    fn every_call_has_its_result(messages: &[Arc<Message>]) -> bool {
        let mut unanswered: Vec<String> = Vec::new();
        for message in messages {
            match message.as_ref() {
                Message::Tool(tool) => {
                    if unanswered.first() != Some(&tool.provider_id) {
                        return false;
                    }
                    unanswered.remove(0);
                }
                _ if !unanswered.is_empty() => return false,
                Message::Assistant(answer) => {
                    unanswered = answer.calls.iter().map(|call| call.provider_id.clone()).collect();
                }
                Message::User(_) => {}
            }
        }
        unanswered.is_empty()
    }

    proptest! {
        #[test]
        fn every_prefix_of_every_history_is_repaired_to_a_valid_one(
            script in proptest::collection::vec((0..4_u8, proptest::collection::vec(0..6_u32, 0..4)), 0..20),
        ) {
            let mut next = 0;
            let mut messages = Vec::new();
            for (sort, numbers) in script {
                match sort {
                    0 => messages.push(user()),
                    1 | 2 => {
                        let calls: Vec<_> = numbers.iter().map(|_| { next += 1; next }).collect();
                        messages.push(assistant(&calls));
                        // Results in another order, some missing, some without a call.
                        messages.extend(numbers.iter().map(|number| tool(next.saturating_sub(*number))));
                    }
                    _ => messages.push(tool(numbers.first().copied().unwrap_or(0))),
                }
            }
            let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
            for end in 0..=messages.len() {
                prop_assert!(every_call_has_its_result(&repair(&messages[..end])));
            }
        }
    }

    #[test]
    fn a_valid_history_is_unchanged() {
        let messages: Vec<_> = [user(), assistant(&[1, 2]), tool(1), tool(2), assistant(&[])]
            .into_iter()
            .map(Arc::new)
            .collect();
        assert_eq!(repair(&messages), messages);
    }
}
