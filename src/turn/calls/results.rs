//! Ensures that each call of an answer gets exactly one result.

use crate::tools::ToolOutcome;
use turnwright_types::message::{ToolCall, ToolMessage};

/// The calls of one answer and their results. A provider rejects a history in which a call has no
/// result, so [`CallResults::close`], which leaves none without, is the only way to get the results
/// out.
#[must_use = "close the ledger or the next request will be invalid"]
#[derive(Debug)]
pub(super) struct CallResults {
    entries: Vec<(ToolCall, Option<ToolMessage>)>,
}

impl CallResults {
    pub(in crate::turn) fn open(calls: Vec<ToolCall>) -> CallResults {
        CallResults { entries: calls.into_iter().map(|call| (call, None)).collect() }
    }

    /// Sets the result of a call unless it has one: a tool that finishes while it is being
    /// cancelled may report twice. Returns the call if the result was set.
    pub(super) fn settle(&mut self, number: usize, outcome: &ToolOutcome) -> Option<&ToolCall> {
        match self.entries.get_mut(number) {
            Some((call, slot)) if slot.is_none() => {
                *slot = Some(ToolMessage {
                    text: outcome.text.clone(),
                    ok: outcome.ok,
                    images: outcome.images.clone(),
                    ..unanswered(call)
                });
                Some(call)
            }
            _ => None,
        }
    }

    /// Returns the results in the order of the calls; calls without a result get this reason.
    pub(super) fn close(self, reason: &str) -> impl Iterator<Item = ToolMessage> {
        self.entries.into_iter().map(move |(call, result)| {
            result.unwrap_or_else(|| ToolMessage { text: reason.to_owned(), ..unanswered(&call) })
        })
    }
}

/// The result of a call that has not run, without a reason.
fn unanswered(call: &ToolCall) -> ToolMessage {
    ToolMessage {
        call: call.id.clone(),
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        text: String::new(),
        ok: false,
        images: Vec::new(),
    }
}
