//! Access to private code for the fuzz targets and the benchmarks. Not used by the program.

use std::sync::Arc;

use crate::tools::COMMON_ARGUMENTS;
use crate::turn::answer::streaming_call::PartialArguments;
use crate::turn::room::budget::{HandoffLimits, WindowBudget};
use crate::turn::room::handoff::{self, KeptTail};
use crate::turn::room::{messages_to_keep, prune};
use turnwright_types::message::Message;
use turnwright_types::token_meter::TokenMeter;

/// Compacts a conversation in a window of this many tokens, with a short summary.
pub fn compact_messages(mut messages: Vec<Arc<Message>>, window: u64) -> Vec<Arc<Message>> {
    let meter = TokenMeter::default();
    let limits = HandoffLimits::new(&WindowBudget::new(window, None, 0), &meter);
    let tail = KeptTail::choose(&messages, &limits);
    let old = &messages[..messages.len() - tail.count];
    let summary = handoff::replacement(old, &limits, None, Some("A summary."), "Mode: ask");
    let replacement = Arc::new(Message::User(summary));
    handoff::compact(&mut messages, replacement, tail.count, tail.max_result);
    messages
}

/// Leaves the old results out of a conversation in a window of this many tokens.
pub fn prune_messages(mut messages: Vec<Arc<Message>>, window: u64) -> Vec<Arc<Message>> {
    let budget = WindowBudget::new(window, None, 0);
    let meter = TokenMeter::default();
    let tokens = meter.estimate(&messages, || 0);
    if let Some(kept) = messages_to_keep(&messages, &budget, &meter, tokens) {
        prune(&mut messages, kept);
    }
    messages
}

/// Feeds the arguments of a call in these pieces. Returns the fields that were reported, and the
/// long value as far as it is shown in the end.
pub fn partial_arguments<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
) -> (Vec<(&'static str, String)>, Option<String>) {
    let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
    let found = pieces.into_iter().flat_map(|piece| arguments.push(piece));
    let values = found.map(|(argument, value)| (argument.name, value)).collect();
    let seen =
        arguments.long().and_then(|long| long.text.map(|text| format!("{:?}={text}", long.role)));
    (values, seen)
}
