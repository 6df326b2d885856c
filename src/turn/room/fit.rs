//! Shortens a conversation that does not fit into the window, so that it can be summarised. Pure.

use std::sync::Arc;

use super::prune::prune;
use turnwright_types::message::{Message, PromptPart};
use turnwright_types::text;
use turnwright_types::token_meter::{message_weight, weight_of};

/// The newest messages, whose results are left out last.
const NEWEST: usize = 8;

/// Leaves out as much as needed, the least important first: old results, the middle of long texts, then
/// the oldest messages but the first.
pub(super) fn fit(messages: &mut Vec<Arc<Message>>, max_weight: u64) {
    if weight_of(messages) <= max_weight {
        return;
    }
    prune(messages, NEWEST);
    if weight_of(messages) <= max_weight {
        return;
    }
    let longest = usize::try_from(max_weight / 8).unwrap_or(usize::MAX);
    for message in messages.iter_mut() {
        *message = Arc::new(shortened(message, longest));
    }
    let mut excess = weight_of(messages).saturating_sub(max_weight);
    let mut dropped = 0;
    // The last message says what is to be done.
    let droppable = messages.len().saturating_sub(2);
    for message in messages.iter().skip(1).take(droppable) {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(message_weight(message));
        dropped += 1;
    }
    // The rest must not begin with results of a call that is gone.
    let rest = messages.iter().skip(1 + dropped).take(droppable - dropped);
    dropped += rest.take_while(|message| message.as_tool().is_some()).count();
    messages.drain(1..=dropped);
}

fn shortened(message: &Message, longest: usize) -> Message {
    let mut message = message.clone();
    match &mut message {
        Message::User(user) => {
            for part in &mut user.parts {
                match part {
                    PromptPart::Text(text)
                    | PromptPart::Context(text)
                    | PromptPart::Resource { text, .. } => *text = text::clip_middle(text, longest),
                    PromptPart::Image(_) => *part = PromptPart::Text("[image]".to_owned()),
                    PromptPart::Audio(_) => *part = PromptPart::Text("[recording]".to_owned()),
                    PromptPart::Link { .. } => {}
                }
            }
        }
        Message::Assistant(answer) => {
            answer.text = text::clip_middle(&answer.text, longest);
            answer.provider_state.blobs.clear();
        }
        Message::Tool(tool) => {
            tool.text = text::clip_middle(&tool.text, longest);
            tool.images.clear();
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::{ToolMessage, UserMessage};

    #[test]
    fn what_is_too_long_fits_afterwards_and_the_first_and_the_last_message_stay() {
        let prompt = |text: &str| Arc::new(Message::User(UserMessage::text(text)));
        let result = || {
            Arc::new(Message::Tool(ToolMessage {
                call: "c".into(),
                provider_id: "p".to_owned(),
                name: "exec".to_owned(),
                text: "x".repeat(50_000),
                ok: true,
                images: Vec::new(),
            }))
        };
        for max_weight in [4_000, 10_000, 100_000, 400_000] {
            let mut messages = vec![prompt("the task")];
            for number in 0..30 {
                messages.push(prompt(&format!("step {number} {}", "word ".repeat(3_000))));
                messages.push(result());
            }
            messages.push(prompt("the end"));
            fit(&mut messages, max_weight);
            assert!(weight_of(&messages) <= max_weight, "{max_weight}");
            assert_eq!(messages.first(), Some(&prompt("the task")), "{max_weight}");
            assert_eq!(messages.last(), Some(&prompt("the end")), "{max_weight}");
            assert!(!matches!(messages[1].as_ref(), Message::Tool(_)), "{max_weight}");
        }
    }

    #[test]
    fn a_conversation_that_fits_is_not_touched() {
        let mut messages = vec![Arc::new(Message::User(UserMessage::text("hi")))];
        let before = messages.clone();
        fit(&mut messages, 1_000);
        assert!(Arc::ptr_eq(&messages[0], &before[0]));
    }
}
