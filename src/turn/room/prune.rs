//! Leaves the results of old tool calls out of the conversation. That takes no request, but the
//! provider has to read what follows anew, so it is done rarely and only if it gains much. Pure.

use std::sync::Arc;

use super::budget::WindowBudget;
use turnwright_types::message::{Message, ToolMessage};
use turnwright_types::token_meter::{TokenMeter, message_weight};

/// The newest results, of so many tokens, are never left out.
const KEPT_TOKENS: u64 = 40_000;
/// Fewer tokens are not worth it.
const MIN_GAIN: u64 = 20_000;
/// A result that is not longer than this stays.
const SHORT_RESULT: usize = 400;
/// What the model reads in place of a result.
const STUB: &str = "[This result was left out to save room. Make the call again if you need it.]";
/// The tool whose results stay, because they are instructions.
const KEPT_TOOL: &str = "skill";

/// The number of messages at the end that stay as they are if the conversation is pruned now; `None` if
/// that would gain too little.
pub(in crate::turn) fn messages_to_keep(
    messages: &[Arc<Message>],
    budget: &WindowBudget,
    meter: &TokenMeter,
) -> Option<usize> {
    let room = budget.room();
    let kept_weight = meter.weight(KEPT_TOKENS.min(room / 3));
    let min_gain = meter.weight(MIN_GAIN.min(room / 5));
    // The model has not read these yet.
    let is_result = |it: &&Arc<Message>| matches!(it.as_ref(), Message::Tool(_));
    let unread = messages.iter().rev().take_while(is_result).count();
    let (mut newer, mut kept, mut gain) = (0, None, 0);
    for (count, message) in messages.iter().rev().enumerate() {
        let weight = message_weight(message);
        if matches!(message.as_ref(), Message::Tool(_)) {
            newer += weight;
        }
        if newer <= kept_weight || count < unread {
            continue;
        }
        kept.get_or_insert(count);
        if is_prunable(message) {
            gain += weight.saturating_sub(STUB.len() as u64);
        }
    }
    kept.filter(|_| gain >= min_gain.max(1))
}

/// Leaves out the results before the last `kept` messages.
pub(crate) fn prune(messages: &mut [Arc<Message>], kept: usize) {
    let old = messages.len().saturating_sub(kept);
    let Some(first) = messages[..old].iter().position(|it| is_prunable(it)) else { return };
    for (index, message) in messages.iter_mut().enumerate().skip(first) {
        let pruned = match message.as_ref() {
            Message::Tool(tool) if index < old && is_prunable(message) => {
                Message::Tool(ToolMessage {
                    text: STUB.to_owned(),
                    images: Vec::new(),
                    ..tool.clone()
                })
            }
            // All later messages are replaced too: a message caches what was rendered up to it.
            other => other.clone(),
        };
        *message = Arc::new(pruned);
    }
}

fn is_prunable(message: &Message) -> bool {
    matches!(message, Message::Tool(tool)
        if tool.name != KEPT_TOOL && (tool.text.len() > SHORT_RESULT || !tool.images.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::UserMessage;

    fn result(name: &str, length: usize) -> Arc<Message> {
        Arc::new(Message::Tool(ToolMessage {
            call: "c".into(),
            provider_id: "p".to_owned(),
            name: name.to_owned(),
            text: "x".repeat(length),
            ok: true,
            images: Vec::new(),
        }))
    }

    fn prompt() -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text("hi")))
    }

    fn texts(messages: &[Arc<Message>]) -> Vec<usize> {
        let length = |it: &Arc<Message>| match it.as_ref() {
            Message::Tool(it) => it.text.len(),
            _ => 0,
        };
        messages.iter().map(length).collect()
    }

    #[test]
    fn old_results_are_left_out_and_new_or_short_ones_and_skills_stay() {
        let mut messages = vec![
            result("read_file", 100_000),
            result("skill", 100_000),
            result("exec", 400),
            result("read_file", 100_000),
            result("read_file", 100_000),
            result("read_file", 50_000),
            prompt(),
        ];
        let budget = WindowBudget::new(200_000, None, 0);
        let kept = messages_to_keep(&messages, &budget, &TokenMeter::default()).unwrap();
        assert_eq!(kept, 3);
        let before = messages.clone();
        prune(&mut messages, kept);
        let stub = STUB.len();
        assert_eq!(texts(&messages), [stub, 100_000, 400, stub, 100_000, 50_000, 0]);
        // A shared message would stand for what was rendered before it.
        assert!(messages.iter().zip(&before).all(|(one, other)| !Arc::ptr_eq(one, other)));
        assert_eq!(messages_to_keep(&messages, &budget, &TokenMeter::default()), None);
    }

    #[test]
    fn a_small_gain_is_not_worth_it() {
        let messages = vec![result("exec", 30_000), result("exec", 130_000), prompt()];
        let budget = WindowBudget::new(200_000, None, 0);
        assert_eq!(messages_to_keep(&messages, &budget, &TokenMeter::default()), None);
        // The model has not read this one yet.
        let messages = vec![result("exec", 400_000)];
        assert_eq!(messages_to_keep(&messages, &budget, &TokenMeter::default()), None);
        assert_eq!(messages_to_keep(&[], &budget, &TokenMeter::default()), None);
    }
}
