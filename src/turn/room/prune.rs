//! Leaves the results of old tool calls out of the conversation. That takes no request, but the
//! provider has to read what follows anew, so it is done rarely and only if it gains much. A result that
//! the model has asked for again after it was left out stays. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::budget::WindowBudget;
use turnwright_types::message::{Message, ToolMessage};
use turnwright_types::token_meter::{TokenMeter, message_weight};

/// The tokens of the newest results that are never left out.
const KEPT_TOKENS: u64 = 40_000;
/// The fewest tokens for which pruning is worth it.
const MIN_GAIN: u64 = 20_000;
/// A result that is not longer than this stays.
const SHORT_RESULT: usize = 400;
/// The text that the model reads in place of a result.
const STUB: &str = "[This result was left out to save room. Make the call again if you need it.]";
/// The tool whose results stay, because they are instructions.
const KEPT_TOOL: &str = "skill";

/// The number of messages at the end that stay as they are if the conversation, which takes so many tokens
/// now, is pruned; `None` if that would gain too little. Only as many of the oldest results go as must.
pub(in crate::turn) fn messages_to_keep(
    messages: &[Arc<Message>],
    budget: &WindowBudget,
    meter: &TokenMeter,
    tokens: u64,
) -> Option<usize> {
    let room = budget.room();
    let min_gain = meter.weight(MIN_GAIN.min(room / 5)).max(1);
    let wanted = meter.weight(tokens.saturating_sub(budget.prune_to())).max(min_gain);
    let old = messages.len() - newest(messages, meter.weight(KEPT_TOKENS.min(room / 3)));
    let repeated = repeated_results(messages);
    let mut kept = messages.len();
    let mut gain = 0;
    for (index, message) in messages[..old].iter().enumerate() {
        if gain >= wanted {
            break;
        }
        if is_prunable(message) && !repeated.contains(&index) {
            gain += message_weight(message).saturating_sub(STUB.len() as u64);
            kept = messages.len() - index - 1;
        }
    }
    (gain >= min_gain).then_some(kept)
}

/// The number of messages at the end whose results have this weight together, or which the model has not
/// read yet.
fn newest(messages: &[Arc<Message>], weight: u64) -> usize {
    let newest = messages.iter().rev();
    let unread = newest.clone().take_while(|message| message.as_tool().is_some()).count();
    let mut results = 0;
    let fitting = newest.take_while(|message| {
        results += if message.as_tool().is_some() { message_weight(message) } else { 0 };
        results <= weight
    });
    fitting.count().max(unread)
}

/// The indices of results that the model has asked for again after they were left out, the newest of each
/// call.
fn repeated_results(messages: &[Arc<Message>]) -> HashSet<usize> {
    let mut calls = HashMap::new();
    let mut left_out = HashSet::new();
    let mut newest = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        match message.as_ref() {
            Message::Assistant(answer) => {
                calls.extend(
                    answer.calls.iter().map(|call| (&call.id, (&call.name, &call.arguments))),
                );
            }
            Message::Tool(tool) => {
                let Some(call) = calls.get(&tool.call).copied() else { continue };
                if tool.text == STUB {
                    left_out.insert(call);
                } else if left_out.contains(&call) {
                    newest.insert(call, index);
                }
            }
            Message::User(_) => {}
        }
    }
    newest.into_values().collect()
}

/// True if the model has asked again for results that were left out.
pub(super) fn has_repeated_results(messages: &[Arc<Message>]) -> bool {
    !repeated_results(messages).is_empty()
}

