//! Measures what making room in a conversation costs without the model's time.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnwright::internals::{compact_messages, prune_messages};
use turnwright_types::message::{AssistantMessage, Message, ToolCall, ToolMessage, UserMessage};

use crate::table::{Table, ms};

/// How often each is repeated.
const ROUNDS: u32 = 100;
/// The window in tokens.
const WINDOW: u64 = 200_000;

pub(crate) fn measure() {
    let mut table = Table::begin("room in a conversation of 1 000 messages");
    let messages = conversation();
    table.row("compaction", ms(average(|| compact_messages(messages.clone(), WINDOW))), "ms", 5.0);
    table.row("pruning", ms(average(|| prune_messages(messages.clone(), WINDOW))), "ms", 1.0);
}

fn average<T>(work: impl Fn() -> T) -> Duration {
    let started = Instant::now();
    (0..ROUNDS).for_each(|_| drop(black_box(work())));
    started.elapsed() / ROUNDS
}

/// Prompts, calls with their results, and answers.
fn conversation() -> Vec<Arc<Message>> {
    let turn = |number: usize| {
        let call = ToolCall {
            id: format!("call-{number}").into(),
            provider_id: format!("p{number}"),
            name: "read_file".to_owned(),
            arguments: turnwright_types::message::Arguments::default(),
            extra: None,
        };
        let answer = |text: &str, calls| {
            Message::Assistant(AssistantMessage::new(format!("msg-{number}"), text, calls))
        };
        let result = ToolMessage {
            call: call.id.clone(),
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            text: "some text of a file\n".repeat(150),
            ok: true,
            images: Vec::new(),
        };
        [
            Message::User(UserMessage::text(format!("Read file {number}, please."))),
            answer("", vec![call]),
            Message::Tool(result),
            answer("It has some text.", Vec::new()),
        ]
    };
    (0..250).flat_map(turn).map(Arc::new).collect()
}