/// Leaves out the results before the last `kept` messages.
pub(crate) fn prune(messages: &mut [Arc<Message>], kept: usize) {
    let old = messages.len().saturating_sub(kept);
    let repeated = repeated_results(messages);
    let is_left_out = |index: usize, message: &Message| {
        index < old && is_prunable(message) && !repeated.contains(&index)
    };
    let Some(first) = (0..old).find(|index| is_left_out(*index, &messages[*index])) else { return };
    for (index, message) in messages.iter_mut().enumerate().skip(first) {
        let pruned = match message.as_ref() {
            Message::Tool(tool) if is_left_out(index, message) => Message::Tool(ToolMessage {
                text: STUB.to_owned(),
                images: Vec::new(),
                ..tool.clone()
            }),
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
    use turnwright_types::message::{Arguments, AssistantMessage, ToolCall, UserMessage};

    /// A call of a tool with its result of this length. Calls of the same name are equal.
    fn step(messages: &mut Vec<Arc<Message>>, tool: &str, length: usize) {
        let call = ToolCall {
            id: format!("call-{}", messages.len()).into(),
            provider_id: "p".to_owned(),
            name: tool.to_owned(),
            arguments: Arguments::default(),
            extra: None,
        };
        let id = call.id.clone();
        messages.push(Arc::new(Message::Assistant(AssistantMessage::new("m", "", vec![call]))));
        messages.push(Arc::new(Message::Tool(ToolMessage {
            call: id,
            provider_id: "p".to_owned(),
            name: tool.to_owned(),
            text: "x".repeat(length),
            ok: true,
            images: Vec::new(),
        })));
    }

    fn conversation(steps: &[(&str, usize)]) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (tool, length) in steps {
            step(&mut messages, tool, *length);
        }
        messages
    }

    fn prompt() -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text("hi")))
    }

    /// Prunes a conversation in a window of 200 000 tokens, of which 180 000 are usable. Returns whether it was
    /// changed.
    fn make_room(messages: &mut [Arc<Message>]) -> bool {
        let budget = WindowBudget::new(200_000, None, 0);
        let meter = TokenMeter::default();
        let tokens = meter.estimate(messages, || 0);
        let kept = messages_to_keep(messages, &budget, &meter, tokens);
        if let Some(kept) = kept {
            prune(messages, kept);
        }
        kept.is_some()
    }

    /// The lengths of the results; 0 for one that was left out.
    fn lengths(messages: &[Arc<Message>]) -> Vec<usize> {
        let length = |message: &Arc<Message>| match message.as_ref() {
            Message::Tool(tool) if tool.text == STUB => Some(0),
            Message::Tool(tool) => Some(tool.text.len()),
            _ => None,
        };
        messages.iter().filter_map(length).collect()
    }

    #[test]
    fn only_as_many_of_the_oldest_results_go_as_must_and_short_ones_and_skills_stay() {
        let mut messages = conversation(&[
            ("a", 100_000),
            ("skill", 100_000),
            ("b", 400),
            ("c", 150_000),
            ("d", 150_000),
            ("e", 150_000),
        ]);
        messages.push(prompt());
        let before = messages.clone();
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 100_000, 400, 0, 150_000, 150_000]);
        // A shared message would stand for what was rendered before it.
        assert!(
            messages[1..].iter().zip(&before[1..]).all(|(one, other)| !Arc::ptr_eq(one, other))
        );
    }

    #[test]
    fn what_was_read_again_stays_and_what_was_read_twice_stays_once() {
        let files = [("a", 150_000), ("b", 150_000), ("c", 150_000), ("d", 200_000)];
        let mut messages = conversation(&files);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 150_000, 200_000]);
        assert!(!has_repeated_results(&messages));
        step(&mut messages, "a", 160_000);
        assert!(has_repeated_results(&messages));
        step(&mut messages, "e", 200_000);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 0, 0, 160_000, 200_000]);
        step(&mut messages, "a", 170_000);
        step(&mut messages, "f", 60_000);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 0, 0, 0, 200_000, 170_000, 60_000]);
    }

    #[test]
    fn a_small_gain_is_not_worth_it() {
        let mut messages = conversation(&[("exec", 30_000), ("exec", 130_000)]);
        messages.push(prompt());
        assert!(!make_room(&mut messages));
        // The model has not read this one yet.
        assert!(!make_room(&mut conversation(&[("exec", 400_000)])));
        assert!(!make_room(&mut []));
    }
}
